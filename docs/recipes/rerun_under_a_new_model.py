"""Find out what another model would say and do in the conversations that you have.

The user says what was recorded, and tools give their recorded results: none of them runs. A call that was
never recorded ends its rerun as `diverged`, because no result is made up. Nothing is written to the log, so
you may run it as often as you like. `toolchart rerun` does the same for an agent in a file, and keeps a
baseline for CI.
"""

from toolchart import Agent, rerun
from toolchart.testing import ScriptedModel, call_tool


def find_order(number: str) -> str:
    """Find an order."""
    return {"A7": "in the van", "B2": "in the storehouse"}[number]


old = ScriptedModel(  # yours: "openai:gpt-5-mini"
    *(call_tool("find_order", number="A7"), "A7 is in the van."),
    *(call_tool("find_order", number="B2"), "B2 is in the storehouse."),
    "You are welcome.",
)
new = ScriptedModel(  # yours: "openai:gpt-5.1"
    *(call_tool("find_order", number="A7"), "Your order is in the van."),
    call_tool("find_order", number="b2"),
    "You are welcome.",
)
support = Agent(old, tools=[find_order], prompt="You know orders.")

with support.open(log="support.db") as desk:
    desk.run("Where is A7?", conversation="ada")
    desk.run("Where is B2?", conversation="bob")
    desk.run("Thank you.", conversation="cleo")

with support.override(model=new):
    options = support.list_engine_options()
report = rerun(
    "support.db",
    options["spec"],
    functions=options["functions"],
    providers=options["providers"],
    conversations=["ada", "bob", "cleo"],  # without this: all of the log
    parallel=1,  # scripted replies come in order; a real model takes several at a time
)
for result in report.results:
    print(f"{result.conversation}: {result.reason or result.status}")
    if result.first is not None:
        print(f"  then {result.first.recorded!r}, now {result.first.rerun!r}")
print(report.totals.statuses)
