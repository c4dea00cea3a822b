"""Advises customers of a bank: a typed answer, from tools that know who asks."""

from dataclasses import dataclass
from typing import Any

from openai import OpenAI, pydantic_function_tool
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


class FindBalance(BaseModel):
    """The balance of the customer's account."""

    currency: str

    def run(self, account: Account) -> str:
        """What the model is given."""
        return f"{account.balance:.2f} {self.currency}"


TOOLS = [pydantic_function_tool(FindBalance, name="find_balance")]
client = OpenAI()


def ask(question: str, account: Account) -> Advice:
    """The answer to a question, after at most ten requests."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(10):
        response = client.responses.parse(
            model="gpt-5.1",
            instructions=f"You advise customers of a bank. You speak with {account.name}.",
            input=messages,
            tools=TOOLS,
            text_format=Advice,
        )
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls and response.output_parsed:
            return response.output_parsed
        messages += response.output
        for call in calls:
            value = call.parsed_arguments.run(account)
            messages.append({"type": "function_call_output", "call_id": call.call_id, "output": value})
    raise RuntimeError("the model gives no answer")


def main() -> None:
    """Advise two customers."""
    for account in (Account("Ada", 120.5), Account("Bob", 7)):
        output = ask("I have lost my card. What is left?", account)
        print(f"{output.advice} Block: {output.block_card}. Risk: {output.risk}.")


if __name__ == "__main__":
    main()
