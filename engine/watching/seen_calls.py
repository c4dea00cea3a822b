"""Reads a model call out of an exchange: what was asked, and what the host replied.

The request is read by the reader of its form (`engine/exchange/forms`), the answer by the adapter of its
host, the code that decodes the answers of our own calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from toolchart.engine.exchange.forms import anthropic, gemini, ollama, responses
from toolchart.engine.watching.exchanges import Exchange
from toolchart.providers.prices import PriceTable, add_cost
from toolchart.providers.registry import create_body_builder
from toolchart.providers.transport.raw_answers import compute_answer_digest
from toolchart.specs.chat_messages import read_recording
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import Message, Reply, Request, ToolDefinition
from toolchart.states.ports import AnswerDecoder

PROVIDERS = {
    "chat": {"provider": "openai", "api": "chat"},
    "responses": {"provider": "openai", "api": "responses"},
    "messages": {"provider": "anthropic"},
    "gemini": {"provider": "gemini"},
    "ollama": {"provider": "ollama"},
}
"""By wire: the keys of the `llms` entry that speaks it."""

_MODEL_IN_PATH = re.compile(r"/models/([^/:?]+)")


class SeenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call of another program."""

    exchange: Exchange
    wire: str
    model: str
    system: str
    """The prompt; empty for none."""
    entries: tuple[Any, ...]
    """The messages of the request without the prompt, for the one reader: values, or data of chat
    completions."""
    tools: tuple[ToolDefinition, ...]
    host_tools: tuple[str, ...]
    """The tools that it offers without a schema, most of which the host runs itself."""
    body: dict[str, Any]
    """The body of the request."""
    options: dict[str, Any]
    """What we have words for: temperature, bounds, ..."""
    previous: str
    """Id of the response that it goes on from; empty where it has all its messages."""
    reply: Reply | None
    failure: ProviderError | None
    """Why there is no reply."""
    answer_digest: str | None

    def read_messages(self, earlier: Sequence[Message] = ()) -> tuple[list[Message], tuple[str, ...]]:
        """The messages in their order, each result behind its call; and what was put right.

        Args:
            earlier: the messages of the response that it goes on from.

        Raises:
            SpecError: a message breaks its form.
        """
        entries = [*earlier, *self.entries]
        if not entries:  # a prompt that the host keeps under an id, or nothing at all
            return [], ()
        # A prompt of its own keeps a system message among the others where it is.
        recording = read_recording([Message(role="system", content=self.system), *entries], None)
        ids = {call_id for entry in entries for call_id in _list_ids(entry)}
        return [_keep_host_ids(message, ids) for message in recording.messages], recording.warnings


