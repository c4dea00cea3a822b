"""Keeps a conversation of many turns: the model sees its newest part, and the whole of it stays."""

import json
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI
from openai.types.responses import FunctionToolParam
from pydantic import TypeAdapter

STORE = Path("c1.jsonl")


def add(total: int, amount: int) -> int:
    """Add an amount to a total."""
    return total + amount


TOOLS = [
    FunctionToolParam(
        type="function",
        name=add.__name__,
        description=add.__doc__,
        parameters=TypeAdapter(add).json_schema(),
        strict=True,
    )
]
client = OpenAI()


def load() -> list[Any]:
    """The whole conversation."""
    return [json.loads(line) for line in STORE.read_text("utf-8").splitlines()] if STORE.exists() else []


def keep_newest(items: list[Any]) -> list[Any]:
    """The newest three exchanges. A cut elsewhere would part a call from its result."""
    starts = [index for index, item in enumerate(items) if item.get("role") == "user"]
    return items[starts[-3] :] if len(starts) > 3 else items


def say() -> None:
    """Send one message, in a process of its own."""
    items = [*load(), {"role": "user", "content": sys.argv[2]}]
    kept = len(items) - 1
    while True:
        response = client.responses.create(
            model="gpt-5.1", instructions="You keep a running total.", input=keep_newest(items), tools=TOOLS
        )
        calls = [item for item in response.output if item.type == "function_call"]
        items += [item.to_dict() for item in response.output]
        if not calls:
            break
        for call in calls:
            value = add(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": str(value)})
    with STORE.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(item) + "\n" for item in items[kept:])
    print(response.output_text)


def read() -> None:
    """Read the whole conversation."""
    texts = [item["content"] for item in load() if item.get("role") == "user"]
    print(f"{len(texts)} messages, from {texts[0]!r} to {texts[-1]!r}")


if __name__ == "__main__":
    {"say": say, "read": read}[sys.argv[1]]()
