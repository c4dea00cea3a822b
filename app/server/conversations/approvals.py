"""The endpoints of approvals over all conversations. Deciding is an endpoint of the conversation."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.conversations import waiting_calls
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site


async def list_approvals(request: Request) -> Response:
    """The calls that wait for a decision."""
    store = get_site(request).engine.store
    return JsonAnswer(await asyncio.to_thread(waiting_calls.list_waiting_calls, store))


async def list_decisions(request: Request) -> Response:
    """What was decided lately."""
    store = get_site(request).engine.store
    return JsonAnswer({"decisions": await asyncio.to_thread(waiting_calls.list_decisions, store)})


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
