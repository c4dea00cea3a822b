"""The invented harbour that all texts, tools and conversations of the corpus are about."""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]

SYSTEM = "You keep the log book of Marlow Point, a small harbour. Answer in one or two sentences."
QUESTION = "How high is the tide at nine, and is the north lamp lit?"
GREETING = "Is anybody on the quay?"
THOUGHT = "The tide table has the height. The lamp must be asked for by its name – „north“."
ANSWER = "At nine the tide stands at 3.4 m, and the north lamp is lit. ⚓ Schönen Törn!"
WELCOME = "Yes: the keeper, two gulls and Jörg’s dinghy. 🌊\nCome in."

TOOLS: list[JsonObject] = [
    {
        "name": "tide_height",
        "description": "Height of the tide at a full hour, in metres.",
        "parameters": {
            "type": "object",
            "properties": {
                "harbour": {"type": "string", "description": "Name of the harbour."},
                "hour": {"type": "integer", "description": "Hour of the day, 0 to 23."},
            },
            "required": ["harbour", "hour"],
        },
    },
    {
        "name": "lamp_state",
        "description": "Whether a harbour lamp is lit.",
        "parameters": {
            "type": "object",
            "properties": {
                "lamp": {"type": "string", "enum": ["north", "south"]},
                "history": {
                    "type": "object",
                    "description": "Also list earlier nights.",
                    "properties": {"nights": {"type": "array", "items": {"type": "string"}}},
                },
            },
            "required": ["lamp"],
        },
    },
]

ARGUMENTS: list[JsonObject] = [{"harbour": "Marlow Point", "hour": 9}, {"lamp": "north"}]
RESULTS: list[JsonObject] = [{"metres": 3.4, "rising": True}, {"lit": True, "note": "Glühlampe neu, „hell“"}]
NAMES = [tool["name"] for tool in TOOLS]


def encode_compact(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut_text(text: str, size: int = 9) -> list[str]:
    """A text in pieces of this many characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def upper_types(schema: Any) -> Any:
    """A JSON Schema with Gemini's upper-case type names."""
    if isinstance(schema, list):
        return [upper_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.upper() if key == "type" and isinstance(value, str) else upper_types(value)
        for key, value in schema.items()
    }


def expect_reply(
    text: str,
    words: tuple[str, str],
    tokens: tuple[int, int],
    *,
    reasoning: str = "",
    call_ids: tuple[str, ...] = (),
) -> JsonObject:
    """The content that a reader must find in an answer.

    Args:
        words: our finish reason and the host's word.
        tokens: of the prompt and of the reply.
        call_ids: ids of the calls of `NAMES` with `ARGUMENTS`.
    """
    calls = [
        {"id": call_id, "name": name, "arguments": arguments}
        for call_id, name, arguments in zip(call_ids, NAMES, ARGUMENTS, strict=False)
    ]
    return {
        "text": text,
        "reasoning": reasoning,
        "calls": calls,
        "finish_reason": words[0],
        "native_reason": words[1],
        "tokens": [tokens[0], sum(tokens)],
    }


def expect_error(
    kind: str, *, status: int | None, retryable: bool, retry_after_s: float | None = None
) -> JsonObject:
    """The classification that a failed exchange must get."""
    return {"error": kind, "status": status, "retryable": retryable, "retry_after_s": retry_after_s}
