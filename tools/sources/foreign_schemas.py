"""Sanitizes JSON Schemas of OpenAPI documents and MCP servers, so that calls can be checked with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING, name_limit
from toolchart.tools.schemas.checks import find_local_reference
from toolchart.tools.schemas.examination import count_nodes
from toolchart.workers.patterns import get_pattern

MAX_DEPTH = 60


def is_usable_pattern(pattern: Any) -> bool:
    """Whether a pattern can be matched: in linear time, or else in a worker with a time limit."""
    try:
        return isinstance(pattern, str) and bool(get_pattern(pattern))
    except ValueError:
        return False


def sanitize_schema(schema: Any, path: str = "", depth: int = 0) -> tuple[Any, tuple[str, ...]]:
    """A copy of the schema that is safe JSON Schema 2020-12, and a description of each change.

    What is no pattern, and references to other documents or to nothing, are removed. `nullable` and the
    boolean `exclusiveMinimum` of OpenAPI 3.0 are translated.

    Raises:
        SpecError: it has more than `schema_nodes` nodes.
    """
    _check_nodes(count_nodes(schema))
    changes: list[str] = []
    result = _sanitize_node(schema, path, depth, changes)
    _cut_missing_references(result, result, changes)
    return result, tuple(changes)


def _check_nodes(count: int) -> None:
    if count > READING.schema_nodes:
        problem = f"its schema has more than {READING.schema_nodes} parts"
        raise SpecError(f"{problem} {name_limit('schema_nodes')}")


def _cut_missing_references(node: Any, root: Any, changes: list[str]) -> None:
    """Remove references to nothing, in place, so that no call fails because of one."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and not isinstance(find_local_reference(root, target), (dict, bool)):
            del node["$ref"]
            changes.append(f"{target}: a reference to nothing, cut")
        for part in node.values():
            _cut_missing_references(part, root, changes)
    elif isinstance(node, list):
        for part in node:
            _cut_missing_references(part, root, changes)


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
        if key == "pattern" and not is_usable_pattern(value):
            changes.append(f"{path or '(root)'}: pattern left out, it is none")
        elif key == "patternProperties" and not all(map(is_usable_pattern, value)):
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


# -- components of an OpenAPI document -------------------------------------------------------------

_COMPONENT = "#/components/schemas/"


def add_definitions(document: Mapping[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with exactly those components that it refers to as its own `$defs`."""
    components = (document.get("components") or {}).get("schemas") or {}
    pending_names, definitions = _find_component_names(schema), {}
    size = 0
    while pending_names:
        name = pending_names.pop()
        if name not in definitions and name in components:
            size += count_nodes(components[name])
            _check_nodes(size)
            definitions[name] = _rewrite_references(components[name])
            pending_names |= _find_component_names(components[name])
    rewritten: dict[str, Any] = _rewrite_references(schema)
    return {**rewritten, "$defs": definitions} if definitions else rewritten


def _find_component_names(value: Any) -> set[str]:
    """Names of the components that a schema refers to."""
    if isinstance(value, list):
        return {name for item in value for name in _find_component_names(item)}
    if not isinstance(value, Mapping):
        return set()
    target = value.get("$ref")
    own_names = {str(target).removeprefix(_COMPONENT)} if _is_component(target) else set()
    return own_names | {name for item in value.values() for name in _find_component_names(item)}


def _is_component(target: Any) -> bool:
    return isinstance(target, str) and target.startswith(_COMPONENT)


def _rewrite_references(value: Any) -> Any:
    if isinstance(value, list):
        return [_rewrite_references(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: f"#/$defs/{str(item).removeprefix(_COMPONENT)}"
        if key == "$ref" and _is_component(item)
        else _rewrite_references(item)
        for key, item in value.items()
    }
