"""Sets the SDK of OpenTelemetry up as the standard variables of the environment say.

The variables are OpenTelemetry's own. What a sampler, a resource or a batch reads, the SDK reads itself. This
module decides which exporters there are.
Source: opentelemetry.io, "Environment Variable Specification", as of November 2026.

Nobody gave this process a tracer provider, so the ids of its spans are ours to choose. The first span of a
turn gets ids that are computed from the conversation, the turn and the time at which it began. So another
process, which goes on with the turn after a wait, knows the trace and the span to go on from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import metrics
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from toolchart.engine.telemetry.live import SpanIds, Telemetry
from toolchart.states.errors import SpecError, format_install

_CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Whether messages, arguments and results are exported.
Source: the GenAI conventions and their instrumentations in Python."""

_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""By `OTEL_EXPORTER_OTLP_PROTOCOL`: the name of the exporter of the packages for Python."""

_next_ids: ContextVar[SpanIds | None] = ContextVar("next_ids", default=None)


def build_telemetry(
    meter_provider: metrics.MeterProvider | None, closing: ExitStack, *, exports: bool
) -> Telemetry:
    """The telemetry that the environment asks for.

    Args:
        meter_provider: gets the metrics, in place of what the environment names.
        closing: sends what was collected when it is closed.
        exports: whether the environment names anything; without it there is only the meter provider.

    Raises:
        SpecError: there is no such exporter.
    """
    if not exports:
        return Telemetry(meter_provider=meter_provider)
    resource = _make_resource()
    tracers = TracerProvider(resource=resource, id_generator=_TurnIdGenerator())
    for make in _find_exporters("TRACES"):
        tracers.add_span_processor(BatchSpanProcessor(make()))
    loggers = LoggerProvider(resource=resource)
    for make in _find_exporters("LOGS"):
        loggers.add_log_record_processor(BatchLogRecordProcessor(make()))
    if meter_provider is None:
        made = [make() for make in _find_exporters("METRICS")]
        readers = [
            one if isinstance(one, MetricReader) else PeriodicExportingMetricReader(one) for one in made
        ]
        meters = MeterProvider(readers, resource=resource)
        closing.callback(meters.shutdown)
        meter_provider = meters
    closing.callback(loggers.shutdown)
    closing.callback(tracers.shutdown)
    return Telemetry(
        content=os.environ.get(_CONTENT_VARIABLE, "").lower() not in ("", "false", "no_content"),
        tracer_provider=tracers,
        meter_provider=meter_provider,
        logger_provider=loggers,
        choose_ids=_choose_ids,
    )


def _make_resource() -> Resource:
    """Who sends this: `toolchart`, where the variables of the SDK name nobody else."""
    is_named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    detected = Resource.create()
    return detected if is_named else detected.merge(Resource({"service.name": "toolchart"}))


# -- exporters -------------------------------------------------------------------------------------


def _find_exporters(signal: str) -> Sequence[Callable[[], Any]]:
    """What makes the exporters of one signal; none where it is switched off.

    Raises:
        SpecError: no package has such an exporter.
    """
    variable = f"OTEL_{signal}_EXPORTER"
    names = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if not names and _has_address(signal):
        names = ["otlp"]
    return [_load_exporter(signal, variable, name) for name in names if name != "none"]


def _has_address(signal: str) -> bool:
    variables = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(os.environ.get(variable) for variable in variables)


def _load_exporter(signal: str, variable: str, name: str) -> Callable[[], Any]:
    found = entry_points(group=f"opentelemetry_{signal.lower()}_exporter")
    known = sorted({entry.name for entry in found})
    for entry in found:
        if entry.name == _resolve_name(signal, name):
            make: Callable[[], Any] = entry.load()
            return make
    raise SpecError(
        f"there is no exporter {name!r} for {signal.lower()}; installed are: {', '.join(known) or 'none'}",
        path=variable,
        hint=f"for otlp over HTTP: {format_install('otlp')}",
    )


def _resolve_name(signal: str, name: str) -> str:
    if name != "otlp":
        return name
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    return _PROTOCOLS.get(os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", general), name)


# -- ids ---------------------------------------------------------------------------------------------


@contextmanager
def _choose_ids(ids: SpanIds) -> Iterator[None]:
    """Give the span that begins within the block these ids."""
    token = _next_ids.set(ids)
    try:
        yield
    finally:
        _next_ids.reset(token)


class _TurnIdGenerator(RandomIdGenerator):
    """Random ids, but for a span whose ids were chosen."""

    def generate_span_id(self) -> int:
        """The id of the next span."""
        ids = _next_ids.get()
        return ids.span if ids is not None else super().generate_span_id()

    def generate_trace_id(self) -> int:
        """The id of the next trace."""
        ids = _next_ids.get()
        return ids.trace if ids is not None else super().generate_trace_id()
