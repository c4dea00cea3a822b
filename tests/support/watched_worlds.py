"""Worlds that watch for everything that `check` has a finding about, and what of a chart they have seen."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from flow_worlds import FlowWorld, Misbehaviour, is_waiting, list_random_answers
from msgspec.structs import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step
from toolchart.states.effects import RunTools, Wait
from toolchart.states.events import Cancelled, Elapsed, Event, Limits, Replied
from toolchart.states.proofs.findings import Finding
from toolchart.states.snapshot import ENDED_BY_CORE
from toolchart.testing.counterexamples.search import FAR
from toolchart.testing.manual_turn import make_timestamp

BEHAVIOUR_KINDS = frozenset(
    {"gap", "unhandled", "spin", "stuck", "dead end", "unbounded", "too large", "no answer"}
    | {"unapproved", "unreviewed", "lost answer"}
)
"""Findings about what a chart does: a world can show each of them."""

STRUCTURE_KINDS = frozenset({"unreachable", "dead row"})
"""Findings about a part of a chart that does nothing: no world can ever show that part at work."""

_ENDS_WITHOUT_ANSWER = {"answer_with_error", "answer_at_limit"}


class WatchedWorld(FlowWorld):
    """A world in which everything that `check` calls a fault raises `Misbehaviour`.

    Args:
        entered_states: receives the states that are entered.
        fired_rows: receives the rows that fire, by state and index.
    """

    def __init__(
        self,
        chart: Chart,
        rng: random.Random,
        limits: Limits,
        entered_states: set[str],
        fired_rows: set[tuple[str, int]],
    ) -> None:
        super().__init__(chart, rng, limits)
        self._entered_states = entered_states
        self._fired_rows = fired_rows

    def _apply(self, event: Event) -> Step:
        result = super()._apply(event)
        configuration = result.snapshot.configuration
        self._entered_states.update(configuration.states if configuration is not None else ())
        for transition in result.fired:
            self._fired_rows.add((transition.source, transition.row))
            self._entered_states.add(transition.source)
        check_step(event, result)
        return result


def check_step(event: Event, result: Step) -> None:
    """A step runs only calls that were reviewed and decided, and loses no answer.

    Raises:
        Misbehaviour: it does not.
    """
    if not result.is_late:
        _check_runs(event, result)
        _check_answer(event, result)


def _check_runs(event: Event, result: Step) -> None:
    """No call is refused because nobody has reviewed it, or while a person still decides.

    Raises:
        Misbehaviour: one is.
    """
    refusals = [
        refusal for effect in result.effects if isinstance(effect, RunTools) for refusal in effect.refused
    ]
    outcomes = {refusal.outcome for refusal in refusals}
    if "skipped" in outcomes:
        raise Misbehaviour(f"calls were to run unreviewed after {event.TYPE} in {result.source!r}")
    if "expired" in outcomes and not isinstance(event, Elapsed):
        raise Misbehaviour(f"calls were to run undecided after {event.TYPE} in {result.source!r}")


def _check_answer(event: Event, result: Step) -> None:
    """No whole answer of the model ends the turn as something else.

    Raises:
        Misbehaviour: one does.
    """
    if (
        not isinstance(event, Replied)
        or not {effect.name for effect in result.effects} & _ENDS_WITHOUT_ANSWER
    ):
        return
    reply = event.reply
    if reply.finish_reason == "stop" and (reply.content or "").strip() and result.snapshot.reply is reply:
        raise Misbehaviour(f"a whole answer was lost in {result.source!r}")


class Adversary(WatchedWorld):
    """A world that looks one step ahead for the way to a finding, as far as the answers that it draws allow.

    Args:
        finding: what it wants to show.
        distances: by state label, the least number of steps to the state of the finding.
    """

    def __init__(
        self,
        chart: Chart,
        rng: random.Random,
        limits: Limits,
        seen: tuple[set[str], set[tuple[str, int]]],
        finding: Finding,
        distances: Mapping[str, int],
    ) -> None:
        super().__init__(chart, rng, limits, *seen)
        self._finding = finding
        self._distances = distances
        self._max_events = MAX_EVENTS_OF_ADVERSARY
        self._max_papers = rng.choice([2, 2, 2 * MAX_AGENT_RUNS])
        self._noise = rng.choice([0.0, 0.0, 0.05])

    def _move(self) -> None:
        if self._events > self._max_events:
            raise Misbehaviour(f"more than {self._max_events} events")
        if self._rng.random() < self._noise:
            super()._move()
            return
        self._events += 1
        candidates = list(self._list_candidates())
        scores = [self._score(event) for event in candidates]
        best = min(scores)
        self._take_event(
            self._rng.choice([e for e, score in zip(candidates, scores, strict=True) if score == best])
        )

    def _apply(self, event: Event) -> Step:
        result = super()._apply(event)
        if self.costs["agent_runs"] > MAX_AGENT_RUNS:
            raise Misbehaviour(f"more than {MAX_AGENT_RUNS} runs of agents")
        return result

    def _fire_timers(self) -> None:
        """Timers run out again and again while the chart waits for the user."""
        while any(isinstance(effect, Wait) for effect in self._turn.snapshot.open_effects):
            if self._events > self._max_events:
                raise Misbehaviour(f"more than {self._max_events} events")
            super()._fire_timers()

    def _list_candidates(self) -> Iterator[Event]:
        """Some of the events that may come now."""
        snapshot = self._turn.snapshot
        for effect in snapshot.open_effects:
            if not is_waiting(effect):
                for _ in range(2):
                    for event in list_random_answers(effect, self._turn, self._rng):
                        yield replace(event, effect=effect.id)
        if not snapshot.cancelled and (
            self._finding.event == Cancelled.TYPE or self._rng.random() < self._noise
        ):
            yield Cancelled(reason="stopped")

    def _score(self, event: Event) -> tuple[int, int]:
        """Steps to the finding after an event, and the counters, which guards may limit.

        A turn that is over is the last choice.
        """
        turn, result = self._turn.apply_event(replace(event, at=make_timestamp(self._events)))
        is_untaken = result.is_untaken and not result.fired
        is_open = any(effect.id == getattr(event, "effect", 0) for effect in turn.snapshot.open_effects)
        if turn.snapshot.ended_by in ENDED_BY_CORE or (is_untaken and not is_open):
            return -1, 0
        snapshot = turn.snapshot
        # An answer that moves nothing may be the last one that there is.
        distance = self._distances.get(snapshot.state, FAR) + (not result.fired)
        if snapshot.is_over:
            distance += 1 if snapshot.state == self._finding.state else FAR
        counts = [result.count + result.failures + result.attempt for result in snapshot.results.values()]
        return distance, snapshot.iteration + snapshot.attempt + sum(counts)


MAX_EVENTS_OF_ADVERSARY = 600
"""Events of a few turns after which a flow of these sizes and limits counts as one without a bound."""
MAX_AGENT_RUNS = 200
