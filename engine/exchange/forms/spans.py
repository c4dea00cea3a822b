"""Conversations in spans of OpenTelemetry: what instrumented programs record of their model calls.

Four vocabularies are read:

- the GenAI conventions: `gen_ai.input.messages`, `gen_ai.output.messages`, `gen_ai.system_instructions`, on
  the span or on the event with its details;
- their older events, `gen_ai.user.message` and so on, as events of the span, as log records, or in its
  attribute `events`;
- OpenLLMetry: `gen_ai.prompt.N.*` and `gen_ai.completion.N.*`, before that `llm.prompts` and
  `llm.completions`;
- OpenInference: `llm.input_messages.N.message.*` and `llm.output_messages.N.message.*`.

Each call of a model was sent the whole conversation up to there. So calls are grouped: where the input of a
call begins with the input and the output of an earlier one, it goes on with it. The last call of such a chain
is the conversation, with its output as the last message.

Source: open-telemetry/semantic-conventions-genai, docs/gen-ai, and semantic-conventions 1.28 (events);
opentelemetry-instrumentation-openai 0.62.4; openinference-semantic-conventions 0.1.42; the JSON of
opentelemetry-proto, and of `ReadableSpan.to_json` of opentelemetry-sdk 1.45.2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolchart.engine.exchange.forms.form import FormReader, build_message
from toolchart.specs.chat_messages import read_content
from toolchart.states.call_arguments import decode_call
from toolchart.states.content import (
    AudioPart,
    ContentPart,
    FilePart,
    HostCallPart,
    ImagePart,
    TextPart,
    decode_chat_part,
    join_host_calls,
    join_texts,
    merge_texts,
)
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import Message, Role, ToolCall

FORM = "spans of OpenTelemetry with the messages of model calls: OTLP as JSON, or spans as an SDK prints them"

_CONTAINERS = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
_SPAN_IDS = ("context", "spanId", "span_id")

_NOT_CALLS = (
    *("invoke_agent", "create_agent", "execute_tool", "invoke_workflow", "embeddings", "retrieval"),
    *("plan", "search_memory", "update_memory"),
)
"""Operations that are no call of a model. Spans of an agent may repeat the messages of its calls."""

_INPUT, _OUTPUT, _SYSTEM = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"
_NUMBERED = (
    ("llm.input_messages", "llm.output_messages"),
    ("gen_ai.prompt", "gen_ai.completion"),
    ("llm.prompts", "llm.completions"),
)
"""Input and output of vocabularies that have one attribute for each value."""

_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE = "gen_ai.choice"
_OLDEST_EVENTS = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}

_ROLES: Mapping[str, Role] = {
    **{"user": "user", "human": "user", "assistant": "assistant", "model": "assistant", "ai": "assistant"},
    **{"system": "system", "developer": "system", "tool": "tool", "function": "tool"},
}

_MASK = "__REDACTED__"
"""What OpenInference records in the place of a text that is hidden."""

_NOT_RECORDED = "what was said in these model calls was not recorded"
_OTEL_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"
_SWITCHES = {
    "openinference.span.kind": (
        "with no OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS or other OPENINFERENCE_HIDE_... set"
    ),
    "model_request_parameters": "`InstrumentationSettings(include_content=True)`",
    "llm.request.type": "TRACELOOP_TRACE_CONTENT=true",
    "gen_ai.is_streaming": "TRACELOOP_TRACE_CONTENT=true",
}
"""How to have contents recorded, by an attribute that tells who recorded a span."""


class _Event(NamedTuple):
    name: str
    attributes: Mapping[str, Any]
    body: Any
    place: str


class _Span(NamedTuple):
    place: str
    ids: tuple[str, str]
    parent: str
    attributes: dict[str, Any]
    events: list[_Event]


class _Contents(NamedTuple):
    """What a model call was sent and answered, in the words of the span: entries and their places."""

    system: Any
    input: list[tuple[Any, str]]
    output: list[tuple[Any, str]]


class _Call(NamedTuple):
    """A model call whose messages were read."""

    span: _Span
    contents: _Contents
    reader: FormReader
    """Its input."""
    system: str | None
    heads: list[str]
    """Digests of the first messages of the input, for each number of them."""
    tail: str
    """Digest of input and output."""


def is_list(entries: Sequence[Any]) -> bool:
    """Whether a list can only be one of spans, of log records beside them, or of whole OTLP documents."""
    return bool(entries) and all(_is_entry(entry) for entry in entries)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if any(isinstance(entry.get(key), list) for key in _CONTAINERS):
        return True
    return isinstance(entry.get("attributes"), Mapping | list) and (
        any(key in entry for key in _SPAN_IDS) or _is_log(entry)
    )


def _is_log(entry: Mapping[str, Any]) -> bool:
    return "body" in entry and any(
        key in entry for key in ("event_name", "eventName", "severity_number", "severityNumber", "trace_id")
    )


def collect_all(data: Any, source: str | None = None, place: str = "") -> list[FormReader]:
    """The conversations of spans, in the order in which they began.

    Args:
        data: an OTLP document, a span, or a list of them: also the lines of a file of JSON Lines.
        place: of the data in what came in.

    Raises:
        SpecError: no span is a model call, nothing was recorded of what was said, or a message breaks its
            form; names its place.
    """
    reader = FormReader(FORM, source)
    spans = _join_logs(_list_spans(reader, data, place))
    contents = [(span, found) for span in spans if (found := _find_contents(reader, span)) is not None]
    calls = [(span, found) for span, found in contents if not _is_no_call(span)] or contents
    if not any(found.input for _, found in calls):
        raise _refuse_empty(reader, spans, [span for span, _ in calls])
    known = {span.place for span, found in calls if found.input}
    missing = [span.place for span in _list_model_calls(spans) if span.place not in known]
    chains = _group_calls([_read_call(source, span, found) for span, found in calls if found.input])
    readers = [_finish_chain(source, chain) for chain in chains]
    for missing_place in missing:
        readers[0].leave_out(["a model call that was recorded without its input"], missing_place)
    return readers


def _is_no_call(span: _Span) -> bool:
    kind = span.attributes.get("openinference.span.kind")
    return span.attributes.get("gen_ai.operation.name") in _NOT_CALLS or kind not in (None, "LLM")


def _refuse_empty(reader: FormReader, spans: Sequence[_Span], outputs: Sequence[_Span]) -> SpecError:
    """The error about spans without a conversation."""
    calls = outputs or _list_model_calls(spans)
    if not calls:
        return reader.refuse(
            "no span here is a call of a model",
            spans[0].place if spans else "",
            hint="spans of model calls have attributes `gen_ai.*` or `llm.*`",
        )
    return reader.refuse(_NOT_RECORDED, calls[0].place, hint=_choose_hint(calls[0].attributes))


def _list_model_calls(spans: Sequence[_Span]) -> list[_Span]:
    """The spans that tell of a call of a model, with contents or without."""
    models = ("gen_ai.request.model", "gen_ai.system", "llm.model_name", "llm.request.type")
    return [
        span
        for span in spans
        if not _is_no_call(span) and any(_find_value(span.attributes, key) is not None for key in models)
    ]


def _choose_hint(attributes: Mapping[str, Any]) -> str:
    switch = next((switch for key, switch in _SWITCHES.items() if key in attributes), _OTEL_SWITCH)
    return f"record the calls again with their contents: {switch}"


# -- spans and their attributes --------------------------------------------------------------------


def _list_spans(reader: FormReader, data: Any, place: str) -> Iterator[_Span]:
    """The spans of what came in; a log record is a span with one event."""
    entries = [(data, place)] if isinstance(data, Mapping) else None
    for entry, entry_place in entries or [
        (item, f"{place}[{index}]")
        for index, item in enumerate(reader.require_list(data, "the spans", place))
    ]:
        entry = reader.require_object(entry, "a span", entry_place)
        if not any(key in entry for key in _CONTAINERS):
            make = _build_log if _is_log(entry) else _build_span
            yield make(reader, entry, entry_place)
            continue
        for keys, make in (
            (("resourceSpans", "scopeSpans", "spans"), _build_span),
            (("resource_spans", "scope_spans", "spans"), _build_span),
            (("resourceLogs", "scopeLogs", "logRecords"), _build_log),
            (("resource_logs", "scope_logs", "log_records"), _build_log),
        ):
            for item, item_place in _walk(reader, entry, keys, entry_place):
                yield make(reader, item, item_place)


def _walk(
    reader: FormReader, entry: Mapping[str, Any], keys: Sequence[str], place: str
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The objects under keys that hold lists, one in the other."""
    listed_place = f"{place}.{keys[0]}" if place else keys[0]
    for index, item in enumerate(reader.require_list(entry.get(keys[0]) or [], "these values", listed_place)):
        item_place = f"{listed_place}[{index}]"
        item = reader.require_object(item, "each of these", item_place)
        if len(keys) == 1:
            yield item, item_place
        else:
            yield from _walk(reader, item, keys[1:], item_place)


