"""Play rollouts as an agent would: by OpenAI's API under /v1, with nothing of Headway but the base URL and the key.

Everything that the policy samples is recorded where it is sampled; what goes back is a reward.
"""

import argparse

import headway
from openai import OpenAI
from task import question


def main() -> None:
    """Play until the run has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:7070")
    parser.add_argument("--concurrency", type=int, default=64)
    said = parser.parse_args()
    client = OpenAI(base_url=said.url + "/v1", api_key="each rollout has its own", max_retries=5, timeout=600)

    @headway.environment("addition")
    def play(task: headway.Task, _: object) -> headway.Result:
        asked, right = question(task.seed, task.prompt)
        reply = client.with_options(api_key=task.openai().api_key).chat.completions.create(
            model="policy", messages=[{"role": "user", "content": asked}], max_tokens=8
        )
        answer = reply.choices[0].message.content or ""
        solved = answer == right
        return headway.Result(float(solved), exact=solved, prompt_text=asked, response_text=answer, answer_text=right)

    print(headway.work(said.url, play, said.concurrency), "rollouts finished")


if __name__ == "__main__":
    main()
