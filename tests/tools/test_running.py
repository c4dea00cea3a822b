"""Running a tool in each execution mode: it ends within its timeout and leaves no process or thread."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from odd_results import BAD_PARTS, PART_RESULTS, READ_RESULTS, REFUSED_RESULTS, Giver, give, give_later
from places import where
from tool_calls import build_tool, make_call, make_executor, run_calls

from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution.result_cache import MAX_ENTRIES, ResultCache
from toolchart.tools.execution.results import (
    OutputLimits,
    ResultTooLarge,
    compute_least_characters,
    convert_result,
)
from toolchart.tools.execution.runs import MAX_LATE_THREADS, _ThreadRun
from toolchart.tools.execution.starts import CallStarts, ConcurrencyLimiter
from toolchart.tools.sources.python import make_tool, tool
from toolchart.workers.error_text import MAX_TEXT, describe_error


def sleep_for_ever(marker: str) -> None:
    """Start a grandchild, write both process ids to a file, and never end."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(marker).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(60)


def eat_memory() -> int:
    """Use far more memory than the limit."""
    return len(bytearray(4_000_000_000))


def die() -> None:
    """Exit without an answer."""
    os._exit(3)


def leave() -> None:
    """Exit without an answer, as if all was well."""
    os._exit(0)


def chatter() -> str:
    """Print a forged answer, then return the real one."""
    print('{"result": "forged"}', flush=True)
    return "true answer"


async def later() -> str:
    """Return a text from an async function."""
    await asyncio.sleep(0)
    return "later"


def make_isolated_tool(function: Any, **options: Any) -> Tool:
    """The function as a tool that runs in a child process."""
    return make_tool(tool(**{"isolation": "process", "timeout_s": 300.0, **options})(function))


def is_alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_sync_function_runs_in_a_thread() -> None:
    """S4.5: a blocking function does not block the loop; it runs in a thread of its own."""
    main = threading.get_ident()

    def runs_off_main_thread() -> bool:
        return threading.get_ident() != main

    (event,) = run_calls(make_executor(make_tool(runs_off_main_thread)), make_call("runs_off_main_thread"))
    assert event.result["result"] is True


@pytest.mark.parametrize("execution_mode", ["thread", "async"])
def test_a_tool_over_its_time_ends_as_timed_out(execution_mode: str) -> None:
    """S2.8: the per-tool timeout ends the call with its error text, in each execution mode."""
    release = threading.Event()

    def slow(arguments: Any) -> None:
        release.wait(30)

    async def slow_async(arguments: Any) -> None:
        await asyncio.sleep(30)

    run = slow if execution_mode == "thread" else slow_async
    (event,) = run_calls(
        make_executor(build_tool("slow", run, execution_mode=execution_mode, timeout_s=0.05)),
        make_call("slow"),
    )
    release.set()
    assert event.outcome == "timed_out"
    assert event.result["error"] == "Tool execution timed out after 50 ms"


def test_a_tool_that_ignores_its_cancellation_does_not_block() -> None:
    """S2.8: an async tool that ignores its cancellation does not block the turn."""

    async def stubborn(arguments: Any) -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                if stop.is_set():
                    raise

    stop = threading.Event()

    async def scenario() -> Any:
        executor = make_executor(build_tool("stubborn", stubborn, timeout_s=0.05))
        event = await executor.run(make_call("stubborn"), ("stubborn",))
        stop.set()
        return event

    assert asyncio.run(scenario()).outcome == "timed_out"


@pytest.mark.parametrize("execution_mode", ["inline", "thread", "async"])
@pytest.mark.parametrize(
    "error", [ValueError("boom"), TimeoutError("own"), SystemExit(3), asyncio.CancelledError()]
)
def test_every_exception_of_a_tool_becomes_a_failure(execution_mode: str, error: BaseException) -> None:
    """S4.5: every exception of a tool becomes a failure; its own TimeoutError is not our timeout."""

    def bad(arguments: Any) -> None:
        raise error

    async def bad_async(arguments: Any) -> None:
        raise error

    run = bad_async if execution_mode == "async" else bad
    (event,) = run_calls(
        make_executor(build_tool("bad", run, execution_mode=execution_mode)), make_call("bad")
    )
    assert event.outcome == "failed"
    assert event.result["error"]


