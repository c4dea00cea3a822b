"""Keeps a conversation of many turns: the model sees its newest part, and the whole of it stays."""

import sys
from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

STORE = Path("c1.json")

clerk = Agent("openai:gpt-5.1", instructions="You keep a running total.")


@clerk.tool_plain
def add(total: int, amount: int) -> int:
    """Add an amount to a total."""
    return total + amount


def list_texts(message: ModelMessage) -> list[str]:
    """What the user says in a message."""
    if not isinstance(message, ModelRequest):
        return []
    return [str(part.content) for part in message.parts if isinstance(part, UserPromptPart)]


def load() -> list[ModelMessage]:
    """The whole conversation."""
    return ModelMessagesTypeAdapter.validate_json(STORE.read_bytes()) if STORE.exists() else []


def keep_newest(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The newest two exchanges. A cut elsewhere would part a call from its result."""
    starts = [index for index, message in enumerate(messages) if list_texts(message)]
    return messages[starts[-2] :] if len(starts) > 2 else messages


def say() -> None:
    """Send one message, in a process of its own."""
    messages = load()
    result = clerk.run_sync(sys.argv[2], message_history=keep_newest(messages))
    STORE.write_bytes(ModelMessagesTypeAdapter.dump_json([*messages, *result.new_messages()]))
    print(result.output)


def read() -> None:
    """Read the whole conversation."""
    texts = [text for message in load() for text in list_texts(message)]
    print(f"{len(texts)} messages, from {texts[0]!r} to {texts[-1]!r}")


if __name__ == "__main__":
    {"say": say, "read": read}[sys.argv[1]]()
