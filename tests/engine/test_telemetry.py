"""Live telemetry: spans while things run, by the names of the conventions, with content only where asked.

REQUIREMENTS: S4.8.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import agents
import child_agents
import pytest
from counting_host import serve_counting_host
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

from toolchart import Engine, Telemetry, ToolFailure, Turn
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.telemetry import live
from toolchart.states.errors import ProviderError
from toolchart.states.events import Decided, Failed, Replied
from toolchart.states.messages import Reply, Request, ToolCall, Usage
from toolchart.states.ports import Store

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

OTHER_ATTRIBUTES = {"error.type", "http.response.status_code", "server.address", "server.port"}


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


def run_turn(collected: Collected, **options: Any) -> Turn:
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


# -- usage and links -------------------------------------------------------------------------------


def make_usage(count: int) -> dict[str, Any]:
    """Usage of a scripted reply: `count` tokens in, a tenth out."""
    return {"usage": {"input": count, "output": count // 10, "cached": 1}}


def ask_for_approval(count: int) -> dict[str, Any]:
    """A scripted reply with a call that needs an approval."""
    return {**agents.reply_with_calls(("echo", {"text": "a"})), **make_usage(count)}


APPROVAL: dict[str, Any] = {
    "chart": "approval",
    "name": "helper",
    "approval": [{"tools": "echo", "decision": "ask"}],
}


def list_spans(collected: Collected, name: str) -> list[ReadableSpan]:
    """The spans whose names begin so, in the order in which they ended."""
    return [span for span in collected.exporter.get_finished_spans() if span.name.startswith(name)]


def list_usage(collected: Collected, name: str, kind: str = "input") -> list[Any]:
    """What each of these spans has used."""
    key = f"gen_ai.usage.{kind}_tokens"
    return [(span.attributes or {}).get(key) for span in list_spans(collected, name)]


def sum_usage(collected: Collected, name: str) -> tuple[int, int]:
    """What these spans have used together, in and out."""
    found = [list_usage(collected, name, kind) for kind in ("input", "output")]
    inputs, outputs = (sum(count or 0 for count in counts) for counts in found)
    return inputs, outputs


def sum_counted_tokens(collected: Collected) -> tuple[int, int]:
    """What the histogram of tokens has counted, in and out."""
    points = collected.metrics["gen_ai.client.token.usage"]
    inputs, outputs = (
        sum(point.sum for point in points if point.attributes["gen_ai.token.type"] == kind)
        for kind in ("input", "output")
    )
    return inputs, outputs


def sum_recorded_usage(store: Store, conversation: str) -> tuple[int, int]:
    """What the records of a conversation and its children say that replies have used, in and out."""
    used = Usage()
    for _, name in iterate_family(store, conversation):
        for record in read_conversation(store, name):
            event = record.decode_event()
            if isinstance(event, Replied | Failed) and event.reply is not None:
                used = used.plus(event.reply.usage)
    return used.input or 0, used.output or 0


def check_sums(collected: Collected, store: Store, conversation: str) -> None:
    """Each kind of span, and the histogram, add up to the records."""
    recorded = sum_recorded_usage(store, conversation)
    assert recorded > (0, 0)
    assert sum_usage(collected, "chat") == recorded
    assert sum_usage(collected, "invoke_agent") == recorded
    assert sum_counted_tokens(collected) == recorded


def test_a_turn_that_waited_counts_its_usage_once_and_links_back() -> None:
    """S4.8: each part of a turn that waits for a person counts what was used in it; the later part has a link
    to the part before and is in its trace, and the next turn is a trace of its own without a link."""
    collected = Collected()
    replies = [ask_for_approval(100), ask_for_approval(200), {"content": "Done.", **make_usage(400)}]
    replies.append({"content": "Bye.", **make_usage(800)})
    with agents.make_engine(replies, telemetry=collected.telemetry, **APPROVAL) as engine:
        result = engine.run("go", conversation="c")
        assert (collected.spans["approval echo"].attributes or {})["toolchart.is_waiting"]
        for _ in range(2):
            call = result.pending_approvals[0].id
            result = engine.conversation("c").resume(Decided(call_id=call, approved=True))
        assert result.state == "finished"
        engine.run("bye", conversation="c")
        check_sums(collected, engine.store, "c")
    assert list_usage(collected, "invoke_agent") == [100, 200, 400, 800]
    first, second, third, next_turn = list_spans(collected, "invoke_agent")
    assert [span.links for span in (first, next_turn)] == [(), ()]
    assert [[link.context for link in span.links] for span in (second, third)] == [
        [first.context],
        [second.context],
    ]
    traces = [span.context.trace_id for span in (first, second, third, next_turn) if span.context]
    assert traces[0] == traces[1] == traces[2] != traces[3]
    assert [span.parent for span in (first, second, third)] == [None, first.context, second.context]
    numbers = [(span.attributes or {})["toolchart.turn"] for span in list_spans(collected, "invoke_agent")]
    assert numbers == [1, 1, 1, 2]
    states = [(span.attributes or {})["toolchart.state"] for span in list_spans(collected, "invoke_agent")]
    assert states == ["awaiting_approval", "awaiting_approval", "finished", "finished"]


def test_a_new_turn_has_no_link() -> None:
    """A turn that begins links to nothing, also where a conversation with the same id, in another log, waited
    in its turn with the same number."""
    collected = Collected()
    for _ in range(2):
        with agents.make_engine([ask_for_approval(100)], telemetry=collected.telemetry, **APPROVAL) as engine:
            engine.run("go", conversation="c")
    assert [span.links for span in list_spans(collected, "invoke_agent")] == [(), ()]


def test_the_links_of_turns_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that wait for ever take no memory for ever: the oldest loses its link, and goes on without."""
    monkeypatch.setattr(live, "_MOST_LINKS", 1)
    collected = Collected()
    replies = [ask_for_approval(100), ask_for_approval(100), "Done.", "Done."]
    with agents.make_engine(replies, telemetry=collected.telemetry, **APPROVAL) as engine:
        waiting = {name: engine.run("go", conversation=name).pending_approvals[0].id for name in ("c", "d")}
        for name, call in waiting.items():
            engine.conversation(name).resume(Decided(call_id=call, approved=True))
    assert [len(span.links) for span in list_spans(collected, "invoke_agent")] == [0, 0, 0, 1]


