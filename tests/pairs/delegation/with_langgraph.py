"""Lets one agent ask another, whose act waits for a person; a second process approves, and goes on."""

import sys

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command


def credit(customer: str, cents: int) -> str:
    """Give a customer money."""
    return f"{customer} has {cents} cents more"


clerk = create_agent(
    "openai:gpt-5.1",
    system_prompt="You do what concerns bills.",
    tools=[credit],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"credit": True})],
)


def billing(message: str) -> str:
    """Knows bills, and gives credit."""
    result = clerk.invoke({"messages": [{"role": "user", "content": message}]})
    return result["messages"][-1].text


def main() -> None:
    """Begin the run, which ends where it waits for a person; or approve what waits, and go on."""
    config = {"configurable": {"thread_id": "c1"}}
    with SqliteSaver.from_conn_string("conversations.db") as saver:
        front = create_agent(
            "openai:gpt-5.1", system_prompt="You help customers.", tools=[billing], checkpointer=saver
        )
        if sys.argv[1] == "ask":
            question = {"role": "user", "content": "I paid 500 cents too much. I am Ada."}
            result = front.invoke({"messages": [question]}, config)
            for waiting in result["__interrupt__"]:
                for call in waiting.value["action_requests"]:
                    print(f"{call['name']} {call['args']} waits")
        else:
            result = front.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
            print(result["messages"][-1].text)


if __name__ == "__main__":
    main()
