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


@ROUTES.endpoint("GET", "/api/approvals", "read")
async def list_approvals(request: Request) -> Response:
    """List the calls and questions that wait for a person, in all conversations."""
    cache = find_cache(get_site(request), get_access(request), "waiting calls")
    most = get_site(request).limits.approvals_in
    return JsonAnswer(await asyncio.to_thread(approvals.list_waiting, get_log(request), cache, most=most))


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
