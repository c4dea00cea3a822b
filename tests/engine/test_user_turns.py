"""Charts that span turns: `await_user`, results over turns, budgets of a turn, messages during a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson
import pytest
from agents import make_spec

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.waiting import has_open_turn
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Delta, Reply, Request, TextDelta, TextWithdrawn, Usage
from toolchart.testing import TurnableClock

INTERVIEW: dict[str, Any] = {
    "name": "interview",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_next",
            "transitions": [
                {"event": "replied", "target": "listening", "cond": "question.count < 3"},
                {"event": "replied", "target": "closing"},
                {"event": "failed", "target": "error"},
                {"event": "user_said", "target": "asking"},
            ],
        },
        "listening": {
            "enter": "listen",
            "after": {"7d": "given_up"},
            "transitions": [{"event": "user_said", "target": "asking"}],
        },
        "closing": {"final": True, "enter": "close"},
        "given_up": {"final": True, "enter": "give_up"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}

EFFECTS: dict[str, Any] = {
    "ask_next": {"call_model": {"prompt": "Next question after: {{user_message}}", "as": "question"}},
    "listen": {"await_user": "{{question}}"},
    "close": {"answer": "Thanks, {{question.count}} questions."},
    "give_up": {"answer": "Nobody is there."},
}


def make_interview(
    replies: list[Any], *, chart: Any = INTERVIEW, effects: Any = EFFECTS, **options: Any
) -> Engine:
    """Make an engine of an interview of three questions."""
    model = options.pop("model", None) or ScriptedProvider(replies)
    spec = make_spec(chart=chart, effects=effects, **options.pop("spec", {}))
    return Engine(spec, providers={"model": model}, **{"log": "memory", "clock": TurnableClock(), **options})


def read_records(engine: Engine) -> list[dict[str, Any]]:
    """The records of a conversation as JSON data."""
    return [orjson.loads(line) for line in engine.store.read_lines("c")]


@pytest.mark.parametrize("is_same_engine", [True, False])
def test_a_chart_spans_turns(is_same_engine: bool) -> None:
    """The turn ends at `await_user`, the next message goes on in the same run, and results are kept; in one
    process and over several."""
    store = MemoryStore()
    engine = make_interview(["Name?", "Age?", "Town?"], log=store)
    result = engine.run("hello", conversation="c")
    assert (result.content, result.awaits_user, result.is_over) == ("Name?", True, True)
    assert result.due == "2027-01-11T09:00:00.000Z"
    assert result.to_dict()["awaits_user"] is True
    if not is_same_engine:
        engine = make_interview(["Age?", "Town?"], log=store)
    assert engine.run("Ada", conversation="c").content == "Age?"
    if not is_same_engine:
        engine = make_interview(["Town?"], log=store)
    result = engine.run("36", conversation="c")
    assert (result.content, result.awaits_user, result.due) == ("Thanks, 3 questions.", False, None)
    types = [record["event"]["type"] for record in read_records(engine)]
    assert types.count("turn_started") == 3
    assert sum(len(record.get("cancels", ())) for record in read_records(engine)) == 2
    list(replay_conversation(store, "c"))


def test_budgets_are_those_of_a_turn() -> None:
    """Usage and iterations start again with each turn of a run, and the results do not."""
    reply = Reply(content="?", finish_reason="stop", usage=Usage(total=10))
    engine = make_interview([reply, reply])
    assert engine.run("a", conversation="c").usage.total == 10
    assert engine.run("b", conversation="c").usage.total == 10


def test_a_timer_beside_await_user_fires_at_resume_once() -> None:
    """A conversation that waits for its user ends at its deadline: at `resume`, and only once."""
    clock = TurnableClock()
    engine = make_interview(["Name?"], clock=clock)
    engine.run("hello", conversation="c")
    before = len(read_records(engine))
    clock.advance("6d")
    assert engine.conversation("c").resume().content == "Name?"
    assert len(read_records(engine)) == before
    clock.advance("1d")
    result = engine.conversation("c").resume()
    assert (result.content, result.awaits_user) == ("Nobody is there.", False)
    assert engine.conversation("c").resume().content == "Nobody is there."
    assert [r["event"]["type"] for r in read_records(engine)[before:]] == ["resumed", "elapsed"]
    list(replay_conversation(engine.store, "c"))


def test_a_deadline_that_has_passed_comes_before_the_next_message() -> None:
    """A message after the deadline finds the chart ended, so it begins a new run."""
    clock = TurnableClock()
    engine = make_interview(["Name?", "Name again?"], clock=clock)
    engine.run("hello", conversation="c")
    clock.advance("8d")
    result = engine.run("Ada", conversation="c")
    assert (result.content, result.awaits_user) == ("Name again?", True)
    types = [r["event"]["type"] for r in read_records(engine)]
    assert types == ["configured", "turn_started", "replied", "resumed", "elapsed", "turn_started", "replied"]
    list(replay_conversation(engine.store, "c"))


def test_a_timer_that_is_not_due_goes_on_in_the_next_turn() -> None:
    """A timer of a state that stays active is not started again by the next turn."""
    chart = {
        "name": "session",
        "states": {
            "session": {
                "initial": True,
                "after": {"1d": "timed_out"},
                "states": {
                    "listening": {
                        "initial": True,
                        "enter": "listen",
                        "transitions": [{"event": "user_said", "target": "listening"}],
                    }
                },
            },
            "timed_out": {"final": True, "enter": "say_timed_out"},
        },
    }
    effects = {"listen": {"await_user": "You said {{user_message}}."}, "say_timed_out": {"answer": "Bye."}}
    clock = TurnableClock()
    engine = make_interview([], chart=chart, effects=effects, clock=clock)
    assert engine.run("one", conversation="c").due == "2027-01-05T09:00:00.000Z"
    clock.advance("20h")
    result = engine.run("two", conversation="c")
    assert (result.content, result.due) == ("You said two.", "2027-01-05T09:00:00.000Z")
    clock.advance("4h")
    assert engine.conversation("c").resume().content == "Bye."
    list(replay_conversation(engine.store, "c"))


def test_a_changed_chart_goes_on_with_the_recorded_one_until_it_ends() -> None:
    """A run that waits for its user keeps its chart; the next run has the new one, in the same engine too."""
    store = MemoryStore()
    make_interview(["Name?"], log=store).run("hello", conversation="c")
    new_effects = {**EFFECTS, "close": {"answer": "Goodbye."}, "listen": {"await_user": "NEW {{question}}"}}
    engine = make_interview(["Age?", "Town?", "Again?"], log=store, effects=new_effects)
    assert engine.run("Ada", conversation="c").content == "Age?"
    assert engine.run("36", conversation="c").content == "Thanks, 3 questions."
    assert engine.run("hello again", conversation="c").content == "NEW Again?"
    list(replay_conversation(store, "c"))


class StubbornModel:
    """A model whose first call answers although it is cancelled."""

    name = "scripted"

    def __init__(self) -> None:
        self.has_started = asyncio.Event()
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        """Answer; the first time only once it is cancelled."""
        self.requests.append(request)
        if len(self.requests) == 1:
            self.has_started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return Reply(content="stale", finish_reason="stop", usage=Usage(total=7))
        return Reply(content="fresh", finish_reason="stop", usage=Usage(total=10))

    async def aclose(self) -> None:
        """Nothing to close."""


async def test_a_message_during_the_turn_interrupts_the_model_call() -> None:
    """A row for `user_said` leaves the state: the running call is cancelled; what it answers all the same is
    recorded as late, paid for, and used for nothing."""
    model = StubbornModel()
    engine = make_interview([], model=model)
    turn = asyncio.create_task(engine.arun("hello", conversation="c"))
    await model.has_started.wait()
    await engine.conversation("c").asay("wait, another topic")
    result = await asyncio.wait_for(turn, 60)
    assert (result.content, result.awaits_user) == ("fresh", True)
    assert result.usage.total == 17
    assert "another topic" in str(model.requests[-1].messages[-1].content)
    assert [r["event"]["type"] for r in read_records(engine) if r.get("late")] == ["replied"]
    list(replay_conversation(engine.store, "c"))


class TalkingModel(StubbornModel):
    """Begins to speak and is interrupted; then it says something else, in pieces."""

    def __init__(self, pieces: list[str]) -> None:
        super().__init__()
        self._pieces = pieces

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The pieces of the next reply."""
        self.requests.append(request)
        if len(self.requests) == 1:
            yield TextDelta(text="Hello wor")
            self.has_started.set()
            await asyncio.Event().wait()
        for piece in self._pieces:
            yield TextDelta(text=piece)
        yield Reply(content="".join(self._pieces), finish_reason="stop")


