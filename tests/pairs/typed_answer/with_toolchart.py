"""Advises customers of a bank: a typed answer, from tools that know who asks."""

from dataclasses import dataclass

from pydantic import BaseModel, Field

from toolchart import Agent, PromptContext, ToolContext


@dataclass
class Account:
    """What a turn may know of a customer."""

    name: str
    balance: float


class Advice(BaseModel):
    """What the customer and the bank are told."""

    advice: str
    block_card: bool
    risk: int = Field(ge=0, le=10)


def write_prompt(context: PromptContext[Account]) -> str:
    """What the model is told of its work."""
    return f"You advise customers of a bank. You speak with {context.dependencies.name}."


support = Agent("openai:gpt-5.1", dependencies=Account, output_type=Advice, prompt=write_prompt)


@support.tool
def find_balance(context: ToolContext[Account], currency: str) -> str:
    """The balance of the customer's account."""
    return f"{context.dependencies.balance:.2f} {currency}"


def main() -> None:
    """Advise two customers."""
    for account in (Account("Ada", 120.5), Account("Bob", 7)):
        turn = support.run("I have lost my card. What is left?", dependencies=account)
        print(f"{turn.output.advice} Block: {turn.output.block_card}. Risk: {turn.output.risk}.")


if __name__ == "__main__":
    main()
