"""Benchmark of a turn of a typed agent: run on a log of its own, beside an agent that is open.

    python benchmarks/agents.py [--rounds 5] [--beside TREE]

The turn has two replies and a call of a tool. The log is in memory, or in SQLite. `open` begins a
conversation with each turn, and `owner` one of an owner; `handle` goes on with one conversation, and
`own handle` with one of an owner. Milliseconds of processor time of a turn; each measurement runs in a
process of its own, and the medians are printed, with their ratios to an agent that is open.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable

import beside

TURNS = 40


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def measure(name: str) -> float:
    """Milliseconds of processor time of a turn: the lower quartile of many."""
    from toolchart import Agent
    from toolchart.testing import ScriptedModel, call_tool

    form, log = name.split(" on ")
    agent = Agent(ScriptedModel(*[call_tool("add", a=1, b=2), "3"] * (TURNS + 5)), tools=[add])
    with tempfile.TemporaryDirectory() as folder:
        address = "memory" if log == "memory" else os.path.join(folder, "log.db")
        if form == "run":
            return _measure_turns(lambda: agent.run("go", log=address))
        with agent.open(log=address) as opened:
            own = opened.conversation("c", owner="ada" if form == "own handle" else None)
            turns: dict[str, Callable[[], object]] = {
                "open": lambda: opened.run("go"),
                "owner": lambda: opened.run("go", owner="ada"),
                "handle": lambda: own.send("go"),
                "own handle": lambda: own.send("go"),
            }
            return _measure_turns(turns[form])


def _measure_turns(turn: Callable[[], object]) -> float:
    costs = []
    for _ in range(TURNS):
        start = time.process_time()
        turn()
        costs.append(time.process_time() - start)
    return sorted(costs)[TURNS // 4] * 1e3


def main() -> None:
    """Measure each form on each log."""
    options = beside.make_parser(__doc__).parse_args()
    if options.run:
        print(measure(options.run))
        return
    logs, forms = ("memory", "sqlite"), ("run", "open", "owner", "handle", "own handle")
    medians = beside.measure_medians(
        __file__, [f"{form} on {log}" for log in logs for form in forms], options
    )
    print()
    for log in logs:
        ratios = [f"{form} {medians[f'{form} on {log}'] / medians[f'open on {log}']:.2f}" for form in forms]
        print(f"{log}, times an agent that is open: {', '.join(ratios)}")


if __name__ == "__main__":
    main()
