"""The `response_format` of a handler: where its JSON Schema stands, and whether it is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.states.errors import SpecError

_HINT = "write {type: json_schema, json_schema: {name: city, schema: {type: object, properties: {...}}}}"


def find_format_schema(response_format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON Schema of a `response_format`; None where it has none.

    It stands in `json_schema`, as chat APIs have it, or beside the type, as OpenAI's Responses API has it.
    """
    inner = response_format.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else response_format.get("schema")
    return schema if isinstance(schema, Mapping) else None


def require_schema(schema: Any) -> None:
    """Check that a value is a JSON Schema (2020-12).

    Raises:
        SpecError: it is none; the path is that inside the schema.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        path = ".".join(["schema", *map(str, error.absolute_path)])
        message = f"the schema of the answer is no JSON Schema: {error.message[:200]}"
        raise SpecError(message, path=path, hint=_HINT) from None
