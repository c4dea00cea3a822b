"""Whether a JSON Schema leaves room for free text.

Booleans, `null`, enums, constants and numbers with both bounds do not. Lists of such values do not where
`maxItems` is set, objects of such fields where `additionalProperties: false` is. Everything else does: a text
of whatever length or pattern, a number without bounds, an open object, and every value without a schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MAX_DEPTH = 20


def allows_free_text(schema: Any, root: Any = None, depth: int = 0) -> bool:
    """Whether a value that fits may hold free text.

    Args:
        root: the schema that `$ref` refers to; by default `schema` itself.
    """
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema is not False
    if "const" in schema or "enum" in schema:
        return False

    def is_open(part: Any) -> bool:
        return allows_free_text(part, root, depth + 1)

    if "$ref" in schema:
        return is_open(_find_reference(root, schema["$ref"]))
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(map(is_open, schema[key]))
    if isinstance(schema.get("allOf"), list) and not all(map(is_open, schema["allOf"])):
        return False
    types = schema.get("type")
    type_list = types if isinstance(types, list) else [types]
    return any(_type_allows_free_text(name, schema, is_open) for name in type_list)


def _type_allows_free_text(name: Any, schema: Mapping[str, Any], is_open: Any) -> bool:
    match name:
        case "boolean" | "null":
            return False
        case "integer" | "number":
            has_least = "minimum" in schema or "exclusiveMinimum" in schema
            return not (has_least and ("maximum" in schema or "exclusiveMaximum" in schema))
        case "array":
            return "maxItems" not in schema or "prefixItems" in schema or is_open(schema.get("items"))
        case "object":
            is_closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
            return not is_closed or any(map(is_open, (schema.get("properties") or {}).values()))
    return True


def path_allows_free_text(schema: Any, path: Sequence[str]) -> bool:
    """Whether the value at a path of names and indexes may hold free text; false where nothing can be."""
    return _path_is_open(schema, schema, path, 0)


def _path_is_open(schema: Any, root: Any, path: Sequence[str], depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema is not False
    if not path or "const" in schema or "enum" in schema:
        return allows_free_text(schema, root)
    if "$ref" in schema:
        return _path_is_open(_find_reference(root, schema["$ref"]), root, path, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(_path_is_open(part, root, path, depth + 1) for part in schema[key])
    return _path_is_open(_find_inner(schema, path[0]), root, path[1:], depth + 1)


def _find_inner(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of a field or an item; False where there can be none."""
    if schema.get("type") == "array":
        return schema.get("items") if name.isdigit() and "prefixItems" not in schema else None
    properties = schema.get("properties") or {}
    if schema.get("type") != "object" or schema.get("patternProperties"):
        return None
    return properties.get(name, schema.get("additionalProperties"))


def _find_reference(root: Any, reference: Any) -> Any:
    """The part of a schema that a local `$ref` names; None, which allows everything, for any other."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
