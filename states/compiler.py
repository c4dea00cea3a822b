"""Compiling a chart with python-statemachine, so that the result is pure and can be watched.

Three small pieces make the library's machine an oracle: an evaluator that sees every guard and
resolves names in the facts alone, a probe that stands in for the model and writes down what is asked
and called, and a listener that writes down which transitions fire.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from statemachine.exceptions import InvalidDefinition
from statemachine.io.evaluators import RestrictedEvaluator
from statemachine.io.interpreter import Interpreter
from statemachine.io.native import native_dict_to_definition
from statemachine.spec_parser import parse_expr

from toolchart.states.chart.document import Chart
from toolchart.states.chart.guards import asks_configuration
from toolchart.states.effects import EFFECTS
from toolchart.states.errors import SpecError

Facts = Mapping[str, Any]

MOST_MICROSTEPS = 200
"""Transitions that one event may cause; beyond that the chart is held to spin."""


class Spins(BaseException):
    """A chart that never rests. Not an `Exception`, because the library catches those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One transition that fired."""

    source: str
    targets: tuple[str, ...]
    event: str | None
    """None for an eventless transition."""
    row: int
    """Index of the transition among those of its source state, in document order."""


class Guards:
    """Every guard of a chart, compiled once by the library's own parser."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.evaluate: list[Callable[[Facts], bool]] = []

    def add(self, text: str) -> int:
        """The index of a guard; the same text is the same guard."""
        if text in self.texts:
            return self.texts.index(text)
        self.texts.append(text)
        self.evaluate.append(_compiled(text))
        return len(self.texts) - 1

    def judge(self, facts: Facts) -> Callable[[int], bool]:
        """The truth of guards under these facts, by index."""
        return lambda guard: self.evaluate[guard](facts)


def _compiled(text: str) -> Callable[[Facts], bool]:
    try:
        value = parse_expr(text, _fact_reader)
    except (ValueError, SyntaxError) as error:
        raise InvalidDefinition(f"{text!r}: {error}") from None
    return _comparison(text) or _truth_of(value)


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _comparison(text: str) -> Callable[[Facts], bool] | None:
    """A fact compared with a fact or a constant, as nearly every guard is, without detours.

    The library's own closure for it costs four times as much: it is made for coroutines too. What it
    means is the same, which the differential test demands.
    """
    match ast.parse(text, mode="eval").body:
        case ast.Compare(left=ast.Name(id=left), ops=[op], comparators=[ast.Name(id=right)]):
            compare = _COMPARE[type(op)]
            return lambda facts: bool(compare(facts[left], facts[right]))
        case ast.Compare(left=ast.Name(id=left), ops=[op], comparators=[ast.Constant(value=value)]):
            compare = _COMPARE[type(op)]
            return lambda facts: bool(compare(facts[left], value))
    return None


def _truth_of(value: Callable[[Facts], Any]) -> Callable[[Facts], bool]:
    def truth(facts: Facts) -> bool:
        return bool(value(facts))

    return truth


def _fact_reader(name: str) -> Callable[..., Any]:
    def read(facts: Facts, **_: Any) -> Any:
        return facts[name]

    read.__name__ = name
    return read


class Probe:
    """Stands in for the model: answers for guards, writes down those asked and the effects called.

    Args:
        judge: the truth of a guard, by its index.
    """

    def __init__(self, judge: Callable[[int], bool]) -> None:
        self.state: Any = None
        self._judge = judge
        self.asked: dict[int, bool] = {}
        self.effects: list[str] = []

    def ask(self, guard: int) -> bool:
        """The truth of a guard, written down the first time."""
        if guard not in self.asked:
            self.asked[guard] = self._judge(guard)
        return self.asked[guard]


@cache
def probe_class() -> type[Probe]:
    """A probe with one method per effect, for the library to call by name."""

    def method(name: str) -> Callable[[Probe], None]:
        def effect(self: Probe) -> None:
            self.effects.append(name)

        return effect

    return type("EffectProbe", (Probe,), {name: method(name) for name in EFFECTS})


class Trace:
    """A listener that writes down the transitions, and stops a machine that never rests."""

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.took_sent = False
        """Whether a transition took the event that was sent, not one that it caused."""

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        if len(self.taken) >= MOST_MICROSTEPS:
            raise Spins
        name = None if event is None else str(event)
        self.took_sent |= name is not None and not getattr(event, "internal", False)
        self.taken.append(
            Taken(
                source=source.id,
                targets=tuple(state.id for state in transition.targets if state is not None),
                event=name,
                row=list(source.transitions).index(transition)
                if transition in list(source.transitions)
                else -1,
            )
        )


class _PureEvaluator(RestrictedEvaluator):  # type: ignore[misc]  # the library is untyped here
    """Guards read facts and nothing else, and are seen by the probe when they are asked."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards

    def compile_bool(self, expr: str) -> Callable[..., Any]:
        if asks_configuration(
            expr
        ):  # In('state') depends on the configuration, which is in the key
            located: Callable[..., Any] = super().compile_bool(expr)
            return located
        index = self._guards.add(expr)

        def guard(*args: Any, **kwargs: Any) -> bool:
            probe: Probe = kwargs["machine"].model
            return probe.ask(index)

        return guard

    def compile_value(self, expr: str) -> Callable[..., Any]:
        raise InvalidDefinition(f"a chart computes nothing: {expr!r}")


class _PureInterpreter(Interpreter):  # type: ignore[misc]
    """Compiles without the session registry, and lets errors out instead of turning them to events."""

    def definition_kwargs(self, definition: Any) -> dict[str, Any]:
        kwargs = dict(super().definition_kwargs(definition))
        # `prepare_event` builds system variables that no pure chart reads, and pins every instance.
        kwargs.pop("prepare_event")
        # A guard that raises must not count as false; a refused event must not pass in silence.
        return {
            **kwargs,
            "catch_errors_as_events": False,
            "allow_event_without_transition": False,
        }


def compile_chart(chart: Chart, guards: Guards) -> Any:
    """The library's machine class for a chart; every guard is registered in `guards`.

    A class is about 100 kB and the library never frees one, so callers keep one per chart.

    Raises:
        SpecError: the library cannot compile it.
    """
    try:
        definition = native_dict_to_definition(chart.document, source_name=chart.name)
        interpreter = _PureInterpreter(reader=None, evaluator=_PureEvaluator(guards))
        # One name per chart: the library caches callback signatures by qualified name.
        location = f"Chart_{chart.digest[:16]}"
        interpreter.process_definition(definition, location=location)
    except (InvalidDefinition, KeyError, TypeError, ValueError) as error:
        # The library wraps its own words in a dump of the whole definition; the cause is the news.
        raise SpecError(
            f"the chart {chart.name!r} cannot be compiled: {error.__cause__ or error}",
            file=chart.source,
        ) from None
    return interpreter.scs[location]
