"""Mutants of shipped charts and of random flows: rows, guards, effects, states and regions changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from random_flows import make_flow

from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.machine import get_machine
from toolchart.states.vocabulary import get_effects, list_chart_events

GUARDS = (
    "iteration > 1",
    "pending_calls > 0",
    "undecided_calls == 0",
    "attempt < 2",
    "tools_sent",
    "replies < 3",
)
SHIPPED_CHARTS = [name for name in list_shipped_charts() if not load_chart(name).effects]


def make_mutant(rng: random.Random) -> dict[str, Any] | None:
    """A shipped chart or a random flow with one to three changes; None where no rule lets it pass."""
    if rng.random() < 0.5:
        document = copy.deepcopy(load_chart(rng.choice(SHIPPED_CHARTS)).document)
    else:
        document = make_flow(rng.randrange(2**32))
    for _ in range(rng.choice([1, 1, 2, 3])):
        rng.choice(CHANGES)(document, rng)
    try:
        get_machine(make_chart(document))
    except SpecError:
        return None
    return document


def _choose_body(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    return rng.choice([body for body in _list_bodies(document) if not body.get("final")])


def _list_bodies(holder: dict[str, Any]) -> list[dict[str, Any]]:
    bodies = list(holder.get("states", {}).values())
    return [*bodies, *(inner for body in bodies for inner in _list_bodies(body))]


def _list_names(document: dict[str, Any]) -> list[str]:
    def collect(holder: dict[str, Any]) -> Iterator[str]:
        for name, body in holder.get("states", {}).items():
            yield name
            yield from collect(body)

    return list(collect(document))


def _drop_row(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        rows.pop(rng.randrange(len(rows)))


def _retarget_row(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        row = rng.choice(rows)
        row.pop("target", None)
        if rng.random() < 0.8:
            row["target"] = rng.choice(_list_names(document))


def _reorder_rows(document: dict[str, Any], rng: random.Random) -> None:
    rng.shuffle(_choose_body(document, rng).get("transitions", []))


def _change_guard(document: dict[str, Any], rng: random.Random) -> None:
    if rows := _choose_body(document, rng).get("transitions"):
        row = rng.choice(rows)
        row.pop("cond", None)
        if rng.random() < 0.6:
            row["cond"] = rng.choice(GUARDS)


def _list_effects(document: dict[str, Any]) -> list[str]:
    """The effects that a change may ask for: declared ones as often as the others."""
    declared = list(document.get("effects", {}))
    return [*list(get_effects()), *declared, *declared]


def _add_effect(document: dict[str, Any], rng: random.Random) -> None:
    body, effect = rng.choice(_list_bodies(document)), rng.choice(_list_effects(document))
    slot = rng.choice(["enter", "enter", "exit", "on"])
    if slot == "on" and body.get("transitions"):
        body = rng.choice(body["transitions"])
    actions = body.get(slot, [])
    body[slot] = [*([actions] if isinstance(actions, str) else actions), effect]


def _replace_effect(document: dict[str, Any], rng: random.Random) -> None:
    rng.choice(_list_bodies(document))["enter"] = rng.choice(_list_effects(document))


def _add_row(document: dict[str, Any], rng: random.Random) -> None:
    row: dict[str, Any] = {"target": rng.choice(_list_names(document))}
    if rng.random() < 0.8:
        row["event"] = rng.choice([*list_chart_events(), "*", "replied.call_model"])
    if rng.random() < 0.7 or "event" not in row:
        row["cond"] = rng.choice(GUARDS)
    if rng.random() < 0.2:
        row["internal"] = True
    rows = _choose_body(document, rng).setdefault("transitions", [])
    rows.insert(rng.randint(0, len(rows)), row)


def _add_state(document: dict[str, Any], rng: random.Random) -> None:
    names = _list_names(document)
    rows = [
        {"event": event, "target": rng.choice(names)} for event in list_chart_events() if rng.random() < 0.7
    ]
    name = f"added{len(names)}"
    document["states"][name] = {"enter": rng.choice(_list_effects(document)), "transitions": rows}
    if rows := _choose_body(document, rng).get("transitions"):
        rng.choice(rows)["target"] = name


def _add_region(document: dict[str, Any], rng: random.Random) -> None:
    """Put all states into one region, with a clock that counts down beside it."""
    names = _list_names(document)
    if any(body.get("parallel") for body in _list_bodies(document)):
        return
    initial = next(
        (n for n, b in document["states"].items() if b.get("initial")), next(iter(document["states"]))
    )
    document["states"][initial]["initial"] = True
    ring = {"event": "elapsed.wait", "target": rng.choice(["rung", *names])}
    clock = {"ticking": {"initial": True, "enter": "wait", "transitions": [ring]}, "rung": {"final": True}}
    regions = {"main": {"states": document["states"]}, "clock": {"states": clock}}
    document["states"] = {"both": {"initial": True, "parallel": True, "states": regions}}


CHANGES = (
    _drop_row,
    _retarget_row,
    _reorder_rows,
    _change_guard,
    _add_effect,
    _replace_effect,
    _add_row,
    _add_state,
    _add_region,
)
