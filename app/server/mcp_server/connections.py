"""How clients reach the MCP server: over HTTP, or over standard streams of a process of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TextIO, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp

from toolchart.app.server.access.tokens import ROLES, Access
from toolchart.app.server.mcp_server.server import build_mcp_server
from toolchart.app.server.site import Limits, Site
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.telemetry.environment import open_telemetry

OWNER = Access(name="mcp", roles=frozenset(ROLES))
"""Who sends requests over standard input: whoever runs the process, and so may do anything that it may."""


@asynccontextmanager
async def run_http(site: Site) -> AsyncIterator[ASGIApp]:
    """The application that answers requests of MCP, as long as the block runs."""
    server, turns = build_mcp_server(site, _get_access)
    # Host, Origin and the size of bodies are checked by the guard, for all protocols alike.
    manager = StreamableHTTPSessionManager(
        server, stateless=True, max_request_body_size=site.limits.body_bytes
    )
    async with manager.run():
        try:
            yield manager.handle_request
        finally:
            await turns.stop()


def _get_access(context: Any) -> Access:
    """Who sends a request: what the route has found out."""
    return cast("Access", context.request.state.access)


def serve_stdio(
    agent: Mapping[str, Any], *, limits: Limits, log: str | None, durability: str | None, output: TextIO
) -> None:
    """Serve an agent until standard input ends.

    Args:
        agent: what `Engine` takes to run it.
        output: where the protocol goes; nothing else may print there, tools and imported modules included.

    Raises:
        SpecError: the agent cannot be used.
        LogUnavailable: the log cannot be opened.
    """
    with open_telemetry() as telemetry:
        engine = Engine(**agent, log=log, durability=durability, telemetry=telemetry)
        asyncio.run(_serve_stdio(engine, limits, output))


async def _serve_stdio(engine: Engine, limits: Limits, output: TextIO) -> None:
    site = Site(engine, (), limits=limits)
    server, turns = build_mcp_server(site, _get_owner)
    async with engine:
        try:
            async with stdio_server(stdout=anyio.wrap_file(output)) as (read_stream, write_stream):
                await server.run(read_stream, write_stream, server.create_initialization_options())
        finally:
            await turns.stop()
            await site.client_tools.stop(0.0)


def _get_owner(context: Any) -> Access:
    return OWNER
