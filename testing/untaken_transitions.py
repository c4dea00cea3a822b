"""Reasons why no scenario takes a transition, from what a search for scenarios observed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from toolchart.states.core.step import Step
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import Event
from toolchart.states.snapshot import Configuration
from toolchart.testing.transitions import Transition


class UntakenTransition(msgspec.Struct, frozen=True, kw_only=True):
    """A transition that no scenario takes."""

    transition: Transition
    reason: str

    def __str__(self) -> str:
        line = f"line {self.transition.line}: " if self.transition.line else ""
        return f"{line}{self.transition}: {self.reason}"


@dataclass(slots=True)
class SearchObservations:
    """What a search observed in each state: entries, events, and the truth of guards."""

    cut_short: bool = False
    """Whether the search stopped at its bound, so that nothing can be concluded."""
    _entries: Counter[str] = field(default_factory=Counter)
    _events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events that came while a state was active."""
    _truths: Counter[tuple[str, str, str, bool]] = field(default_factory=Counter)
    """Truths of guards that were evaluated for an event while a state was active."""

    def add_step(self, before: Configuration | None, event: Event, result: Step) -> None:
        """Count what happened in a step."""
        after = result.snapshot.configuration
        for state in after.states if after is not None else ():
            self._entries[state] += 1
        for state in before.states if before is not None else ():
            self._events[state, event.TYPE] += 1
            for text, truth in result.guards.items():
                self._truths[state, event.TYPE, text, truth] += 1

    def add_refusal(self, before: Configuration | None, event: Event, refusal: IllegalEvent) -> None:
        """Count an event that no transition took."""
        for state in before.states if before is not None else ():
            self._events[state, event.TYPE] += 1
            for text in refusal.false_conditions:
                self._truths[state, event.TYPE, text, False] += 1

    def explain_transition(self, transition: Transition) -> UntakenTransition:
        """Return the transition with the first reason that applies."""
        return UntakenTransition(transition=transition, reason=self._find_reason(transition))

    def _find_reason(self, transition: Transition) -> str:
        source = transition.source
        if self.cut_short:
            return "not found before the search stopped at its bound; it may be possible"
        if not self._entries[source]:
            return f"no turn enters {source!r}"
        names = (transition.event or "").split()
        events = [name for name in names if self._events[source, name]]
        if names and not events and not any("." in name or name == "*" for name in names):
            return f"nothing that waits in {source!r} is answered with {' or '.join(names)}"
        return self._find_guard_reason(transition, events)

    def _find_guard_reason(self, transition: Transition, events: list[str]) -> str:
        for texts, needed_truth, word in (
            (transition.guards, True, "false"),
            (transition.unless, False, "true"),
        ):
            for text in texts:
                truth_counts = self._count_truths(transition.source, events, text)
                if truth_counts[not needed_truth] and not truth_counts[needed_truth]:
                    times = truth_counts[not needed_truth]
                    return f"{' '.join(text.split())!r} was {word} each of the {times} times it was evaluated"
        return "an earlier row is always taken instead"

    def _count_truths(self, source: str, events: list[str], text: str) -> dict[bool, int]:
        counts = {True: 0, False: 0}
        for (state, event, guard, truth), times in self._truths.items():
            if state == source and guard == text and (not events or event in events):
                counts[truth] += times
        return counts
