"""Encode requests for the Responses API, decode its replies (items, finish words, usage), by pure functions.

A response is a list of items: reasoning, messages, calls, and what the host did itself. Calls and text become
the reply. The items are also kept verbatim with the message: the host needs its reasoning back, encrypted or
not, before the results of the calls that followed from it.

Source: openai 3.52.0, `types/responses/`, and recorded traffic.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from toolchart.providers.openai.wire import decode_citation, encode_response_content, read_cost
from toolchart.providers.shared.failures import build_bad_response_error, check_object, classify_error_body
from toolchart.providers.shared.replies import (
    FinishWords,
    add_extra_body,
    describe_waiting,
    find_missing_word,
    is_call_kind,
    is_finish_word,
    join_pieces,
    join_text,
    merge_counts,
    read_blocks,
    read_call_input,
    read_index,
    read_input_count,
    read_mappings,
    read_output_count,
    read_string,
    read_text,
    read_token_count,
    resolve_finish_reason,
    select_other_counts,
    select_others,
)
from toolchart.providers.shared.requests import (
    Origin,
    ToolChoice,
    describe_reply,
    read_tool_choice,
    restore_own_parts,
)
from toolchart.providers.shared.sent_messages import encode_sent_arguments
from toolchart.providers.shared.streamed_calls import (
    StreamedCall,
    StreamedCalls,
    drop_other_arguments,
    find_arguments,
    is_same,
)
from toolchart.providers.transport.encoded_bodies import find_message_parts
from toolchart.states.call_arguments import decode_call, decode_text_call
from toolchart.states.content import (
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    merge_texts,
)
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    Message,
    PartDelta,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    ToolDefinition,
    Usage,
)
from toolchart.states.schema_dialects import OPENAI, OPENAI_STRICT, lower_parameters, lower_strict_parameters

NAME = "openai"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

Item = Mapping[str, Any]

FINISH_WORDS: FinishWords = {
    "completed": "stop",
    "max_output_tokens": "length",
    "incomplete": "length",  # without a reason
    "content_filter": "content_filter",
    **dict.fromkeys(("cancelled", "queued", "in_progress"), "error"),
    **dict.fromkeys(("max_messages", "steered"), "paused"),
}
"""Statuses of a response; for an incomplete response, its reason. One that the host still works on is not
waited for: what it holds is no whole answer. In the last event of a stream these two words say nothing."""

_UNFINISHED = ("queued", "in_progress")


_OPTIONS = ("temperature", "top_p", "service_tier", "metadata")
"""Options that the Responses API spells as we do."""

SUPPORTED_OPTIONS = (
    *_OPTIONS,
    "reasoning_effort",
    "verbosity",
    "logprobs",
    "cache_key",
    "cache_ttl",
    "host_tools",
    "strict_tools",
)

_OWN_CALL_TYPES = ("function_call", "custom_tool_call")
"""Types of calls that we answer. The host's own calls (search, code) already have their results."""

# -- encoding ------------------------------------------------------------------------------------


def encode_request(request: Request, origin: Origin = ANY_HOST) -> dict[str, Any]:
    """The body of `POST /responses`. The API has no `seed` and no `stop`.

    Args:
        origin: where the request goes: data of its own replies goes with it.
    """
    options = request.options
    system = [message.content or "" for message in request.messages if message.role == "system"]
    body: dict[str, Any] = {"model": request.model, "input": _encode_messages(request, origin)}
    if system:
        body["instructions"] = "\n\n".join(system)
    own_tools = options.get("host_tools") or ()
    if request.tools or own_tools:
        is_strict = options.get("strict_tools") is True
        body["tools"] = [*(_encode_tool(tool, is_strict) for tool in request.tools), *own_tools]
    if request.tools:
        choice = read_tool_choice(request)
        if choice is not None:
            body["tool_choice"] = _encode_tool_choice(choice)
        if "parallel_tool_calls" in options:
            body["parallel_tool_calls"] = options["parallel_tool_calls"]
    if "max_tokens" in options:
        body["max_output_tokens"] = options["max_tokens"]
    body |= {name: options[name] for name in _OPTIONS if name in options}
    if "response_format" in options:
        body["text"] = {"format": _encode_response_format(options["response_format"])}
    if "verbosity" in options:
        body["text"] = {**body.get("text", {}), "verbosity": options["verbosity"]}
    if "reasoning_effort" in options:
        body["reasoning"] = {"effort": options["reasoning_effort"]}
    if options.get("logprobs") is not None:
        body |= {"include": ["message.output_text.logprobs"], "top_logprobs": options["logprobs"]}
    if "cache_key" in options:
        body["prompt_cache_key"] = options["cache_key"]
    if "cache_ttl" in options:
        body["prompt_cache_options"] = {"ttl": options["cache_ttl"]}
    return add_extra_body(body, options.get("extra_body"))


def _encode_tool(tool: ToolDefinition, is_strict: bool) -> dict[str, Any]:
    parameters = lower_strict_parameters(tool, OPENAI_STRICT) if is_strict else None
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": lower_parameters(tool, OPENAI) if parameters is None else parameters,
        # Always written: the host's default is strict, which refuses a schema with an optional parameter.
        "strict": parameters is not None,
    }


def _encode_tool_choice(choice: ToolChoice) -> Any:
    if not choice.names:
        return choice.mode
    tools = [{"type": "function", "name": name} for name in choice.names]
    if choice.mode == "required" and len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}


