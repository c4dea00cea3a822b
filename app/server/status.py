"""`GET /health`: whether the server is there; the only answer about it that needs no token."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from toolchart import __version__
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site
from toolchart.states.errors import LogUnavailable
from toolchart.states.ports import WatchedStore


async def report_health(request: Request) -> JsonAnswer:
    """Say that the server runs; 503 where it has noticed that its log was replaced."""
    engine = get_site(request).engine
    spec, store = engine.spec, engine.store
    answer = {"status": "ok", "version": __version__, "config_loaded": True}
    counts = {"ai_providers": len(spec.llms), "rag_providers": len(spec.rag_services)}
    if isinstance(store, WatchedStore):
        try:
            await asyncio.to_thread(store.check_place)
        except LogUnavailable:  # the path of the log is no business of whoever has no token
            problem = (
                "the log was replaced or deleted while the server had it open: see the server's messages"
            )
            return JsonAnswer({**answer, "status": "log unavailable", **counts, "problem": problem}, 503)
    return JsonAnswer({**answer, **counts})


ROUTES = RouteGroup(
    name="status",
    endpoints=(
        Endpoint(
            method="GET",
            path="/health",
            role=None,
            answer=report_health,
            summary="Tell whether the server runs.",
        ),
    ),
)
