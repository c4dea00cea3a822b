"""Compiles a chart with python-statemachine, so that it is pure and every guard and effect is observed.

The machine asks the library three kinds of questions. Three small classes here collect the answers:

- `GuardTable` holds every guard of the chart as a function of facts. A guard can read nothing else.
- `GuardProbe` takes the place of the library's model object. The library asks it for the truth of
  guards and calls it for effects; it records both and performs nothing.
- `TransitionTrace` is a listener. It records which transitions fire, and stops a chart that never rests.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec
from statemachine.exceptions import InvalidDefinition
from statemachine.io.evaluators import RestrictedEvaluator
from statemachine.io.interpreter import Interpreter
from statemachine.io.native import native_dict_to_definition
from statemachine.spec_parser import parse_expr

from toolchart.states.chart.document import Chart
from toolchart.states.chart.guards import reads_configuration
from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError

Facts = Mapping[str, Any]

MAX_MICROSTEPS = 200
"""Transitions that one event may cause. A chart that needs more is reported as one that never rests."""


class EndlessTransitions(BaseException):
    """The chart never rests. This is not an `Exception`, because the library catches those."""


class FiredTransition(msgspec.Struct, frozen=True, kw_only=True):
    """One transition that fired."""

    source: str
    targets: tuple[str, ...]
    event: str | None
    """None for an eventless transition."""
    row: int
    """Index of the transition among those of its source state, in document order."""


# -- guards --------------------------------------------------------------------------------------


class GuardTable:
    """Every guard of a chart, each compiled once by the library's own parser."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.evaluators: list[Callable[[Facts], bool]] = []

    def add_guard(self, text: str) -> int:
        """The index of a guard; the same text always has the same index."""
        if text in self.texts:
            return self.texts.index(text)
        self.texts.append(text)
        self.evaluators.append(_compile_guard(text))
        return len(self.texts) - 1

    def bind_facts(self, facts: Facts) -> Callable[[int], bool]:
        """A function from a guard's index to its truth under these facts."""
        return lambda guard: self.evaluators[guard](facts)


def _compile_guard(text: str) -> Callable[[Facts], bool]:
    try:
        expression = parse_expr(text, _build_fact_reader)
    except (ValueError, SyntaxError) as error:
        raise InvalidDefinition(f"{text!r}: {error}") from None
    return _compile_comparison(text) or _wrap_as_boolean(expression)


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compile_comparison(text: str) -> Callable[[Facts], bool] | None:
    """A direct function for `fact == fact` and `fact == constant`; None for every other guard.

    Nearly all guards have this form. The library's own closure supports coroutines and costs four
    times as much. Both give the same answers; the differential test compares them.
    """
    match ast.parse(text, mode="eval").body:
        case ast.Compare(left=ast.Name(id=left), ops=[op], comparators=[ast.Name(id=right)]):
            compare = _COMPARE[type(op)]
            return lambda facts: bool(compare(facts[left], facts[right]))
        case ast.Compare(left=ast.Name(id=left), ops=[op], comparators=[ast.Constant(value=value)]):
            compare = _COMPARE[type(op)]
            return lambda facts: bool(compare(facts[left], value))
    return None


def _wrap_as_boolean(expression: Callable[[Facts], Any]) -> Callable[[Facts], bool]:
    def evaluate_truth(facts: Facts) -> bool:
        return bool(expression(facts))

    return evaluate_truth


def _build_fact_reader(name: str) -> Callable[..., Any]:
    def read_fact(facts: Facts, **_: Any) -> Any:
        return facts[name]

    read_fact.__name__ = name
    return read_fact


# -- observing one step --------------------------------------------------------------------------


class GuardProbe:
    """Takes the place of the library's model object during one step.

    Args:
        evaluate: the truth of a guard, by its index in the `GuardTable`.
    """

    def __init__(self, evaluate: Callable[[int], bool]) -> None:
        self.state: Any = None
        """The library reads the active states from here and writes the new ones."""
        self._evaluate = evaluate
        self.guard_truths: dict[int, bool] = {}
        """Truth of every guard that the library evaluated, in the order in which it asked."""
        self.effects: list[str] = []
        """Names of the effects that the library called, in order."""

    def evaluate_guard(self, guard: int) -> bool:
        """The truth of a guard; evaluated and recorded the first time, then repeated."""
        if guard not in self.guard_truths:
            self.guard_truths[guard] = self._evaluate(guard)
        return self.guard_truths[guard]


@cache
def build_probe_class() -> type[GuardProbe]:
    """A `GuardProbe` with one method per effect, because the library calls effects by method name."""

    def build_method(name: str) -> Callable[[GuardProbe], None]:
        def record_effect(self: GuardProbe) -> None:
            self.effects.append(name)

        return record_effect

    return type("EffectProbe", (GuardProbe,), {name: build_method(name) for name in EFFECTS})


class TransitionTrace:
    """A listener that records the transitions of one step and stops a chart that never rests."""

    def __init__(self) -> None:
        self.fired: list[FiredTransition] = []
        self.has_fired_on_event = False
        """Whether a transition fired on the event that was sent, not on one that the chart raised."""

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        if len(self.fired) >= MAX_MICROSTEPS:
            raise EndlessTransitions
        name = None if event is None else str(event)
        self.has_fired_on_event |= name is not None and not getattr(event, "internal", False)
        rows = list(source.transitions)
        self.fired.append(
            FiredTransition(
                source=source.id,
                targets=tuple(state.id for state in transition.targets if state is not None),
                event=name,
                row=rows.index(transition) if transition in rows else -1,
            )
        )


# -- the library's hooks -------------------------------------------------------------------------


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
            return probe.evaluate_guard(index)

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


def compile_chart(chart: Chart, guards: GuardTable) -> Any:
    """The library's machine class for a chart; every guard is added to `guards`.

    A class takes about 100 kB and the library never frees one, so keep one per chart.

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
    return interpreter.scs[location]
