"""Running a Python tool in a process of its own, which can be killed at any time; see `toolchart.workers`.

However the run ends, everything that the tool started is killed. The child's environment holds the plain
variables and those that the tool names (`environment`), so no key of another host or tool.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING, name_limit
from toolchart.tools.definition import Tool, ToolFailure, ToolRaised, ToolTimeout
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded_async


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
    work = _build_work(tool, arguments)
    try:
        return await run_bounded_async(work, timeout_s=tool.timeout_s)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ToolFailure(f"the arguments cannot be sent to the child process: {error}") from None
    except WorkFailed as failure:
        if failure.kind in ("ToolFailure", "UnusableResult"):
            raise ToolFailure(failure.text) from None
        raise ToolRaised(str(failure)) from None
    except BoundExceeded as error:
        raise _describe_limit(error, tool) from None


def _build_work(tool: Tool, arguments: Mapping[str, Any]) -> Work:
    function = tool.function
    assert function is not None, "checked when the tool was made"
    return Work(
        module=function.__module__,
        function=function.__qualname__,
        file=getattr(sys.modules.get(function.__module__), "__file__", None),
        arguments=tool.run.convert_arguments(arguments),  # type: ignore[attr-defined]
        environment={name: os.environ[name] for name in tool.environment if name in os.environ},
        memory_mb=tool.memory_mb,
        max_answer_bytes=READING.process_bytes,
    )


def _describe_limit(error: BoundExceeded, tool: Tool) -> Exception:
    match error.limit:
        case "time":
            return ToolTimeout()
        case "memory":
            return ToolFailure(f"MemoryError: over {tool.memory_mb} MB")
        case "size":
            problem = f"the answer is larger than {READING.process_bytes} bytes"
            return ToolFailure(f"{problem} {name_limit('process_bytes')}")
    code = error.code
    ending = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return ChildEnded(
        f"the tool's process ended without an answer ({ending}); it may have reached its limit of "
        "memory or processor time"
    )
