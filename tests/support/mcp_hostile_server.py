"""A hostile MCP server over standard input and output; its one argument says what it does."""

from __future__ import annotations

import sys
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

WAY = sys.argv[1]


def _nest(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


async def list_tools(context: Any, parameters: Any) -> ListToolsResult:
    """A page of the tools."""
    if WAY == "endless":
        number = int(parameters.cursor) if parameters is not None and parameters.cursor else 0
        return ListToolsResult(tools=[], next_cursor=str(number + 1))
    if WAY == "circle":
        return ListToolsResult(tools=[], next_cursor="again")
    if WAY == "pages":
        number = int(parameters.cursor) if parameters is not None and parameters.cursor else 1
        return ListToolsResult(tools=[], next_cursor=str(number + 1) if number < 3 else None)
    if WAY == "three":
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in "abc"])
    schema = _nest(2_000) if WAY == "deep" else {"type": "object"}
    return ListToolsResult(tools=[Tool(name="work", input_schema=schema)])


async def call_tool(context: Any, parameters: Any) -> CallToolResult:
    """The result of a call."""
    count = 5_000 if WAY == "parts" else 2
    text = "x" * 2**20 if WAY == "large" else "x"
    return CallToolResult(content=[TextContent(type="text", text=text)] * count)


async def serve() -> None:
    """Serve until the input ends."""
    server = Server("hostile", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve)
