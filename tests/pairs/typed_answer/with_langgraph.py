"""Advises customers of a bank: a typed answer, from tools that know who asks."""

from dataclasses import dataclass

from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, dynamic_prompt
from langchain.tools import ToolRuntime
from pydantic import BaseModel, Field


@dataclass
class Account:
    """What a run may know of a customer."""

    name: str
    balance: float


class Advice(BaseModel):
    """What the customer and the bank are told."""

    advice: str
    block_card: bool
    risk: int = Field(ge=0, le=10)


@dynamic_prompt
def write_prompt(request: ModelRequest[Account]) -> str:
    """What the model is told of its work."""
    return f"You advise customers of a bank. You speak with {request.runtime.context.name}."


def find_balance(runtime: ToolRuntime[Account], currency: str) -> str:
    """The balance of the customer's account."""
    return f"{runtime.context.balance:.2f} {currency}"


support = create_agent(
    "openai:gpt-5.1",
    tools=[find_balance],
    middleware=[write_prompt],
    context_schema=Account,
    response_format=Advice,
)


def main() -> None:
    """Advise two customers."""
    question = {"role": "user", "content": "I have lost my card. What is left?"}
    for account in (Account("Ada", 120.5), Account("Bob", 7)):
        result = support.invoke({"messages": [question]}, context=account)
        output = result["structured_response"]
        print(f"{output.advice} Block: {output.block_card}. Risk: {output.risk}.")


if __name__ == "__main__":
    main()
