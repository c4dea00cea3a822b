"""`/mcp`: the MCP server over HTTP, in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import cast

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.states.errors import find_missing_package, format_install

NAME = "mcp"


@asynccontextmanager
async def run_mcp(site: Site) -> AsyncIterator[None]:
    """Run the MCP server of a site as long as the server does."""
    try:
        from toolchart.app.server.mcp_server.connections import run_http
    except ImportError as error:
        if find_missing_package(error) is None:
            raise
        yield
        return
    async with run_http(site) as application:
        site.running[NAME] = application
        try:
            yield
        finally:
            del site.running[NAME]


ROUTES = RouteGroup(run_mcp)


@ROUTES.endpoint("POST", "/mcp", "read", in_openapi=False, takes_key=False)
@ROUTES.endpoint("GET", "/mcp", "read", in_openapi=False, takes_key=False)
@ROUTES.endpoint("DELETE", "/mcp", "read", in_openapi=False, takes_key=False)
async def answer_mcp(request: Request) -> ASGIApp:
    """Hand the request to the MCP server.

    Raises:
        Refusal: 501; the extra is not installed.
    """
    application = cast("ASGIApp | None", get_site(request).running.get(NAME))
    if application is None:
        raise Refusal(501, f"the MCP server needs more packages: {format_install(NAME)}")

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as until_sent:
            request.state.until_sent = until_sent
            await application(scope, receive, send)

    return answer
