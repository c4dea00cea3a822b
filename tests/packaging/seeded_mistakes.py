"""Mistakes of users that type checkers must find: each marked at the end of its line, and nothing else.

`test_typing.py` runs pyright over this file. Nothing imports it.
"""

from collections.abc import Mapping

import toolchart
import toolchart.testing
from toolchart import (
    Decided,
    Engine,
    ForkChanges,
    Message,
    Replied,
    SpecError,
    Step,
    StepTaken,
    ToolCall,
    Turn,
    Usage,
    load_chart,
    load_spec,
    open_store,
    tool,
)
from toolchart import Engin as Engin  # mistake: a misspelt export
from toolchart import nonsense as nonsense  # mistake: no such export
from toolchart.engine import stepp as stepp  # mistake: a misspelt export of a room
from toolchart.specs import load_specs as load_specs  # mistake: a misspelt export of a room
from toolchart.testing import find_path as find_path  # mistake: a misspelt export of the test tools
from toolchart.tools import tools as tools  # mistake: a misspelt export of a room

engine = Engine(load_spec("quickstart"), log="memory")

# -- arguments -----------------------------------------------------------------------------------

engine.run("hello", conversaton="c1")  # mistake: a misspelt argument
engine.run("hello", "c1")  # mistake: a keyword argument by position
engine.run(42)  # mistake: a message that is no text
engine.run("hello", variables=["city"])  # mistake: a list where names have values
engine.run("hello", history=["earlier"])  # mistake: a text instead of a message or a dict
engine.stream("hello", on_delta=print)  # mistake: a stream yields its deltas itself
engine.stream("hello", handlr="weather")  # mistake: a misspelt argument
engine.conversation("c1").fork(name=3)  # mistake: a name that is no text
engine.conversation("c1").fork(from_logs=True)  # mistake: a misspelt argument
engine.conversation("c1").fork(changes={"model": "qwen3"})  # mistake: a dict instead of ForkChanges
engine.conversation("c1").resume("approved")  # mistake: a text instead of a Decided
Engine("quickstart", lgo="memory")  # mistake: a misspelt argument
Engine("quickstart", log=3)  # mistake: a log that is no address and no store
Engine("quickstart", functions=["add"])  # mistake: a name instead of a function
ForkChanges(setting={"model": "qwen3"})  # mistake: a misspelt field
Decided(call_id="c", approved="yes")  # mistake: a text instead of a boolean
Decided(call_id="c")  # mistake: no decision
Message(role="person", content="hello")  # mistake: no such role
load_spec(7)  # mistake: no spec
load_chart("tool_loop", folder=None)  # mistake: a misspelt argument
open_store("memory", durable="yes")  # mistake: a text instead of a boolean

# -- results -------------------------------------------------------------------------------------

result: Turn = engine.run("hello")
print(result.contents)  # mistake: a misspelt field
print(result.content.uper())  # mistake: a misspelt method of a text
print(result.usage.input_tokens)  # mistake: the field of another library
result.content = "changed"  # mistake: results are immutable
total: int = result.usage.total  # mistake: None where the host does not report it
fork_content: str = engine.conversation("c1").fork().content  # mistake: the turn's result is one level deeper
usage: Usage = result.tool_calls  # mistake: another type
print(toolchart.Engine_)  # mistake: no such attribute of the package
print(toolchart.testing.find_pats("tool_loop"))  # mistake: a misspelt function of the test tools


async def read_stream() -> None:
    """Read a stream with a misspelt field and without asking what an item is."""
    async for item in engine.stream("hello"):
        if isinstance(item, StepTaken) and isinstance(item.event, Replied):
            print(item.event.reply.text)  # mistake: the field is `content`
        print(item.step)  # mistake: deltas and results have no step


async def forget_await() -> None:
    """Use a turn that was not awaited."""
    print(engine.arun("hello").content)  # mistake: not awaited


# -- tools ---------------------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(idempotnt=True)  # mistake: a misspelt option
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


tool(timeout_s="2 s")(add)  # mistake: a text instead of seconds
tool(risk="severe")(add)  # mistake: no such risk
tool(isolation="container")(add)  # mistake: no such isolation
tool(add)(1, "2")  # mistake: a tool is still the function, with its types

# -- callbacks -----------------------------------------------------------------------------------


async def approve_by_name(name: str) -> Decided | None:
    """An approver takes a ToolCall."""
    return Decided(call_id=name, approved=True)


def approve_at_once(call: ToolCall) -> str:
    """A plain approver decides too: by a decision, or true or false."""
    return f"yes to {call.id}"


async def approve_by_text(call: ToolCall) -> str:
    """An approver returns a decision."""
    return call.name


def observe_step(step: Step) -> None:
    """An observer takes the event too."""
    print(step.target)


def read_mapping(delta: Mapping[str, str]) -> None:
    """A delta is no mapping."""
    print(delta)


Engine("quickstart", approver=approve_by_name)  # mistake: wrong parameter of an approver
Engine("quickstart", approver=approve_at_once)  # mistake: wrong result of a plain approver
Engine("quickstart", approver=approve_by_text)  # mistake: wrong result of an approver
Engine("quickstart", observer=observe_step)  # mistake: an observer with one parameter
engine.run("hello", on_delta=read_mapping)  # mistake: wrong parameter of a delta observer

# -- errors --------------------------------------------------------------------------------------

try:
    load_spec("agent.yaml")
except SpecError as error:
    print(error.row)  # mistake: the attribute is `line`
    print(error.line + 1)  # mistake: None where the document has no lines
except toolchart.SpecErorr:  # mistake: a misspelt error
    pass
