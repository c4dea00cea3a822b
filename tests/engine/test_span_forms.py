"""Conversations in spans of OpenTelemetry are read whole, or refused with the place.

The data is of the shapes that opentelemetry-sdk 1.45.2, opentelemetry-instrumentation-openai 0.62.4 and
openinference-instrumentation-openai 0.1.66 write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import agents
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolchart import Telemetry
from toolchart.engine.exchange.forms import spans
from toolchart.states.content import AudioPart, ContentPart, FilePart, HostCallPart, ImagePart, TextPart
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall

Attributes = dict[str, Any]
Writer = Callable[[Sequence[Message], Sequence[Message]], dict[str, Any]]
"""Writes the span of a call by its input and output, as attributes or events."""


def own(name: str, arguments: dict[str, Any], call_id: str) -> ToolCall:
    """Make a call of ours."""
    return ToolCall(id=call_id, name=name, arguments=arguments)


CONVERSATION = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="How is it in Oslo?"),
    Message(role="assistant", content="Let me look.", tool_calls=(own("weather", {"city": "Oslo"}, "c1"),)),
    Message(role="tool", content='{"c": 3}', tool_call_id="c1", name="weather"),
    Message(role="assistant", content="Cold."),
    Message(role="user", content="Thanks."),
    Message(role="assistant", content="Bye."),
]


# -- writers ---------------------------------------------------------------------------------------


def write_parts(message: Message) -> dict[str, Any]:
    """Write a message by the schema of the conventions."""
    if message.role == "tool":
        part = {"type": "tool_call_response", "id": message.tool_call_id, "response": message.content}
        return {"role": "tool", "parts": [part]}
    texts = [{"type": "text", "content": message.content}] if message.content is not None else []
    calls = [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return {"role": message.role, "parts": [*texts, *calls]}


def write_conventions(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call by the conventions, with JSON texts."""
    system = [{"type": "text", "content": m.content} for m in sent if m.role == "system"]
    return {
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.system_instructions": json.dumps(system),
            "gen_ai.input.messages": json.dumps([write_parts(m) for m in sent if m.role != "system"]),
            "gen_ai.output.messages": json.dumps([write_parts(m) for m in answered]),
        }
    }


