"""Running a Python tool in a child process of its own, which can be killed at any time.

The child sets its limits before it loads the tool, is the leader of its own process group, and exits
when this process dies. However the run ends, the whole group is killed afterwards, so that nothing that
the tool started keeps running. The result comes back as JSON and is never unpickled.
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
from toolchart.tools.definition import Tool, ToolFailure, ToolTimeout

_CHILD_SCRIPT = Path(__file__).with_name("isolated_child.py")

MAX_ANSWER_BYTES = 16_000_000
"""Longest answer of a child that is read."""

CPU_SLACK_S = 1
"""CPU seconds beyond the tool's timeout after which the kernel kills the child, in case nothing else
did."""


class ChildEnded(ToolFailure):
    """The child process ended without an answer."""


def check_isolable(function: Callable[..., Any] | None, tool: str) -> None:
    """Check that a child process can import the function by its module and name.

    Raises:
        SpecError: a lambda, a function inside another one, or no function at all.
    """
    name = getattr(function, "__qualname__", "<none>")
    if function is None or "<" in name or not getattr(function, "__module__", None):
        raise SpecError(
            f"tool {tool!r} cannot run in a child process: {name} cannot be found by its name",
            hint="write it as a function at the top level of a module, or use isolation: thread",
        )


async def run_in_process(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    """Run a tool in a child process and return its result as JSON data.

    Raises:
        ToolFailure: the tool failed.
        ChildEnded: the child ended without an answer (for instance killed by one of its limits).
        ToolTimeout: it did not finish within `tool.timeout_s`; the child has been killed.
    """
    request = _encode_child_request(tool, arguments)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_CHILD_SCRIPT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=MAX_ANSWER_BYTES,
    )
    try:
        answer = await asyncio.wait_for(_exchange_messages(child, request), tool.timeout_s)
    except TimeoutError:
        raise ToolTimeout from None
    finally:
        await _kill_group(child)
    return _decode_child_answer(answer, child.returncode)


def _encode_child_request(tool: Tool, arguments: Mapping[str, Any]) -> bytes:
    """The request that `isolated_child.py` reads: JSON header, length of the body, pickled arguments."""
    function = tool.function
    assert function is not None, "checked when the tool was made"
    module = sys.modules.get(function.__module__)
    header = {
        "path": sys.path,
        "module": function.__module__,
        "file": getattr(module, "__file__", None),
        "function": function.__qualname__,
        "is_async": asyncio.iscoroutinefunction(function),
        "memory": tool.memory_mb * 1024 * 1024,
        "cpu_s": int(tool.timeout_s) + 1 + CPU_SLACK_S,
    }
    try:
        body = pickle.dumps(tool.run.convert_arguments(arguments))  # type: ignore[attr-defined]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ToolFailure(f"the arguments cannot be sent to the child process: {error}") from None
    return json.dumps(header).encode() + b"\n" + str(len(body)).encode() + b"\n" + body


async def _exchange_messages(child: asyncio.subprocess.Process, request: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    # The pipe stays open: the child exits when it closes, that is when this process dies.
    with contextlib.suppress(ConnectionError):
        child.stdin.write(request)
        await child.stdin.drain()
    try:
        return await child.stdout.readline()
    except ValueError:
        raise ToolFailure(f"the answer is larger than {MAX_ANSWER_BYTES} bytes") from None


async def _kill_group(child: asyncio.subprocess.Process) -> None:
    """Kill the child and every process that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        child.stdin.close()
    await asyncio.shield(child.wait())


def _decode_child_answer(answer: bytes, code: int | None) -> Any:
    if not answer:
        ending = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        raise ChildEnded(
            f"the tool's process ended without an answer ({ending}); it may have reached its limit "
            "of memory or processor time"
        )
    message = json.loads(answer)
    if "error" in message:
        raise ToolFailure(message["error"])
    return message["result"]
