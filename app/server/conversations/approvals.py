"""The endpoints of approvals over all conversations. Deciding is an endpoint of the conversation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_access, get_log, get_site
from toolchart.engine.reading import approvals
from toolchart.engine.reading.approvals import RowCache

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", "/api/approvals", "read")
async def list_approvals(request: Request) -> Response:
    """List the calls and questions that wait for a person, in all conversations."""
    cache = _find_cache(request, "waiting calls")
    return JsonAnswer(await asyncio.to_thread(approvals.list_waiting, get_log(request), cache))


@ROUTES.endpoint("GET", "/api/approvals/decisions", "read")
async def list_decisions(request: Request) -> Response:
    """List what was decided and answered lately, the newest first."""
    cache = _find_cache(request, "decisions")
    rows = await asyncio.to_thread(approvals.list_decisions, get_log(request), cache)
    return JsonAnswer({"decisions": rows})


def _find_cache(request: Request, name: str) -> RowCache:
    """What the server has read for one of these lists, for whoever sends the request: a cache keeps the rows
    of its newest list alone."""
    access = get_access(request)
    place = "" if access.may("all") else access.name
    cache: RowCache = get_site(request).running.setdefault(f"{name} of {place}", RowCache())
    return cache