def _build_span(reader: FormReader, entry: Mapping[str, Any], place: str) -> _Span:
    context = entry.get("context")
    ids = context if isinstance(context, Mapping) else entry
    events = [
        _Event(str(event.get("name") or ""), _read_attributes(event.get("attributes")), None, event_place)
        for event, event_place in _walk(reader, entry, ["events"], place)
    ]
    attributes = _read_attributes(entry.get("attributes"))
    events += _list_noted_events(reader, attributes, place)
    parent = entry.get("parent_id") or entry.get("parentSpanId") or entry.get("parent_span_id")
    return _Span(place, _read_ids(ids), str(parent or ""), attributes, events)


def _list_noted_events(reader: FormReader, attributes: Mapping[str, Any], place: str) -> Iterator[_Event]:
    """The events that stand in one attribute, as Logfire and Pydantic AI 0.x write them."""
    noted = attributes.get("events")
    if not isinstance(noted, str | list):
        return
    noted = _load(reader, noted, f"{place}.events")
    for index, event in enumerate(noted if isinstance(noted, list) else ()):
        if isinstance(event, Mapping):
            yield _Event(str(event.get("event.name") or ""), {}, event, f"{place}.events[{index}]")


def _build_log(reader: FormReader, entry: Mapping[str, Any], place: str) -> _Span:
    attributes = _read_attributes(entry.get("attributes"))
    name = entry.get("eventName") or entry.get("event_name") or attributes.get("event.name")
    body = entry.get("body")
    if isinstance(body, Mapping) and len(body) == 1 and next(iter(body)) in _VALUE_KEYS:
        body = _read_value(body)
    event = _Event(str(name or ""), attributes, body, place)
    return _Span(place, _read_ids(entry), "", {}, [event])


