"""The JSON Schema of log records, generated from the event classes and their docstrings.

The log is written from the same classes, so the schema cannot differ from it. Docstrings of classes and
fields become the descriptions.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from toolchart.engine.log.record import FORMAT, RecordLine
from toolchart.states import events, messages
from toolchart.states.effects import EFFECTS
from toolchart.states.events import EVENTS

_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def build_record_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of one record of a log."""
    kinds: list[Any] = list(EVENTS.values())
    references, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    properties = {**_record_properties(), "event": {"oneOf": list(references)}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Toolchart log record, format {FORMAT}",
        "description": "One step: the event, the transition with its guards, and the effects.",
        "type": "object",
        "properties": {name: properties[name] for name in sorted(RecordLine.__struct_fields__)},
        "required": sorted(RecordLine.__struct_fields__),
        "additionalProperties": False,
        "$defs": {name: _describe(name, schema) for name, schema in components.items()},
    }


def _describe(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of one value as logged, with descriptions; an event's `at` is in the record."""
    kind = getattr(events, name, None) or getattr(messages, name)
    if issubclass(kind, events.Event):
        schema["properties"].pop("at")
    return _add_descriptions(kind, schema)


def _add_descriptions(kind: type, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with descriptions from the class's docstrings; other keys are not allowed."""
    schema["description"] = inspect.cleandoc(kind.__doc__ or "")
    schema["additionalProperties"] = False
    for name, text in _read_field_docs(kind).items():
        if name in schema["properties"]:
            schema["properties"][name]["description"] = text
    return schema


def _read_field_docs(kind: type) -> dict[str, str]:
    """The docstring under each field of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef), "the source of a class"
    docs: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = " ".join(text.split())
    return docs


def _record_properties() -> dict[str, Any]:
    """The schemas of the record's keys, except `event`."""
    count = {"type": "integer", "minimum": 0}
    return {
        "at": {"type": "string", "format": "date-time", "description": "RFC 3339, UTC."},
        "effects": {"type": "array", "items": _effect_schema()},
        "guards": {
            "type": "object",
            "additionalProperties": {"type": "boolean"},
            "description": "The guards that were evaluated, each with its truth.",
        },
        "hash": {**_HASH, "description": "SHA-256 of the record's canonical JSON without this key."},
        "iteration": count,
        "prev": {**_HASH, "description": "Hash of the record before; zeros in record 0."},
        "seq": {**count, "description": "Number in the conversation, from 0."},
        "source": {"type": "string", "description": "State before; empty before the first turn."},
        "target": {"type": "string", "description": "State after."},
        "turn": count,
    }


def _effect_schema() -> dict[str, Any]:
    """The schema of an effect, as `encode_effect` writes it."""
    return {
        "type": "object",
        "properties": {
            "type": {"enum": list(EFFECTS)},
            "request": {
                "type": "string",
                "pattern": "^[0-9a-f]+$",
                "description": "Fingerprint of the request to the model.",
            },
            "calls": {"type": "array", "items": {"type": "string"}, "description": "Ids of calls."},
            "seconds": {"type": "number", "minimum": 0},
            "content": {"type": "string", "description": "An answer that is not the model's own."},
        },
        "required": ["type"],
        "additionalProperties": False,
    }
