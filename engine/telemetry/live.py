"""Live OpenTelemetry: spans of turns, model calls, tools, approvals and agents while they run.

    from toolchart import Engine, Telemetry

    with Engine("quickstart", log="memory", telemetry=Telemetry()) as engine:
        engine.run("17 * 27")

Spans follow the effects of the core: one begins when its record is made, and ends with the record that
answers it. So telemetry sees what the log says, and changes nothing. The work of a model call or a tool runs
inside its span, so that spans of other libraries lie in it. Content is included only where it is asked for.

The span of a turn has the usage of the model calls that its own conversation got answered while it was open,
and nothing else: those of a sub-agent are in the span of the sub-agent, and those before a wait are in the
span before the wait. So the `invoke_agent` spans add up to the usage of the log, and so do the `chat` spans.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.engine.telemetry import attributes as names
from toolchart.states.core.step import Step
from toolchart.states.effects import CallModel, Effect, RunTools
from toolchart.states.errors import SpecError, format_install
from toolchart.states.events import (
    Configured,
    Decided,
    Event,
    Failed,
    Replied,
    Resumed,
    ToolFinished,
    TurnStarted,
)
from toolchart.states.messages import Request, ToolCall, Usage
from toolchart.states.snapshot import Snapshot

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TracerProvider

_SCOPE = "toolchart"

_DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_BUCKETS = tuple(4**power for power in range(14))

_Key = tuple[str, int, str]
"""Conversation, effect (0 for the turn) and call id of a span."""

_MOST_LINKS = 10_000
"""For how many turns that wait the span is kept that the next one links to; then the oldest is forgotten."""


class SpanIds(msgspec.Struct, frozen=True):
    """The ids of a span, chosen before it begins."""

    trace: int
    span: int


def compute_turn_ids(conversation: str, snapshot: Snapshot) -> SpanIds:
    """The ids of the first span of a turn: the same in every process that works on it."""
    text = f"{conversation}\n{snapshot.turn}\n{snapshot.started_at}"
    digest = hashlib.sha256(text.encode()).digest()
    # Neither may be 0, which means that there is none.
    return SpanIds(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1)


class _OpenSpan:
    """A span that has begun."""

    def __init__(self, span: Span, attributes: names.Attributes, request: Request | None = None) -> None:
        self.span, self.attributes, self.request = span, attributes, request
        self.started_s = time.monotonic()
        self.usage = Usage()
        """Of the span of a turn: what the model calls have used that were answered in it."""
        self.cancelled_ns: int | None = None
        """Of a model call: when it was cancelled. It may be answered all the same, and that is paid for."""


class Telemetry:
    """Makes spans, metrics and log events of every conversation of an engine.

    Args:
        content: whether messages, arguments, results and tool definitions are included.
        tracer_provider: default: the global one; like the two below.
        meter_provider: receives the durations of model calls, tools and turns, and the tokens.
        logger_provider: receives one event for each model call.
        choose_ids: a context in which the tracer provider gives a span these ids. With one, the spans of a
            turn that other processes go on with are one trace.

    Raises:
        SpecError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        choose_ids: Callable[[SpanIds], AbstractContextManager[None]] | None = None,
    ) -> None:
        try:
            from opentelemetry import _logs, metrics, trace
        except ImportError:
            message = "telemetry needs OpenTelemetry, which is not installed"
            raise SpecError(message, hint=format_install("otel")) from None
        self._trace = trace
        self._content = content
        self._choose_ids = choose_ids
        self._tracer = (tracer_provider or trace.get_tracer_provider()).get_tracer(_SCOPE)
        self._logger: Logger = (logger_provider or _logs.get_logger_provider()).get_logger(_SCOPE)
        meter: Meter = (meter_provider or metrics.get_meter_provider()).get_meter(_SCOPE)
        self._call_durations = _make_histogram(meter, "gen_ai.client.operation.duration", "s")
        self._tool_durations = _make_histogram(meter, "gen_ai.execute_tool.duration", "s")
        self._agent_durations = _make_histogram(meter, "gen_ai.invoke_agent.duration", "s")
        self._tokens = _make_histogram(meter, "gen_ai.client.token.usage", "{token}")
        self._spans: dict[_Key, _OpenSpan] = {}
        self._agents: dict[str, str] = {}
        self._waiting_turns: dict[str, tuple[int, SpanContext]] = {}
        """By conversation: number and newest span of a turn that was left open, the oldest first."""

    # -- what the driver calls -------------------------------------------------------------------

    def record_step(self, conversation: str, event: Event, step: Step) -> None:
        """Begin and end the spans of a step; its record is noted already."""
        snapshot = step.snapshot
        if isinstance(event, Configured):
            self.name_agent(conversation, str(event.spec.get("name") or ""))
        elif isinstance(event, TurnStarted):
            self._waiting_turns.pop(conversation, None)
            self._open_turn(conversation, snapshot, is_first=True)
        elif isinstance(event, Resumed):
            self.begin_turn(conversation, snapshot)
        self._add_usage(conversation, event)
        if not step.is_late or isinstance(event, Replied | Failed):
            self._end_answered(conversation, event)
        for effect_id in step.cancels:
            self._cancel_effect(conversation, effect_id)
        if (conversation, 0, "") in self._spans:
            self._note_step(conversation, event, step)
            for effect in step.effects:
                self._open_effect(conversation, effect, snapshot)
            self._open_approvals(conversation, snapshot)

    def name_agent(self, conversation: str, agent: str) -> None:
        """Note whose conversation it is; its spans begin later."""
        self._agents[conversation] = agent

    def begin_turn(self, conversation: str, snapshot: Snapshot) -> None:
        """Begin the spans of an open turn that goes on, and of what is open in it, where there are none."""
        if (conversation, 0, "") not in self._spans:
            self._open_turn(conversation, snapshot)
        for effect in snapshot.open_effects:
            self._open_effect(conversation, effect, snapshot)

    def end_turn(self, conversation: str, snapshot: Snapshot) -> None:
        """End the span of a turn whose chart rests, and those of what stays open."""
        for key in [key for key in self._spans if key[0] == conversation and key[1:] != (0, "")]:
            is_cancelled = self._spans[key].cancelled_ns is not None
            self._end_span(
                key, {"error.type": "cancelled"} if is_cancelled else {"toolchart.is_waiting": True}
            )
        key = (conversation, 0, "")
        open_turn = self._spans.get(key)
        if open_turn is None:
            return
        error = snapshot.error
        used = names.describe_usage(open_turn.usage)
        attributes = {**used, "error.type": error.kind if error is not None else None}
        attributes |= {"toolchart.state": snapshot.state, "toolchart.limit": snapshot.limit_reached}
        self._end_span(key, attributes, self._agent_durations)
        if not snapshot.is_over:
            self._waiting_turns[conversation] = (snapshot.turn, open_turn.span.get_span_context())
            if len(self._waiting_turns) > _MOST_LINKS:
                del self._waiting_turns[next(iter(self._waiting_turns))]

    @contextmanager
    def attach(self, conversation: str, effect: int, call_id: str = "") -> Iterator[None]:
        """Run work inside the span of an effect or a tool call."""
        open_span = self._spans.get((conversation, effect, call_id))
        if open_span is None:
            yield
            return
        with self._trace.use_span(open_span.span, record_exception=False, set_status_on_exception=False):
            yield

    def note_host(self, conversation: str, effect: int, address: str) -> None:
        """Note which host a model call asks: `HOST` or `HOST:PORT`; empty where none is known."""
        open_span = self._spans.get((conversation, effect, ""))
        if open_span is not None and address:
            server = names.describe_server(address)
            open_span.attributes |= server
            open_span.span.set_attributes(server)

    # -- beginning -------------------------------------------------------------------------------

    def _open_turn(self, conversation: str, snapshot: Snapshot, *, is_first: bool = False) -> None:
        """Begin the span of a turn, or of a further part of it.

        The first part lies in the span that is current, and begins a trace where none is. A further part has
        a link to the part before. It lies in the span that is current, else in the part before: so a turn
        that waited is one trace.
        """
        settings = snapshot.settings
        provider, model = (settings.provider, settings.model) if settings is not None else ("", "")
        agent = self._agents.get(conversation, "")
        attributes = {
            **names.describe_agent(agent, model),
            **names.describe_conversation(conversation, provider),
            "toolchart.turn": snapshot.turn,
        }
        parent = self._find_turn(conversation.rpartition(".")[0])
        before = None if is_first else self._find_part_before(conversation, snapshot)
        is_root = parent is None and not self._trace.get_current_span().get_span_context().is_valid
        begins_trace = is_first and is_root and self._choose_ids is not None
        with self._choose_turn_ids(conversation, snapshot) if begins_trace else nullcontext():
            self._begin_span(
                (conversation, 0, ""),
                f"invoke_agent {agent}".rstrip(),
                attributes,
                self._trace.SpanKind.INTERNAL,
                parent.span if parent is not None else self._wrap_context(before) if is_root else None,
                links=[self._trace.Link(before)] if before is not None else [],
            )

    def _choose_turn_ids(self, conversation: str, snapshot: Snapshot) -> AbstractContextManager[None]:
        assert self._choose_ids is not None, "the tracer provider is one that lets ids be chosen"
        return self._choose_ids(compute_turn_ids(conversation, snapshot))

    def _wrap_context(self, context: SpanContext | None) -> Span | None:
        """A span that has ended, as a parent."""
        return self._trace.NonRecordingSpan(context) if context is not None else None

    def _find_part_before(self, conversation: str, snapshot: Snapshot) -> SpanContext | None:
        """The newest part of the same turn that this process has made; else the first one of another process,
        where its ids are known."""
        waiting_turn, context = self._waiting_turns.pop(conversation, (0, None))
        if context is not None and waiting_turn == snapshot.turn:
            return context
        if self._choose_ids is None or "." in conversation:  # that of a child lay in the one of its parent
            return None
        ids, flags = compute_turn_ids(conversation, snapshot), self._trace.TraceFlags.SAMPLED
        return self._trace.SpanContext(ids.trace, ids.span, True, self._trace.TraceFlags(flags))

    def _find_turn(self, conversation: str) -> _OpenSpan | None:
        """The open turn of a conversation, or of the nearest one that runs it."""
        while conversation:
            open_span = self._spans.get((conversation, 0, ""))
            if open_span is not None:
                return open_span
            conversation = conversation.rpartition(".")[0]
        return None

    def _open_effect(self, conversation: str, effect: Effect, snapshot: Snapshot) -> None:
        """Begin the spans of an effect that have not begun."""
        provider = snapshot.settings.provider if snapshot.settings is not None else ""
        common = names.describe_conversation(conversation, provider)
        if isinstance(effect, CallModel):
            if (conversation, effect.id, "") in self._spans:
                return
            request = effect.request
            attributes = {**names.describe_model_call(request.model, request.options), **common}
            if self._content:
                attributes |= names.describe_request_content(request)
            kind, name = self._trace.SpanKind.CLIENT, f"chat {request.model}"
            self._begin_span((conversation, effect.id, ""), name, attributes, kind, request=request)
        elif isinstance(effect, RunTools):
            for call in effect.calls:
                if (conversation, effect.id, call.id) not in self._spans:
                    self._open_tool(conversation, effect.id, call, common)

    def _open_tool(self, conversation: str, effect: int, call: ToolCall, common: names.Attributes) -> None:
        attributes = {**names.describe_tool_call(call.name, call.id), **common}
        attributes["gen_ai.provider.name"] = None
        if self._content:
            attributes |= names.describe_arguments(call.arguments)
        kind = self._trace.SpanKind.INTERNAL
        self._begin_span((conversation, effect, call.id), f"execute_tool {call.name}", attributes, kind)

    def _open_approvals(self, conversation: str, snapshot: Snapshot) -> None:
        for open_call in snapshot.calls:
            key = (conversation, -1, open_call.call.id)
            waits = open_call.ruling == "needs_approval" and open_call.outcome is None
            if waits and not snapshot.is_over and key not in self._spans:
                name, call_id = open_call.call.name, open_call.call.id
                attributes = names.describe_approval(name, call_id) | {"gen_ai.conversation.id": conversation}
                self._begin_span(key, f"approval {name}", attributes, self._trace.SpanKind.INTERNAL)

    def _begin_span(
        self,
        key: _Key,
        name: str,
        attributes: names.Attributes,
        kind: SpanKind,
        parent: Span | None = None,
        request: Request | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        turn = self._spans.get((key[0], 0, "")) if key[1:] != (0, "") else None
        parent = turn.span if turn is not None else parent
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        given = {name: value for name, value in attributes.items() if value is not None}
        span = self._tracer.start_span(name, context=context, kind=kind, attributes=given, links=links)
        self._spans[key] = _OpenSpan(span, given, request)

    # -- ending ----------------------------------------------------------------------------------

    def _add_usage(self, conversation: str, event: Event) -> None:
        """Count what a call used, also one that failed or came too late: it was paid for."""
        open_turn = self._spans.get((conversation, 0, ""))
        if open_turn is not None and isinstance(event, Replied | Failed):
            open_turn.usage = open_turn.usage.plus(event.paid_usage)

    def _end_answered(self, conversation: str, event: Event) -> None:
        match event:
            case Replied() | Failed():
                self._end_model_call((conversation, event.effect, ""), event)
            case ToolFinished():
                attributes = names.describe_outcome(event)
                if self._content:
                    attributes |= names.describe_result(event)
                key = (conversation, event.effect, event.call_id)
                self._end_span(key, attributes, self._tool_durations)
            case Decided():
                attributes = names.describe_decision(event.approved, event.by)
                self._end_span((conversation, -1, event.call_id), attributes)

    def _end_model_call(self, key: _Key, event: Replied | Failed) -> None:
        open_span = self._spans.get(key)
        if open_span is None:
            return
        attributes = names.describe_answer(event)
        if open_span.cancelled_ns is not None:
            attributes["error.type"] = "cancelled"
        if self._content and isinstance(event, Replied):
            attributes |= names.describe_reply_content(event.reply)
        self._count_tokens(open_span, event)
        given = {**open_span.attributes, **_drop_empty(attributes)}
        context = self._trace.set_span_in_context(open_span.span)
        self._logger.emit(event_name=names.DETAILS_EVENT, attributes=given, context=context)
        self._end_span(key, attributes, self._call_durations)

    def _count_tokens(self, open_span: _OpenSpan, event: Replied | Failed) -> None:
        usage = event.paid_usage
        if usage is None:
            return
        measured = _choose_dimensions({**open_span.attributes, **names.describe_answer(event)})
        for kind, count in (("input", usage.input), ("output", usage.output)):
            if count is not None:
                self._tokens.record(count, {**measured, "gen_ai.token.type": kind})

    def _cancel_effect(self, conversation: str, effect: int) -> None:
        """End the spans of a cancelled effect; that of a model call when it is answered, or with its turn."""
        for key in [key for key in self._spans if key[:2] == (conversation, effect) and effect]:
            if self._spans[key].request is None:
                self._end_span(key, {"error.type": "cancelled"})
            else:
                self._spans[key].cancelled_ns = time.time_ns()

    def _end_span(self, key: _Key, attributes: names.Attributes, histogram: Histogram | None = None) -> None:
        open_span = self._spans.pop(key, None)
        if open_span is None:
            return
        given = _drop_empty(attributes)
        open_span.span.set_attributes(given)
        if "error.type" in given:
            open_span.span.set_status(self._trace.StatusCode.ERROR)
        if histogram is not None:
            seconds = time.monotonic() - open_span.started_s
            histogram.record(seconds, _choose_dimensions({**open_span.attributes, **given}))
        open_span.span.end(end_time=open_span.cancelled_ns)

    def _note_step(self, conversation: str, event: Event, step: Step) -> None:
        """Add the transition and the truth of its guards to the span of the turn."""
        attributes: dict[str, Any] = {"toolchart.source": step.source, "toolchart.target": step.target}
        attributes |= {f"toolchart.guard.{text}": truth for text, truth in step.guards.items()}
        self._spans[conversation, 0, ""].span.add_event(event.TYPE, attributes)


def _make_histogram(meter: Meter, name: str, unit: str) -> Histogram:
    buckets = _DURATION_BUCKETS if unit == "s" else _TOKEN_BUCKETS
    return meter.create_histogram(name, unit=unit, explicit_bucket_boundaries_advisory=buckets)


_DIMENSIONS = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.agent.name",
    "gen_ai.tool.name",
    "server.address",
    "server.port",
    "error.type",
)


def _choose_dimensions(attributes: names.Attributes) -> dict[str, Any]:
    """The attributes that a metric has: few values each, and no ids."""
    return {name: attributes[name] for name in _DIMENSIONS if attributes.get(name) is not None}


def _drop_empty(attributes: names.Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
