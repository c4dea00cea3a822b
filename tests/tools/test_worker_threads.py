"""Reused worker threads of sync tools: quick to take a job, and no job harms another one."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tool_calls import TEXT, build_tool, make_call, make_executor, run_calls

from toolchart.tools import tool
from toolchart.tools.execution import runs
from toolchart.tools.execution.runs import start_job
from toolchart.tools.sources.python import make_tool

TESTS = Path(__file__).resolve().parents[1]

LIMIT_S = 300
"""Bound on a hang; shorter than the wait of a tool that hangs."""

SCRIPT_START = """
import asyncio, os, sys, threading, time
import conftest
from tool_calls import build_tool, make_call, make_executor, run_calls
from toolchart.tools.execution import runs

release = threading.Event()
ident = build_tool("ident", lambda arguments: threading.get_ident(), execution_mode="thread")
runs.IDLE_S = 3600.0  # a busy machine may pause for longer than an idle worker waits
hang = build_tool("hang", lambda arguments: release.wait(600), execution_mode="thread", timeout_s=0.05)
executor = make_executor(ident, hang, parallel=100)
"""


def run_script(text: str) -> list[str]:
    """Run a script in a process of its own, where no other test left workers; returns what it printed."""
    paths = os.pathsep.join([str(TESTS), *sys.path])
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT_START + text],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    return child.stdout.split()


class EventJob:
    """A job that does nothing but report its end."""

    name = "event job"

    def __init__(self) -> None:
        self.has_ended = threading.Event()

    def run(self) -> None:
        """Do nothing."""

    def report_end(self) -> None:
        """Set the event."""
        self.has_ended.set()


def test_calls_one_after_the_other_share_a_worker() -> None:
    """Issue 10: fifty calls, in several event loops, run in one thread; it is a daemon."""
    (idents, daemons) = run_script(
        """
idents = {run_calls(executor, make_call("ident"))[0].result["result"] for _ in range(50)}
others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
print(len(idents), sum(thread.daemon for thread in others))
"""
    )
    assert (idents, daemons) == ("1", "1")


def test_a_worker_that_hangs_is_not_used_again_and_delays_nobody() -> None:
    """Issue 10: after a timeout the next calls run in another thread, and the interpreter exits at once."""
    (outcome, workers, idle_workers) = run_script(
        """
(hung,) = run_calls(executor, make_call("hang"))
for _ in range(3):
    run_calls(executor, make_call("ident"))
