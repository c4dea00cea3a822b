"""The page of approvals: the calls of all conversations that wait for a decision."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.conversations.waiting_calls import MAX_DECIDED_IN, MAX_LOOKED_AT
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.studio.pages.layout import show_page

ROUTES = RouteGroup()


@ROUTES.page("/approvals")
async def show_approvals(request: Request) -> Response:
    """Show the page; its script fills it from `/api/approvals`, and keeps it up to date."""
    limits = {"max_looked_at": MAX_LOOKED_AT, "max_decided_in": MAX_DECIDED_IN}
    return show_page(request, "approvals.html", "/approvals", **limits)
