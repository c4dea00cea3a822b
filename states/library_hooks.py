"""Compiles a chart with python-statemachine, so that it is pure and its steps are observed."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from queue import Empty
from threading import Lock
from typing import Any

from statemachine import registry
from statemachine.exceptions import InvalidDefinition
from statemachine.io.evaluators import RestrictedEvaluator
from statemachine.io.interpreter import Interpreter
from statemachine.io.native import native_dict_to_definition
from statemachine.utils import qualname

from toolchart.states.chart.document import Chart
from toolchart.states.chart.guards import reads_configuration
from toolchart.states.compiler import GuardProbe, GuardTable
from toolchart.states.errors import SpecError


class _PureEvaluator(RestrictedEvaluator):  # type: ignore[misc]  # the library is untyped here
    """Replaces the library's guard evaluator: guards read facts only, and the probe evaluates them."""

    def __init__(self, guards: GuardTable) -> None:
        self._guards = guards

    def compile_bool(self, expr: str) -> Callable[..., Any]:
        # In('state') depends on the configuration alone. The configuration is part of the key of the
        # machine's table, so the library may evaluate this guard itself.
        if reads_configuration(expr):
            configuration_guard: Callable[..., Any] = super().compile_bool(expr)
            return configuration_guard
        index = self._guards.add_guard(expr)

        def evaluate_guard(*args: Any, **kwargs: Any) -> bool:
            probe: GuardProbe = kwargs["machine"].model
            return probe._evaluate_guard(index)

        return evaluate_guard

    def compile_value(self, expr: str) -> Callable[..., Any]:
        raise InvalidDefinition(f"a chart computes nothing: {expr!r}")


class _PureInterpreter(Interpreter):  # type: ignore[misc]
    """Compiles without the library's session registry, and lets errors propagate."""

    def definition_kwargs(self, definition: Any) -> dict[str, Any]:
        kwargs = dict(super().definition_kwargs(definition))
        # `prepare_event` builds system variables that no pure chart reads, and it keeps every
        # instance alive.
        kwargs.pop("prepare_event")
        # By default a guard that raises counts as false, and an event without a transition is
        # ignored. Here both must be errors.
        return {**kwargs, "catch_errors_as_events": False, "allow_event_without_transition": False}


class _TriggerQueue:
    """The events of one step: as much of `queue.PriorityQueue` as the library uses.

    gevent replaces that class by one without `mutex`, and then the library fails. An instance of a machine is
    used by one thread at a time, so nobody ever waits here.
    """

    def __init__(self) -> None:
        self.queue: list[Any] = []
        self.mutex = Lock()

    def put(self, trigger: Any) -> None:
        """Add an event."""
        heappush(self.queue, trigger)

    def get(self, block: bool = False) -> Any:
        """Take the first event.

        Raises:
            Empty: there is none.
        """
        if not self.queue:
            raise Empty
        return heappop(self.queue)

    def qsize(self) -> int:
        """How many events there are."""
        return len(self.queue)


def _use_own_queues(machine_class: Any) -> None:
    """Let instances of a machine class queue their events in a `_TriggerQueue`."""
    make_engine = machine_class._get_engine

    def make_engine_with_queues(instance: Any) -> Any:
        engine = make_engine(instance)
        engine.external_queue.queue, engine.internal_queue.queue = _TriggerQueue(), _TriggerQueue()
        return engine

    machine_class._get_engine = make_engine_with_queues


def compile_chart(chart: Chart, guards: GuardTable) -> Any:
    """The library's machine class for a chart; every guard is added to `guards`.

    A class takes about 100 kB, so keep one per chart. It is freed with its last user: the library's own table
    of classes, which would keep it, does not have it.

    Raises:
        SpecError: the library cannot compile the chart.
    """
    try:
        definition = native_dict_to_definition(chart.document, source_name=chart.name)
        interpreter = _PureInterpreter(reader=None, evaluator=_PureEvaluator(guards))
        # One name per chart, because the library caches callback signatures by qualified name.
        location = f"Chart_{chart.digest[:16]}"
        interpreter.process_definition(definition, location=location)
    except (InvalidDefinition, KeyError, TypeError, ValueError) as error:
        # The library's message contains a dump of the whole definition; its cause is readable.
        raise SpecError(
            f"the chart {chart.name!r} cannot be compiled: {error.__cause__ or error}", file=chart.source
        ) from None
    machine_class = interpreter.scs[location]
    registry._REGISTRY.pop(qualname(machine_class), None)
    _use_own_queues(machine_class)
    return machine_class
