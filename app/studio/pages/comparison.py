"""The page that shows two conversations side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.conversations.copies import find_compared
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_log, get_site
from toolchart.app.studio.pages.layout import show_page
from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.reading.diff import AlignedSteps, ConversationDiff, compare_conversations
from toolchart.engine.reading.steps import StepText, StepWriter
from toolchart.states.canonical_json import ABSENT, encode_canonical_text
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_MAX_CHARACTERS = 1000
_MAX_DIFFERENCES = 12
"""Differences of one pair of steps that are shown; the page says how many there are."""


@ROUTES.page("/conversations/{conversation}/diff")
async def show_comparison(request: Request) -> Response:
    """Show what two conversations have in common, and the rest side by side."""
    left, right = find_compared(request)
    most = get_site(request).limits.compared_rows
    values = await asyncio.to_thread(read_comparison, get_log(request), left, right, most)
    return show_page(request, "comparison.html", "/conversations", **values)


def read_comparison(store: Store, left: str, right: str, most: int) -> dict[str, Any]:
    """What the page shows of two conversations.

    Args:
        most: rows that it shows, of the common ones and of the rest.
    """
    compared = compare_conversations(store, left, right)
    aligned = compared.align_rest()
    sides = ([*compared.common, *compared.left_rest], [*compared.right_common, *compared.right_rest])
    texts = [_write_steps(side) for side in sides]
    origins = compared.origins
    rows = [_describe_row(row, texts, origins) for row in aligned[:most]]
    kinds = [_name_kind(row) for row in aligned]
    return {
        "left": left,
        "right": right,
        "first": compared.first,
        "sentence": _describe_first(compared, texts),
        "figures": [_describe_figures(side) for side in sides],
        "common": [_describe_side(record, texts[0], origins) for record in compared.common[:most]],
        "common_count": len(compared.common),
        "shared_count": compared.shared_count,
        "rows": rows,
        "row_count": len(aligned),
        "counts": {kind: kinds.count(kind) for kind in ("equal", "changed", "only left", "only right")},
    }


def _write_steps(records: Iterable[ReadRecord]) -> dict[bytes, StepText]:
    """The text of each step, by its stored bytes: each record has the hash of the one before it."""
    writer = StepWriter()
    return {record.line: writer.write(record.line) for record in records}


def _describe_figures(records: Sequence[ReadRecord]) -> list[str]:
    """Steps, tokens and cost of a side, with what a fork shares; nothing for what no step says."""
    events = (record.event for record in records)
    usages = [(event.get("reply") or event).get("usage") or {} for event in events]
    sums = {name: _sum(usage.get(name) for usage in usages) for name in ("input", "output", "cached", "cost")}
    texts = [f"{len(records):,} step{'' if len(records) == 1 else 's'}"]
    if sums["input"] is not None or sums["output"] is not None:
        cached = f" ({sums['cached']:,} cached)" if sums["cached"] else ""
        texts.append(f"{sums['input'] or 0:,} → {sums['output'] or 0:,} tokens{cached}")
    if sums["cost"] is not None:
        texts.append(f"cost {sums['cost']:.4f}")
    return texts


def _sum(values: Iterable[Any]) -> float | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else None


# -- rows ----------------------------------------------------------------------------------------


def _name_kind(row: AlignedSteps) -> str:
    if row.left is None or row.right is None:
        return "only right" if row.left is None else "only left"
    return "equal" if row.is_equal else "changed"


def _describe_row(
    row: AlignedSteps, texts: Sequence[Mapping[bytes, StepText]], origins: Mapping[str, str]
) -> dict[str, Any]:
    differences = row.list_differences()
    return {
        "kind": _name_kind(row),
        "left": _describe_side(row.left, texts[0], origins),
        "right": _describe_side(row.right, texts[1], origins),
        "differences": [
            {"pointer": pointer or "/", "left": _write_value(left), "right": _write_value(right)}
            for pointer, left, right in differences[:_MAX_DIFFERENCES]
        ],
        "difference_count": len(differences),
    }


def _describe_side(
    record: ReadRecord | None, texts: Mapping[bytes, StepText], origins: Mapping[str, str]
) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "conversation": origins[record.hash],
        "seq": record.seq,
        "event": record.event_type,
        "target": record.target,
        "text": texts[record.line],
    }


def _write_value(value: Any) -> str | None:
    """A value as the page shows it; None for one that is not there."""
    if value is ABSENT:
        return None
    text = value if isinstance(value, str) else encode_canonical_text(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."


# -- the first difference, in words --------------------------------------------------------------


def _describe_first(compared: ConversationDiff, texts: Sequence[Mapping[bytes, StepText]]) -> str:
    """What differs first: what A does then, and what B does."""
    count = len(compared.common)
    steps = f"{count:,} step{'' if count == 1 else 's'}"
    if compared.first is None:
        return f"Both are the same in all of their {steps}."
    begin = f"The same for {steps}, then" if count else "They differ from the first step on:"
    left, right = (next(iter(rest), None) for rest in (compared.left_rest, compared.right_rest))
    if left is None or right is None:
        goes_on, record, written = ("B", right, texts[1]) if left is None else ("A", left, texts[0])
        ended = "A" if left is None else "B"
        text = f": {_say(written[record.line])}" if record is not None else ""
        return f"{begin} {ended} ends and {goes_on} goes on{text}."
    pointer = compared.first.pointer
    old, new = texts[0][left.line], texts[1][right.line]
    if pointer.startswith("/target"):
        return f"{begin} A goes to the state {left.target}, and B to {right.target}."
    if pointer.startswith("/event/reply/tool_calls/"):
        return f"{begin} {_compare_calls(pointer, left, right)}."
    if old.name == new.name and old.kind == "tool" and old.detail != new.detail:
        return f"{begin} {old.name} gives A {_shorten(old.detail)}, and B {_shorten(new.detail)}."
    if (old.name, old.detail) != (new.name, new.detail):
        return f"{begin} in A {_say(old)}, and in B {_say(new)}."
    values = [
        _shorten(_write_value(value) or "nothing") for value in (compared.first.left, compared.first.right)
    ]
    return f"{begin} in A {pointer.rpartition('/')[2]} is {values[0]}, and in B {values[1]}."


def _compare_calls(pointer: str, left: ReadRecord, right: ReadRecord) -> str:
    """Two calls of replies: both whole, or the argument in which they differ."""
    index, _, rest = pointer.removeprefix("/event/reply/tool_calls/").partition("/")
    calls = [_find_call(record, index) for record in (left, right)]
    names = [call.get("name", "nothing") for call in calls]
    if names[0] != names[1] or not rest.startswith("arguments/"):
        return f"A calls {names[0]}, and B calls {names[1]}"
    key = rest.split("/")[1].replace("~1", "/").replace("~0", "~")
    values = [call["arguments"].get(key, ABSENT) for call in calls]
    said = [
        f"with {key} {_shorten(_write_value(value) or '')}" if value is not ABSENT else f"without {key}"
        for value in values
    ]
    return f"A calls {names[0]} {said[0]}, and B {said[1]}"


def _find_call(record: ReadRecord, index: str) -> dict[str, Any]:
    reply = record.event.get("reply") or {}
    calls = reply.get("tool_calls") or ()
    return dict(calls[int(index)]) if index.isdecimal() and int(index) < len(calls) else {}


def _say(text: StepText) -> str:
    return _shorten(
        f"{text.name} says {text.detail}"
        if text.kind == "model" and text.detail
        else f"{text.name} {text.detail}".strip()
    )


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
