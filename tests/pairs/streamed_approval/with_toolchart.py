"""Streams an answer, asks a person before money is paid, and streams the rest."""

import asyncio

from toolchart import Agent, TextDelta, Turn, TurnStream, tool


@tool(requires_approval=True)
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    return f"{order}: {cents} cents paid back"


support = Agent("openai:gpt-5.1", prompt="You help customers of a shop.", tools=[refund])


async def show(stream: TurnStream[str]) -> Turn[str]:
    """Print the text as it comes."""
    async with stream:
        async for piece in stream:
            if isinstance(piece, TextDelta):
                print(piece.text, end="", flush=True)
    print()
    return stream.turn


async def main() -> None:
    """Answer one customer and approve."""
    async with support.open() as desk:
        turn = await show(desk.stream("Refund A7, please."))
        while turn.pending_approvals:
            call = turn.pending_approvals[0]
            print(f"{call.tool} {call.params} waits")
            turn = await show(desk.stream_approval(turn.conversation, call.id, by="ann"))


if __name__ == "__main__":
    asyncio.run(main())
