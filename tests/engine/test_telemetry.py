"""Live telemetry: spans while things run, by the names of the conventions, with content only where asked.

REQUIREMENTS: S4.8.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import agents
import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from planted_key import KEY, find_key, quote_key
from web import serve_web

from toolchart import Engine, Telemetry, TurnResult
from toolchart.engine.exchange.otel import export_family_spans
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall

KNOWN_ATTRIBUTES = {
    value
    for name, value in vars(gen_ai_attributes).items()
    if name.startswith("GEN_AI_")
    and name not in ("GEN_AI_SYSTEM", "GEN_AI_PROMPT", "GEN_AI_COMPLETION")
    and not name.startswith("GEN_AI_OPENAI_")
}
"""The attributes of the registry, without those that have another name now."""

KNOWN_METRICS = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")} | {
    # In the conventions' own repository since they left the common one; the package does not have them.
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
}

OTHER_ATTRIBUTES = {"error.type", "http.response.status_code"}


class Collected:
    """Telemetry of a test with everything that it has exported."""

    def __init__(self, *, content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = tracers.get_tracer("test")
        self.log_exporter = InMemoryLogRecordExporter()
        loggers = LoggerProvider()
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self.log_exporter))
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(
            content=content,
            tracer_provider=tracers,
            meter_provider=MeterProvider(metric_readers=[self.reader]),
            logger_provider=loggers,
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The newest span of each name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}

    @property
    def metrics(self) -> dict[str, list[Any]]:
        """The data points of each metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [
            metric
            for part in data.resource_metrics
            for scope in part.scope_metrics
            for metric in scope.metrics
        ]
        return {metric.name: list(metric.data.data_points) for metric in found}


def run_turn(collected: Collected, **options: Any) -> TurnResult:
    """One turn with a failure, a retry, two tool calls and an answer."""
    calls = agents.reply_with_calls(("echo", {"text": "secret words"}), ("calculator", {"expression": "1/0"}))
    fail = {"fail": {"kind": "overloaded", "message": "busy", "status": 503, "retryable": True}}
    replies = [fail, {**calls, "usage": {"input": 100, "output": 20, "reasoning": 5, "cached": 7}}, "Done."]
    spec = {"chart": "full", "retry": {"first_wait_s": 0.001, "max_attempts": 2}, "name": "helper"}
    with agents.make_engine(replies, telemetry=collected.telemetry, **spec, **options) as engine:
        return engine.run("a private question", conversation="c")


def test_spans_metrics_and_events_have_the_names_of_the_registry() -> None:
    """Every attribute and metric is in the conventions' registry, or under `toolchart.`."""
    collected = Collected(content=True)
    run_turn(collected)
    events = [record.log_record for record in collected.log_exporter.get_finished_logs()]
    names = {
        *(name for span in collected.exporter.get_finished_spans() for name in span.attributes or ()),
        *(name for record in events for name in record.attributes or ()),
        *(name for points in collected.metrics.values() for point in points for name in point.attributes),
    }
    own_names = {name for name in names if name.startswith("toolchart.")}
    assert names - own_names - OTHER_ATTRIBUTES <= KNOWN_ATTRIBUTES
    assert set(collected.metrics) <= KNOWN_METRICS
    assert {record.event_name for record in events} == {"gen_ai.client.inference.operation.details"}


def test_a_turn_holds_its_model_calls_and_tools() -> None:
    """invoke_agent holds chat and execute_tool spans; kinds, errors and usage are those of the run."""
    collected = Collected()
    result = run_turn(collected)
    assert result.state == "finished"
    spans = collected.exporter.get_finished_spans()
    root = collected.spans["invoke_agent helper"]
    assert root.parent is None
    assert root.context is not None
    assert {span.parent.span_id for span in spans if span.parent} == {root.context.span_id}
    assert [span.name for span in spans].count("chat m") == 3
    failed_call = next(span for span in spans if span.name == "chat m")
    assert failed_call.attributes is not None
    assert (failed_call.attributes["error.type"], failed_call.kind) == ("overloaded", trace.SpanKind.CLIENT)
    assert not failed_call.status.is_ok
    used = next(s.attributes for s in spans if s.attributes and "gen_ai.usage.input_tokens" in s.attributes)
    assert (used["gen_ai.usage.input_tokens"], used["gen_ai.usage.cache_read.input_tokens"]) == (100, 7)
    failed_tool = collected.spans["execute_tool calculator"].attributes
    assert failed_tool is not None
    assert failed_tool["toolchart.tool.outcome"] == "failed"
    assert not collected.spans["execute_tool calculator"].status.is_ok
    assert collected.spans["execute_tool echo"].status.is_ok
    tokens = {
        p.attributes["gen_ai.token.type"]: p.sum for p in collected.metrics["gen_ai.client.token.usage"]
    }
    assert tokens == {"input": 100, "output": 20}
    assert sum(point.count for point in collected.metrics["gen_ai.client.operation.duration"]) == 3
    assert {event.name for event in root.events} >= {"turn_started", "replied", "tool_finished"}
    guards = [name for event in root.events for name in event.attributes or () if "toolchart.guard." in name]
    assert any("finish_reason" in name for name in guards)


