"""What a step of the machine costs: out of the table, and through python-statemachine itself.

    python benchmarks/machine.py

For every shipped chart: median microseconds of a reply that asks for a tool, answered by the table
(a hit) and by the library (a miss), and how many answers the table can come to hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from toolchart.specs.charts import load_chart, shipped
from toolchart.states.facts import FactView
from toolchart.states.machine import Machine
from toolchart.states.messages import Reply, ToolCall
from toolchart.states.proofs.check import check
from toolchart.states.snapshot import OpenCall, Snapshot

HITS, MISSES, ROUNDS = 20_000, 40, 5

CALL = ToolCall(id="c", name="echo", arguments={})
CALLING = Snapshot(
    reply=Reply(finish_reason="tool_calls", tool_calls=(CALL,)),
    replies=1,
    iteration=1,
    calls=(OpenCall(call=CALL),),
)


def per_call(work: Callable[[], object], count: int) -> float:
    """Median microseconds of one call over some rounds."""
    spent = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            work()
        spent.append((time.perf_counter() - started) / count * 1e6)
    return median(spent)


def measure(name: str) -> tuple[float, float, int]:
    """A hit and a miss of `replied` in the first state, and the table's size."""
    chart = load_chart(name)
    machine = Machine(chart)
    first = machine.start(FactView(Snapshot())).configuration
    hit = per_call(lambda: machine.advance(first, "replied", FactView(CALLING)), HITS)
    miss = per_call(lambda: machine._learn(first, "replied", FactView(CALLING)), MISSES)
    return hit, miss, check(chart).table_size


def main() -> None:
    """Measure and print."""
    print(f"{'chart':14} {'hit us':>8} {'miss us':>9} {'ratio':>7} {'answers':>8}")
    for name in shipped():
        hit, miss, size = measure(name)
        print(f"{name:14} {hit:8.2f} {miss:9.0f} {miss / hit:7.0f} {size:8}")


if __name__ == "__main__":
    main()
