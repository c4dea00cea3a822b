"""Questions to people in the real engine: callbacks, answers by API, forms, deadlines."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import orjson
import pytest
from agents import make_spec

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.effects import AskPerson
from toolchart.states.errors import NotFound, SpecError
from toolchart.states.events import Answered
from toolchart.testing import TurnableClock

FORM = {
    "type": "object",
    "properties": {
        "publish": {"type": "boolean", "description": "Shall it go out?"},
        "channel": {"enum": ["blog", "mail"], "default": "blog"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    },
    "required": ["publish"],
    "additionalProperties": False,
}

CHART: dict[str, Any] = {
    "name": "editor",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_editor",
            "after": {"24h": "expired"},
            "transitions": [
                {"event": "answered", "target": "published", "cond": "verdict.publish"},
                {"event": "answered", "target": "dropped"},
            ],
        },
        "published": {"final": True, "enter": "say_published"},
        "dropped": {"final": True, "enter": "say_dropped"},
        "expired": {"final": True, "enter": "say_expired"},
    },
}

EFFECTS: dict[str, Any] = {
    "ask_editor": {"ask_person": {"question": "Publish {{user_message}}?", "form": FORM, "as": "verdict"}},
    "say_published": {"answer": "published in {{verdict.channel}}"},
    "say_dropped": {"answer": "dropped"},
    "say_expired": {"answer": "nobody answered"},
}


def make_editor(chart: Any = CHART, effects: Any = EFFECTS, **options: Any) -> Engine:
    """Make an engine of a chart that asks an editor and waits for a day."""
    options = {"log": "memory", "clock": TurnableClock(), **options}
    spec = make_spec(chart=chart, effects=effects)
    return Engine(spec, providers={"model": ScriptedProvider([])}, **options)


def read_records(engine: Engine) -> list[dict[str, Any]]:
    """The records of a conversation as JSON data."""
    return [orjson.loads(line) for line in engine.store.read_lines("c")]


def test_a_turn_with_a_question_returns_the_question_and_its_form() -> None:
    """With nobody to ask, the result lists the open question with its form and its deadline."""
    engine = make_editor()
    result = engine.run("the draft", conversation="c")
    assert (result.is_over, result.awaits_user) == (False, False)
    assert result.questions == [
        {
            "effect": "ask_editor",
            "state": "asking",
            "question": "Publish the draft?",
            "form": FORM,
            "due": "2027-01-05T09:00:00.000Z",
        }
    ]
    assert result.to_dict()["questions"] == result.questions


@pytest.mark.parametrize(
    ("content", "answer"),
    [({"publish": True, "channel": "mail"}, "published in mail"), ({"publish": False}, "dropped")],
)
def test_an_answer_by_api_goes_on_with_the_turn(content: dict[str, Any], answer: str) -> None:
    """`answer` continues a turn that another process began, on either branch, and records who answered."""
    store = MemoryStore()
    make_editor(log=store).run("the draft", conversation="c")
    engine = make_editor(log=store)
    result = engine.conversation("c").answer(content, by="ada")
    assert (result.content, result.is_over, result.questions) == (answer, True, [])
    event = read_records(engine)[-1]["event"]
    assert (event["type"], event["content"], event["by"]) == ("answered", content, "ada")
    list(replay_conversation(store, "c"))


@pytest.mark.parametrize(
    ("content", "path", "words"),
    [
        ({}, None, "'publish'"),
        ({"publish": "yes"}, "publish", "'yes'"),
        ({"publish": True, "channel": "fax"}, "channel", "'fax'"),
        ({"publish": True, "days": [1, 0]}, "days[1]", "0"),
        ({"publish": True, "more": 1}, None, "'more'"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_before_anything_is_written(
    content: dict[str, Any], path: str | None, words: str
) -> None:
    """The error names the field and the wrong value; the log is unchanged, and the question still waits."""
    engine = make_editor()
    engine.run("the draft", conversation="c")
    before = list(engine.store.read_lines("c"))
    with pytest.raises(SpecError, match="does not fit its form") as refusal:
        engine.conversation("c").answer(content)
    assert refusal.value.path == path
    assert words in refusal.value.message
    assert list(engine.store.read_lines("c")) == before
    assert engine.conversation("c").resume().questions != []


def test_an_answer_to_no_question_is_refused() -> None:
    """The error says that nothing waits, or names the questions that do."""
    engine = make_editor()
    engine.run("the draft", conversation="c")
    with pytest.raises(SpecError, match="no question 'ask_editr'") as refusal:
        engine.conversation("c").answer({"publish": True}, question="ask_editr")
    assert "ask_editor" in (refusal.value.hint or "")
    engine.conversation("c").answer({"publish": True})
    with pytest.raises(SpecError, match="no question waits"):
        engine.conversation("c").answer({"publish": True})
    with pytest.raises(NotFound, match="no conversation 'other'"):
        engine.conversation("other").answer({"publish": True})


def test_an_answer_after_the_deadline_is_late() -> None:
    """The deadline comes first: a late answer is recorded as late and used for nothing."""
    clock = TurnableClock()
    engine = make_editor(clock=clock)
    engine.run("the draft", conversation="c")
    clock.advance("24h")
    result = engine.conversation("c").answer({"publish": True})
    assert result.content == "nobody answered"
    assert "after its deadline" in result.warnings[-1]
    assert [r["event"]["type"] for r in read_records(engine) if r.get("late")] == ["answered"]
    list(replay_conversation(engine.store, "c"))


def test_an_asker_is_called_with_the_question() -> None:
    """`Engine(asker=...)` answers during the turn; None leaves the question open for another day."""
    asked: list[AskPerson] = []
    answers = [None, Answered(content={"publish": True, "channel": "mail"}, by="ada")]

    async def ask(question: AskPerson) -> Answered | None:
        asked.append(question)
        return answers[len(asked) - 1]

    engine = make_editor(asker=ask)
    assert not engine.run("the draft", conversation="c").is_over
    assert engine.conversation("c").resume().content == "published in mail"
    assert [question.question for question in asked] == ["Publish the draft?"] * 2
    assert read_records(engine)[-1]["event"]["by"] == "ada"


def test_an_asker_whose_answer_does_not_fit_is_told_so() -> None:
    """A wrong answer of a callback is an error for its author, and the question stays open."""

    async def ask(question: AskPerson) -> Answered | None:
        return Answered(content={"publish": 3})

    store = MemoryStore()
    with pytest.raises(SpecError, match="does not fit its form"):
        make_editor(asker=ask, log=store).run("the draft", conversation="c")
    assert [q["effect"] for q in make_editor(log=store).conversation("c").resume().questions] == [
        "ask_editor"
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_asker_may_be_async_or_not_and_returns_an_answer(is_async: bool) -> None:
    """Both kinds of function answer; one that returns something else is told what to return."""
    answer: Any = Answered(content={"publish": True, "channel": "mail"}, by="ada")

    async def ask_later(question: AskPerson) -> Any:
        return answer

    ask = ask_later if is_async else lambda question: answer
    assert make_editor(asker=ask).run("the draft").content == "published in mail"
    answer = {"publish": True}
    with pytest.raises(SpecError, match="the asker returned dict"):
        make_editor(asker=ask).run("the draft")


class HangingAsker:
    """An asker that nobody answers; it counts how often it was cancelled."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, question: AskPerson) -> Answered | None:
        """Hang."""
        self.is_asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return None


