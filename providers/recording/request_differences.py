"""Compares canonical requests: where they differ, as JSON pointers, and how far apart they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from toolchart.states.canonical_json import ABSENT, find_json_differences

_EXCERPT_LENGTH = 90
"""Characters of one side of a difference that are compared and printed."""


class RequestDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One place where the request that was sent differs from the recorded one."""

    pointer: str
    """JSON pointer into the canonical request."""
    recorded_value: Any
    """The recorded value, or `ABSENT`."""
    sent_value: Any
    """The value that was sent, or `ABSENT`."""

    def __str__(self) -> str:
        recorded_text, sent_text = _format_excerpts(self.recorded_value, self.sent_value)
        return f"{self.pointer or '(all)'}: recorded {recorded_text}, sent {sent_text}"


def find_differences(recorded_value: Any, sent_value: Any) -> list[RequestDifference]:
    """Every innermost place where two JSON values differ."""
    return [
        RequestDifference(pointer=pointer, recorded_value=left, sent_value=right)
        for pointer, left, right in find_json_differences(recorded_value, sent_value)
    ]


def measure_distance(differences: Sequence[RequestDifference]) -> float:
    """How far apart two requests with these differences are: 0 where there are none."""
    excerpts = [
        (_to_json(item.recorded_value)[:_EXCERPT_LENGTH], _to_json(item.sent_value)[:_EXCERPT_LENGTH])
        for item in differences
    ]
    unlikeness = (1 - SequenceMatcher(None, *pair).quick_ratio() for pair in excerpts)
    return len(differences) + sum(unlikeness)


def _format_excerpts(recorded_value: Any, sent_value: Any) -> tuple[str, str]:
    """Both values as JSON. Of long ones the part around the first difference."""
    left, right = _to_json(recorded_value), _to_json(sent_value)
    characters = enumerate(zip(left, right, strict=False))
    first_difference = next((n for n, (a, b) in characters if a != b), 0)
    is_long = max(len(left), len(right)) > _EXCERPT_LENGTH
    start = max(0, first_difference - _EXCERPT_LENGTH // 3) if is_long else 0
    return _cut_excerpt(left, start), _cut_excerpt(right, start)


def _to_json(value: Any) -> str:
    return repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)


def _cut_excerpt(text: str, start: int) -> str:
    end = start + _EXCERPT_LENGTH
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
