"""Let an agent ask a specialist, which has a model, tools and a form of answer of its own.

The model of the first agent calls the specialist like a tool, with a message, as often as it likes. Each call
is a child conversation: the specialist sees this message alone, and the first agent sees what it answers. The
log has both. A specialist that fails is a failed call, and the first model reads why.
"""

from pydantic import BaseModel

from toolchart import Agent
from toolchart.testing import ScriptedModel, call_tool


class Stock(BaseModel):
    article: str
    left: int


def count(article: str) -> int:
    """Count an article in the storehouse."""
    return {"lamp": 3, "chair": 0}[article]


small = ScriptedModel(  # yours: "openai:gpt-5-nano"
    call_tool("count", article="lamp"), '{"article": "lamp", "left": 3}'
)
large = ScriptedModel(  # yours: "openai:gpt-5.1"
    call_tool("storekeeper", message="How many lamps are left?"), "We have three lamps left."
)
storekeeper = Agent(
    small,
    name="storekeeper",
    description="Knows what is in the storehouse.",
    prompt="You answer questions about the storehouse.",
    tools=[count],
    output_type=Stock,
)
seller = Agent(large, name="seller", prompt="You sell furniture.", agents=[storekeeper])

with seller.open(log="shop.db") as shop:
    turn = shop.run("Do you have lamps?", conversation="ada")
    print(turn.output)
    for call in turn.tool_calls:
        print("the seller called:", call.tool, call.params, call.value)
    for child in shop.conversation("ada").children:
        for call in child.read_turn().tool_calls:
            print("its specialist called:", call.tool, call.params, call.value)
