"""Encode Bedrock's Converse requests and decode its replies, by pure functions.

Source: botocore 1.44.5, the service model of `bedrock-runtime`: shapes `ConverseRequest`, `ConverseResponse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from toolchart.providers.shared.failures import build_bad_response_error, check_object, classify_http_error
from toolchart.providers.shared.replies import (
    FinishWords,
    PartCollector,
    add_extra_body,
    describe_waiting,
    find_missing_word,
    is_call_kind,
    read_blocks,
    read_call_input,
    read_input_count,
    read_mappings,
    read_output_count,
    read_string,
    read_token_count,
    refuse_call,
    resolve_finish_reason,
    select_other_counts,
    select_others,
)
from toolchart.providers.shared.requests import (
    Origin,
    SentPart,
    ToolChoice,
    encode_reply_blocks,
    is_failed_result,
    list_sent_parts,
    read_tool_choice,
    refuse_part,
    restore_own_parts,
    select_offered_tools,
)
from toolchart.providers.shared.sent_messages import EMPTY_TEXT, read_sent_arguments, restore_arguments
from toolchart.providers.shared.streamed_calls import find_arguments
from toolchart.providers.transport.encoded_bodies import EncodedObject, find_message_parts, join_roles
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import CitationPart, ContentPart, HostCallPart, TextPart, decode_media
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.schema_dialects import (
    ANTHROPIC,
    ANTHROPIC_STRICT,
    lower_parameters,
    lower_strict_parameters,
)

# -- content blocks --------------------------------------------------------------------------------
# Source: botocore 1.44.5, the service model of `bedrock-runtime`, shape `ContentBlock`.


_FORMATS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "image/png": ("image", "png"),
        "image/jpeg": ("image", "jpeg"),
        "image/gif": ("image", "gif"),
        "image/webp": ("image", "webp"),
        "application/pdf": ("document", "pdf"),
        "application/msword": ("document", "doc"),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ("document", "docx"),
        "application/vnd.ms-excel": ("document", "xls"),
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
        "audio/mpeg": ("audio", "mp3"),
        "audio/mp3": ("audio", "mp3"),
        "audio/wav": ("audio", "wav"),
        "audio/x-wav": ("audio", "wav"),
        "audio/aac": ("audio", "aac"),
        "audio/flac": ("audio", "flac"),
        "audio/ogg": ("audio", "ogg"),
        "audio/opus": ("audio", "opus"),
        "audio/mp4": ("audio", "mp4"),
        "audio/webm": ("audio", "webm"),
    }
)
"""By media type: the kind of block, and the word for the format. Text files are sent as text."""

_MEDIA_TYPES = {form: media_type for media_type, form in reversed([*_FORMATS.items()])}


def encode_text(content: str | None) -> dict[str, Any]:
    """The block of a text; a blank one has words in its place."""
    return {"text": content if content and content.strip() else EMPTY_TEXT}


def encode_parts(parts: Iterable[SentPart]) -> list[dict[str, Any]]:
    """The blocks of a user message. A document needs a text beside it.

    Source: the API reference, `Message`, `content`.

    Raises:
        ProviderError: `bad_request`; Bedrock does not take one of the parts.
    """
    blocks = [encode_part(part) for part in parts]
    has_text = any("text" in block for block in blocks)
    needs_text = not blocks or any("document" in block for block in blocks)
    return [*blocks, encode_text(None)] if needs_text and not has_text else blocks


def encode_part(part: SentPart) -> dict[str, Any]:
    """One block of a user message or of a result.

    Raises:
        ProviderError: `bad_request`; Bedrock does not take the part.
    """
    if isinstance(part, TextPart):
        return encode_text(part.text)
    if part.url and not part.url.startswith("s3://"):
        raise refuse_part(part, "Bedrock", "send its bytes, or an address that begins with s3://")
    kind, word = _FORMATS.get(part.media_type.partition(";")[0].strip().lower(), ("", ""))
    if not kind:
        raise refuse_part(part, "Bedrock", "its media type is none of those that the API names")
    source = {"s3Location": {"uri": part.url}} if part.url else {"bytes": part.data}
    name = {"name": _clean_name(part.name)} if kind == "document" else {}
    return {kind: {"format": word, **name, "source": source}}


def _clean_name(name: str) -> str:
    """The name of a document with only what the API allows: letters, digits, single spaces, `-()[]`."""
    stem = name.rpartition(".")[0] or name
    return re.sub(r"[^A-Za-z0-9\-()\[\]]+", " ", stem).strip() or "document"


def decode_parts(blocks: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """The texts with their sources, pictures, sounds, and what the host did itself."""
    collector = PartCollector()
    for block in blocks:
        collect_block(collector, block)
    return collector.build()


_HOST_TOOLS = {"nova_grounding": "web_search", "nova_code_interpreter": "code_execution"}
"""Our words for tools of the host. Source: docs.aws.amazon.com, Nova, System tools."""


def collect_block(collector: PartCollector, block: Mapping[str, Any]) -> None:
    """Add the parts of one block of a reply. Source: botocore 1.44.5, shape `ContentBlock`."""
    text, start = read_block_text(block), collector.length
    if text is not None:
        collector.add_text(text)
    cited = block.get("citationsContent")
    if isinstance(cited, Mapping):
        for citation in read_mappings(cited.get("citations")):
            collector.add_part(_decode_citation(citation, start, collector.length))
    for kind in ("image", "audio", "document"):
        media = block.get(kind)
        source = media.get("source") if isinstance(media, Mapping) else None
        data = source.get("bytes") if isinstance(source, Mapping) else None
        if isinstance(media, Mapping) and isinstance(data, str) and data:
            unknown = "image/png" if kind == "image" else "application/octet-stream"
            media_type = _MEDIA_TYPES.get((kind, str(media.get("format"))), unknown)
            collector.add_part(decode_media(data, media_type, str(media.get("name") or "")))
    _collect_host_call(collector, block)


def _collect_host_call(collector: PartCollector, block: Mapping[str, Any]) -> None:
    """Add the call of a tool that the host ran, or what became of it."""
    use, result = block.get("toolUse"), block.get("toolResult")
    if isinstance(use, Mapping) and use.get("type"):
        name = str(use.get("name") or "")
        collector.add_call(
            HostCallPart(
                tool=_HOST_TOOLS.get(name, name),
                id=str(use.get("toolUseId") or ""),
                input=read_call_input(use.get("input")),
                units=1,
            )
        )
    elif isinstance(result, Mapping):
        pieces = read_mappings(result.get("content"))
        texts = (
            piece["text"] if isinstance(piece.get("text"), str) else json.dumps(piece["json"])
            for piece in pieces
            if isinstance(piece.get("text"), str) or "json" in piece
        )
        kind = str(result.get("type") or "tool").removesuffix("_result")
        collector.add_call(
            HostCallPart(
                tool=_HOST_TOOLS.get(kind, kind),
                id=str(result.get("toolUseId") or ""),
                output="".join(texts),
                error="failed" if result.get("status") == "error" else "",
            )
        )


def _decode_citation(citation: Mapping[str, Any], start: int, end: int) -> CitationPart:
    location = citation.get("location")
    web = location.get("web") if isinstance(location, Mapping) else None
    url = read_string(web.get("url")) if isinstance(web, Mapping) else None
    texts = [read_string(piece.get("text")) or "" for piece in read_mappings(citation.get("sourceContent"))]
    return CitationPart(
        url=url or "",
        title=read_string(citation.get("title")) or read_string(citation.get("source")) or "",
        text="".join(texts),
        start=start,
        end=end,
    )


def read_block_text(block: Mapping[str, Any]) -> str | None:
    """The text of a block, with or without sources; None for a block of another kind."""
    if isinstance(block.get("text"), str):
        return str(block["text"])
    cited = block.get("citationsContent")
    if not isinstance(cited, Mapping):
        return None
    texts = (piece.get("text") for piece in read_mappings(cited.get("content")))
    return "".join(text for text in texts if isinstance(text, str))


NAME = "bedrock"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

FINISH_WORDS: FinishWords = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "guardrail_intervened": "content_filter",
        "content_filtered": "content_filter",
        "malformed_tool_use": "malformed_call",
        "malformed_model_output": "error",
    }
)
"""Source: shape `StopReason`."""

_INFERENCE_OPTIONS = {"max_tokens": "maxTokens", "temperature": "temperature", "top_p": "topP"}
"""Our option names and those of `inferenceConfig`."""

SUPPORTED_OPTIONS = (
    *_INFERENCE_OPTIONS,
    "stop",
    "reasoning_effort",
    "service_tier",
    "metadata",
    "cache_ttl",
    "host_tools",
    "strict_tools",
)


# -- encoding ------------------------------------------------------------------------------------


def encode_request(request: Request, *, origin: Origin = ANY_HOST) -> dict[str, Any]:
    """The body of `Converse` with the `model` beside it, which is sent in the path.

    Args:
        origin: where the request goes: data of its own replies goes with it.

    Raises:
        ProviderError: `bad_request`; Bedrock has no form for a part of the request.
    """
    options = request.options
    inference = {
        wire: options[name] for name, wire in _INFERENCE_OPTIONS.items() if options.get(name) is not None
    }
    stop = options.get("stop")
    if stop:
        inference["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    messages: list[Mapping[str, Any]] = list(encode_messages(request.messages, origin))
    system = [{"text": m.content} for m in request.messages if m.role == "system" and m.content]
    point = _build_cache_point(options.get("cache_ttl"))
    if point and messages:
        messages[-1] = {**messages[-1], "content": [*messages[-1]["content"], *point]}
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "system": [*system, *point] if system else [],
        "inferenceConfig": inference,
        "toolConfig": _encode_tools(request, point),
        "outputConfig": _encode_output(options),
        "serviceTier": {"type": options["service_tier"]} if options.get("service_tier") else {},
        "requestMetadata": dict(options.get("metadata") or {}),
    }
    present_fields = {key: value for key, value in body.items() if value or key in ("model", "messages")}
    return add_extra_body(present_fields, options.get("extra_body"))


def _build_cache_point(ttl: Any) -> list[dict[str, Any]]:
    """The mark after what the host is to keep in its cache; empty where it is not asked."""
    return [{"cachePoint": {"type": "default", "ttl": ttl}}] if ttl else []


def _encode_output(options: Mapping[str, Any]) -> dict[str, Any]:
    """`outputConfig`: the schema of the reply, as text, and how much the model thinks."""
    output: dict[str, Any] = {}
    response_format = options.get("response_format")
    inner = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if isinstance(inner, Mapping) and "schema" in inner:
        schema: dict[str, Any] = {"schema": json.dumps(inner["schema"])}
        if inner.get("name"):
            schema["name"] = inner["name"]
        output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    if options.get("reasoning_effort") is not None:
        output["effort"] = options["reasoning_effort"]
    return output


def _encode_tools(request: Request, point: list[dict[str, Any]]) -> dict[str, Any]:
    """`toolConfig`. The API requires it as soon as the conversation has a call, also where none is offered:
    then the called tools stand in it by name. Its choice has no `none`.

    Source: the API's own refusal, "The toolConfig field must be defined when using toolUse and toolResult
    content blocks".
    """
    choice = read_tool_choice(request) or ToolChoice()
    called_names = {call.name for message in request.messages for call in message.tool_calls}
    offered_tools = select_offered_tools(choice, request.tools, ANTHROPIC)
    if choice.mode == "none" and not called_names:
        offered_tools = ()
    is_strict = request.options.get("strict_tools") is True
    tools = [_encode_tool(tool, is_strict) for tool in offered_tools]
    tools += request.options.get("host_tools") or ()
    if not tools:
        tools = [_encode_called_tool(name) for name in sorted(called_names)]
    if not tools:
        return {}
    config = {"tools": [*tools, *point]}
    if choice.required_name:
        return {**config, "toolChoice": {"tool": {"name": choice.required_name}}}
    return {**config, "toolChoice": {"any": {}}} if choice.mode == "required" else config


def _encode_tool(tool: ToolDefinition, is_strict: bool) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool.name}
    if tool.description:  # an empty one is refused
        wire["description"] = tool.description
    parameters = lower_strict_parameters(tool, ANTHROPIC_STRICT) if is_strict else None
    if parameters is not None:
        return {"toolSpec": {**wire, "inputSchema": {"json": parameters}, "strict": True}}
    return {"toolSpec": {**wire, "inputSchema": {"json": lower_parameters(tool, ANTHROPIC)}}}


def _encode_called_tool(name: str) -> dict[str, Any]:
    """A tool of an earlier call that is not offered any more."""
    return {"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}}


def encode_messages(messages: Sequence[Message], origin: Origin = ANY_HOST) -> list[EncodedObject]:
    """The conversation without system messages; adjacent messages of one role become one."""
    message_parts = find_message_parts(NAME, origin)

    def encode(message: Message, _: None) -> list[dict[str, Any]]:
        return [_encode_message(message, origin)]

    sent = [message for message in messages if message.role != "system"]
    parts = message_parts.collect_parts(sent, encode)
    return join_roles((wire for (wire,) in parts), "content")


def _encode_message(message: Message, origin: Origin) -> dict[str, Any]:
    if message.role == "assistant":
        return {"role": "assistant", "content": _encode_reply(message, origin)}
    return {"role": "user", "content": _encode_user_message(message)}


def _encode_reply(message: Message, origin: Origin) -> list[dict[str, Any]]:
    content = origin.get_data(message).get("content")
    own_blocks = restore_own_parts(content, message.tool_calls, _encode_own_block, _is_call)
    if own_blocks and "reasoningContent" in own_blocks[-1]:
        own_blocks.append(encode_text(None))  # the API refuses a message that ends with thinking
    return encode_reply_blocks(message, own_blocks, encode_text=encode_text, encode_call=_encode_tool_call)


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call.id, "name": call.name, "input": read_sent_arguments(call)}}


def _is_call(block: Mapping[str, Any]) -> bool:
    return _read_call(block) is not None


def _encode_own_block(block: dict[str, Any], call: ToolCall | None) -> dict[str, Any] | None:
    """A block of an earlier reply, with what goes out of its call; None for what the API refuses: a text
    without words, a block of nothing."""
    if call is None:
        if not any(block.values()) or ("text" in block and not str(block["text"]).strip()):
            return None
        own = block.get("reasoningContent")
        if not isinstance(own, Mapping) or own.get("redactedContent"):
            return block
        text = own.get("reasoningText")
        if not text or "text" in text:
            return block if text else None
        return {"reasoningContent": {"reasoningText": {"text": "", **text}}}
    use = restore_arguments(block["toolUse"], "input", call)
    return {**block, "toolUse": {**use, "toolUseId": call.id, "name": call.name}}


def _encode_user_message(message: Message) -> list[dict[str, Any]]:
    """The blocks of a user message, or the one of a tool result."""
    if message.role != "tool":
        return encode_parts(list_sent_parts(message)) if message.parts else [encode_text(message.content)]
    parts = [encode_part(part) for part in list_sent_parts(message)] if message.parts else []
    result: dict[str, Any] = {
        "toolUseId": message.tool_call_id or "_",
        "content": parts or [encode_text(message.content)],
    }
    if is_failed_result(message):
        result["status"] = "error"
    return [{"toolResult": result}]


def find_unmet_none(choice: ToolChoice, reply: Reply) -> list[str]:
    """A warning if the reply calls a tool although none was to be called, which Bedrock cannot be told."""
    if choice.mode != "none" or not reply.tool_calls:
        return []
    names = ", ".join(sorted({call.name for call in reply.tool_calls}))
    return [f"tool_choice: Bedrock cannot be kept from calling tools, and the reply calls {names}"]


# -- decoding ------------------------------------------------------------------------------------

_ERROR_STATUSES = {
    "validationException": 400,
    "throttlingException": 429,
    "modelTimeoutException": 408,
    "modelStreamErrorException": 424,
    "internalServerException": 500,
    "serviceUnavailableException": 503,
}
"""HTTP statuses of exceptions inside a stream. Source: the shapes in `ConverseStreamOutput`, `error`."""


def classify_stream_error(name: str, value: Any) -> ProviderError:
    """The error for an exception inside a stream, by its name."""
    status = _ERROR_STATUSES.get(name, 500)
    if not isinstance(value, Mapping):
        return classify_http_error(status, str(value))
    message = value.get("message") or value.get("originalMessage") or value.get("Message") or name
    return classify_http_error(status, {"message": message, "code": name})


_KNOWN_KEYS = ("output", "stopReason", "usage")
_KNOWN_COUNTS = (
    *("inputTokens", "outputTokens", "totalTokens", "cacheReadInputTokens", "cacheWriteInputTokens"),
    *("cacheReadInputTokenCount", "cacheWriteInputTokenCount", "serverToolUsage"),
)


def decode_reply(body: Any) -> Reply:
    """The reply of a response body.

    Raises:
        ProviderError: an error body inside a success, or a body that is no message.
    """
    check_object(body, "the answer is not a message")
    output = body.get("output")
    message = output.get("message") if isinstance(output, Mapping) else None
    content = message.get("content") if isinstance(message, Mapping) else None
    if content is None:
        raise build_bad_response_error("the answer has no content")
    blocks, warnings = read_blocks(content, {})
    calls = tuple(_decode_tool_call(use) for use in map(_read_call, blocks) if use is not None)
    word = read_string(body.get("stopReason"))
    text, parts = "".join(text for text in map(read_block_text, blocks) if text), decode_parts(blocks)
    reason = resolve_finish_reason(word, FINISH_WORDS, call_count=len(calls), has_answer=bool(text or parts))
    waiting = describe_waiting(
        key for block in blocks for key in block if key != "toolUse" and is_call_kind(key)
    )
    return Reply(
        content=text or None,
        parts=parts,
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        finish_message=waiting,
        native_reason=word,
        usage=decode_usage(body.get("usage")),
        reasoning="".join(map(_read_reasoning, blocks)) or None,
        provider_data=_build_provider_data(blocks),
        details={**select_others(body, _KNOWN_KEYS), **select_other_counts(body.get("usage"), _KNOWN_COUNTS)}
        or None,
        warnings=(*(() if word in FINISH_WORDS else find_missing_word(word, reason)), *warnings),
    )


def _read_call(block: Mapping[str, Any]) -> Any:
    """The call of a block; None for other blocks, and for tools that the host runs itself."""
    use = block.get("toolUse")
    return None if isinstance(use, Mapping) and use.get("type") else use


def _decode_tool_call(use: Any) -> ToolCall:
    if not isinstance(use, Mapping):
        return refuse_call(use)
    return decode_call(read_string(use.get("toolUseId")) or "", use.get("name"), find_arguments(use))


def _read_reasoning(block: Mapping[str, Any]) -> str:
    content = block.get("reasoningContent")
    inner = content.get("reasoningText") if isinstance(content, Mapping) else None
    return (read_string(inner.get("text")) or "") if isinstance(inner, Mapping) else ""


def _build_provider_data(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The blocks themselves, if text and calls alone would not reproduce them."""
    is_plain = all(set(block) == {"text"} or _read_call(block) is not None for block in blocks)
    texts = ["text" in block for block in blocks]
    if not blocks or (is_plain and sum(texts) <= 1 and not any(texts[1:])):
        return None
    return {"provider": NAME, "content": [dict(block) for block in blocks]}


def decode_usage(wire: Any) -> Usage | None:
    """Token counts. `inputTokens` excludes cached ones, so they are added.

    Sources: docs.aws.amazon.com, Prompt caching: the sum of the three is the whole input; botocore 1.44.5,
    shape `TokenUsage`.
    """
    if not isinstance(wire, Mapping):
        return None
    uncached = read_token_count(wire.get("inputTokens"))
    output = read_output_count(wire)
    cache_reads = read_token_count(wire.get("cacheReadInputTokens"))
    cache_writes = read_token_count(wire.get("cacheWriteInputTokens"))
    # Under another API's name the count is that of the whole input.
    total_input = (
        read_input_count(wire) if uncached is None else uncached + (cache_reads or 0) + (cache_writes or 0)
    )
    details = [row for row in read_mappings(wire.get("cacheDetails")) if row.get("ttl") == "1h"]
    return Usage(
        input=total_input,
        output=output,
        cached=cache_reads,
        cache_write=cache_writes,
        cache_write_1h=sum(read_token_count(row.get("inputTokens")) or 0 for row in details) or None,
        total=None if total_input is None or output is None else total_input + output,
    )
