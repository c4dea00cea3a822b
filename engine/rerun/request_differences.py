"""What of a model request of a rerun differs from the recorded request in its place."""

from __future__ import annotations

import json
from typing import Any

from toolchart.states.canonical_json import ABSENT, find_json_differences
from toolchart.states.core.encoding import encode
from toolchart.states.messages import Request

_EXCERPT_LENGTH = 90
"""Characters of one side of a difference that are printed."""


def describe_request_differences(recorded: Request, sent: Request) -> list[str]:
    """Every innermost difference, by a JSON pointer into `{model, system, messages, tools, options}`:
    `/system: recorded "Be brief.", sent "Be long."`."""
    differences = find_json_differences(_encode_request(recorded), _encode_request(sent))
    return [_describe_difference(*difference) for difference in differences]


def _encode_request(request: Request) -> dict[str, Any]:
    texts = [message.content or "" for message in request.messages if message.role == "system"]
    return {
        "model": request.model,
        "system": "\n\n".join(texts),
        "messages": [encode(message) for message in request.messages if message.role != "system"],
        "tools": {tool.name: encode(tool) for tool in request.tools},
        "options": dict(request.options),
    }


def _describe_difference(pointer: str, recorded: Any, sent: Any) -> str:
    """One difference; of long values the part around the first character that differs."""
    left, right = (
        repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)
        for value in (recorded, sent)
    )
    pairs = enumerate(zip(left, right, strict=False))
    first_difference = next((index for index, (a, b) in pairs if a != b), 0)
    is_long = max(len(left), len(right)) > _EXCERPT_LENGTH
    start = max(0, first_difference - _EXCERPT_LENGTH // 3) if is_long else 0
    return f"{pointer}: recorded {_cut_excerpt(left, start)}, sent {_cut_excerpt(right, start)}"


def _cut_excerpt(text: str, start: int) -> str:
    end = start + _EXCERPT_LENGTH
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
