"""A Python tool in a process of its own, which can be ended from outside.

The child gets its limits before it loads the tool, sits in a process group of its own, and ends by
itself when this process dies. Whatever way the run ends, the whole group is killed afterwards, so
that nothing of it stays behind. What comes back is JSON; it is never unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.tools.definition import Tool, ToolFailure
from toolchart.tools.execution.tool_runs import TimedOut

_CHILD = Path(__file__).with_name("isolated_child.py")

MOST_BYTES = 16_000_000
"""Answer of a child that is read at all."""

CPU_SLACK_S = 1
"""CPU seconds beyond the tool's timeout after which the kernel ends the child, should nobody
else."""


class Ended(ToolFailure):
    """The child ended without an answer."""


def check_isolable(function: Callable[..., Any] | None, tool: str) -> None:
    """Whether a process of its own could find the function again.

    Raises:
        SpecError: a lambda, a function inside another one, or no function at all.
    """
    name = getattr(function, "__qualname__", "<none>")
    if function is None or "<" in name or not getattr(function, "__module__", None):
        raise SpecError(
            f"tool {tool!r} cannot run in a process of its own: {name} cannot be found by its name",
            hint="write it as a function at the top level of a module, or use isolation: thread",
        )


async def run_in_process(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """The tool's answer from a process of its own.

    Raises:
        ToolFailure: the tool failed.
        Ended: the child ended without an answer (killed by one of its limits, say).
        TimedOut: its time is over; the child has been killed.
    """
    request = _request(tool, arguments)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_CHILD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=MOST_BYTES,
    )
    try:
        answer = await asyncio.wait_for(_asked(child, request), tool.timeout_s)
    except TimeoutError:
        raise TimedOut from None
    finally:
        await _killed(child)
    return _read(answer, child.returncode)


def _request(tool: Tool, arguments: Mapping[str, Any]) -> bytes:
    function = tool.function
    assert function is not None, "checked when the tool was made"
    module = sys.modules.get(function.__module__)
    head = {
        "path": sys.path,
        "module": function.__module__,
        "file": getattr(module, "__file__", None),
        "function": function.__qualname__,
        "is_async": asyncio.iscoroutinefunction(function),
        "memory": tool.memory_mb * 1024 * 1024,
        "cpu_s": int(tool.timeout_s) + 1 + CPU_SLACK_S,
    }
    try:
        body = pickle.dumps(tool.run.values(arguments))  # type: ignore[attr-defined]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ToolFailure(f"the arguments cannot be handed to another process: {error}") from None
    return json.dumps(head).encode() + b"\n" + str(len(body)).encode() + b"\n" + body


async def _asked(child: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    # The pipe stays open: its end tells the child that nobody waits any more.
    with contextlib.suppress(ConnectionError):
        child.stdin.write(request)
        await child.stdin.drain()
    try:
        return await child.stdout.readline()
    except ValueError:
        raise ToolFailure(f"the answer is larger than {MOST_BYTES} bytes") from None


async def _killed(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        child.stdin.close()
    await asyncio.shield(child.wait())


def _read(answer: bytes, code: int | None) -> Any:
    if not answer:
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        raise Ended(
            f"the tool's process ended without an answer ({how}); it may have reached its limit of "
            "memory or processor time"
        )
    told = json.loads(answer)
    if "error" in told:
        raise ToolFailure(told["error"])
    return told["result"]
