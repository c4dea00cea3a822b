"""`toolchart mcp`: serve an agent to one MCP client, over standard input and output."""

from __future__ import annotations

import click

from toolchart.app.cli.parameters.options import (
    durability_option,
    limits_option,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.terminal.log_messages import configure_logging
from toolchart.app.cli.terminal.output import get_output
from toolchart.states.errors import explain_import_fault


@click.command(short_help="Serve an agent to one MCP client, over standard input and output.")
@click.argument("spec")
@limits_option
@durability_option
@log_option
def command(spec: str, limits: tuple[str, ...], durability: str | None, log: str | None) -> None:
    """Serve the agent SPEC to the MCP client that starts this command, until it closes standard input.

    Each handler is a tool. The client's user decides about calls that need approval. See
    docs/serve-protocols.md.

    \b
    Example:  toolchart mcp quickstart
              toolchart mcp agent.yaml --log conversations.db
              toolchart mcp agent.yaml --limit records_bytes=1000000
    """
    try:
        from toolchart.app.server.mcp_server.connections import serve_stdio
    except ImportError as error:
        raise explain_import_fault(error, "mcp", "mcp", "serve") from None
    from toolchart.app.server.site import read_limits

    configure_logging(verbose=False, shows_turns=True)
    site_limits = read_limits(limits)
    serve_stdio(
        list_engine_options(spec), limits=site_limits, log=log, durability=durability, output=get_output()
    )
