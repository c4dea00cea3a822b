"""Encode Gemini requests and decode its replies (parts, finish words, usage), by pure functions.

Both are the JSON of the REST interface. The SDK's typed layer is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from toolchart.providers.shared.choices import is_one_reply
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    FinishWords,
    PartCollector,
    add_extra_body,
    choose_finish_word,
    describe_waiting,
    find_missing_word,
    is_call_kind,
    is_finish_word,
    join_text,
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
    list_media,
    list_sent_parts,
    read_tool_choice,
    restore_own_parts,
)
from toolchart.providers.shared.sent_messages import read_sent_arguments, restore_arguments
from toolchart.providers.shared.streamed_calls import ARGUMENT_KEYS, find_arguments
from toolchart.providers.transport.encoded_bodies import EncodedObject, find_message_parts, join_groups
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import (
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    decode_media,
    describe_part,
)
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.schema_dialects import GEMINI, lower_parameters

# -- content parts ---------------------------------------------------------------------------------


def encode_part(part: SentPart) -> dict[str, Any]:
    """One part of a content. Source: google-genai 3.4.0, `types.Part`, `Blob` and `FileData`."""
    if isinstance(part, TextPart):
        return {"text": part.text or " "}
    if part.url:
        file = {"fileUri": part.url}
        return {"fileData": {"mimeType": part.media_type, **file} if part.media_type else file}
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}


def decode_parts(parts: Sequence[Mapping[str, Any]], candidate: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """The whole content in order, where it is more than text: pictures, sounds, what the host did itself, and
    the pages it rests on."""
    collector = PartCollector()
    for part in parts:
        collect_part(collector, part)
    collect_notes(collector, parts, candidate)
    return collector.build()


_HOST_TOOLS = {
    "GOOGLE_SEARCH_WEB": "web_search",
    "GOOGLE_SEARCH_IMAGE": "web_search",
    "URL_CONTEXT": "web_fetch",
    "FILE_SEARCH": "file_search",
}
"""Our words for `toolType`. Source: google-genai 3.4.0, `types.ToolType`."""


def collect_part(collector: PartCollector, part: Mapping[str, Any]) -> None:
    """Add one part of a reply. Pictures of its thoughts are none of the answer.

    Source: google-genai 3.4.0, `types.Part`.
    """
    if part.get("thought"):
        return
    blob, file = part.get("inlineData"), part.get("fileData")
    code, outcome = part.get("executableCode"), part.get("codeExecutionResult")
    call, response = part.get("toolCall"), part.get("toolResponse")
    if isinstance(part.get("text"), str):
        collector.add_text(part["text"])
    elif isinstance(blob, Mapping) and isinstance(blob.get("data"), str):
        media_type = read_string(blob.get("mimeType")) or "application/octet-stream"
        collector.add_part(decode_media(blob["data"], media_type))
    elif isinstance(file, Mapping) and read_string(file.get("fileUri")):
        media_type = read_string(file.get("mimeType")) or ""
        kinds: dict[str, type[ImagePart | AudioPart]] = {"image": ImagePart, "audio": AudioPart}
        kind = kinds.get(media_type.partition("/")[0], FilePart)
        collector.add_part(kind(url=file["fileUri"], media_type=media_type))
    elif isinstance(code, Mapping):
        # Without an id a result belongs to the code before it.
        id_ = read_string(code.get("id")) or ""
        call_input = {"code": code.get("code"), "language": str(code.get("language") or "").lower()}
        collector.begin_call(HostCallPart(tool="code_execution", id=id_, input=call_input), id_ or "code")
    elif isinstance(outcome, Mapping):
        word = read_string(outcome.get("outcome")) or ""
        error = "" if word in ("", "OUTCOME_OK") else word
        id_ = read_string(outcome.get("id")) or ""
        output = read_string(outcome.get("output")) or ""
        collector.add_call(
            HostCallPart(tool="code_execution", id=id_, output=output, error=error), id_ or "code"
        )
    elif isinstance(call, Mapping):
        collector.add_call(_decode_host_call(call, input=read_call_input(call.get("args"))))
    elif isinstance(response, Mapping):
        output = json.dumps(_read_mapping(response.get("response")), ensure_ascii=False)
        collector.add_call(_decode_host_call(response, output=output))


def _decode_host_call(wire: Mapping[str, Any], **fields: Any) -> HostCallPart:
    kind = str(wire.get("toolType") or "tool")
    tool = _HOST_TOOLS.get(kind, kind.lower())
    return HostCallPart(tool=tool, id=read_string(wire.get("id")) or "", **fields)


def _read_mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def collect_notes(
    collector: PartCollector, parts: Sequence[Mapping[str, Any]], candidate: Mapping[str, Any]
) -> None:
    """Add what a candidate says beside its content: searches, fetched pages, and the sources of the answer.

    Source: google-genai 3.4.0, `types.GroundingMetadata`, `UrlContextMetadata` and `CitationMetadata`.
    """
    grounding = _read_mapping(candidate.get("groundingMetadata"))
    chunks = [_decode_chunk(chunk) for chunk in read_mappings(grounding.get("groundingChunks"))]
    queries = grounding.get("webSearchQueries")
    if isinstance(queries, list) and queries:
        search = {"queries": [str(query) for query in queries]}
        sources = tuple(chunk for chunk in chunks if chunk.url)
        collector.add_part(HostCallPart(tool="web_search", input=search, sources=sources, units=len(queries)))
    fetched = _read_mapping(candidate.get("urlContextMetadata"))
    for page in read_mappings(fetched.get("urlMetadata")):
        status = str(page.get("urlRetrievalStatus") or "").removeprefix("URL_RETRIEVAL_STATUS_")
        error = "" if status in ("", "SUCCESS") else status.lower()
        address = {"url": page.get("retrievedUrl")}
        collector.add_part(HostCallPart(tool="web_fetch", input=address, error=error))
    used: set[int] = set()
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
    for support in read_mappings(grounding.get("groundingSupports")):
        start, end = _find_segment(_read_mapping(support.get("segment")), texts)
        indices = support.get("groundingChunkIndices")
        for index in indices if isinstance(indices, list) else ():
            if isinstance(index, int) and 0 <= index < len(chunks):
                used.add(index)
                collector.add_part(replace(chunks[index], start=start, end=end))
    for index, chunk in enumerate(chunks):
        if index not in used:
            collector.add_part(chunk)
    cited = _read_mapping(candidate.get("citationMetadata"))
    for source in read_mappings(cited.get("citationSources") or cited.get("citations")):
        start, end = _find_segment(source, texts)
        url, title = read_string(source.get("uri")) or "", read_string(source.get("title")) or ""
        collector.add_part(CitationPart(url=url, title=title, start=start, end=end))


def _decode_chunk(chunk: Mapping[str, Any]) -> CitationPart:
    """A page, a piece of a document, or a place on the map."""
    page = next((value for value in chunk.values() if isinstance(value, Mapping)), {})
    url, title = read_string(page.get("uri")), read_string(page.get("title"))
    return CitationPart(url=url or "", title=title or "", text=read_string(page.get("text")) or "")


def _find_segment(segment: Mapping[str, Any], texts: Sequence[str]) -> tuple[int | None, int | None]:
    """Where a segment stands in the answer, in characters; nothing where that is not sure.

    The host counts bytes of UTF-8, in one part or, when it streams, in all of them so far.
    """
    start, end = read_token_count(segment.get("startIndex")) or 0, read_token_count(segment.get("endIndex"))
    words, answer = segment.get("text"), "".join(texts)
    number = read_token_count(segment.get("partIndex")) or 0
    if end is None or not 0 <= start < end:
        return None, None
    places = [(0, answer)]
    if 0 <= number < len(texts):
        places.append((len("".join(texts[:number])), texts[number]))
    for offset, text in places:
        data = text.encode("utf-8", "surrogatepass")
        before, inside = (piece.decode("utf-8", "replace") for piece in (data[:start], data[start:end]))
        if end <= len(data) and (words is None or words == inside):
            return offset + len(before), offset + len(before) + len(inside)
    if isinstance(words, str) and words and answer.count(words) == 1:
        return answer.index(words), answer.index(words) + len(words)
    return None, None


# -- options ---------------------------------------------------------------------------------------


_OPTIONS = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
"""Our option names and those of `generationConfig`."""

SUPPORTED_OPTIONS = (
    *_OPTIONS,
    "stop",
    "reasoning_effort",
    "thinking_budget",
    "logprobs",
    "host_tools",
    "safety_settings",
)


def encode_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The request's part of `generationConfig`."""
    config = {wire: options[name] for name, wire in _OPTIONS.items() if options.get(name) is not None}
    stop = options.get("stop")
    if stop:
        config["stopSequences"] = [stop] if isinstance(stop, str) else list(stop)
    if options.get("logprobs") is not None:
        config |= {"responseLogprobs": True, "logprobs": options["logprobs"]}
    thinking = _encode_thinking(options.get("reasoning_effort"), options.get("thinking_budget"))
    if thinking:
        config["thinkingConfig"] = thinking
    return {**config, **_encode_response_format(options.get("response_format"))}


