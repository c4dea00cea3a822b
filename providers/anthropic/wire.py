"""Encode Anthropic requests and decode its replies (parts, finish words, usage), by pure functions.

Source: the API reference (platform.claude.com, `Create a Message`), version 2023-06-01.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from toolchart.providers.shared.failures import build_bad_response_error, check_object
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
    read_plain_text,
    read_tool_choice,
    refuse_part,
    restore_own_parts,
    select_offered_tools,
)
from toolchart.providers.shared.sent_messages import EMPTY_TEXT, read_sent_arguments, restore_arguments
from toolchart.providers.shared.streamed_calls import find_arguments
from toolchart.providers.transport.encoded_bodies import EncodedObject, find_message_parts, join_roles
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
)
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.schema_dialects import (
    ANTHROPIC,
    ANTHROPIC_STRICT,
    lower_parameters,
    lower_strict_parameters,
)

# -- content blocks --------------------------------------------------------------------------------


def encode_text(content: str | None) -> dict[str, Any]:
    """The block of a text; a blank one has words in its place."""
    return {"type": "text", "text": content if content and content.strip() else EMPTY_TEXT}


def encode_part(part: SentPart, *, cites_documents: bool = False) -> dict[str, Any]:
    """One block of a user message or of a result. The API takes no sound. Text files are documents, as PDF
    files are, so that the model can cite both.

    Source: the API reference, `ImageBlockParam` and `DocumentBlockParam`; anthropic 2.12.0,
    `types/document_block_param.py`, `types/plain_text_source_param.py`.

    Args:
        cites_documents: whether the answer is to name its places in the documents.
    """
    match part:
        case TextPart():
            return encode_text(part.text)
        case AudioPart():
            raise refuse_part(part, "Anthropic", "send it to a host that takes sound")
    text = read_plain_text(part)
    if part.url:
        source = {"type": "url", "url": part.url}
    elif text is not None:
        source = {"type": "text", "media_type": "text/plain", "data": text if text.strip() else EMPTY_TEXT}
    else:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if isinstance(part, ImagePart):
        return {"type": "image", "source": source}
    if part.data and text is None and part.media_type != "application/pdf":
        raise refuse_part(part, "Anthropic", "it takes PDF and text files")
    title = {"title": part.name} if part.name else {}
    citations = {"citations": {"enabled": True}} if cites_documents else {}
    return {"type": "document", "source": source, **title, **citations}


def decode_parts(blocks: Sequence[Mapping[str, Any]]) -> tuple[ContentPart, ...]:
    """The texts with their sources, what the host did itself, and files that its code made."""
    collector = PartCollector()
    for block in blocks:
        collect_block(collector, block)
    return collector.build()


_HOST_TOOLS = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
}
"""Our words for tools of the host; the others have ours.
Source: anthropic 2.12.0, `server_tool_use_block.py`."""


def collect_block(collector: PartCollector, block: Mapping[str, Any]) -> None:
    """Add the parts of one block of a reply."""
    kind = str(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        start = collector.length
        collector.add_text(block["text"])
        for source in read_mappings(block.get("citations")):
            collector.add_part(_decode_citation(source, start, collector.length))
    elif kind in ("server_tool_use", "mcp_tool_use"):
        name = str(block.get("name") or "")
        call_input = read_call_input(block.get("input"))
        if kind == "mcp_tool_use":
            call_input = {"server": block.get("server_name"), "name": name, "arguments": call_input}
        elif "command" in call_input:
            call_input["code"] = call_input.pop("command")
        tool = "mcp" if kind == "mcp_tool_use" else _HOST_TOOLS.get(name, name)
        collector.add_call(HostCallPart(tool=tool, id=str(block.get("id") or ""), input=call_input))
    elif kind.endswith("_tool_result") and kind != "tool_result":
        _collect_result(collector, kind.removesuffix("_tool_result"), block)


def _collect_result(collector: PartCollector, name: str, block: Mapping[str, Any]) -> None:
    """Add what became of a call of the host; it may have been made in an earlier reply.

    Source: anthropic 2.12.0, `web_search_tool_result_block.py`, `code_execution_tool_result_block.py` and
    their neighbours. A search that failed is not billed (platform.claude.com, Web search tool).
    """
    content = block.get("content")
    inner = content if isinstance(content, Mapping) else {}
    entries = read_mappings(content) or read_mappings(inner.get("content"))
    error = read_string(inner.get("error_code")) or ("failed" if block.get("is_error") is True else "")
    texts = [inner.get("stdout"), inner.get("stderr"), *(entry.get("text") for entry in entries)]
    pages = [entry for entry in (*entries, inner) if entry.get("url")]
    tool = _HOST_TOOLS.get(name, name)
    collector.add_call(
        HostCallPart(
            tool=tool,
            id=str(block.get("tool_use_id") or ""),
            output="".join(text for text in texts if isinstance(text, str)),
            sources=tuple(_decode_found(entry) for entry in pages),
            error=error or ("" if inner.get("return_code") in (0, None) else f"exit {inner['return_code']}"),
            units=int(tool == "web_search" and not error),
        )
    )
    for entry in entries:
        if isinstance(entry.get("file_id"), str):
            collector.add_part(FilePart(file_id=entry["file_id"]))


def _decode_found(entry: Mapping[str, Any]) -> CitationPart:
    """A page that a tool of the host found or fetched."""
    page = entry.get("content")
    title = read_string(entry.get("title")) or (page.get("title") if isinstance(page, Mapping) else "")
    return CitationPart(url=str(entry.get("url")), title=str(title or ""))


def _decode_citation(source: Mapping[str, Any], start: int, end: int) -> CitationPart:
    """A source of a text. Source: anthropic 2.12.0, `text_citation.py`."""
    return CitationPart(
        url=read_string(source.get("url")) or read_string(source.get("source")) or "",
        title=read_string(source.get("title")) or read_string(source.get("document_title")) or "",
        text=read_string(source.get("cited_text")) or "",
        file_id=read_string(source.get("file_id")) or "",
        start=start,
        end=end,
    )


NAME = "anthropic"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

FINISH_WORDS: FinishWords = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
        "pause_turn": "paused",
    }
)
"""Source: the Messages interface, `stop_reason` (anthropic 2.11.0, `types/stop_reason.py`)."""

DEFAULT_MAX_TOKENS = 4096
"""Sent if the request has no `max_tokens`: the API requires a number."""

_OPTIONS = {name: name for name in ("temperature", "top_p", "top_k", "service_tier", "metadata")}
"""Our option names and the API's."""