def test_an_exception_without_a_text_becomes_a_failure() -> None:
    """S4.5: an exception whose own text raises becomes its class name."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def bad(arguments: Any) -> None:
        raise Odd

    (event,) = run_calls(make_executor(build_tool("bad", bad)), make_call("bad"))
    assert event.result["error"] == "Odd"


def test_hanging_threads_are_counted_and_bounded() -> None:
    """S2.8: the number of threads past their timeout is limited."""
    release = threading.Event()
    executor = make_executor(
        build_tool("hang", lambda arguments: release.wait(600), execution_mode="thread", timeout_s=0.01),
        build_tool("quick", lambda arguments: True, execution_mode="thread"),
        parallel=100,
    )
    events = run_calls(executor, *(make_call("hang", id=f"c{n}") for n in range(MAX_LATE_THREADS)))
    assert {event.outcome for event in events} == {"timed_out"}
    (refused_event,) = run_calls(executor, make_call("quick"))
    release.set()
    assert "isolation: process" in refused_event.result["error"]
    for _ in range(6000):
        if not any(thread.name == "tool hang" for thread in threading.enumerate()):
            break
        time.sleep(0.01)
    (later_event,) = run_calls(executor, make_call("quick"))
    assert later_event.result["result"] is True


async def test_a_thread_that_has_ended_is_never_counted_as_hanging() -> None:
    """S2.8: a timeout that comes when the function has returned takes no place of a hanging thread, because
    no thread would ever give it back."""
    run = _ThreadRun(build_tool("quick", lambda arguments: True), ({},), None)
    run.run()
    assert run.mark_late() is False
    run.report_end()
    assert await run.end == (True, None)


def test_a_process_accepts_models_and_returns_json() -> None:
    """Issue 6: a function with pydantic models runs in a child process as it does in this one."""
    executor = make_executor(make_isolated_tool(where))
    (event,) = run_calls(executor, make_call("where", {"place": {"city": "brno", "zip": 60200}}))
    assert event.result["result"] == {"city": "BRNO", "zip": 60201}


@pytest.mark.parametrize("execution_mode", ["async", "thread"])
def test_each_run_keeps_its_own_time_beside_others(execution_mode: str) -> None:
    """Issue 27: runs that overlap end at their own deadlines, in whatever order these were
    set; a run that has time left goes on, and so does a later run on the same event loop."""
    is_over = threading.Event()

    async def wait(arguments: Any) -> str:
        return "done" if await asyncio.to_thread(is_over.wait, 600) else ""

    run = wait if execution_mode == "async" else lambda arguments: "done" if is_over.wait(600) else ""
    timeouts = {"long": 600.0, "short": 0.05, "middle": 0.1}
    tools = [
        build_tool(name, run, execution_mode=execution_mode, timeout_s=timeout_s)
        for name, timeout_s in timeouts.items()
    ]
    executor = make_executor(*tools)

    async def scenario() -> list[Any]:
        runs = {name: asyncio.ensure_future(executor.run(make_call(name), (name,))) for name in timeouts}
        late = [await runs["middle"], await runs["short"]]
        is_over.set()
        return [*late, await runs["long"], await executor.run(make_call("short"), ("short",))]

    outcomes = [event.outcome for event in asyncio.run(scenario())]
    assert outcomes == ["timed_out", "timed_out", "succeeded", "succeeded"]


def test_a_timed_out_process_leaves_nothing_behind(tmp_path: Path) -> None:
    """Issue 6: after the timeout the child and all processes that it started are dead."""
    marker = tmp_path / "pids"
    for timeout_s in (2.0, 10.0, 50.0):  # a busy machine may need longer to start the processes
        executor = make_executor(make_isolated_tool(sleep_for_ever, timeout_s=timeout_s))
        (event,) = run_calls(executor, make_call("sleep_for_ever", {"marker": str(marker)}))
        assert event.outcome == "timed_out"
        if marker.exists() and len(marker.read_text().split()) == 2:
            break
    pids = [int(pid) for pid in marker.read_text().split()]
    assert len(pids) == 2
    wait_for_their_end(pids)


def wait_for_their_end(pids: list[int]) -> None:
    """Return when no process of these runs any more; fail where one does after a minute."""
    until = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < until, "a process goes on"
        time.sleep(0.02)


def test_a_cancelled_process_leaves_nothing_behind(tmp_path: Path) -> None:
    """Issue 6: cancelling a run kills its child process and all that it started."""
    marker = tmp_path / "pids"
    executor = make_executor(make_isolated_tool(sleep_for_ever))

    async def scenario() -> None:
        call = make_call("sleep_for_ever", {"marker": str(marker)})
        task = asyncio.ensure_future(executor.run(call, ("sleep_for_ever",)))
        while not (marker.exists() and len(marker.read_text().split()) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    wait_for_their_end([int(pid) for pid in marker.read_text().split()])


def test_a_process_has_its_memory_limited() -> None:
    """Issue 6: a tool in a child process cannot use more than its `memory_mb`."""
    (event,) = run_calls(make_executor(make_isolated_tool(eat_memory)), make_call("eat_memory"))
    assert event.outcome == "failed"
    assert "Memory" in event.result["error"]


def test_prints_and_early_exits_are_no_answers() -> None:
    """Issue 6: what a tool prints is not its answer, and an early exit is a failure with its exit code."""
    names = ("chatter", "die", "leave", "later")
    executor = make_executor(*map(make_isolated_tool, (chatter, die, leave, later)))
    chatter_event, dead_event, left_event, async_event = run_calls(executor, *map(make_call, names))
    assert chatter_event.result["result"] == "true answer"
    assert "ended without an answer (exit code 3)" in dead_event.result["error"]
    assert "ended without an answer (exit code 0)" in left_event.result["error"]
    assert async_event.result["result"] == "later"


def test_a_function_that_no_process_could_find_is_refused() -> None:
    """Issue 6: a lambda or an inner function cannot be isolated; the error names the reason."""

    def inner() -> None:
        """Inside."""

    with pytest.raises(SpecError, match="cannot be found by its name"):
        make_isolated_tool(inner)
    with pytest.raises(SpecError, match="not an isolation"):
        make_isolated_tool(where, isolation="jail")


async def let_others_run() -> None:
    """Let every task go on that can: rounds of the event loop, which no busy machine shortens."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_calls_of_a_reply_run_together_up_to_the_cap() -> None:
    """S3.12: at most `parallel` calls run at once, and a tool with `parallel: false` runs alone."""
    running: set[str] = set()
    running_counts: list[int] = []
    running_beside_exclusive: list[set[str]] = []

    async def work(arguments: Any) -> None:
        running.add(name := f"w{len(running_counts)}")
        running_counts.append(len(running))
        await let_others_run()
        running.discard(name)

    async def exclusive(arguments: Any) -> None:
        running_beside_exclusive.append(set(running))
        running.add("alone")
        await let_others_run()
        running.discard("alone")
        running_beside_exclusive.append(set(running))

    executor = make_executor(
        build_tool("work", work), build_tool("exclusive", exclusive, parallel=False), parallel=3
    )
    order = ["work"] * 4 + ["exclusive"] + ["work"] * 4
    events = run_calls(executor, *(make_call(name, id=f"c{n}") for n, name in enumerate(order)))
    assert [event.outcome for event in events] == ["succeeded"] * 9
    assert max(running_counts) == 3
    assert running_beside_exclusive == [set(), set()]


