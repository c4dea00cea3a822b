"""Prompt templates: fills `{{name}}` and `{{nested.field}}` from variables, in a single pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text, is_whole_number

_SLOT = re.compile(r"\{\{\s*([A-Za-z_][\w-]*(?:\.[\w-]+)*)\s*\}\}")


def render_template(template: str, variables: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Fill a template; return the text and the names that had no value.

    A missing value becomes the empty text. A value that is not text is written as JSON. A value that
    itself contains `{{...}}` is not filled again: text of a user or a document is never a template.
    """
    missing: dict[str, None] = {}

    def fill_slot(match: re.Match[str]) -> str:
        value = look_up_variable(variables, match.group(1))
        if value is None:
            missing[match.group(1)] = None
            return ""
        return value if isinstance(value, str) else encode_canonical_text(value)

    return _SLOT.sub(fill_slot, template), tuple(missing)


def list_template_variables(template: str) -> tuple[str, ...]:
    """List the names that a template uses, each once, in order.

    >>> list_template_variables("{{name}} reads {{ rag_context }}, {{name}}")
    ('name', 'rag_context')
    """
    return tuple(dict.fromkeys(_SLOT.findall(template)))


def look_up_variable(variables: Mapping[str, Any], path: str, missing: Any = None) -> Any:
    """The value at a dotted path; a key that is the whole path has precedence.

    Args:
        missing: returned where there is no such value.
    """
    if path in variables:
        return variables[path]
    current: Any = variables
    for part in path.split("."):
        if isinstance(current, Mapping) and part in current:
            current = current[part]
        elif isinstance(current, (list, tuple)) and is_whole_number(part) and int(part) < len(current):
            current = current[int(part)]
        else:
            return missing
    return current


def find_slot(template: str) -> str | None:
    """The name of the slot, where a template is one slot and nothing else."""
    match = _SLOT.fullmatch(template.strip())
    return match.group(1) if match else None


def fill_template(template: str, read: Callable[[str], Any]) -> str:
    """The text of a template in one pass; a name without a value becomes the empty text.

    Args:
        read: the value of a dotted name, or None.
    """

    def fill_slot(match: re.Match[str]) -> str:
        value = read(match.group(1))
        if value is None:
            return ""
        return value if isinstance(value, str) else encode_canonical_text(value)

    return _SLOT.sub(fill_slot, template) if "{{" in template else template


def fill_value(value: Any, read: Callable[[str], Any]) -> Any:
    """JSON data with each text filled; a text that is one slot becomes the value itself, of whatever type."""
    if isinstance(value, str):
        slot = find_slot(value)
        return read(slot) if slot is not None else fill_template(value, read)
    if isinstance(value, Mapping):
        return {key: fill_value(item, read) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_value(item, read) for item in value]
    return value
