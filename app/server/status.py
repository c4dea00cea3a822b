"""`GET /health`: whether the server takes on turns and its log can be read; needs no token."""

from __future__ import annotations

import asyncio
import math

from starlette.requests import Request

from toolchart import __version__
from toolchart.app.server.access.rates import STOPPING_S
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.states.errors import LogUnavailable
from toolchart.states.ports import Store

ROUTES = RouteGroup()

_LOG_S = 5.0
"""Seconds within which the log must answer."""


@ROUTES.endpoint("GET", "/health", None)
async def report_health(request: Request) -> JsonAnswer:
    """Tell whether the server takes on turns and its log can be used (else 503)."""
    site = get_site(request)
    engine = site.engine
    answer = {"status": "ok", "version": __version__, "config_loaded": True}
    names = {"ai_providers": list(engine.spec.llms), "rag_providers": list(engine.spec.rag_services)}
    if site.is_stopping:
        retry = {"Retry-After": str(math.ceil(STOPPING_S))}
        return JsonAnswer({**answer, "status": "stopping", **names}, 503, headers=retry)
    problem = None
    try:
        await asyncio.wait_for(asyncio.to_thread(_look_at_log, engine.store), _LOG_S)
    except TimeoutError:
        problem = f"the log has not answered within {_LOG_S:g} s"
    except LogUnavailable:  # its text has the path of the log, no business of whoever has no token
        problem = "the log cannot be read, or was replaced or deleted while the server had it open"
    if problem is None:
        return JsonAnswer({**answer, **names})
    problem = f"{problem}: see the server's messages"
    return JsonAnswer({**answer, "status": "log unavailable", **names, "problem": problem}, 503)


def _look_at_log(store: Store) -> None:
    """Read something; there need be no such conversation.

    Raises:
        LogUnavailable: the log cannot be read, or its files were replaced.
    """
    store.read_last_line("health")
    store.check_place()
