"""Derives our finish reason from a host's finish word and the reply's content, alike for all hosts.

Each host has its own table, `FINISH_WORDS` in the `wire.py` of its folder. Words alone do not decide: a
reply with tool calls has the reason `tool_calls` whatever its word is, unless it was cut or filtered. The
reply keeps the word itself as `native_reason`.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolchart.states.messages import FinishReason

FinishWords = Mapping[str, FinishReason]
"""A host's finish words and their meaning."""

_OVERRIDING_REASONS: tuple[FinishReason, ...] = ("error", "malformed_call", "length", "content_filter")
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