def _encode_response_format(response_format: Any) -> Any:
    """The format with its schema on the top level, where chat completions nest it."""
    is_mapping = isinstance(response_format, Mapping)
    inner = response_format.get("json_schema") if is_mapping else None
    return {"type": "json_schema", **inner} if isinstance(inner, Mapping) else response_format


def _encode_messages(request: Request, origin: Origin) -> list[dict[str, Any]]:
    """The input items of the messages without the system's."""
    message_parts = find_message_parts("responses", origin)
    sent = [message for message in request.messages if message.role != "system"]
    custom_call_ids: set[str] = set()

    def is_custom(message: Message) -> bool:
        """Whether a result answers a call with free text as its input."""
        if message.provider_data:
            custom_call_ids.update(_find_custom_calls(message, origin))
        return message.tool_call_id in custom_call_ids

    def encode(message: Message, is_custom: bool) -> list[dict[str, Any]]:
        return _encode_message(message, origin, is_custom)

    return [item for items in message_parts.collect_parts(sent, encode, is_custom) for item in items]


def _encode_message(message: Message, origin: Origin, is_custom: bool) -> list[dict[str, Any]]:
    """The items of a message.

    Args:
        is_custom: whether it is the result of a call with free text, which has an item type of its own.
    """
    if message.role == "tool":
        call_id = message.tool_call_id or ""
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        return [{"type": kind, "call_id": call_id, "output": encode_response_content(message)}]
    if message.role != "assistant":
        return [{"role": message.role, "content": encode_response_content(message)}]
    return _restore_own_items(message, origin) or _encode_assistant_message(message)


def _find_custom_calls(message: Message, origin: Origin) -> list[str]:
    """The ids of the calls of an earlier reply whose input is free text."""
    items = _restore_own_items(message, origin)
    return [item["call_id"] for item in items if item.get("type") == "custom_tool_call"]


def _is_own_call(item: Item) -> bool:
    return item.get("type") in _OWN_CALL_TYPES


def _restore_own_items(message: Message, origin: Origin) -> list[dict[str, Any]]:
    """The items of an earlier reply of this host and model; empty if they do not match its calls."""
    items = _read_list(origin.get_data(message).get("output"))
    # The API refuses reasoning without the item that it led to, as a reply that was cut leaves it.
    while items and isinstance(items[-1], Mapping) and items[-1].get("type") == "reasoning":
        items = items[:-1]
    return restore_own_parts(items, message.tool_calls, _encode_own_item, _is_own_call) or []


def _encode_own_item(item: dict[str, Any], call: ToolCall | None) -> dict[str, Any]:
    """An item of an earlier reply, with what goes out of its call."""
    if call is None:
        lacks_summary = item.get("type") == "reasoning" and "summary" not in item
        return {**item, "summary": []} if lacks_summary else item
    own = {"call_id": call.id, "name": call.name}
    key = "arguments" if item.get("type") == "function_call" else "input"
    text = (call.arguments or {}).get("input") if key == "input" else None
    own[key] = text if isinstance(text, str) else encode_sent_arguments(call)
    return {**drop_other_arguments(item, key), **own}


def _encode_assistant_message(message: Message) -> list[dict[str, Any]]:
    text = describe_reply(message) if message.parts else message.content
    texts = [{"role": "assistant", "content": text}] if text else []
    return [*texts, *map(_encode_tool_call, message.tool_calls)]


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": encode_sent_arguments(call),
    }


# -- decoding ------------------------------------------------------------------------------------


def decode_reply(body: Any) -> Reply:
    """The reply of a response body, or of the response in a stream's last event.

    Raises:
        ProviderError: a failed response, an error body, or a body that is no response.
    """
    check_object(body, "the answer is not a response")
    if body.get("status") == "failed":
        raise classify_error_body(body)
    items, warnings = _read_items(body)
    calls = tuple(_decode_tool_calls(items))
    refusal = "".join(_list_texts(items, "message", ("refusal",), "refusal")) or None
    word = _read_finish_word(body)
    content, parts = (
        "".join(_list_texts(items, "message", _ANSWER_TYPES, "text")) or None,
        _decode_parts(items),
    )
    reason = resolve_finish_reason(
        word, FINISH_WORDS, call_count=len(calls), has_answer=bool(content or parts), is_refusal=bool(refusal)
    )
    waiting = _find_waiting_calls(items)
    return Reply(
        content=content,
        parts=parts,
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        finish_message=waiting or ("the host has not finished it" if word in _UNFINISHED else None),
        native_reason=word or read_string(body.get("status")),
        usage=_decode_usage(body.get("usage")),
        reasoning=_decode_reasoning(items),
        refusal=refusal,
        model=read_string(body.get("model")),
        response_id=read_string(body.get("id")),
        provider_data=_build_provider_data(items),
        details=_collect_details(body, items) or None,
        warnings=(*find_missing_word(word, reason), *warnings),
    )


_ANSWER_TYPES = ("output_text", "text")
"""Types of the parts of an answer; the second is that of chat completions."""


