"""Why a transition was not taken: what a search saw of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from toolchart.states.core.step import Step
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import AnyEvent
from toolchart.states.snapshot import Configuration
from toolchart.testing.transitions import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Untaken:
    """A transition that no scenario takes."""

    transition: Transition
    reason: str

    def __str__(self) -> str:
        line = f"line {self.transition.line}: " if self.transition.line else ""
        return f"{line}{self.transition}: {self.reason}"


@dataclass(slots=True)
class Sightings:
    """What happened in each state while the search went on."""

    cut_short: bool = False
    """Whether the search stopped at its bound."""
    _entered: Counter[str] = field(default_factory=Counter)
    _events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Events that came while a state was active."""
    _truths: Counter[tuple[str, str, str, bool]] = field(default_factory=Counter)
    """Truths of guards that were asked for an event while a state was active."""

    def saw(self, before: Configuration | None, event: AnyEvent, taken: Step) -> None:
        """Note a step."""
        after = taken.snapshot.configuration
        for state in after.states if after is not None else ():
            self._entered[state] += 1
        for state in before.states if before is not None else ():
            self._events[state, event.TYPE] += 1
            for text, truth in taken.guards.items():
                self._truths[state, event.TYPE, text, truth] += 1

    def refused(self, before: Configuration | None, event: AnyEvent, refusal: IllegalEvent) -> None:
        """Note an event that nothing took."""
        for state in before.states if before is not None else ():
            self._events[state, event.TYPE] += 1
            for text in refusal.refused:
                self._truths[state, event.TYPE, text, False] += 1

    def explain(self, transition: Transition) -> Untaken:
        """The nearest reason why no scenario takes it."""
        return Untaken(transition=transition, reason=self._reason(transition))

    def _reason(self, transition: Transition) -> str:
        source = transition.source
        if self.cut_short:
            return "not found before the search stopped at its bound; it may be possible"
        if not self._entered[source]:
            return f"no turn enters {source!r}"
        names = (transition.event or "").split()
        came = [name for name in names if self._events[source, name]]
        if names and not came and not any("." in name or name == "*" for name in names):
            return f"nothing that waits in {source!r} is answered with {' or '.join(names)}"
        return self._guard_reason(transition, came)

    def _guard_reason(self, transition: Transition, came: list[str]) -> str:
        for texts, wanted, word in (
            (transition.guards, True, "false"),
            (transition.unless, False, "true"),
        ):
            for text in texts:
                asked = self._asked(transition.source, came, text)
                if asked[not wanted] and not asked[wanted]:
                    times = asked[not wanted]
                    return f"{' '.join(text.split())!r} was {word} each of the {times} times it was asked"
        return "a row that is asked before it is always taken instead"

    def _asked(self, source: str, came: list[str], text: str) -> dict[bool, int]:
        counts = {True: 0, False: 0}
        for (state, event, asked, truth), times in self._truths.items():
            if state == source and asked == text and (not came or event in came):
                counts[truth] += times
        return counts
