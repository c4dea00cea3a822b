"""Advises customers of a bank: a typed answer, from tools that know who asks."""

from dataclasses import dataclass

from pydantic import BaseModel, Field
from pydantic_ai import Agent, RunContext


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


support = Agent("openai:gpt-5.1", deps_type=Account, output_type=Advice)


@support.instructions
def write_prompt(context: RunContext[Account]) -> str:
    """What the model is told of its work."""
    return f"You advise customers of a bank. You speak with {context.deps.name}."


@support.tool
def find_balance(context: RunContext[Account], currency: str) -> str:
    """The balance of the customer's account."""
    return f"{context.deps.balance:.2f} {currency}"


def main() -> None:
    """Advise two customers."""
    for account in (Account("Ada", 120.5), Account("Bob", 7)):
        result = support.run_sync("I have lost my card. What is left?", deps=account)
        print(f"{result.output.advice} Block: {result.output.block_card}. Risk: {result.output.risk}.")


if __name__ == "__main__":
    main()
