"""Encode Ollama requests and decode its replies (calls, finish words, usage), by pure functions.

It also finds out whether the server silently cut the prompt (`find_truncated_context`).

Source: the server's `api/types.go` and `server/routes.go` of August 2026: calls carry an `id`, tool
messages a `tool_call_id`, and a schema keeps `anyOf`, nested `properties` and `required`. The SDK's
typed layer (0.6.3) drops all of these, so bodies are built and read here as plain data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    FinishWords,
    add_extra_body,
    describe_waiting,
    find_missing_word,
    is_call_kind,
    join_text,
    list_call_entries,
    read_blocks,
    read_function,
    read_input_count,
    read_output_count,
    read_string,
    refuse_call,
    resolve_finish_reason,
    select_others,
)
from toolchart.providers.shared.requests import (
    Origin,
    ToolChoice,
    describe_reply,
    find_foreign_data,
    find_parallel_calls,
    find_unmet_tool_choice,
    find_unsupported_options,
    list_sent_parts,
    read_tool_choice,
    refuse_part,
    select_offered_tools,
)
from toolchart.providers.shared.sent_messages import read_sent_arguments
from toolchart.providers.shared.streamed_calls import find_arguments
from toolchart.providers.transport.encoded_bodies import find_message_parts
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import ImagePart, TextPart, add_text
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.schema_dialects import OLLAMA, lower_parameters

NAME = "ollama"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

FINISH_WORDS: FinishWords = MappingProxyType(
    {"stop": "stop", "length": "length", "load": "paused", "unload": "paused"}
)
"""Finish words and their meaning. Source: the server's `llm/server.go` of August 2026."""

_OPTIONS = {
    "max_tokens": "num_predict",
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop",
    "top_k": "top_k",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""Our option names and the server's."""

SUPPORTED_OPTIONS = (*_OPTIONS, "reasoning_effort", "logprobs")

_EFFORTS: Mapping[str, Any] = {"none": False, "minimal": "low", "xhigh": "high"}
"""Efforts that the server calls otherwise: it has `low`, `medium` and `high`."""


# -- encoding ------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    options: Mapping[str, Any] | None = None,
    *,
    stream: bool = False,
    origin: Origin = ANY_HOST,
) -> dict[str, Any]:
    """The body of `POST /api/chat`.

    The server has no tool choice. The list of tools expresses it: no tools for `none`, the chosen tools for
    names. A required call cannot be expressed; `collect_warnings` warns if the reply has none.

    Args:
        options: the server's own options (`num_ctx`, ...); the request's options override them.
        origin: where the request goes: data of its own replies goes with it.
    """
    choice = read_tool_choice(request) or ToolChoice()
    message_parts = find_message_parts(NAME, origin)

    def encode(message: Message, _: None) -> list[dict[str, Any]]:
        return [_encode_message(message, origin)]

    wire_messages = [part for (part,) in message_parts.collect_parts(request.messages, encode)]
    body: dict[str, Any] = {"model": request.model, "messages": wire_messages, "stream": stream}
    offered_tools = select_offered_tools(choice, request.tools, OLLAMA)
    if offered_tools:
        body["tools"] = [_encode_tool(tool) for tool in offered_tools]
    wire_options = {**(options or {}), **_encode_options(request.options)}
    if isinstance(wire_options.get("stop"), str):
        wire_options["stop"] = [wire_options["stop"]]
    if wire_options:
        body["options"] = wire_options
    response_format = _encode_response_format(request.options.get("response_format"))
    if response_format is not None:
        body["format"] = response_format
    effort = request.options.get("reasoning_effort")
    if effort is not None:
        body["think"] = _EFFORTS.get(effort, effort)
    if request.options.get("logprobs") is not None:
        body |= {"logprobs": True, "top_logprobs": request.options["logprobs"]}
    return add_extra_body(body, request.options.get("extra_body"))


def _encode_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {wire: options[name] for name, wire in _OPTIONS.items() if name in options}


def _encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": lower_parameters(tool, OLLAMA),
        },
    }


def _encode_response_format(response_format: Any) -> Any:
    """`json` or the schema itself, as Ollama expects; None for plain text."""
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return None
    schema = response_format.get("json_schema")
    if isinstance(schema, Mapping):
        return schema.get("schema", "json")
    return "json"


def _encode_message(message: Message, origin: Origin) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.content or ""}
    if message.parts:
        wire.update(_encode_parts(message))
    if message.role == "tool":
        wire["tool_name"] = message.name
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [_encode_tool_call(call) for call in message.tool_calls]
    thinking = origin.get_data(message).get("thinking")
    if thinking:
        wire["thinking"] = thinking
    return wire


def _encode_parts(message: Message) -> dict[str, Any]:
    """Text and pictures of a message. The server takes the bytes of pictures, and nothing else beside text.

    Source: the server's `api/types.go`, `Message.Images`.
    """
    if message.role == "assistant":
        return {"content": describe_reply(message)}
    texts, images = [], []
    for part in list_sent_parts(message):
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, ImagePart) and part.data:
            images.append(part.data)
        else:
            raise refuse_part(part, "Ollama", "it takes the bytes of pictures, and text files")
    return {"content": "\n".join(texts), **({"images": images} if images else {})}


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": call.name, "arguments": read_sent_arguments(call)}}


# -- decoding ------------------------------------------------------------------------------------


_KNOWN_KEYS = (
    *("model", "created_at", "message", "done", "done_reason", "prompt_eval_count", "eval_count"),
    *("error", "status", "status_code"),
)
_KNOWN_MESSAGE_KEYS = ("role", "content", "thinking", "tool_calls", "images")


