"""The four keys of every tool result, and what the model is shown of it."""

from __future__ import annotations

import math
from typing import Any

import orjson

from toolchart.states.canonical_json import clean
from toolchart.states.events import Outcome, ToolFinished
from toolchart.states.messages import ToolCall
from toolchart.tools.execution.json_data import plain
from toolchart.tools.execution.output_limits import shown_result

MOST_CHARACTERS = 1_000_000
"""A result beyond this is refused rather than logged."""


class TooLarge(Exception):
    """A result that is not kept."""


def ended(
    call: ToolCall, name: str, outcome: Outcome, value: Any, ms: float, notes: tuple[str, ...] = ()
) -> ToolFinished:
    """How a call ended. `value` is the result where it succeeded, else the words of the error."""
    good = outcome == "succeeded"
    result = {
        "success": good,
        "result" if good else "error": value,
        "tool_name": name,
        "execution_time_ms": ms,
    }
    return ToolFinished(call_id=call.id, outcome=outcome, result=result, notes=notes)


def trimmed(event: ToolFinished, size: int, notices: tuple[str, ...]) -> ToolFinished:
    """The event with what the model is shown, where that is less, or more, than the result."""
    shown, left_out = shown_result(event.result, size, event.call_id, notices)
    if shown is None:
        return event
    notes = event.notes
    if left_out:
        notes = (*notes, f"cut: {left_out} characters were not shown to the model")
    return ToolFinished(
        call_id=event.call_id, outcome=event.outcome, result=event.result, shown=shown, notes=notes
    )


def as_json(value: Any) -> tuple[Any, int, tuple[str, ...]]:
    """The value as JSON data, about how many characters it takes, and a note where it was changed.

    Raises:
        TooLarge: it has more than a million characters.
    """
    kind = type(value)
    if kind is str:
        changed = value.encode("utf-8", "replace").decode("utf-8") if not value.isascii() else value
        return _sized(changed, len(value), value is changed or value == changed)
    if value is None or kind is bool or (kind is int and -(2**53) <= value <= 2**53):
        return value, 20, ()
    if kind is float and math.isfinite(value):
        return value, 20, ()
    try:
        data = orjson.dumps(value)
        read = orjson.loads(data)
        if read == value:
            return _sized(value, len(data), True)
    except (TypeError, ValueError):
        pass
    turned = clean(plain(value))
    return _sized(turned, len(orjson.dumps(turned)), False)


def _sized(value: Any, size: int, same: bool) -> tuple[Any, int, tuple[str, ...]]:
    if size > MOST_CHARACTERS:
        raise TooLarge(f"the result has {size} characters; at most {MOST_CHARACTERS} are kept")
    return value, size, () if same else ("the result was turned into plain JSON",)
