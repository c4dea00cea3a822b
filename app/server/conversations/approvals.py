"""The endpoints of approvals over all conversations. Deciding is an endpoint of the conversation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.conversations import waiting_calls
from toolchart.app.server.conversations.waiting_calls import RowCache
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import Site, get_site


async def list_approvals(request: Request) -> Response:
    """The calls that wait for a decision."""
    site = get_site(request)
    cache = _find_cache(site, "waiting calls")
    return JsonAnswer(await asyncio.to_thread(waiting_calls.list_waiting_calls, site.engine.store, cache))


async def list_decisions(request: Request) -> Response:
    """What was decided lately."""
    site = get_site(request)
    cache = _find_cache(site, "decisions")
    rows = await asyncio.to_thread(waiting_calls.list_decisions, site.engine.store, cache)
    return JsonAnswer({"decisions": rows})


def _find_cache(site: Site, name: str) -> RowCache:
    """What the server has read for one of these lists."""
    cache: RowCache = site.running.setdefault(name, RowCache())
    return cache


ROUTES = RouteGroup(
    name="approvals",
    endpoints=(
        Endpoint(
            method="GET",
            path="/api/approvals",
            role="read",
            answer=list_approvals,
            summary="List the calls and questions that wait for a person, in all conversations.",
        ),
        Endpoint(
            method="GET",
            path="/api/approvals/decisions",
            role="read",
            answer=list_decisions,
            summary="List what was decided and answered lately, the newest first.",
        ),
    ),
)
