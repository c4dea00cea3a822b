"""Random worlds for flows, driven event by event through the core, with what they cost counted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from toolchart.states.chart.loading import Chart
from toolchart.states.core.step import Step, find_answered_effect
from toolchart.states.effects import (
    AskApproval,
    AskPerson,
    AwaitUser,
    CallFunction,
    CallModel,
    CountTokens,
    Effect,
    ReviewCalls,
    RunAgent,
    RunTools,
    Wait,
)
from toolchart.states.events import (
    FAILURE_KINDS,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    Answering,
    Cancelled,
    Decided,
    Elapsed,
    Event,
    Failed,
    Limits,
    Replied,
    Resumed,
    Returned,
    Reviewed,
    Ruling,
    Settings,
    ToolFinished,
    TurnStarted,
    UserSaid,
    Verdict,
)
from toolchart.states.machine import Machine, get_machine
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, Usage
from toolchart.states.snapshot import ENDED_BY_CORE
from toolchart.testing.answers.possible_answers import (
    list_counts,
    list_outcomes,
    list_pending_calls,
    list_undecided_calls,
    make_empty_outcome,
    make_tool_finished,
)
from toolchart.testing.manual_turn import TOOLS, ManualTurn, make_timestamp

MAX_EVENTS = 3_000
"""Events after which a world is given up: no bounded flow of these sizes needs as many."""


class Misbehaviour(AssertionError):
    """What a flow did that `check` says it cannot do."""


class FlowWorld:
    """A model, functions, people and a user that do anything; each world has its habits.

    Args:
        limits: of every turn.
    """

    def __init__(self, chart: Chart, rng: random.Random, limits: Limits) -> None:
        self._chart = chart
        self.machine: Machine = get_machine(chart)
        self._rng = rng
        self._limits = limits
        self._turn = ManualTurn.start(self.machine, chart)
        self._habit = rng.choice([0.0, 0.5, 0.9, 1.0])
        """How often an effect is answered as it was answered last."""
        self._habits: dict[str, int] = {}
        self._closed_effects: list[Effect] = []
        self._events = 0
        self._max_papers = 2
        self.costs: Counter[str] = Counter()
        """What was asked for since the newest message of the user."""
        self.greatest_costs: Counter[str] = Counter()

    def run_turns(self, count: int) -> None:
        """Run turns until the user has no more to say.

        Raises:
            Misbehaviour: the flow hangs, ends without an answer, or does not take an answer.
        """
        for number in range(count):
            snapshot = self._turn.snapshot
            self._begin_message()
            for effect in snapshot.open_effects:
                if isinstance(effect, RunAgent):
                    self.costs["agent_runs"] += len(effect.resting)
            settings = Settings(
                service="model",
                provider="scripted",
                model="m",
                limits=self._limits,
                tools=tuple(tool.name for tool in TOOLS),
            )
            variables = {"papers": ["a"] * self._rng.randint(0, self._max_papers)}
            self._apply(TurnStarted(message=f"turn {number}", settings=settings, variables=variables))
            while not self._turn.snapshot.is_over:
                self._move()
            self._note_costs()
            self._check_end()
            if self._turn.snapshot.awaits_user and self._rng.random() < 0.3:
                self._fire_timers()

    def go_on(self, turn: ManualTurn, event: Event) -> None:
        """Go on with a conversation in the middle of a turn, after an event.

        Raises:
            Misbehaviour: as `run_turns`.
        """
        self._turn = turn
        self._apply(event)
        while not self._turn.snapshot.is_over:
            self._move()
        self._check_end()

    # -- events ----------------------------------------------------------------------------------

    def _move(self) -> None:
        rng = self._rng
        if self._events > MAX_EVENTS:
            raise Misbehaviour(f"more than {MAX_EVENTS} events")
        chance = rng.random()
        if chance < 0.01 and not self._turn.snapshot.cancelled:
            self._apply(Cancelled(reason="stopped"))
        elif chance < 0.02:
            self._begin_message()
            self._apply(UserSaid(message="and hurry"))
        elif chance < 0.03 and self._closed_effects:
            self._offer_late_answer()
        elif chance < 0.035:
            self._apply(Resumed())
        else:
            self._answer_effect()

    def _answer_effect(self) -> None:
        rng = self._rng
        effects = [effect for effect in self._turn.snapshot.open_effects if not is_waiting(effect)]
        # A timer beside other work mostly runs out late.
        works = [effect for effect in effects if not isinstance(effect, Wait)]
        effect = rng.choice(works if works and rng.random() < 0.9 else effects)
        answers = list_random_answers(effect, self._turn, rng)
        index = self._habits.get(effect.name, 0)
        if rng.random() >= self._habit or index >= len(answers):
            index = rng.randrange(len(answers))
        self._habits[effect.name] = index
        self._take_event(replace(answers[index], effect=effect.id))

    def _take_event(self, event: Event) -> None:
        """Apply an event; one that answers an effect must be taken."""
        answered = find_answered_effect(self._turn.snapshot, event) if isinstance(event, Answering) else None
        result = self._apply(event)
        if answered is None or not result.is_untaken or result.fired:
            return
        if all(effect.id != answered.id for effect in self._turn.snapshot.open_effects):
            raise Misbehaviour(f"no row takes {event.TYPE}.{answered.name} in {result.source!r}")

    def _offer_late_answer(self) -> None:
        open_ids = {effect.id for effect in self._turn.snapshot.open_effects}
        effect = self._rng.choice(self._closed_effects)
        if effect.id in open_ids or isinstance(effect, AwaitUser):
            return
        event = list_random_answers(effect, self._turn, self._rng)[0]
        result = self._apply(replace(event, effect=effect.id))
        if not result.is_late:
            raise Misbehaviour(f"an answer to {effect.name}, which is closed, was not late")

    def _fire_timers(self) -> None:
        """A timer runs out between two turns, and what follows belongs to the turn before."""
        for effect in self._turn.snapshot.open_effects:
            if isinstance(effect, Wait):
                self._apply(Elapsed(effect=effect.id))
                while not self._turn.snapshot.is_over:
                    self._move()
                self._note_costs()
                self._check_end()
                return

    def _apply(self, event: Event) -> Step:
        self._events += 1
        self._turn, result = self._turn.apply_event(replace(event, at=make_timestamp(self._events)))
        self._closed_effects = [*self._closed_effects[-20:], *self._turn.snapshot.open_effects]
        count_costs(self.costs, result.effects)
        return result

    # -- what it costs ---------------------------------------------------------------------------

    def _begin_message(self) -> None:
        self._note_costs()
        self.costs.clear()

    def _note_costs(self) -> None:
        self.greatest_costs |= self.costs

    def _check_end(self) -> None:
        snapshot = self._turn.snapshot
        if snapshot.ended_by in ENDED_BY_CORE:
            raise Misbehaviour(f"the core ended the turn: {snapshot.ended_by} in {snapshot.state!r}")
        if snapshot.answer is None:
            raise Misbehaviour(f"the turn ended in {snapshot.state!r} without an answer")


def is_waiting(effect: Effect) -> bool:
    """Whether only the user continues an effect."""
    return isinstance(effect, AwaitUser) or (isinstance(effect, RunAgent) and effect.waits_for_user)


def count_costs(costs: Counter[str], effects: Iterable[Effect]) -> None:
    """Add what was asked for, by the fields of `WorstCase`."""
    for effect in effects:
        costs["model_calls"] += isinstance(effect, CallModel)
        costs["function_calls"] += isinstance(effect, CallFunction)
        costs["questions"] += isinstance(effect, AskPerson)
        costs["waits"] += isinstance(effect, Wait)
        costs["waiting_s"] += effect.seconds if isinstance(effect, Wait) else 0  # type: ignore[assignment]
        costs["tool_rounds"] += isinstance(effect, RunTools)
        costs["agent_runs"] += len(effect.messages) if isinstance(effect, RunAgent) else 0


# -- answers -------------------------------------------------------------------------------------


def list_random_answers(effect: Effect, turn: ManualTurn, rng: random.Random) -> Sequence[Answering]:
    """Some of the events that may answer an effect, with random content."""
    snapshot = turn.snapshot
    match effect:
        case CallModel():
            return [*_make_replies(effect, rng), *_make_failures(rng)]
        case CallFunction():
            value = (
                make_schema_value(effect.schema, rng)
                if effect.schema
                else rng.choice([None, 5, "x", {}, [1]])
            )
            value = {"attempt": 0, "count": 0, "pending": 0, **value} if isinstance(value, dict) else value
            return [Returned(value=value), Failed(kind="effect", message="no")]
        case AskPerson():
            return [Answered(content=make_schema_value(effect.form, rng))]
        case Wait():
            return [Elapsed()]
        case RunAgent():
            return _make_agent_answers(effect, rng)
        case ReviewCalls() if effect.id not in turn.reviewed_effects:
            rulings: tuple[Ruling, ...] = ("run", "run", "needs_approval", "denied", "invalid")
            return [
                Reviewed(
                    verdicts=tuple(Verdict(call_id=c.id, ruling=rng.choice(rulings)) for c in effect.calls)
                )
            ]
        case ReviewCalls() | AskApproval():
            ids = [call.call.id for call in list_undecided_calls(snapshot)] or [""]
            return [Decided(call_id=rng.choice(ids), approved=rng.random() < 0.5)]
        case RunTools():
            return [_make_outcome(effect, snapshot, rng)]
        case CountTokens():
            return list_counts(snapshot)
    raise AssertionError(f"nothing answers {effect.name!r}")


def _make_replies(effect: CallModel, rng: random.Random) -> list[Replied]:
    usage = Usage(total=rng.randint(0, 30))
    if effect.schema is not None:
        value = make_schema_value(effect.schema, rng)
        extra = {"attempt": 0, "count": 0} if rng.random() < 0.3 else {}
        return [
            Replied(reply=Reply(content="{}", finish_reason="stop", usage=usage), output={**extra, **value})
        ]
    calls = tuple(
        ToolCall(name=rng.choice(TOOLS).name, arguments={"n": rng.randint(0, 3)})
        for _ in range(rng.randint(1, 3))
    )
    reasons = [reason for reason in FINISH_REASONS if reason != "tool_calls"]
    return [
        Replied(reply=Reply(content=rng.choice(["", "Well.", None]), finish_reason="stop", usage=usage)),
        Replied(reply=Reply(content="So.", finish_reason=rng.choice(reasons), usage=usage)),
        Replied(
            reply=Reply(content=None, tool_calls=calls, finish_reason=rng.choice(FINISH_REASONS), usage=usage)
        ),
    ]


def _make_failures(rng: random.Random) -> list[Failed]:
    kind = rng.choice(FAILURE_KINDS)
    rejected = (
        Reply(content="[]", finish_reason="stop", usage=Usage(total=3)) if kind == "bad_output" else None
    )
    retryable = rng.random() < 0.6
    return [Failed(kind=kind, message="no", retryable=retryable, reply=rejected, jitter=rng.random())]


def _make_agent_answers(effect: RunAgent, rng: random.Random) -> list[Answering]:
    items = [item for item in range(len(effect.messages)) if item not in (*effect.answered, *effect.resting)]
    item = rng.choice(items) if items else 0
    link: dict[str, Any] = {"item": item, "conversation": "c/1", "usage": Usage(total=5)}
    output = make_schema_value(effect.schema, rng) if effect.schema else None
    answers: list[Answering] = [
        AgentFinished(**link, head="h", content=rng.choice(["", "Done."]), output=output),
        AgentFailed(**link, kind=rng.choice(["server", "stuck", "max_tokens"]), message="no"),
    ]
    if items:
        answers.append(AgentRested(**link, head="h", content="What next?"))
    return answers if items else answers[:1]


def _make_outcome(effect: RunTools, snapshot: Any, rng: random.Random) -> ToolFinished:
    pending_calls = list_pending_calls(effect, snapshot)
    if not pending_calls:
        return make_empty_outcome()
    open_call = rng.choice(pending_calls)
    return make_tool_finished(open_call, rng.choice(list_outcomes(effect, open_call)))


def make_schema_value(schema: Any, rng: random.Random) -> dict[str, Any]:
    """A random object that fits a schema; optional fields are sometimes left out."""
    required = schema.get("required") or ()
    return {
        name: _make_field(body, rng)
        for name, body in (schema.get("properties") or {}).items()
        if name in required or rng.random() < 0.7
    }


def _make_field(body: Any, rng: random.Random) -> Any:
    match body:
        case {"enum": words}:
            return rng.choice(words)
        case {"type": "integer"}:
            return rng.randint(body.get("minimum", -9), body.get("maximum", 9))
        case {"type": "boolean"}:
            return rng.random() < 0.5
        case {"type": "array"}:
            return ["part"] * rng.randint(0, body.get("maxItems", 4))
    return rng.choice(["", "text"])