async def test_the_deadline_cancels_the_prompt_of_an_asker() -> None:
    """The timer runs beside the callback; when it runs out, the callback is cancelled and the turn
    goes on."""
    clock, asker = TurnableClock(), HangingAsker()
    engine = make_editor(clock=clock, asker=asker)
    turn = asyncio.create_task(engine.arun("the draft", conversation="c"))
    await asker.is_asked.wait()
    clock.advance("24h")
    assert (await turn).content == "nobody answered"
    assert asker.cancelled == 1
    list(replay_conversation(engine.store, "c"))


@pytest.mark.parametrize("has_timer", [True, False])
async def test_an_answer_by_api_reaches_a_turn_that_runs(has_timer: bool) -> None:
    """Somebody else answers while the callback still asks, beside a timer or alone: the callback is
    cancelled, and the turn's caller gets the result."""
    asker, chart, effects = HangingAsker(), deepcopy(CHART), deepcopy(EFFECTS)
    if not has_timer:
        del chart["states"]["asking"]["after"], chart["states"]["expired"], effects["say_expired"]
    engine = make_editor(chart, effects, asker=asker)
    turn = asyncio.create_task(engine.arun("the draft", conversation="c"))
    await asker.is_asked.wait()
    with pytest.raises(SpecError, match="does not fit"):
        await engine.conversation("c").aanswer({"publish": 1})
    assert await engine.conversation("c").aanswer({"publish": True, "channel": "blog"}, by="bob") is None
    assert (await asyncio.wait_for(turn, 60)).content == "published in blog"
    assert asker.cancelled == 1
    list(replay_conversation(engine.store, "c"))


