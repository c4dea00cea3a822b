"""Encode requests for the Responses API, decode its replies (items, finish words, usage), by pure functions.

A response is a list of items: reasoning, messages, calls, and what the host did itself. Calls and text become
the reply. The items are also kept verbatim with the message: the host needs its reasoning back, encrypted or
not, before the results of the calls that followed from it.

Source: openai 3.52.0, `types/responses/`, and recorded traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from toolchart.providers.openai.wire import decode_citation, encode_response_content, read_cost
from toolchart.providers.shared.failures import build_bad_response_error, check_object, classify_error_body
from toolchart.providers.shared.replies import (
    FinishWords,
    add_extra_body,
    parse_arguments,
    read_mappings,
    read_string,
    read_token_count,
    resolve_finish_reason,
    select_other_counts,
    select_others,
)
from toolchart.providers.shared.requests import (
    CallIdForm,
    CallIds,
    Origin,
    ToolChoice,
    describe_reply,
    find_call_ids,
    read_tool_choice,
)
from toolchart.providers.transport.encoded_bodies import find_message_parts
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
    encode_arguments,
)
from toolchart.states.schema_dialects import OPENAI, OPENAI_STRICT, lower_parameters, lower_strict_parameters

NAME = "openai"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

Item = Mapping[str, Any]

FINISH_WORDS: FinishWords = {
    "completed": "stop",
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "cancelled": "error",
    **dict.fromkeys(("queued", "in_progress", "max_messages", "steered"), "paused"),
}
"""Statuses of a response; for an incomplete response, its reason."""


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


def encode_request(
    request: Request, origin: Origin = ANY_HOST, *, id_form: CallIdForm | None = None
) -> dict[str, Any]:
    """The body of `POST /responses`. The API has no `seed` and no `stop`.

    Args:
        origin: where the request goes: data of its own replies goes with it.
        id_form: the form of ids of calls; None: they go out as they are.
    """
    options = request.options
    system = [message.content or "" for message in request.messages if message.role == "system"]
    body: dict[str, Any] = {"model": request.model, "input": _encode_messages(request, origin, id_form)}
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


def _encode_messages(request: Request, origin: Origin, id_form: CallIdForm | None) -> list[dict[str, Any]]:
    """The input items of the messages without the system's."""
    message_parts = find_message_parts("responses", origin)
    sent = [message for message in request.messages if message.role != "system"]
    find_ids = find_call_ids(sent, id_form)
    custom_call_ids: set[str] = set()

    def choose_variant(message: Message) -> tuple[bool, CallIds] | None:
        """Whether a result answers a call with free text as its input, and the ids that differ."""
        if message.provider_data:
            custom_call_ids.update(_find_custom_calls(message, origin))
        is_custom = message.tool_call_id in custom_call_ids
        ids = find_ids(message) if find_ids is not None else None
        return (is_custom, ids) if is_custom or ids else None

    def encode(message: Message, variant: tuple[bool, CallIds] | None) -> list[dict[str, Any]]:
        is_custom, ids = variant or (False, None)
        return _encode_message(message, origin, is_custom, dict(ids or ()))

    return [item for items in message_parts.collect_parts(sent, encode, choose_variant) for item in items]


