"""The endpoints of approvals over all conversations. Deciding is an endpoint of the conversation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_access, get_log, get_site
from toolchart.engine.reading import approvals
from toolchart.engine.reading.approvals import RowCache

ROUTES = RouteGroup()

WAITING = "waiting calls"
"""The name of the cache of `/api/approvals`."""
COUNT_S = 2.0
"""How old a number of what waits may be: every open page asks for it, and one look at the log serves them."""


@ROUTES.endpoint("GET", "/api/approvals", "read")
async def list_approvals(request: Request) -> Response:
    """List the calls and questions that wait for a person, in all conversations; with `count=true` only say
    how many there are, and in which conversations."""
    cache = find_cache(get_site(request), get_access(request), WAITING)
    is_count = request.query_params.get("count") == "true"
    rows = cache.get_rows(COUNT_S) if is_count else None
    if rows is None:
        most = get_site(request).limits.approvals_in
        page = await asyncio.to_thread(approvals.list_waiting, get_log(request), cache, most=most)
        if not is_count:
            return JsonAnswer(page)
        rows = page["waiting"]
    names = sorted({row["root"] for row in rows if row is not None})
    return JsonAnswer({"count": approvals.count_waiting(rows), "conversations": names})


def get_known_count(site: Site, access: Access) -> int | None:
    """How many calls and questions waited when somebody with the same view last looked, without a look at the
    log; None where nobody has looked yet."""
    rows = find_cache(site, access, WAITING).get_rows()
    return None if rows is None else approvals.count_waiting(rows)


@ROUTES.endpoint("GET", "/api/approvals/decisions", "read")
async def list_decisions(request: Request) -> Response:
    """List what was decided and answered lately, the newest first."""
    cache = find_cache(get_site(request), get_access(request), "decisions")
    rows = await asyncio.to_thread(approvals.list_decisions, get_log(request), cache)
    return JsonAnswer({"decisions": rows})


def find_cache(site: Site, access: Access, name: str) -> RowCache:
    """What the server has read for one of these lists, for whoever asks: a cache keeps the rows of its newest
    list alone."""
    place = "" if access.may("all") else access.name
    cache: RowCache = site.running.setdefault(f"{name} of {place}", RowCache())
    return cache
