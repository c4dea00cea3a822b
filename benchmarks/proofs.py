"""Benchmark of `check`: the shipped charts, thirty guards with arithmetic, and a chain of 200 states.

    python benchmarks/proofs.py

For every chart: the number of explored states, and the CPU seconds of the first check in this process.
"""

from __future__ import annotations

import time
from typing import Any

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.machine import get_machine
from toolchart.states.proofs.check import check

Row = dict[str, str]

FINISHED: dict[str, Any] = {"final": True, "enter": "answer"}


def build_guards(count: int) -> Chart:
    """A state with this many rows, each with a guard over sums and remainders."""
    rows: list[Row] = [
        {"event": "replied", "target": "finished", "cond": f"iteration * 3 + replies * 2 - attempt % 4 > {n}"}
        for n in range(3 * count, 0, -3)
    ]
    rows += [{"event": "replied failed", "target": "finished"}]
    states = {"asking": {"initial": True, "enter": "call_model", "transitions": rows}, "finished": FINISHED}
    return make_chart({"name": f"{count} guards", "states": states})


def build_nested_guards(count: int) -> Chart:
    """The same, with quotients of sums of remainders."""
    chart = build_guards(count)
    inner = "((iteration * 3 + replies) % 7 + attempt) // 2 + replies * 2"
    document = {**chart.document, "name": f"{count} nested"}
    rows = document["states"]["asking"]["transitions"]
    for row, number in zip(rows[:-1], range(3 * count, 0, -3), strict=True):
        row["cond"] = f"{inner} > {number}"
    return make_chart(document)


def build_chain(count: int) -> Chart:
    """A chain of states, each with a guard of its own."""
    states: dict[str, Any] = {"finished": FINISHED}
    for number in range(count):
        rows: list[Row] = [
            {"event": "replied", "target": f"step_{number + 1}", "cond": f"iteration < {number + 3}"},
            {"event": "replied failed", "target": "finished"},
        ]
        states[f"step_{number}"] = {"initial": number == 0, "enter": "call_model", "transitions": rows}
    states[f"step_{count}"] = {
        "enter": "call_model",
        "transitions": [{"event": "replied failed", "target": "finished"}],
    }
    return make_chart({"name": f"{count} states", "states": states})


def main() -> None:
    """Measure and print."""
    charts = [
        *map(load_chart, list_shipped_charts()),
        build_guards(30),
        build_nested_guards(30),
        build_chain(200),
    ]
    print(f"{'chart':14} {'states':>6} {'seconds':>8}")
    for chart in charts:
        get_machine(chart)
        start_s = time.process_time()
        state_count = check(chart).state_count
        print(f"{chart.name:14} {state_count:6} {time.process_time() - start_s:8.3f}")


if __name__ == "__main__":
    main()