def _read_items(body: Item) -> tuple[list[Item], tuple[str, ...]]:
    """The items of a response, in whose messages texts are texts, and a warning if one was not.

    Raises:
        ProviderError: there is no output.
    """
    output = body.get("output")
    output = [output] if isinstance(output, str | Mapping) and output else output
    if not isinstance(output, list):
        raise build_bad_response_error("the answer has no output")
    items: list[Item] = []
    warnings: dict[str, None] = {}
    for item in output:
        if isinstance(item, str | int | float):
            item = {"type": "message", "role": "assistant", "content": item}
        if not isinstance(item, Mapping):
            continue
        kind = item.get("type") or ("message" if "content" in item else None)
        if kind == "message" and not _has_plain_texts(item.get("content")):
            parts, odd_texts = read_blocks(item.get("content"), {"type": "output_text"})
            warnings |= dict.fromkeys(odd_texts)
            item = {**item, "type": kind, "content": parts}
        items.append(item)
    answer = body.get("output_text")
    if not items and isinstance(answer, str) and answer:  # the SDKs' short form alone
        items.append({"type": "message", "content": [{"type": "output_text", "text": answer}]})
    return items, tuple(warnings)


def _has_plain_texts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, Mapping) and "type" in part and isinstance(part.get("text", ""), str)
        for part in content
    )


_KNOWN_KEYS = (
    *("id", "object", "created_at", "completed_at", "model", "output", "output_text", "usage"),
    *("status", "error", "incomplete_details"),
)

