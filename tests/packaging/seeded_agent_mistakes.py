"""Mistakes with a typed agent that type checkers must find: each marked at the end of its line.

`test_typing.py` runs mypy (strict) and pyright over this file. Nothing imports it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from toolchart import (
    Agent,
    BlockingTurnStream,
    Conversation,
    Decided,
    Engine,
    OpenAgent,
    PartialOutput,
    PromptContext,
    ToolContext,
    Turn,
    TurnStream,
    load_spec,
)
from toolchart.testing import ScriptedModel, call_tool


class City(BaseModel):
    """A city."""

    name: str
    country: str


@dataclass
class Shop:
    """What the tools of the shop use."""

    stock: dict[str, int]


@dataclass
class Bank:
    """What the tools of another program use."""

    balance: float


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- what is right -------------------------------------------------------------------------------

talker = Agent("openai:gpt-5.1", prompt="Be brief.", tools=[add])
geographer = Agent("openai:gpt-5.1", output_type=City, temperature=0.5, max_tokens=200)
clerk = Agent("ollama:qwen3:8b", dependencies=Shop, chart="tool_loop", name="clerk")
lister = Agent({"provider": "openai", "model": "m"}, output_type=list[str], dependencies=Shop)
searcher = Agent(
    "openai:gpt-5.1",
    tools=[add, {"name": "calculator"}],
    mcp={"files": {"command": "files-server", "args": ["--quiet"], "risk": "low"}},
    host_tools=[{"web_search": {"max_uses": 3}}],
    rag_services={"docs": {"url": "http://localhost:6000", "top_k": 5}},
    timeout_s=20,
    default_timeout_ms=5_000,
    limits={"max_seconds": 60},
)
assert_type(searcher, Agent[None, str])


def write_shop_prompt(context: PromptContext[Shop]) -> str:
    """A prompt."""
    return f"There are {len(context.dependencies.stock)} articles."


async def write_slowly(context: PromptContext[Shop]) -> str:
    """A prompt."""
    return context.message


def write_for_anybody(context: PromptContext[object]) -> str:
    """A prompt."""
    return context.message


def write_number(context: PromptContext[Shop]) -> int:
    """No prompt."""
    return len(context.message)


assert_type(Agent("openai:gpt-5.1", dependencies=Shop, prompt=write_shop_prompt), Agent[Shop, str])
assert_type(
    Agent("openai:gpt-5.1", output_type=City, dependencies=Shop, prompt=write_slowly), Agent[Shop, City]
)
assert_type(Agent("openai:gpt-5.1", prompt=lambda context: context.message), Agent[None, str])
Agent("openai:gpt-5.1", dependencies=Shop, prompt=lambda context: ", ".join(context.dependencies.stock))
Agent("openai:gpt-5.1", dependencies=Bank, prompt=write_shop_prompt)  # mistake: another program's context
Agent("openai:gpt-5.1", prompt=write_shop_prompt)  # mistake: the agent has no dependencies
Agent("openai:gpt-5.1", dependencies=Shop, prompt=write_number)  # mistake: a number is no prompt
Agent("openai:gpt-5.1", dependencies=Shop, prompt=lambda: "x")  # mistake: a function without its context
Agent("openai:gpt-5.1", prompt=3)  # mistake: a number is no prompt
front = Agent(ScriptedModel("hello"), dependencies=Shop, handoffs=[clerk, talker])
assert_type(Agent("openai:gpt-5.1", dependencies=Shop, agents=[clerk, lister, geographer]), Agent[Shop, str])
assert_type(Agent("openai:gpt-5.1", agents=[talker, geographer]), Agent[None, str])
Agent("openai:gpt-5.1", dependencies=Bank, agents=[clerk])  # mistake: an agent with other dependencies
Agent("openai:gpt-5.1", agents=[clerk])  # mistake: its dependencies come from nowhere
Agent("openai:gpt-5.1", agents=["clerk"])  # mistake: a name instead of an agent
Agent("openai:gpt-5.1", agents=talker)  # mistake: an agent instead of a list
Agent("openai:gpt-5.1", tools=[talker])  # mistake: an agent is no function
assert_type(talker, Agent[None, str])
assert_type(geographer, Agent[None, City])
assert_type(clerk, Agent[Shop, str])
assert_type(lister, Agent[Shop, list[str]])
assert_type(geographer.run("Where?"), Turn[City])
assert_type(geographer.run("Where?").output, City)
assert_type(lister.run("What?", dependencies=Shop({})).output, list[str])


@clerk.tool
def count(context: ToolContext[Shop], article: str) -> int:
    """How many of an article are there."""
    return context.dependencies.stock[article]


# -- dependencies --------------------------------------------------------------------------------

clerk.run("hello")  # mistake: no dependencies
clerk.run("hello", dependencies=Bank(1.0))  # mistake: dependencies of another program
clerk.run("hello", dependencies=Shop)  # mistake: the class instead of an instance
clerk.run("hello", dependencies={"stock": {}})  # mistake: a dict instead of the class
clerk.run("hello", dependencies=None)  # mistake: None instead of the class
clerk.run("hello", dependency=Shop({}))  # mistake: a misspelt option
with clerk.open(log="memory") as counter:
    assert_type(counter, OpenAgent[Shop, str])
    assert_type(
        counter.run("hello", dependencies=Shop({}), owner="ada", tags={"a": "b"}, author="eve"), Turn[str]
    )
    assert_type(counter.run_once("hello", conversation="c", dependencies=Shop({})), Turn[str])
    assert_type(counter.approve("c", by="ada", dependencies=Shop({})), Turn[str])
    counter.run("hello")  # mistake: no dependencies, neither here nor where it was opened
    counter.run("hello", dependencies=Bank(1.0))  # mistake: dependencies of another program
    counter.run("hello", dependencies=Shop)  # mistake: the class instead of an instance
    counter.run("hello", dependencies=None)  # mistake: None instead of the class
    counter.stream("hello")  # mistake: no dependencies
    counter.stream_blocking("hello", dependencies=Bank(1.0))  # mistake: dependencies of another program
    counter.run_once("hello", conversation="c")  # mistake: no dependencies
    counter.run_once("hello", dependencies=Shop({}), agian=True)  # mistake: a misspelt option
    counter.resume("c")  # mistake: no dependencies
    counter.resume("c", dependencies=Bank(1.0))  # mistake: dependencies of another program
    counter.approve("c", by="ada")  # mistake: no dependencies
    counter.approve("c", by=3, dependencies=Shop({}))  # mistake: a number is nobody
    counter.run("hello", dependencies=Shop({}), owner=3)  # mistake: a number is no owner
    own = counter.conversation("c", owner="ada", dependencies=Shop({}))
    assert_type(own, Conversation[str])
    assert_type(own.send("hello"), Turn[str])
    counter.conversation("c", owner="ada")  # mistake: no dependencies
    counter.conversation("c", dependencies=Bank(1.0))  # mistake: dependencies of another program
    counter.conversation("c", ownr="ada", dependencies=Shop({}))  # mistake: a misspelt option
    counter.resume("c", owner=3, dependencies=Shop({}))  # mistake: a number is no owner
    counter.approve("c", onwer="ada", dependencies=Shop({}))  # mistake: a misspelt option
    own.approve("c", "d")  # mistake: whether it is approved is a keyword
    own.send("hello", owner=3)  # mistake: a number is no owner
    counter.run("hello", dependencies=Shop({}), tags=["a"])  # mistake: a list is no tags
    counter.run("hello", dependencies=Shop({}), auhtor="eve")  # mistake: a misspelt option
with clerk.open(dependencies=Shop({}), log="memory") as counter_of_one:
    counter_of_one.run("hello")
    counter_of_one.run("hello", dependencies=Shop({}))
    counter_of_one.approve("c", by="ada")
    counter_of_one.run("hello", dependencies=Bank(1.0))  # mistake: dependencies of another program
with talker.open(log="memory") as talking:
    assert_type(talking.run("hello"), Turn[str])
    talking.run("hello", dependencies=Shop({}))  # mistake: dependencies of an agent without any
    talking.approve("c", aproved=True)  # mistake: a misspelt option
clerk.open(dependencies=Bank(1.0))  # mistake: dependencies of another program
clerk.stream_blocking("hello", dependencies=Bank(1.0))  # mistake: dependencies of another program
clerk.stream("hello")  # mistake: no dependencies
talker.run("hello", dependencies=Shop({}))  # mistake: dependencies of an agent without any
Agent("openai:gpt-5.1", dependencies=Shop({}))  # mistake: an instance instead of the class
Agent("openai:gpt-5.1", dependencies=Bank, handoffs=[clerk])  # mistake: a handoff with other dependencies


@clerk.tool  # mistake: the context of another program
def pay(context: ToolContext[Bank], amount: float) -> str:
    """Pay."""
    return "paid"


@clerk.tool  # mistake: no context
def subtract(a: int, b: int) -> int:
    """Subtract."""
    return a - b


@clerk.tool
def reserve(context: ToolContext[Shop], article: str) -> str:
    """Reserve an article."""
    context.dependencies.stok[article] -= 1  # mistake: a misspelt field of the dependencies
    context.dependencies.stock[article] = "one"  # mistake: a text instead of a number
    return context.call  # mistake: a misspelt field of the context


count("apples")  # mistake: a call without the context
add(1, "2")  # mistake: a text instead of a number

# -- the answer ----------------------------------------------------------------------------------

turn = geographer.run("Where is the Louvre?")
print(turn.output.contry)  # mistake: a misspelt field of the answer
print(turn.output["country"])  # mistake: a class is no mapping
population: int = turn.output.name  # mistake: a text is no number
print(turn.data.name)  # mistake: None where there is no answer
print(turn.outputt)  # mistake: a misspelt field of the turn
city: City = talker.run("Where?").output  # mistake: the answer of this agent is a text
first: int = lister.run("What?", dependencies=Shop({})).output[0]  # mistake: its items are texts
names: Turn[str] = geographer.run("Where?")  # mistake: a turn of another type
Agent("openai:gpt-5.1", output_type="City")  # mistake: the name instead of the class
Agent("openai:gpt-5.1", output_type=City(name="", country=""))  # mistake: an instance instead of the class
Agent("openai:gpt-5.1", output_type=City, handoffs=[talker])  # mistake: a handoff with another answer

# -- options -------------------------------------------------------------------------------------

Agent()  # mistake: no model
Agent(42)  # mistake: a number is no model
Agent("openai:gpt-5.1", promt="Be brief.")  # mistake: a misspelt option
Agent("openai:gpt-5.1", temperature="hot")  # mistake: a text instead of a number
Agent("openai:gpt-5.1", reasoning_effort="very much")  # mistake: no such effort
Agent("openai:gpt-5.1", tools=add)  # mistake: a function instead of a list
Agent("openai:gpt-5.1", tools=["add"])  # mistake: a name instead of a function
Agent("openai:gpt-5.1", handoffs=["clerk"])  # mistake: a name instead of an agent
Agent("openai:gpt-5.1", timeout=20)  # mistake: an option without its unit
Agent("openai:gpt-5.1", timeout_s="20 s")  # mistake: a text instead of a number
Agent("openai:gpt-5.1", default_timeout_ms=1.5)  # mistake: milliseconds are whole
Agent("openai:gpt-5.1", mcp=["files-server"])  # mistake: a list instead of servers by name
Agent("openai:gpt-5.1", mcp={"files": {"comand": "files"}})  # mistake: a misspelt key of a server
Agent("openai:gpt-5.1", mcp={"files": {"command": ["files"]}})  # mistake: a list instead of a program
Agent("openai:gpt-5.1", host_tools=["web_search"])  # mistake: a name instead of a declaration
Agent("openai:gpt-5.1", host_tools={"web_search": {}})  # mistake: a mapping instead of a list
Agent("openai:gpt-5.1", rag_services={"docs": {"ulr": ""}})  # mistake: a misspelt key of a service
Agent("openai:gpt-5.1", policy="harsh")  # mistake: no such policy
talker.run(42)  # mistake: a message that is no text
talker.run("hello", conversaton="c")  # mistake: a misspelt option
talker.run("hello", output_type=City)  # mistake: the type belongs to the agent
talker.run("hello", owner=3)  # mistake: a number is no owner
talker.run("hello", log=3)  # mistake: a log that is no address and no store
talker.override(modle=ScriptedModel("hello"))  # mistake: a misspelt option
talker.override(model=3)  # mistake: a number is no model
talker.draw(3)  # mistake: a format that is no text
talker.specs()  # mistake: a misspelt method
call_tool(3)  # mistake: the name of a tool is a text
ScriptedModel(3)  # mistake: a number is no reply


async def use_async_forms(support: OpenAgent[None, City], decision: Decided) -> None:
    """The async and streamed forms have the types of the blocking ones."""
    assert_type(await geographer.arun("Where?"), Turn[City])
    assert_type(await support.aresume("c", decision), Turn[City])
    assert_type(await support.conversation("c", owner="ada").asend("Where?"), Turn[City])
    assert_type(support.conversation("c", owner="ada").stream("Where?"), TurnStream[City])
    assert_type(support.conversation("c").read_turn().output, City)
    print(geographer.arun("Where?").output)  # mistake: not awaited
    support.resume("c", True)  # mistake: a truth value instead of a Decided
    async for piece in support.stream("Where?"):
        if isinstance(piece, Turn):
            print(piece.output.mayor)  # mistake: no such field of the answer
        if isinstance(piece, PartialOutput):
            print(piece.output)  # mistake: only a turn has the whole answer
    for item in support.stream_blocking("Where?"):
        print(item.content)  # mistake: without asking what an item is
    stream = support.stream("Where?")
    assert_type(stream, TurnStream[City])
    assert_type(stream.turn, Turn[City])
    assert_type(support.stream_resume("c", decision).turn.output, City)
    assert_type(support.stream_approval("c"), TurnStream[City])
    assert_type(support.stream_resume_blocking("c", decision), BlockingTurnStream[City])
    assert_type(support.stream_approval_blocking("c").turn, Turn[City])
    assert_type(geographer.stream("Where?").turn.output, City)
    assert_type(geographer.stream_blocking("Where?").turn.output, City)
    assert_type(support.stream_blocking("Where?"), BlockingTurnStream[City])
    print(stream.turn.output.mayor)  # mistake: no such field of the answer of a stream
    print(stream.output)  # mistake: the answer is that of its turn
    for piece in stream:  # mistake: it needs an event loop
        print(piece)
    async with support.stream("Where?") as pieces:
        assert_type(pieces, TurnStream[City])
    with support.stream("Where?"):  # mistake: it is closed in an event loop
        pass


Engine(load_spec("quickstart"), dependencies=Shop({}))
articles: Sequence[str] = lister.run("What?", dependencies=Shop({})).output