def test_a_cancelled_wait_releases_its_slot() -> None:
    """S3.12: a call that is cancelled while it waits for a slot does not block the calls after it."""

    async def scenario() -> list[str]:
        done: list[str] = []
        release = asyncio.Event()

        async def work(arguments: Any) -> None:
            await release.wait()

        executor = make_executor(
            build_tool("work", work), build_tool("alone", work, parallel=False), parallel=1
        )
        names = ("work", "alone")
        first = asyncio.ensure_future(executor.run(make_call("work", id="1"), names))
        waiting = [
            asyncio.ensure_future(executor.run(make_call("alone", id=f"w{n}"), names)) for n in range(3)
        ]
        last = asyncio.ensure_future(executor.run(make_call("work", id="9"), names))
        await let_others_run()
        for task in waiting:
            task.cancel()
        release.set()
        for task in (first, last):
            done.append((await task).outcome)
        await asyncio.gather(*waiting, return_exceptions=True)
        return done

    assert asyncio.run(asyncio.wait_for(scenario(), 60)) == ["succeeded", "succeeded"]


async def test_calls_begin_although_the_one_before_them_is_cancelled() -> None:
    """A call that is cancelled between its place and its start leaves the start to its siblings."""
    begun: list[str] = []

    async def begin(call_ids: tuple[str, ...]) -> None:
        begun.extend(call_ids)

    limiter = ConcurrencyLimiter(2).get_own()
    starts = CallStarts(["a", "b"], begin)
    first = asyncio.ensure_future(starts.wait_for_place("a", limiter, False))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    async with asyncio.timeout(60):
        await starts.wait_for_place("b", limiter, False)
    assert begun == ["b"]
    assert limiter.running_calls == 1, "the cancelled one has released its slot"