@pytest.mark.parametrize("pieces", [["Hel", "lo world"], ["fre", "sh"], ["Hello wor"]])
async def test_who_watches_an_interrupted_reply_ends_with_the_answer(pieces: list[str]) -> None:
    """The text that a message of the user broke off is taken back, unless the next reply begins with it: what
    was streamed, the result and the record are the same text."""
    chart = {
        "name": "talk",
        "states": {
            "speaking": {
                "initial": True,
                "enter": "speak",
                "transitions": [
                    {"event": "replied", "target": "done"},
                    {"event": "failed", "target": "error"},
                    {"event": "user_said", "target": "speaking"},
                ],
            },
            "done": {"final": True, "enter": "answer"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
    }
    model, shown = TalkingModel(pieces), [""]

    def show(delta: Delta) -> None:
        match delta:
            case TextDelta():
                shown.append(delta.text)
            case TextWithdrawn():
                shown[:] = [delta.kept]

    effects = {"speak": {"call_model": {"prompt": "Answer: {{user_message}}"}}}
    engine = make_interview([], model=model, chart=chart, effects=effects)
    turn = asyncio.create_task(engine.arun("hello", conversation="c", on_delta=show))
    await model.has_started.wait()
    await engine.conversation("c").asay("wait, another topic")
    result = await asyncio.wait_for(turn, 60)
    assert result.content == "".join(shown) == "".join(pieces)
    (*_, last) = replay_conversation(engine.store, "c")
    assert last.step.snapshot.answer == result.content


def test_a_question_that_a_timer_asks_at_rest_waits() -> None:
    """A deadline beside `await_user` that leads to a question opens the turn again, and readers see it."""
    states = {
        **INTERVIEW["states"],
        "given_up": {"enter": "remind", "transitions": [{"event": "answered", "target": "closing"}]},
    }
    effects = {
        **EFFECTS,
        "remind": {"ask_person": {"question": "Go on?", "form": {"type": "object", "properties": {}}}},
    }
    clock = TurnableClock()
    engine = make_interview(["Name?"], clock=clock, chart={**INTERVIEW, "states": states}, effects=effects)
    conversation = engine.conversation("c")
    conversation.send("hello")
    assert not has_open_turn(engine.store, "c")
    clock.advance("8d")
    result = conversation.resume()
    assert [question["question"] for question in result.questions] == ["Go on?"]
    assert (has_open_turn(engine.store, "c"), conversation.waiting) == (True, result.waiting)
    assert conversation.answer({}).is_over
    assert not has_open_turn(engine.store, "c")