_ECHOED_KEYS = (
    *("instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "max_tool_calls"),
    *("temperature", "top_p", "top_logprobs", "text", "reasoning", "truncation", "store", "background"),
    *("user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("previous_response_id", "presence_penalty", "frequency_penalty", "prompt"),
)
"""Keys in which the host repeats the request."""

_KNOWN_COUNTS = (
    *("input_tokens", "output_tokens", "total_tokens", "prompt_tokens", "completion_tokens"),
    *("cached_tokens", "reasoning_tokens", "cache_write_tokens", "cost"),
)


def _collect_details(body: Item, items: list[Item]) -> dict[str, Any]:
    """What else the host said: service tier, annotations, log probabilities, ..."""
    messages = [item for item in items if item.get("type") == "message"]
    parts = [part for item in messages for part in _read_list(item.get("content"))]
    texts = [part for part in parts if isinstance(part, Mapping)]
    lists = {
        key: [entry for part in texts for entry in _read_list(part.get(key))]
        for key in ("annotations", "logprobs")
    }
    return {
        **select_others(body, (*_KNOWN_KEYS, *_ECHOED_KEYS)),
        **select_others(lists, ()),
        **select_other_counts(body.get("usage"), _KNOWN_COUNTS),
    }


def _decode_parts(items: list[Item]) -> tuple[ContentPart, ...]:
    """The whole content in order, where it is more than text: what the host did and drew, files that its code
    made, and sources."""
    parts: list[ContentPart] = []
    length = 0
    for item in items:
        if is_host_item(item):
            parts += decode_host_item(item)
        for part in read_mappings(item.get("content")) if item.get("type") == "message" else ():
            if not isinstance(part.get("text"), str):
                continue
            parts.append(TextPart(text=part["text"]))
            parts += [decode_annotation(note, length) for note in read_mappings(part.get("annotations"))]
            length += len(part["text"]) if part.get("type") in _ANSWER_TYPES else 0
    return merge_texts(parts)


def decode_annotation(note: Item, offset: int) -> ContentPart:
    """A source, or a file that code of the host made.

    Source: openai 3.54.0, `types/responses/response_output_text.py`.
    """
    if note.get("type") in ("container_file_citation", "file_path"):
        name = read_string(note.get("filename")) or ""
        return FilePart(file_id=read_string(note.get("file_id")) or "", name=name)
    return decode_citation(note, offset)


_HOST_TOOLS = {
    "code_interpreter_call": "code_execution",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcp",
    "mcp_approval_request": "mcp",
}
"""Our words for items of tools that the host ran; of another item its type without `_call`."""


def is_host_item(item: Item) -> bool:
    """Whether an item is the call of a tool that the host ran itself."""
    kind = str(item.get("type"))
    return kind in _HOST_TOOLS or (kind.endswith("_call") and kind not in _OWN_CALL_TYPES)


def decode_host_item(item: Item) -> list[ContentPart]:
    """What the host did, and the pictures that came of it.

    Source: openai 3.54.0, `types/responses/response_output_item.py`.
    """
    kind = str(item.get("type"))
    action = item.get("action")
    action = action if isinstance(action, Mapping) else {}
    call_input: dict[str, Any] = {
        name: action.get(name, item.get(name))
        for name in ("query", "queries", "url", "pattern", "code")
        if action.get(name, item.get(name))
    }
    if item.get("server_label"):
        arguments = read_call_input(item.get("arguments"))
        name = "list_tools" if kind == "mcp_list_tools" else str(item.get("name") or "")
        call_input |= {"server": item["server_label"], "name": name}
        call_input |= {"arguments": arguments} if arguments else {}
    if item.get("revised_prompt"):
        call_input["prompt"] = item["revised_prompt"]
    outputs = read_mappings(item.get("outputs"))
    logs = "".join(output["logs"] for output in outputs if isinstance(output.get("logs"), str))
    source_rows = [*read_mappings(action.get("sources")), *read_mappings(item.get("results"))]
    is_billed = kind not in ("mcp_list_tools", "mcp_approval_request") and (
        kind != "web_search_call" or action.get("type", "search") == "search"
    )
    parts: list[ContentPart] = [
        HostCallPart(
            tool=_HOST_TOOLS.get(kind, kind.removesuffix("_call")),
            id=read_string(item.get("id")) or "",
            input=call_input,
            output=logs or read_string(item.get("output")) or "",
            sources=tuple(_decode_found(source) for source in source_rows),
            error=_read_item_error(item),
            container=read_string(item.get("container_id")) or "",
            units=int(is_billed),
        )
    ]
    if isinstance(item.get("result"), str) and kind == "image_generation_call":
        media_type = f"image/{read_string(item.get('output_format')) or 'png'}"
        parts.append(ImagePart(data=item["result"], media_type=media_type))
    parts += [ImagePart(url=output["url"]) for output in outputs if isinstance(output.get("url"), str)]
    return parts


def _decode_found(source: Item) -> CitationPart:
    """A page of a search, or a piece of a file."""
    return replace(decode_citation(source), text=read_string(source.get("text")) or "")


def _read_item_error(item: Item) -> str:
    error = item.get("error")
    if isinstance(error, Mapping):
        return str(error.get("message") or error.get("code") or error.get("type") or "failed")
    if item.get("type") == "mcp_approval_request":
        return "approval_required"
    return str(error or ("failed" if item.get("status") in ("failed", "incomplete") else ""))


_WAITING_TYPES = ("computer_call", "shell_call", "local_shell_call", "apply_patch_call")
"""Types of calls that wait for an output of ours, which we do not have. The host may run a shell itself: then
its output stands in the same response. Source: openai 3.54.0, `types/responses/response_output_item.py`."""

_HOST_TYPES = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"),
    "x_search_call",
)
"""Types of calls that the host runs itself."""


def _find_waiting_calls(items: list[Item]) -> str | None:
    """What the host waits for, and nobody does; None where it waits for nothing.

    A call of an unknown type waits if it has a `call_id`, by which an output would name it: calls that the
    host ran itself have none.
    """
    waiting: list[Item] = []
    for item in items:
        kind = str(item.get("type"))
        if kind == "mcp_approval_request":
            call = f"{item.get('name')!r} of the server {item.get('server_label')!r}"
            return f"it waits for an approval of {call}; `trust: trusted` of the host tool `mcp` needs none"
        is_known = kind in _OWN_CALL_TYPES or kind in _HOST_TYPES or item.get("execution") == "server"
        if kind in _WAITING_TYPES or (not is_known and item.get("call_id") and is_call_kind(kind)):
            waiting.append(item)
    if not waiting:
        return None
    answered = [item.get("call_id") for item in items if str(item.get("type")).endswith("_output")]
    return describe_waiting(str(item["type"]) for item in waiting if item.get("call_id") not in answered)


def _read_finish_word(body: Item) -> str | None:
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    status = body.get("status")
    return read_string(reason) or (read_string(status) if is_finish_word(status) else None)


def _decode_tool_calls(items: list[Item]) -> Iterator[ToolCall]:
    for item in items:
        call_id = read_string(item.get("call_id")) or ""
        if item.get("type") == "function_call":
            yield decode_call(call_id, item.get("name"), find_arguments(item))
        elif item.get("type") == "custom_tool_call":  # free-text input
            yield decode_text_call(call_id, item.get("name"), find_arguments(item))


def _list_texts(
    items: list[Item], kind: str, part_kinds: tuple[str, ...], key: str, parts_key: str = "content"
) -> list[str]:
    """The texts of the parts of some kinds in the items of one kind."""
    return [
        part[key]
        for item in items
        if item.get("type") == kind
        for part in _read_list(item.get(parts_key))
        if isinstance(part, Mapping) and part.get("type") in part_kinds
        if isinstance(part.get(key), str)
    ]


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _decode_reasoning(items: list[Item]) -> str | None:
    """The reasoning itself if the host sends it, else its summaries."""
    texts = _list_texts(items, "reasoning", ("reasoning_text",), "text")
    summaries = _list_texts(items, "reasoning", ("summary_text",), "text", parts_key="summary")
    return "".join(texts) or "\n\n".join(summaries) or None


def _build_provider_data(items: list[Item]) -> dict[str, Any] | None:
    """The items themselves, if text and calls alone would not reproduce them."""
    is_plain = all(item.get("type") in ("message", "function_call") and "phase" not in item for item in items)
    return None if is_plain else {"provider": NAME, "output": [dict(item) for item in items]}


def _decode_usage(wire: Any) -> Usage | None:
    """Token counts. Output tokens include the reasoning.

    Source: openai 3.54.0, `types/responses/response_usage.py`.
    """
    if not isinstance(wire, Mapping):
        return None
    output_details = wire.get("output_tokens_details")
    input_details = wire.get("input_tokens_details")
    output_details = output_details if isinstance(output_details, Mapping) else {}
    input_details = input_details if isinstance(input_details, Mapping) else {}
    return Usage(
        input=read_input_count(wire),
        output=read_output_count(wire),
        reasoning=read_token_count(output_details.get("reasoning_tokens")),
        cached=read_token_count(input_details.get("cached_tokens")),
        cache_write=read_token_count(input_details.get("cache_write_tokens")),
        total=read_token_count(wire.get("total_tokens")),
        cost=read_cost(wire),
    )


# -- streams ---------------------------------------------------------------------------------------
# Events say everything twice or more: pieces, the end of a text, of a part, of an item, and last the whole
# response. Some hosts leave out one or the other, so the output is built of all of them: what is later and
# whole counts, what is missing, null or empty erases nothing.


_TERMINAL_EVENTS = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
"""The events that end a response, and the status that they give it."""

_TEXT_EVENTS = {
    "response.output_text": ("content", "output_text", "message"),
    "response.refusal": ("content", "refusal", "message"),
    "response.reasoning_text": ("content", "reasoning_text", "reasoning"),
    "response.reasoning_summary_text": ("summary", "summary_text", "reasoning"),
}
"""By the beginning of their names: the list in which the text stands, the types of its part and item."""

_PART_EVENTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}