def test_another_process_counts_only_its_part() -> None:
    """A process that goes on with a turn counts what it used and names the agent, the conversation and the
    turn; it cannot know the span of the process before, and has no link."""
    store, first, second = MemoryStore(), Collected(), Collected()
    with agents.make_engine(
        [ask_for_approval(100)], telemetry=first.telemetry, log=store, **APPROVAL
    ) as engine:
        result = engine.run("go", conversation="c")
    done = {"content": "Done.", **make_usage(200)}
    with agents.make_engine([done], telemetry=second.telemetry, log=store, **APPROVAL) as engine:
        engine.conversation("c").resume(Decided(call_id=result.pending_approvals[0].id, approved=True))
    assert (list_usage(first, "invoke_agent"), list_usage(second, "invoke_agent")) == ([100], [200])
    (before,), (after,) = list_spans(first, "invoke_agent helper"), list_spans(second, "invoke_agent helper")
    assert after.links == ()
    for key in ("gen_ai.agent.name", "gen_ai.conversation.id", "toolchart.turn"):
        assert (after.attributes or {})[key] == (before.attributes or {})[key]


PLAN_CHART = child_agents.make_parent_chart()
PLAN_CHART["states"]["working"].pop("initial")
PLAN_CHART["states"]["planning"] = {
    "initial": True,
    "enter": "plan",
    "transitions": [
        {"event": "replied", "target": "working"},
        {"event": "failed", "target": "planning", "cond": "outline.failures < 2"},
        {"event": "failed cancelled", "target": "error"},
    ],
}

PARTS = {
    "type": "object",
    "properties": {"parts": {"type": "array", "maxItems": 3, "items": {"type": "string"}}},
    "required": ["parts"],
}

PLAN_EFFECTS = {
    "plan": {"call_model": {"as": "outline", "prompt": "plan", "schema": PARTS}},
    "work": {
        "run_agent": {
            "chart": "full",
            "for_each": "outline.parts",
            "at_most": 3,
            "parallel": 1,
            "message": "do {{item}}",
            "as": "outcome",
        }
    },
    "publish": {"answer": "{{outcome}}"},
}


