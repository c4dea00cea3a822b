"""Give an agent the tools of an MCP server.

The server is started when the agent is opened, and ended with it. Its name is the prefix of its tools. They
count as risky, so each call waits for approval unless the entry sets `risk`. A server that does not start is
left out with a warning; where its process ends, the error has the last lines that it wrote. The extra `mcp`
is needed.
"""

import sys

from toolchart import Agent
from toolchart.testing import ScriptedModel, call_tool


def serve() -> None:
    """Be an MCP server on standard input and output."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("stock")

    @server.tool()
    def count(article: str) -> int:
        """Count an article in the storehouse."""
        return {"lamp": 3, "chair": 0}[article]

    server.run("stdio")


model = ScriptedModel(  # yours: "openai:gpt-5-mini"
    call_tool("stock__count", article="lamp"), "Three lamps are left."
)
seller = Agent(
    model,
    # yours: {"command": "npx", "args": [...]} or {"url": "https://...", "headers": {...}}
    mcp={"stock": {"command": sys.executable, "args": [__file__, "serve"], "risk": "low"}},
    prompt="You sell furniture.",
)


def ask() -> None:
    with seller.open(log="shop.db") as shop:
        turn = shop.run("How many lamps are left?")
    print(turn.output)
    for call in turn.tool_calls:
        print(call.tool, call.params, call.value)
    for definition in model.requests[0].tools:
        print(f"the model was offered {definition.name}: {definition.description}")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        ask()
