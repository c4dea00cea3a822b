"""The page that shows two conversations side by side."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.cli.commands.reading.show import describe_event
from toolchart.app.server.conversations.copies import find_compared
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_log, get_site
from toolchart.app.studio.pages.layout import show_page
from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.reading.diff import AlignedSteps, compare_conversations
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_MAX_CHARACTERS = 2000


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
    rows = compared.align_rest()
    first = compared.first
    return {
        "left": left,
        "right": right,
        "first": first,
        "first_values": [_shorten(encode_canonical_text(value)) for value in (first.left, first.right)]
        if first
        else [],
        "common": [_describe_side(record) for record in compared.common[:most]],
        "common_count": len(compared.common),
        "rows": [_describe_row(row) for row in rows[:most]],
        "row_count": len(rows),
    }


def _describe_row(row: AlignedSteps) -> dict[str, Any]:
    kind = "equal" if row.is_equal else "changed"
    if row.left is None or row.right is None:
        kind = "only right" if row.left is None else "only left"
    return {"kind": kind, "left": _describe_side(row.left), "right": _describe_side(row.right)}


def _describe_side(record: ReadRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    details = [_shorten(text) for text in describe_event(record.event)]
    return {"seq": record.seq, "event": record.event_type, "target": record.target, "details": details}


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
