"""Misspelt options and wrong types are refused at the door, before anything is recorded."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_spec, reply_with_calls
from msgspec.structs import replace
from pydantic import BaseModel, ValidationError

from toolchart import (
    AgentSpec,
    Cancelled,
    Decided,
    Engine,
    Message,
    SpecError,
    effect,
    load_chart,
    load_spec,
    open_store,
    rerun,
    tool,
)
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.specs.models import Handler, LLMConfig


class City(BaseModel):
    """A city."""

    name: str


async def drain(stream: Any) -> None:
    """Read a stream to its end."""
    async for _ in stream:
        pass


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def run_if_async(value: Any) -> None:
    """Run what an async function gives."""
    if inspect.iscoroutine(value):
        asyncio.run(value)


Call = Callable[..., Any]

METHODS: dict[str, Call] = {
    "run": lambda engine, **options: engine.run("x", **options),
    "arun": lambda engine, **options: asyncio.run(engine.arun("x", **options)),
    "stream": lambda engine, **options: asyncio.run(drain(engine.stream("x", **options))),
    "run_once": lambda engine, **options: engine.run_once("x", **{"conversation": "c", **options}),
    "arun_once": lambda engine, **options: asyncio.run(
        engine.arun_once("x", **{"conversation": "c", **options})
    ),
    "send": lambda engine, **options: engine.conversation("c").send("x", **options),
    "asend": lambda engine, **options: asyncio.run(engine.conversation("c").asend("x", **options)),
    "handle.stream": lambda engine, **options: asyncio.run(
        drain(engine.conversation("c").stream("x", **options))
    ),
}
"""Each way to begin a turn."""


def expect_nothing_written(engine: Engine) -> None:
    """The log is as empty as before."""
    assert list(engine.store.list_conversations()) == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: open_store(3), "the address of a log is a text or a path, not int"),
        (lambda: load_chart(3), "a name, a path or a mapping, not from int"),
        (lambda: tool(3), "a tool is made of a function, not of 3"),
        (lambda: tool(idempotent=True)(Path("x").exists), "method keeps no options"),
        (lambda: effect(len), "builtin_function_or_method keeps no options"),
        (lambda: effect(3), "is made of a function, not of 3"),
    ],
)
def test_a_function_of_the_package_refuses_a_wrong_type(
    call: Call, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 30: what is none of the allowed things is named; no file is made of a number."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=says):
        call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Decided(call_id="{}", approved="no"), "/event/approved: expected `bool`, got `str`"),  # type: ignore[arg-type]
        (Decided(call_id="{}", approved=True, arguments=[1]), "/event/arguments: expected `object | null`"),  # type: ignore[arg-type]
        (Decided(call_id="{}", approved=False, reason=Cancelled()), "/event/reason"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("method", ["resume", "adecide", "apost"])
def test_a_decision_of_wrong_types_is_refused(decision: Decided, says: str, method: str) -> None:
    """Issue 30: a text that means no is no yes; the error names the field, and neither the log nor
    the inbox has the decision."""
    call = reply_with_calls(("double", {"number": 2}))
    with make_engine(
        [call, "done"], functions=[double], tools={}, approval=[{"tools": "double", "decision": "ask"}]
    ) as engine:
        (pending,) = engine.run("go", conversation="c").pending_approvals
        before = engine.store.read_last_line("c")
        with pytest.raises(ValueError, match=re.escape(says)):
            run_if_async(getattr(engine.conversation("c"), method)(replace(decision, call_id=pending.id)))
        assert engine.store.read_last_line("c") == before
        assert not engine.store.read_inbox(["c"])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("misspelt", ["conversaton", "output_typ"])
def test_a_misspelt_option_is_refused(method: str, misspelt: str) -> None:
    """Issue 30: an option that does not exist changes nothing silently, and no conversation begins."""
    with make_engine(["answer"]) as engine:
        with pytest.raises(TypeError, match=f"{misspelt!r}"):
            METHODS[method](engine, **{misspelt: "c"})
        expect_nothing_written(engine)


@pytest.mark.parametrize("method", ["stream", "handle.stream"])
def test_a_stream_takes_no_observer_of_deltas(method: str) -> None:
    """A stream yields its deltas itself: a function for them would never be called."""
    with make_engine(["answer"]) as engine:
        with pytest.raises(TypeError, match="on_delta"):
            METHODS[method](engine, on_delta=print)
        expect_nothing_written(engine)


@pytest.mark.parametrize(
    "options",
    [
        {"conversation": 7},
        {"conversation": b"c"},
        {"owner": 7},
        {"owner": b"Ann"},
        {"tags": {"team": 7}},
        {"model": 7},
        {"history": "earlier"},
        {"history": {"role": "user", "content": "x"}},
        {"history": [Message(role="user", content=7)]},  # type: ignore[arg-type]
        {"attachments": b"picture"},
        {"output_type": "City"},
        {"output_type": City(name="x")},
    ],
)
def test_what_a_log_cannot_hold_is_refused(options: dict[str, Any]) -> None:
    """Issue 30: a value of another type leaves no record behind."""
    with make_engine(["answer"]) as engine:
        with pytest.raises((SpecError, TypeError, ValueError)):
            engine.run("x", **options)
        expect_nothing_written(engine)


@pytest.mark.parametrize("message", [None, 7, b"go", ["go"], {"role": "user", "content": "go"}])
def test_a_message_is_a_text(message: Any) -> None:
    """Issue 30: `run(None)` is no error about a path inside a record."""
    with make_engine(["answer"]) as engine:
        for ask in (engine.run, engine.conversation("c").send):
            with pytest.raises(SpecError, match="a message is a text, not "):
                ask(message)
        expect_nothing_written(engine)


GOING_ON: dict[str, Call] = {
    "a decision that is none": lambda engine: engine.conversation("c").resume(True),
    "a misspelt option of resume": lambda engine: engine.conversation("c").resume(output_typ=City),
    "a misspelt option of stream_resume": lambda engine: asyncio.run(
        drain(engine.conversation("c").stream_resume(output_typ=City))
    ),
    "a misspelt option of fork": lambda engine: engine.conversation("c").fork(form_log=True),
    "changes that are a mapping": lambda engine: engine.conversation("c").fork(changes={"model": "m"}),
    "a record that is none": lambda engine: engine.conversation("c").fork(at="3"),
    "a name that is none": lambda engine: engine.conversation("c").fork(name=3),
    "a name that is none, for a fork from the log": lambda engine: engine.conversation("c").fork(
        name=3, from_log=True
    ),
    "a decision for adecide": lambda engine: asyncio.run(engine.conversation("c").adecide({})),
    "an event that cannot be posted": lambda engine: asyncio.run(engine.conversation("c").apost("cancelled")),
    "a message for asay": lambda engine: asyncio.run(engine.conversation("c").asay(None)),
    "a misspelt argument of approve": lambda engine: engine.conversation("c").approve(resaon="x"),
    "an answer that is a text": lambda engine: engine.conversation("c").answer("yes"),
    "a reason that is none": lambda engine: engine.conversation("c").cancel(Cancelled()),
    "two conversations": lambda engine: engine.conversation("c").send("x", conversation="d"),
}


@pytest.mark.parametrize("mistake", GOING_ON)
def test_mistakes_in_going_on_change_nothing(mistake: str) -> None:
    """Issue 30: the other public methods refuse alike, and no record is added."""
    with make_engine(["answer"]) as engine:
        engine.run("go", conversation="c")
        before = engine.store.read_last_line("c")
        with pytest.raises((SpecError, TypeError, ValueError, AttributeError)):
            GOING_ON[mistake](engine)
        assert engine.store.read_last_line("c") == before
        assert list(engine.store.list_conversations()) == ["c"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"durability": "Full"}, 'durability is "full" or "normal"'),
        ({"lease_s": 0}, "above 0"),
        ({"funtions": []}, "'funtions'"),
        ({"functions": ["len"]}, "(?s)a tool is made of a function, not of 'len'.*itself, not its name"),
        ({"functions": len}, r"(?s)`functions` is a list of functions and ready tools.*functions=\[len\]"),
        ({"functions": "len"}, "`functions` is a list of functions and ready tools, not 'len'"),
        ({"log": 7}, "'int' object"),
        ({"spec": 7}, "not from int"),
    ],
)
def test_an_engine_is_made_of_what_it_names(options: dict[str, Any], says: str) -> None:
    """Issue 30: `durability="Full"` did not survive a loss of power, and said nothing."""
    with pytest.raises((SpecError, TypeError, AttributeError), match=says):
        Engine(**{"spec": make_spec(), "log": "memory", **options})


@pytest.mark.parametrize("option", ["conversations", "live_tools"])
def test_a_rerun_takes_no_text_for_a_list(option: str) -> None:
    """Issue 30: `conversations="c"` reran a conversation for each letter; a type checker takes a text."""
    with pytest.raises(SpecError, match="are lists"):
        rerun(MemoryStore(), offline=True, **{option: "abc"})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda spec: AgentSpec(**{**spec, "responses": [{"llm": "model", "promt": "x"}]}), "'prompt'"),
        (lambda spec: AgentSpec(**{**spec, "limts": {}}), "'limits'"),
        (lambda spec: AgentSpec.model_validate({**spec, "effcts": {}}), "'effects'"),
        (lambda spec: Handler(llm="model", temprature=0.5), "'temperature'"),
        (lambda spec: LLMConfig(provider="scripted", modle="m"), "'model'"),
    ],
)
def test_an_agent_made_in_python_keeps_no_typo(make: Call, says: str) -> None:
    """Issue 30: sections of a spec that a program makes refuse what the loader refuses in files."""
    with pytest.raises(ValidationError, match=f"did you mean {says}"):
        make(make_spec())


@pytest.mark.parametrize("source", [None, 7, ["quickstart"]])
def test_a_spec_is_loaded_from_a_name_a_path_or_a_mapping(source: Any) -> None:
    """Issue 30: anything else is named."""
    with pytest.raises(SpecError, match=f"not from {type(source).__name__}"):
        load_spec(source)


def test_keys_of_others_stay_allowed() -> None:
    """A section that a program makes may have further keys, as in a file: those of an adapter, comments and
    what is like no other."""
    entry = LLMConfig(provider="scripted", replies=["x"], headers={}, _note="y")
    assert entry.extra_options()["replies"] == ["x"]
    assert Handler(llm="model", colour="red").llm == "model"
    assert load_spec(make_spec(colour="red")).warnings


def test_the_text_itself_is_a_type() -> None:
    """Issue 30: `output_type=str` demands no form: the data is the text, also where the handler has one."""
    form = {"type": "json_object"}
    responses = [{"llm": "model", "prompt": "p", "response_format": form}]
    with make_engine(["plain words"], responses=responses) as engine:
        result = engine.run("go", output_type=str)
        request = engine.hosts.providers["model"].requests[0]  # type: ignore[attr-defined]
    assert (result.ok, result.data, result.warnings) == (True, "plain words", ())
    assert "response_format" not in request.options


def test_what_fits_is_not_refused() -> None:
    """Issue 30: each option in its usual forms."""

    @dataclass
    class Town:
        """A town."""

        name: str

    for output_type in (City, Town, dict[str, str], City | Town):
        options: dict[str, Any] = {
            "conversation": None,
            "variables": None,
            "history": ({"role": "user", "content": "x"},),
            "attachments": (),
            "observer": lambda event, step: None,
            "on_delta": None,
        }
        answer = '{"value": {"name": "Rome"}}' if output_type == City | Town else '{"name": "Rome"}'
        with make_engine([answer]) as engine:
            assert engine.run("go", **options, output_type=output_type).ok


async def _watch(*values: Any) -> None:
    """An async callback, which nobody would await."""


@pytest.mark.parametrize("name", ["observer", "on_delta"])
def test_an_async_callback_is_refused_where_nobody_awaits_it(name: str) -> None:
    """Steps and deltas are shown between two steps: an async function would silently never run."""
    with Engine("quickstart", log="memory") as engine, pytest.raises(SpecError, match=f"{name} is an async"):
        engine.run("2+2", **{name: _watch})
    if name == "observer":
        with pytest.raises(SpecError, match="observer is an async"):
            Engine("quickstart", log="memory", observer=_watch)  # type: ignore[arg-type]
    with Engine("quickstart", log="memory") as engine:
        with pytest.raises(SpecError, match="listener is an async"):
            engine.watch_records(_watch)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="on_turn is an async"):
            engine.watch_unfinished(_watch)  # type: ignore[arg-type]