def _read_ids(entry: Mapping[str, Any]) -> tuple[str, str]:
    trace = entry.get("traceId") or entry.get("trace_id")
    span = entry.get("spanId") or entry.get("span_id")
    return str(trace or ""), str(span or "")


def _join_logs(spans: Iterator[_Span]) -> list[_Span]:
    """The spans with the log records that name them; what names none before it stays on its own."""
    joined: list[_Span] = []
    known: dict[tuple[str, str], _Span] = {}
    waiting: list[_Span] = []
    for span in spans:
        if span.attributes or not any(span.ids):
            joined.append(span)
            known.setdefault(span.ids, span)
        else:
            waiting.append(span)
    for span in waiting:
        if span.ids in known:
            known[span.ids].events.extend(span.events)
        else:
            joined.append(span)
            known[span.ids] = span
    return joined


def _read_attributes(data: Any) -> dict[str, Any]:
    """Attributes as an object, from one or from the list of OTLP."""
    if isinstance(data, Mapping):
        return dict(data)
    return {
        str(item["key"]): _read_value(item.get("value"))
        for item in data or ()
        if isinstance(item, Mapping) and "key" in item
    }


_VALUE_KEYS = {
    "stringValue": "string",
    "intValue": "int",
    "doubleValue": "double",
    "boolValue": "bool",
    "bytesValue": "bytes",
    "arrayValue": "array",
    "kvlistValue": "kvlist",
}
_VALUE_KEYS |= {f"{kind}_value": kind for kind in _VALUE_KEYS.values()}


def _read_value(data: Any) -> Any:
    """A value of OTLP as JSON data. Source: opentelemetry-proto, `common.proto`, `AnyValue`."""
    if not isinstance(data, Mapping):
        return data
    for key, value in data.items():
        kind = _VALUE_KEYS.get(key)
        if kind == "array":
            return [_read_value(item) for item in (value or {}).get("values") or ()]
        if kind == "kvlist":
            return _read_attributes((value or {}).get("values"))
        if kind is not None:
            return (
                int(value)
                if kind == "int" and isinstance(value, str) and value.lstrip("-").isdigit()
                else value
            )
    return None


