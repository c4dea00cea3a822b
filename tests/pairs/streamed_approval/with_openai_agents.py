"""Streams an answer, asks a person before money is paid, and streams the rest."""

import asyncio
import json

from agents import Agent, Runner, RunResultStreaming, function_tool
from openai.types.responses import ResponseTextDeltaEvent


@function_tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return f"{order}: {cents} cents paid back"


support = Agent(name="support", model="gpt-5.1", instructions="You help customers of a shop.", tools=[refund])


async def show(result: RunResultStreaming) -> RunResultStreaming:
    """Print the text as it comes."""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="", flush=True)
    print()
    return result


async def main() -> None:
    """Answer one customer and approve."""
    result = await show(Runner.run_streamed(support, "Refund A7, please."))
    while result.interruptions:
        call = result.interruptions[0]
        print(f"{call.name} {json.loads(call.arguments or '{}')} waits")
        state = result.to_state()
        state.approve(call)
        result = await show(Runner.run_streamed(support, state))


if __name__ == "__main__":
    asyncio.run(main())
