"""Python functions in charts: typed, recorded, never run again at replay, errors as data."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from worker_names import DEAD

from toolchart import effect
from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.result import Turn
from toolchart.states.errors import SpecError

CHART = {
    "states": {
        "counting": {
            "initial": True,
            "enter": "count",
            "transitions": [
                {"event": "returned", "target": "long", "cond": "stats.words >= 3"},
                {"event": "returned", "target": "short"},
                {"event": "failed", "target": "failed_state"},
                {"event": "cancelled", "target": "failed_state"},
            ],
        },
        "long": {"final": True, "enter": "say_long"},
        "short": {"final": True, "enter": "say_short"},
        "failed_state": {"final": True, "enter": "say_error"},
    }
}


@dataclass
class Stats:
    """Counts of a text."""

    words: int
    first: str


def run_function(function: Any, arguments: dict[str, Any], message: str = "one two three") -> Turn:
    """The result of a turn that calls a function once."""
    with make_engine(function, arguments) as engine:
        result = engine.run(message, conversation="c")
        assert list(replay_conversation(engine.store, "c"))
    return result


def make_engine(function: Any, arguments: dict[str, Any], log: Any = "memory", chart: Any = CHART) -> Engine:
    """An engine whose chart calls a function once."""
    name = function if isinstance(function, str) else function.__name__
    spec = {
        "chart": chart,
        "effects": {
            "count": {"call_function": {"function": name, "as": "stats", "arguments": arguments}},
            "say_long": {"answer": "{{stats.words}} words"},
            "say_short": {"answer": "short"},
            "say_error": {"answer": "{{stats.error_kind}}: {{stats.error}}"},
        },
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "responses": [{"llm": "m"}],
    }
    return Engine(spec, log=log, functions=() if isinstance(function, str) else [function])


@effect
def count_words(text: str, least: int = 0) -> Stats:
    """Count the words of a text."""
    return Stats(words=max(least, len(text.split())), first=text.split()[0])


@effect
async def count_later(text: str) -> Stats:
    """Count the words of a text, a little later."""
    await asyncio.sleep(0)
    return Stats(words=len(text.split()), first="")


@effect
def raise_error(text: str) -> Stats:
    """Fail."""
    raise ValueError(f"cannot count {text}")


@effect(timeout_s=0.05)
async def count_too_late(text: str) -> Stats:
    """Never return in time."""
    await asyncio.sleep(30)
    raise AssertionError("nobody waits that long")


@effect
def return_nonsense(text: str) -> Stats:
    """Break the promise of the signature."""
    return "three"  # type: ignore[return-value]


@pytest.mark.parametrize("function", [count_words, count_later], ids=lambda function: function.__name__)
def test_fields_of_the_result_are_facts(function: Any) -> None:
    """What a function returns is the value of the result, and its fields decide."""
    result = run_function(function, {"text": "{{user_message}}"})
    assert (result.state, result.content) == ("long", "3 words")
    assert run_function(function, {"text": "{{user_message}}"}, "word").state == "short"


def test_a_template_of_one_slot_keeps_its_type() -> None:
    """An argument may be a number, a list or an object of a result, not only a text."""
    result = run_function(count_words, {"text": "{{user_message}}", "least": 7})
    assert result.results["stats"]["words"] == 7


@pytest.mark.parametrize(
    ("function", "arguments", "kind", "words"),
    [
        (raise_error, {"text": "x"}, "effect", "ValueError: cannot count x"),
        (count_too_late, {"text": "x"}, "timeout", "in time"),
        (return_nonsense, {"text": "x"}, "bad_output", "Stats"),
        (count_words, {"text": 5}, "effect", "text"),
        (count_words, {}, "effect", "text"),
    ],
    ids=["raises", "too late", "other type", "wrong argument", "missing argument"],
)
def test_whatever_goes_wrong_is_data(
    function: Callable[..., Any], arguments: dict[str, Any], kind: str, words: str
) -> None:
    """A function that fails ends in `failed` with kind and message, and the chart goes on."""
    result = run_function(function, arguments)
    assert result.state == "failed_state"
    assert result.result_errors["stats"].kind == kind
    assert words in result.result_errors["stats"].message


@effect
def yield_words(text: str) -> Iterator[str]:
    """The words of a text, one by one."""
    yield from text.split()


@effect
async def yield_words_later(text: str) -> AsyncIterator[str]:
    """The words of a text, one by one."""
    for word in text.split():
        await asyncio.sleep(0)
        yield word


@effect
def count_words_elsewhere(text: str) -> Awaitable[Stats]:
    """The coroutine of another function."""
    return count_later(text)


@effect
def yield_untyped(text: str):  # type: ignore[no-untyped-def]
    """The words of a text, one by one."""
    yield from text.split()


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (yield_words, {"content": ["one", "two", "three"]}),
        (yield_words_later, {"content": ["one", "two", "three"]}),
        (yield_untyped, {"content": ["one", "two", "three"]}),
        (count_words_elsewhere, {"words": 3, "first": ""}),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_the_value_of_a_function_is_read_to_its_end(function: Callable[..., Any], value: object) -> None:
    """A function of a chart may return what a tool may: awaitables are awaited, items are read."""
    chart = json.loads(json.dumps(CHART).replace("stats.words >= 3", "stats.count >= 1"))
    with make_engine(function, {"text": "{{user_message}}"}, chart=chart) as engine:
        result = engine.run("one two three")
    assert result.results["stats"] == value


@effect
def return_object(text: str) -> Any:
    """Nothing that is data."""
    return object()


@effect
def yield_for_ever(text: str) -> Iterator[int]:
    """Numbers without an end."""
    yield from itertools.count()


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (return_object, "bad_output", "of the type object, which is no plain data"),
        (yield_for_ever, "effect", "100000 items"),
    ],
    ids=["object", "endless"],
)
def test_a_value_that_is_no_data_is_a_failure(function: Callable[..., Any], kind: str, words: str) -> None:
    """What cannot be read to its end, or is no data, ends in `failed`."""
    chart = json.loads(json.dumps(CHART).replace("stats.words >= 3", "stats.count >= 1"))
    with make_engine(function, {"text": "x"}, chart=chart) as engine:
        result = engine.run("x")
    assert result.result_errors["stats"].kind == kind
    assert words in result.result_errors["stats"].message


def test_a_function_can_be_named_by_its_module() -> None:
    """`module:function` needs no registration, and no mark."""
    result = run_function("sample_functions:count_words", {"text": "{{user_message}}"})
    assert result.results["stats"] == {"words": 3, "first": "one"}


@pytest.mark.parametrize("reference", ["nowhere:function", "json:nothing", "count_wrods", "json:__name__"])
def test_an_unknown_function_is_a_located_error(reference: str) -> None:
    """The error names the key path of the spec."""
    with pytest.raises(SpecError) as caught:
        make_engine(reference, {})
    assert caught.value.path == "effects.count.call_function.function"


calls: list[str] = []


@effect
def note_call(text: str) -> Stats:
    """Note that it ran."""
    calls.append(text)
    return Stats(words=3, first=text)


def test_replay_never_runs_a_function() -> None:
    """Replay takes the recorded value; the function runs once."""
    calls.clear()
    run_function(note_call, {"text": "x"})
    assert calls == ["x"]


def test_the_log_has_the_digest_of_the_source() -> None:
    """Record 0 names the source of each function, so that replay can name a changed one."""
    with make_engine(count_words, {"text": "x"}) as engine:
        engine.run("x", conversation="c")
        loaded = load_conversation(engine.store, "c")
    assert loaded is not None
    assert len(loaded.versions.sources["count_words"]) == 32


def let_worker_die(log: str, conversation: str) -> None:
    """Give the lease of a conversation to a process that does not exist, as a crash leaves it."""
    with contextlib.closing(open_store(log)) as store:
        (lease,) = store.list_leases()
        assert store.release_lease(lease, is_open=True)
        store.acquire_lease(conversation, DEAD, 3600)


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_after_a_crash_only_an_idempotent_function_runs_again(
    tmp_path: Path, is_idempotent: bool
) -> None:
    """A function that may have run ends as interrupted, unless it says that it may run twice."""
    runs: list[int] = []
    has_begun = asyncio.Event()

    @effect(idempotent=is_idempotent)
    async def work(text: str) -> Stats:
        runs.append(1)
        if len(runs) == 1:
            has_begun.set()
            await asyncio.sleep(30)
        return Stats(words=3, first=text)

    path = tmp_path / "log.db"
    first = make_engine(work, {"text": "x"}, log=str(path))
    task = asyncio.ensure_future(first.arun("x", conversation="c"))
    await has_begun.wait()
    copy = tmp_path / "copy.db"  # the log as a crash at this instant leaves it
    for file in tmp_path.glob("log.db*"):
        shutil.copy(file, file.with_name(file.name.replace("log", "copy")))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await first.aclose()
    let_worker_die(str(copy), "c")
    async with make_engine(work, {"text": "x"}, log=str(copy)) as second:
        result = await second.conversation("c").aresume()
    if is_idempotent:
        assert (len(runs), result.state) == (2, "long")
    else:
        assert (len(runs), result.result_errors["stats"].kind) == (1, "interrupted")


def test_untyped_functions_work_without_facts() -> None:
    """A function without a result type has no facts beyond the counters; its value is kept as it is."""

    @effect
    def untyped(text):  # type: ignore[no-untyped-def]
        return [json.dumps(text)]

    with pytest.raises(SpecError, match=r"stats\.words"):
        make_engine(untyped, {"text": "x"})


@effect
def describe_values(text: Any, field: Any, variable: Any, null: Any, mixed: str) -> Stats:
    """Say which values came."""
    return Stats(words=9, first=json.dumps([text, field, variable, null, mixed]))


def test_a_result_that_is_not_there_yet_is_an_empty_text() -> None:
    """An argument that is a result, a field of one, or a variable without a value is an empty text, as in a
    prompt. A value that is null stays null."""
    arguments = {
        "text": "{{stats}}",
        "field": "{{stats.first}}",
        "variable": "{{nobody_gave_it}}",
        "null": "{{given.nothing}}",
        "mixed": "<{{stats.first}}>",
    }
    with make_engine(describe_values, arguments) as engine:
        engine.run("go", conversation="c", variables={"given": {"nothing": None}})
        events = [step.record.event for step in replay_conversation(engine.store, "c")]
    (returned,) = [event for event in events if event["type"] == "returned"]
    assert json.loads(returned["value"]["first"]) == ["", "", "", None, "<>"]
