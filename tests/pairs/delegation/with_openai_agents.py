"""Lets one agent ask another, whose act waits for a person; a second process approves, and goes on."""

import asyncio
import json
import sys
from pathlib import Path

from agents import Agent, Runner, RunState, function_tool

STATE = Path("c1.json")


@function_tool(needs_approval=True)
def credit(customer: str, cents: int) -> str:
    """Give a customer money."""
    return f"{customer} has {cents} cents more"


billing = Agent(name="billing", model="gpt-5.1", instructions="You do what concerns bills.", tools=[credit])
front = Agent(
    name="front",
    model="gpt-5.1",
    instructions="You help customers.",
    tools=[billing.as_tool("billing", "Knows bills, and gives credit.")],
)


async def ask() -> None:
    """Begin the run. It ends where it waits for a person."""
    result = await Runner.run(front, "I paid 500 cents too much. I am Ada.")
    STATE.write_text(result.to_state().to_string())
    for call in result.interruptions:
        print(f"{call.name} {json.loads(call.arguments or '{}')} waits")


async def approve() -> None:
    """Approve what waits, in another process, and go on."""
    state = await RunState.from_string(front, STATE.read_text())
    for call in state.get_interruptions():
        state.approve(call)
    result = await Runner.run(front, state)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run({"ask": ask, "approve": approve}[sys.argv[1]]())
