"""Random charts whose cycles are bounded by counters, and large ones of known shapes."""

from __future__ import annotations

import copy
import random
from typing import Any

from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart

Row = dict[str, str]

ENDS: dict[str, Any] = {
    "finished": {"final": True, "enter": "answer"},
    "error": {"final": True, "enter": "answer_with_error"},
}


def declare_model_calls(*names: str) -> dict[str, Any]:
    """Effects `write_NAME` with results `NAME`."""
    return {f"write_{name}": {"call_model": {"as": name, "prompt": "Write."}} for name in names}


# -- known shapes --------------------------------------------------------------------------------


def build_retries(length: int, counters: int, *, goes_back: bool) -> Chart:
    """A chain of states, the first of which retry up to three times, each by a counter of its own.

    Args:
        goes_back: whether the last state leads back to the first one, three times.
    """
    names = [f"d{number}" for number in range(length + 1)]
    states: dict[str, Any] = {}
    for number, name in enumerate(names[:-1]):
        rows: list[Row] = [{"event": "replied", "target": f"in_{names[number + 1]}"}]
        if number < counters:
            rows.append({"event": "failed", "target": f"in_{name}", "cond": f"{name}.failures < 3"})
        rows.append({"event": "failed cancelled", "target": "error"})
        states[f"in_{name}"] = {"initial": number == 0, "enter": f"write_{name}", "transitions": rows}
    last = names[-1]
    back: list[Row] = [{"event": "replied", "target": "in_d0", "cond": f"{last}.count < 4"}]
    states[f"in_{last}"] = {
        "enter": f"write_{last}",
        "transitions": [*(back if goes_back else []), {"event": "replied failed", "target": "finished"}],
    }
    document = {"name": "retries", "states": {**states, **ENDS}, "effects": declare_model_calls(*names)}
    return make_chart(document)


# -- random ones ---------------------------------------------------------------------------------


def make_random_counters(seed: int) -> Chart:
    """A chart of a few states with rows back and forth, whose guards read counters of their results."""
    rng = random.Random(seed)
    names = [f"d{number}" for number in range(rng.randint(2, 5))]
    states: dict[str, Any] = {}
    for number, name in enumerate(names):
        states[f"in_{name}"] = {
            "initial": number == 0,
            "enter": f"write_{name}",
            "transitions": [
                *(row for event in ("replied", "failed") for row in _make_rows(rng, names, number, event)),
                {"event": "cancelled", "target": rng.choice(["error", "in_d0"])},
            ],
        }
    document = {"name": f"random {seed}", "states": {**states, **ENDS}}
    return make_chart({**document, "effects": declare_model_calls(*names)})


def _make_rows(rng: random.Random, names: list[str], number: int, event: str) -> list[Row]:
    """Guarded rows that lead anywhere, then one that leads onwards."""
    rows: list[Row] = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        target = f"in_{rng.choice(names)}"
        rows.append({"event": event, "target": target, "cond": _make_guard(rng, names, number, event)})
    onwards = [f"in_{name}" for name in names[number + 1 : number + 3]]
    rows.append({"event": event, "target": rng.choice([*onwards, "finished"] if onwards else ["finished"])})
    return rows


def _make_guard(rng: random.Random, names: list[str], number: int, event: str) -> str:
    """A guard that mostly bounds what the event counts, and sometimes something else too, or instead."""
    own = f"{names[number]}.{'count' if event == 'replied' else 'failures'}"
    other = f"{rng.choice(names)}.{rng.choice(['count', 'failures', 'attempt'])}"
    limit = rng.choice(["2", "3", "4", "max_attempts"])
    usual = f"{own} {rng.choice(['<', '<='])} {limit}"
    unusual = [
        f"{other} < {limit}",
        f"{own} + {other} < {limit}",
        f"{usual} and {other} < {rng.randint(1, 4)}",
        f"{own} == {rng.randint(1, 3)}",
        f"{own} % 2 == 1 and {usual}",
        f"{usual} or {other} == 1",
        f"{names[number]}.attempt < {limit}",
    ]
    return usual if rng.random() < 0.75 else rng.choice(unusual)


# -- regions -------------------------------------------------------------------------------------