@pytest.mark.parametrize("content", [False, True])
def test_content_is_included_only_where_it_is_asked_for(content: bool) -> None:
    """Messages, arguments and results appear with `content`, and nowhere without."""
    collected = Collected(content=content)
    run_turn(collected)
    logs = [record.log_record for record in collected.log_exporter.get_finished_logs()]
    everything = [
        *(dict(span.attributes or {}) for span in collected.exporter.get_finished_spans()),
        *(
            dict(event.attributes or {})
            for span in collected.exporter.get_finished_spans()
            for event in span.events
        ),
        *(dict(record.attributes or {}) for record in logs),
    ]
    text = json.dumps(everything, default=str)
    for words in ("private question", "secret words", "Be brief."):
        assert (words in text) is content
    if content:
        call = next(
            s
            for s in collected.exporter.get_finished_spans()
            if "gen_ai.output.messages" in (s.attributes or {})
        )
        assert call.attributes is not None
        (message,) = json.loads(str(call.attributes["gen_ai.output.messages"]))
        assert (message["role"], message["finish_reason"]) == ("assistant", "tool_calls")
        assert [part["type"] for part in message["parts"]] == ["tool_call", "tool_call"]


def test_work_runs_inside_its_span() -> None:
    """Spans that a tool makes lie inside its own span, also where tools run side by side."""
    collected = Collected()

    async def look(place: str) -> str:
        """Look at a place."""
        with collected.tracer.start_as_current_span(f"inner {place}"):
            await asyncio.sleep(0)
        return place

    replies = [agents.reply_with_calls(("look", {"place": "a"}), ("look", {"place": "b"})), "Done."]
    with agents.make_engine(replies, functions=[look], telemetry=collected.telemetry) as engine:
        engine.run("look", conversation="c")
    tools = {
        span.context.span_id
        for span in collected.exporter.get_finished_spans()
        if span.name == "execute_tool look" and span.context
    }
    parents = [collected.spans[name].parent for name in ("inner a", "inner b")]
    assert {parent.span_id for parent in parents if parent} == tools
    assert len(tools) == 2


def test_approvals_and_agents_have_spans() -> None:
    """A decision ends the span of its approval; the turn of a sub-agent lies inside its parent's turn."""
    collected = Collected()

    async def approve(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=False, by="a person")

    replies = [agents.reply_with_calls(("echo", {"text": "a"})), "Done."]
    options: dict[str, Any] = {"chart": "approval", "approval": [{"tools": "echo", "decision": "ask"}]}
    with agents.make_engine(replies, telemetry=collected.telemetry, approver=approve, **options) as engine:
        engine.run("go", conversation="c")
    approval = collected.spans["approval echo"].attributes
    assert approval is not None
    assert (approval["toolchart.approval.approved"], approval["toolchart.approval.by"]) == (False, "a person")
    collected = Collected()
    with Engine("map_reduce", log="memory", telemetry=collected.telemetry) as engine:
        engine.run("Why are there tides?", conversation="c")
    spans = collected.exporter.get_finished_spans()
    turns = [span for span in spans if span.name.startswith("invoke_agent")]
    assert len(turns) > 2
    (root,) = [span for span in turns if span.parent is None]
    assert {span.context.trace_id for span in spans if span.context} == {
        root.context and root.context.trace_id
    }


def test_an_open_turn_leaves_no_open_span() -> None:
    """A turn that waits for a person ends its spans; resuming it begins new ones."""
    collected = Collected()
    replies = [agents.reply_with_calls(("echo", {"text": "a"})), "Done."]
    options: dict[str, Any] = {"chart": "approval", "approval": [{"tools": "echo", "decision": "ask"}]}
    with agents.make_engine(replies, telemetry=collected.telemetry, **options) as engine:
        result = engine.run("go", conversation="c")
        waiting = collected.spans["approval echo"].attributes
        assert waiting is not None
        assert waiting["toolchart.is_waiting"]
        engine.resume("c", Decided(call_id=result.pending_approvals[0].id, approved=True))
    turns = [span for span in collected.exporter.get_finished_spans() if span.name.startswith("invoke_agent")]
    assert [(span.attributes or {})["toolchart.state"] for span in turns] == ["awaiting_approval", "finished"]


def test_the_export_of_the_log_has_the_same_attributes() -> None:
    """A span of the log's export has the attributes of the live span of the same call, content included."""
    collected = Collected(content=True)
    calls = agents.reply_with_calls(("echo", {"text": "secret words"}))
    with agents.make_engine([calls, "Done."], telemetry=collected.telemetry) as engine:
        engine.run("a private question", conversation="c")
        exported = export_family_spans(engine.store, "c", content=True)
    live = [span for span in collected.exporter.get_finished_spans() if not span.name.startswith("invoke")]
    spans = exported["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in live:
        found = [
            {entry["key"] for entry in other["attributes"]} for other in spans if other["name"] == span.name
        ]
        assert set(span.attributes or ()) in found


@pytest.mark.parametrize("question", ["hello", "fail", f"is {KEY} the key?"])
def test_no_live_span_holds_a_key(question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host quotes the key of the environment in replies, calls and errors; spans and events have it struck,
    with their content too."""
    monkeypatch.setenv("BOX_API_KEY", KEY)
    collected = Collected(content=True)
    with serve_web(quote_key) as web:
        box = {"provider": "openai", "base_url": f"{web.url}/v1", "api_key": "${BOX_API_KEY}", "model": "m"}
        spec = {
            "chart": "tool_loop",
            "llms": {"box": box},
            "tools": {"registry": [{"name": "echo"}]},
            "responses": [{"llm": "box", "tools": {"enabled": True}}],
        }
        with Engine(spec, log=MemoryStore(), telemetry=collected.telemetry) as engine:
            engine.run(question)
        assert web.requests
    texts = [span.to_json() for span in collected.exporter.get_finished_spans()]
    texts += [record.to_json() for record in collected.log_exporter.get_finished_logs()]
    texts += [str(collected.metrics)]
    assert "(secret)" in "".join(texts) or question == "fail"
    assert find_key(tmp_path, *texts) == []
