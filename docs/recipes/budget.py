"""Limit what a turn may take: money, tokens, seconds or calls of tools.

`prices` says what a million tokens cost, and the log has the cost of each reply. A reply that spends the
budget is the last one: its calls do not run, and the turn ends with a text that names the limit. Then `ok` is
false, and `limit_reached` says which budget it was. A budget is of one turn; `cost` of a conversation adds up
all turns.
"""

from toolchart import Agent
from toolchart.testing import ScriptedModel, call_tool


def read_page(number: int) -> str:
    """Read a page of the report."""
    return f"This is page {number}."


usage = {"input": 40_000, "output": 2_000}  # what the scripted model says of each reply
model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    *({**call_tool("read_page", number=number), "usage": usage} for number in range(1, 5)),
    {"content": "I read it yesterday.", "usage": usage},
)
reader = Agent(
    model,
    tools=[read_page],
    limits={"max_cost": 0.05, "max_tool_calls": 20, "max_seconds": 120},
    prices={"currency": "USD", "models": {"*": {"input": 0.25, "output": 2.00}}},
)

with reader.open(log="reports.db") as desk:
    turn = desk.run("What is in the report?", conversation="ada")
    print(turn.content)
    print(turn.ok, turn.limit_reached, turn.limit_value)
    print(f"{turn.usage.input} tokens in, {turn.usage.output} out: {turn.cost:.3f} USD")
    print([call.params for call in turn.tool_calls if call.ok])

    turn = desk.run("When did you read it?", conversation="ada")
    print(f"{turn.content} {turn.cost:.3f} USD")
    print(f"both turns: {desk.conversation('ada').cost:.3f} USD")