def _encode_message(
    message: Message, origin: Origin, is_custom: bool, ids: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The items of a message.

    Args:
        is_custom: whether it is the result of a call with free text, which has an item type of its own.
        ids: ids of calls that go out in another form.
    """
    if message.role == "tool":
        call_id = ids.get(message.tool_call_id or "", message.tool_call_id or "")
        kind = "custom_tool_call_output" if is_custom else "function_call_output"
        return [{"type": kind, "call_id": call_id, "output": encode_response_content(message)}]
    if message.role != "assistant":
        return [{"role": message.role, "content": encode_response_content(message)}]
    return _restore_own_items(message, origin) or _encode_assistant_message(message, ids)


def _find_custom_calls(message: Message, origin: Origin) -> list[str]:
    """The ids of the calls of an earlier reply whose input is free text."""
    items = _read_list(origin.get_data(message).get("output"))
    custom_items = [item for item in items if _read_type(item) == "custom_tool_call"]
    is_sent = bool(custom_items) and bool(_restore_own_items(message, origin))
    return [str(item.get("call_id")) for item in custom_items if is_sent]


def _read_type(item: Any) -> Any:
    return item.get("type") if isinstance(item, Mapping) else None


def _restore_own_items(message: Message, origin: Origin) -> list[dict[str, Any]]:
    """The items of an earlier reply of this host and model; empty if they do not match its calls."""
    items = _read_list(origin.get_data(message).get("output"))
    call_ids = {str(item.get("call_id")) for item in items if _read_type(item) in _OWN_CALL_TYPES}
    has_same_calls = call_ids == {call.id for call in message.tool_calls}
    return [dict(item) for item in items] if has_same_calls else []


def _encode_assistant_message(message: Message, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    text = describe_reply(message) if message.parts else message.content
    texts = [{"role": "assistant", "content": text}] if text else []
    return [*texts, *(_encode_tool_call(call, ids) for call in message.tool_calls)]


def _encode_tool_call(call: ToolCall, ids: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": ids.get(call.id, call.id),
        "name": call.name,
        "arguments": encode_arguments(call),
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
    output = body.get("output")
    if not isinstance(output, list):
        raise build_bad_response_error("the answer has no output")
    items = [item for item in output if isinstance(item, Mapping)]
    calls = tuple(_decode_tool_calls(items))
    refusal = "".join(_list_texts(items, "message", "refusal", "refusal")) or None
    word = _read_finish_word(body)
    return Reply(
        content="".join(_list_texts(items, "message", "output_text", "text")) or None,
        parts=_decode_parts(items),
        tool_calls=calls,
        finish_reason=resolve_finish_reason(
            word, FINISH_WORDS, call_count=len(calls), is_refusal=bool(refusal)
        ),
        native_reason=word,
        usage=_decode_usage(body.get("usage")),
        reasoning=_decode_reasoning(items),
        refusal=refusal,
        model=read_string(body.get("model")),
        response_id=read_string(body.get("id")),
        provider_data=_build_provider_data(items),
        details=_collect_details(body, items) or None,
        warnings=_find_approval_requests(items),
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
    *("input_tokens", "output_tokens", "total_tokens"),
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
            length += len(part["text"]) if part.get("type") == "output_text" else 0
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
        arguments, _ = parse_arguments(str(item.get("arguments") or ""))
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


def _find_approval_requests(items: list[Item]) -> tuple[str, ...]:
    """A warning for each call of a remote server that the host does not make without an approval."""
    return tuple(
        f"the host wants an approval before it calls {item.get('name')!r} of the server "
        f"{item.get('server_label')!r}, and did not call it; `trust: trusted` of the host tool `mcp` lets it"
        for item in items
        if item.get("type") == "mcp_approval_request"
    )


def _read_finish_word(body: Item) -> str | None:
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    return read_string(reason or body.get("status"))


def _decode_tool_calls(items: list[Item]) -> Iterator[ToolCall]:
    for item in items:
        name, call_id = str(item.get("name") or ""), str(item.get("call_id") or "")
        if item.get("type") == "function_call":
            raw = item.get("arguments")
            raw = raw if isinstance(raw, str) else ""
            arguments, problem = parse_arguments(raw)
            yield ToolCall(id=call_id, name=name, arguments=arguments, raw=raw, problem=problem)
        elif item.get("type") == "custom_tool_call":  # free-text input
            yield ToolCall(id=call_id, name=name, arguments={"input": item.get("input")})


def _list_texts(
    items: list[Item], kind: str, part_kind: str, key: str, parts_key: str = "content"
) -> list[str]:
    """The texts of the parts of one kind in the items of one kind."""
    return [
        part[key]
        for item in items
        if item.get("type") == kind
        for part in _read_list(item.get(parts_key))
        if isinstance(part, Mapping) and part.get("type") == part_kind
        if isinstance(part.get(key), str)
    ]


def _read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _decode_reasoning(items: list[Item]) -> str | None:
    """The reasoning itself if the host sends it, else its summaries."""
    texts = _list_texts(items, "reasoning", "reasoning_text", "text")
    summaries = _list_texts(items, "reasoning", "summary_text", "text", parts_key="summary")
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
        input=read_token_count(wire.get("input_tokens")),
        output=read_token_count(wire.get("output_tokens")),
        reasoning=read_token_count(output_details.get("reasoning_tokens")),
        cached=read_token_count(input_details.get("cached_tokens")),
        cache_write=read_token_count(input_details.get("cache_write_tokens")),
        total=read_token_count(wire.get("total_tokens")),
        cost=read_cost(wire),
    )


# -- streams ---------------------------------------------------------------------------------------
# The last event holds the whole response, so nothing has to be joined. Some hosts leave its `output` empty;
# then the items of the `response.output_item.done` events are the output.


_TERMINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesAccumulator:
    """Accumulates one streamed response.

    Source: openai 3.52.0, `types/responses/response_stream_event.py`.
    """

    def __init__(self) -> None:
        self._response: Any = None
        self._call_indexes: dict[int, int] = {}
        self._items: dict[int, Any] = {}
        self._part_indexes: dict[Any, int] = {}
        self._lengths: dict[tuple[int, Any], int] = {}
        """Characters of the texts so far, by place."""

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event: text, reasoning and the arguments of calls.

        Raises:
            ProviderError: the event is an error, or no object.
        """
        check_object(event, "the stream has a piece that is not an object")
        return list(self._iterate_deltas(event))

    def _iterate_deltas(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        kind, text = event.get("type"), event.get("delta")
        if kind in _TERMINAL_EVENTS:
            self._response = event.get("response") or {}
        item = event.get("item")
        item = item if isinstance(item, Mapping) else {}
        position = event.get("output_index")
        position = position if isinstance(position, int) else len(self._items)
        if kind == "response.output_item.done" and item:
            self._items[position] = item
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            index = self._call_indexes[position] = len(self._call_indexes)
            yield CallStarted(index=index, name=str(item.get("name") or ""))
        elif kind in ("response.output_item.added", "response.output_item.done") and is_host_item(item):
            for number, part in enumerate(decode_host_item(item)):
                yield self._build_part_delta((position, number), part)
        picture, note = event.get("partial_image_b64"), event.get("annotation")
        if isinstance(picture, str):  # a draft; the item has the picture itself
            media_type = f"image/{read_string(event.get('output_format')) or 'png'}"
            yield self._build_part_delta((position, 1), ImagePart(data=picture, media_type=media_type))
        place = (position, event.get("content_index") or 0)
        if isinstance(note, Mapping):
            offset = sum(length for key, length in self._lengths.items() if key < place)
            name = (*place, event.get("annotation_index"))
            yield self._build_part_delta(name, decode_annotation(note, offset))
        if not isinstance(text, str) or not text:
            return
        if kind == "response.output_text.delta":
            self._lengths[place] = self._lengths.get(place, 0) + len(text)
            yield TextDelta(text=text)
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            yield ReasoningDelta(text=text)
        elif kind == "response.function_call_arguments.delta":
            yield CallArguments(index=self._call_indexes.get(position, 0), text=text)

    def _build_part_delta(self, name: Any, part: ContentPart) -> PartDelta:
        index = self._part_indexes.setdefault(name, len(self._part_indexes))
        return PartDelta(index=index, part=part)

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted: only its last event says so."""
        return _decode_usage(self._response.get("usage")) if isinstance(self._response, Mapping) else None

    def build_body(self, is_done: bool = False) -> Any:
        """The response of the terminal event.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut.
        """
        if self._response is None:
            raise build_bad_response_error("the stream ended before the response did")
        response = self._response
        if self._items and isinstance(response, Mapping) and not response.get("output"):
            output = [self._items[position] for position in sorted(self._items)]
            return {**response, "output": output}
        return response
