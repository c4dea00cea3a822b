"""Streams an answer, asks a person before money is paid, and streams the rest."""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.messages import AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Interrupt


def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return f"{order}: {cents} cents paid back"


support = create_agent(
    "openai:gpt-5.1",
    system_prompt="You help customers of a shop.",
    tools=[refund],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
    checkpointer=InMemorySaver(),
)


async def show(message: Any) -> list[Interrupt]:
    """Print the text as it comes. Returns what waits for a person."""
    config = {"configurable": {"thread_id": "c1"}}
    waiting: list[Interrupt] = []
    async for part in support.astream(message, config, stream_mode=["messages", "updates"], version="v2"):
        if part["type"] == "updates":
            waiting += part["data"].get("__interrupt__", ())
        elif part["type"] == "messages" and isinstance(part["data"][0], AIMessageChunk):
            print(part["data"][0].text, end="", flush=True)
    print()
    return waiting


async def main() -> None:
    """Answer one customer and approve."""
    waiting = await show({"messages": [{"role": "user", "content": "Refund A7, please."}]})
    while waiting:
        call = waiting[0].value["action_requests"][0]
        print(f"{call['name']} {call['args']} waits")
        waiting = await show(Command(resume={"decisions": [{"type": "approve"}]}))


if __name__ == "__main__":
    asyncio.run(main())
