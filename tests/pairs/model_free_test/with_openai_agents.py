"""Tests an agent without a model: the answer, the call of its tool, and what the model was sent."""

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool
def convert(amount: float, rate: float) -> float:
    """Change an amount at a rate."""
    return amount * rate


exchange = Agent(name="exchange", model="gpt-5.1", instructions="You change money.", tools=[convert])


def test_convert() -> None:
    """A question leads to one call, whose value goes back to the model."""
    model = ScriptedModel(
        [
            [function_call("convert", {"amount": 3.0, "rate": 2.5}, call_id="c1")],
            [assistant_message("That is 7.50 USD.")],
        ]
    )
    result = Runner.run_sync(exchange, "Change 3 EUR.", run_config=RunConfig(model=model))
    assert result.final_output == "That is 7.50 USD."
    model.assert_complete()
    question, call, outcome = model.last_call.input
    assert question["role"] == "user"
    assert (call["name"], call["arguments"]) == ("convert", '{"amount":3.0,"rate":2.5}')
    assert outcome["output"] == "7.5"


if __name__ == "__main__":
    test_convert()
    print("The test passes.")