def test_two_questions_in_two_regions_are_answered_by_name() -> None:
    """Where two questions are open, an answer names the one it is for; any order leads on."""

    def make_region(name: str) -> dict[str, Any]:
        row = {"event": f"answered.{name}", "target": f"{name}_done"}
        return {
            "states": {
                f"{name}_open": {"initial": True, "enter": name, "transitions": [row]},
                f"{name}_done": {"final": True},
            }
        }

    chart = {
        "name": "two",
        "states": {
            "both": {
                "initial": True,
                "parallel": True,
                "states": {"left": make_region("ask_left"), "right": make_region("ask_right")},
                "transitions": [{"event": "done.state.both", "target": "finished"}],
            },
            "finished": {"final": True, "enter": "say_both"},
        },
    }
    effects = {
        "ask_left": {"ask_person": {"question": "Left?", "as": "left_words"}},
        "ask_right": {"ask_person": {"question": "Right?", "as": "right_words"}},
        "say_both": {"answer": "{{left_words}} {{right_words}}"},
    }
    engine = Engine(
        make_spec(chart=chart, effects=effects), log="memory", providers={"model": ScriptedProvider([])}
    )
    assert [q["effect"] for q in engine.run("go", conversation="c").questions] == ["ask_left", "ask_right"]
    with pytest.raises(SpecError, match="2 questions wait") as refusal:
        engine.conversation("c").answer({"content": "x"})
    assert "ask_left, ask_right" in (refusal.value.hint or "")
    result = engine.conversation("c").answer({"content": "east"}, question="ask_right")
    assert [q["effect"] for q in result.questions] == ["ask_left"]
    result = engine.conversation("c").answer({"content": "west"})
    assert result.content == "west east"
    list(replay_conversation(engine.store, "c"))


# -- questions of children ---------------------------------------------------------------------------

PARENT = {
    "name": "parent",
    "states": {
        "delegating": {
            "initial": True,
            "enter": "delegate",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed", "target": "finished"},
            ],
        },
        "finished": {"final": True, "enter": "say_outcome"},
    },
}


def make_parent(**options: Any) -> Engine:
    """Make an engine whose chart gives its message to an editor, as a child."""
    child = {**CHART, "effects": EFFECTS}
    effects = {
        "delegate": {"run_agent": {"chart": child, "as": "outcome"}},
        "say_outcome": {"answer": "the editor: {{outcome}}"},
    }
    options = {"log": "memory", "clock": TurnableClock(), **options}
    spec = make_spec(chart=PARENT, effects=effects)
    return Engine(spec, providers={"model": ScriptedProvider([])}, **options)


def test_the_deadline_of_a_child_fires_when_its_parent_is_resumed() -> None:
    """Timers of children are durable too, and the result of the parent says when they are due."""
    clock = TurnableClock()
    engine = make_parent(clock=clock)
    result = engine.run("the draft", conversation="c")
    assert (result.due, result.questions[0]["due"]) == ("2027-01-05T09:00:00.000Z",) * 2
    before = list(engine.store.read_lines("c"))
    assert engine.conversation("c").resume() == result
    assert list(engine.store.read_lines("c")) == before
    clock.advance("24h")
    result = engine.conversation("c").resume()
    assert (result.content, result.due, result.questions) == ("the editor: nobody answered", None, [])


def test_secrets_in_an_answer_are_not_logged() -> None:
    """The fields of an answer are redacted by key and by pattern, whatever the fields are called."""
    form = {"type": "object", "properties": {"name": {"type": "string"}, "pin": {"type": "string"}}}
    chart = {
        "name": "form",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask",
                "transitions": [{"event": "answered", "target": "finished"}],
            },
            "finished": {"final": True, "enter": "say_name"},
        },
    }
    effects = {
        "ask": {"ask_person": {"question": "Who?", "form": form, "as": "person"}},
        "say_name": {"answer": "hello {{person.name}}"},
    }
    spec = make_spec(chart=chart, effects=effects, redact={"keys": ["pin"], "patterns": ["email"]})
    engine = Engine(spec, log="memory", providers={"model": ScriptedProvider([])})
    engine.run("go", conversation="c")
    result = engine.conversation("c").answer({"name": "ada@example.com", "pin": "quxzy"})
    assert result.content == "hello ada@example.com"
    text = b"\n".join(engine.store.read_lines("c")).decode()
    assert "ada@example.com" not in text
    assert "quxzy" not in text
    list(replay_conversation(engine.store, "c"))