def build_regions(count: int, length: int = 2) -> Chart:
    """Regions of a few states, each with a retry by a counter of its own."""
    regions: dict[str, Any] = {}
    names: list[str] = []
    for region in range(count):
        states: dict[str, Any] = {}
        for number in range(length):
            name = f"d{region}_{number}"
            names.append(name)
            onwards = f"in_d{region}_{number + 1}" if number + 1 < length else f"end_{region}"
            states[f"in_{name}"] = {
                "initial": number == 0,
                "enter": f"write_{name}",
                "transitions": [
                    {"event": f"replied.write_{name}", "target": onwards},
                    {"event": f"failed.write_{name}", "target": f"in_{name}", "cond": f"{name}.failures < 3"},
                    {"event": f"failed.write_{name}", "target": onwards},
                ],
            }
        regions[f"region_{region}"] = {"states": {**states, f"end_{region}": {"final": True}}}
    return make_chart(
        {
            "name": "regions",
            "states": {"together": _build_parallel(regions, "finished"), **ENDS},
            "effects": declare_model_calls(*names),
        }
    )


def _build_parallel(regions: dict[str, Any], target: str) -> dict[str, Any]:
    rows = [{"event": "done.state.together", "target": target}, {"event": "cancelled", "target": "error"}]
    return {"initial": True, "parallel": True, "states": regions, "transitions": rows}


def make_random_regions(seed: int) -> Chart:
    """Two or three regions with counters, with mistakes and with things that couple them."""
    rng = random.Random(seed)
    numbers = range(rng.choice([2, 2, 3]))
    names = [f"d{region}_{number}" for region in numbers for number in range(rng.choice([1, 2, 2]))]
    regions = {
        f"region_{region}": _make_region(rng, region, [n for n in names if n.startswith(f"d{region}")], names)
        for region in numbers
    }
    parallel = _build_parallel(regions, rng.choice(["finished", "judging"]))
    if rng.random() < 0.2:
        parallel["after"] = {"5m": rng.choice(["error", "judging"])}
    if rng.random() < 0.1:
        parallel["transitions"].append({"event": f"failed.write_{rng.choice(names)}", "target": "error"})
    bound = rng.choice(["verdict.count < 3", "verdict.count < 3", f"{rng.choice(names)}.count < 4"])
    judging: list[Row] = [
        {"event": "replied", "target": "together", "cond": bound},
        {"event": "replied failed", "target": "finished"},
    ]
    states = {"together": parallel, "judging": {"enter": "write_verdict", "transitions": judging}, **ENDS}
    effects = declare_model_calls(*names, "verdict")
    return make_chart({"name": f"regions {seed}", "states": states, "effects": effects})


def _make_region(rng: random.Random, region: int, own: list[str], names: list[str]) -> dict[str, Any]:
    """A chain of states with rows back, and now and then a mistake."""
    end = f"end_{region}"
    states: dict[str, Any] = {}
    for number, name in enumerate(own):
        onwards = f"in_{own[number + 1]}" if number + 1 < len(own) else end
        rows: list[Row] = []
        for event in ("replied", "failed"):
            if rng.random() < 0.5:
                field = "count" if event == "replied" else "failures"
                guard = f"{name}.{field} < {rng.choice(['2', '3', 'max_attempts'])}"
                if rng.random() < 0.12:
                    guard = f"{rng.choice(names)}.failures < 2"
                target = f"in_{rng.choice(own[: number + 1])}"
                rows.append({"event": f"{event}.write_{name}", "target": target, "cond": guard})
            if rng.random() < 0.06:
                rows.append({"event": f"{event}.write_{name}", "target": "error"})
            elif rng.random() < 0.95:  # else a gap
                rows.append({"event": f"{event}.write_{name}", "target": onwards})
        if rng.random() < 0.1:
            rows.append({"event": "user_said", "target": f"in_{own[0]}"})
        states[f"in_{name}"] = {"initial": number == 0, "enter": f"write_{name}", "transitions": rows}
    if rng.random() < 0.05:
        states[end] = {}  # nothing ever happens there
    else:
        states[end] = {"final": True}
    return {"states": states}


# -- coupled ones --------------------------------------------------------------------------------


def couple(chart: Chart, guard: str, state: str, row: int) -> Chart:
    """The same chart with another guard on one row of a state."""
    document = copy.deepcopy(chart.document)
    rows = _find_body(document["states"], state)["transitions"]
    rows[row]["cond"] = guard
    return make_chart({**document, "effects": chart.effects}, source="chart.yaml")


def _find_body(states: dict[str, Any], name: str) -> dict[str, Any]:
    bodies = [states, *(body.get("states") or {} for body in states.values())]
    inner = [body.get("states") or {} for region in bodies[1:] for body in region.values()]
    return next(level[name] for level in (*bodies, *inner) if name in level)
