"""What a finding of `check` looks like in a step: one row for each kind that a run can show."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolchart.states.core.step import Step, find_answered_effect
from toolchart.states.effects import AwaitUser, RunAgent, RunTools
from toolchart.states.events import Answering, Elapsed, Event, Replied, ToolFinished, TurnStarted, UserSaid
from toolchart.states.proofs.effect_faults import is_unsatisfiable
from toolchart.states.proofs.findings import Finding
from toolchart.states.snapshot import Snapshot


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a conversation, with the snapshot before it."""

    before: Snapshot
    event: Event
    step: Step

    @property
    def after(self) -> Snapshot:
        """The snapshot after the step."""
        return self.step.snapshot


ShowsFinding = Callable[[Finding, Moment], bool]


def shows_finding(finding: Finding, moment: Moment) -> bool:
    """Whether a step does what a finding says."""
    return SIGHTINGS[finding.kind](finding, moment)


def is_in_state(label: str, state: str) -> bool:
    """Whether the active states are those that a finding names, or hold them.

    Where regions are proved one at a time, a finding names only the states of the region that it is about.
    """
    return set(state.split("+")) <= set(label.split("+"))


def _is_refused(finding: Finding, moment: Moment) -> bool:
    """An answer that no row takes, in the state that was named."""
    event = moment.event
    if not is_in_state(moment.before.state, finding.state):
        return False
    if isinstance(event, TurnStarted | UserSaid):
        is_meant = (finding.event or "").partition(".")[0] == UserSaid.TYPE
        return is_meant and moment.step.is_untaken and not moment.step.fired and _answers_wait(moment)
    if not isinstance(event, Answering):
        return False
    effect = find_answered_effect(moment.before, event)
    names = (event.TYPE, f"{event.TYPE}.{effect.name}" if effect is not None else "")
    if isinstance(effect, RunAgent) and effect.id in [other.id for other in moment.after.open_effects]:
        return False  # the answer of one of several children needs no row
    return finding.event in names and moment.step.is_untaken and not moment.step.fired


def _answers_wait(moment: Moment) -> bool:
    """Whether the user's message answers an effect that waits for it."""
    open_ids = {effect.id for effect in moment.after.open_effects}
    return any(isinstance(e, AwaitUser) and e.id not in open_ids for e in moment.before.open_effects)


def _never_rests(finding: Finding, moment: Moment) -> bool:
    return moment.after.ended_by == "endless" and is_in_state(moment.before.state, finding.state)


def _is_stuck(finding: Finding, moment: Moment) -> bool:
    return moment.after.ended_by == "stuck" and is_in_state(moment.after.state, finding.state)


def _enters_state(finding: Finding, moment: Moment) -> bool:
    return is_in_state(moment.after.state, finding.state)


def _runs_undecided(finding: Finding, moment: Moment) -> bool:
    is_late = isinstance(moment.event, Elapsed)
    return (
        not is_late
        and is_in_state(moment.before.state, finding.state)
        and "expired" in _list_refusals(moment)
    )


def _runs_unreviewed(finding: Finding, moment: Moment) -> bool:
    return is_in_state(moment.before.state, finding.state) and "skipped" in _list_refusals(moment)


def _list_refusals(moment: Moment) -> list[str]:
    """The outcomes of calls that a run of tools refuses."""
    runs = [effect for effect in moment.step.effects if isinstance(effect, RunTools)]
    return [refusal.outcome for effect in runs for refusal in effect.refused]


def _loses_answer(finding: Finding, moment: Moment) -> bool:
    event = moment.event
    return (
        isinstance(event, Replied)
        and event.reply.finish_reason == "stop"
        and bool((event.reply.content or "").strip())
        and is_in_state(moment.before.state, finding.state)
        and any(effect.name in ("answer_with_error", "answer_at_limit") for effect in moment.step.effects)
    )


def _ends_silently(finding: Finding, moment: Moment) -> bool:
    return (
        moment.after.is_over
        and moment.after.answer is None
        and is_in_state(moment.after.state, finding.state)
    )


def _leaves_tools(finding: Finding, moment: Moment) -> bool:
    if not isinstance(moment.event, ToolFinished) or not is_in_state(moment.before.state, finding.state):
        return False
    running = {e.id for e in moment.before.open_effects if isinstance(e, RunTools)}
    return bool(running & set(moment.step.cancels))


def _asks_in_vain(finding: Finding, moment: Moment) -> bool:
    return any(
        effect.state == finding.state
        and is_unsatisfiable(getattr(effect, "schema", None) or getattr(effect, "form", None))
        for effect in moment.step.effects
    )


SIGHTINGS: dict[str, ShowsFinding] = {
    "gap": _is_refused,
    "unhandled": _is_refused,
    "spin": _never_rests,
    "stuck": _is_stuck,
    "dead end": _enters_state,
    "unbounded": _enters_state,
    "unapproved": _runs_undecided,
    "unreviewed": _runs_unreviewed,
    "lost answer": _loses_answer,
    "no answer": _ends_silently,
    "tools left running": _leaves_tools,
    "unanswerable": _asks_in_vain,
}
"""By kind of finding. For `dead end` and `unbounded` more is searched than this step."""
