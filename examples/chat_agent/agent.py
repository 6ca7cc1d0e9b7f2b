"""An agent of two turns with a tool, by OpenAI's client: python -m headway.worker agent:sums http://127.0.0.1:7070

Nothing in it knows which model answers: a small one on this machine while it is written, yours on vLLM in the run.
"""

import json
import random
import re
from typing import Any

from openai import OpenAI

import headway

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = {"name": "add", "description": "Add two whole numbers", "parameters": NUMBERS}
TOOLS: list[Any] = [{"type": "function", "function": ADD}]


def answered(arguments: str) -> str:
    """The tool's answer to what the policy asked of it, which may be no sense at all."""
    try:
        asked = json.loads(arguments)
        return str(int(asked["a"]) + int(asked["b"]))
    except (ValueError, TypeError, KeyError) as error:
        return f"error: want whole numbers a and b: {error!r}"


@headway.environment("rollouts")
def sums(task: headway.Task, _: object) -> headway.Result:
    """Ask for a sum, and once more where the answer is not it."""
    numbers = random.Random(f"{task.seed} {task.prompt}")
    a, b = numbers.randint(1, 9), numbers.randint(1, 9)
    question = f"What is {a} plus {b}? Answer with the number alone."
    chat: list[Any] = [{"role": "user", "content": question}]
    said, right = "", False
    with OpenAI(**task.openai().client, timeout=600) as client:
        for turn in range(2):
            reply = client.chat.completions.create(model="policy", messages=chat, tools=TOOLS, max_tokens=48)
            message = reply.choices[0].message
            said = message.content or ""
            right = re.findall(r"\d+", said)[-1:] == [str(a + b)]
            if right or turn:
                break
            chat.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
            for call in message.tool_calls or []:
                chat.append({"role": "tool", "tool_call_id": call.id, "content": answered(call.function.arguments)})
            if not message.tool_calls:
                chat.append({"role": "user", "content": "That is not the number. Try again."})
    print(f"{task.id}: {question} {said!r}", flush=True)
    return headway.Result(float(right), prompt_text=question, response_text=said, answer_text=str(a + b))
