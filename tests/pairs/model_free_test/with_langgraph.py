"""Tests an agent without a model: the answer, the call of its tool, and what the model was sent."""

from typing import Any

from langchain.agents import create_agent
from langchain.messages import AIMessage, ToolCall
from langchain_core.language_models import FakeMessagesListChatModel


class ScriptedModel(FakeMessagesListChatModel):
    """Gives the replies in order. The class of the package refuses tools."""

    def bind_tools(self, *arguments: Any, **options: Any) -> Any:
        """The same model."""
        return self


def convert(amount: float, rate: float) -> float:
    """Change an amount at a rate."""
    return amount * rate


def make_exchange(model: Any = "openai:gpt-5.1") -> Any:
    """The agent, with a model."""
    return create_agent(model, system_prompt="You change money.", tools=[convert])


def test_convert() -> None:
    """A question leads to one call, whose value goes back to the model."""
    call = ToolCall(name="convert", args={"amount": 3.0, "rate": 2.5}, id="call_1")
    model = ScriptedModel(responses=[AIMessage("", tool_calls=[call]), AIMessage("That is 7.50 USD.")])
    result = make_exchange(model).invoke({"messages": [{"role": "user", "content": "Change 3 EUR."}]})
    question, request, outcome, answer = result["messages"]
    assert answer.text == "That is 7.50 USD."
    assert question.type == "human"
    assert request.tool_calls[0]["args"] == {"amount": 3.0, "rate": 2.5}
    assert outcome.content == "7.5"


if __name__ == "__main__":
    test_convert()
    print("The test passes.")
