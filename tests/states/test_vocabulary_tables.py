"""The tables of facts, effects and events: complete, typed, and printed in the docs as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchart.states.core.fact_rows import FactView
from toolchart.states.core.kinds import DECLARE, attach_declarations
from toolchart.states.errors import SpecError
from toolchart.states.snapshot import Snapshot
from toolchart.states.vocabulary import get_effects, get_events, get_facts

DOCS = Path(__file__).resolve().parents[2] / "docs"
TYPES = {"integer": int, "boolean": bool, "text": str}


@pytest.mark.parametrize("name", list(get_facts()))
def test_a_fact_always_has_a_value_of_its_type(name: str) -> None:
    """Before the first turn already every fact has a plain value: no comparison can fail half way."""
    fact = get_facts()[name]
    value = FactView(Snapshot())[name]
    assert type(value) is TYPES[fact.type]
    assert (value in fact.words) == (fact.type == "text")


def test_every_answer_of_an_effect_is_an_event() -> None:
    """Effects name events that exist, and so do facts."""
    for effect in get_effects().values():
        rows = [get_events()[event] for event in effect.answers]
        assert all(row.is_answer or row.is_external for row in rows)
    for fact in get_facts().values():
        assert all(event in get_events() for event in (*fact.moved_by, *fact.reset_by))


def test_a_declaration_without_a_row_is_refused() -> None:
    """A function that declares effects belongs to a row: one of an unknown kind does not load."""
    rows = tuple(get_effects().values())
    assert attach_declarations(rows, DECLARE) == rows
    with pytest.raises(SpecError, match="effects without a row: sing"):
        attach_declarations(rows, {**DECLARE, "sing": DECLARE["answer"]})


def print_facts() -> str:
    """The table of facts."""
    rows = ["| fact | type | meaning | changes |", "| --- | --- | --- | --- |"]
    for fact in get_facts().values():
        kind = f"text: {', '.join(f'`{word}`' for word in fact.words)}" if fact.words else fact.type
        rows.append(f"| `{fact.name}` | {kind} | {fact.meaning} | {fact.changes} |")
    return "\n".join(rows) + "\n"


def print_effects() -> str:
    """The table of effects."""
    rows = ["| effect | asks the driver to | answered by | form |", "| --- | --- | --- | --- |"]
    for row in get_effects().values():
        answers = ", ".join(f"`{event}`" for event in row.answers) or "nothing"
        forms = ["named in `enter`"] if row.build is not None else []
        forms += ["declared under `effects`"] if row.declare is not None else []
        rows.append(f"| `{row.name}` | {row.meaning} | {answers} | {' or '.join(forms)} |")
    return "\n".join(rows) + "\n"


def print_events() -> str:
    """The table of events that a chart may name."""
    rows = ["| event | what happened | arrives |", "| --- | --- | --- |"]
    for row in get_events().values():
        if row.reduce is not None:
            arrival = "at any time during a turn" if row.is_external else "as the answer to an effect"
            rows.append(f"| `{row.name}` | {row.meaning} | {arrival} |")
    return "\n".join(rows) + "\n"


TABLES = {"facts": "facts.md", "effects": "effects.md", "events": "effects.md"}
"""The page of each table."""


def render_table(name: str) -> str:
    """A table as the code has it."""
    return {"facts": print_facts, "effects": print_effects, "events": print_events}[name]()


def write_table(name: str) -> None:
    """Put a table in place of the one on its page: the lines that follow the same head."""
    path, table = DOCS / TABLES[name], render_table(name)
    head = table.partition("\n")[0]
    before, _, rest = path.read_text("utf-8").partition(head)
    old = head + rest.partition("\n\n")[0]
    path.write_text(before + table.rstrip("\n") + (head + rest)[len(old.rstrip("\n")) :], "utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_the_documented_tables_are_the_tables(name: str) -> None:
    """The docs hold the tables as the code has them; `python tests/states/test_vocabulary_tables.py` writes
    them."""
    page = (DOCS / TABLES[name]).read_text("utf-8")
    assert render_table(name) in page, "run: python tests/states/test_vocabulary_tables.py"


if __name__ == "__main__":
    for table_name in TABLES:
        write_table(table_name)
