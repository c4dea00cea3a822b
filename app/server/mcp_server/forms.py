"""What a turn waits for, as requests for input (elicitation), and the answers to them.

Source: `ElicitRequestFormParams` and `ElicitResult` of `mcp_types` 2.3: a form is flat, with texts, numbers,
truth values and choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as types

from toolchart.app.cli.terminal.text import escape_controls
from toolchart.app.server.access.tokens import Access
from toolchart.app.server.protocols.waiting import APPROVAL, CLIENT_CALL, WaitingItem, read_wire_id
from toolchart.states.canonical_json import encode_canonical_text

_FLAT_TYPES = ("string", "number", "integer", "boolean")
_FLAT_KEYS = ("type", "title", "description", "enum", "default", "minimum", "maximum", "format")

_DECISION_FORM = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Run it", "description": "Whether the call may run."},
        "reason": {"type": "string", "title": "Reason", "description": "Why it may not run."},
    },
    "required": ["approved"],
}


def build_input_requests(items: Iterable[WaitingItem], access: Access) -> dict[str, Any]:
    """The requests for input, by wire id: what this access may answer, and what a flat form can ask."""
    requests = {}
    for item in items:
        form = _flatten_form(item)
        if form is not None and access.may(item.kind.role):
            params = types.ElicitRequestFormParams(message=_describe_item(item), requested_schema=form)
            requests[item.wire_id] = types.ElicitRequest(params=params)
    return requests


def _flatten_form(item: WaitingItem) -> dict[str, Any] | None:
    """The form as a flat schema; None where it is not flat, or there is none."""
    if item.kind is APPROVAL:
        return _DECISION_FORM
    properties = item.form.get("properties")
    if item.kind is CLIENT_CALL or not isinstance(properties, Mapping):
        return None
    flat = {name: _flatten_field(field) for name, field in properties.items()}
    if any(field is None for field in flat.values()):
        return None
    return {"type": "object", "properties": flat, "required": list(item.form.get("required") or ())}


def _flatten_field(field: Any) -> dict[str, Any] | None:
    if not isinstance(field, Mapping):
        return None
    field = {"type": "string", **field} if "enum" in field else field
    if field.get("type") not in _FLAT_TYPES:
        return None
    return {key: field[key] for key in _FLAT_KEYS if key in field}


def _describe_item(item: WaitingItem) -> str:
    """What a person reads; control characters are visible, since a model may have written it."""
    if item.kind is APPROVAL:
        question = f"May {item.tool} run with {encode_canonical_text(item.arguments)}?"
        return escape_controls("\n".join([question, *item.message.splitlines()[1:]]))
    return escape_controls(item.message)


def read_input_responses(responses: Mapping[str, Any]) -> dict[str, Any]:
    """The answers by wire id. A call that a person declines is rejected; a question stays open then."""
    answers = {}
    for wire_id, response in responses.items():
        item = read_wire_id(wire_id)
        match getattr(response, "action", "cancel"):
            case "accept":
                answers[wire_id] = dict(response.content or {})
            case "decline" if item is not None and item.kind is APPROVAL:
                answers[wire_id] = {"approved": False, "reason": "declined"}
    return answers
