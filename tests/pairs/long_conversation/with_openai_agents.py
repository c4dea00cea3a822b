"""Keeps a conversation of many turns: the model sees its newest part, and the whole of it stays."""

import asyncio
import sys

from agents import Agent, RunConfig, Runner, SQLiteSession, TResponseInputItem, function_tool


@function_tool
def add(total: int, amount: int) -> int:
    """Add an amount to a total."""
    return total + amount


clerk = Agent(name="clerk", model="gpt-5.1", instructions="You keep a running total.", tools=[add])
session = SQLiteSession("c1", "conversations.db")


def keep_newest(
    history: list[TResponseInputItem], new_input: list[TResponseInputItem]
) -> list[TResponseInputItem]:
    """The newest two exchanges. A cut elsewhere would part a call from its result."""
    starts = [index for index, item in enumerate(history) if item.get("role") == "user"]
    return (history[starts[-2] :] if len(starts) > 2 else history) + new_input


async def say() -> None:
    """Send one message, in a process of its own."""
    config = RunConfig(session_input_callback=keep_newest)
    result = await Runner.run(clerk, sys.argv[2], session=session, run_config=config)
    print(result.final_output)


async def read() -> None:
    """Read the whole conversation."""
    texts = [item.get("content") for item in await session.get_items() if item.get("role") == "user"]
    print(f"{len(texts)} messages, from {texts[0]!r} to {texts[-1]!r}")


if __name__ == "__main__":
    asyncio.run({"say": say, "read": read}[sys.argv[1]]())
