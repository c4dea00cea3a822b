"""Calls of the builtin tools into a bounded worker, with errors for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.tools.definition import ToolFailure

MEMORY_MB = 1024

_SYMBOLIC = "toolchart.tools.builtin.symbolic_numbers"


async def run_in_worker(
    function: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
    processor_s: float | None = None,
    module: str = _SYMBOLIC,
    refusal: str = "no answer within the limits of time and memory",
) -> Any:
    """Await a function of a builtin in a worker whose host has loaded its module.

    Args:
        timeout_s: until the answer; None where the processor time counts.
        processor_s: of the function; None: no limit but `timeout_s`.
        refusal: what the model is told where a limit is reached.

    Raises:
        ToolFailure: the function refused or failed, or a limit was reached.
    """
    from toolchart.workers.pool import STARVED_S, BoundExceeded, Work, WorkFailed, run_bounded_async

    work = Work(
        module=module,
        function=function,
        arguments=arguments,
        preload=(module,),
        processor_s=processor_s,
        memory_mb=MEMORY_MB,
    )
    try:
        return await run_bounded_async(work, timeout_s=timeout_s or STARVED_S)
    except BoundExceeded:
        raise ToolFailure(refusal) from None
    except WorkFailed as failure:
        raise ToolFailure(failure.text if failure.kind == "ToolFailure" else refusal) from None
