"""The rows of `tests/providers/failure_corpus.yaml`, and the answers that they stand for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from host_answers import STREAMED_BODIES, encode_frames
from web import WebAnswer

ROWS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "providers" / "failure_corpus.yaml").read_text("utf-8")
)

# Where a body stands: with a status, asked for whole or streamed; or inside a success: whole, as the first
# piece of a stream, after half an answer, or whole where a stream was asked for.
STATUS_FORMS = ("status", "status streamed")
SUCCESS_FORMS = ("whole", "first", "later", "instead")
DEPTH = 200_000
LAST_PIECES = {"chat": 2, "responses": 2, "gemini": 2, "ollama": 2, "messages": 3, "converse": 3}
"""How many pieces of the streamed answer come before the error."""


def list_forms(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The forms in which a row is sent."""
    return STATUS_FORMS if "status" in row else tuple(row.get("forms", SUCCESS_FORMS))


def build_answer(row: Mapping[str, Any], wire: str, form: str) -> WebAnswer:
    """What the host answers."""
    headers = {"content-type": "application/json", **row.get("headers", {})}
    if form in ("first", "later"):
        pieces = STREAMED_BODIES[wire][: LAST_PIECES[wire] if form == "later" else 0]
        content_type, data = encode_frames(wire, [*pieces, row["body"]])
        return 200, {"content-type": content_type}, data
    text = row["text"] if "text" in row else json.dumps(row["body"])
    text = '{"a":' * DEPTH if text == "DEEP" else text
    return row.get("status", 200), headers, text.encode()