_FIELD_EVENTS = {
    "response.function_call_arguments": ("arguments", "function_call"),
    "response.custom_tool_call_input": ("input", "custom_tool_call"),
    "response.mcp_call_arguments": ("arguments", "mcp_call"),
    "response.code_interpreter_call_code": ("code", "code_interpreter_call"),
}
"""By the beginning of their names: the field of an item that comes in pieces, and the type of the item."""

_LISTS = ("content", "summary")


def _fill(older: Mapping[str, Any], newer: Mapping[str, Any]) -> dict[str, Any]:
    """The newer form of an object. What is missing, null or empty there is that of the older one."""
    missing = {
        key: value
        for key, value in older.items()
        if value not in (None, "", [], {}) and newer.get(key) in (None, "", [], {}) and key != "status"
    }
    return {**newer, **missing}


class _Part:
    """One part of a message or of reasoning, as its text grows."""

    __slots__ = ("data", "pieces", "start")

    def __init__(self, kind: str) -> None:
        self.data: dict[str, Any] = {"type": kind}
        self.pieces: list[Any] = []
        self.start = ""
        """The text that it began with, until pieces repeat it, or go on behind it."""

    def get_key(self) -> str:
        """The name of the part's text."""
        return "refusal" if self.data.get("type") == "refusal" else "text"

    def begin(self, part: Mapping[str, Any]) -> None:
        """Take the form with which the part begins: hosts leave its text empty, or say all of it."""
        self.data = _fill(self.data, part)
        text = self.data.pop(self.get_key(), None)
        self.start = text if isinstance(text, str) and not self.pieces else ""

    def add_piece(self, piece: str) -> str:
        """Add a piece to a part that began with text; what to show of it."""
        start, shown = self.start, join_pieces(self.pieces)
        if start.startswith(shown + piece):
            self.pieces.append(piece)
            return piece
        self.start = ""
        if (shown + piece).startswith(start):
            self.pieces.append(piece)
            return piece
        self.pieces = [start, shown, piece]
        return (start + shown + piece)[len(shown) :]

    def read(self) -> Any:
        """The text so far."""
        return self.start or join_pieces(self.pieces)

    def add_whole(self, part: Mapping[str, Any]) -> str:
        """Add a whole form of the part; the text that no piece had."""
        start, self.start = self.start, ""
        if start and not part.get(self.get_key()):
            part = {**part, self.get_key(): start}
        self.data = _fill(self.data, part)
        text, shown = self.data.pop(self.get_key(), None), join_pieces(self.pieces)
        if text is None or text == "" or text == shown:
            return ""
        self.pieces = [text]
        is_longer = isinstance(text, str) and isinstance(shown, str) and text.startswith(shown)
        return text[len(shown) :] if is_longer else read_text(text) if not shown else ""

    def build(self) -> dict[str, Any]:
        """The part of a whole response."""
        key = self.get_key()
        has_text = bool(self.pieces or self.start) or self.data.get("type") in _TEXT_TYPES
        return {**self.data, key: self.read()} if has_text else self.data


_TEXT_TYPES = tuple(kind for _, kind, _ in _TEXT_EVENTS.values())


class _Item:
    """One item of the output as it grows."""

    def __init__(self, position: int, kind: Any) -> None:
        self.position = position
        self.data: dict[str, Any] = {"type": kind}
        self.parts: dict[str, dict[int, _Part]] = {name: {} for name in _LISTS}
        self.last_form: Mapping[str, Any] = {}
        self.fields: dict[str, list[str]] = {}
        """Pieces of fields of a call that the host runs itself."""
        self.call: StreamedCall | None = None
        """The call, if it is one that we answer."""
        self.is_ended = False
        """Whether the host has sent the whole item."""

    def get_part(self, name: str, number: Any, kind: str) -> _Part:
        """A part of a list; a new one where there is none."""
        return self.parts[name].setdefault(read_index(number) or 0, _Part(kind))

    def add_form(self, form: Mapping[str, Any], *, is_end: bool) -> Iterator[tuple[str, str]]:
        """Add a whole form of the item, or the one with which it begins; yields the type and text of its
        parts that no piece had."""
        if is_end:
            if form == self.last_form:
                return
            self.last_form = form
        self.data = _fill(self.data, {key: value for key, value in form.items() if key not in _LISTS})
        for name in _LISTS:
            value = form.get(name)
            entries = value if isinstance(value, list) else [] if value is None else [value]
            parts = [
                entry if isinstance(entry, Mapping) else {"type": "output_text", "text": entry}
                for entry in entries
            ]
            for number, part in enumerate(parts):
                known = self.get_part(name, number, str(part.get("type")))
                if not is_end:
                    known.begin(part)
                elif text := known.add_whole(part):
                    yield str(known.data.get("type")), text
            if any(self.parts[name][number].pieces for number in range(len(entries))):
                self.parts[name] = {number: self.parts[name][number] for number in range(len(entries))}
            elif isinstance(value, list) and not self.parts[name]:
                self.data[name] = value

    def end_parts(self) -> Iterator[tuple[str, str]]:
        """The type and text of parts that say what they began with, and no more."""
        for parts in self.parts.values():
            for number in sorted(parts):
                part = parts[number]
                if part.start and (text := part.add_whole(part.data)):
                    yield str(part.data.get("type")), text

    def build(self) -> dict[str, Any]:
        """The item of a whole response."""
        item = dict(self.data)
        for name, pieces in self.fields.items():
            item[name] = item.get(name) or join_text(pieces)
        if self.call is not None:
            is_custom = item.get("type") == "custom_tool_call"
            key = "input" if is_custom else "arguments"
            arguments = _choose_input(self.call) if is_custom else self.call.build_arguments()
            item = {**drop_other_arguments(item, key), "name": self.call.name, key: arguments}
        for name, parts in self.parts.items():
            if parts:
                item[name] = [parts[number].build() for number in sorted(parts)]
        return item

    def list_texts(self) -> list[str]:
        """The texts of the parts."""
        return [
            read_text(text)
            for parts in self.parts.values()
            for number in sorted(parts)
            if (text := parts[number].read())
        ]

    def is_empty(self) -> bool:
        """Whether the item began, and nothing came."""
        return self.data.get("type") in ("message", "reasoning") and not (
            any(part.read() for parts in self.parts.values() for part in parts.values())
            or self.data.get("encrypted_content")
        )


