"""The endpoints of approvals over all conversations. Deciding is an endpoint of the conversation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.engine.reading import approvals
from toolchart.engine.reading.approvals import RowCache

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/api/approvals", "read")
async def list_approvals(request: Request) -> Response:
    """List the calls and questions that wait for a person, in all conversations."""
    site = get_site(request)
    cache = _find_cache(site, "waiting calls")
    return JsonAnswer(await asyncio.to_thread(approvals.list_waiting, site.engine.store, cache))


@ROUTES.endpoint("GET", "/api/approvals/decisions", "read")
async def list_decisions(request: Request) -> Response:
    """List what was decided and answered lately, the newest first."""
    site = get_site(request)
    cache = _find_cache(site, "decisions")
    rows = await asyncio.to_thread(approvals.list_decisions, site.engine.store, cache)
    return JsonAnswer({"decisions": rows})


def _find_cache(site: Site, name: str) -> RowCache:
    """What the server has read for one of these lists."""
    cache: RowCache = site.running.setdefault(name, RowCache())
    return cache
