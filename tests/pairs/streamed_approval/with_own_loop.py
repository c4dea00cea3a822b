"""Streams an answer, asks a person before money is paid, and streams the rest."""

import asyncio
from typing import Any

from openai import AsyncOpenAI, pydantic_function_tool
from pydantic import BaseModel


class Refund(BaseModel):
    """Give the money for an order back."""

    order: str
    cents: int

    def run(self) -> str:
        """What the model is given."""
        return f"{self.order}: {self.cents} cents paid back"


TOOLS = [pydantic_function_tool(Refund, name="refund")]
client = AsyncOpenAI()


async def show(messages: list[Any]) -> list[Any]:
    """Print the text as it comes, and add the reply. Returns its calls, which wait for a person."""
    async with client.responses.stream(
        model="gpt-5.1", instructions="You help customers of a shop.", input=messages, tools=TOOLS
    ) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
        response = await stream.get_final_response()
    print()
    messages += response.output
    return [item for item in response.output if item.type == "function_call"]


async def main() -> None:
    """Answer one customer and approve."""
    messages: list[Any] = [{"role": "user", "content": "Refund A7, please."}]
    while calls := await show(messages):
        for call in calls:
            print(f"{call.name} {call.parsed_arguments.model_dump()} waits")
            value = call.parsed_arguments.run()
            messages.append({"type": "function_call_output", "call_id": call.call_id, "output": value})


if __name__ == "__main__":
    asyncio.run(main())
