"""The page that lists conversations, with filters, totals and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.conversations import reading
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_log, get_site
from toolchart.app.studio.pages.layout import show_page
from toolchart.engine.reading.approvals import MAX_DECIDED_IN

ROUTES = RouteGroup()

FILTERS = (
    ("text", "Text"),
    ("state", "State"),
    ("tool", "Tool"),
    ("model", "Model"),
    ("owner", "Owner"),
    ("since", "Since"),
    ("until", "Until"),
)


@ROUTES.page("/conversations")
async def show_conversations(request: Request) -> Response:
    """Show one page of conversations, the newest first."""
    query = replace(
        reading.parse_list_query(request.query_params, get_site(request).limits.page), with_figures=True
    )
    page = await asyncio.to_thread(reading.list_conversations, get_log(request), query)
    values = {name: value for name, value in request.query_params.items() if value}
    next_url = f"/conversations?{urlencode({**values, 'before': page['next']})}" if page["next"] else None
    return show_page(
        request,
        "conversations.html",
        "/conversations",
        rows=page["conversations"],
        has_owners=any(row.get("owner") or row.get("author") for row in page["conversations"]),
        totals=sum_rows(page["conversations"]),
        query=values,
        filters=FILTERS,
        is_filtered=any(values.get(name) for name, _ in FILTERS),
        next_url=next_url,
    )


def sum_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of the rows that can be read."""
    readable = [row for row in rows if "damaged" not in row]
    usages = [row["usage"] for row in readable]
    return {
        "turns": sum(row["turns"] for row in readable),
        "records": sum(row["records"] for row in readable),
        "seconds": sum(row["seconds"] for row in readable),
        "input": sum(usage.get("input") or 0 for usage in usages),
        "output": sum(usage.get("output") or 0 for usage in usages),
        "cost": sum(usage.get("cost") or 0 for usage in usages),
    }


# -- approvals -----------------------------------------------------------------------------------


@ROUTES.page("/approvals")
async def show_approvals(request: Request) -> Response:
    """Show the page; its script fills it from `/api/approvals`, and keeps it up to date."""
    looked_at = get_site(request).limits.approvals_in
    limits = {"max_looked_at": looked_at, "max_decided_in": MAX_DECIDED_IN}
    return show_page(request, "approvals.html", "/approvals", **limits)