def test_spans_of_children_approvals_and_retries_sum_to_the_log() -> None:
    """S4.8: a run with a reply that breaks its schema and was paid for, children that wait for approvals, and
    a retry: spans of each kind and the histogram add up to the records, and a parent leaves out what its
    children used."""
    collected = Collected()
    asked: list[str] = []

    def answer(said: str, request: Request) -> Reply | Exception:
        asked.append(said)
        usage = Usage(input=100 * len(asked) + 7, output=3)
        if not said.startswith("do "):  # the plan, or its repair
            content = "no JSON" if len(asked) == 1 else '{"parts": ["a", "b"]}'
            return Reply(content=content, finish_reason="stop", usage=usage)
        if said == "do a" and asked.count(said) == 1:
            return ProviderError(kind="overloaded", message="busy", status=503, retryable=True)
        if request.messages[-1].role == "tool":
            return Reply(content=f"{said}: done", finish_reason="stop", usage=usage)
        call = ToolCall(id=f"call {said}", name="note", arguments={"text": said})
        return Reply(tool_calls=(call,), finish_reason="tool_calls", usage=usage)

    def note(text: str) -> str:
        """Write a note."""
        return text

    spec = child_agents.make_spec(
        PLAN_CHART, PLAN_EFFECTS, tools={"enabled": True, "apply_globally": True}, approval={"default": "ask"}
    )
    model = child_agents.FunctionModel(answer)
    with child_agents.make_engine(spec, model, functions=[note], telemetry=collected.telemetry) as engine:
        result = engine.run("go", conversation="c")
        while result.pending_approvals:
            call = result.pending_approvals[0]
            result = engine.conversation(str(call["conversation"])).resume(
                Decided(call_id=call.id, approved=True)
            )
        assert result.is_over
        assert "do b: done" in str(result.content)
        check_sums(collected, engine.store, "c")
        assert (result.usage.input, result.usage.output) == sum_usage(collected, "invoke_agent")
    assert len(asked) == 7
    own = [
        s
        for s in list_spans(collected, "invoke_agent")
        if (s.attributes or {})["gen_ai.conversation.id"] == "c"
    ]
    used = [(span.attributes or {}).get("gen_ai.usage.input_tokens") for span in own]
    assert used == [107 + 207, *[None] * (len(own) - 1)]
    assert len(own) > 1
    broken = [(span.attributes or {}).get("error.type") for span in list_spans(collected, "chat")]
    assert broken[:2] == ["bad_output", None]


# -- stopped and late ------------------------------------------------------------------------------


class SlowModel(child_agents.FunctionModel):
    """A model whose first request is never answered; where it is stopped, a late reply may come instead."""

    def __init__(self, late: Reply | None) -> None:
        super().__init__(lambda said, request: said)
        self._late = late

    async def complete(self, request: Request) -> Reply:
        """The late reply of the first request; then the words of the user."""
        if self.requests:
            return await super().complete(request)
        self.requests.append(request)
        self.running += 1
        self._arrival.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._late is None:
                raise
        finally:
            self.running -= 1
        assert self._late is not None
        return self._late


