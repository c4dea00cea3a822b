"""The limits of a server: named on the command line, and in docs/serve.md, whose table this file generates.

`python tests/app/serve/test_limits.py` writes the table.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from limit_tables import fill_limit_table, write_document

pytest.importorskip("starlette", reason="the server needs the extra `serve`")


from toolchart.app.server.site import Limits, read_limits
from toolchart.states.errors import SpecError

DOC = Path(__file__).parents[3] / "docs" / "serve.md"
FIELDS = msgspec.structs.fields(Limits)


FIXED = {
    "COUNT_S": "how old the number in the navigation may be",
    "GRACE_S": "an option of its own, `--grace`",
    "HURRY_S": "whoever sends a second signal does not want to wait",
    "INLINE_ITERATIONS": "of models that a test declares itself",
    "LAG_EVERY_S": "how often a figure is measured",
    "LARGE_BODY_BYTES": "bodies that are read in a thread; none is refused",
    "MAX_FILE_BYTES": "follows from what a chart may be, which the reader of charts limits",
    "MAX_NAME_CHARACTERS": "what a file may be called",
    "MIN_TOKEN_CHARACTERS": "a shorter token could be guessed",
    "POLL_MS": "advice to clients of MCP",
    "STOPPING_S": "advice to clients of a server that stops",
    "TOKEN_BYTES": "of tokens that are made up",
    "_AT_ONCE": "how readers share the event loop",
    "_INDEX_S": "how long one slice of the search index takes",
    "_LAST_EVENTS_S": "how a stream is cut off",
    "_LOOK_S": "how often a record is looked for that is about to come",
    "_MAX_DIFFERENCES": "values that differ in one row of a comparison, which says that there are more",
    "_MAX_CHARACTERS": "of one value on a page, which says that it goes on",
    "_MAX_QUERY": "of a question in the record of a model's score",
    "_PAGE_SIZE": "records that are read from the store at once",
}
"""Numbers of the server that are no options, each with the reason."""


def list_numbers() -> set[str]:
    """The names of all numbers in the modules of server and studio."""
    numbers = set()
    for room in ("server", "studio"):
        for path in (DOC.parents[1] / "app" / room).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.BinOp):
                    (target,) = node.targets
                    values = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                    if isinstance(target, ast.Name) and any(type(value) in (int, float) for value in values):
                        numbers.add(target.id)
    return numbers


def test_every_number_of_the_server_is_a_limit_or_has_a_reason() -> None:
    """A number in a module of the server is none that an operator could want to change: those are limits."""
    assert list_numbers() == set(FIXED)


def test_the_document_has_every_limit() -> None:
    """docs/serve.md names each limit with its default."""
    text = DOC.read_text()
    assert fill_limit_table(text, Limits) == text


@pytest.mark.parametrize("name", [field.name for field in FIELDS])
def test_each_limit_can_be_changed(name: str) -> None:
    """Each limit takes another value by its name, and leaves the others."""
    assert read_limits([f"{name}=7"]) == msgspec.structs.replace(Limits(), **{name: 7})


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("trns=5", ("there is no limit 'trns'", "did you mean 'turns'?")),
        ("turns", ("a whole number above 0",)),
        ("turns=many", ("a whole number above 0",)),
        ("turns=1.5", ("a whole number above 0",)),
        ("turns=0", ("a whole number above 0",)),
        ("check_s=-1", ("a number above 0",)),
        ("check_s=nan", ("a number above 0",)),
        ("check_s=inf", ("a number above 0",)),
    ],
)
def test_a_wrong_limit_is_refused(word: str, words: tuple[str, ...]) -> None:
    """A name that no limit has is refused with the nearest one, and a value that cannot be its own."""
    with pytest.raises(SpecError) as caught:
        read_limits([word])
    assert all(text in str(caught.value) for text in words)


def test_the_command_refuses_a_misspelt_limit(run_cli: Callable[..., Any]) -> None:
    """`serve --limit` says so before anything listens."""
    result = run_cli("serve", "quickstart", "--limit", "trns=5")
    assert (result.code, "did you mean" in result.err) == (2, True)


if __name__ == "__main__":
    write_document(DOC, Limits)