# -- results -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def givers() -> dict[str, Any]:
    """The functions that give odd results as tools of each kind."""
    kinds = {
        "thread": ({}, give),
        "inline": ({"isolation": "inline"}, give),
        "process": ({"isolation": "process"}, give),
        "async": ({}, give_later),
        "object": ({}, Giver()),
        "method": ({}, Giver().give),
        "partial": ({}, partial(give)),
        "wrapper": ({}, Giver().give_awaitable),
    }
    return {
        kind: make_executor(make_tool(function, {"name": "give", **options}))
        for kind, (options, function) in kinds.items()
    }


_TOOL_KINDS = ("thread", "inline", "process", "async", "object", "method", "partial", "wrapper")


@pytest.mark.parametrize("tool_kind", _TOOL_KINDS)
@pytest.mark.parametrize("kind", READ_RESULTS)
def test_a_result_is_read_to_its_end(givers: dict[str, Any], tool_kind: str, kind: str) -> None:
    """What a function returns is awaited where it is awaitable, read where it gives items, and becomes plain
    data, whatever kind of tool the function is."""
    (event,) = run_calls(givers[tool_kind], make_call("give", {"kind": kind}))
    assert event.result.get("result") == READ_RESULTS[kind][1], event.result


@pytest.mark.parametrize("tool_kind", _TOOL_KINDS)
@pytest.mark.parametrize("kind", REFUSED_RESULTS)
def test_what_is_no_data_is_a_failure(givers: dict[str, Any], tool_kind: str, kind: str) -> None:
    """A result without an end, or that no data can stand for, is a failure that says what it was; a place in
    memory is never part of a result."""
    (event,) = run_calls(givers[tool_kind], make_call("give", {"kind": kind}))
    assert event.outcome == "failed"
    assert REFUSED_RESULTS[kind][1] in event.result["error"]
    assert " at 0x" not in event.result["error"]


