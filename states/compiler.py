"""Observes the steps of a chart that python-statemachine takes: every guard, effect, transition and state.

The machine asks the library three kinds of questions. Three small classes here collect the answers:

- `GuardTable` holds every guard of the chart as a function of facts. A guard can read nothing else.
- `GuardProbe` takes the place of the library's model object. The library asks it for the truth of
  guards and calls it for effects; it records both and performs nothing.
- `TransitionTrace` is a listener. It records which transitions fire and which states are left and entered,
  and stops a chart that never rests.

`chart/library_hooks.py` compiles a chart for the library with them. It is imported when the first chart is
compiled, because importing the library takes long, and reading a log needs no machine.

Leaving a state is observed and not computed: a comparison of the configurations before and after a step
misses a state that was left and entered again.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, Protocol

import msgspec

from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.guards import find_fact_name
from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.snapshot import Configuration


class Facts(Protocol):
    """The values of facts by name: a `FactView`, or a plain dictionary."""

    def __getitem__(self, name: str, /) -> Any:
        """The value of a fact."""


MAX_MICROSTEPS = 200
"""Transitions that one event may cause. A chart that needs more is reported as one that never rests."""


class EndlessTransitions(BaseException):
    """The chart never rests. This is not an `Exception`, because the library catches those."""


class FiredTransition(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
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
    from statemachine.exceptions import InvalidDefinition
    from statemachine.spec_parser import build_expression, operator_mapping

    try:
        tree = _NameResults().visit(ast.parse(text, mode="eval"))
        expression = build_expression(tree.body, _build_fact_reader, operator_mapping, allow_value_nodes=True)
    except (ValueError, SyntaxError) as error:
        raise InvalidDefinition(f"{text!r}: {error}") from None
    return _compile_comparison(tree.body) or _wrap_as_boolean(expression)


class _NameResults(ast.NodeTransformer):
    """Makes one name of a fact with a dot: `draft.count` is a key of the facts like any other."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(id=find_fact_name(node) or "", ctx=ast.Load())


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _compile_comparison(tree: ast.expr) -> Callable[[Facts], bool] | None:
    """A direct function for `fact == fact` and `fact == constant`; None for every other guard.

    Nearly all guards have this form. The library's own closure supports coroutines and costs four
    times as much. Both give the same answers; the differential test compares them.
    """
    match tree:
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


class Operation(msgspec.Struct, frozen=True):
    """One thing that happened inside a step: a state was left or entered, or it asked for an effect."""

    kind: Literal["exit", "enter", "ask"]
    state: str
    effect: str = ""
    """Name of the effect, for `ask`."""


class GuardProbe:
    """Takes the place of the library's model object during one step.

    The library looks for guards and callbacks among the attributes of its model, so all but `state`, which it
    reads and writes itself, begin with an underscore: no name in a chart can.

    Args:
        evaluate: the truth of a guard, by its index in the `GuardTable`.
        operations: receives the effects that states ask for, in order.
    """

    def __init__(self, evaluate: Callable[[int], bool], operations: list[Operation]) -> None:
        self.state: Any = None
        """The library reads the active states from here and writes the new ones."""
        self._evaluate = evaluate
        self._guard_truths: dict[int, bool] = {}
        self._operations = operations

    def _evaluate_guard(self, guard: int) -> bool:
        """The truth of a guard; evaluated and recorded the first time, then repeated."""
        if guard not in self._guard_truths:
            self._guard_truths[guard] = self._evaluate(guard)
        return self._guard_truths[guard]


def get_guard_truths(probe: GuardProbe) -> dict[int, bool]:
    """Truth of every guard that the library evaluated, in the order in which it asked."""
    return probe._guard_truths


@cache
def build_probe_class(effects: tuple[str, ...]) -> type[GuardProbe]:
    """A `GuardProbe` with one method per effect of a chart, because the library calls them by method name."""

    def build_method(name: str) -> Callable[[GuardProbe, Any], None]:
        def record_effect(self: GuardProbe, state: Any) -> None:
            self._operations.append(Operation("ask", state.id, name))

        return record_effect

    return type("EffectProbe", (GuardProbe,), {name: build_method(name) for name in effects})


