"""Benchmark of `check` where counters and regions multiply.

    python benchmarks/proof_scaling.py

- *retries*: a chain of states whose last one leads back to the first, and a retry counter for each of some
  states. All counters live in one cycle, so their values multiply.
- *regions*: regions of two states with a retry counter each. Their configurations multiply.

For each chart: CPU seconds until it is read from YAML, compiled and checked, the explored states, and the
bound. Before counters and regions were taken one at a time, the same machine gave

    chart                     check s   bound
    retries 6, 6                   2.7   none: too large
    retries 12, 12                 3.8   none: too large
    retries 16, 16                 4.6   none: too large
    retries 50, 50                15.8   none: too large
    retries 200, 50               31     none: too large
    retries 1000, 50                 -   not read: more than 200,000 characters
    regions 5                      4.1   30 model calls
    regions 7                     17.8   none: more than 2,000 states
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from toolchart.states.chart.loading import parse_chart
from toolchart.states.chart.yaml_document import write_yaml
from toolchart.states.machine import get_machine
from toolchart.states.proofs.check import check

Row = dict[str, str]

ENDS: dict[str, Any] = {
    "finished": {"final": True, "enter": "answer"},
    "error": {"final": True, "enter": "answer_with_error"},
}


def build_state(name: str, target: str, counter: str = "", *, is_initial: bool = False) -> dict[str, Any]:
    """A state that asks a model, goes on to another one, and retries by a counter if it has one."""
    retry: list[Row] = [{"event": f"failed.write_{name}", "target": f"in_{name}", "cond": f"{counter} < 3"}]
    return {
        "initial": is_initial,
        "enter": f"write_{name}",
        "transitions": [
            {"event": f"replied.write_{name}", "target": target},
            *(retry if counter else []),
            {"event": f"failed.write_{name}", "target": target},
        ],
    }


def declare(*names: str) -> dict[str, Any]:
    """The effects of these states."""
    return {f"write_{name}": {"call_model": {"as": name, "prompt": "Write."}} for name in names}


def build_retries(length: int, counters: int) -> dict[str, Any]:
    """A chain with a way back from its end, three times at most."""
    names = [f"d{number}" for number in range(length + 1)]
    states: dict[str, Any] = {}
    for number, name in enumerate(names[:-1]):
        counter = f"{name}.failures" if number < counters else ""
        states[f"in_{name}"] = build_state(name, f"in_{names[number + 1]}", counter, is_initial=number == 0)
    last = names[-1]
    states[f"in_{last}"] = build_state(last, "finished")
    back: Row = {"event": f"replied.write_{last}", "target": "in_d0", "cond": f"{last}.count < 4"}
    states[f"in_{last}"]["transitions"].insert(0, back)
    return {"name": f"retries {length}, {counters}", "states": {**states, **ENDS}, "effects": declare(*names)}


def build_regions(count: int) -> dict[str, Any]:
    """Regions of two states that share nothing."""
    regions: dict[str, Any] = {}
    for region in range(count):
        first, second, end = f"d{region}_0", f"d{region}_1", f"end_{region}"
        regions[f"region_{region}"] = {
            "states": {
                f"in_{first}": build_state(first, f"in_{second}", f"{first}.failures", is_initial=True),
                f"in_{second}": build_state(second, end, f"{second}.failures"),
                end: {"final": True},
            }
        }
    rows = [{"event": "done.state.together", "target": "finished"}, {"event": "cancelled", "target": "error"}]
    together = {"initial": True, "parallel": True, "states": regions, "transitions": rows}
    names = [f"d{region}_{number}" for region in range(count) for number in range(2)]
    return {"name": f"regions {count}", "states": {"together": together, **ENDS}, "effects": declare(*names)}


def main() -> None:
    """Measure and print."""
    documents = [
        *(build_retries(*sizes) for sizes in ((6, 6), (12, 12), (16, 16), (50, 50), (200, 50), (1000, 50))),
        *map(build_regions, (3, 5, 7, 10, 50)),
    ]
    print(f"{'chart':18} {'read s':>7} {'compile s':>9} {'check s':>8} {'states':>7}  bound")
    for document in documents:
        text = write_yaml(document, default_flow_style=None, width=100)
        times = [time.process_time()]
        chart = parse_chart(text)
        times.append(time.process_time())
        get_machine(chart)
        times.append(time.process_time())
        report = check(chart)
        times.append(time.process_time())
        read_s, compile_s, check_s = (end - start for start, end in pairwise(times))
        bound = f"{report.worst.model_calls} model calls" if report.worst else "none"
        print(
            f"{chart.name:18} {read_s:7.2f} {compile_s:9.2f} {check_s:8.2f} {report.state_count:7}  {bound}"
            + ("" if report.is_exact else " (a bound)")
        )


if __name__ == "__main__":
    main()
