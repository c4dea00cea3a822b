"""What notebooks need: an agent is shown with and without extras, and a running event loop is met at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from toolchart import Agent, Engine, ToolchartError, open_store
from toolchart.testing import ScriptedModel


def test_an_agent_is_shown_as_a_picture() -> None:
    """A notebook gets an SVG document, without any extra, and the chart as text beside it."""
    shown = Agent(ScriptedModel("x"), name="desk")._repr_mimebundle_()
    assert shown.keys() == {"text/plain", "image/svg+xml"}
    assert ElementTree.fromstring(shown["image/svg+xml"]).tag == "{http://www.w3.org/2000/svg}svg"
    assert shown["text/plain"].startswith("Agent('desk')\n\n")
    assert "prompting (initial)" in shown["text/plain"]


async def test_a_blocking_block_is_refused_at_its_beginning_in_a_running_loop() -> None:
    """`with Engine` and `with agent.open()` in a coroutine name `async with` before anything runs."""
    for opened in (Engine("quickstart", log="memory"), Agent(ScriptedModel("x")).open(log="memory")):
        with pytest.raises(ToolchartError, match=r"event loop is running here: use `async with`"), opened:
            pytest.fail("the block has begun")


BLOCKING_CALLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "Agent.run": ("await `arun(...)`", lambda: make_agent().run("hi", log="memory")),
    "Agent.stream_blocking": (
        "read `stream(...)` by `async for`",
        lambda: next(make_agent().stream_blocking("hi", log="memory")),
    ),
    "OpenAgent.run": ("await `arun(...)`", lambda: open_agent().run("hi")),
    "OpenAgent.run_once": ("await `arun_once(...)`", lambda: open_agent().run_once("hi", conversation="c")),
    "OpenAgent.resume": ("await `aresume(...)`", lambda: open_agent().resume("c")),
    "OpenAgent.approve": ("await `aapprove(...)`", lambda: open_agent().approve("c")),
    "OpenAgent.stream_blocking": (
        "read `stream(...)` by `async for`",
        lambda: open_agent().stream_blocking("hi"),
    ),
    "Engine.run": ("await `arun(...)`", lambda: open_agent().engine.run("hi")),
    "Engine.run_once": (
        "await `arun_once(...)`",
        lambda: open_agent().engine.run_once("hi", conversation="c"),
    ),
    "Engine.resume": ("await `aresume(...)`", lambda: open_agent().engine.resume("c")),
    "Engine.recover": ("await `arecover(...)`", lambda: open_agent().engine.recover()),
    "Conversation.send": ("await `asend(...)`", lambda: open_agent().engine.conversation("c").send("hi")),
    "Conversation.fork": ("await `afork(...)`", lambda: open_agent().engine.conversation("c").fork()),
}


def make_agent() -> Agent[None, str]:
    """An agent that answers once."""
    return Agent(ScriptedModel("x"))


def open_agent() -> Any:
    """An agent that is open, on a log in memory."""
    return make_agent().open(log="memory")


@pytest.mark.parametrize("call", BLOCKING_CALLS)
async def test_a_blocking_call_in_a_running_loop_names_its_own_async_form(call: str) -> None:
    """Each blocking call names the async form of what was called, and not that of another one."""
    instead, use = BLOCKING_CALLS[call]
    with pytest.raises(ToolchartError) as caught:
        use()
    assert str(caught.value) == f"an event loop is running here: {instead}"


async def test_a_refused_block_leaves_the_store_that_was_given_open() -> None:
    """A store that the program opened stays its own: it can be read after the refusal."""
    store = open_store("memory")
    with pytest.raises(ToolchartError), Engine("quickstart", log=store):
        pytest.fail("the block has begun")
    async with Engine("quickstart", log=store) as engine:
        assert (await engine.arun("What is 2 + 3?", conversation="c")).ok
    assert list(store.list_conversations()) == ["c"]


async def test_closing_in_a_running_loop_names_the_way_out() -> None:
    """`close()` in a coroutine says what to await instead; the engine can still be closed so."""
    engine = Engine("quickstart", log="memory")
    with pytest.raises(ToolchartError, match=r"await its `aclose\(\)`"):
        engine.close()
    await engine.aclose()
