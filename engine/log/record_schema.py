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

from toolchart.engine.log.record import FORMAT, RecordedAsk, RecordedEnd, RecordLine, TakenRow
from toolchart.states import events, messages
from toolchart.states.snapshot import TurnError
from toolchart.states.vocabulary import get_events

_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}

_COUNT = {"type": "integer", "minimum": 0}

_PARTS = {kind.__name__: kind for kind in (RecordLine, RecordedAsk, RecordedEnd, TakenRow, TurnError)}


def build_record_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of one record of a log."""
    event_types = [row.type for row in get_events().values()]
    kinds: list[Any] = [RecordLine, *event_types]
    references, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    parts_by_name = {**_PARTS, **{event_type.__name__: event_type for event_type in event_types}}
    parts = {name: _describe(name, schema, parts_by_name) for name, schema in components.items()}
    record = parts.pop(RecordLine.__name__)
    properties = record["properties"]
    properties["event"] = {"oneOf": list(references[1:])}
    for name in ("seq", "turn", "iteration"):
        properties[name].update(_COUNT)
    for name in ("prev", "hash", "checkpoint"):
        properties[name].update(_HASH)
        properties[name].pop("default", None)
    properties["at"]["format"] = "date-time"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Toolchart log record, format {FORMAT}",
        "description": "One step: the event, the transition with its guards, and what was asked for.",
        "type": "object",
        "properties": properties,
        "required": record["required"],
        "additionalProperties": False,
        "$defs": parts,
    }


def _describe(name: str, schema: dict[str, Any], parts_by_name: dict[str, type]) -> dict[str, Any]:
    """The schema of one value as logged, with descriptions; an event's `at` is in the record."""
    kind = parts_by_name.get(name) or getattr(events, name, None) or getattr(messages, name, None)
    if kind is None:
        return schema
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
