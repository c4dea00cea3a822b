"""Misspelt options and wrong types are refused at the door, before anything is recorded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, make_spec
from pydantic import BaseModel, ValidationError

from toolchart import (
    Agent,
    AgentSpec,
    Cancelled,
    Conversation,
    Decided,
    Engine,
    OpenAgent,
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


def list_public_methods() -> list[Any]:
    """Every method of what users hold that takes more than `self`, and the constructors."""
    return [
        pytest.param(function, id=f"{holder.__name__}.{name}")
        for holder in (Engine, Conversation, Agent, OpenAgent)
        for name, function in vars(holder).items()
        if inspect.isfunction(function)
        and (name == "__init__" or not name.startswith("_"))
        and len(inspect.signature(function).parameters) > 1
        and (holder, name) not in NOT_FOR_USERS
    ]


NOT_FOR_USERS = ((Conversation, "__init__"), (OpenAgent, "__init__"))
"""What the engine makes itself."""


@pytest.mark.parametrize("function", list_public_methods())
def test_every_public_method_refuses_what_it_does_not_know(function: Any) -> None:
    """Issue 30: no method of an engine, a conversation or an agent swallows a misspelt name; each names the
    nearest one, where a name is near, and begins nothing."""
    known = next(name for name in inspect.signature(function).parameters if name != "self")
    if known == "function":
        with pytest.raises(TypeError):
            function(None, functoin=len)
        return
    with pytest.raises(SpecError, match=f"did you mean '{known}'"):
        run_if_async(function(None, **{known + known[-1]: "x"}))


def run_if_async(value: Any) -> None:
    """Run what an async function gives."""
    if inspect.iscoroutine(value):
        asyncio.run(value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: open_store(3), "the address of a log is a text or a path, not int"),
        (lambda: load_chart(3), "a name, a path or a mapping, not from int"),
        (lambda: tool(3), "a tool is made of a function, not of int"),
        (lambda: effect(3), "is made of a function, not of int"),
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
        (Decided(call_id="x", approved="no"), "'approved' of the Decided .* expected `bool`, got `str`"),  # type: ignore[arg-type]
        (Decided(call_id=3, approved=True), "'call_id' of the Decided .* expected `str`, got `int`"),  # type: ignore[arg-type]
        (Decided(call_id="x", approved=True, arguments=[1]), "'arguments' of the Decided"),  # type: ignore[arg-type]
    ],
)
def test_a_decision_of_wrong_types_is_refused(decision: Decided, says: str) -> None:
    """Issue 30: a text that means no is not taken for a yes, and the error names the field."""
    with make_engine(["answer"]) as engine:
        for decide in (engine.resume, lambda *args: asyncio.run(engine.adecide(*args))):
            with pytest.raises(SpecError, match=says):
                decide("c", decision)
        expect_nothing_written(engine)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("conversaton", "conversation"),
        ("modle", "model"),
        ("output_typ", "output_type"),
        ("histroy", "history"),
        ("atachments", "attachments"),
        ("varibles", "variables"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(method: str, misspelt: str, meant: str) -> None:
    """Issue 30: an option that does not exist changes nothing silently; the error has its name, the nearest
    one and all that exist, and no conversation begins."""
    with make_engine(["answer"]) as engine:
        with pytest.raises(SpecError, match=f"{misspelt!r}") as caught:
            METHODS[method](engine, **{misspelt: "c"})
        assert f"did you mean {meant!r}" in str(caught.value)
        assert "known: attachments, " in str(caught.value)
        expect_nothing_written(engine)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("conversation", 7, "a text or None"),
        ("handler", ["a"], "a text or None"),
        ("llm", 1, "a text or None"),
        ("model", City, "a text or None"),
        ("variables", [("a", 1)], "a mapping"),
        ("variables", {1: "a"}, "a mapping"),
        ("history", "earlier", "a list"),
        ("history", {"role": "user", "content": "x"}, "a list"),
        ("attachments", "a.png", "a list"),
        ("output_type", "City", "a type"),
        ("output_type", City(name="x"), "a type"),
        ("output_type", {"type": "object"}, "a type"),
    ],
)
def test_a_wrong_type_is_named(method: str, option: str, value: Any, says: str) -> None:
    """Issue 30: the error says which argument is wrong, what it must be and what was there."""
    with make_engine(["answer"]) as engine:
        with pytest.raises(SpecError, match=rf"'{option}' of '\w+' is {says}"):
            METHODS[method](engine, **{option: value})
        expect_nothing_written(engine)


@pytest.mark.parametrize("message", [None, 7, b"go", ["go"], {"role": "user", "content": "go"}])
def test_a_message_is_a_text(message: Any) -> None:
    """Issue 30: `run(None)` is no error about a path inside a record."""
    with make_engine(["answer"]) as engine:
        for ask in (engine.run, engine.conversation("c").send):
            with pytest.raises(SpecError, match=r"'message' of '\w+' is a text"):
                ask(message)
        expect_nothing_written(engine)


GOING_ON: dict[str, tuple[Call, str]] = {
    "a decision that is none": (lambda engine: engine.resume("c", True), "a Decided or None"),
    "a misspelt option of resume": (lambda engine: engine.resume("c", output_typ=City), "'output_type'"),
    "a misspelt option of stream_resume": (
        lambda engine: asyncio.run(drain(engine.stream_resume("c", output_typ=City))),
        "'output_type'",
    ),
    "a misspelt option of fork": (lambda engine: engine.fork("c", form_log=True), "'from_log'"),
    "changes that are a mapping": (lambda engine: engine.fork("c", changes={"model": "m"}), "ForkChanges"),
    "a record that is none": (lambda engine: engine.fork("c", at="3"), "a whole number"),
    "a decision for adecide": (lambda engine: asyncio.run(engine.adecide("c", {})), "a Decided"),
    "an event that cannot be posted": (
        lambda engine: asyncio.run(engine.apost("c", "cancelled")),
        "a Decided, UserSaid or Cancelled",
    ),
    "a message for asay": (lambda engine: asyncio.run(engine.asay("c", None)), "a text"),
    "a misspelt argument of approve": (
        lambda engine: engine.conversation("c").approve(resaon="x"),
        "'reason'",
    ),
    "approved is a truth value": (
        lambda engine: engine.conversation("c").approve("id", approved="no"),
        "True or False",
    ),
    "an answer that is a text": (lambda engine: engine.answer("c", "yes"), "a mapping"),
    "a reason that is none": (lambda engine: engine.cancel("c", Cancelled()), "a text or None"),
    "a conversation that is none": (lambda engine: engine.conversation(7), "a text or None"),
    "two conversations": (
        lambda engine: engine.conversation("c").send("x", conversation="d"),
        "a handle of the conversation 'c'",
    ),
}


@pytest.mark.parametrize("mistake", GOING_ON)
def test_mistakes_in_going_on_change_nothing(mistake: str) -> None:
    """Issue 30: the other public methods refuse alike, and no record is added."""
    act, says = GOING_ON[mistake]
    with make_engine(["answer"]) as engine:
        engine.run("go", conversation="c")
        before = engine.store.read_last_line("c")
        with pytest.raises(SpecError, match=says):
            act(engine)
        assert engine.store.read_last_line("c") == before
        assert list(engine.store.list_conversations()) == ["c"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"durabilty": "full"}, "did you mean 'durability'"),
        ({"funtions": []}, "did you mean 'functions'"),
        ({"durability": "Full"}, '"full" or "normal"'),
        ({"functions": len}, "a list of functions"),
        ({"functions": ["len"]}, "a list of functions"),
        ({"providers": []}, "a mapping"),
        ({"outputs": {"city": "City"}}, "classes"),
        ({"approver": True}, "a function"),
        ({"observer": "print"}, "a function"),
        ({"lease_s": 0}, "a number above 0"),
        ({"longest_wait_s": "1"}, "a number of seconds"),
        ({"log": 7}, "a store"),
        ({"spec": None}, "an AgentSpec"),
        ({"spec": 7}, "an AgentSpec"),
    ],
)
def test_an_engine_is_made_of_what_it_names(options: dict[str, Any], says: str) -> None:
    """Issue 30: `durability="Full"` did not survive a loss of power, and said nothing."""
    with pytest.raises(SpecError, match=says):
        Engine(**{"spec": make_spec(), "log": "memory", **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"conversatons": []}, "did you mean 'conversations'"),
        ({"conversations": "c"}, "a list"),
        ({"live_tools": "add"}, "a list"),
        ({"changes": {"model": "m"}}, "RerunChanges"),
        ({"parallel": 0}, "a whole number from 1"),
    ],
)
def test_a_rerun_refuses_alike(options: dict[str, Any], says: str) -> None:
    """Issue 30: `conversations="c"` reran a conversation for each letter."""
    with pytest.raises(SpecError, match=says):
        rerun(MemoryStore(), **{"offline": True, **options})


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
            assert asyncio.iscoroutinefunction(engine.arun)
            assert asyncio.iscoroutinefunction(engine.conversation().asend)