def decode_reply(body: Any) -> Reply:
    """The reply of a response body.

    Raises:
        ProviderError: an error body inside a success, or a body that is no chat answer.
    """
    check_object(body, "the answer is not a chat answer")
    message = body.get("message")
    if not isinstance(message, Mapping):
        raise build_bad_response_error("the answer has no message")
    if body.get("done") is False:
        raise build_bad_response_error("the answer ends before it is done")
    calls = _decode_tool_calls(message)
    word = read_string(body.get("done_reason"))
    thinking = read_string(message.get("thinking"))
    text, warnings = message.get("content"), ()
    if text is not None and not isinstance(text, str):
        blocks, warnings = read_blocks(text, {"type": "text"})
        text = join_text(block.get("text") or "" for block in blocks)
    content = text or None
    pictures = decode_pictures(message)
    reason = resolve_finish_reason(
        word, FINISH_WORDS, call_count=len(calls), has_answer=bool(content or pictures)
    )
    others = select_others(message, _KNOWN_MESSAGE_KEYS)
    waiting = describe_waiting(filter(is_call_kind, others)) if others else None
    return Reply(
        content=content,
        parts=add_text(content, pictures),
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        finish_message=waiting,
        native_reason=word,
        usage=decode_usage(body),
        reasoning=thinking,
        model=read_string(body.get("model")),
        provider_data=build_provider_data(thinking, calls),
        details={**select_others(body, _KNOWN_KEYS), **others} or None,
        warnings=(*(() if word in FINISH_WORDS else find_missing_word(word, reason)), *warnings),
    )


def build_provider_data(thinking: str | None, calls: Sequence[ToolCall]) -> dict[str, Any] | None:
    """What the server wants back of a reply: models that think between calls need their thoughts back in the
    same turn."""
    return {"provider": NAME, "thinking": thinking} if thinking and calls else None


def decode_pictures(message: Mapping[str, Any]) -> list[ImagePart]:
    """The pictures of a message, Base64 without a type. Source: the server's `api/types.go`, `Message`."""
    images = message.get("images")
    pictures = [image for image in images if isinstance(image, str)] if isinstance(images, list) else []
    kinds = {"/9j/": "image/jpeg", "UklG": "image/webp", "R0lG": "image/gif"}
    return [ImagePart(data=data, media_type=kinds.get(data[:4], "image/png")) for data in pictures]


def _decode_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    return tuple(map(_decode_tool_call, list_call_entries(message.get("tool_calls"))))


def _decode_tool_call(wire: Any) -> ToolCall:
    if not isinstance(wire, Mapping):
        return refuse_call(wire)
    function = read_function(wire)
    return decode_call(
        read_string(wire.get("id")) or "", function.get("name"), find_arguments(function, wire)
    )


def decode_usage(body: Mapping[str, Any]) -> Usage | None:
    """Token counts. `prompt_eval_count` is absent if the whole prompt was cached. Gateways have `usage`."""
    usage = body.get("usage")
    counts = {**body, **usage} if isinstance(usage, Mapping) else body
    prompt_tokens, reply_tokens = read_input_count(counts), read_output_count(counts)
    if prompt_tokens is None and reply_tokens is None:
        return None
    total = (prompt_tokens or 0) + (reply_tokens or 0)
    return Usage(input=prompt_tokens, output=reply_tokens, total=total)


# -- warnings ------------------------------------------------------------------------------------

_MAX_BYTES_PER_TOKEN = 8
"""Bytes of text per token that ordinary text does not reach (English has about four)."""
_WINDOW_BYTES_PER_TOKEN = 6
"""Bytes per token at which a prompt certainly does not fit into the context window."""
_MIN_COUNTED_TOKENS = 512
"""A cut prompt still fills about half of a context window, and no window is smaller than this. A lower count
means that the rest was cached, which older servers do not count."""


def collect_warnings(
    request: Request, reply: Reply, options: Mapping[str, Any] | None, origin: Origin
) -> list[str]:
    """Warnings about parts of the request that the server could not follow."""
    choice = read_tool_choice(request) or ToolChoice()
    return [
        *find_foreign_data(request.messages, origin, "thinking"),
        *find_unmet_tool_choice(choice, reply, "Ollama"),
        *find_unsupported_options(request, SUPPORTED_OPTIONS, "Ollama"),
        *find_parallel_calls(request, reply, "Ollama"),
        *find_truncated_context(request, reply.usage, (options or {}).get("num_ctx")),
    ]


def find_truncated_context(request: Request, usage: Usage | None, num_ctx: Any = None) -> list[str]:
    """A warning if the server read only a part of the conversation.

    Ollama silently drops the oldest messages if the prompt does not fit into its context window, and
    answers 200. There are two signs. The server counted fewer tokens than the texts must have (at most 8
    bytes of UTF-8 per token; only if it counted at least 512). Or the window is known (`num_ctx`) and the
    texts exceed it by far (6 bytes per token). A prompt slightly over the window is not detected; a
    warning is never wrong.

    Source: ollama/ollama issues 17427 and 17889; `server/prompt.go`.
    """
    counted_tokens = usage.input if usage else None
    if counted_tokens is None:
        return []
    size = sum(len((message.content or "").encode("utf-8", "replace")) for message in request.messages)
    window = num_ctx if isinstance(num_ctx, int) else None
    has_too_few_tokens = _MIN_COUNTED_TOKENS <= counted_tokens < size / _MAX_BYTES_PER_TOKEN
    exceeds_window = window is not None and counted_tokens <= window < size / _WINDOW_BYTES_PER_TOKEN
    if not has_too_few_tokens and not exceeds_window:
        return []
    return [
        f"context_truncated: about {size // 4} tokens were sent and Ollama read {counted_tokens}, so it "
        "dropped the oldest messages; give the llms entry a larger `options: {num_ctx: ...}`"
    ]