def _choose_input(call: StreamedCall) -> Any:
    """The free text of a call. Whole forms that differ stay a list, which `decode_text_call` refuses."""
    forms = [form for form in dict.fromkeys(map(read_text, call.whole_forms)) if form]
    return forms[0] if len(forms) == 1 else forms or join_text(call.pieces) or call.stray


class ResponsesAccumulator:
    """Accumulates one streamed response.

    Source: openai 3.52.0, `types/responses/response_stream_event.py`. Hosts that leave out a form: open-webui
    #27789 (`output` is empty), BerriAI/litellm#27144 (arguments in their last event alone), Wei-Shaw/sub2api
    #6629 (the last item has no arguments).
    """

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._items: list[_Item] = []
        self._known: dict[tuple[Any, Any], _Item] = {}
        """The newest item of a type by id, by index, and by nothing."""
        self._lengths: dict[tuple[int, int], int] = {}
        """Characters of the answer so far, by item and part."""
        self._last_part: tuple[Any, _Part, tuple[int, int]] | None = None
        """The part of the last piece of the answer, by what that named it with, and its place."""
        self._calls = StreamedCalls()
        self._part_indexes: dict[Any, int] = {}
        self._shown_parts: dict[tuple[int, int], ContentPart] = {}

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event: text, reasoning and the arguments of calls.

        Raises:
            ProviderError: the event is an error, or no object.
        """
        check_object(event, "the stream has a piece that is not an object")
        return list(self._iterate_deltas(event))

    def _iterate_deltas(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        kind, response = event.get("type"), event.get("response")
        if kind == "response.output_text.delta" and isinstance(event.get("delta"), str):
            yield from self._add_answer(event, event["delta"])
            return
        kind = str(kind)
        stem, _, end = kind.rpartition(".")
        if isinstance(response, Mapping):
            self._usage = merge_counts(self._usage, response.get("usage"))
        if kind in _TERMINAL_EVENTS:
            yield from self._end_response(_TERMINAL_EVENTS[kind], response)
        elif stem == "response.output_item" and isinstance(event.get("item"), Mapping):
            yield from self._add_item(event, event["item"])
        elif stem in _TEXT_EVENTS:
            yield from self._add_text(event, end, *_TEXT_EVENTS[stem])
        elif stem in _FIELD_EVENTS:
            yield from self._add_field(event, end, *_FIELD_EVENTS[stem])
        elif stem in _PART_EVENTS and isinstance(event.get("part"), Mapping):
            part, name = event["part"], _PART_EVENTS[stem]
            owner = "reasoning" if part.get("type") in ("reasoning_text", "summary_text") else "message"
            number = event.get(f"{name}_index")
            known = self._find_item(event, owner).get_part(name, number, str(part.get("type")))
            if end == "added":
                known.begin(part)
            else:
                yield from _build_text_deltas(str(part.get("type")), known.add_whole(part))
        elif isinstance(event.get("partial_image_b64"), str):  # a draft; the item has the picture itself
            item = self._find_item(event, "image_generation_call")
            media_type = f"image/{read_string(event.get('output_format')) or 'png'}"
            picture = ImagePart(data=event["partial_image_b64"], media_type=media_type)
            yield self._build_part_delta((item.position, 1), picture)
        elif isinstance(event.get("annotation"), Mapping):
            yield self._add_annotation(event, event["annotation"])

    def _find_item(self, event: Mapping[str, Any], kind: str) -> _Item:
        """The item that an event belongs to, by its id, by its index, or else the newest of its type."""
        item_id, position = read_string(event.get("item_id")), read_index(event.get("output_index"))
        item = self._known.get((item_id, kind)) if item_id else None
        if item is None:
            item = self._known.get((position, kind))  # without an index the newest
        if item is None:
            newest = self._known.get((None, kind))
            item = newest if newest is not None and not newest.is_ended and not item_id else None
        if item is None:
            item = self._begin_item(position, {"type": kind, **({"id": item_id} if item_id else {})})
        return item

    def _begin_item(self, position: int | None, data: Mapping[str, Any]) -> _Item:
        self._last_part = None
        kind = data.get("type")
        item = _Item(len(self._items) if position is None else position, kind)
        item.data |= {key: value for key, value in data.items() if key not in _LISTS}
        self._items.append(item)
        self._name_item(item, data)
        return item

    def _name_item(self, item: _Item, form: Mapping[str, Any]) -> None:
        """Let an item be found by what a form of it says."""
        kind = read_string(item.data.get("type"))  # a host may send anything
        names = (read_string(form.get("id")), read_string(form.get("call_id")))
        for name in (*filter(None, names), item.position, None):
            self._known[name, kind] = item

    def _match_item(
        self, form: Mapping[str, Any], position: int | None, taken: Collection[int] = ()
    ) -> _Item | None:
        """The item that a whole form is of: by its id, by the id of its call, or by its place and name.

        Args:
            taken: the items, by `id`, that other forms are of.
        """
        kind, name = read_string(form.get("type")), read_string(form.get("name"))
        for key in (read_string(form.get("id")), read_string(form.get("call_id"))):
            item = self._known.get((key, kind)) if key else None
            if item is not None and id(item) not in taken and not _is_other_call(item, form):
                return item
        item = self._known.get((position, kind))  # without an index the newest
        if item is None or id(item) in taken or (item.call and name not in (None, item.call.name or name)):
            return None
        if _is_other_call(item, form):
            return None
        return item

    def _match_anywhere(self, form: Mapping[str, Any], taken: Collection[int]) -> _Item | None:
        """The item that says the same as a form of the last event: hosts count and name them anew there."""
        kind, name = form.get("type"), form.get("name")
        for item in self._items[:-65:-1]:
            if id(item) in taken or item.data.get("type") != kind:
                continue
            if item.call is not None:
                arguments = find_arguments(form)
                known = item.call.build_arguments()
                says_nothing = not arguments or not known or item.call.stray == arguments
                if item.call.name == name and (says_nothing or is_same(arguments, known)):
                    return item
            elif item.list_texts() and item.list_texts() == _read_texts(form):
                return item
        return None

    def _add_item(self, event: Mapping[str, Any], form: Mapping[str, Any]) -> Iterator[Delta]:
        position = read_index(event.get("output_index"))
        is_end = str(event.get("type")).endswith("done")
        item = self._match_item(form, position if is_end else -1)
        has_other_id = (
            item is not None and item.is_ended and form.get("id") not in (None, item.data.get("id"))
        )
        item = None if has_other_id else item
        item = item or self._begin_item(position, {"type": form.get("type")})
        item.is_ended = is_end
        yield from self._add_form(item, form, is_end=is_end)

    def _add_form(self, item: _Item, form: Mapping[str, Any], *, is_end: bool = True) -> Iterator[Delta]:
        """Add a form of an item: the one with which it begins, or a whole one."""
        self._name_item(item, form)
        if form.get("type") in _OWN_CALL_TYPES:
            yield from self._add_call(item, form, is_end)
        for kind, text in item.add_form(form, is_end=is_end):
            yield from _build_text_deltas(kind, text)
        if is_host_item(form):
            for number, part in enumerate(decode_host_item(form)):
                if self._shown_parts.get((item.position, number)) != part:
                    self._shown_parts[item.position, number] = part
                    yield self._build_part_delta((item.position, number), part)

    def _add_call(self, item: _Item, form: Mapping[str, Any], is_end: bool) -> Iterator[Delta]:
        """Add a form of a call; what it has is shown once."""
        arguments = find_arguments(form)
        name, call_id = str(form.get("name") or ""), read_string(form.get("call_id")) or ""
        if item.call is None:
            item.call, deltas = self._calls.add_piece(
                index=item.position, call_id=call_id, name=name, is_start=True
            )
            yield from deltas
        elif name.strip() and name != item.call.name:
            item.call.name = name
            yield CallStarted(index=item.call.index, name=name)
        if is_end or arguments not in ("{}", {}):  # a call may begin with an empty place
            yield from _add_whole_arguments(item.call, arguments)

    def _add_field(self, event: Mapping[str, Any], end: str, name: str, kind: str) -> Iterator[Delta]:
        """Add a piece of a field, or the whole of it."""
        value = event.get("delta") if end == "delta" else event.get(name)
        if kind not in _OWN_CALL_TYPES:
            item = self._find_item(event, kind)
            if end == "delta":
                item.fields.setdefault(name, []).append(read_text(value))
            else:
                item.data = _fill(item.data, {**item.data, name: value})
            return
        item = self._find_call_item(event, kind)
        assert item.call is not None, "it was found by its call"
        if event.get("name") and not item.call.name:
            item.call.name = str(event["name"])
            yield CallStarted(index=item.call.index, name=item.call.name)
        if end != "delta":
            yield from _add_whole_arguments(item.call, find_arguments(event))
        elif value is not None:
            text = item.call.add_arguments(value)
            if text:
                yield CallArguments(index=item.call.index, text=text)

    def _find_call_item(self, event: Mapping[str, Any], kind: str) -> _Item:
        """The item of the call that a piece belongs to: by id, by index, or else the newest open one."""
        item_id, position = read_string(event.get("item_id")), read_index(event.get("output_index"))
        at_place = self._known.get((position, kind)) if position is not None else None
        if at_place is not None and item_id in (None, at_place.data.get("id")):
            return at_place
        found = (self._known.get((item_id, kind)) if item_id else None) or at_place
        if found is not None:
            return found
        calls = [
            item for item in self._items[:-65:-1] if item.call is not None and item.data.get("type") == kind
        ]
        open_calls = (item for item in calls if item.call is not None and not item.call.is_whole())
        item = next(open_calls, calls[0] if calls else None)
        if item is None:
            item = self._begin_item(position, {"type": kind})
            item.call, _ = self._calls.add_piece(index=item.position, is_start=True)
        return item

    def _add_answer(self, event: Mapping[str, Any], text: str) -> Iterator[Delta]:
        """Add a piece of the answer. Most events are such, and most of the part that the last one was of."""
        names = (event.get("output_index"), event.get("item_id"), event.get("content_index"))
        if self._last_part is None or self._last_part[0] != names:
            item, number = self._find_item(event, "message"), read_index(names[2]) or 0
            part = item.get_part("content", number, "output_text")
            self._last_part = (names, part, (item.position, number))
        _, part, place = self._last_part
        if part.start:
            text = part.add_piece(text)
        else:
            part.pieces.append(text)
        if text:
            self._lengths[place] = self._lengths.get(place, 0) + len(text)
            yield TextDelta(text=text)

    def _add_text(
        self, event: Mapping[str, Any], end: str, name: str, kind: str, owner: str
    ) -> Iterator[Delta]:
        item, number = self._find_item(event, owner), event.get(f"{name}_index")
        part, text = item.get_part(name, number, kind), ""
        if end == "done":
            key = part.get_key()
            text = part.add_whole({**part.data, key: event.get(key)})
        elif event.get("delta") is not None:
            text = read_text(event["delta"])
            if part.start:
                text = part.add_piece(text)
            else:
                part.pieces.append(event["delta"])
        if text and kind == "output_text":
            place = (item.position, read_index(number) or 0)
            self._lengths[place] = self._lengths.get(place, 0) + len(text)
        yield from _build_text_deltas(kind, text)

    def _add_annotation(self, event: Mapping[str, Any], note: Item) -> PartDelta:
        item, number = self._find_item(event, "message"), read_index(event.get("content_index")) or 0
        part = item.get_part("content", number, "output_text")
        part.data["annotations"] = [*_read_list(part.data.get("annotations")), note]
        place = (item.position, number)
        offset = sum(length for other, length in self._lengths.items() if other < place)
        name = (item.position, number, event.get("annotation_index"))
        return self._build_part_delta(name, decode_annotation(note, offset))

    def _build_part_delta(self, name: Any, part: ContentPart) -> PartDelta:
        index = self._part_indexes.setdefault(name, len(self._part_indexes))
        return PartDelta(index=index, part=part)

    def _end_response(self, status: str, response: Any) -> Iterator[Delta]:
        """Take the whole response of the last event, and put into its items what they lack."""
        response = response if isinstance(response, Mapping) else {}
        output = response.get("output")
        output = output if isinstance(output, list) else [output] if isinstance(output, Mapping) else []
        streamed, taken = list(self._items), set[int]()
        matches: list[Any] = []
        for position, form in enumerate(output):
            item = self._match_item(form, position, taken) if isinstance(form, Mapping) else None
            matches.append(item)
            taken |= {id(item)} if item is not None else set()
        built: list[tuple[int, int, Any]] = []
        for position, (form, item) in enumerate(zip(output, matches, strict=True)):
            if not isinstance(form, Mapping):
                built.append((position, 1, form))
                continue
            item = item or self._match_anywhere(form, taken)
            if item is None:
                item = self._begin_item(position, {"type": form.get("type")})
            taken.add(id(item))
            yield from self._add_form(item, form)
            built.append((position, 1, item))
        # Items that the last event does not have stand where they came.
        for item in streamed:
            if id(item) not in taken and not (output and item.is_empty()):
                built.append((item.position, 0, item))
                for kind, text in item.end_parts():
                    yield from _build_text_deltas(kind, text)
        items = [item for *_, item in sorted(built, key=lambda entry: entry[:2])]
        earlier = self._response or {}
        if earlier.get("status") not in (None, "completed"):
            status = earlier["status"]  # a later event does not make it whole
        elif is_finish_word(response.get("status")) and response["status"] not in _UNFINISHED:
            status = response["status"]
        self._response = {
            **_fill(earlier, response),
            "status": status,
            "output": [item.build() if isinstance(item, _Item) else item for item in items],
            "usage": self._usage or None,
        }

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        return _decode_usage(self._usage or None)

    def build_body(self, is_done: bool = False) -> Any:
        """The whole response.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut.
        """
        if self._response is None:
            raise build_bad_response_error("the stream ended before the response did")
        return self._response


def _is_other_call(item: _Item, form: Mapping[str, Any]) -> bool:
    """Whether a form repeats the id of an item, and is of another call."""
    call_id, other = read_string(item.data.get("call_id")), read_string(form.get("call_id"))
    return bool(call_id and other) and call_id != other and item.data.get("id") == form.get("id")


def _read_texts(form: Mapping[str, Any]) -> list[str]:
    """The texts of the parts of a whole item."""
    return [
        text
        for name in _LISTS
        for part in read_mappings(form.get(name))
        if (text := read_string(part.get("refusal" if part.get("type") == "refusal" else "text")))
    ]


def _add_whole_arguments(call: StreamedCall, arguments: Any) -> Iterator[Delta]:
    """Add a whole form of a call's arguments; it is shown where nothing was."""
    if arguments is None or arguments == "":
        return
    is_first = not call.has_begun()
    call.add_whole(arguments)
    if is_first and call.has_begun():
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        yield CallArguments(index=call.index, text=text)


def _build_text_deltas(kind: str, text: str) -> Iterator[Delta]:
    if text and kind in ("output_text", "text"):
        yield TextDelta(text=text)
    elif text and kind in ("reasoning_text", "summary_text"):
        yield ReasoningDelta(text=text)
