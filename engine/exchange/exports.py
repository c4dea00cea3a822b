"""The functions behind the table of export formats: each reads a conversation from a store, or a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.engine.exchange.evidence import export_evidence
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.exchange.otel import export_family_spans
from toolchart.engine.exchange.xes import export_xes
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.reading.records import read_records
from toolchart.specs.history import join_call_messages
from toolchart.states.chart.document import Chart
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.ports import Store
from toolchart.states.proofs.check import check
from toolchart.states.proofs.promela import SMALL_LIMITS, write_promela


def export_openai(store: Store, conversation: str, *, content: bool) -> list[dict[str, Any]]:
    """The conversation as an OpenAI-style message list."""
    lines = store.read_lines(conversation)
    return export_messages(lines, conversation, parents=store.read_lines)


def export_call_messages(store: Store, conversation: str, *, content: bool) -> list[dict[str, Any]]:
    """The conversation as a message list in which each tool call and its result are one message."""
    return join_call_messages(export_openai(store, conversation, content=content))


def export_records(store: Store, conversation: str, *, content: bool) -> str:
    """The records as they are stored, one per line, with their chain checked."""
    records = read_records(store.read_lines(conversation), conversation)
    return "".join(f"{record.line.decode()}\n" for record in records)


def export_otel(store: Store, conversation: str, *, content: bool) -> dict[str, Any]:
    """The conversation as OpenTelemetry spans, with those of the agents that it runs in the same trace."""
    return export_family_spans(store, conversation, content=content)


def export_process(store: Store, conversation: str, *, content: bool) -> str:
    """The conversation as an XES document, with a trace for each agent that it runs."""
    names = [name for _, name in iterate_family(store, conversation)]
    return export_xes({name: store.read_lines(name) for name in names})


def export_promela(chart: Chart, *, limits: Mapping[str, int]) -> str:
    """A model of a chart for the model checker Spin. It claims the bounds that `check` computes.

    Args:
        limits: values of limits in place of the small ones of `SMALL_LIMITS`.

    Raises:
        SpecError: a limit is unknown, or the chart uses what the translation does not know.
    """
    numbers = [name for name, value in to_builtins(SMALL_LIMITS).items() if isinstance(value, int)]
    for name in limits:
        if name not in numbers:
            raise SpecError(f"unknown limit {name!r}", hint=suggest_name(name, numbers))
    model_limits = replace(SMALL_LIMITS, **limits)
    return write_promela(
        chart, limits=model_limits, worst=check(chart, risky=True, limits=model_limits).worst
    )


def export_evidence_file(store: Store, conversation: str, *, content: bool, seals: str | None = None) -> str:
    """The conversation as evidence that is checked without the log."""
    return export_evidence(store, conversation, seals=seals)
