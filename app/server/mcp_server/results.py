"""Results of turns as results of tool calls."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import mcp_types as types
import msgspec

from toolchart.app.server.protocols.waiting import list_waiting_items
from toolchart.engine.runtime.result import Turn
from toolchart.states.content import AudioPart, CitationPart, FilePart, ImagePart, Media
from toolchart.workers.json_data import to_json_data

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "conversation": {"type": "string", "description": "Pass it again to go on with the conversation."},
        "state": {"type": "string"},
        "is_over": {"type": "boolean", "description": "Whether the turn has ended."},
        "content": {"type": "string"},
        "data": {"description": "The answer as data, where its handler gives data."},
        "parts": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Files and sources of the answer. Pictures and sounds are contents.",
        },
        "host_calls": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Tools that the model's host ran itself.",
        },
        "waiting": {"type": "array", "items": {"type": "object"}, "description": "What the turn waits for."},
        "waiting_messages": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Messages that the model reads when the turn goes on.",
        },
        "records": {"type": "string", "description": "URI of the records."},
    },
    "required": ["conversation", "state", "is_over", "content", "records"],
}


def build_call_result(result: Turn) -> types.CallToolResult:
    """The result of a tool call: the answer of the turn, or what it waits for."""
    waiting = [
        {"for": item.kind.reason, "tool": item.tool, "message": item.message, "arguments": item.arguments}
        for item in list_waiting_items(result.waiting, result.conversation)
    ]
    data: dict[str, Any] = {
        "conversation": result.conversation,
        "state": result.state,
        "is_over": result.is_over,
        "content": result.content,
        "records": build_records_uri(result.conversation),
    }
    if result.data is not None:
        data["data"] = to_json_data(result.data)
    notes = [part for part in result.parts if isinstance(part, FilePart | CitationPart)]
    if notes:
        data["parts"] = msgspec.to_builtins(notes)
    if result.host_calls:
        data["host_calls"] = msgspec.to_builtins(result.host_calls)
    if waiting:
        data["waiting"] = to_json_data(waiting)
    if result.waiting_messages:
        data["waiting_messages"] = result.waiting_messages
    text = result.content if result.is_over else _describe_waiting(result, waiting)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text), *_list_media(result)],
        structured_content=data,
        is_error=result.error is not None,
    )


def _list_media(result: Turn) -> list[types.ContentBlock]:
    """The pictures, sounds and files of an answer. MCP knows pictures and sounds as bytes alone."""
    blocks: list[types.ContentBlock] = []
    for part in result.parts:
        if not isinstance(part, Media):
            continue
        if part.url:
            blocks.append(types.ResourceLink(type="resource_link", uri=part.url, name=part.name or part.url))
        elif part.data and isinstance(part, ImagePart):
            blocks.append(types.ImageContent(type="image", data=part.data, mime_type=part.media_type))
        elif part.data and isinstance(part, AudioPart):
            blocks.append(types.AudioContent(type="audio", data=part.data, mime_type=part.media_type))
        elif part.data:
            uri = f"{build_records_uri(result.conversation)}#{quote(part.name or 'file')}"
            resource = types.BlobResourceContents(uri=uri, blob=part.data, mime_type=part.media_type)
            blocks.append(types.EmbeddedResource(type="resource", resource=resource))
    return blocks


def build_records_uri(conversation: str) -> str:
    """The address of the records of a conversation."""
    return f"toolchart://conversations/{conversation}/records"


def build_failure(message: str) -> types.CallToolResult:
    """The result of a call that could not be carried out, for the model to read."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)


def _describe_waiting(result: Turn, waiting: list[dict[str, Any]]) -> str:
    what = "; ".join(f"{item['for']}: {item['message']}" for item in waiting) or "nothing that can be said"
    return f"The turn of conversation {result.conversation} is open. It waits for {what}"
