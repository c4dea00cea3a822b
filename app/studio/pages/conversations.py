"""The page that lists conversations: a search, choices, what waits and failed first, totals and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
from toolchart.engine.reading.listing import build_query, is_searched
from toolchart.engine.reading.search import WAITING

ROUTES = RouteGroup()

STATUS_NAMES = {
    "approval": "waits for a decision",
    "answer": "waits for an answer",
    "limit": "stopped at a limit",
    "unreadable": "damaged",
}
"""The names of statuses on the page, where they are not the words themselves."""


@ROUTES.page("/conversations")
async def show_conversations(request: Request) -> Response:
    """Show one page of conversations: what waits and what failed first, unless somebody searches."""
    query = reading.parse_list_query(request.query_params, get_site(request).limits.page)
    has_order = bool(request.query_params.get("order")) or is_searched(build_query(query.where))
    order = query.order if has_order else "attention"
    query = replace(query, with_figures=True, with_choices=True, order=order)
    page = await asyncio.to_thread(reading.list_conversations, get_log(request), query)
    values = {name: value for name, value in request.query_params.items() if value}
    next_url = f"/conversations?{urlencode({**values, 'before': page['next']})}" if page["next"] else None
    rows = page["conversations"]
    return show_page(
        request,
        "conversations.html",
        "/conversations",
        rows=rows,
        has_owners=any(row.get("owner") or row.get("author") for row in rows),
        totals=sum_rows(rows),
        query=values,
        order=order,
        choices=list_choices(page["choices"]),
        status_names=STATUS_NAMES,
        notice=page.get("notice", ""),
        is_filtered=any(value for name, value in values.items() if name not in ("before", "order")),
        next_url=next_url,
        show_hit=split_hit,
    )


def list_choices(choices: Mapping[str, Any]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The lists to choose from: name in a query, label, and values with their texts. One with a single value
    is left out, for it chooses nothing."""
    waiting = [("waiting", "waits for a person")] if set(WAITING) & set(choices["statuses"]) else []
    statuses = [*waiting, *((name, STATUS_NAMES.get(name, name)) for name in choices["statuses"])]
    lists = [
        ("status", "any status", statuses),
        *(
            (name, label, [(value, value) for value in choices[key]])
            for name, label, key in (
                ("state", "any state", "states"),
                ("agent", "any agent", "agents"),
                ("model", "any model", "models"),
                ("owner", "any owner", "owners"),
            )
        ),
    ]
    return [(name, label, values) for name, label, values in lists if len(values) > 1]


def split_hit(hit: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """The text of a hit in parts, each with whether it is one of the words."""
    parts, place, text = [], 0, hit["text"]
    for begin, end in hit["marks"]:
        parts += [(False, text[place:begin]), (True, text[begin:end])]
        place = end
    return [*parts, (False, text[place:])]


def sum_rows(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of the rows that can be read; None where none of them has the figure."""
    readable = [row for row in rows if "damaged" not in row]
    sums: dict[str, Any] = {
        "turns": sum(row["turns"] for row in readable),
        "records": sum(row["records"] for row in readable),
        "seconds": sum(row["seconds"] for row in readable),
    }
    for name in ("input", "output", "cost"):
        known = [row["usage"][name] for row in readable if row["usage"].get(name) is not None]
        sums[name] = sum(known) if known else None
    return sums


# -- approvals -----------------------------------------------------------------------------------


@ROUTES.page("/approvals")
async def show_approvals(request: Request) -> Response:
    """Show the page; its script fills it from `/api/approvals`, and keeps it up to date."""
    looked_at = get_site(request).limits.approvals_in
    limits = {"max_looked_at": looked_at, "max_decided_in": MAX_DECIDED_IN}
    return show_page(request, "approvals.html", "/approvals", **limits)
