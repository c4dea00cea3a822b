"""Tests an agent without a model: the answer, the call of its tool, and what the model was sent."""

from toolchart import Agent
from toolchart.testing import ScriptedModel, call_tool


def convert(amount: float, rate: float) -> float:
    """Change an amount at a rate."""
    return amount * rate


exchange = Agent("openai:gpt-5.1", prompt="You change money.", tools=[convert])


def test_convert() -> None:
    """A question leads to one call, whose value goes back to the model."""
    model = ScriptedModel(call_tool("convert", amount=3.0, rate=2.5), "That is 7.50 USD.")
    with exchange.override(model=model):
        turn = exchange.run("Change 3 EUR.", log="memory")
    assert turn.output == "That is 7.50 USD."
    assert [(call.tool, call.params, call.value) for call in turn.tool_calls] == [
        ("convert", {"amount": 3.0, "rate": 2.5}, 7.5)
    ]
    assert [message.role for message in model.requests[-1].messages] == [
        *("system", "user", "assistant", "tool")
    ]


if __name__ == "__main__":
    test_convert()
    print("The test passes.")