def _list_ids(entry: Any) -> Iterable[Any]:
    """The ids that the calls of a message came with."""
    if isinstance(entry, Message):
        return [call.native_id or call.id for call in entry.tool_calls]
    calls = entry.get("tool_calls") if isinstance(entry, Mapping) else None
    return [call.get("id") for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []


def _keep_host_ids(message: Message, ids: set[Any]) -> Message:
    """The message whose calls say which ids their host has given them: those of the reader's making are
    none."""
    if not message.tool_calls:
        return message
    calls = tuple(
        replace(call, native_id=call.native_id or (call.id if call.id in ids else None))
        for call in message.tool_calls
    )
    return replace(message, tool_calls=calls)


def read_call(
    exchange: Exchange, prices: PriceTable | None = None, items: Mapping[str, Any] | None = None
) -> SeenCall:
    """The model call of an exchange.

    Args:
        prices: adds what the reply costs, where the host does not say it.
        items: those of responses that were seen, by their ids, for requests that name them.

    Raises:
        SpecError: its request cannot be read.
    """
    return add_answer(read_request(exchange, items), exchange, prices)


def read_request(exchange: Exchange, items: Mapping[str, Any] | None = None) -> SeenCall:
    """The model call of an exchange that has no answer yet.

    Args:
        items: as in `read_call`.

    Raises:
        SpecError: its request cannot be read.
    """
    try:
        body = parse_foreign_json(exchange.request.decode("utf-8-sig"), "file_values")
    except ValueError as error:
        raise SpecError(f"the request is no JSON: {error}") from None
    if not isinstance(body, Mapping):
        raise SpecError("the request is no JSON object")
    match = _MODEL_IN_PATH.search(exchange.path)
    model = str(body.get("model") or (match.group(1) if match is not None else ""))
    if exchange.wire == "responses" and isinstance(body.get("input"), list):
        body = {**body, "input": [_find_item(item, items or {}) for item in body["input"]]}
    system, entries = _read_entries(exchange.wire, body)
    return SeenCall(
        exchange=exchange,
        wire=exchange.wire,
        model=model,
        system=system,
        entries=tuple(entries),
        tools=tuple(_read_tools(exchange.wire, body)),
        host_tools=tuple(_list_host_tools(exchange.wire, body)),
        body=dict(body),
        options=_read_options(body),
        previous=str(body.get("previous_response_id") or "") if exchange.wire == "responses" else "",
        reply=None,
        failure=None,
        answer_digest=None,
    )


def add_answer(call: SeenCall, exchange: Exchange, prices: PriceTable | None = None) -> SeenCall:
    """A model call with what its host answered."""
    reply, failure = _read_answer(exchange, call.model)
    if reply is not None:
        reply = add_cost(reply, Request(model=call.model, messages=()), prices, is_limited=False)
    digest = compute_answer_digest(exchange.answer) if exchange.status else None
    return replace(call, exchange=exchange, reply=reply, failure=failure, answer_digest=digest)


def _find_item(item: Any, items: Mapping[str, Any]) -> Any:
    """The item that another one names; where it was not seen, the reader says so."""
    if isinstance(item, Mapping) and item.get("type") == "item_reference":
        return items.get(str(item.get("id")), item)
    return item


def list_items(exchange: Exchange) -> dict[str, Any]:
    """The items of a response by their ids: hosts keep them, and programs may name them."""
    if exchange.wire != "responses":
        return {}
    text = exchange.answer.decode("utf-8", "replace")
    values = [text]
    if exchange.is_streamed:  # the last event that has the response has it whole
        lines = (line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))
        values = [line for line in lines if '"response"' in line][-1:]
    for value in values:
        try:
            body = parse_foreign_json(value.strip(), "file_values")
        except ValueError:
            continue
        body = body.get("response", body) if isinstance(body, Mapping) else {}
        output = body.get("output") if isinstance(body, Mapping) else None
        items = [item for item in output if isinstance(item, Mapping)] if isinstance(output, list) else []
        return {item["id"]: item for item in items if isinstance(item.get("id"), str)}
    return {}