@pytest.mark.parametrize("execution_mode", ["thread", "async", "inline"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("outcome", ["timed_out", "failed"])
def test_a_generator_that_is_read_no_further_is_closed(
    execution_mode: str, is_async: bool, outcome: str
) -> None:
    """At the timeout and at a limit a generator is closed: what it opened is given back."""
    begun, closed = threading.Event(), threading.Event()
    pause_s = 0.005 if outcome == "timed_out" else 0.0

    def count(arguments: Any) -> Any:
        try:
            for number in itertools.count():
                begun.set()
                time.sleep(pause_s)
                yield number
        finally:
            closed.set()

    async def count_later(arguments: Any) -> Any:
        try:
            for number in itertools.count():
                begun.set()
                if pause_s:
                    await asyncio.sleep(pause_s)
                yield number
        finally:
            closed.set()

    run = count_later if is_async else count
    for timeout_s in (0.1, 2.0, 60.0) if pause_s else (600.0,):  # a busy machine may begin late
        tool = build_tool("count", run, execution_mode=execution_mode, timeout_s=timeout_s)
        (event,) = run_calls(make_executor(tool), make_call("count"))
        assert event.outcome == outcome
        if begun.is_set():
            break
    assert closed.wait(60)


@pytest.mark.parametrize("tool_kind", _TOOL_KINDS)
def test_parts_of_a_result_are_kept_or_refused(givers: dict[str, Any], tool_kind: str) -> None:
    """Pictures and files, alone, in a list or yielded, are parts of the result. A child process sends none,
    and one with bytes that are no base64 goes to no host: both are failures that say so."""
    calls = [make_call("give", {"kind": kind}, id=kind) for kind in (*PART_RESULTS, *BAD_PARTS)]
    events = {event.call_id: event for event in run_calls(givers[tool_kind], *calls)}
    for kind, (_, count) in PART_RESULTS.items():
        if tool_kind == "process":
            assert "a part stands alone" in events[kind].result["error"]
        else:
            assert len(events[kind].parts) == count, kind
    for kind in BAD_PARTS:
        words = "a part stands alone" if tool_kind == "process" else "is not base64"
        assert words in events[kind].result["error"], kind


# -- errors ------------------------------------------------------------------------------------------


def _group(*errors: BaseException, text: str = "unhandled errors in a TaskGroup") -> BaseExceptionGroup:
    return BaseExceptionGroup(text, errors)


def _raised_from(error: BaseException, *causes: BaseException) -> BaseException:
    """The exception as `raise error from cause` makes it, and that from the next cause."""
    if causes:
        error.__cause__ = _raised_from(*causes)
    return error


def _noted(error: BaseException, *notes: str) -> BaseException:
    """The exception with notes."""
    for note in notes:
        error.add_note(note)
    return error


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "group": (lambda: _group(ValueError("expired")), "ValueError: expired"),
    "its own text": (lambda: _group(ValueError("a"), text="two shops"), "two shops: ValueError: a"),
    "two causes": (lambda: _group(ValueError("a"), KeyError("b")), "ValueError: a; KeyError: 'b'"),
    "nested": (lambda: _group(_group(_group(OSError("a")), KeyError("b"))), "OSError: a; KeyError: 'b'"),
    "same cause": (lambda: _group(ValueError("a"), ValueError("a")), "ValueError: a"),
    "cancelled beside": (lambda: _group(asyncio.CancelledError(), ValueError("a")), "ValueError: a"),
    "all cancelled": (lambda: _group(asyncio.CancelledError()), "CancelledError"),
    "exit inside": (lambda: _group(SystemExit(3), ValueError("a")), "SystemExit: 3; ValueError: a"),
    "refusal inside": (lambda: _group(ToolFailure("no such city")), "no such city"),
    "refusals inside": (lambda: _group(ToolFailure("no a"), _group(ToolFailure("no b"))), "no a; no b"),
    "many causes": (
        lambda: _group(*(ValueError(str(number)) for number in range(1000))),
        "ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4; and 995 more",
    ),
    "cause": (
        lambda: _raised_from(RuntimeError("a"), KeyError("b")),
        "RuntimeError: a (caused by KeyError: 'b')",
    ),
    "group as the cause": (
        lambda: _raised_from(RuntimeError("the search failed"), _group(ValueError("expired"))),
        "RuntimeError: the search failed (caused by ValueError: expired)",
    ),
    "cause that says the same": (
        lambda: _raised_from(OSError("gone"), ConnectionError("gone")),
        "OSError: gone",
    ),
    "cause inside": (
        lambda: _group(_raised_from(RuntimeError("a"), OSError("a"), OSError("b"))),
        "RuntimeError: a (caused by OSError: b)",
    ),
    "notes": (lambda: _noted(ValueError("bad"), "row 7", "of b.csv"), "ValueError: bad\nrow 7\nof b.csv"),
    "note alone": (lambda: _noted(ValueError(), "row 7"), "ValueError: row 7"),
    "notes of a failure": (lambda: _noted(ToolFailure("bad"), "row 7"), "bad\nrow 7"),
    "notes inside": (lambda: _group(_noted(OSError("a"), "row 7"), OSError()), "OSError: a\nrow 7; OSError"),
    "notes of a group": (lambda: _noted(_group(OSError("a")), "row 7"), "OSError: a\nrow 7"),
    "long chain": (
        lambda: _raised_from(*(ValueError(letter) for letter in "abcdefgh")),
        "ValueError: a (caused by ValueError: b (caused by ValueError: c (caused by ValueError: d)))",
    ),
}
"""By kind: what makes an exception, and the text that stands for it."""


def fail(kind: str) -> None:
    """Raise the exception of a kind."""
    raise ERRORS[kind][0]()


async def fail_later(kind: str) -> None:
    """Raise the exception of a kind."""
    await asyncio.sleep(0)
    raise ERRORS[kind][0]()


@pytest.mark.parametrize("mode", ["thread", "inline", "process", "async"])
def test_an_error_says_its_first_causes(mode: str) -> None:
    """S4.5: the error of a tool names the first causes of an exception group, at any depth, and what an
    exception was raised from, within limits, in whatever mode the tool runs."""
    function = fail_later if mode == "async" else fail
    options = {} if mode == "async" else {"isolation": mode}
    executor = make_executor(make_tool(function, {"name": "fail", **options}))
    events = run_calls(executor, *(make_call("fail", {"kind": kind}, id=kind) for kind in ERRORS))
    assert {event.call_id: event.result["error"] for event in events} == {
        kind: text for kind, (_, text) in ERRORS.items()
    }


def test_an_error_of_any_length_is_shortened() -> None:
    """An exception with a text beyond the limit is told by its beginning."""
    assert len(describe_error(ValueError("x" * 10 * MAX_TEXT))) == MAX_TEXT


def test_a_result_may_be_as_long_as_the_limit() -> None:
    """A result of exactly the most characters is kept; one more is too many, and the error says the limit."""
    assert convert_result("x" * READING.result_characters)[3] == READING.result_characters
    with pytest.raises(ResultTooLarge, match=f"at most {READING.result_characters}"):
        convert_result("x" * (READING.result_characters + 1))


def test_a_text_is_changed_only_where_json_cannot_hold_it() -> None:
    """Text of any language stays as it is, without a note; of a lone surrogate the note says so."""
    assert convert_result("Grüße") == ("Grüße", (), None, 5)
    text, _, note, _ = convert_result("a\ud800")
    assert text == "a?"
    assert note


def test_the_cache_keeps_the_results_that_were_used_last() -> None:
    """A full cache drops exactly the result that was used longest ago."""
    tool, cache = build_tool("look_up", str), ResultCache()
    keys = [("look_up", "", str(number), "c", 1) for number in range(MAX_ENTRIES + 1)]
    for key in keys[:-1]:
        cache.store_result(key, "x", 1, "call_1")
    assert cache.find_result(keys[0], tool) is not None
    cache.store_result(keys[-1], "x", 1, "call_1")
    assert [key for key in keys if cache.find_result(key, tool) is None] == [keys[1]]


def test_the_least_that_a_model_sees_is_below_every_limit() -> None:
    """The limit of listings counts for tools whose results are listings, that of one call for the others."""
    limits = OutputLimits(listing=100, per_tool=200, least=300)
    assert compute_least_characters(limits, build_tool("look_up", str, listing=True)) == 100
    assert compute_least_characters(limits, build_tool("look_up", str)) == 200