SUPPORTED_OPTIONS = (
    *_OPTIONS,
    "stop",
    "reasoning_effort",
    "thinking_budget",
    "cache_ttl",
    "host_tools",
    "strict_tools",
)


# -- encoding ------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    *,
    stream: bool = False,
    origin: Origin = ANY_HOST,
    thinking: Mapping[str, Any] | None = None,
    cites_documents: bool = False,
) -> dict[str, Any]:
    """The body of `POST /v1/messages`.

    Args:
        origin: where the request goes: data of its own replies goes with it.
        thinking: the entry's `thinking`.
        cites_documents: the entry's `citations`.

    Raises:
        ProviderError: `bad_request`; the budget of thinking leaves no tokens for the answer.
    """
    options = request.options
    thinking = choose_thinking(request, thinking)
    system = [m.content for m in request.messages if m.role == "system" and m.content]
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": _choose_max_tokens(options.get("max_tokens"), thinking),
        "messages": encode_messages(request.messages, origin, cites_documents=cites_documents),
        **{wire: options[name] for name, wire in _OPTIONS.items() if options.get(name) is not None},
    }
    if thinking:
        body["thinking"] = dict(thinking)
    container = _find_container(request, origin) if options.get("host_tools") else None
    if container:
        body["container"] = container
    if options.get("cache_ttl"):
        # On top, it marks the last block that can be cached.
        # Source: anthropic 2.12.0, `message_create_params.py`.
        body["cache_control"] = {"type": "ephemeral", "ttl": options["cache_ttl"]}
    if stream:
        body["stream"] = True
    if system:
        body["system"] = "\n\n".join(system)
    stop = options.get("stop")
    if stop:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    output = _encode_response_format(options.get("response_format"))
    if options.get("reasoning_effort") is not None:
        output["effort"] = options["reasoning_effort"]
    body.update(_encode_tools(request), **({"output_config": output} if output else {}))
    return add_extra_body(body, options.get("extra_body"))


