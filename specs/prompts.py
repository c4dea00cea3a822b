"""Prompts: `{{name}}` and `{{nested.field}}` filled from variables, in one pass and never twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolchart.states.canonical_json import canonical_text

_SLOT = re.compile(r"\{\{\s*([A-Za-z_][\w-]*(?:\.[\w-]+)*)\s*\}\}")


def render(template: str, variables: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The text, and the names that had no value.

    What is missing substitutes as empty. A value that is not text appears as JSON. A value that
    itself contains `{{...}}` stays as it is: what a user or a document says is never a template.
    """
    missing: dict[str, None] = {}

    def value(match: re.Match[str]) -> str:
        found = look_up(variables, match.group(1))
        if found is None:
            missing[match.group(1)] = None
            return ""
        return found if isinstance(found, str) else canonical_text(found)

    return _SLOT.sub(value, template), tuple(missing)


def slots(template: str) -> tuple[str, ...]:
    """The names that a template asks for, each once, in order.

    >>> slots("{{name}} reads {{ rag_context }}, {{name}}")
    ('name', 'rag_context')
    """
    return tuple(dict.fromkeys(_SLOT.findall(template)))


def look_up(variables: Mapping[str, Any], path: str) -> Any:
    """The value of a dotted path, or None; a key that contains the dots itself goes first."""
    if path in variables:
        return variables[path]
    value: Any = variables
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, (list, tuple)) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