class TransitionTrace:
    """A listener that records the transitions of one step and stops a chart that never rests.

    Args:
        operations: receives the states that are left and entered, in order.
    """

    def __init__(self, operations: list[Operation]) -> None:
        self.restart(operations)

    def restart(self, operations: list[Operation]) -> None:
        """Begin with the next step."""
        self.fired: list[FiredTransition] = []
        self.has_fired_on_event = False
        """Whether a transition fired on the event that was sent, not on one that the chart raised."""
        self._operations = operations

    def before_transition(self, event: Any, source: Any, transition: Any) -> None:
        """Called by the library before every transition."""
        if len(self.fired) >= MAX_MICROSTEPS:
            raise EndlessTransitions
        name = None if event is None else str(event)
        is_sent_event = name is not None and not getattr(event, "internal", False)
        self.has_fired_on_event |= is_sent_event
        if is_sent_event and name is not None:
            name = name.partition(".")[0]  # without the effect that the event answers
        rows = list(source.transitions)
        self.fired.append(
            FiredTransition(
                source=source.id,
                targets=tuple(state.id for state in transition.targets if state is not None),
                event=name,
                row=rows.index(transition) if transition in rows else -1,
            )
        )

    def on_exit_state(self, state: Any) -> None:
        """Called by the library when a state is left."""
        self._operations.append(Operation("exit", state.id))

    def on_enter_state(self, state: Any) -> None:
        """Called by the library when a state is entered, before the callbacks of that state."""
        self._operations.append(Operation("enter", state.id))


# -- what a step did -----------------------------------------------------------------------------


class Ask(msgspec.Struct, frozen=True):
    """A state asks for an effect."""

    state: str
    effect: str
    """Name of the effect."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The machine's answer: what one event does to a chart."""

    configuration: Configuration
    """Where the chart comes to rest."""
    asks: tuple[Ask, ...]
    """The effects that outlive the step, in the order in which the chart asks for them. One that was asked
    for and left within the step is not among them."""
    reset_states: frozenset[str]
    """States that were left or entered: what they had open before is cancelled."""
    guards: dict[str, bool]
    """Every guard that was evaluated, in order, with its truth: the reason for the move."""
    fired: tuple[FiredTransition, ...]
    is_taken: bool = True
    """Whether a transition fired on the event itself, not only transitions without an event."""

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the effects that are asked for."""
        return tuple(ask.effect for ask in self.asks)


def summarise_operations(
    operations: Iterable[Operation], vocabulary: Vocabulary
) -> tuple[tuple[Ask, ...], frozenset[str]]:
    """The effects that outlive a step, and the states whose earlier effects it cancels."""
    asks: list[Ask] = []
    reset_states: set[str] = set()
    for operation in operations:
        if operation.kind == "ask":
            asks.append(Ask(operation.state, operation.effect))
            continue
        reset_states.add(operation.state)
        # An effect that nothing answers is done when it is asked for; any other ends with its state.
        asks = [
            ask
            for ask in asks
            if ask.state != operation.state or not vocabulary.find_effect(ask.effect).closing
        ]
    return tuple(asks), frozenset(reset_states)


_ACTION_SLOTS = ("enter", "exit", "on", "before", "after")
"""The keys of a state or a row under which actions stand."""


def list_effect_names(chart: Chart) -> tuple[str, ...]:
    """The effects of the vocabulary that a chart names somewhere."""
    names: dict[str, None] = {}

    def collect_names(node: Any, is_action: bool) -> None:
        # Only an action is looked up: a target or an event may have the name of an effect of some package.
        if isinstance(node, str) and is_action and chart.vocabulary.is_effect(node):
            names[node] = None
        elif isinstance(node, Mapping):
            for key, item in node.items():
                if key not in ("cond", "unless", "raise"):
                    collect_names(item, is_action or key in _ACTION_SLOTS)
        elif isinstance(node, list):
            for item in node:
                collect_names(item, is_action)

    for _, definition, _ in walk_states(chart):
        collect_names(definition, False)
    return tuple(names)
