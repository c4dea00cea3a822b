"""What the core guarantees about the results of declared effects, and the solver that knows it."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.effects import EffectDescriptor
from toolchart.states.machine import START
from toolchart.states.proofs.solving.solver import FACT_DOMAIN, GuardSolver

Rule = tuple[tuple[str, ...], str, str]
"""Events (empty: every event), what holds when one of them arrives, and the reason."""

_FRESH = "a run of the chart begins without it"

NEXT_TURN = "turn_started"
"""The name under which the rules know a message of the user that begins the next turn of a run."""

START_RULES: tuple[Rule, ...] = tuple(
    ((START, NEXT_TURN), text, "every counter of a turn begins at its default")
    for text in (
        "iteration == 0",
        "replies == 0",
        "attempt == 0",
        "unusable_replies == 0",
        "error_kind == 'none'",
        "finish_reason == 'unknown'",
        "not retryable",
        "not has_content",
        "not tools_sent",
        "tool_calls == 0",
        "pending_calls == 0",
        "undecided_calls == 0",
        "approved_calls == 0",
        "denied_calls == 0",
        "repeated_calls == 0",
        "tool_only_streak == 0",
        "unread_messages == 0",
    )
)

AGENT_RULES: tuple[Rule, ...] = (
    (("agent_finished", "agent_rested"), "attempt == 0", "the words of an agent end the failures"),
    (("agent_finished", "agent_rested"), "unusable_replies == 0", "the words of an agent end the failures"),
    (("agent_finished", "agent_rested"), "error_kind == 'none'", "the words of an agent end the failures"),
    (("agent_finished", "agent_rested"), "not retryable", "the words of an agent end the failures"),
    (("agent_finished", "agent_rested"), "finish_reason == 'stop'", "an agent ends with an answer"),
    (("agent_finished", "agent_rested"), "tool_calls == 0", "the words of an agent close all calls"),
    (("agent_finished", "agent_rested"), "repeated_calls == 0", "the words of an agent close all calls"),
    (("agent_failed",), "attempt >= 1", "a failure was counted"),
    (("agent_failed",), "unusable_replies == 0", "an agent gives no reply of the conversation's model"),
    (("agent_failed",), "error_kind != 'none'", "a failure has a kind"),
    (("agent_failed",), "not retryable", "an agent has retried by itself"),
)
"""Of agents without a result, which speak in the conversation."""


_VALUE_EVENTS = ("replied", "returned", "answered", "agent_finished")
_FAILURE_EVENTS = ("failed", "agent_failed")


def find_rules_event(
    vocabulary: Vocabulary, event: str, effect: str | None, *, starts_turn: bool = False
) -> str:
    """The name under which the rules know an event: with the effect where that has a result of its own."""
    if starts_turn:
        return NEXT_TURN
    if effect is None or not vocabulary.find_effect(effect).result:
        return event
    return f"{event}.{effect}"


def build_solver(vocabulary: Vocabulary) -> GuardSolver:
    """The solver for the guards of one chart."""
    rules = (*FACT_DOMAIN, *START_RULES, *AGENT_RULES, *_iterate_result_rules(vocabulary))
    return GuardSolver(vocabulary.find_fact, rules)


def _iterate_result_rules(vocabulary: Vocabulary) -> Iterator[Rule]:
    for name in vocabulary.result_names:
        yield (), f"{name}.attempt <= {name}.failures", "failures since the newest value are failures"
        yield (), f"{name}.error_kind != 'none' or {name}.attempt == 0", "a failure has a kind"
        yield (), f"{name}.error_kind == 'none' or {name}.attempt >= 1", "a value clears the kind"
        yield (START,), f"{name}.error_kind == 'none'", _FRESH
        for field in ("count", "failures", "pending"):
            yield (START,), f"{name}.{field} == 0", _FRESH
        for field in ("count", "failures", "attempt"):
            if not vocabulary.result_facts[f"{name}.{field}"].moved_by:
                yield (), f"{name}.{field} == 0", "no event moves it"
        if f"{name}.has_content" in vocabulary.result_facts:
            yield (), f"not {name}.has_content or {name}.count >= 1", "text comes with a value"
            yield (START,), f"not {name}.has_content", _FRESH
        if f"{name}.finish_reason" in vocabulary.result_facts:
            yield (), f"{name}.finish_reason == 'unknown' or {name}.count >= 1", "it comes with a value"
            yield (START,), f"{name}.finish_reason == 'unknown'", _FRESH
    for row in vocabulary.declared.values():
        yield from _iterate_effect_rules(row)


def _iterate_effect_rules(row: EffectDescriptor) -> Iterator[Rule]:
    if not row.result:
        return
    for event in (event for event in _VALUE_EVENTS if event in row.closing):
        yield (f"{event}.{row.name}",), f"{row.result}.count >= 1", "a value was counted"
        yield (f"{event}.{row.name}",), f"{row.result}.attempt == 0", "a value ends the failures"
    for event in (event for event in _FAILURE_EVENTS if event in row.closing):
        yield (f"{event}.{row.name}",), f"{row.result}.attempt >= 1", "a failure was counted"
