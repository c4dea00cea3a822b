"""Why a reply ended: each provider's words, and one precedence over all of them.

The content decides first: a reply that carries calls asks for tools whatever word came with it, and a
reply that was cut is never taken for one that asks for them. The provider's word is kept beside.

Source: the SDKs' own type lists at openai 3.52.0 (`chat_completion.py`), google-genai 3.4.0
(`types.FinishReason`) and the Ollama server's `llm/server.go` of August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolchart.states.messages import FinishReason

Table = Mapping[str, FinishReason]

OPENAI: Table = MappingProxyType(
    {
        "stop": "stop",
        "end_turn": "stop",
        "eos": "stop",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "tool_use": "tool_calls",
        "length": "length",
        "max_tokens": "length",
        "content_filter": "content_filter",
        "error": "error",
    }
)
"""OpenAI chat completions and hosts that speak like it (some say `end_turn`, `eos` or `tool_use`)."""

OLLAMA: Table = MappingProxyType(
    {"stop": "stop", "length": "length", "load": "paused", "unload": "paused"}
)

GEMINI: Table = MappingProxyType(
    {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        **dict.fromkeys(
            (
                "SAFETY",
                "RECITATION",
                "LANGUAGE",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "IMAGE_SAFETY",
                "IMAGE_PROHIBITED_CONTENT",
                "IMAGE_RECITATION",
                "MODEL_ARMOR",
                "ESCALATION",
                "PUP_LIMITED_DISABLED",
            ),
            "content_filter",
        ),
        **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"), "malformed_call"),
        **dict.fromkeys(
            (
                "TOO_MANY_TOOL_CALLS",
                "MISSING_THOUGHT_SIGNATURE",
                "MALFORMED_RESPONSE",
                "OTHER",
                "IMAGE_OTHER",
                "NO_IMAGE",
            ),
            "error",
        ),
        "CONTINUATION": "paused",
    }
)

ANTHROPIC: Table = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
        "pause_turn": "paused",
    }
)
"""Source: the Messages interface, `stop_reason` (anthropic 2.11.0, `types/stop_reason.py`)."""

_FIRM: tuple[FinishReason, ...] = ("error", "malformed_call", "length", "content_filter")
"""Reasons that stand even beside calls: what such a reply asks for is not to be trusted."""


def finish_reason(
    word: str | None, table: Table, *, calls: int, refused: bool = False
) -> FinishReason:
    """The normalised reason.

    Precedence: error, malformed_call, length, content_filter, calls present, then the word itself.
    A word that promises calls where there are none says nothing: `unknown`.
    """
    reason: FinishReason = table.get(word, "unknown") if word is not None else "unknown"
    if reason in _FIRM:
        return reason
    if refused:
        return "content_filter"
    if calls:
        return "tool_calls"
    return "unknown" if reason == "tool_calls" else reason
