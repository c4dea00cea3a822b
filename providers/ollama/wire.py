"""Ollama's native `/api/chat`: to the wire and from it, as pure maps over JSON data.

Source: the server's `api/types.go` and `server/routes.go` of August 2026: calls carry an `id`, tool
messages a `tool_call_id`, and a schema keeps `anyOf`, nested `properties` and `required`. The SDK's
typed layer (0.6.3) drops all of these, so bodies are built and read here as plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.shared import finish_reasons
from toolchart.providers.shared.arguments import parse_arguments
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.providers.shared.tool_choice import choice_of, offered_by
from toolchart.providers.shared.warnings import foreign_data, side_by_side, unmet
from toolchart.providers.shared.wire_values import count, text_or_none
from toolchart.states.messages import Message, Reply, Request, ToolCall, Usage
from toolchart.states.schema_dialects import OLLAMA, parameters_for

NAME = "ollama"

_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
}
"""Our option names and the server's."""


def to_wire(
    request: Request, options: Mapping[str, Any] | None = None, *, stream: bool = False
) -> dict[str, Any]:
    """The body of `POST /api/chat`; `options` are the host's own (`num_ctx`, ...).

    The server knows no tool choice. What was chosen is done by what is offered: no tools for `none`, the
    chosen ones for names; that a call must be made cannot be said (`warnings_of` tells when it was not).
    """
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [_message(message) for message in request.messages],
        "stream": stream,
    }
    offered = offered_by(choice_of(request.options.get("tool_choice")), request.tools, OLLAMA)
    if offered:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": parameters_for(tool, OLLAMA),
                },
            }
            for tool in offered
        ]
    own = {
        wire: request.options[name] for name, wire in _OPTIONS.items() if name in request.options
    }
    merged = {**(options or {}), **own}
    if isinstance(merged.get("stop"), str):
        merged["stop"] = [merged["stop"]]
    if merged:
        body["options"] = merged
    shape = _format(request.options.get("response_format"))
    if shape is not None:
        body["format"] = shape
    return body


def _format(response_format: Any) -> Any:
    """Ollama takes `json` or the schema itself."""
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return None
    schema = response_format.get("json_schema")
    if isinstance(schema, Mapping):
        return schema.get("schema", "json")
    return "json"


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.role == "tool":
        wire["tool_name"] = message.name
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
    data = message.provider_data or {}
    if data.get("provider") == NAME and data.get("thinking"):
        wire["thinking"] = data["thinking"]
    return wire


def _call(call: ToolCall) -> dict[str, Any]:
    # The server takes objects only; unreadable text from another host is shown as what it was.
    arguments = call.arguments if call.arguments is not None else {"unreadable": call.raw}
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}


def from_wire(body: Any) -> Reply:
    """The reply of a response body.

    Raises:
        ProviderError: an error told inside a success, or a body that is no chat answer.
    """
    if not isinstance(body, Mapping):
        raise unreadable(f"the answer is no chat answer but {type(body).__name__}: {body}")
    if body.get("error"):
        raise failure(200, body)
    message = body.get("message")
    if not isinstance(message, Mapping):
        raise unreadable("the answer has no message")
    if body.get("done") is False:
        raise unreadable("the answer ends before it is done")
    listed = message.get("tool_calls")
    listed = listed if isinstance(listed, list) else []
    calls = tuple(_tool_call(one) for one in listed if isinstance(one, Mapping))
    word = text_or_none(body.get("done_reason"))
    thinking = text_or_none(message.get("thinking"))
    return Reply(
        content=text_or_none(message.get("content")),
        tool_calls=calls,
        finish_reason=finish_reasons.finish_reason(word, finish_reasons.OLLAMA, calls=len(calls)),
        native_reason=word,
        usage=_usage(body),
        reasoning=thinking,
        model=text_or_none(body.get("model")),
        # Models that think between calls want their thoughts back in the same turn.
        provider_data={"provider": NAME, "thinking": thinking} if thinking and calls else None,
    )


def _tool_call(wire: Mapping[str, Any]) -> ToolCall:
    function = wire.get("function")
    function = function if isinstance(function, Mapping) else {}
    name, given = str(function.get("name") or ""), function.get("arguments")
    call_id = str(wire.get("id") or "")
    if isinstance(given, Mapping):
        return ToolCall(id=call_id, name=name, arguments=dict(given))
    if given is None:
        return ToolCall(id=call_id, name=name, arguments={})
    arguments, problem = parse_arguments(str(given))
    return ToolCall(id=call_id, name=name, arguments=arguments, raw=str(given), problem=problem)


def _usage(body: Mapping[str, Any]) -> Usage | None:
    """`prompt_eval_count` is absent where the whole prompt was cached."""
    given, made = count(body.get("prompt_eval_count")), count(body.get("eval_count"))
    if given is None and made is None:
        return None
    return Usage(input=given, output=made, total=(given or 0) + (made or 0))


# -- what the server does not say ----------------------------------------------------------------

_SPARSEST = 8
"""Bytes of text for one token, which ordinary text does not reach (English has about four)."""
_SPARSE = 6
"""Bytes for one token with which a prompt beyond the window is surely beyond it."""
_LEAST_CUT = 512
"""A cut prompt still fills about half a window, and none is so small; fewer tokens mean that the rest
was cached, which older servers leave out of the count."""


def warnings_of(request: Request, reply: Reply, options: Mapping[str, Any] | None) -> list[str]:
    """What the reply does not show of what was asked."""
    return [
        *foreign_data(request.messages, NAME),
        *unmet(choice_of(request.options.get("tool_choice")), reply, "Ollama"),
        *side_by_side(request, reply, "Ollama"),
        *context_truncated(request, reply.usage, (options or {}).get("num_ctx")),
    ]


def context_truncated(request: Request, usage: Usage | None, num_ctx: Any = None) -> list[str]:
    """A warning where the server answered from a part of the conversation only.

    Ollama drops the oldest messages without a word once the prompt is beyond its window, and answers
    200. Two signs tell: it counted fewer tokens than the texts can come to (one for each 8 bytes of
    UTF-8, at least 512 counted), or the window is known (`num_ctx`) and the texts are beyond it by far
    (6 bytes to a token). A prompt that is over by little passes unseen; what is warned of was cut.

    Source: ollama/ollama issues 17427 and 17889; `server/prompt.go`.
    """
    counted = usage.input if usage else None
    if counted is None:
        return []
    size = sum(len((one.content or "").encode("utf-8", "replace")) for one in request.messages)
    window = num_ctx if isinstance(num_ctx, int) else None
    sparse = _LEAST_CUT <= counted < size / _SPARSEST
    beyond = window is not None and counted <= window < size / _SPARSE
    if not sparse and not beyond:
        return []
    return [
        f"context_truncated: about {size // 4} tokens were sent and Ollama read {counted}, so it dropped "
        "the oldest messages; give the llms entry a larger `options: {num_ctx: ...}`"
    ]
