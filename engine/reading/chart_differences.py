"""Where the chart of a conversation differs from those of the operator's own agent.

Such a conversation is not damaged: charts change, and an open conversation keeps the one that it began with.
But what its chart declares otherwise is not performed for it, and somebody may have planted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from toolchart.engine.reading.steps import read_configuration
from toolchart.specs.charts import load_spec_chart
from toolchart.specs.child_agents import build_child_spec, describe_agent
from toolchart.specs.declared_effects import EffectResolver
from toolchart.specs.models import AgentSpec
from toolchart.specs.sections.preparation import build_preparation_spec
from toolchart.specs.turn_plan import needs_preparation
from toolchart.states.chart.document import Chart, digest_declaration
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.ports import Store

_TELLING_KEYS = ("function", "spec", "handler", "chart", "llm", "model")
"""Parameters that say what an effect would act through."""


class ChartDifference(msgspec.Struct, frozen=True, kw_only=True):
    """How the chart of a conversation differs from the operator's own."""

    conversation: str
    effects: tuple[str, ...]
    """What it declares and the operator's charts do not declare alike: `act: call_function os:system`."""

    def describe(self) -> str:
        """One sentence without a full stop, for people."""
        if not self.effects:
            return "its chart is not that of your agent; it declares no effect that your agent does not"
        return f"its chart is not that of your agent, which does not declare {', '.join(self.effects)}"


class OwnCharts:
    """The charts of one agent and of all agents that it runs.

    Args:
        spec: the operator's own. Its functions and classes are imported, and nothing is started.

    Raises:
        SpecError: a chart cannot be loaded.
    """

    def __init__(self, spec: AgentSpec) -> None:
        charts = list(_iterate_charts(spec, EffectResolver(spec), set()))
        self._texts = {(chart.to_yaml(), _digest_effects(chart.effects)) for chart in charts}
        self._declarations = {
            (name, digest_declaration(body)) for chart in charts for name, body in chart.effects.items()
        }

    def find_difference(self, store: Store, conversation: str) -> ChartDifference | None:
        """How the newest chart of a conversation differs; None where it is one of these, or it has none.

        Raises:
            LogDamaged: a record of the conversation cannot be read.
        """
        record = read_configuration(store, conversation)
        if record is None:
            return None
        effects = record.event.get("effects") or {}
        if (record.event.get("chart"), _digest_effects(effects)) in self._texts:
            return None
        foreign = (
            _describe_declaration(name, body)
            for name, body in effects.items()
            if (name, digest_declaration(body)) not in self._declarations
        )
        return ChartDifference(conversation=conversation, effects=tuple(foreign))


def _iterate_charts(spec: AgentSpec, resolver: EffectResolver, seen: set[str]) -> Iterator[Chart]:
    """The chart of an agent, those of the agents that it runs, and those that prepare its turns."""
    key = repr((spec.source, spec.to_public_dict()))
    if key in seen:
        return
    seen.add(key)
    chart = load_spec_chart(spec, resolver)
    yield chart
    for row in chart.vocabulary.declared.values():
        if isinstance(row.parameters, RunAgentParameters):
            child = build_child_spec(spec, describe_agent(row.parameters))
            yield from _iterate_charts(child, resolver.copy_for(child), seen)
    if needs_preparation(spec):
        for asks_topic, is_first in ((False, True), (True, True), (True, False)):
            preparation = build_preparation_spec(spec, asks_topic=asks_topic, is_first=is_first)
            yield load_spec_chart(preparation, resolver.copy_for(preparation))


def _digest_effects(effects: Mapping[str, Any]) -> str:
    return digest_declaration(dict(effects))


def _describe_declaration(name: str, body: Any) -> str:
    """An effect as a log declares it, in a few words: `act: call_function os:system`."""
    if not isinstance(body, Mapping) or len(body) != 1:
        return name
    kind, parameters = next(iter(body.items()))
    values = parameters if isinstance(parameters, Mapping) else {}
    words = [str(values[key]) for key in _TELLING_KEYS if isinstance(values.get(key), str) and values[key]]
    return f"{name}: {' '.join([str(kind), *words])}"
