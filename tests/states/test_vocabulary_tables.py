"""The tables of facts, effects and events: complete, typed, and printed in the docs as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.states.core.fact_rows import FactView
from toolchart.states.facts import FACTS
from toolchart.states.snapshot import Snapshot
from toolchart.states.vocabulary import EFFECTS, EVENTS

DOCS = Path(__file__).resolve().parents[2] / "docs"
TYPES = {"integer": int, "boolean": bool, "text": str}


@pytest.mark.parametrize("name", FACTS.names())
def test_a_fact_always_has_a_value_of_its_type(name: str) -> None:
    """Before the first turn already every fact has a plain value: no comparison can fail half way."""
    fact = FACTS.find(name)
    value = FactView(Snapshot())[name]
    assert type(value) is TYPES[fact.type]
    assert (value in fact.words) == (fact.type == "text")


def print_facts() -> str:
    """The table of facts."""
    rows = ["| fact | type | meaning | changes |", "| --- | --- | --- | --- |"]
    for fact in FACTS.builtin_rows:
        kind = f"text: {', '.join(f'`{word}`' for word in fact.words)}" if fact.words else fact.type
        rows.append(f"| `{fact.name}` | {kind} | {fact.meaning} | {fact.changes} |")
    return "\n".join(rows) + "\n"


def print_effects() -> str:
    """The table of effects."""
    rows = ["| effect | asks the driver to | answered by | form |", "| --- | --- | --- | --- |"]
    for row in EFFECTS.builtin_rows:
        answers = ", ".join(f"`{event}`" for event in row.answers) or "nothing"
        forms = ["named in `enter`"] if row.build is not None else []
        forms += ["declared under `effects`"] if row.declare is not None else []
        rows.append(f"| `{row.name}` | {row.meaning} | {answers} | {' or '.join(forms)} |")
    return "\n".join(rows) + "\n"


def print_events() -> str:
    """The table of events that a chart may name."""
    rows = ["| event | what happened | arrives |", "| --- | --- | --- |"]
    for row in EVENTS.builtin_rows:
        if row.reduce is not None:
            arrival = "at any time during a turn" if row.is_external else "as the answer to an effect"
            rows.append(f"| `{row.name}` | {row.meaning} | {arrival} |")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("print_table", "page"),
    [(print_facts, "facts.md"), (print_effects, "effects.md"), (print_events, "effects.md")],
    ids=["facts", "effects", "events"],
)
def test_the_documented_tables_are_the_tables(print_table: object, page: str) -> None:
    """The docs hold the tables as the code has them; the functions above print them anew."""
    assert callable(print_table)
    assert print_table() in (DOCS / page).read_text("utf-8")