def _read_entries(wire: str, body: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The prompt at the beginning, and the messages after it."""
    match wire:
        case "messages":
            form = anthropic.collect(body.get("messages"), body.get("system"), place="messages")
        case "responses":
            form = responses.collect(body.get("input") or [], body.get("instructions"), place="input")
        case "gemini":
            system = body.get("systemInstruction") or body.get("system_instruction")
            form = gemini.collect(body.get("contents"), system, place="contents")
        case "ollama":
            form = ollama.collect(body.get("messages"), place="messages")
        case _:
            return _split_prompt(list(body.get("messages") or []))
    return _split_prompt(form.messages)


def _split_prompt(entries: list[Any]) -> tuple[str, list[Any]]:
    """The texts of the system messages at the beginning, and what follows."""
    texts = []
    while entries and _get_role(entries[0]) in ("system", "developer"):
        texts.append(_get_text(entries.pop(0)))
    return "\n\n".join(text for text in texts if text), entries


def _get_role(entry: Any) -> Any:
    return (
        entry.role
        if isinstance(entry, Message)
        else entry.get("role")
        if isinstance(entry, Mapping)
        else None
    )


def _get_text(entry: Any) -> str:
    content = entry.content if isinstance(entry, Message) else entry.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


# -- tools and options -----------------------------------------------------------------------------


def _read_tools(wire: str, body: Mapping[str, Any]) -> Iterable[ToolDefinition]:
    """The tools that a request offers; those that the host runs itself have no definition."""
    entries = body.get("tools")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        if wire == "gemini":
            declared = entry.get("functionDeclarations") or entry.get("function_declarations")
            functions = declared if isinstance(declared, list) else []
        elif wire in ("chat", "ollama"):
            functions = [entry.get("function")]
        else:
            functions = [entry] if "input_schema" in entry or entry.get("type") == "function" else []
        for function in functions:
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                yield _read_tool(function)


def _list_host_tools(wire: str, body: Mapping[str, Any]) -> Iterable[str]:
    """The names of the tools that a request offers and does not describe."""
    entries = body.get("tools")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            yield str(entry)
        elif wire == "gemini":
            yield from (key for key in entry if key not in ("functionDeclarations", "function_declarations"))
        elif wire == "messages":
            if "input_schema" not in entry:
                yield str(entry.get("name") or entry.get("type"))
        elif entry.get("type", "function") != "function":
            yield str(entry["type"])
    if wire == "messages" and body.get("mcp_servers"):
        yield "mcp_servers"


def _read_tool(function: Mapping[str, Any]) -> ToolDefinition:
    keys = ("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema")
    schema = next((function[key] for key in keys if isinstance(function.get(key), Mapping)), None)
    return ToolDefinition(
        name=function["name"],
        description=str(function.get("description") or function["name"]),
        **({"parameters": dict(schema)} if schema is not None else {}),
    )


_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "topP": "top_p",
    "top_k": "top_k",
    "topK": "top_k",
    "seed": "seed",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "num_predict": "max_tokens",
}
"""Numbers that shape a reply, by the hosts' words for them."""


def _read_options(body: Mapping[str, Any]) -> dict[str, Any]:
    groups = [body, *(body.get(key) for key in ("generationConfig", "generation_config", "options"))]
    return {
        name: group[key]
        for group in groups
        if isinstance(group, Mapping)
        for key, name in _OPTIONS.items()
        if isinstance(group.get(key), int | float) and not isinstance(group[key], bool)
    }


# -- answers -----------------------------------------------------------------------------------------


def build_request_body(call: SeenCall, request: Request) -> bytes:
    """The body of a call with other messages: all else in it is as its program sent it.

    Raises:
        ProviderError: the wire format has no form for the messages.
    """
    builder = _get_decoder(call.wire, call.exchange.host, call.model)
    # A turn that only another prompt has begun begins with no words, which hosts refuse.
    messages = [each for each in request.messages if each.role != "user" or each.content or each.parts]
    built = builder.build_body(replace(request, messages=messages, tools=(), options={}), stream=False)
    keys = _MESSAGE_KEYS[call.wire]
    body = {key: value for key, value in call.body.items() if key not in (*keys, *_OTHER_SPELLINGS)}
    return orjson.dumps({**body, **{key: built[key] for key in keys if key in built}})


_MESSAGE_KEYS = {
    "chat": ("messages",),
    "responses": ("input", "instructions"),
    "messages": ("messages", "system"),
    "gemini": ("contents", "systemInstruction"),
    "ollama": ("messages",),
}
"""By wire: where the messages and the prompt stand in a body."""

_OTHER_SPELLINGS = ("system_instruction", "previous_response_id")
"""What stands for one of these too."""


@lru_cache(maxsize=64)
def _get_decoder(wire: str, host: str, model: str) -> Any:
    config = LLMConfig.model_validate({**PROVIDERS[wire], "model": model or "unknown", "base_url": host})
    return create_body_builder(config, resolve=str)


def _read_answer(exchange: Exchange, model: str) -> tuple[Reply | None, ProviderError | None]:
    """The reply of a host, or why there is none."""
    if not exchange.status or (exchange.is_cut and not exchange.is_streamed):
        message = exchange.problem or "the answer was cut"
        return None, ProviderError(kind="connection", message=message, retryable=True)
    decoder = _get_decoder(exchange.wire, exchange.host, model)
    assert isinstance(decoder, AnswerDecoder), "the adapters of these wires decode bytes"
    try:
        reply = decoder.decode_again(
            Request(model=model, messages=()),
            exchange.answer,
            status=exchange.status,
            is_streamed=exchange.is_streamed,
        )
    except ProviderError as error:
        if exchange.is_cut:
            return None, ProviderError(kind="connection", message=exchange.problem, retryable=True)
        return None, error
    if exchange.is_cut:  # a stream that was cut behind its end, or one whose form needs no end
        reply = replace(reply, warnings=(*reply.warnings, exchange.problem))
    return reply, None
