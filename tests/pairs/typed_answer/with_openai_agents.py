"""Advises customers of a bank: a typed answer, from tools that know who asks."""

from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool
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


def write_prompt(context: RunContextWrapper[Account], agent: Agent[Account]) -> str:
    """What the model is told of its work."""
    return f"You advise customers of a bank. You speak with {context.context.name}."


@function_tool
def find_balance(context: RunContextWrapper[Account], currency: str) -> str:
    """The balance of the customer's account."""
    return f"{context.context.balance:.2f} {currency}"


support = Agent[Account](
    name="support", model="gpt-5.1", instructions=write_prompt, tools=[find_balance], output_type=Advice
)


def main() -> None:
    """Advise two customers."""
    for account in (Account("Ada", 120.5), Account("Bob", 7)):
        result = Runner.run_sync(support, "I have lost my card. What is left?", context=account)
        output = result.final_output_as(Advice)
        print(f"{output.advice} Block: {output.block_card}. Risk: {output.risk}.")


if __name__ == "__main__":
    main()
