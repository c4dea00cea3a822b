"""Encode chat-completions requests and decode the replies (calls, finish words, usage), by pure functions.

Compatible hosts (DeepSeek, Mistral, OpenRouter, ...) are decoded here too, with their deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from toolchart.providers.shared.choices import is_one_reply
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.host_rows import EchoReasoning
from toolchart.providers.shared.replies import (
    FinishWords,
    add_extra_body,
    add_separate_reasoning,
    choose_finish_word,
    describe_waiting,
    find_finish_reason,
    find_missing_word,
    find_odd_texts,
    is_call_kind,
    list_call_entries,
    read_call_input,
    read_function,
    read_input_count,
    read_mappings,
    read_output_count,
    read_string,
    read_text,
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
    describe_reply,
    leave_out_nulls,
    list_media,
    list_sent_parts,
    read_tool_choice,
    refuse_part,
)
from toolchart.providers.shared.sent_messages import encode_sent_arguments
from toolchart.providers.shared.streamed_calls import find_arguments
from toolchart.providers.transport.encoded_bodies import EncodedObject, find_message_parts
from toolchart.states.call_arguments import decode_call, decode_text_call
from toolchart.states.content import (
    SENT_AUDIO_TYPES,
    AudioPart,
    CitationPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    add_text,
    build_data_url,
    encode_chat_part,
    find_sound_type,
    split_data_url,
)
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.schema_dialects import OPENAI, OPENAI_STRICT, lower_parameters, lower_strict_parameters

# -- content parts, also those of the Responses API ------------------------------------------------


Item = Mapping[str, Any]

# -- chat completions ----------------------------------------------------------------------------


def encode_part(part: SentPart) -> dict[str, Any]:
    """One part of a user message.

    Raises:
        ProviderError: `bad_request`; chat completions take no such part.
    """
    if isinstance(part, AudioPart) and (not part.data or part.media_type not in SENT_AUDIO_TYPES):
        raise refuse_part(part, "chat completions", "send the bytes of a WAV or MP3 file")
    if isinstance(part, FilePart) and not part.data:
        raise refuse_part(part, "chat completions", "files are sent as bytes, not by address")
    return encode_chat_part(part)


def encode_tool_media(message: Message) -> list[dict[str, Any]]:
    """A message of the user with the pictures and files of a result: results are text here."""
    media = list_media(message) if message.parts else []
    if not media:
        return []
    title = TextPart(text=f"What {message.name} returned with its result ({message.tool_call_id}):")
    return [{"role": "user", "content": [encode_part(part) for part in (title, *media)]}]


def read_transcript(message: Mapping[str, Any]) -> str | None:
    """The words of a spoken answer."""
    audio = message.get("audio")
    return read_string(audio.get("transcript")) if isinstance(audio, Mapping) else None


def decode_media(message: Mapping[str, Any]) -> tuple[ContentPart, ...]:
    """What the host did itself (Groq), pictures (OpenRouter's `images`), the spoken answer, what stands among
    the texts of a list of parts (Mistral), and the sources of a message.

    Source: openai 3.54.0, `chat_completion_message.py` (`audio`, `annotations`); openrouter.ai, Image
    generation; docs.mistral.ai, Connectors (`tool_reference`, `tool_file`).
    """
    parts: list[ContentPart] = [*map(decode_executed_tool, _merge_executed(message))]
    parts += [part for image in read_mappings(message.get("images")) for part in decode_picture(image)]
    audio = message.get("audio")
    if isinstance(audio, Mapping) and isinstance(audio.get("data"), str) and audio["data"]:
        parts.append(decode_sound(audio, audio["data"]))
    parts += [part for piece in read_mappings(message.get("content")) for part in decode_content_piece(piece)]
    return (*parts, *map(decode_citation, read_annotations(message)))


def decode_picture(image: Mapping[str, Any]) -> list[ContentPart]:
    """The picture of `{"image_url": {"url": ...}}`, of which Mistral writes the inner object as a text."""
    address = image.get("image_url")
    url = address.get("url") if isinstance(address, Mapping) else address
    if not isinstance(url, str) or not url:
        return []
    data = split_data_url(url)
    return [ImagePart(media_type=data[0], data=data[1]) if data else ImagePart(url=url)]


def decode_sound(audio: Mapping[str, Any], data: str) -> AudioPart:
    """The spoken answer. Its format is the request's, and the reply does not repeat it."""
    return AudioPart(data=data, media_type=find_sound_type(data), file_id=read_string(audio.get("id")) or "")


def _merge_executed(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Groq's `executed_tools`; a stream sends one before and after it ran, with one index."""
    merged: dict[Any, dict[str, Any]] = {}
    for tool in read_mappings(message.get("executed_tools")):
        merged.setdefault(tool.get("index"), {}).update(select_others(tool, ()))
    return list(merged.values())


_EXECUTED_TOOLS = {
    "search": "web_search",
    "browser_search": "web_search",
    "visit": "web_fetch",
    "visit_website": "web_fetch",
    "python": "code_execution",
    "code_interpreter": "code_execution",
}
"""Our words for what Groq runs. Source: console.groq.com, Built-in tools; groq 0.33, `ExecutedTool`."""


def decode_executed_tool(tool: Mapping[str, Any]) -> HostCallPart:
    """One entry of Groq's `executed_tools`."""
    kind, results = str(tool.get("type") or "tool"), tool.get("search_results")
    result_rows = read_mappings(results.get("results")) if isinstance(results, Mapping) else []
    return HostCallPart(
        tool=_EXECUTED_TOOLS.get(kind, kind),
        input=read_call_input(tool.get("arguments")),
        output="" if result_rows else str(tool.get("output") or ""),
        sources=tuple(map(decode_citation, result_rows)),
        units=1,
    )


def decode_content_piece(piece: Mapping[str, Any]) -> list[ContentPart]:
    """The part of a piece of a content that is neither text nor thinking."""
    match piece.get("type"):
        case "image_url":
            return decode_picture(piece)
        case "tool_reference":
            return [decode_citation(piece)]
        case "tool_file":
            kind, name = read_string(piece.get("file_type")), read_string(piece.get("file_name"))
            media_type = f"image/{kind}" if kind in ("png", "jpeg", "webp", "gif") else ""
            part_class = ImagePart if media_type.startswith("image/") else FilePart
            file_id = read_string(piece.get("file_id")) or ""
            return [part_class(file_id=file_id, media_type=media_type, name=name or "")]
    return []


def read_annotations(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sources among the annotations of a message."""
    notes = read_mappings(message.get("annotations"))
    citations = (note.get("url_citation") for note in notes)
    return [citation for citation in citations if isinstance(citation, Mapping)]


def decode_citation(source: Mapping[str, Any], offset: int = 0) -> CitationPart:
    """A source with address, title, words, file and the text that rests on it.

    Args:
        offset: where the part of the text begins in which the source counts.
    """
    start, end = read_token_count(source.get("start_index")), read_token_count(source.get("end_index"))
    has_place = start is not None and end is not None and 0 <= start < end
    return CitationPart(
        url=read_string(source.get("url")) or "",
        title=read_string(source.get("title")) or read_string(source.get("filename")) or "",
        text=read_string(source.get("content")) or "",
        file_id=read_string(source.get("file_id")) or "",
        start=start + offset if has_place and start is not None else None,
        end=end + offset if has_place and end is not None else None,
    )


def decode_listed_sources(body: Mapping[str, Any]) -> tuple[CitationPart, ...]:
    """The sources that stand beside the choices: Perplexity's `search_results`, and lists of addresses
    (`citations`: Perplexity, xAI). A text refers to them by number.

    Source: docs.perplexity.ai, Chat completions; docs.x.ai, Live search.
    """
    results = read_mappings(body.get("search_results"))
    if results:
        return tuple(map(decode_citation, results))
    addresses = body.get("citations")
    return tuple(
        CitationPart(url=address)
        for address in (addresses if isinstance(addresses, list) else ())
        if isinstance(address, str)
    )


def read_content_text(content: Any) -> str | None:
    """The text of a message; Mistral sends a list of parts when it thinks (recorded traffic)."""
    if isinstance(content, str):
        return content or None
    return "".join(map(read_text, list_texts(content))) or None


def list_texts(content: Any) -> list[Any]:
    """The texts of a content: one, or those of its parts. What stands in the place of one is among them: a
    number, or an object that is no part."""
    if isinstance(content, list):
        return [text for part in content for text in _list_part_texts(part)]
    return _list_part_texts(content)


def _list_part_texts(part: Any) -> list[Any]:
    if not isinstance(part, Mapping):
        return [part]
    if part.get("type") in ("text", "output_text"):
        return [part.get("text")]
    if part.get("type") is None and part:
        return [part["text"] if isinstance(part.get("text"), str) else part]
    return []


def read_refusal(message: Mapping[str, Any]) -> str | None:
    """The refusal of a message; it may stand among the parts of its content."""
    parts = read_mappings(message.get("content"))
    texts = [part.get("refusal") for part in parts if part.get("type") == "refusal"]
    return read_string(message.get("refusal")) or "".join(map(read_text, texts)) or None


def read_content_thinking(content: Any) -> str | None:
    """The thinking among the parts of a content: Mistral's `thinking`, Databricks' `reasoning`."""
    return "".join(map(read_part_thinking, read_mappings(content))) or None


def read_part_thinking(part: Mapping[str, Any]) -> str:
    """The thinking of a part of a content; empty if it has none."""
    match part.get("type"):
        case "thinking":
            return read_content_text(part.get("thinking")) or ""
        case "reasoning":
            texts = (thought.get("text") for thought in read_mappings(part.get("summary")))
            return "".join(text for text in texts if isinstance(text, str))
    return ""


def read_reasoning(message: Mapping[str, Any]) -> str | None:
    """The reasoning of a message, in whichever form the host sends it."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            return str(message[key])
    for key, name in (("reasoning_details", "text"), ("thinking_blocks", "thinking")):
        texts = [block.get(name) for block in read_mappings(message.get(key))]
        if texts:
            return "".join(text for text in texts if isinstance(text, str)) or None
    return read_content_thinking(message.get("content"))


def merge_thinking_blocks(blocks: Any) -> Any:
    """LiteLLM's `thinking_blocks` with one entry for each block: a stream sends a block in pieces, of which
    the last has the signature and no text.

    Source: BerriAI/litellm, `ChatCompletionThinkingBlock`; opencode#3077 (a block without its signature is
    refused).
    """
    merged: list[Any] = []
    for block in read_mappings(blocks):
        last = merged[-1] if merged else {}
        if block.get("type") == last.get("type") == "thinking" and not last.get("signature"):
            text = f"{last.get('thinking') or ''}{block.get('thinking') or ''}"
            merged[-1] = {**last, **block, "thinking": text}
        else:
            merged.append(leave_out_nulls(dict(block)))
    return merged


def merge_reasoning_parts(parts: Any) -> list[dict[str, Any]]:
    """Databricks' `reasoning` parts of a content with one part for each thought: a stream sends it in pieces,
    of which the last has the signature.

    Source: docs.databricks.com, Query reasoning models (`summary` with `text` and `signature`).
    """
    merged: list[dict[str, Any]] = []
    for part in read_mappings(parts):
        if part.get("type") != "reasoning":
            continue
        for thought in read_mappings(part.get("summary")):
            last = merged[-1]["summary"][0] if merged else {}
            if merged and not last.get("signature"):
                text = f"{last.get('text') or ''}{thought.get('text') or ''}"
                merged[-1] = {**part, "summary": [{**last, **thought, "text": text}]}
            else:
                merged.append({**part, "summary": [dict(thought)]})
    return merged


def merge_reasoning_details(details: Any) -> Any:
    """`reasoning_details` with one entry for each block: a stream sends a block in pieces of one index.

    The signature, which comes last and without text, holds for the whole text. Source: agno-agi/agno#8794
    (2026-07-07), OpenRouterTeam/ai-sdk-provider#423.
    """
    if not isinstance(details, list):
        return details
    merged: list[Any] = []
    blocks: dict[tuple[Any, int], dict[str, Any]] = {}
    for detail in details:
        index = detail.get("index") if isinstance(detail, Mapping) else None
        if not isinstance(index, int):
            merged.append(detail)
            continue
        block = blocks.get((detail.get("type"), index))
        if block is None or any(block.get(key) and detail.get(key) for key in ("data", "signature")):
            block = blocks[detail.get("type"), index] = dict(detail)
            merged.append(block)
            continue
        for key, value in detail.items():
            if key in ("text", "summary") and isinstance(value, str) and isinstance(block.get(key), str):
                block[key] += value
            elif value is not None:
                block[key] = value
    return merged


_MERGERS = {"reasoning_details": merge_reasoning_details, "thinking_blocks": merge_thinking_blocks}
"""How the pieces of a stream become one value, by the key of the message."""

# -- the Responses API ---------------------------------------------------------------------------


def encode_response_content(message: Message) -> Any:
    """The content of a user message or of a result: text, or a list of parts."""
    if not message.parts:
        return message.content or ""
    return list(map(encode_response_part, list_sent_parts(message)))


def encode_response_part(part: SentPart) -> dict[str, Any]:
    """One part of a content.

    Source: openai 3.52.0, `types/responses/response_input_content_param.py` (no sound).
    """
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            return {"type": "input_image", "detail": "auto", "image_url": build_data_url(part)}
        case AudioPart():
            raise refuse_part(part, "the Responses API", "send it to a host that takes sound")
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.name or "file", "file_data": build_data_url(part)}


NAME = "openai"

ANY_HOST = Origin(provider=NAME)
"""The origin of requests that go to no known host: data of every host of this adapter goes with them."""

FINISH_WORDS: FinishWords = MappingProxyType(
    {
        "stop": "stop",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "length": "length",
        "model_length": "length",  # Mistral
        "model_context_window_exceeded": "length",  # Z.AI
        "repetition": "length",  # vLLM: it stopped a model that repeats itself
        "content_filter": "content_filter",
        "sensitive": "content_filter",  # Z.AI
        "error": "error",
        "insufficient_system_resource": "error",  # DeepSeek
        "network_error": "error",  # Z.AI
        "abort": "error",  # SGLang, vLLM
    }
)
"""OpenAI chat completions and compatible hosts.
Sources: openai 3.52.0, `chat_completion.py`; docs.mistral.ai, Chat; api-docs.deepseek.com, Create chat
completion; docs.bigmodel.cn, Chat completion; TGI, `FinishReason`; SGLang and vLLM, `FinishReason`."""

_REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Message keys that hold reasoning. Source: DeepSeek, vLLM and xAI use `reasoning_content`; OpenRouter, Groq
and Ollama's /v1 use `reasoning`, OpenRouter with `reasoning_details` beside it (recorded traffic); LiteLLM
`thinking_blocks` for Claude (BerriAI/litellm#15601, opencode#3077)."""

_TEXT_THOUGHTS = "text_thoughts"
"""What is kept of thoughts that stood in the text, with their markers. They go back where they stood.
Source: platform.minimax.io (the whole text goes back); the templates of Qwen and DeepSeek-R1, which find the
markers in the text of earlier messages."""

_REASONING_PARTS = "reasoning_parts"
"""What is kept of a content whose parts have the reasoning, and goes back before the text.
Source: docs.databricks.com, Query reasoning models."""

CALL_KEYS = ("extra_content", "provider_specific_fields")
"""Keys of a call that the host wants back with it: Gemini's thought signature, at its compatible endpoint and
behind LiteLLM. Source: ai.google.dev, Thought signatures, OpenAI compatibility; litellm, Gemini 3."""

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Sent with a call that no Gemini made: Gemini 3 refuses a call without a thought signature.
Source: ai.google.dev, Thought signatures, FAQ on transferring a trace from a different model."""

_BRIDGE = EncodedObject({"role": "assistant", "content": "Understood."})
"""Stands between a tool's result and a message of the user, for hosts that refuse these two in a row."""

_OPTIONS = (
    *("temperature", "top_p", "top_k", "seed", "stop", "parallel_tool_calls", "response_format"),
    *("presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity", "service_tier", "metadata"),
)
"""Options that chat completions spell as we do."""

SUPPORTED_OPTIONS = (*_OPTIONS, "logprobs", "cache_key", "cache_ttl", "host_tools", "strict_tools")


# -- encoding ------------------------------------------------------------------------------------


def encode_request(
    request: Request,
    *,
    origin: Origin = ANY_HOST,
    max_tokens_name: str = "max_completion_tokens",
    seed_name: str = "seed",
    sends_tool_names: bool = False,
    echo_reasoning: EchoReasoning = "tool_turns",
    fill_reasoning: bool = False,
    needs_reply_after_results: bool = False,
    needs_call_signatures: bool = False,
    takes_closed_schemas: bool = True,
) -> dict[str, Any]:
    """The body of `POST /chat/completions`.

    Args:
        origin: where the request goes: data of its own replies goes with it.
        fill_reasoning: whether a message whose reasoning would be sent back gets an empty one where it has
            none.
        needs_reply_after_results: whether the host refuses a message of the user right after a result.
        needs_call_signatures: whether the host refuses a call without a thought signature.
        takes_closed_schemas: whether a tool's schema may say `additionalProperties: false`.
    """
    message_parts = find_message_parts(
        *("chat", echo_reasoning, fill_reasoning, sends_tool_names, needs_call_signatures, origin)
    )

    def encode(message: Message, _: None) -> list[dict[str, Any]]:
        wire = _encode_message(message, echo_reasoning, origin)
        if message.role == "assistant":
            if fill_reasoning and _is_echoed(message, echo_reasoning):
                wire.setdefault("reasoning_content", "")
            if needs_call_signatures and message.tool_calls:
                wire["tool_calls"][0].setdefault(
                    "extra_content", {"google": {"thought_signature": FOREIGN_SIGNATURE}}
                )
        if message.role != "tool":
            return [wire]
        return [{**wire, "name": message.name} if sends_tool_names else wire, *encode_tool_media(message)]

    parts = message_parts.collect_parts(request.messages, encode)
    wire_messages = [encoded[0] for encoded in parts]
    if sum(map(len, parts)) > len(parts):
        wire_messages = _put_media_after_results(parts)
    if needs_reply_after_results:
        wire_messages = _put_replies_after_results(wire_messages)
    body: dict[str, Any] = {"model": request.model, "messages": wire_messages}
    own_tools = request.options.get("host_tools") or ()
    if request.tools or own_tools:
        is_strict = request.options.get("strict_tools") is True
        body["tools"] = [*(_encode_tool(tool, is_strict) for tool in request.tools), *own_tools]
        if not takes_closed_schemas:
            body["tools"] = open_schemas(body["tools"])
    if request.tools:
        choice = read_tool_choice(request)
        if choice is not None:
            body["tool_choice"] = _encode_tool_choice(request.options["tool_choice"], choice)
    if "max_tokens" in request.options:
        body[max_tokens_name] = request.options["max_tokens"]
    body |= _encode_options(request, seed_name)
    return add_extra_body(body, request.options.get("extra_body"))


def _put_media_after_results(parts: Sequence[Sequence[EncodedObject]]) -> list[EncodedObject]:
    """The messages, with the pictures of tools' results in messages of the user after all results in a row:
    hosts demand that the results of one reply's calls stand together."""
    wire_messages: list[EncodedObject] = []
    waiting: list[EncodedObject] = []
    for first, *media in parts:
        if first["role"] != "tool":
            wire_messages += waiting
            waiting = []
        wire_messages.append(first)
        waiting += media
    return wire_messages + waiting


def _put_replies_after_results(messages: Sequence[EncodedObject]) -> list[EncodedObject]:
    """The messages, with a short reply between a tool's result and a message of the user."""
    wire_messages: list[EncodedObject] = []
    for message in messages:
        if message["role"] == "user" and wire_messages and wire_messages[-1]["role"] == "tool":
            wire_messages.append(_BRIDGE)
        wire_messages.append(message)
    return wire_messages


def _encode_options(request: Request, seed_name: str) -> dict[str, Any]:
    options = request.options
    body = {
        seed_name if name == "seed" else name: options[name]
        for name in _OPTIONS
        if name in options and (request.tools or name != "parallel_tool_calls")
    }
    if options.get("logprobs") is not None:
        body |= {"logprobs": True, "top_logprobs": options["logprobs"]}
    if "cache_key" in options:
        body["prompt_cache_key"] = options["cache_key"]
    if "cache_ttl" in options:
        body["prompt_cache_options"] = {"ttl": options["cache_ttl"]}
    return body


def _encode_tool(tool: ToolDefinition, is_strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    parameters = lower_strict_parameters(tool, OPENAI_STRICT) if is_strict else None
    if parameters is None:
        function["parameters"] = lower_parameters(tool, OPENAI)
    else:
        function |= {"parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


def open_schemas(value: Any) -> Any:
    """The value without `additionalProperties: false`, at any depth: what it forbids is refused here too."""
    if isinstance(value, list):
        return [open_schemas(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: open_schemas(item)
        for key, item in value.items()
        if not (key == "additionalProperties" and item is False)
    }


def find_schema_warnings(request: Request, takes_closed_schemas: bool) -> list[str]:
    """A warning if schemas of tools go out without `additionalProperties: false`."""
    names = [
        tool.name
        for tool in (() if takes_closed_schemas else request.tools)
        if open_schemas(tool.parameters) != tool.parameters
    ]
    if not names:
        return []
    return [
        f"tools: the host refuses `additionalProperties: false`, so it was left out of {', '.join(names)}; "
        "arguments are checked here all the same"
    ]


def _encode_tool_choice(option: Any, choice: ToolChoice) -> Any:
    """Modes stay words; one name or several become OpenAI's mappings.

    Source: openai 3.52.0, `chat_completion_tool_choice_option_param.py`.
    """
    if isinstance(option, Mapping) and "allowed" not in option:
        return option  # already in the host's own spelling
    tools = [{"type": "function", "function": {"name": name}} for name in choice.names]
    if not tools:
        return choice.mode
    if isinstance(option, str):
        return tools[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.mode, "tools": tools}}


def find_bridge_warnings(request: Request, is_needed: bool) -> list[str]:
    """A warning if a message was put between the newest results of tools and the user's message after them.

    Args:
        is_needed: whether the host refuses these two in a row.
    """
    if not is_needed:
        return []
    newest = list(takewhile(lambda message: message.role != "assistant", reversed(request.messages)))
    roles = [message.role for message in reversed(newest)]
    shows_media = any(message.role == "tool" and message.parts and list_media(message) for message in newest)
    if ("tool", "user") not in pairwise(roles) and not shows_media:
        return []
    return [
        "the host refuses a message of the user right after a tool's result, so the reply "
        f"{_BRIDGE['content']!r} was put between them"
    ]


def _encode_message(message: Message, echo: EchoReasoning, origin: Origin) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content or ""}
    if message.role != "assistant":
        content = list(map(encode_part, list_sent_parts(message))) if message.parts else message.content or ""
        return {"role": message.role, "content": content}
    text = describe_reply(message) if message.parts else message.content
    wire: dict[str, Any] = {"role": "assistant", "content": text}
    if message.tool_calls:
        wire["tool_calls"] = [_encode_tool_call(call) for call in message.tool_calls]
        for wire_call, own_keys in zip(wire["tool_calls"], _list_own_calls(message, origin), strict=False):
            wire_call.update(own_keys)
    elif not message.content:
        wire["content"] = ""  # hosts refuse an assistant message with neither calls nor text
    if _is_echoed(message, echo):
        own_keys = _restore_own_keys(message, origin)
        if text_thoughts := own_keys.pop(_TEXT_THOUGHTS, None):
            wire["content"] = f"{text_thoughts}{text or ''}"
        thoughts = own_keys.pop(_REASONING_PARTS, None)
        if thoughts:
            texts = [{"type": "text", "text": text}] if text else []
            wire["content"] = [*merge_reasoning_parts(thoughts), *texts]
        wire.update(own_keys)
    return wire


def _is_echoed(message: Message, echo: EchoReasoning) -> bool:
    """Whether the reasoning of a message is sent back."""
    return echo == "always" or (echo == "tool_turns" and bool(message.tool_calls))


def _restore_own_keys(message: Message, origin: Origin) -> dict[str, Any]:
    """The reasoning keys of an earlier reply of this host and model."""
    own_keys = origin.get_data(message).get("message")
    if not isinstance(own_keys, Mapping):
        return {}
    return {key: _MERGERS[key](value) if key in _MERGERS else value for key, value in own_keys.items()}


def _list_own_calls(message: Message, origin: Origin) -> list[Mapping[str, Any]]:
    """What this host and model wants back with each call of an earlier reply; empty if that was another's."""
    own_calls = origin.get_data(message).get("calls")
    if not isinstance(own_calls, list) or len(own_calls) != len(message.tool_calls):
        return []
    return [own_keys if isinstance(own_keys, Mapping) else {} for own_keys in own_calls]


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": encode_sent_arguments(call)},
    }


# -- decoding ------------------------------------------------------------------------------------


def decode_reply(body: Any, finish_words: FinishWords | None = None) -> Reply:
    """The reply of a response body. Nobody else checks what was received, so everything is checked here.

    Args:
        finish_words: the host's own finish words, in addition to OpenAI's.

    Raises:
        ProviderError: an error body inside a success, or a body that is no completion.
    """
    check_object(body, "the answer is not a chat completion")  # OpenRouter sends an error beside the choices
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise build_bad_response_error("the answer has no choices")
    words: FinishWords = {**FINISH_WORDS, **(finish_words or {})}
    choices, warnings = _join_choices(choices, words) if len(choices) > 1 else (choices, ())
    return _decode_choice(body, choices, words, warnings)


def keep_thoughts(reply: Reply, text: str) -> Reply:
    """The reply with thoughts that stood in front of its answer, among the keys that its host wants back."""
    data = reply.provider_data or {"provider": NAME}
    message = {**data.get("message", {}), _TEXT_THOUGHTS: text}
    return replace(reply, provider_data={**data, "message": message})


def _decode_choice(
    body: Mapping[str, Any], choices: list[Any], finish_words: FinishWords, warnings: tuple[str, ...]
) -> Reply:
    """The reply of the first of several choices."""
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise build_bad_response_error("the answer has no message")
    calls, word = _decode_tool_calls(message), choice.get("finish_reason")
    word = word if isinstance(word, str) else None
    refusal = read_refusal(message)
    own_keys = {key: message[key] for key in _REASONING_KEYS if message.get(key)}
    content, odd_texts = message.get("content"), ()
    if content is not None and not isinstance(content, str):
        odd_texts = find_odd_texts(list_texts(content))
        thoughts = merge_reasoning_parts(content)
        content = read_content_text(content)
    else:
        thoughts = []
    if thoughts:
        own_keys[_REASONING_PARTS] = thoughts
    content = content or read_transcript(message)
    media = decode_media(message)
    reason = resolve_finish_reason(
        word, finish_words, call_count=len(calls), has_answer=bool(content or media), is_refusal=bool(refusal)
    )
    others = select_others(message, _KNOWN_KEYS["message"])
    waiting = describe_waiting(filter(is_call_kind, others)) if others else None
    return Reply(
        content=content,
        parts=add_text(content, media + decode_listed_sources(body)),
        tool_calls=calls,
        finish_reason="malformed_call" if waiting else reason,
        finish_message=waiting,
        native_reason=word,
        usage=decode_usage(find_usage(body, choice)),
        reasoning=read_reasoning(message),
        refusal=refusal,
        model=read_string(body.get("model")),
        response_id=read_string(body.get("id")),
        provider_data=_build_provider_data(own_keys, message, calls),
        details=_collect_details(body, choices, others, message.get("content")) or None,
        warnings=(
            *_find_word_conflict(word, calls, finish_words),
            *(() if word in finish_words else find_missing_word(word, reason)),
            *odd_texts,
            *warnings,
        ),
    )


_KNOWN_KEYS = {
    "body": ("id", "object", "created", "model", "choices", "usage", "obfuscation"),
    "choice": ("index", "message", "delta", "finish_reason", "usage"),
    "message": ("role", "content", "tool_calls", "function_call", "refusal", *_REASONING_KEYS),
}
"""Keys that the reply has elsewhere, or that say nothing: the time is the event's, the objects are known."""

_KNOWN_COUNTS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cost"),
    *("cached_tokens", "reasoning_tokens", "cache_write_tokens", "cache_creation_input_tokens"),
    *("prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "num_cached_tokens"),
)


def _collect_details(
    body: Mapping[str, Any], choices: list[Any], others: Mapping[str, Any], content: Any
) -> dict[str, Any]:
    """What else the host said: tier, fingerprint, log probabilities, annotations, other choices, ...

    Args:
        others: what the message has besides what the reply has elsewhere.
    """
    parts = [part for part in content if not _is_plain_part(part)] if isinstance(content, list) else []
    return {
        **select_others(body, _KNOWN_KEYS["body"]),
        **select_others(choices[0], _KNOWN_KEYS["choice"]),
        **others,
        **({"content": parts} if parts else {}),
        **select_other_counts(find_usage(body, choices[0]), _KNOWN_COUNTS),
        **({"other_choices": choices[1:]} if len(choices) > 1 else {}),
    }


def _is_plain_part(part: Any) -> bool:
    """Whether a part of a content is text, a refusal or thinking, which the reply has."""
    kinds = ("text", "output_text", "refusal", "thinking", "reasoning", None)
    return not isinstance(part, Mapping) or part.get("type") in kinds


def _join_choices(choices: list[Any], finish_words: FinishWords) -> tuple[list[Any], tuple[str, ...]]:
    """The choices, of which the first is the reply, and a warning if there are several (`choices.py`)."""
    count = len(choices)
    messages = [read_message(choice) for choice in choices]
    kinds = [(_has_answer(message), len(_decode_tool_calls(message))) for message in messages]
    if not is_one_reply(kinds):
        return choices, (f"the host sent {count} choices; the first is the reply",)
    joined: dict[str, Any] = {}
    entries: list[Any] = []
    word = None
    for choice, message in zip(choices, messages, strict=True):
        joined |= {key: value for key, value in message.items() if value or key not in joined}
        entries += list_call_entries(message.get("tool_calls"))
        if isinstance(choice, Mapping):
            word = choose_finish_word(word, choice.get("finish_reason"), finish_words)
    if entries:
        joined["tool_calls"] = entries
    whole = {**choices[0], "message": joined, "finish_reason": word}
    return [whole], (f"the host sent its reply in {count} choices; they are joined",)


def read_message(choice: Any) -> Mapping[str, Any]:
    """The message of a choice; empty if it has none."""
    message = choice.get("message") if isinstance(choice, Mapping) else None
    return message if isinstance(message, Mapping) else {}


def _has_answer(message: Mapping[str, Any]) -> bool:
    """Whether a message has text or another content."""
    content = read_content_text(message.get("content")) or read_transcript(message)
    return bool(content or read_refusal(message) or decode_media(message))


def _find_word_conflict(word: Any, calls: tuple[ToolCall, ...], finish_words: FinishWords) -> tuple[str, ...]:
    """A warning if the reply has calls and its finish word means `stop`."""
    if calls and find_finish_reason(word, finish_words) == "stop":
        return (f"the reply carries tool calls beside the finish reason {word!r}",)
    return ()


def _build_provider_data(
    own_keys: dict[str, Any], message: Mapping[str, Any], calls: tuple[ToolCall, ...]
) -> dict[str, Any] | None:
    """What the host wants back: keys of the message, and keys of its calls."""
    wire_calls = list_call_entries(message.get("tool_calls"))
    wire_calls = wire_calls if len(wire_calls) == len(calls) else []
    call_keys = [
        {key: wire[key] for key in CALL_KEYS if isinstance(wire, Mapping) and wire.get(key)}
        for wire in wire_calls
    ]
    if not own_keys and not any(call_keys):
        return None
    return {"provider": NAME, "message": own_keys, **({"calls": call_keys} if any(call_keys) else {})}


def _decode_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    entries = message.get("tool_calls")
    # Some hosts send an empty call beside a plain answer (recorded from Snowflake); it is dropped.
    calls = (
        [_decode_tool_call(entry) for entry in list_call_entries(entries) if not _is_blank(entry)]
        if entries
        else []
    )
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping) and any(function_call.values()):
        # Beside `tool_calls` it says one of them again, or it is another call.
        older = decode_call("", function_call.get("name"), find_arguments(function_call))
        if (older.name, older.arguments) not in [(call.name, call.arguments) for call in calls]:
            calls.append(older)
    return tuple(calls)


def _is_blank(value: Any) -> bool:
    """Whether an entry of `tool_calls` says nothing but its type and place."""
    if isinstance(value, Mapping):
        return all(key in ("type", "index") or _is_blank(item) for key, item in value.items())
    return value is None or (isinstance(value, str) and value.strip() in ("", "{}", "null"))


def _decode_tool_call(wire: Any) -> ToolCall:
    if not isinstance(wire, Mapping):
        return refuse_call(wire)
    call_id, function = read_string(wire.get("id")) or "", read_function(wire)
    is_custom = wire.get("type") == "custom"  # free-text input
    decode = decode_text_call if is_custom else decode_call
    return decode(call_id, function.get("name"), find_arguments(function, wire))


def find_usage(body: Mapping[str, Any], choice: Mapping[str, Any]) -> Any:
    """The counts of a completion: Groq's streams have them in `x_groq`, Moonshot's in the choice.

    Source: groq 0.33, `chat_completion_chunk.py` (`XGroq`); platform.moonshot.ai, Streaming.
    """
    own = body.get("x_groq")
    groq_usage = own.get("usage") if isinstance(own, Mapping) else None
    return body.get("usage") or groq_usage or choice.get("usage")


def decode_usage(wire: Any) -> Usage | None:
    """Token counts and cost of a completion. Completion tokens include the reasoning, except xAI's."""
    if not isinstance(wire, Mapping):
        return None
    prompt = read_input_count(wire)
    total = read_token_count(wire.get("total_tokens"))
    reasoning = read_token_count(_read_detail(wire, "completion_tokens_details", "reasoning_tokens"))
    if reasoning is None:  # Perplexity. Source: vercel/ai, `packages/perplexity`
        reasoning = read_token_count(wire.get("reasoning_tokens"))
    output = read_output_count(wire)
    return Usage(
        input=prompt,
        output=add_separate_reasoning(output, prompt=prompt, reasoning=reasoning, total=total),
        reasoning=reasoning,
        cached=_read_cached_tokens(wire),
        cache_write=_read_written_tokens(wire),
        total=total,
        cost=read_cost(wire),
    )


def _read_cached_tokens(wire: Mapping[str, Any]) -> int | None:
    """Cached prompt tokens, as OpenAI, Mistral and DeepSeek name them (recorded), and Moonshot.

    Source: vercel/ai, `packages/moonshotai` (`usage.cached_tokens`).
    """
    spellings = (
        _read_detail(wire, "prompt_tokens_details", "cached_tokens"),
        _read_detail(wire, "prompt_token_details", "cached_tokens"),
        wire.get("num_cached_tokens"),
        wire.get("prompt_cache_hit_tokens"),
        wire.get("cached_tokens"),
    )
    counts = [count for spelling in spellings if (count := read_token_count(spelling)) is not None]
    return max(counts, default=None)


def _read_written_tokens(wire: Mapping[str, Any]) -> int | None:
    """Prompt tokens that were written to a cache, as OpenAI and OpenRouter name them, and Qwen.

    Source: vercel/ai, `packages/alibaba` (`cache_creation_input_tokens`, part of `prompt_tokens`).
    """
    names = ("cache_write_tokens", "cache_creation_input_tokens")
    counts = [read_token_count(_read_detail(wire, "prompt_tokens_details", name)) for name in names]
    return max((count for count in counts if count is not None), default=None)


def read_cost(wire: Mapping[str, Any]) -> float | None:
    """What the host says that a reply costs, in dollars.

    OpenRouter sends the amount; Perplexity its parts and `total_cost`; xAI ten-billionths of a dollar.
    Sources: openrouter.ai, Usage accounting; docs.perplexity.ai, Chat completions;
    UKGovernmentBEIS/inspect_ai#5528.
    """
    cost = wire.get("cost")
    amount = _read_amount(cost.get("total_cost") if isinstance(cost, Mapping) else cost)
    ticks = _read_amount(wire.get("cost_in_usd_ticks")) if amount is None else None
    return amount if ticks is None else ticks / _TICKS_PER_DOLLAR


_TICKS_PER_DOLLAR = 10**10


def _read_detail(wire: Mapping[str, Any], key: str, name: str) -> Any:
    details = wire.get(key)
    return details.get(name) if isinstance(details, Mapping) else None


def _read_amount(value: Any) -> float | None:
    """The value as an amount of money; None if it is no finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) else None