print(hung.outcome, threading.active_count() - 1, len(runs._idle_workers))
"""
    )
    assert (outcome, workers, idle_workers) == ("timed_out", "2", "1")


def test_a_worker_chosen_while_it_ends_still_runs_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 10: a worker whose idle time is over, but which a call has just taken, waits for that call."""
    monkeypatch.setattr(runs, "IDLE_S", 0.01)
    worker = runs._Worker()  # in no list, as one that `start_job` has taken
    time.sleep(0.1)
    job = EventJob()
    worker.jobs.put(job)
    assert job.has_ended.wait(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_starts_its_own_workers() -> None:
    """Issue 10: after a fork neither the parent's idle workers nor its late threads count in the child."""
    (parent, child) = run_script(
        """
import warnings
warnings.simplefilter("ignore")
from toolchart.tools.execution.runs import MAX_LATE_THREADS
have_begun = threading.Barrier(MAX_LATE_THREADS + 1)  # the nap ends when each hanging call has its worker
nap = build_tool("nap", lambda arguments: have_begun.wait(300), execution_mode="thread")
def hang_for_ever(arguments):
    have_begun.wait(300)
    release.wait(600)
hang = build_tool("hang", hang_for_ever, execution_mode="thread", timeout_s=0.05)
hangs = [make_call("hang", id=f"c{n}") for n in range(MAX_LATE_THREADS)]
executor = make_executor(ident, hang, nap, parallel=100)
run_calls(executor, make_call("nap"), *hangs)
assert len(runs._idle_workers) == 1
print(run_calls(executor, make_call("ident"))[0].outcome, flush=True)
process = os.fork()
if process == 0:
    print(run_calls(executor, make_call("ident"))[0].outcome, flush=True)
    os._exit(0)
os.waitpid(process, 0)
"""
    )
    assert (parent, child) == ("failed", "succeeded")


def test_idle_workers_end() -> None:
    """Issue 10: workers that stay idle for `IDLE_S` end, however many ran at once."""
    (most_workers, last_workers) = run_script(
        """
runs.IDLE_S = 0.1
barrier = threading.Barrier(20)
meet = build_tool("meet", lambda arguments: barrier.wait(300) and None, execution_mode="thread")
events = run_calls(make_executor(meet, parallel=20), *(make_call("meet", id=f"c{n}") for n in range(20)))
print([event.outcome for event in events].count("succeeded"))
end_s = time.monotonic() + 120
while threading.active_count() > 1 and time.monotonic() < end_s:
    time.sleep(0.02)
print(threading.active_count() - 1 + len(runs._idle_workers))
"""
    )
    assert (most_workers, last_workers) == ("20", "0")


def test_no_job_is_lost_when_its_worker_is_about_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 10: calls that come just when idle workers end all run."""
    monkeypatch.setattr(runs, "IDLE_S", 0.0005)
    executor = make_executor(build_tool("echo", lambda a: a["text"], TEXT, execution_mode="thread"))

    async def scenario() -> list[str]:
        texts = []
        for number in range(400):
            call = make_call("echo", {"text": str(number)})
            texts.append((await executor.run(call, ("echo",))).result["result"])
            await asyncio.sleep(0.0004 + number % 5 * 0.0001)
        return texts

    assert asyncio.run(scenario()) == [str(number) for number in range(400)]


def test_each_call_gets_a_copy_of_its_callers_context() -> None:
    """Issue 10: a reused worker sees the context variables of its call, and passes no change on."""
    variable = contextvars.ContextVar("variable", default="unset")

    def swap(arguments: Any) -> str:
        value = variable.get()
        variable.set("left behind")
        return value

    executor = make_executor(build_tool("swap", swap, execution_mode="thread"))

    async def scenario() -> list[str]:
        values = []
        for value in ("first", "second", None):
            if value is not None:
                variable.set(value)
            values.append((await executor.run(make_call("swap"), ("swap",))).result["result"])
        return [*values, variable.get()]

    assert asyncio.run(scenario()) == ["first", "second", "second", "second"]


def test_event_loops_in_several_threads_share_the_workers() -> None:
    """Issue 10: engines in four threads, each with its event loop, get the results of their own calls."""
    echo = build_tool("echo", lambda a: a["text"], TEXT, execution_mode="thread")

    def run_in_own_loop(name: int) -> bool:
        texts = [f"{name}-{number}" for number in range(100)]
        calls = (make_call("echo", {"text": text}, id=text) for text in texts)
        return [event.result["result"] for event in run_calls(make_executor(echo), *calls)] == texts

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run_in_own_loop, range(4))) == [True] * 4


def test_an_idle_worker_keeps_nothing_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 10: arguments and results of a job that has ended can be collected while its worker is idle."""
    monkeypatch.setattr(runs, "IDLE_S", 300.0)
    monkeypatch.setattr(runs, "_idle_workers", [])
    job = EventJob()
    has_ended = job.has_ended
    reference = weakref.ref(job)
    start_job(job)
    del job
    assert has_ended.wait(60)
    end_s = time.monotonic() + 60
    while reference() is not None and time.monotonic() < end_s:
        time.sleep(0.01)
    assert reference() is None


def test_a_result_after_the_loop_is_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 10: a cancelled call whose thread ends later harms neither its worker nor the next loop."""
    release, has_begun = threading.Event(), threading.Event()

    @tool
    def wait_for_release() -> str:
        """Wait."""
        has_begun.set()
        release.wait(60)
        return "late"

    executor = make_executor(make_tool(wait_for_release))

    async def cancel_call() -> None:
        run = executor.run(make_call("wait_for_release"), ("wait_for_release",))
        task = asyncio.ensure_future(run)
        assert await asyncio.to_thread(has_begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_call())
    release.set()
    (event,) = run_calls(executor, make_call("wait_for_release"))
    assert event.result["result"] == "late"
    assert caplog.records == []


def test_a_thread_that_cannot_be_started_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 10: where the system has no thread left, the call fails with the reason."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(runs, "_idle_workers", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    executor = make_executor(build_tool("slow", lambda arguments: 1, execution_mode="thread"))
    (event,) = run_calls(executor, make_call("slow"))
    assert event.outcome == "failed"
    assert event.result["error"] == "not started: can't start new thread"
