"""The `response_format` of a handler: where its JSON Schema stands, and whether it is one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import SpecError

_HINT = "write {type: json_schema, json_schema: {name: city, schema: {type: object, properties: {...}}}}"

_DRAFT = "https://json-schema.org/draft/2020-12/schema"

FORMAT_TYPES = ("text", "json", "json_object", "json_schema")
"""The types of a `response_format` that every host knows, or is asked for in its own way."""


def find_format_type(response_format: Mapping[str, Any]) -> str:
    """The type of a `response_format`: `json_schema` also where only its schema is there."""
    if "type" not in response_format:
        return "json_schema" if find_format_schema(response_format) is not None else ""
    is_schema_itself = response_format["type"] == "object" and "properties" in response_format
    return "json_schema" if is_schema_itself else str(response_format["type"])


def find_format_schema(response_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON Schema of a `response_format`; None where it has none.

    It stands in `json_schema`, as chat APIs have it, or beside the type, as OpenAI's Responses API has it; or
    the whole is the schema of an object.
    """
    inner = response_format.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else response_format.get("schema")
    if schema is None and response_format.get("type") == "object" and "properties" in response_format:
        return response_format
    return schema if isinstance(schema, Mapping) else None


def find_format_problem(response_format: Mapping[str, Any]) -> SpecError | None:
    """What is wrong with a `response_format`; None where it can be asked for and checked."""
    kind, schema = find_format_type(response_format), find_format_schema(response_format)
    if kind not in FORMAT_TYPES:
        nearest = get_close_matches(kind, FORMAT_TYPES, n=1, cutoff=0.7)
        return SpecError(f"unknown type {kind!r}", hint=f"did you mean {nearest[0]!r}?") if nearest else None
    inner = response_format.get("json_schema")
    if isinstance(inner, Mapping) and schema is None and {"properties", "type", "$ref"} & set(inner):
        return SpecError("the schema stands in json_schema itself, where no host reads it", hint=_HINT)
    if kind != "json_schema" or schema is None:
        return None
    try:
        require_schema(schema)
    except SpecError as error:
        return SpecError(f"{error.message} (at {error.path})", hint=error.hint)
    return None


def require_schema(schema: Any) -> None:
    """Check that a value is a JSON Schema (2020-12).

    Raises:
        SpecError: it is none; the path is that inside the schema.
    """
    from jsonschema_rs import meta

    # It takes no time, but does not look at regular expressions. What it finds, `jsonschema` says in words.
    with contextlib.suppress(TypeError, ValueError, RecursionError):  # it is no JSON
        if meta.is_valid({**schema, "$schema": _DRAFT}) and "pattern" not in encode_canonical_text(schema):
            return
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = ".".join(["schema", *map(str, error.absolute_path)])
        message = f"the schema of the answer is no JSON Schema: {error.message[:200]}"
        raise SpecError(message, path=path, hint=_HINT) from None
