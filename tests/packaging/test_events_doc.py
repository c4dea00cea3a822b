"""docs/events.md is correct: every event with its fields, and every error, from the tables and docstrings.

`python tests/packaging/test_events_doc.py` writes the page.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any

from toolchart.states import errors
from toolchart.states.events import Event
from toolchart.states.vocabulary import get_events

DOC = Path(__file__).resolve().parents[2] / "docs" / "events.md"

INTRODUCTION = """\
# Events and errors

Here you look up an event, its fields, or the class of an error. An event says what has happened, such as a
reply of the model (`replied`). Each record of the [log](log.md) holds one. The rows of a
[chart](writing-charts/index.md#rows) name events, but for those that act on the conversation as a whole. A
field with its empty value is left out of the record.

This page is generated: `python tests/packaging/test_events_doc.py` writes it, and the same file tests it.
"""


def print_page() -> str:
    """The page as it should be."""
    events = [print_event(row) for row in get_events().values()]
    found = [
        error
        for _, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.ToolchartError) and error.__module__ == errors.__name__
    ]
    rows = [f"| `{error.__name__}` | {escape(find_summary(error))} |" for error in found]
    head = "## Errors\n\nAll of them are `ToolchartError`.\n\n| error | meaning |\n| --- | --- |"
    return "\n".join((INTRODUCTION, *events, head, *rows, ""))


def print_event(row: Any) -> str:
    """One event: what happened, who may name it, and its fields."""
    meanings = read_field_docs(row.type)
    names = [name for name in row.type.__struct_fields__ if name != "at"]
    fields = [f"| `{name}` | {escape(meanings.get(name, ''))} |" for name in names]
    table = ["| field | meaning |", "| --- | --- |", *fields, ""] if fields else []
    role = "A chart may name it." if row.reduce is not None else "It acts on the conversation as a whole."
    return "\n".join(
        (f"## {row.name}", "", f"{escape(row.meaning[0].upper() + row.meaning[1:])}. {role}", "", *table)
    )


def read_field_docs(kind: type[Event]) -> dict[str, str]:
    """The docstrings below the fields of an event and of its bases, by their names."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("toolchart."):
            (node,) = ast.parse(inspect.getsource(base)).body
            assert isinstance(node, ast.ClassDef)
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def find_summary(error: type[Exception]) -> str:
    """The first sentence of an error's docstring."""
    return " ".join((error.__doc__ or "").split("\n\n")[0].split())


def escape(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def test_the_page_is_that_of_the_tables() -> None:
    """The committed page is the one that the tables give; it names every event and every error."""
    assert DOC.read_text("utf-8") == print_page(), f"write it again: python {Path(__file__).name}"


if __name__ == "__main__":
    DOC.write_text(print_page(), "utf-8")
    sys.stdout.write(f"{DOC.name} written\n")
