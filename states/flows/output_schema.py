"""What the schema of a result must be, before its fields become facts or are joined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.states.flows.parameters import DeclarationProblem
from toolchart.states.flows.results import RESERVED_FACTS


def check_output_schema(schema: Mapping[str, Any] | None) -> None:
    """Refuse a schema that is not one of an object, or that uses the names of counters.

    Args:
        schema: a JSON Schema; None allows any text.

    Raises:
        DeclarationProblem: what is wrong.
    """
    if schema is None:
        return
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), Mapping):
        raise DeclarationProblem(
            "the schema of a result describes an object",
            ("schema",),
            "write {type: object, required: [...], properties: {...}}",
        )
    for name in schema.get("properties") or {}:
        if name in RESERVED_FACTS:
            raise DeclarationProblem(
                f"the field {name!r} has the name of a fact that every result has",
                ("schema", "properties", str(name)),
                f"these are {', '.join(RESERVED_FACTS)}; choose another name",
            )
