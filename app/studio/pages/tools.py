"""The page of tools: the test bench, and a card with a form for each tool."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.tools import describe_tool, get_bench
from toolchart.app.studio.pages.layout import show_page

ROUTES = RouteGroup()

EXAMPLES = ("What is 17 * (23 + 4)?", "What time is it in Europe/Prague?", "Make a UUID.", "Echo: hello")
"""The four example questions of the test bench."""


@ROUTES.page("/tools")
async def show_tools(request: Request) -> Response:
    """Show the test bench and the tools."""
    site = get_site(request)
    statuses = await asyncio.to_thread(get_bench(site).list_statuses)
    return show_page(
        request,
        "tools.html",
        "/tools",
        tools=[describe_tool(tool) for tool in site.engine.tools.registry],
        statuses=statuses,
        llms=list(site.engine.spec.llms),
        named_llms={status["modelId"].partition("/")[0] for status in statuses},
        examples=EXAMPLES,
    )
