"""Running: every way of running ends in time, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from places import where
from tool_calls import call, executor, made, ran

from toolchart.states.errors import SpecError
from toolchart.tools.definition import Tool
from toolchart.tools.execution.tool_runs import MOST_LATE_THREADS
from toolchart.tools.sources.python import tool, tool_of


def sleep_for_ever(marker: str) -> None:
    """Start a grandchild, say so, and never end."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(marker).write_text(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(60)


def eat_memory() -> int:
    """Take far more memory than is allowed."""
    return len(bytearray(4_000_000_000))


def die() -> None:
    """End without an answer."""
    os._exit(3)


def chatter() -> str:
    """Print, which must not be taken for the answer."""
    print('{"result": "forged"}', flush=True)
    return "true answer"


async def later() -> str:
    """An async function."""
    await asyncio.sleep(0)
    return "later"


def isolated(function: Any, **options: Any) -> Tool:
    """The function as a tool in a process of its own."""
    return tool_of(tool(**{"isolation": "process", "timeout_s": 20.0, **options})(function))


def alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_sync_function_runs_in_a_thread() -> None:
    """S4.5: a blocking function does not block the loop; it runs in a thread of its own."""
    main = threading.get_ident()

    def which() -> bool:
        return threading.get_ident() != main

    (event,) = ran(executor(tool_of(which)), call("which"))
    assert event.result["result"] is True


@pytest.mark.parametrize("way", ["thread", "async"])
def test_a_tool_over_its_time_ends_as_timed_out(way: str) -> None:
    """S2.8: the per-tool timeout ends the call with its text, in each way of running."""
    release = threading.Event()

    def slow(arguments: Any) -> None:
        release.wait(30)

    async def slow_async(arguments: Any) -> None:
        await asyncio.sleep(30)

    run = slow if way == "thread" else slow_async
    (event,) = ran(executor(made("slow", run, way=way, timeout_s=0.05)), call("slow"))
    release.set()
    assert event.outcome == "timed_out"
    assert event.result["error"] == "Tool execution timed out after 50 ms"


def test_a_tool_that_ignores_its_cancellation_is_left_to_itself() -> None:
    """S2.8: an async tool that swallows the cancellation cannot hold the turn."""

    async def stubborn(arguments: Any) -> None:
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                if stop.is_set():
                    raise

    stop = threading.Event()

    async def scenario() -> Any:
        ex = executor(made("stubborn", stubborn, timeout_s=0.05))
        event = await ex.run(call("stubborn"), ("stubborn",))
        stop.set()
        return event

    assert asyncio.run(scenario()).outcome == "timed_out"


@pytest.mark.parametrize("way", ["inline", "thread", "async"])
@pytest.mark.parametrize(
    "error", [ValueError("boom"), TimeoutError("own"), SystemExit(3), asyncio.CancelledError()]
)
def test_whatever_a_tool_raises_is_data(way: str, error: BaseException) -> None:
    """S4.5: no exception of a tool escapes, and its own time-out is not taken for ours."""
    if way == "inline" and not isinstance(error, Exception):
        pytest.skip("inline tools are Toolchart's own")

    def bad(arguments: Any) -> None:
        raise error

    async def bad_async(arguments: Any) -> None:
        raise error

    run = bad_async if way == "async" else bad
    (event,) = ran(executor(made("bad", run, way=way)), call("bad"))
    assert event.outcome == "failed"
    assert event.result["error"]