def _encode_thinking(effort: str | None, budget: int | None) -> dict[str, Any]:
    """`thinkingConfig`: levels are for Gemini 3, budgets for 2.5."""
    if effort == "none":
        return {"thinkingBudget": 0}
    level = {"thinkingLevel": effort.upper()} if effort else {}
    return {
        **level,
        **({"thinkingBudget": budget, "includeThoughts": budget > 0} if budget is not None else {}),
    }


def _encode_response_format(response_format: Any) -> dict[str, Any]:
    if not isinstance(response_format, Mapping) or response_format.get("type") == "text":
        return {}
    wire: dict[str, Any] = {"responseMimeType": "application/json"}
    schema = response_format.get("json_schema")
    if isinstance(schema, Mapping) and "schema" in schema:
        wire["responseJsonSchema"] = schema["schema"]
    return wire


NAME = "gemini"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

FINISH_WORDS: FinishWords = MappingProxyType(
    {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        **dict.fromkeys(
            (
                "SAFETY",
                "RECITATION",
                "LANGUAGE",
                "BLOCKLIST",
                "PROHIBITED_CONTENT",
                "SPII",
                "IMAGE_SAFETY",
                "IMAGE_PROHIBITED_CONTENT",
                "IMAGE_RECITATION",
                "MODEL_ARMOR",
                "ESCALATION",
                "PUP_LIMITED_DISABLED",
            ),
            "content_filter",
        ),
        **dict.fromkeys(("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"), "malformed_call"),
        **dict.fromkeys(
            (
                "TOO_MANY_TOOL_CALLS",
                "MISSING_THOUGHT_SIGNATURE",
                "MALFORMED_RESPONSE",
                "OTHER",
                "IMAGE_OTHER",
                "NO_IMAGE",
            ),
            "error",
        ),
        "CONTINUATION": "paused",
        **{"1": "stop", "2": "length", "3": "content_filter", "4": "content_filter", "5": "error"},
    }
)
"""Finish words and their meaning; Vertex may send a number instead of the name (recorded).
Sources: google-genai 3.4.0, `types.FinishReason`; Vertex's `content.proto`."""

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Sent with a call whose thought signature belongs to another model, or that another host's model made:
Gemini 3 refuses a call without one.
Source: ai.google.dev, Thought signatures, FAQ on transferring a trace from a different model."""

_NEEDS_SIGNATURE = re.compile(r"gemini-[3-9]")
"""Models that refuse a call without a thought signature."""


# -- encoding ------------------------------------------------------------------------------------


def encode_request(request: Request, origin: Origin = ANY_HOST) -> dict[str, Any]:
    """The body of `generateContent`; the `model` in it belongs to the path.

    Source: google-genai 3.4.0, `models.py`, `_GenerateContentParameters_to_mldev`.

    Args:
        origin: where the request goes: data of its own replies goes with it.
    """
    options = request.options
    contents: list[dict[str, Any]] = [*encode_messages(request.messages, origin)]
    if not contents:  # only system messages: the API refuses empty contents, and accepts an empty text
        contents.append({"role": "user", "parts": [{"text": ""}]})
    body: dict[str, Any] = {"model": request.model, "contents": contents}
    system = [m.content for m in request.messages if m.role == "system" and m.content]
    if system:
        body["systemInstruction"] = {"role": "user", "parts": [{"text": "\n\n".join(system)}]}
    own_tools = options.get("host_tools") or ()
    # One Tool with all declarations: the REST interface reads only the first one that has any.
    functions = [{"functionDeclarations": list(map(_encode_tool, request.tools))}] if request.tools else []
    if functions or own_tools:
        body["tools"] = [*functions, *own_tools]
    if options.get("safety_settings"):
        body["safetySettings"] = [
            {"category": category, "threshold": threshold}
            for category, threshold in options["safety_settings"].items()
        ]
    if request.tools:
        choice = read_tool_choice(request)
        if choice is not None:
            body["toolConfig"] = {"functionCallingConfig": _encode_tool_choice(choice)}
    config = encode_options(options)
    return add_extra_body({**body, "generationConfig": config} if config else body, options.get("extra_body"))


def _encode_tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": lower_parameters(tool, GEMINI),
    }


def _encode_tool_choice(choice: ToolChoice) -> dict[str, Any]:
    """`AUTO` accepts no names, so an optional choice among some tools is `VALIDATED`.

    Source: google-genai 3.4.0, `types.py`, `FunctionCallingConfigMode`.
    """
    modes = {"auto": "VALIDATED" if choice.names else "AUTO", "none": "NONE", "required": "ANY"}
    wire: dict[str, Any] = {"mode": modes[choice.mode]}
    if choice.names:
        wire["allowedFunctionNames"] = list(choice.names)
    return wire


def encode_messages(messages: Sequence[Message], origin: Origin = ANY_HOST) -> list[EncodedObject]:
    """The conversation as contents; adjacent tool results share one user content, in order."""
    message_parts = find_message_parts(NAME, origin)

    def encode(message: Message, native_id: str | None) -> list[dict[str, Any]]:
        return [_encode_message(message, native_id, origin)]

    native_ids: dict[str, str | None] = {}

    def find_native_id(message: Message) -> str | None:
        for call in message.tool_calls:
            native_ids[call.id] = call.native_id
        return native_ids.get(message.tool_call_id) if message.tool_call_id else None

    groups: list[list[EncodedObject]] = []
    is_after_result = False
    sent = [message for message in messages if message.role != "system"]
    for message, (content,) in zip(
        sent, message_parts.collect_parts(sent, encode, find_native_id), strict=True
    ):
        is_result = message.role == "tool"
        if is_after_result and is_result:
            groups[-1].append(content)
        else:
            groups.append([content])
        is_after_result = is_result
    return join_groups(groups, "parts")


def _encode_message(message: Message, native_id: str | None, origin: Origin) -> dict[str, Any]:
    """The content of a message.

    Args:
        native_id: for a tool result, the host's own id of its call.
    """
    if message.role == "assistant":
        return _encode_assistant_message(message, origin)
    if message.role == "tool":
        result = _encode_tool_result(message, native_id)
        media = list_media(message, reads_files=False) if message.parts else []
        return {"role": "user", "parts": [result, *map(encode_part, media)]}
    if message.parts:
        return {"role": "user", "parts": list(map(encode_part, list_sent_parts(message, reads_files=False)))}
    # The API refuses an empty part, so an empty message becomes a blank one.
    return {"role": "user", "parts": [{"text": message.content or " "}]}


def _encode_assistant_message(message: Message, origin: Origin) -> dict[str, Any]:
    own_content = origin.get_data(message).get("content")
    own = own_content if isinstance(own_content, Mapping) else {}
    # Gemini 3 refuses a call that comes back without its thought signature.
    own_parts = restore_own_parts(own.get("parts"), message.tool_calls, _encode_own_call, _is_call)
    if own_parts:
        return {**own, "role": "model", "parts": own_parts}
    calls = [_encode_tool_call(call) for call in message.tool_calls]
    is_foreign = (message.provider_data or {}).get("provider") == NAME
    if calls and (is_foreign or _NEEDS_SIGNATURE.search(origin.model)):
        calls[0]["thoughtSignature"] = FOREIGN_SIGNATURE
    parts: list[dict[str, Any]] = (
        list(map(_encode_own_part, list_sent_parts(message, reads_files=False)))
        if message.parts
        else [{"text": message.content}]
        if message.content
        else []
    )
    parts += calls
    return {"role": "model", "parts": parts or [{"text": " "}]}


def _encode_own_part(part: SentPart) -> dict[str, Any]:
    """A part of a reply of another host; in words where its bytes are only there, or of no known type."""
    if isinstance(part, TextPart) or part.url or (part.data and part.media_type):
        return encode_part(part)
    return {"text": describe_part(part)}


def _is_call(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("functionCall"), Mapping)


_BESIDE_DATA = {"thoughtSignature", "thought", "videoMetadata", "mediaResolution", "partMetadata"}
"""Keys of a part beside the one with its data, without which the API refuses it."""


def _encode_own_call(part: dict[str, Any], call: ToolCall | None) -> dict[str, Any] | None:
    """A part of an earlier reply, with what goes out of its call; None for an empty part, which the API
    refuses."""
    if call is None:
        is_empty = not any(value or key != "text" for key, value in part.items())
        # A signature has no place of its own: it stands beside a text, which may be empty.
        return None if is_empty else part if part.keys() - _BESIDE_DATA else {**part, "text": ""}
    own: Mapping[str, Any] = part["functionCall"]
    if call.problem or call.arguments or ARGUMENT_KEYS & own.keys():
        own = restore_arguments(own, "args", call)
    ids = {"id": call.native_id} if own.get("id") and call.native_id else {}
    return {**part, "functionCall": {**own, **ids, "name": call.name}}


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": call.name, "args": read_sent_arguments(call)}
    if call.native_id:
        wire["id"] = call.native_id
    return {"functionCall": wire}


def _encode_tool_result(message: Message, native_id: str | None) -> dict[str, Any]:
    wire: dict[str, Any] = {"name": message.name, "response": _encode_outcome(message.content)}
    if native_id:
        wire["id"] = native_id
    return {"functionResponse": wire}


def _encode_outcome(content: str | None) -> dict[str, Any]:
    """`{"output": ...}` or `{"error": ...}`, the two keys to which Gemini gives a meaning."""
    try:
        result = parse_foreign_json(content or "")
    except ValueError:
        return {"output": content}
    if isinstance(result, dict) and result.get("success") is True:
        return {"output": result.get("result")}
    if isinstance(result, dict) and result.get("success") is False:
        return {"error": result.get("error")}
    return {"output": result}


# -- decoding ------------------------------------------------------------------------------------


def decode_reply(body: Any) -> Reply:
    """The reply of a response body, in the spelling of the REST interface.

    Raises:
        ProviderError: an error body, or neither a candidate nor a block reason.
    """
    check_object(body, "the answer is not a generateContent response")
    candidates = body.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        return _decode_blocked_reply(body)
    candidates, join_warnings = _join_candidates(candidates)
    candidate = _read_mapping(candidates[0])
    parts, text_warnings = read_blocks(list_parts(candidate), {})
    calls = _decode_tool_calls(part["functionCall"] for part in parts if part.get("functionCall"))
    word = read_finish_word(candidate.get("finishReason"))
    content, content_parts = _join_texts(parts, is_thought=False), decode_parts(parts, candidate)
    reason = resolve_finish_reason(
        word, FINISH_WORDS, call_count=len(calls), has_answer=bool(content or content_parts)
    )
    waiting = describe_waiting(
        key for part in parts for key in part if key not in _CALL_KEYS and is_call_kind(key)
    )
    return Reply(
        content=content,
        parts=content_parts,
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        native_reason=word,
        finish_message=waiting or read_string(candidate.get("finishMessage")),
        usage=decode_usage(body.get("usageMetadata")),
        reasoning=_join_texts(parts, is_thought=True),
        model=read_string(body.get("modelVersion")),
        response_id=read_string(body.get("responseId")),
        provider_data=_build_provider_data(parts),
        details=_collect_details(body, candidates) or None,
        warnings=(
            *_collect_warnings(candidates),
            *find_missing_word(word, reason),
            *text_warnings,
            *join_warnings,
        ),
    )


_CALL_KEYS = ("functionCall", "toolCall")
"""Keys of parts that are calls: ours, and those that the host runs itself."""


def describe_kind(parts: Sequence[Any]) -> tuple[bool, int]:
    """Whether parts have text or other content, and how many calls there are among them."""
    call_count = sum(isinstance(part, Mapping) and bool(part.get("functionCall")) for part in parts)
    thought_count = sum(isinstance(part, Mapping) and bool(part.get("thought")) for part in parts)
    return len(parts) > call_count + thought_count, call_count


def list_parts(candidate: Mapping[str, Any]) -> Any:
    """The parts of a candidate; a text or a part may stand in the place of the list, or of the content."""
    content = candidate.get("content")
    if not isinstance(content, Mapping) or "text" in content:
        return content
    return content.get("parts")


def _join_candidates(candidates: list[Any]) -> tuple[list[Any], tuple[str, ...]]:
    """The candidates, of which the first is the reply, and a warning if there are several (`choices.py`)."""
    count = len(candidates)
    if count < 2:
        return candidates, ()
    lists = [read_blocks(list_parts(_read_mapping(candidate)), {})[0] for candidate in candidates]
    if not is_one_reply(list(map(describe_kind, lists))):
        return candidates, (f"the host sent {count} candidates; the first is the reply",)
    word = None
    for candidate in candidates:
        later = read_finish_word(_read_mapping(candidate).get("finishReason"))
        word = choose_finish_word(word, later, FINISH_WORDS)
    parts = [part for parts in lists for part in parts]
    joined = {
        **_read_mapping(candidates[0]),
        "content": {"role": "model", "parts": parts},
        "finishReason": word,
    }
    return [joined], (f"the host sent its reply in {count} candidates; they are joined",)


_KNOWN_KEYS = {
    "body": ("candidates", "usageMetadata", "modelVersion", "responseId", "createTime"),
    "candidate": ("content", "finishReason", "index", "finishMessage"),
}
"""Keys that the reply has elsewhere; the time is the event's."""

