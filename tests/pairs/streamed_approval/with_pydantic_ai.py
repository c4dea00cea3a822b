"""Streams an answer, asks a person before money is paid, and streams the rest."""

import asyncio
from contextlib import AbstractAsyncContextManager

from pydantic_ai import (
    Agent,
    AgentRunEvents,
    AgentRunResult,
    DeferredToolRequests,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)

Answer = str | DeferredToolRequests

support = Agent(
    "openai:gpt-5.1", instructions="You help customers of a shop.", output_type=[str, DeferredToolRequests]
)


@support.tool_plain(requires_approval=True)
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return f"{order}: {cents} cents paid back"


async def show(stream: AbstractAsyncContextManager[AgentRunEvents[Answer]]) -> AgentRunResult[Answer]:
    """Print the text as it comes."""
    async with stream as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)):
                    print(text, end="", flush=True)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    print(text, end="", flush=True)
    print()
    return events.result


async def main() -> None:
    """Answer one customer and approve."""
    result = await show(support.run_stream_events("Refund A7, please."))
    while isinstance(result.output, DeferredToolRequests):
        call = result.output.approvals[0]
        print(f"{call.tool_name} {call.args_as_dict()} waits")
        decisions = result.output.build_results(approvals={call.tool_call_id: True})
        result = await show(
            support.run_stream_events(conversation=result.conversation, deferred_tool_results=decisions)
        )


if __name__ == "__main__":
    asyncio.run(main())
