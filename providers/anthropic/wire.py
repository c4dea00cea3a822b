"""Anthropic's Messages: to the wire and from it, as pure maps over JSON data.

Source: the interface's reference (platform.claude.com, `Create a Message`), version 2023-06-01.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.providers.shared.tool_choice import (
    MAX_TOKENS,
    NOTHING,
    Choice,
    choice_of,
    offered_by,
)
from toolchart.providers.shared.wire_values import count, text_or_none
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.schema_dialects import ANTHROPIC, parameters_for

NAME = "anthropic"

_OPTIONS = {"temperature": "temperature", "top_p": "top_p"}

# -- to the wire ---------------------------------------------------------------------------------


def to_wire(request: Request, *, stream: bool = False) -> dict[str, Any]:
    """The body of `POST /v1/messages`."""
    options = request.options
    system = [m.content for m in request.messages if m.role == "system" and m.content]
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": options.get("max_tokens") or MAX_TOKENS,
        "messages": messages_of(request.messages),
        **{wire: options[name] for name, wire in _OPTIONS.items() if options.get(name) is not None},
    }
    if stream:
        body["stream"] = True
    if system:
        body["system"] = "\n\n".join(system)
    stop = options.get("stop")
    if stop:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    body.update(_tools(request), **_output(options.get("response_format")))
    return body


def _tools(request: Request) -> dict[str, Any]:
    """Tools and choice. One named tool can be demanded; of several, only those are offered."""
    choice = choice_of(request.options.get("tool_choice"))
    offered = offered_by(choice, request.tools, ANTHROPIC)
    if not offered:
        return {}
    tools = [
        {"name": t.name, "description": t.description, "input_schema": parameters_for(t, ANTHROPIC)}
        for t in offered
    ]
    chosen = _choice(choice)
    if request.options.get("parallel_tool_calls") is False and choice.mode != "none":
        chosen["disable_parallel_tool_use"] = True
    return {"tools": tools, **({"tool_choice": chosen} if chosen != {"type": "auto"} else {})}


def _choice(choice: Choice) -> dict[str, Any]:
    if choice.demanded:
        return {"type": "tool", "name": choice.demanded}
    return {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}


def _output(response_format: Any) -> dict[str, Any]:
    """A schema for the answer; JSON without a schema cannot be asked for (see `warnings_of`)."""
    inner = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(inner, Mapping) or "schema" not in inner:
        return {}
    return {"output_config": {"format": {"type": "json_schema", "schema": inner["schema"]}}}


def messages_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation; results stand in one user message, before what the user says with them."""
    made: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _said(message) if role == "assistant" else [_heard(message)]
        if made and made[-1]["role"] == role:
            made[-1]["content"] += blocks
        else:
            made.append({"role": role, "content": blocks})
    return made


def _text(content: str | None) -> dict[str, Any]:
    return {"type": "text", "text": content if content and content.strip() else NOTHING}


def _said(message: Message) -> list[dict[str, Any]]:
    data = message.provider_data or {}
    if data.get("provider") == NAME and isinstance(data.get("content"), list):
        # Verbatim: thinking is refused where its signature does not fit, or where it is left out.
        return [_sendable(block) for block in data["content"]]
    blocks = [_text(message.content)] if message.content or not message.tool_calls else []
    for call in message.tool_calls:
        given = call.arguments if call.arguments is not None else {"unreadable": call.raw}
        blocks.append({"type": "tool_use", "id": _id(call.id), "name": call.name, "input": given})
    return blocks


def _sendable(block: dict[str, Any]) -> dict[str, Any]:
    """A block of ours as it may be sent: `input` is an object, whatever came."""
    if block.get("type") == "tool_use" and not isinstance(block.get("input"), Mapping):
        return {**block, "input": {"unreadable": block.get("input")}}
    return block


def _heard(message: Message) -> dict[str, Any]:
    if message.role != "tool":
        return _text(message.content)
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _id(message.tool_call_id or ""),
        "content": message.content or "",
    }
    if _failed(message.content):
        result["is_error"] = True
    return result


def _failed(content: str | None) -> bool:
    """Whether a tool's result says that the tool failed."""
    try:
        told = json.loads(content or "")
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("success") is False


def _id(call_id: str) -> str:
    """The id in the alphabet that is taken; another provider's may have more."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "_"


# -- from the wire -------------------------------------------------------------------------------

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Errors told inside a stream, by the status that they would have had before it."""


def told_failure(body: Mapping[str, Any]) -> ProviderError:
    """The failure of an error body that came with a success."""
    error = body.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    return failure(_STATUSES.get(kind, 200) if isinstance(kind, str) else 200, dict(body))


def from_wire(body: Any) -> Reply:
    """The reply of a response body.

    Raises:
        ProviderError: an error told inside a success, or a body that is no message.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no message but {type(body).__name__}")
    if body.get("error"):
        raise told_failure(body)
    content = body.get("content")
    if not isinstance(content, list):
        raise unreadable("the answer has no content")
    blocks = [block for block in content if isinstance(block, Mapping)]
    calls = tuple(_call(one) for one in blocks if one.get("type") == "tool_use")
    word = text_or_none(body.get("stop_reason"))
    return Reply(
        content=_joined(blocks, "text"),
        tool_calls=calls,
        finish_reason=finish_reasons.finish_reason(
            word, finish_reasons.ANTHROPIC, calls=len(calls)
        ),
        native_reason=word,
        usage=_usage(body.get("usage")),
        reasoning=_joined(blocks, "thinking"),
        model=text_or_none(body.get("model")),
        response_id=text_or_none(body.get("id")),
        provider_data=_kept(blocks),
    )


def _joined(blocks: Sequence[Mapping[str, Any]], kind: str) -> str | None:
    """The text of the blocks of a kind; the block's text has the kind's name."""
    texts = [one.get(kind) for one in blocks if one.get("type") == kind]
    return "".join(text for text in texts if isinstance(text, str)) or None


def _call(block: Mapping[str, Any]) -> ToolCall:
    name, given = str(block.get("name") or ""), block.get("input")
    call_id = text_or_none(block.get("id")) or ""
    if isinstance(given, Mapping):
        return ToolCall(id=call_id, name=name, arguments=dict(given))
    if given is None:
        return ToolCall(id=call_id, name=name, arguments={})
    arguments, problem = parse_arguments(str(given))
    return ToolCall(id=call_id, name=name, arguments=arguments, raw=str(given), problem=problem)


def _kept(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The blocks themselves, where rebuilding them from text and calls would lose something."""
    plain = all(
        set(block) == {"type", "text"} or block.get("type") == "tool_use" for block in blocks
    )
    order = [block.get("type") for block in blocks]
    if not blocks or (plain and order.count("text") <= 1 and "text" not in order[1:]):
        return None
    return {"provider": NAME, "content": [dict(block) for block in blocks]}


def _usage(wire: Any) -> Usage | None:
    """`input_tokens` leaves cached ones out, so they are added; thinking is part of the output."""
    if not isinstance(wire, Mapping):
        return None
    plain, output = count(wire.get("input_tokens")), count(wire.get("output_tokens"))
    cached = count(wire.get("cache_read_input_tokens"))
    written = count(wire.get("cache_creation_input_tokens"))
    details = wire.get("output_tokens_details")
    given = None if plain is None else plain + (cached or 0) + (written or 0)
    return Usage(
        input=given,
        output=output,
        reasoning=count(details.get("thinking_tokens")) if isinstance(details, Mapping) else None,
        cached=cached,
        total=None if given is None or output is None else given + output,
    )
