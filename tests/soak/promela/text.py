"""Names and layout of Promela text."""

from __future__ import annotations

import re
from collections.abc import Iterable

Lines = list[str]
"""Lines of Promela."""


_CODED = re.compile(r"[^A-Za-z0-9_]|^_|_$|_(?=_)|(?<=_)_|_(?=u)")
"""What an identifier codes: other characters, and underscores that could be read as a seam or a code."""


def name_variable(kind: str, *parts: str) -> str:
    """An identifier, `in_prompting` or `fact_draft__count`; different parts give different ones."""
    words = [_encode(word) for part in parts for word in part.split(".")]
    return f"{kind}_{'__'.join(words)}"


def name_word(fact: str, word: str) -> str:
    """The constant of one word of a fact."""
    return f"{name_variable('word', fact)}__{_encode(word)}"


def _encode(text: str) -> str:
    return _CODED.sub(lambda found: f"_u{ord(found.group()):x}_", text)


def indent(lines: Iterable[str], depth: int = 1) -> Lines:
    """The lines, moved to the right."""
    return [f"{'  ' * depth}{line}" for line in lines]


def write_choice(alternatives: Iterable[Lines]) -> Lines:
    """A statement that takes any one of these alternatives."""
    options = [option or ["skip"] for option in alternatives]
    if len(options) == 1:
        return options[0]
    lines = ["if"]
    for option in options:
        lines += [f":: {option[0]}", *indent(option[1:], 2)]
    return [*lines, "fi;"]


def write_if(condition: str, lines: Lines, otherwise: Lines | None = None) -> Lines:
    """Statements under a condition; nothing where it does not hold, or where there are none."""
    if not lines and not otherwise:
        return []
    return [
        "if",
        f":: {condition} ->",
        *indent(lines or ["skip"], 2),
        ":: else ->" if otherwise else ":: else",
        *indent(otherwise or [], 2),
        "fi;",
    ]


def describe(text: str) -> str:
    """A text for a comment."""
    return re.sub(r"[^\w .,:+()=<>-]", "?", text)