_KNOWN_COUNTS = (
    *("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    *("thoughtsTokenCount", "cachedContentTokenCount"),
)


def _collect_details(body: Mapping[str, Any], candidates: list[Any]) -> dict[str, Any]:
    """What else the host said: grounding, citations, safety ratings, other candidates, ..."""
    return {
        **select_others(body, _KNOWN_KEYS["body"]),
        **select_others(candidates[0] if candidates else None, _KNOWN_KEYS["candidate"]),
        **select_other_counts(body.get("usageMetadata"), _KNOWN_COUNTS),
        **({"other_candidates": candidates[1:]} if len(candidates) > 1 else {}),
    }


def _collect_warnings(candidates: list[Any]) -> tuple[str, ...]:
    """The message of the first candidate."""
    message = candidates[0].get("finishMessage") if isinstance(candidates[0], Mapping) else None
    return (str(message),) if message else ()


_NO_WORD = "FINISH_REASON_UNSPECIFIED"
"""The default of the field, which says nothing."""


def read_finish_word(value: Any) -> str | None:
    """Why a candidate ended; None where nothing says so."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    word = str(value) if is_number else read_string(value)
    return word if word and is_finish_word(word) and word.upper() not in (_NO_WORD, "0") else None


def _decode_blocked_reply(body: Mapping[str, Any]) -> Reply:
    """The reply of a body without candidates: the prompt was blocked, and the feedback has the reason."""
    feedback = body.get("promptFeedback")
    reason = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
    if reason is None:
        raise build_bad_response_error("the answer has no candidates")
    return Reply(
        finish_reason="content_filter",
        native_reason=str(reason),
        details=_collect_details(body, []) or None,
        usage=decode_usage(body.get("usageMetadata")),
        model=read_string(body.get("modelVersion")),
        response_id=read_string(body.get("responseId")),
    )


def _join_texts(parts: Sequence[Mapping[str, Any]], *, is_thought: bool) -> str | None:
    texts = [
        part["text"]
        for part in parts
        if isinstance(part.get("text"), str) and bool(part.get("thought")) is is_thought
    ]
    return join_text(texts) or None


def _decode_tool_calls(wires: Iterable[Any]) -> tuple[ToolCall, ...]:
    """The calls. Each has an id of its own, also where the host gave one to several."""
    calls: dict[str, ToolCall] = {}
    for number, call in enumerate(map(_decode_tool_call, wires)):
        if call.native_id in calls:
            call = replace(call, native_id=f"{call.native_id}-{number}")
        calls[call.native_id or f"{number} without an id"] = call
    return tuple(calls.values())


def _decode_tool_call(wire: Any) -> ToolCall:
    if not isinstance(wire, Mapping):
        return refuse_call(wire)
    native_id = read_string(wire.get("id"))
    if wire.get("willContinue") or "partialArgs" in wire:
        # Only Vertex does so, and only on request. We request whole calls and never run a partial one.
        return ToolCall(
            id=native_id or "",
            name=str(wire.get("name") or ""),
            raw=json.dumps(dict(wire)),
            native_id=native_id,
            problem="the call came in pieces (partialArgs), which are not read",
        )
    return replace(decode_call(native_id or "", wire.get("name"), find_arguments(wire)), native_id=native_id)


def _build_provider_data(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The content itself, if text and calls alone would not reproduce it."""
    is_plain = all(set(part) in ({"text"}, {"functionCall"}) for part in parts)
    if is_plain or not parts:
        return None
    return {"provider": NAME, "content": {"parts": [dict(part) for part in parts]}}


def decode_usage(wire: Any) -> Usage | None:
    """Token counts. `candidatesTokenCount` excludes the thoughts, so they are added to the output;
    `promptTokenCount` excludes what tools of the host found and the model read, so it is added to the input.

    Source: google-genai 3.4.0, `types.py`, `GenerateContentResponseUsageMetadata`.
    """
    if not isinstance(wire, Mapping):
        return None
    thoughts = read_token_count(wire.get("thoughtsTokenCount"))
    candidates, prompt = read_output_count(wire), read_input_count(wire)
    tool_use = read_token_count(wire.get("toolUsePromptTokenCount"))
    has_input = prompt is not None or tool_use is not None
    has_output = candidates is not None or thoughts is not None
    return Usage(
        input=(prompt or 0) + (tool_use or 0) if has_input else None,
        output=(candidates or 0) + (thoughts or 0) if has_output else None,
        reasoning=thoughts,
        cached=read_token_count(wire.get("cachedContentTokenCount")),
        total=read_token_count(wire.get("totalTokenCount", wire.get("total_tokens"))),
    )
