"""Sanitizes JSON Schemas of OpenAPI documents and MCP servers, so that calls can be checked with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 60


def is_safe_pattern(pattern: str) -> bool:
    """Whether a regular expression certainly matches in a short time.

    It has no repetition inside a repetition, no repeated alternatives and no back reference.

        >>> is_safe_pattern("^[a-z]+-[0-9]{2}$"), is_safe_pattern("^(a+)+$"), is_safe_pattern("(a|aa)*b")
        (True, False, False)

    A pattern of a foreign schema is matched in this process, against text that a model wrote. Python's
    engine cannot be interrupted, so a pattern that may take exponential time is not used.
    """
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    if len(pattern) > 500 or re.search(r"\\[1-9]|\(\?P=|\(\?<?[=!]", pattern):
        return False
    # Time grows with the text's length for one unbounded repetition and with its square for two. A
    # search that is not anchored at the start costs one more factor of the length.
    return not _has_nested_repetition(pattern) and _count_unbounded_repetitions(pattern) <= (
        2 if pattern[:1] == "^" else 1
    )


def _simplify_pattern(pattern: str) -> str:
    """The pattern with each escape and each character class replaced by a plain letter."""
    plain = re.sub(r"\\.", "a", pattern).replace("(?:", "(")
    return re.sub(r"\[\^?\]?[^\]]*\]", "a", plain)


def _has_nested_repetition(pattern: str) -> bool:
    """Whether a group that contains a repetition or alternatives is itself repeated."""
    open_groups: list[bool] = []
    plain_pattern = _simplify_pattern(pattern)
    for position, character in enumerate(plain_pattern):
        if character == "(":
            open_groups.append(False)
        elif character in "*+{|?" and open_groups:
            open_groups[-1] = True
        elif character == ")" and open_groups:
            is_variable = open_groups.pop()
            is_repeated = plain_pattern[position + 1 : position + 2] in ("*", "+", "{")
            if is_variable and is_repeated:
                return True
            if open_groups and (is_variable or is_repeated):
                open_groups[-1] = True
    return False


def _count_unbounded_repetitions(pattern: str) -> int:
    return len(re.findall(r"[*+]|\{\d*,\}", _simplify_pattern(pattern)))


def sanitize_schema(schema: Any, path: str = "", depth: int = 0) -> tuple[Any, tuple[str, ...]]:
    """A copy of the schema that is safe JSON Schema 2020-12, and a description of each change.

    Unsafe patterns and references to other documents are removed. `nullable` and the boolean
    `exclusiveMinimum` of OpenAPI 3.0 are translated.
    """
    changes: list[str] = []
    result = _sanitize_node(schema, path, depth, changes)
    return result, tuple(changes)


def _sanitize_node(schema: Any, path: str, depth: int, changes: list[str]) -> Any:
    if depth > MAX_DEPTH:
        changes.append(f"{path or '(root)'}: nested too deeply, cut")
        return {}
    if not isinstance(schema, Mapping):
        return schema if isinstance(schema, bool) else {}
    result = dict(_iterate_safe_keywords(schema, path, changes))
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(result.get(key), Mapping):
            result[key] = {
                name: _sanitize_node(subschema, f"{path}.{name}".lstrip("."), depth + 1, changes)
                for name, subschema in result[key].items()
            }
    for key in ("items", "additionalProperties", "not", "if", "then", "else", "contains"):
        if isinstance(result.get(key), Mapping):
            result[key] = _sanitize_node(result[key], f"{path}[]", depth + 1, changes)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(result.get(key), list):
            result[key] = [_sanitize_node(subschema, path, depth + 1, changes) for subschema in result[key]]
    return result


def _iterate_safe_keywords(
    schema: Mapping[str, Any], path: str, changes: list[str]
) -> Iterator[tuple[str, Any]]:
    """The keywords of one schema object, removed or rewritten where necessary; not its subschemas."""
    for key, value in schema.items():
        if key == "pattern" and not (isinstance(value, str) and is_safe_pattern(value)):
            changes.append(f"{path or '(root)'}: pattern left out, it could take for ever")
        elif key == "patternProperties" and not all(map(is_safe_pattern, value)):
            changes.append(f"{path or '(root)'}: patternProperties left out")
        elif key == "$ref" and not str(value).startswith("#"):
            changes.append(f"{path or '(root)'}: a reference to another document, cut")
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
