"""Schemas that come from elsewhere (OpenAPI documents, MCP servers), made fit to check calls with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_DEPTH = 60


def is_calm(pattern: str) -> bool:
    """Whether a regular expression plainly cannot run away: no repetition inside a repetition, no
    repeated alternatives, no back reference.

        >>> is_calm("^[a-z]+-[0-9]{2}$"), is_calm("^(a+)+$"), is_calm("(a|aa)*b")
        (True, False, False)

    A foreign schema's pattern is matched against what a model writes, in this process; Python's engine
    cannot be interrupted, so a pattern that is not plainly calm is not used.
    """
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    if len(pattern) > 500 or re.search(r"\\[1-9]|\(\?P=|\(\?<?[=!]", pattern):
        return False
    # One open repetition costs a text's length, a second one its square; a search that may begin
    # anywhere costs the length once more.
    return not _repeats_a_group(pattern) and _unbounded(pattern) <= (2 if pattern[:1] == "^" else 1)


def _bare(pattern: str) -> str:
    """The pattern with escapes and character classes as plain letters."""
    plain = re.sub(r"\\.", "a", pattern).replace("(?:", "(")
    return re.sub(r"\[\^?\]?[^\]]*\]", "a", plain)


def _repeats_a_group(pattern: str) -> bool:
    """Whether a group that repeats or chooses inside is itself repeated."""
    open_: list[bool] = []
    bare = _bare(pattern)
    for place, mark in enumerate(bare):
        if mark == "(":
            open_.append(False)
        elif mark in "*+{|?" and open_:
            open_[-1] = True
        elif mark == ")" and open_:
            busy = open_.pop()
            repeated = bare[place + 1 : place + 2] in ("*", "+", "{")
            if busy and repeated:
                return True
            if open_ and (busy or repeated):
                open_[-1] = True
    return False


def _unbounded(pattern: str) -> int:
    return len(re.findall(r"[*+]|\{\d*,\}", _bare(pattern)))


def tamed(schema: Any, place: str = "", depth: int = 0) -> tuple[Any, tuple[str, ...]]:
    """The schema without what could do harm or is not JSON Schema 2020-12, and what was changed.

    Patterns that could run away are left out; OpenAPI 3.0's `nullable` and its boolean
    `exclusiveMinimum` are written as 2020-12 has them; references to other documents are cut.
    """
    changes: list[str] = []
    result = _tamed(schema, place, depth, changes)
    return result, tuple(changes)


def _tamed(schema: Any, place: str, depth: int, changes: list[str]) -> Any:
    if depth > MOST_DEPTH:
        changes.append(f"{place or '(root)'}: nested too deeply, cut")
        return {}
    if not isinstance(schema, Mapping):
        return schema if isinstance(schema, bool) else {}
    result = dict(_kept(schema, place, changes))
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(result.get(key), Mapping):
            result[key] = {
                name: _tamed(one, f"{place}.{name}".lstrip("."), depth + 1, changes)
                for name, one in result[key].items()
            }
    for key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        if isinstance(result.get(key), Mapping):
            result[key] = _tamed(result[key], f"{place}[]", depth + 1, changes)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(result.get(key), list):
            result[key] = [_tamed(one, place, depth + 1, changes) for one in result[key]]
    return result


def _kept(schema: Mapping[str, Any], place: str, changes: list[str]) -> Iterator[tuple[str, Any]]:
    """The schema's own keywords, rewritten where they have to be."""
    for key, value in schema.items():
        if key == "pattern" and not (isinstance(value, str) and is_calm(value)):
            changes.append(f"{place or '(root)'}: pattern left out, it could take for ever")
        elif key == "patternProperties" and not all(map(is_calm, value)):
            changes.append(f"{place or '(root)'}: patternProperties left out")
        elif key == "$ref" and not str(value).startswith("#"):
            changes.append(f"{place or '(root)'}: a reference to another document, cut")
        elif key in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
            bound = schema.get("minimum" if key == "exclusiveMinimum" else "maximum")
            if value and bound is not None:
                yield key, bound
        elif key == "type" and schema.get("nullable") is True and isinstance(value, str):
            yield "type", [value, "null"]
        elif key == "enum" and schema.get("nullable") is True and isinstance(value, list):
            yield "enum", [*value, None] if None not in value else value
        elif key not in (
            "nullable",
            "discriminator",
            "xml",
            "externalDocs",
            "example",
            "$schema",
            "$id",
            "$anchor",
            "$dynamicRef",
            "$dynamicAnchor",
        ):
            yield key, value
