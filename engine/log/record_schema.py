"""The JSON Schema of a log's record, made from the values themselves.

`record` lines and what reads them agree by construction: the events' dataclasses are what the codec
writes, and their docstrings become the schema's descriptions.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from pydantic import TypeAdapter

from toolchart.engine.log.record import FORMAT, KEYS
from toolchart.states import events, messages
from toolchart.states.effects import EFFECTS
from toolchart.states.events import EVENTS

_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def record_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) that every record of a log fits."""
    parts: dict[str, Any] = {}
    tags = [_event(kind.TYPE, parts) for kind in EVENTS.values()]
    properties = {**_properties(), "event": {"oneOf": tags}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Toolchart log record, format {FORMAT}",
        "description": "One step: what came in, what the machine did with it and why, what it asked for.",
        "type": "object",
        "properties": {name: properties[name] for name in sorted(KEYS)},
        "required": sorted(KEYS),
        "additionalProperties": False,
        "$defs": parts,
    }


def _event(tag: str, parts: dict[str, Any]) -> dict[str, Any]:
    """The schema of an event as the log has it: with its tag, without the time, which the record has."""
    kind: Any = EVENTS[tag]
    schema = TypeAdapter(kind).json_schema(ref_template="#/$defs/{model}")
    for name, inner in schema.pop("$defs", {}).items():
        parts[name] = _described(getattr(events, name, None) or getattr(messages, name), inner)
    schema["properties"].pop("at")
    schema["properties"]["type"] = {"const": tag}
    schema["required"] = ["type", *schema.get("required", [])]
    parts[kind.__name__] = _described(kind, schema)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _described(kind: type, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what the source says of the value and its fields; other keys are refused."""
    schema["description"] = inspect.cleandoc(kind.__doc__ or "")
    schema["additionalProperties"] = False
    for name, words in _field_docs(kind).items():
        if name in schema["properties"]:
            schema["properties"][name]["description"] = words
    return schema


def _field_docs(kind: type) -> dict[str, str]:
    """The text that stands under each field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef), "the source of a class"
    found: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    found[field.target.id] = " ".join(words.split())
    return found


def _properties() -> dict[str, Any]:
    """The record's own keys, but for the event."""
    count = {"type": "integer", "minimum": 0}
    return {
        "at": {"type": "string", "format": "date-time", "description": "RFC 3339, UTC."},
        "effects": {"type": "array", "items": _effect()},
        "guards": {
            "type": "object",
            "additionalProperties": {"type": "boolean"},
            "description": "The guards that were asked, each with its truth.",
        },
        "hash": {
            **_HASH,
            "description": "SHA-256 of the record's canonical JSON without this key.",
        },
        "iteration": count,
        "prev": {**_HASH, "description": "Hash of the record before; zeros in record 0."},
        "seq": {**count, "description": "Number in the conversation, from 0."},
        "source": {"type": "string", "description": "State before; empty before the first turn."},
        "target": {"type": "string", "description": "State after."},
        "turn": count,
    }


def _effect() -> dict[str, Any]:
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
