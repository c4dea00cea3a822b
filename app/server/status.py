"""`GET /health`: whether the server is there; the only answer about it that needs no token."""

from __future__ import annotations

from starlette.requests import Request

from toolchart import __version__
from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.endpoints import Endpoint, RouteGroup


async def report_health(request: Request) -> JsonAnswer:
    """Say that the server runs."""
    return JsonAnswer({"status": "ok", "version": __version__, "config_loaded": True})


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
