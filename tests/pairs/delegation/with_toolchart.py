"""Lets one agent ask another, whose act waits for a person; a second process approves, and goes on."""

import sys

from toolchart import Agent, tool


@tool(requires_approval=True)
def credit(customer: str, cents: int) -> str:
    """Give a customer money."""
    return f"{customer} has {cents} cents more"


billing = Agent(
    "openai:gpt-5.1",
    name="billing",
    description="Knows bills, and gives credit.",
    prompt="You do what concerns bills.",
    tools=[credit],
)
front = Agent("openai:gpt-5.1", name="front", prompt="You help customers.", agents=[billing])


def ask() -> None:
    """Begin the turn. It ends where it waits for a person."""
    turn = front.run("I paid 500 cents too much. I am Ada.", conversation="c1")
    for call in turn.pending_approvals:
        print(f"{call.tool} {call.params} waits")


def approve() -> None:
    """Approve what waits, in another process, and go on."""
    with front.open() as desk:
        print(desk.approve("c1", by="ann").output)


if __name__ == "__main__":
    {"ask": ask, "approve": approve}[sys.argv[1]]()
