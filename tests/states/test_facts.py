"""The table of facts: complete, typed, and printed in the docs as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.states.facts import FACTS, FactView
from toolchart.states.snapshot import Snapshot

DOC = Path(__file__).resolve().parents[2] / "docs" / "facts.md"
TYPES = {"integer": int, "boolean": bool, "text": str}


@pytest.mark.parametrize("name", FACTS.names())
def test_a_fact_always_has_a_value_of_its_type(name: str) -> None:
    """Before the first turn already every fact has a plain value: no comparison can fail half way."""
    fact = FACTS.find(name)
    value = FactView(Snapshot())[name]
    assert type(value) is TYPES[fact.type]
    assert (value in fact.words) == (fact.type == "text")


def table() -> str:
    """The documented table."""
    rows = ["| fact | type | meaning | changes |", "| --- | --- | --- | --- |"]
    for fact in FACTS:
        kind = f"text: {', '.join(f'`{word}`' for word in fact.words)}" if fact.words else fact.type
        rows.append(f"| `{fact.name}` | {kind} | {fact.meaning} | {fact.changes} |")
    return "\n".join(rows) + "\n"


def test_the_documented_table_is_the_table() -> None:
    """docs/facts.md holds the table as the code has it; this test's `table()` prints it anew."""
    assert table() in DOC.read_text("utf-8")
