"""Keeps a conversation of many turns: the model sees its newest part, and the whole of it stays."""

import sys

from toolchart import Agent


def add(total: int, amount: int) -> int:
    """Add an amount to a total."""
    return total + amount


clerk = Agent(
    "openai:gpt-5.1", prompt="You keep a running total.", tools=[add], chart="compacting", context_limit=300
)


def say() -> None:
    """Send one message, in a process of its own."""
    print(clerk.run(sys.argv[2], conversation="c1").output)


def read() -> None:
    """Read the whole conversation."""
    with clerk.open() as desk:
        messages = desk.conversation("c1").messages
    texts = [message.content for message in messages if message.role == "user"]
    print(f"{len(texts)} messages, from {texts[0]!r} to {texts[-1]!r}")


if __name__ == "__main__":
    {"say": say, "read": read}[sys.argv[1]]()
