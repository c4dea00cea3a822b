"""Seeded changes of charts: each changes one thing, and says what a reader must be told about it."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from random_flows import make_flow

from toolchart.specs.charts import load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.machine import get_machine

Document = dict[str, Any]

GUARDS = ("iteration > 1", "pending_calls > 0", "attempt < 2", "replies < 3")


class SeededChange(msgspec.Struct, frozen=True, kw_only=True):
    """A chart, the same with one change, and what names the change."""

    kind: str
    seed: int
    old: Document
    new: Document
    told: tuple[str, ...]
    """Texts that one line, or two lines that follow each other, of a review must have."""
    renamed: dict[str, str] = {}

    def load(self) -> tuple[Chart, Chart]:
        """Both charts."""
        return make_chart(self.old), make_chart(self.new)


def list_bodies(holder: Document) -> Iterator[tuple[str, Document]]:
    """Every state of a document with its name."""
    for name, body in holder.get("states", {}).items():
        yield name, body
        yield from list_bodies(body)


def _list_rows(document: Document) -> list[tuple[str, list[Document], int]]:
    return [
        (name, body["transitions"], index)
        for name, body in list_bodies(document)
        for index in range(len(body.get("transitions", ())))
    ]


def _choose_row(document: Document, rng: random.Random) -> tuple[str, list[Document], int]:
    return rng.choice(_list_rows(document))


def _name_event(row: Document) -> str:
    """What a reader finds of the event of a row: of a timer its name, drawn as `after 2 h (NAME)`."""
    event = str(row.get("event", "(at once)"))
    return event.removeprefix("elapsed.")


def add_row(document: Document, rng: random.Random) -> tuple[str, ...]:
    """One more row, before another."""
    name, rows, index = _choose_row(document, rng)
    target = rng.choice([other for other, _ in list_bodies(document)])
    guard = f"iteration > {rng.randint(50, 90)}"
    rows.insert(index, {"event": "failed", "target": target, "cond": guard})
    return name, f"+ failed [{guard}] → {target}"


def remove_row(document: Document, rng: random.Random) -> tuple[str, ...]:
    """One row less."""
    name, rows, index = _choose_row(document, rng)
    row = rows.pop(index)
    return name, "- ", _name_event(row)


def change_guard(document: Document, rng: random.Random) -> tuple[str, ...]:
    """Another guard."""
    name, rows, index = _choose_row(document, rng)
    guard = f"{rng.choice(GUARDS)} and iteration < {rng.randint(1, 90)}"
    rows[index].pop("unless", None)
    rows[index]["cond"] = guard
    return name, f"[{guard}]"


def retarget_row(document: Document, rng: random.Random) -> tuple[str, ...]:
    """Another target."""
    name, rows, index = _choose_row(document, rng)
    others = [other for other, _ in list_bodies(document) if other not in str(rows[index].get("target"))]
    target = rng.choice(others)
    rows[index].pop("internal", None)
    rows[index]["target"] = target
    return name, "+ ", _name_event(rows[index]), f"→ {target}"


def swap_rows(document: Document, rng: random.Random) -> tuple[str, ...]:
    """Two neighbours change places."""
    places = [
        (name, rows, index)
        for name, rows, index in _list_rows(document)
        if index and rows[index] != rows[index - 1]
    ]
    name, rows, index = rng.choice(places)
    rows[index - 1], rows[index] = rows[index], rows[index - 1]
    return name, "moved from row"


def change_effects(document: Document, rng: random.Random) -> tuple[str, ...]:
    """A state asks for another effect."""
    places = [(name, body) for name, body in list_bodies(document) if isinstance(body.get("enter"), str)]
    name, body = rng.choice(places)
    old = body["enter"]
    body["enter"] = rng.choice([effect for effect in ("wait", "call_model", "answer") if effect != old])
    return f"~ {name}: ", f"enter: {old}", f"→ {body['enter']}"


def add_state(document: Document, rng: random.Random) -> tuple[str, ...]:
    """One more state, and a row that leads to it."""
    _, rows, index = _choose_row(document, rng)
    added = f"added{rng.randint(1, 99)}"
    holder = document["states"]
    holder[added] = {"final": True, "enter": "answer_with_error"}
    rows.insert(index, {"event": "cancelled", "target": added, "cond": "iteration > 40"})
    return (f"+ {added}: final yes, enter answer_with_error",)


def rename_state(document: Document, rng: random.Random) -> tuple[str, ...]:
    """A state by another name."""
    name = rng.choice([other for other, body in list_bodies(document) if body.get("enter")])
    _rename(document, name, f"{name}_by_another_name")
    return (f"~ {name} is called {name}_by_another_name",)


def _rename(holder: Document, old: str, new: str) -> None:
    states = holder.get("states", {})
    for name in list(states):
        states[new if name == old else name] = body = states.pop(name)
        for rows in (body, *(body.get("history") or {}).values()):
            for row in rows.get("transitions", ()):
                if "target" in row:
                    targets = str(row["target"]).split()
                    row["target"] = " ".join(new if target == old else target for target in targets)
        _rename(body, old, new)


def change_declaration(document: Document, rng: random.Random) -> tuple[str, ...]:
    """A declared effect has another parameter."""
    effects = document["effects"]
    names = [name for name, body in effects.items() if "prompt" in next(iter(body.values()), {})]
    name = rng.choice(names)
    kind = next(iter(effects[name]))
    effects[name][kind]["prompt"] = f"Another prompt {rng.randint(1, 99)}."
    return f"~ {name}: {kind}.prompt: ", effects[name][kind]["prompt"]


def change_exit(document: Document, rng: random.Random) -> tuple[str, ...]:
    """A state asks for an effect when it is left."""
    bodies = [(n, b) for n, b in list_bodies(document) if b.get("enter") and not b.get("final")]
    name, body = rng.choice(bodies)
    body["exit"] = "answer_with_error" if body.get("exit") != "answer_with_error" else "answer"
    return f"~ {name}: ", "exit: (none) →"


KINDS: tuple[Callable[[Document, random.Random], tuple[str, ...]], ...] = (
    add_row,
    remove_row,
    change_guard,
    retarget_row,
    swap_rows,
    change_effects,
    add_state,
    rename_state,
    change_declaration,
    change_exit,
)

_SHIPPED = ("tool_loop", "resilient", "budgeted", "approval")


def make_base(rng: random.Random, *, has_prompts: bool) -> Document:
    """A chart to change: one that ships, or a random flow with declared effects."""
    if not has_prompts and rng.random() < 0.5:
        return copy.deepcopy(load_chart(rng.choice(_SHIPPED)).document)
    return make_flow(rng.randrange(2**32), ("agent", "agents", "handoff"))


def make_changes(count: int, seed: int = 0) -> Iterator[SeededChange]:
    """Changes of all kinds in turn, each of which leaves a chart that loads."""
    rng = random.Random(seed)
    made = tries = 0
    while made < count:
        tries += 1
        assert tries < 100 * count, f"no change of the kind {KINDS[made % len(KINDS)].__name__} loads"
        kind = KINDS[made % len(KINDS)]
        own_seed = rng.randrange(2**32)
        own = random.Random(own_seed)
        old = make_base(own, has_prompts=kind is change_declaration)
        new = copy.deepcopy(old)
        try:
            told = kind(new, own)
            for document in (old, new):
                get_machine(make_chart(document))
        except (SpecError, IndexError):  # a rule refuses it, or the chart has no such place
            continue
        if old == new:
            continue
        made += 1
        yield SeededChange(kind=kind.__name__, seed=own_seed, old=old, new=new, told=told)