def write_values(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call by the conventions, with values."""
    return {
        "attributes": {
            "gen_ai.input.messages": [write_parts(message) for message in sent],
            "gen_ai.output.messages": [write_parts(message) for message in answered],
        }
    }


def write_chat(message: Message) -> dict[str, Any]:
    """Write a message as the older events do."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return {**data, "id": message.tool_call_id} if message.role == "tool" else data


def write_events(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call as events of its span."""
    events = [
        {
            "name": f"gen_ai.{message.role}.message",
            "attributes": {"gen_ai.event.content": json.dumps(write_chat(message))},
        }
        for message in sent
    ]
    events += [
        {
            "name": "gen_ai.choice",
            "attributes": {"index": 0, "finish_reason": "stop", "message": json.dumps(write_chat(message))},
        }
        for message in answered
    ]
    return {"attributes": {"gen_ai.operation.name": "chat"}, "events": events}


def write_noted_events(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call with its events in one attribute."""
    events = [{"event.name": f"gen_ai.{m.role}.message", **write_chat(m)} for m in sent]
    events += [{"event.name": "gen_ai.choice", "index": 0, "message": write_chat(m)} for m in answered]
    return {"attributes": {"events": json.dumps(events)}}


def write_openllmetry(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call as OpenLLMetry does."""
    attributes: Attributes = {"llm.request.type": "chat"}
    for name, messages in (("gen_ai.prompt", sent), ("gen_ai.completion", answered)):
        for index, message in enumerate(messages):
            attributes[f"{name}.{index}.role"] = message.role
            if message.content is not None:
                attributes[f"{name}.{index}.content"] = message.content
            if message.tool_call_id:
                attributes[f"{name}.{index}.tool_call_id"] = message.tool_call_id
            for number, call in enumerate(message.tool_calls):
                prefix = f"{name}.{index}.tool_calls.{number}"
                attributes[f"{prefix}.id"] = call.id
                attributes[f"{prefix}.name"] = call.name
                attributes[f"{prefix}.arguments"] = json.dumps(call.arguments)
    return {"attributes": attributes}


def write_openinference(sent: Sequence[Message], answered: Sequence[Message]) -> dict[str, Any]:
    """Write a call as OpenInference does."""
    attributes: Attributes = {"openinference.span.kind": "LLM"}
    for name, messages in (("llm.input_messages", sent), ("llm.output_messages", answered)):
        for index, message in enumerate(messages):
            prefix = f"{name}.{index}.message"
            attributes[f"{prefix}.role"] = message.role
            if message.content is not None:
                attributes[f"{prefix}.content"] = message.content
            if message.tool_call_id:
                attributes[f"{prefix}.tool_call_id"] = message.tool_call_id
            for number, call in enumerate(message.tool_calls):
                inner = f"{prefix}.tool_calls.{number}.tool_call"
                attributes[f"{inner}.id"] = call.id
                attributes[f"{inner}.function.name"] = call.name
                attributes[f"{inner}.function.arguments"] = json.dumps(call.arguments)
    return {"attributes": attributes}


WRITERS: list[Writer] = [
    write_conventions,
    write_values,
    write_events,
    write_noted_events,
    write_openllmetry,
    write_openinference,
]


def split_calls(conversation: Sequence[Message]) -> list[tuple[list[Message], list[Message]]]:
    """Input and output of each model call of a conversation."""
    return [
        (list(conversation[:index]), [message])
        for index, message in enumerate(conversation)
        if message.role == "assistant"
    ]


def print_spans(conversation: Sequence[Message], write: Writer, trace: str = "1") -> list[dict[str, Any]]:
    """The spans of a conversation as an SDK prints them."""
    return [
        {
            "name": "chat m",
            "context": {"trace_id": trace, "span_id": f"{trace}.{index}"},
            "parent_id": None,
            "events": [],
            **write(sent, answered),
        }
        for index, (sent, answered) in enumerate(split_calls(conversation))
    ]


def encode_value(value: Any) -> dict[str, Any]:
    """A value as OTLP has it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [encode_value(item) for item in value]}}
        case dict():
            return {"kvlistValue": {"values": encode_attributes(value)}}
    return {}


def encode_attributes(attributes: Attributes) -> list[dict[str, Any]]:
    """Attributes as OTLP has them."""
    return [{"key": key, "value": encode_value(value)} for key, value in attributes.items()]


def export_spans(printed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An OTLP document with these spans."""
    listed = [
        {
            "name": span["name"],
            "traceId": span["context"]["trace_id"],
            "spanId": span["context"]["span_id"],
            "attributes": encode_attributes(span["attributes"]),
            "events": [
                {"name": event["name"], "attributes": encode_attributes(event["attributes"])}
                for event in span["events"]
            ],
        }
        for span in printed
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": listed}]}]}


def read_one(data: Any) -> tuple[list[Message], tuple[str, ...]]:
    """The one conversation of spans, with its prompt, and the warnings."""
    [reader] = spans.collect_all(data)
    recording = reader.read_recording()
    system = [] if recording.system is None else [Message(role="system", content=recording.system)]
    return [*system, *recording.messages], recording.warnings


def strip_texts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as data, without the texts that their arguments came as."""
    return [
        {
            **{key: value for key, value in message.to_dict().items() if key != "tool_calls"},
            "calls": [(call.id, call.name, call.arguments) for call in message.tool_calls],
        }
        for message in messages
    ]


# -- one conversation ------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("form", ["printed", "otlp", "lines"])
def test_the_calls_of_a_conversation_are_one(write: Writer, form: str) -> None:
    """In each vocabulary, calls that go on with one another are one conversation with its last answer."""
    printed = print_spans(CONVERSATION, write)
    exports = [export_spans([span]) for span in printed]
    data = {"printed": printed, "otlp": export_spans(printed), "lines": exports}[form]
    assert spans.is_list(data if isinstance(data, list) else [data])
    messages, warnings = read_one(data)
    assert strip_texts(messages) == strip_texts(CONVERSATION)
    assert warnings == ()


def test_calls_are_found_in_any_order() -> None:
    """Spans may come in any order: what goes on with what is told by the messages alone."""
    messages, _ = read_one(print_spans(CONVERSATION, write_conventions)[::-1])
    assert strip_texts(messages) == strip_texts(CONVERSATION)


def test_own_telemetry_is_read() -> None:
    """What Toolchart records of a turn with tools, as spans or as events alone, is read as the turn was."""
    exporter, log_exporter = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
    telemetry = Telemetry(
        content=True, tracer_provider=tracers, meter_provider=MeterProvider(), logger_provider=loggers
    )
    replies = [agents.reply_with_calls(("weather", {"city": "Oslo"})), "Blue."]
    with agents.make_engine(replies, telemetry=telemetry) as engine:
        engine.run("How is the sky?")
    printed = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    logged = [json.loads(record.to_json()) for record in log_exporter.get_finished_logs()]
    for data in (printed, logged, [*printed, *logged]):
        messages, warnings = read_one(data)
        assert [message.role for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert [messages[0].content, messages[1].content, messages[4].content] == [
            "Be brief.",
            "How is the sky?",
            "Blue.",
        ]
        [call] = messages[2].tool_calls
        assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
        assert "blue" in str(messages[3].content)
        assert warnings == ()


def test_log_records_belong_to_their_span() -> None:
    """The older events as log records make the messages of the span that they name."""
    records = [
        {
            "traceId": "1",
            "spanId": "2",
            "eventName": name,
            "severityNumber": 9,
            "body": encode_value(body),
            "attributes": [],
        }
        for name, body in (
            ("gen_ai.user.message", {"content": "hi"}),
            ("gen_ai.choice", {"index": 0, "message": {"content": "hello"}}),
        )
    ]
    call = {"traceId": "1", "spanId": "2", "attributes": encode_attributes({"gen_ai.operation.name": "chat"})}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    both = [logs, {"resourceSpans": [{"scopeSpans": [{"spans": [call]}]}]}]
    for data in (logs, both):
        messages, _ = read_one(data)
        assert messages == [Message(role="user", content="hi"), Message(role="assistant", content="hello")]


# -- several conversations -------------------------------------------------------------------------


def test_each_conversation_has_its_reader() -> None:
    """Two conversations with the same beginning stay two, also where one repeats the other's first call."""
    other = [*CONVERSATION[:-2], Message(role="user", content="And in Rome?"), CONVERSATION[-1]]
    alone = CONVERSATION[:3]
    data = [
        *print_spans(CONVERSATION, write_conventions, "1"),
        *print_spans(other, write_conventions, "2"),
        *print_spans(alone, write_conventions, "3"),
    ]
    readers = spans.collect_all(data)
    assert [len(reader.messages) for reader in readers] == [7, 7, 3]
    assert [reader.messages[5].content for reader in readers[:2]] == ["Thanks.", "And in Rome?"]


def test_a_framework_and_its_host_count_once() -> None:
    """A call that a framework and the client of its host both recorded is one call."""
    outer, inner = (print_spans(CONVERSATION[:3], write, "1")[0] for write in WRITERS[4:6])
    inner = {**inner, "context": {"trace_id": "1", "span_id": "in"}, "parent_id": "1.0"}
    assert len(spans.collect_all([inner, outer])) == 1


def test_spans_of_agents_and_tools_are_no_calls() -> None:
    """What a span of an agent or of a tool repeats is no conversation of its own."""
    agent = print_spans([CONVERSATION[1], CONVERSATION[4]], write_values, "1")[0]
    agent["attributes"]["gen_ai.operation.name"] = "invoke_agent"
    chain = {**agent, "attributes": {**agent["attributes"], "openinference.span.kind": "CHAIN"}}
    data = [agent, chain, *print_spans(CONVERSATION, write_conventions)]
    assert strip_texts(read_one(data)[0]) == strip_texts(CONVERSATION)
    assert len(read_one([agent])[0]) == 2


def test_a_call_that_failed_is_tried_again() -> None:
    """A call without an answer goes on with the one that has the same input."""
    first, *others = print_spans(CONVERSATION, write_openinference)
    failed = {key: value for key, value in first["attributes"].items() if "output" not in key}
    data = [{**first, "context": {"span_id": "0"}, "attributes": failed}, first, *others]
    assert strip_texts(read_one(data)[0]) == strip_texts(CONVERSATION)


# -- what is left out ------------------------------------------------------------------------------


def test_what_earlier_calls_said_beside_is_told() -> None:
    """Thoughts of an earlier answer, another prompt, a second choice, a call without its input are told."""
    data = print_spans(CONVERSATION, write_values)
    first = data[0]["attributes"]
    first["gen_ai.output.messages"][0]["parts"].insert(0, {"type": "reasoning", "content": "hm"})
    first["gen_ai.output.messages"].append(write_parts(CONVERSATION[4]))
    first["gen_ai.input.messages"][0]["parts"][0]["content"] = "Be kind."
    blank = {
        "context": {"span_id": "9"},
        "attributes": {"gen_ai.request.model": "m", "gen_ai.operation.name": "chat"},
    }
    messages, [warning] = read_one([*data, blank])
    assert strip_texts(messages) == strip_texts(CONVERSATION)
    assert "[0].gen_ai.output.messages[0].parts[0] (reasoning)" in warning
    assert "[0].gen_ai.output.messages[1] (a second choice)" in warning
    assert "[0] (other instructions)" in warning
    assert "[3] (a model call that was recorded without its input)" in warning


# -- parts -----------------------------------------------------------------------------------------

PARTS: list[tuple[list[dict[str, Any]], tuple[ContentPart, ...]]] = [
    ([{"type": "text", "content": "a"}], (TextPart(text="a"),)),
    (
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": "AA__"}],
        (ImagePart(data="AA//", media_type="image/png"),),
    ),
    (
        [{"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "AAAA"}],
        (AudioPart(data="AAAA", media_type="audio/wav"),),
    ),
    ([{"type": "uri", "modality": "image", "uri": "https://e.com/a"}], (ImagePart(url="https://e.com/a"),)),
    (
        [{"type": "uri", "modality": "video", "mime_type": "video/mp4", "uri": "https://e.com/a"}],
        (FilePart(url="https://e.com/a", media_type="video/mp4"),),
    ),
    (
        [
            {"type": "server_tool_call", "id": "w", "name": "web_search", "server_tool_call": {"query": "q"}},
            {"type": "server_tool_call_response", "id": "w", "server_tool_call_response": {"n": 1}},
        ],
        (HostCallPart(tool="web_search", id="w", input={"query": "q"}, output='{"n": 1}'),),
    ),
]


@pytest.mark.parametrize(("parts", "expected"), PARTS)
def test_parts_of_the_conventions(parts: list[dict[str, Any]], expected: tuple[ContentPart, ...]) -> None:
    """Texts, bytes, addresses and what the host ran are parts of the message."""
    messages = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
    attributes = {
        "gen_ai.input.messages": messages,
        "gen_ai.output.messages": [{"role": "assistant", "parts": parts}],
    }
    [_, message], _ = read_one([{"context": {"span_id": "1"}, "attributes": attributes}])
    assert message.list_parts() == expected


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.contents.0.message_content.type": "text",
            "llm.input_messages.0.message.contents.0.message_content.text": "a",
            "llm.input_messages.0.message.contents.1.message_content.type": "image",
            "llm.input_messages.0.message.contents.1.message_content.image.image.url": (
                "data:image/png;base64,AAAA"
            ),
        },
        {
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": '[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": '
            '{"url": "data:image/png;base64,AAAA"}}]',
        },
    ],
)
def test_pictures_of_the_other_vocabularies(attributes: Attributes) -> None:
    """A picture beside a text is a part in OpenInference and in OpenLLMetry."""
    [message], _ = read_one([{"context": {"span_id": "1"}, "attributes": attributes}])
    assert message.parts == (TextPart(text="a"), ImagePart(data="AAAA", media_type="image/png"))


# -- refusals --------------------------------------------------------------------------------------

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
REFUSED: list[tuple[Attributes, str, str, str]] = [
    ({"http.method": "GET"}, "[0]", "no span here is a call of a model", "gen_ai"),
    ({"gen_ai.request.model": "m"}, "[0]", "was not recorded", CAPTURE),
    (
        {"llm.model_name": "m", "openinference.span.kind": "LLM"},
        "[0]",
        "was not recorded",
        "OPENINFERENCE_HIDE_INPUTS",
    ),
    (
        {"gen_ai.system": "openai", "llm.request.type": "chat"},
        "[0]",
        "was not recorded",
        "TRACELOOP_TRACE_CONTENT",
    ),
    (
        {"gen_ai.input.messages": '[{"role": "us'},
        "[0].gen_ai.input.messages",
        "not JSON",
        "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    ),
    (
        {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text"}]}]},
        "[0].gen_ai.input.messages[0].parts[0]",
        "was not recorded",
        CAPTURE,
    ),
    (
        {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "poem"}]}]},
        "[0].gen_ai.input.messages[0].parts[0]",
        "'poem'",
        "spans of OpenTelemetry",
    ),
    (
        {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "file", "file_id": "f"}]}]},
        "[0].gen_ai.input.messages[0].parts[0]",
        "only there",
        "bytes",
    ),
    (
        {"gen_ai.input.messages": [{"role": "critic", "parts": []}]},
        "[0].gen_ai.input.messages[0].role",
        "unknown role 'critic'",
        "spans of OpenTelemetry",
    ),
    (
        {"gen_ai.input.messages": [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c"}]}]},
        "[0].gen_ai.input.messages[0].parts[0]",
        "was not recorded",
        CAPTURE,
    ),
    ({"gen_ai.prompt.0.role": "user"}, "[0].gen_ai.prompt.0", "was not recorded", CAPTURE),
    (
        {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "__REDACTED__",
        },
        "[0].llm.input_messages.0",
        "was not recorded",
        "OPENINFERENCE_HIDE_INPUTS",
    ),
]


@pytest.mark.parametrize(("attributes", "place", "words", "hint"), REFUSED)
def test_what_cannot_be_read_of_spans(attributes: Attributes, place: str, words: str, hint: str) -> None:
    """Spans without contents are refused with the switch that records them; odd parts with their place."""
    with pytest.raises(SpecError, match=words) as caught:
        spans.collect_all([{"context": {"span_id": "1"}, "attributes": attributes}])
    assert caught.value.path == place
    assert hint in str(caught.value)


def test_the_place_in_a_document_of_otlp() -> None:
    """A refusal in an OTLP document names the span in its lists, and the file."""
    document = export_spans(print_spans([Message(role="user", content="x"), CONVERSATION[6]], write_values))
    span = document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["attributes"] = encode_attributes({"gen_ai.request.model": "m"})
    with pytest.raises(SpecError, match="was not recorded") as caught:
        spans.collect_all(document, "spans.json")
    assert caught.value.path == "resourceSpans[0].scopeSpans[0].spans[0]"
    assert caught.value.file == "spans.json"


# -- round trips -----------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(
    lambda text: not text.lstrip().startswith("[")
)
ARGUMENTS = st.dictionaries(WORDS, st.integers() | st.none() | WORDS, max_size=3)


