"""What events and effects do to the calls of the latest reply and to children that wait for the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from toolchart.states.chart.vocabulary import Vocabulary
from toolchart.states.proofs.explored_states import (
    HAS_PENDING_CALLS,
    HAS_UNDECIDED_CALLS,
    CallStage,
    ExploredEffect,
)

ITEMS_OF_EVENT = {
    "reviewed": HAS_UNDECIDED_CALLS,
    "decided": HAS_UNDECIDED_CALLS,
    "tool_finished": HAS_PENDING_CALLS,
}
"""By event: the truth that says whether items of the effect that it answers are still open."""

ANSWERED_STAGES: dict[str, tuple[CallStage, ...]] = {
    "reviewed": ("unreviewed", "undecided", "cleared"),
    "decided": ("undecided",),
    "tool_finished": ("unreviewed", "undecided", "cleared"),
}
"""By event: the stages in which it answers a call. In the others it says that there was nothing to do."""

_STAGES_BEFORE_RUNS: tuple[CallStage, ...] = ("none", "unreviewed")
"""The stages in which no call can have begun."""


def update_calls(before: CallStage, event: str, call_truths: Mapping[str, bool], is_main: bool) -> CallStage:
    """The stage after an event; `is_main` says that it answers an effect without a result of its own."""
    match event:
        case "replied" if is_main and call_truths:
            return "unreviewed" if call_truths[HAS_PENDING_CALLS] else "none"
        case "reviewed" | "decided" if before in ANSWERED_STAGES[event]:
            return "undecided" if call_truths[HAS_UNDECIDED_CALLS] else "cleared"
        case "tool_finished" if not call_truths.get(HAS_PENDING_CALLS):
            return "none"
        case "agent_finished" | "agent_rested" if is_main:
            return "none"
    return before


def list_stages_after(
    vocabulary: Vocabulary, call_stage: CallStage, cancelled_effects: Iterable[ExploredEffect]
) -> tuple[CallStage, ...]:
    """The stages after these effects were cancelled: calls that may have begun end as interrupted."""
    runs_calls = any("tool_finished" in vocabulary.find_effect(e.name).answers for e in cancelled_effects)
    return ("none", call_stage) if runs_calls and call_stage not in _STAGES_BEFORE_RUNS else (call_stage,)


def wake_agents(open_effects: frozenset[ExploredEffect]) -> frozenset[ExploredEffect]:
    """The effects after the user's message, which goes to the children that wait for it."""
    return frozenset(
        replace(effect, stage="begun") if effect.stage == "resting" else effect for effect in open_effects
    )
