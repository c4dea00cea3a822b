"""`GET /health`: whether the server is there; the only answer about it that needs no token."""

from __future__ import annotations

from starlette.requests import Request

from toolchart import __version__
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site


async def report_health(request: Request) -> JsonAnswer:
    """Say that the server runs."""
    spec = get_site(request).engine.spec
    answer = {"status": "ok", "version": __version__, "config_loaded": True}
    return JsonAnswer({**answer, "ai_providers": len(spec.llms), "rag_providers": len(spec.rag_services)})


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