ASK_CHART = {
    "name": "ask",
    "states": {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "user_said", "target": "asking"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A message of the user leaves the state; a cancellation leaves the turn open."""


async def test_a_model_call_that_is_asked_again_after_a_stop_has_its_span() -> None:
    """Where a turn was stopped while its model was asked and goes on, the call that asks again has a span,
    inside that of the turn, and the reply is counted."""
    collected, model = Collected(), SlowModel(late=None)
    spec = child_agents.make_spec(ASK_CHART, {})
    async with child_agents.make_engine(spec, model, telemetry=collected.telemetry) as engine:
        turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
        await model.wait_for_requests(1)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        result = await engine.conversation("c").aresume()
        assert result.is_over
        check_sums(collected, engine.store, "c")
    assert list_usage(collected, "chat") == [None, 6]
    before, after = list_spans(collected, "invoke_agent")
    assert [link.context for link in after.links] == [before.context]
    call = list_spans(collected, "chat")[-1]
    assert call.parent == after.context


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_reply_that_comes_too_late_is_counted_in_its_span(is_answered: bool) -> None:
    """The span of a cancelled model call says so and ends when it was cancelled. Where it is answered all the
    same, the span has what that used, which the log counts too."""
    late = Reply(content="too late", finish_reason="stop", usage=Usage(input=1000, output=100))
    collected, model = Collected(), SlowModel(late if is_answered else None)
    spec = child_agents.make_spec(ASK_CHART, {})
    async with child_agents.make_engine(spec, model, telemetry=collected.telemetry) as engine:
        turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
        await model.wait_for_requests(1)
        await engine.conversation("c").asay("No, there!")
        result = await turn
        assert result.content == "No, there!"
        assert [record.is_late for record in read_conversation(engine.store, "c")].count(True) == is_answered
        assert sum_usage(collected, "invoke_agent") == ((1006, 104) if is_answered else (6, 4))
        check_sums(collected, engine.store, "c")
    spans = list_spans(collected, "chat")
    (cancelled,) = [span for span in spans if "error.type" in (span.attributes or {})]
    (answered,) = [span for span in spans if span is not cancelled]
    assert cancelled.attributes is not None
    assert cancelled.attributes["error.type"] == "cancelled"
    assert cancelled.attributes.get("gen_ai.usage.input_tokens") == (1000 if is_answered else None)
    assert "toolchart.is_waiting" not in cancelled.attributes
    assert cancelled.end_time is not None
    assert answered.start_time is not None
    assert cancelled.end_time <= answered.start_time


async def test_a_fork_in_the_middle_of_a_turn_has_spans() -> None:
    """A fork that begins in the middle of a turn has the span of its own part, with what is used there."""
    collected = Collected()
    replies = [ask_for_approval(100), {"content": "Done.", **make_usage(200)}]
    async with agents.make_engine(replies, telemetry=collected.telemetry, **APPROVAL) as engine:
        await engine.arun("go", conversation="c")
        await engine.conversation("c").afork(1, name="f")
        forked = [
            s
            for s in list_spans(collected, "invoke_agent")
            if (s.attributes or {})["gen_ai.conversation.id"] == "f"
        ]
        assert [(span.attributes or {}).get("gen_ai.usage.input_tokens") for span in forked] == [200]


# -- attributes ------------------------------------------------------------------------------------


def test_an_exception_of_a_tool_is_named_by_its_class() -> None:
    """`error.type` of a tool that raised is the class of the exception; of one that says itself that it
    failed, it is the outcome."""

    def divide() -> float:
        """Divide."""
        return 1 / 0

    def refuse() -> str:
        """Refuse."""
        raise ToolFailure("not today")

    collected = Collected()
    replies = [agents.reply_with_calls(("divide", {}), ("refuse", {})), "Done."]
    with agents.make_engine(
        replies, functions=[divide, refuse], telemetry=collected.telemetry, tools={"enabled": True}
    ) as engine:
        engine.run("go", conversation="c")
    expected = {"execute_tool divide": "ZeroDivisionError", "execute_tool refuse": "failed"}
    spans = list_spans(collected, "execute_tool")
    assert {span.name: (span.attributes or {})["error.type"] for span in spans} == expected


def test_a_model_call_names_its_server() -> None:
    """The span and the metric of a model call over HTTP say which host was asked, and at which port."""
    collected = Collected()
    with serve_counting_host() as host:
        entry = {"provider": "openai", "model": "m", "base_url": f"{host.address}/v1", "api_key": "k" * 8}
        spec = agents.make_spec(llms={"model": {**entry, "api": "chat"}})
        with Engine(spec, log="memory", telemetry=collected.telemetry) as engine:
            engine.run("go", conversation="c")
    (call,) = list_spans(collected, "chat")
    expected = {"server.address": "127.0.0.1", "server.port": urlsplit(host.address).port}
    assert {key: (call.attributes or {}).get(key) for key in expected} == expected
    (point,) = collected.metrics["gen_ai.client.operation.duration"]
    assert {key: point.attributes.get(key) for key in expected} == expected