@st.composite
def draw_conversation(draw: st.DrawFn) -> list[Message]:
    """A conversation of ours: a prompt, and turns with calls, results and answers."""
    messages = [Message(role="system", content=draw(WORDS))]
    numbers = iter(range(100))
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message(role="user", content=draw(WORDS)))
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                own(draw(st.sampled_from(["look", "search"])), draw(ARGUMENTS), f"c{next(numbers)}")
                for _ in range(draw(st.integers(1, 2)))
            ]
            messages.append(
                Message(role="assistant", content=draw(st.none() | WORDS), tool_calls=tuple(calls))
            )
            messages += [
                Message(role="tool", content=draw(WORDS), tool_call_id=call.id, name=call.name)
                for call in calls
            ]
        messages.append(Message(role="assistant", content=draw(WORDS)))
    return messages


@given(draw_conversation(), st.sampled_from(WRITERS), st.booleans(), st.randoms())
def test_a_conversation_in_each_vocabulary_is_the_same(
    conversation: list[Message], write: Writer, is_exported: bool, random: Any
) -> None:
    """A conversation that is recorded call by call, in any order, is read back with the same messages."""
    printed = print_spans(conversation, write)
    random.shuffle(printed)
    messages, warnings = read_one(export_spans(printed) if is_exported else printed)
    assert strip_texts(messages) == strip_texts(conversation)
    assert warnings == ()
