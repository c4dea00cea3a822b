"""Map each provider's finish words (`stop`, `MAX_TOKENS`, `tool_use`, ...) to our finish reasons.

There is one table per provider. Words alone do not decide: a reply with tool calls has the reason
`tool_calls` whatever its word is, unless it was cut or filtered. The reply keeps the word itself as
`native_reason`.

Source: the SDKs' own type lists at openai 3.52.0 (`chat_completion.py`), google-genai 3.4.0
(`types.FinishReason`) and the Ollama server's `llm/server.go` of August 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolchart.states.messages import FinishReason

FinishWords = Mapping[str, FinishReason]
"""A provider's finish words and their meaning."""

OPENAI: FinishWords = MappingProxyType(
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
"""OpenAI chat completions and compatible hosts (some send `end_turn`, `eos` or `tool_use`)."""

OLLAMA: FinishWords = MappingProxyType(
    {"stop": "stop", "length": "length", "load": "paused", "unload": "paused"}
)

GEMINI: FinishWords = MappingProxyType(
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

ANTHROPIC: FinishWords = MappingProxyType(
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

_OVERRIDING_REASONS: tuple[FinishReason, ...] = (
    "error",
    "malformed_call",
    "length",
    "content_filter",
)
"""Reasons that hold even for a reply with calls: its calls may be incomplete and must not run."""


def resolve_finish_reason(
    word: str | None, finish_words: FinishWords, *, call_count: int, is_refusal: bool = False
) -> FinishReason:
    """Our finish reason for a provider's finish word.

    Precedence: error, malformed_call, length, content_filter, calls present, then the word itself. A word
    that means `tool_calls` in a reply without calls gives `unknown`.

    Args:
        word: the provider's word; None if it sent none.
        finish_words: the provider's table.
        call_count: number of tool calls in the reply.
        is_refusal: whether the model refused to answer.
    """
    reason: FinishReason = finish_words.get(word, "unknown") if word is not None else "unknown"
    if reason in _OVERRIDING_REASONS:
        return reason
    if is_refusal:
        return "content_filter"
    if call_count:
        return "tool_calls"
    return "unknown" if reason == "tool_calls" else reason
