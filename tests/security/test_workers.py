"""Faults 4, 5 and 11: bounded work is killed with everything that it started, and sees no key."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hostile_work
import pytest

from toolchart.tools.execution.isolation import run_in_process
from toolchart.tools.sources.python import make_tool, tool
from toolchart.workers import pool
from toolchart.workers.pool import BoundExceeded, Work, run_bounded, run_bounded_async


def make_work(function: Callable[..., Any], processor_s: float | None = None, **arguments: Any) -> Work:
    """Work that calls a function of this test's support."""
    return Work(
        module=function.__module__,
        function=function.__name__,
        file=hostile_work.__file__,
        arguments=arguments,
        processor_s=processor_s,
        memory_mb=200,
    )


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """Whether a process exists and stands still by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def has_number(path: Path) -> bool:
    """Whether a process has written its number into the file."""
    return path.exists() and bool(path.read_text())


def wait_until_gone(path: Path) -> bool:
    """Whether the process that wrote its number into the file ends within two minutes."""
    pid = int(path.read_text())
    end = time.monotonic() + 120
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_running(pid)


@pytest.mark.parametrize("function", [hostile_work.leave_a_process, hostile_work.leave_an_orphan])
def test_what_a_tool_started_ends_with_it(tmp_path: Path, function: Callable[..., Any]) -> None:
    """A process in a session of its own, and an orphan, are killed when the work returns."""
    assert run_bounded(make_work(function, path=str(tmp_path / "pid")), timeout_s=120) == "done"
    assert wait_until_gone(tmp_path / "pid")


def test_what_a_tool_started_ends_at_the_deadline(tmp_path: Path) -> None:
    """At the deadline, too, nothing survives."""
    work = make_work(hostile_work.leave_and_hang, path=str(tmp_path / "pid"))
    for timeout_s in (1, 5, 20, 120):  # until the work has come so far that there is a process to survive
        with pytest.raises(BoundExceeded, match="time"):
            run_bounded(work, timeout_s=timeout_s)
        if has_number(tmp_path / "pid"):
            break
    assert wait_until_gone(tmp_path / "pid")


async def test_what_a_tool_started_ends_with_a_cancellation(tmp_path: Path) -> None:
    """A cancelled call ends what it started."""
    work = make_work(hostile_work.leave_and_hang, path=str(tmp_path / "pid"))
    task = asyncio.ensure_future(run_bounded_async(work, timeout_s=300))
    async with asyncio.timeout(120):
        while not has_number(tmp_path / "pid"):  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wait_until_gone(tmp_path / "pid")


def test_processor_time_ends_work_that_never_rests() -> None:
    """Work with a limit of processor time ends there, long before its deadline, and the limit is named."""
    with pytest.raises(BoundExceeded, match="time") as caught:
        run_bounded(make_work(hostile_work.spin, processor_s=0.2), timeout_s=600)
    assert caught.value.code == -signal.SIGPROF


def test_work_that_gets_no_processor_is_not_refused(tmp_path: Path) -> None:
    """Work that stands still for longer than its processor time goes on and answers: it used none."""
    work = make_work(hostile_work.stop_itself, processor_s=1.0, path=str(tmp_path / "pid"))
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(run_bounded, work, timeout_s=300)
        while not has_number(tmp_path / "pid") and not answer.done():
            time.sleep(0.02)
        pid = int((tmp_path / "pid").read_text())
        while not is_stopped(pid) and not answer.done():
            time.sleep(0.02)
        time.sleep(1.2)
        assert not answer.done()
        os.kill(pid, signal.SIGCONT)
        assert answer.result() == "done"


def test_the_memory_counts_in_total() -> None:
    """Four processes that each stay below the limit are ended together."""
    with pytest.raises(BoundExceeded, match="memory"):
        run_bounded(make_work(hostile_work.share_the_memory, count=4), timeout_s=120)


def test_a_long_answer_is_refused() -> None:
    """An answer beyond the limit is not read to its end."""
    with pytest.raises(BoundExceeded):
        run_bounded(make_work(hostile_work.fill_the_answer), timeout_s=120)


async def test_a_child_sees_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable with a key reaches a process-isolated tool, but one that the tool names does."""
    monkeypatch.setenv("OPENAI_API_KEY", "planted-key-1234")
    monkeypatch.setenv("DATABASE", "db-5678")
    options: dict[str, Any] = {"isolation": "process", "environment": ("DATABASE",)}
    shown = str(await run_in_process(make_tool(tool(**options)(hostile_work.list_environment)), {}))
    assert "planted-key-1234" not in shown
    assert shown.count("db-5678") == 2


def test_a_dead_host_is_replaced() -> None:
    """If the host is killed, the next work starts another one."""
    work = Work(module="os", function="getpid", arguments={})
    run_bounded(work, timeout_s=120)
    process = pool._hosts[()]._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run_bounded(work, timeout_s=120) > 0
