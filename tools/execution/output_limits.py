"""How much of a tool's output the model is shown: a budget per turn, and a cut that says so.

The log keeps every result whole. What the model is shown is cut at a line or a word where it
exceeds its share, with a notice and a handle under which `fetch_result` gives the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolchart.states.canonical_json import canonical_text
from toolchart.tools.definition import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """Characters of tool output that a model is shown."""

    total: int = 6000
    """Of one turn."""
    per_tool: int = 2000
    """Of one call."""
    listing: int = 5000
    """Of one call to a tool whose results are listings."""
    least: int = 300
    """Of one call when the total is used up; enough to say how to go on."""


def allowance(limits: OutputLimits, tool: Tool, spent: int, batch: int = 1) -> int:
    """Characters that one call's result may show.

    It shrinks as the turn's total is used. The calls of one reply share what is left evenly, so
    that the order in which they end makes no difference. A tool's own `max_result_size` goes before
    all.
    """
    if tool.max_result_size is not None:
        return tool.max_result_size
    own = limits.listing if tool.listing else limits.per_tool
    share = max(0, limits.total - spent) // max(1, batch)
    return max(min(own, share), min(own, limits.least))


def result_text(value: Any) -> str:
    """A result as the text that is measured and cut: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else canonical_text(value)


def cut(text: str, size: int) -> str:
    """At most `size` characters, ended at a line, a word or a JSON item where one is near.

    >>> cut("one two three", 8)
    'one two'
    """
    if len(text) <= size:
        return text
    head, after = text[:size], text[size]
    for marks, least in (("\n", 0.5), (" \t\n,", 0.8)):
        place = size if after in marks else max(head.rfind(mark) for mark in marks)
        if place >= size * least:
            return text[: place + (text[place] == ",")].rstrip()
    return head


def shown_result(
    result: Mapping[str, Any], size: int, handle: str, notices: tuple[str, ...] = ()
) -> tuple[str | None, int]:
    """What the model is shown instead of the result's own JSON, and the characters left out.

    None where the result fits and there is nothing to add.
    """
    key = "result" if result.get("success") else "error"
    text = result_text(result.get(key))
    short = cut(text, size)
    left_out = len(text) - len(short)
    if not left_out and not notices:
        return None, 0
    wire = dict(result)
    if left_out:
        wire[key] = short
        wire["truncated"] = _remark(len(short), left_out, handle)
    if notices:
        wire["notice"] = " ".join(notices)
    return canonical_text(wire), left_out


def _remark(kept: int, left_out: int, handle: str) -> str:
    return (
        f"{left_out} of {kept + left_out} characters were left out; "
        f'fetch_result with handle "{handle}" and offset {kept} gives more'
    )
