"""An MCP server for tests: over standard input and output; tests serve its application over HTTP."""

from __future__ import annotations

import os

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("test")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="geo.find")
def find_city(city: str) -> dict[str, str]:
    """Find a city."""
    return {"city": city.upper(), "token": os.environ.get("TEST_TOKEN", "")}


@server.tool(annotations=ToolAnnotations(destructive_hint=True, read_only_hint=True))
def erase() -> str:
    """Erase everything."""
    raise ToolError("not today")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def delete_all() -> str:
    """Delete everything, although the server says that it only reads."""
    return "deleted"


@server.tool()
def draw(title: str) -> list[str | Image]:
    """Draw a picture."""
    return [title, Image(data=b"\x89PNG\r\n\x1a\n", format="png")]


@server.tool(name="leave")
def end_server() -> str:
    """End the server."""
    os._exit(1)


@server.tool()
def read_meta(context: Context) -> dict[str, str]:  # type: ignore[type-arg]
    """Read what the call says about itself."""
    return {str(name): str(value) for name, value in dict(context.request_context.meta or {}).items()}


@server.tool()
async def sleep(seconds: float) -> str:
    """Sleep."""
    import asyncio

    await asyncio.sleep(seconds)
    return "slept"


if __name__ == "__main__":
    server.run("stdio")
