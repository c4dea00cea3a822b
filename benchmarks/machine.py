"""Benchmark of the machine: a step from its table of answers, and one computed by python-statemachine.

    python benchmarks/machine.py

For every shipped chart: median microseconds of a step on a reply with a tool call, from the table (hit) and
computed by the library (miss), and the number of answers that the table can hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.core.fact_rows import FactView
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, ToolCall
from toolchart.states.proofs.check import check
from toolchart.states.snapshot import OpenCall, OpenCalls, Snapshot

CACHED_CALLS, COMPUTED_CALLS, ROUNDS = 20_000, 40, 5

CALL = ToolCall(id="c", name="echo", arguments={})
CALLING = Snapshot(
    reply=Reply(finish_reason="tool_calls", tool_calls=(CALL,)),
    replies=1,
    iteration=1,
    calls=OpenCalls([OpenCall(call=CALL)]),
)


def measure_call_us(work: Callable[[], object], count: int) -> float:
    """Measure the median microseconds of one call over several rounds."""
    elapsed_s = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        for _ in range(count):
            work()
        elapsed_s.append((time.perf_counter() - start_s) / count * 1e6)
    return median(elapsed_s)


def measure_chart(name: str) -> tuple[float, float, int]:
    """Measure a hit and a miss of `replied` in the initial state, and the size of the table."""
    chart = load_chart(name)
    machine = Machine(chart)
    first = machine.start(FactView(Snapshot())).configuration
    cached_us = measure_call_us(lambda: machine.advance(first, "replied", FactView(CALLING)), CACHED_CALLS)
    computed_us = measure_call_us(
        lambda: machine._learn_answer(first, "replied", FactView(CALLING)), COMPUTED_CALLS
    )
    return cached_us, computed_us, check(chart).table_size


def main() -> None:
    """Measure and print."""
    print(f"{'chart':14} {'hit us':>8} {'miss us':>9} {'ratio':>7} {'answers':>8}")
    for name in list_shipped_charts():
        cached_us, computed_us, size = measure_chart(name)
        print(f"{name:14} {cached_us:8.2f} {computed_us:9.0f} {computed_us / cached_us:7.0f} {size:8}")


if __name__ == "__main__":
    main()