def test_an_error_that_cannot_be_told_is_still_data() -> None:
    """S4.5: an exception whose own text raises becomes its class name."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def bad(arguments: Any) -> None:
        raise Odd

    (event,) = ran(executor(made("bad", bad)), call("bad"))
    assert event.result["error"] == "Odd"


def test_hanging_threads_are_counted_and_bounded() -> None:
    """S2.8: tools that hang past their time cannot pile up threads without end."""
    release = threading.Event()
    ex = executor(
        made("hang", lambda arguments: release.wait(60), way="thread", timeout_s=0.01), parallel=100
    )
    events = ran(ex, *(call("hang", id=f"c{n}") for n in range(MOST_LATE_THREADS)))
    assert {event.outcome for event in events} == {"timed_out"}
    (refused,) = ran(ex, call("hang"))
    release.set()
    assert "isolation: process" in refused.result["error"]
    for _ in range(200):
        if not any(thread.name == "tool hang" for thread in threading.enumerate()):
            break
        time.sleep(0.01)
    (after,) = ran(ex, call("hang"))
    assert after.result["result"] is True


def test_a_process_takes_models_and_gives_json() -> None:
    """Issue 6: a function with pydantic models runs in a process like anywhere else."""
    ex = executor(isolated(where))
    (event,) = ran(ex, call("where", {"place": {"city": "brno", "zip": 60200}}))
    assert event.result["result"] == {"city": "BRNO", "zip": 60201}


def test_a_timed_out_process_leaves_nothing_behind(tmp_path: Path) -> None:
    """Issue 6: at the timeout the child and everything that it started are gone."""
    marker = tmp_path / "pids"
    ex = executor(isolated(sleep_for_ever, timeout_s=2.0))
    (event,) = ran(ex, call("sleep_for_ever", {"marker": str(marker)}))
    assert event.outcome == "timed_out"
    pids = [int(pid) for pid in marker.read_text().split()]
    assert len(pids) == 2
    for _ in range(100):
        if not any(map(alive, pids)):
            break
        time.sleep(0.02)
    assert not any(map(alive, pids))


def test_a_cancelled_process_leaves_nothing_behind(tmp_path: Path) -> None:
    """Issue 6: cancellation reaches a process tool too."""
    marker = tmp_path / "pids"
    ex = executor(isolated(sleep_for_ever))

    async def scenario() -> None:
        one = call("sleep_for_ever", {"marker": str(marker)})
        task = asyncio.ensure_future(ex.run(one, ("sleep_for_ever",)))
        while not (marker.exists() and len(marker.read_text().split()) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    time.sleep(0.1)
    assert not any(alive(int(pid)) for pid in marker.read_text().split())


def test_a_process_has_its_memory_limited() -> None:
    """Issue 6: a tool in a process cannot take more memory than it was given."""
    (event,) = ran(executor(isolated(eat_memory)), call("eat_memory"))
    assert event.outcome == "failed"
    assert "Memory" in event.result["error"]


def test_a_process_that_dies_or_prints_is_told_apart_from_an_answer() -> None:
    """Issue 6: what a tool prints is not its answer, and an early end is a failure in words."""
    ex = executor(isolated(chatter), isolated(die), isolated(later))
    printed, died, late = ran(ex, call("chatter"), call("die"), call("later"))
    assert printed.result["result"] == "true answer"
    assert "ended without an answer (exit code 3)" in died.result["error"]
    assert late.result["result"] == "later"


def test_a_function_that_no_process_could_find_is_refused() -> None:
    """Issue 6: a lambda or an inner function cannot be isolated, and the spec's author is told."""

    def inner() -> None:
        """Inside."""

    with pytest.raises(SpecError, match="cannot be found by its name"):
        isolated(inner)
    with pytest.raises(SpecError, match="no isolation"):
        isolated(where, isolation="jail")


def test_calls_of_a_reply_run_together_up_to_the_cap() -> None:
    """S3.12: at most `parallel` calls run at once, and a tool with `parallel: false` runs alone."""
    running: set[str] = set()
    most: list[int] = []
    alone: list[set[str]] = []

    async def work(arguments: Any) -> None:
        running.add(name := f"w{len(most)}")
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(name)

    async def exclusive(arguments: Any) -> None:
        alone.append(set(running))
        running.add("alone")
        await asyncio.sleep(0.01)
        running.discard("alone")
        alone.append(set(running))

    ex = executor(made("work", work), made("exclusive", exclusive, parallel=False), parallel=3)
    order = ["work"] * 4 + ["exclusive"] + ["work"] * 4
    events = ran(ex, *(call(name, id=f"c{n}") for n, name in enumerate(order)))
    assert [event.outcome for event in events] == ["succeeded"] * 9
    assert max(most) == 3
    assert alone == [set(), set()]


def test_a_cancelled_wait_gives_its_place_back() -> None:
    """S3.12: a call that is cancelled while it waits for a place blocks nobody after it."""

    async def scenario() -> list[str]:
        done: list[str] = []
        hold = asyncio.Event()

        async def work(arguments: Any) -> None:
            await hold.wait()

        ex = executor(made("work", work), made("alone", work, parallel=False), parallel=1)
        names = ("work", "alone")
        first = asyncio.ensure_future(ex.run(call("work", id="1"), names))
        waiting = [
            asyncio.ensure_future(ex.run(call("alone", id=f"w{n}"), names)) for n in range(3)
        ]
        last = asyncio.ensure_future(ex.run(call("work", id="9"), names))
        await asyncio.sleep(0.01)
        for task in waiting:
            task.cancel()
        hold.set()
        for task in (first, last):
            done.append((await task).outcome)
        await asyncio.gather(*waiting, return_exceptions=True)
        return done

    assert asyncio.run(asyncio.wait_for(scenario(), 10)) == ["succeeded", "succeeded"]