def _find_container(request: Request, origin: Origin) -> str | None:
    """The container in which code of this conversation ran last, so that it goes on with its files.

    Source: platform.claude.com, Code execution tool, Container reuse.
    """
    containers = (
        origin.get_data(m).get("container") for m in reversed(request.messages) if m.role == "assistant"
    )
    return next((container for container in containers if isinstance(container, str)), None)


def choose_thinking(request: Request, thinking: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The `thinking` of a request: its own budget, else that of the entry."""
    budget = request.options.get("thinking_budget")
    if budget is None:
        return thinking
    return {"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"}


def reserve_thinking(request: Request, thinking: Mapping[str, Any] | None) -> Request:
    """The request with tokens for the budget of thinking and for the answer, where it does not say how many.

    Said before the budget itself may be left out: the model thinks all the same.

    Raises:
        ProviderError: `bad_request`; the budget leaves no tokens for the answer.
    """
    most = _choose_max_tokens(request.options.get("max_tokens"), thinking)
    if most == (request.options.get("max_tokens") or DEFAULT_MAX_TOKENS):
        return request
    return replace(request, options={**request.options, "max_tokens": most})


def _choose_max_tokens(max_tokens: int | None, thinking: Mapping[str, Any] | None) -> int:
    """The tokens of thinking and answer together. Source: platform.claude.com, Extended thinking."""
    budget = read_token_count((thinking or {}).get("budget_tokens")) or 0
    if not max_tokens:
        return budget + DEFAULT_MAX_TOKENS
    if budget >= max_tokens:
        raise ProviderError(
            kind="bad_request",
            message=f"thinking: budget_tokens ({budget}) must be less than max_tokens ({max_tokens}), "
            "which counts thinking and answer together",
        )
    return max_tokens


def _encode_tools(request: Request) -> dict[str, Any]:
    """The keys `tools` and `tool_choice`.

    The API can require one named tool. A choice among several is expressed by offering only those.
    """
    choice = read_tool_choice(request) or ToolChoice()
    offered_tools = select_offered_tools(choice, request.tools, ANTHROPIC)
    own_tools = request.options.get("host_tools") or ()
    if not offered_tools:
        return {"tools": list(own_tools)} if own_tools else {}
    is_strict = request.options.get("strict_tools") is True
    tools = [_encode_tool(tool, is_strict) for tool in offered_tools]
    tools += own_tools
    wire_choice = _encode_tool_choice(choice)
    if request.options.get("parallel_tool_calls") is False and choice.mode != "none":
        wire_choice["disable_parallel_tool_use"] = True
    is_default = wire_choice == {"type": "auto"}
    return {"tools": tools} if is_default else {"tools": tools, "tool_choice": wire_choice}


def _encode_tool(tool: ToolDefinition, is_strict: bool) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": tool.name, "description": tool.description}
    parameters = lower_strict_parameters(tool, ANTHROPIC_STRICT) if is_strict else None
    if parameters is not None:
        return {**wire, "input_schema": parameters, "strict": True}
    return {**wire, "input_schema": lower_parameters(tool, ANTHROPIC)}


def _encode_tool_choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.required_name:
        return {"type": "tool", "name": choice.required_name}
    return {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}


def _encode_response_format(response_format: Any) -> dict[str, Any]:
    """`output_config` of a schema; the API has no JSON without a schema (the client warns of it)."""
    inner = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    if not isinstance(inner, Mapping) or "schema" not in inner:
        return {}
    return {"format": {"type": "json_schema", "schema": inner["schema"]}}


def encode_messages(
    messages: Sequence[Message], origin: Origin = ANY_HOST, *, cites_documents: bool = False
) -> list[EncodedObject]:
    """The conversation without system messages.

    Adjacent messages of one role become one: tool results share a user message with the user's next text.
    """
    message_parts = find_message_parts(NAME, origin, cites_documents)

    def encode(message: Message, _: None) -> list[dict[str, Any]]:
        return [_encode_message(message, origin, cites_documents)]

    sent = [message for message in messages if message.role != "system"]
    parts = message_parts.collect_parts(sent, encode)
    return join_roles((wire for (wire,) in parts), "content")


def _encode_message(message: Message, origin: Origin, cites_documents: bool) -> dict[str, Any]:
    is_own = message.role == "assistant"
    blocks = _encode_reply(message, origin) if is_own else _encode_user_message(message, cites_documents)
    return {"role": "assistant" if is_own else "user", "content": blocks}


def _encode_reply(message: Message, origin: Origin) -> list[dict[str, Any]]:
    content = origin.get_data(message).get("content")
    own_blocks = restore_own_parts(content, message.tool_calls, _encode_own_block, _is_call)
    if own_blocks and own_blocks[-1].get("type") in _PROOFS:
        own_blocks.append(encode_text(None))  # the API refuses a message that ends with thinking
    return encode_reply_blocks(message, own_blocks, encode_text=encode_text, encode_call=_encode_tool_call)


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": read_sent_arguments(call)}


_PROOFS = {"thinking": "signature", "redacted_thinking": "data"}
"""By the type of a block of thinking: the key without which the API refuses it."""


def _is_call(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _encode_own_block(block: dict[str, Any], call: ToolCall | None) -> dict[str, Any] | None:
    """A block of an earlier reply, with what goes out of its call; None for what the API refuses: a text
    without words, thinking whose signature or data did not come."""
    if call is None:
        kind = block.get("type")
        is_blank = kind == "text" and not str(block.get("text") or "").strip()
        if is_blank or (kind in _PROOFS and not block.get(_PROOFS[kind])):
            return None
        return {**block, "thinking": ""} if kind == "thinking" and "thinking" not in block else block
    return {**restore_arguments(block, "input", call), "id": call.id, "name": call.name}


def _encode_user_message(message: Message, cites_documents: bool) -> list[dict[str, Any]]:
    """The blocks of a user message, or the one of a tool result."""
    sent = list_sent_parts(message, reads_files=False) if message.parts else []
    parts = [encode_part(part, cites_documents=cites_documents) for part in sent]
    if message.role != "tool":
        return parts if message.parts else [encode_text(message.content)]
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id or "_",
        "content": parts or message.content or "",
    }
    if is_failed_result(message):
        block["is_error"] = True
    return [block]


# -- decoding ------------------------------------------------------------------------------------

_KNOWN_KEYS = ("id", "type", "role", "model", "content", "stop_reason", "usage", "error")
_KNOWN_COUNTS = (
    *("input_tokens", "output_tokens", "thinking_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
)


def decode_reply(body: Any) -> Reply:
    """The reply of a response body.

    Raises:
        ProviderError: an error body inside a success, or a body that is no message.
    """
    check_object(body, "the answer is not a message")
    if body.get("content") is None:
        raise build_bad_response_error("the answer has no content")
    blocks, warnings = read_blocks(body["content"], TEXT_BLOCK)
    calls = tuple(_decode_tool_call(block) for block in blocks if block.get("type") == "tool_use")
    word, content, parts = (
        read_string(body.get("stop_reason")),
        _join_texts(blocks, "text"),
        decode_parts(blocks),
    )
    reason = resolve_finish_reason(
        word, FINISH_WORDS, call_count=len(calls), has_answer=bool(content or parts)
    )
    waiting = describe_waiting(kind for kind in map(_read_kind, blocks) if _is_unknown_call(kind))
    return Reply(
        content=content,
        parts=parts,
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        finish_message=waiting,
        native_reason=word,
        usage=decode_usage(body.get("usage")),
        reasoning=_join_texts(blocks, "thinking"),
        model=read_string(body.get("model")),
        response_id=read_string(body.get("id")),
        provider_data=_build_provider_data(blocks, body.get("container")),
        details={**select_others(body, _KNOWN_KEYS), **select_other_counts(body.get("usage"), _KNOWN_COUNTS)}
        or None,
        warnings=(*(() if word in FINISH_WORDS else find_missing_word(word, reason)), *warnings),
    )


CALL_KINDS = ("tool_use", "server_tool_use", "mcp_tool_use")
"""Types of blocks that are calls: ours, and those that the host runs itself."""


def _read_kind(block: Mapping[str, Any]) -> str:
    return str(block.get("type"))


def _is_unknown_call(kind: str) -> bool:
    """Whether a type of block asks for something that nobody here knows."""
    return kind not in CALL_KINDS and is_call_kind(kind)


TEXT_BLOCK: Mapping[str, Any] = {"type": "text"}
"""A block of text without its text."""


def _join_texts(blocks: Sequence[Mapping[str, Any]], kind: str) -> str | None:
    """The text of all blocks of a kind; the key of the text is the kind's name."""
    texts = [block.get(kind) for block in blocks if block.get("type") == kind]
    return "".join(text for text in texts if isinstance(text, str)) or None


def _decode_tool_call(block: Mapping[str, Any]) -> ToolCall:
    return decode_call(read_string(block.get("id")) or "", block.get("name"), find_arguments(block))


def _build_provider_data(blocks: Sequence[Mapping[str, Any]], container: Any) -> dict[str, Any] | None:
    """The blocks themselves, if text and calls alone would not reproduce them, and the container of code."""
    name = read_string(container.get("id")) if isinstance(container, Mapping) else None
    is_plain = all(set(block) == {"type", "text"} or block.get("type") == "tool_use" for block in blocks)
    kinds = [block.get("type") for block in blocks]
    if not blocks or (is_plain and kinds.count("text") <= 1 and "text" not in kinds[1:]):
        return None
    data = {"provider": NAME, "content": [dict(block) for block in blocks]}
    return {**data, "container": name} if name else data


def decode_usage(wire: Any) -> Usage | None:
    """Token counts. `input_tokens` excludes cached ones, so they are added; output includes thinking.

    Source: anthropic 2.12.0, `types/usage.py`, `types/cache_creation.py`.
    """
    if not isinstance(wire, Mapping):
        return None
    uncached = read_token_count(wire.get("input_tokens"))
    output = read_output_count(wire)
    cache_reads = read_token_count(wire.get("cache_read_input_tokens"))
    cache_writes = read_token_count(wire.get("cache_creation_input_tokens"))
    lifetimes = wire.get("cache_creation")
    lifetimes = lifetimes if isinstance(lifetimes, Mapping) else {}
    details = wire.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, Mapping) else None
    # Under another API's name the count is that of the whole input.
    total_input = (
        read_input_count(wire) if uncached is None else uncached + (cache_reads or 0) + (cache_writes or 0)
    )
    return Usage(
        input=total_input,
        output=output,
        reasoning=read_token_count(thinking),
        cached=cache_reads,
        cache_write=cache_writes,
        cache_write_1h=read_token_count(lifetimes.get("ephemeral_1h_input_tokens")) or None,
        total=None if total_input is None or output is None else total_input + output,
    )
