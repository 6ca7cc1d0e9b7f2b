"""An agent by OpenAI's API: two numbers, to be added. Put your agent here."""

import random

from openai import OpenAI

import headway

CLIENT = OpenAI(base_url="http://each-rollout-has-its-own", api_key="too", max_retries=5, timeout=600)


@headway.environment("sums")
def sums(task: headway.Task) -> headway.Result:
    """Play a rollout: any calls of OpenAI's API, any tools. What the policy says is recorded where it is sampled."""
    draw = random.Random(f"{task.seed}/{task.prompt}")  # of the task alone: all rollouts of a group get the same
    a, b = draw.randint(0, 999), draw.randint(0, 999)
    asked = f"What is {a} + {b}? Say the number alone in the last line."
    reply = CLIENT.with_options(**task.openai().client).chat.completions.create(
        model="policy", messages=[{"role": "user", "content": asked}], max_tokens=256
    )
    said = reply.choices[0].message.content or ""
    right = said.strip().rpartition("\n")[2].strip() == str(a + b)
    return headway.Result(
        float(right), exact=right, prompt_text=asked, response_text=said, answer_text=str(a + b)
    )  # fmt: skip
