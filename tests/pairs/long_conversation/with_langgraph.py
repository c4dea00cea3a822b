"""Keeps a conversation of many turns: the model sees its newest part, and the whole of it stays."""

import sys
from collections.abc import Callable

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
from langchain.messages import trim_messages
from langgraph.checkpoint.sqlite import SqliteSaver


def add(total: int, amount: int) -> int:
    """Add an amount to a total."""
    return total + amount


@wrap_model_call
def keep_newest(request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
    """What fits. A cut elsewhere than before a message of the user would part a call from its result."""
    messages = trim_messages(
        request.messages, max_tokens=150, token_counter="approximate", strategy="last", start_on="human"
    )
    return handler(request.override(messages=messages))


def main() -> None:
    """Send one message, in a process of its own; or read the whole conversation."""
    config = {"configurable": {"thread_id": "c1"}}
    with SqliteSaver.from_conn_string("conversations.db") as saver:
        clerk = create_agent(
            "openai:gpt-5.1",
            system_prompt="You keep a running total.",
            tools=[add],
            middleware=[keep_newest],
            checkpointer=saver,
        )
        if sys.argv[1] == "say":
            result = clerk.invoke({"messages": [{"role": "user", "content": sys.argv[2]}]}, config)
            print(result["messages"][-1].text)
        else:
            messages = clerk.get_state(config).values["messages"]
            texts = [message.text for message in messages if message.type == "human"]
            print(f"{len(texts)} messages, from {texts[0]!r} to {texts[-1]!r}")


if __name__ == "__main__":
    main()