def _find_value(attributes: Mapping[str, Any], name: str) -> Any:
    """An attribute: under its name, in objects one in the other, or in pieces with numbers."""
    if name in attributes:
        return attributes[name]
    inner: Any = attributes
    for word in name.split("."):
        inner = inner.get(word) if isinstance(inner, Mapping) else None
    if inner is not None:
        return inner
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if not key.startswith(f"{name}."):
            continue
        *words, last = key[len(name) + 1 :].split(".")
        branch = tree
        for word in words:
            below = branch.setdefault(word, {})
            branch = below if isinstance(below, dict) else branch
        branch[last] = value
    return tree or None


def _list_numbered(value: Any, place: str) -> list[tuple[Any, str]]:
    """The items of a list, or of an object whose keys are numbers, with their places."""
    if isinstance(value, Mapping):
        numbers = sorted((key for key in value if key.isdigit()), key=int)
        return [(value[number], f"{place}.{number}") for number in numbers]
    return [(item, f"{place}.{index}") for index, item in enumerate(value if isinstance(value, list) else ())]


def _load(reader: FormReader, value: Any, place: str) -> Any:
    """A value that may stand as its JSON text.

    Raises:
        SpecError: it is a text and no JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return parse_foreign_json(value, "file_values")
    except ValueError as error:
        raise reader.refuse(
            f"not JSON: {error}",
            place,
            hint="it may have been cut: record the calls with OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT unset",
        ) from None


# -- what a span says of its call ------------------------------------------------------------------


def _find_contents(reader: FormReader, span: _Span) -> _Contents | None:
    """Input and output of a model call; None where the span has neither."""
    for attributes, place in [
        (span.attributes, span.place),
        *((event.attributes, event.place) for event in span.events),
        *((event.body, event.place) for event in span.events if isinstance(event.body, Mapping)),
    ]:
        if _find_value(attributes, _INPUT) is None and _find_value(attributes, _OUTPUT) is None:
            continue
        sides = [
            [
                (entry, f"{place}.{key}[{index}]")
                for index, entry in enumerate(
                    reader.require_list(
                        _load(reader, _find_value(attributes, key), f"{place}.{key}") or [],
                        "the messages",
                        f"{place}.{key}",
                    )
                )
            ]
            for key in (_INPUT, _OUTPUT)
        ]
        system = _load(reader, _find_value(attributes, _SYSTEM), f"{place}.{_SYSTEM}")
        return _Contents(system, *sides)
    for names in _NUMBERED:
        values = [_find_value(span.attributes, name) for name in names]
        sides = [
            _list_numbered(value, f"{span.place}.{name}") for name, value in zip(names, values, strict=True)
        ]
        if any(sides):
            return _Contents(None, *sides)
    return _find_event_contents(reader, span)


def _find_event_contents(reader: FormReader, span: _Span) -> _Contents | None:
    contents = _Contents(None, [], [])
    for event in span.events:
        if event.name in _OLDEST_EVENTS:
            key = _OLDEST_EVENTS[event.name]
            listed = _load(reader, event.attributes.get(key), f"{event.place}.{key}")
            side = contents.input if key == "gen_ai.prompt" else contents.output
            side += _list_numbered(listed, f"{event.place}.{key}")
        elif event.name in _EVENTS or event.name == _CHOICE:
            body = event.body if event.body is not None else event.attributes.get("gen_ai.event.content")
            body = _load(reader, body, event.place) if body is not None else event.attributes
            body = reader.require_object(body, "a message", event.place)
            if event.name == _CHOICE:
                inner = _load(reader, body["message"], event.place) if "message" in body else body
                choice = inner if isinstance(inner, Mapping) else {"content": inner}
                contents.output.append(({"role": "assistant", **choice}, event.place))
            else:
                contents.input.append(({"role": _EVENTS[event.name], **body}, event.place))
    return contents if contents.input or contents.output else None


def _read_call(source: str | None, span: _Span, contents: _Contents) -> _Call:
    """The call with its messages, and digests of them without the prompt, which may change."""
    reader = FormReader(FORM, source)
    system = _read_system(reader, contents.system, f"{span.place}.{_SYSTEM}")
    if system is not None:
        reader.add(Message(role="system", content=system), f"{span.place}.{_SYSTEM}")
    hint = _choose_hint(span.attributes)
    for entry, place in contents.input:
        _add_message(reader, entry, place, hint)
    output = FormReader(FORM, source)
    _add_output(output, span, contents)
    messages = list(reader.messages)
    prompt = messages.pop(0).content if messages and messages[0].role == "system" else None
    heads = [""]
    for message in messages:
        heads.append(_digest(heads[-1], message))
    tail = heads[-1]
    for message in output.messages:
        tail = _digest(tail, message)
    return _Call(span, contents, reader, prompt, heads, tail)


def _read_system(reader: FormReader, data: Any, place: str) -> str | None:
    """The prompt that stands beside the messages."""
    if not data:
        return None
    if isinstance(data, str):
        return data
    texts: list[str] = []
    for index, part in enumerate(reader.require_list(data, "the instructions", place)):
        if isinstance(part, Mapping) and isinstance(part.get("content"), str):
            texts.append(part["content"])
        else:
            texts.append(reader.require_text(part, f"{place}[{index}]"))
    return "\n\n".join(texts)


def _add_output(reader: FormReader, span: _Span, contents: _Contents) -> None:
    """Take the answer; of several choices the first."""
    for entry, place in contents.output[:1]:
        _add_message(reader, entry, place, _choose_hint(span.attributes), default="assistant")
    for _, place in contents.output[1:]:
        reader.leave_out(["a second choice"], place)


def _digest(before: str, message: Message) -> str:
    """A digest of the messages up to one: who says it, words, parts and calls, and not their ids."""
    said = [
        message.role,
        message.content or "",
        [part.to_dict() for part in message.parts],
        [
            [call.name, call.arguments if call.arguments is not None else call.raw]
            for call in message.tool_calls
        ],
    ]
    text = json.dumps([before, said], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- chains ----------------------------------------------------------------------------------------


def _group_calls(calls: Sequence[_Call]) -> list[list[_Call]]:
    """The calls in chains, each of which goes on with the one before it.

    A chain goes on once: a second call that goes on from the same place is a conversation of its own, with
    all that was said before. So is a call whose input has other words.
    """
    tails: dict[str, list[int]] = {}
    chains: list[list[_Call]] = []
    for call in sorted(_leave_out_inner(calls), key=lambda call: len(call.heads)):
        number = next(
            (
                max(tails[head], key=lambda found: chains[found][-1].span.ids[0] == call.span.ids[0])
                for head in reversed(call.heads[1:])
                if tails.get(head)
            ),
            None,
        )
        if number is None:
            number = len(chains)
            chains.append([])
        else:
            tails[chains[number][-1].tail].remove(number)
        chains[number].append(call)
        tails.setdefault(call.tail, []).append(number)
    order = {id(call): index for index, call in enumerate(calls)}
    return sorted(chains, key=lambda chain: order[id(chain[0])])


def _leave_out_inner(calls: Sequence[_Call]) -> list[_Call]:
    """The calls without those that a call of a framework made at its host, when both were recorded."""
    tails = {call.span.ids: call.tail for call in calls}
    return [call for call in calls if tails.get((call.span.ids[0], call.span.parent)) != call.tail]


def _finish_chain(source: str | None, chain: Sequence[_Call]) -> FormReader:
    """The reader of the last call with its output, and with what was left out of all of them."""
    reader = chain[-1].reader
    for call in chain:
        output = FormReader(FORM, source)
        output.mends = reader.mends
        _add_output(output, call.span, call.contents)
        if call is not chain[-1]:
            if call.system != chain[-1].system:
                reader.leave_out(["other instructions"], call.span.place)
            continue
        for message, place in zip(output.messages, output.places, strict=True):
            reader.add(message, place)
    return reader


# -- messages --------------------------------------------------------------------------------------


def _add_message(reader: FormReader, entry: Any, place: str, hint: str, default: Role | None = None) -> None:
    """Take a message in one of the vocabularies.

    Args:
        hint: how to have contents recorded, for what has none.
        default: the role of a message that says none.
    """
    entry = reader.require_object(entry, "a message", place)
    entry = reader.require_object(entry.get("message", entry), "a message", place)
    name = entry.get("role") or default
    role = _ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise reader.refuse(f"unknown role {name!r}; there are {', '.join(_ROLES)}", f"{place}.role")
    if "parts" in entry:
        _PartsReader(reader, role, hint).add_parts(entry["parts"], place)
        return
    calls = [
        _read_flat_call(reader, call, call_place)
        for call, call_place in _list_numbered(
            _load(reader, entry.get("tool_calls"), f"{place}.tool_calls"), f"{place}.tool_calls"
        )
    ]
    if entry.get("function_call_name"):
        arguments = entry.get("function_call_arguments_json")
        calls.append(decode_call("", entry["function_call_name"], arguments))
    parts = _read_flat_content(reader, entry, place, hint)
    if not parts and not calls and "content" not in entry and "contents" not in entry:
        raise reader.refuse(_NOT_RECORDED, place, hint=hint)
    if role == "tool":
        call_id, tool = entry.get("tool_call_id") or entry.get("id"), entry.get("name")
        reader.add(
            build_message(
                "tool",
                parts,
                tool_call_id=str(call_id) if call_id else None,
                name=tool if isinstance(tool, str) and tool else None,
            ),
            place,
        )
        return
    reader.leave_out((key for key in ("reasoning", "reasoning_content") if entry.get(key)), place)
    reader.add(_build_spoken(role, parts, calls), place)


def _build_spoken(role: Role, parts: Sequence[ContentPart], calls: Sequence[ToolCall]) -> Message:
    """The message of a role other than that of a tool."""
    if role != "assistant":
        return build_message(role, parts)
    has_texts = any(isinstance(part, TextPart) for part in parts)
    return Message(
        role="assistant",
        content=join_texts(parts) if has_texts else None,
        parts=merge_texts(parts),
        tool_calls=tuple(calls),
    )


def _read_flat_call(reader: FormReader, call: Any, place: str) -> ToolCall:
    call = reader.require_object(call, "a call", place)
    call = reader.require_object(call.get("tool_call", call), "a call", place)
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise reader.refuse("a call without a name", place)
    return decode_call(str(call.get("id") or ""), name, function.get("arguments"))


def _read_flat_content(
    reader: FormReader, entry: Mapping[str, Any], place: str, hint: str
) -> list[ContentPart]:
    """The content of a message: a text, the JSON text of parts, parts, or numbered ones (OpenInference)."""
    parts: list[ContentPart] = []
    for item, item_place in _list_numbered(entry.get("contents"), f"{place}.contents"):
        part = _read_numbered_part(reader, item, item_place, hint)
        parts += [] if part is None else [part]
    content = entry.get("content")
    if content == _MASK:
        raise reader.refuse(_NOT_RECORDED, place, hint=hint)
    if parts or content is None:
        return parts
    if isinstance(content, str) and content.lstrip().startswith('[{"type":'):
        try:
            listed = parse_foreign_json(content, "file_values")
            return [decode_chat_part(part) for part in listed]
        except ValueError:  # a text that begins so
            pass
    if isinstance(content, str):
        return [TextPart(text=content)]
    if isinstance(content, list):
        text, parts_read = read_content(content, reader.source, place)
        return list(parts_read) or [TextPart(text=text or "")]
    return [TextPart(text=json.dumps(content, ensure_ascii=False))]


def _read_numbered_part(reader: FormReader, item: Any, place: str, hint: str) -> ContentPart | None:
    """A part of OpenInference; None for thoughts.

    Source: openinference-semantic-conventions 0.1.42, `MessageContentAttributes`.
    """
    item = reader.require_object(item, "a part", place)
    item = reader.require_object(item.get("message_content", item), "a part", place)
    kind = item.get("type")
    if kind == "reasoning":
        reader.leave_out([kind], place)
        return None
    value = _find_value(item, "text") if kind == "text" else _find_value(item, f"{kind}.{kind}.url")
    if not isinstance(value, str) or value == _MASK:
        known = kind in ("text", "image", "audio")
        problem = _NOT_RECORDED if known else f"no message has a place for a part of the type {kind!r}"
        raise reader.refuse(problem, place, hint=hint if known else "")
    if kind == "text":
        return TextPart(text=value)
    try:
        media = decode_chat_part({"type": "image_url", "image_url": {"url": value}})
    except ValueError as error:
        raise reader.refuse(str(error), place) from None
    if kind == "image" or not isinstance(media, ImagePart):
        return media
    part_type = AudioPart if kind == "audio" else FilePart
    return part_type(data=media.data, url=media.url, media_type=media.media_type)


class _PartsReader:
    """Reads the parts of a message by the JSON Schemas of the GenAI conventions."""

    def __init__(self, reader: FormReader, role: Role, hint: str) -> None:
        self._reader = reader
        self._role: Role = role
        self._hint = hint
        self._parts: list[ContentPart] = []
        self._calls: list[ToolCall] = []

    def add_parts(self, parts: Any, place: str) -> None:
        """Take the message of these parts: results are messages of their own."""
        reader = self._reader
        has_results = False
        for index, part in enumerate(reader.require_list(parts, "the parts of a message", f"{place}.parts")):
            part_place = f"{place}.parts[{index}]"
            part = {"type": "text", "content": part} if isinstance(part, str) else part
            part = reader.require_object(part, "a part", part_place)
            if part.get("type") != "tool_call_response":
                self._add_part(part, part_place)
                continue
            if self._parts or self._calls:
                self._flush(place)
            self._add_result(part, part_place)
            has_results = True
        if self._parts or self._calls or not has_results:
            self._flush(place)

    def _flush(self, place: str) -> None:
        role: Role = "user" if self._role == "tool" else self._role
        self._reader.add(_build_spoken(role, self._parts, self._calls), place)
        self._parts, self._calls = [], []

    def _add_part(self, part: Mapping[str, Any], place: str) -> None:
        reader, kind = self._reader, part.get("type")
        match kind:
            case "text":
                self._parts.append(TextPart(text=self._require(part, "content", place)))
            case "reasoning" | "thinking" | "compaction":
                reader.leave_out([str(kind)], place)
            case "tool_call":
                name = reader.require_text(part.get("name"), f"{place}.name")
                if self._role != "assistant":
                    raise reader.refuse(f"only the assistant calls tools, not {self._role}", place)
                self._calls.append(decode_call(str(part.get("id") or ""), name, part.get("arguments")))
            case "blob":
                data = self._require(part, "content" if "content" in part else "data", place)
                media = reader.read_media(data, part.get("mime_type"), place)
                part_type = self._find_type(part)
                self._parts.append(part_type(data=media.data, media_type=media.media_type))
            case "uri":
                url = self._require(part, "uri", place)
                self._parts.append(
                    self._find_type(part)(url=url, media_type=str(part.get("mime_type") or ""))
                )
            case "file":
                raise reader.refuse(
                    "a file of a host cannot be kept: its bytes are only there",
                    place,
                    hint="leave this conversation out, or put the bytes into its place",
                )
            case "server_tool_call" | "server_tool_call_response":
                self._add_host_call(part)
            case _:
                raise reader.refuse(f"no message has a place for a part of the type {kind!r}", place)

    def _require(self, part: Mapping[str, Any], key: str, place: str) -> str:
        if part.get(key) is None:
            raise self._reader.refuse(_NOT_RECORDED, place, hint=self._hint)
        return self._reader.require_text(part[key], f"{place}.{key}")

    @staticmethod
    def _find_type(part: Mapping[str, Any]) -> type[ImagePart | AudioPart | FilePart]:
        modality = part.get("modality") or str(part.get("mime_type")).partition("/")[0]
        return {"image": ImagePart, "audio": AudioPart}.get(str(modality), FilePart)

    def _add_result(self, part: Mapping[str, Any], place: str) -> None:
        key = next((key for key in ("response", "result") if key in part), None)
        if key is None:
            raise self._reader.refuse(_NOT_RECORDED, place, hint=self._hint)
        value, name = part[key], part.get("name")
        text = (
            value
            if isinstance(value, str)
            else ""
            if value is None
            else json.dumps(value, ensure_ascii=False)
        )
        self._reader.add(
            Message(
                role="tool",
                content=text,
                tool_call_id=str(part["id"]) if part.get("id") else None,
                name=name if isinstance(name, str) and name else None,
            ),
            place,
        )

    def _add_host_call(self, part: Mapping[str, Any]) -> None:
        """Add a tool that the host ran itself, or what became of it."""
        asked, said = part.get("server_tool_call"), part.get("server_tool_call_response")
        call = HostCallPart(
            tool=str(part.get("name") or ""),
            id=str(part.get("id") or ""),
            input=dict(asked) if isinstance(asked, Mapping) else {},
            output="" if said is None else json.dumps(said, ensure_ascii=False),
        )
        for index, earlier in enumerate(self._parts):
            if call.id and isinstance(earlier, HostCallPart) and earlier.id == call.id:
                self._parts[index] = join_host_calls(earlier, call)
                return
        self._parts.append(call)
