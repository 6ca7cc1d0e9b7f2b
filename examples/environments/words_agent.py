"""An agent of the embedded model, by OpenAI's API: a word, to be said backwards. Put your agent here."""

import random

from openai import OpenAI

import headway

LETTERS = "abcdefghijklmnopqrstuvwxyz"
CLIENT = OpenAI(base_url="http://each-rollout-has-its-own", api_key="too", max_retries=5, timeout=600)


@headway.environment("words")
def words(task: headway.Task) -> headway.Result:
    """Play a rollout: any calls of OpenAI's API, any tools. What the policy says is recorded where it is sampled."""
    draw = random.Random(f"{task.seed}/{task.prompt}")  # of the task alone: all rollouts of a group get the same
    word = "".join(draw.choices(LETTERS, k=draw.randint(2, 5)))
    answer = word[::-1]
    reply = CLIENT.with_options(**task.openai().client).chat.completions.create(
        model="policy", messages=[{"role": "user", "content": word}], max_tokens=6
    )
    said = reply.choices[0].message.content or ""
    right = sum(a == b for a, b in zip(said, answer, strict=False))
    return headway.Result(
        right / max(len(said), len(answer)), exact=said == answer,
        prompt_text=word, response_text=said, answer_text=answer,
    )  # fmt: skip
