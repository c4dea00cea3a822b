"""Tests an agent without a model: the answer, the call of its tool, and what the model was sent."""

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    models,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

models.ALLOW_MODEL_REQUESTS = False

exchange = Agent("openai:gpt-5.1", instructions="You change money.")


@exchange.tool_plain
def convert(amount: float, rate: float) -> float:
    """Change an amount at a rate."""
    return amount * rate


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the model says: a call, and then a text."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("convert", {"amount": 3.0, "rate": 2.5})])
    return ModelResponse(parts=[TextPart("That is 7.50 USD.")])


def test_convert() -> None:
    """A question leads to one call, whose value goes back to the model."""
    with exchange.override(model=FunctionModel(answer)):
        result = exchange.run_sync("Change 3 EUR.")
    assert result.output == "That is 7.50 USD."
    question, call, outcome, _ = result.all_messages()
    assert isinstance(question, ModelRequest)
    assert isinstance(question.parts[-1], UserPromptPart)
    assert isinstance(call.parts[0], ToolCallPart)
    assert call.parts[0].args == {"amount": 3.0, "rate": 2.5}
    assert isinstance(outcome.parts[0], ToolReturnPart)
    assert outcome.parts[0].content == 7.5


if __name__ == "__main__":
    test_convert()
    print("The test passes.")
