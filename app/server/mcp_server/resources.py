"""Records and diagrams as resources."""

from __future__ import annotations

import re

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolchart.app.server.site import Site
from toolchart.engine.log.reading.visited_path import draw_conversation_path
from toolchart.specs.secrets import strike_secret_bytes
from toolchart.states.diagram import draw

CHART = "toolchart://chart"

_CONVERSATION = re.compile(r"toolchart://conversations/([^/]+)/(records|diagram)")

MERMAID = "text/vnd.mermaid"
JSON_LINES = "application/jsonl"

MAX_RECORDS_BYTES = 8 * 1024 * 1024
"""Size of the records in one answer; a longer log ends in a line that says so."""


def list_resources() -> types.ListResourcesResult:
    """The resources that exist without a conversation."""
    chart = types.Resource(
        uri=CHART, name="chart", description="The agent's chart, as Mermaid.", mime_type=MERMAID
    )
    return types.ListResourcesResult(resources=[chart])


def list_templates() -> types.ListResourceTemplatesResult:
    """What can be read of each conversation."""
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template="toolchart://conversations/{conversation}/records",
                name="records",
                description="The records of a conversation, one JSON object a line.",
                mime_type=JSON_LINES,
            ),
            types.ResourceTemplate(
                uri_template="toolchart://conversations/{conversation}/diagram",
                name="diagram",
                description="The chart with the path of a conversation, as Mermaid.",
                mime_type=MERMAID,
            ),
        ]
    )


def list_conversation_uris(conversation: str) -> tuple[str, ...]:
    """The resources of a conversation; they change with each record."""
    return tuple(f"toolchart://conversations/{conversation}/{name}" for name in ("records", "diagram"))


def read_resource(site: Site, uri: str) -> types.ReadResourceResult:
    """The text of a resource, without known secrets.

    Raises:
        MCPError: there is none.
    """
    match = _CONVERSATION.fullmatch(uri)
    if uri == CHART:
        data, kind = _encode(draw(site.engine.chart, "mermaid")), MERMAID
    elif match and site.engine.store.read_last_line(match[1]) is not None:
        if match[2] == "records":
            data, kind = _join_records(site, match[1]), JSON_LINES
        else:
            chart, overlay = draw_conversation_path(site.engine.store, match[1])
            data, kind = _encode(draw(chart, "mermaid", overlay)), MERMAID
    else:
        raise MCPError(code=types.INVALID_PARAMS, message=f"there is no resource {uri!r}")
    text = strike_secret_bytes(data).decode()
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])


def _encode(diagram: str | bytes) -> bytes:
    return diagram.encode() if isinstance(diagram, str) else diagram


def _join_records(site: Site, conversation: str) -> bytes:
    lines, size = [], 0
    for line in site.engine.store.read_lines(conversation):
        size += len(line) + 1
        if size > MAX_RECORDS_BYTES:
            lines.append(b'{"cut": "toolchart export has all records"}')
            break
        lines.append(line.rstrip(b"\n"))
    return b"\n".join(lines) + b"\n"
