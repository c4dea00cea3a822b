"""Whoever can write to the store can leave any bytes in an inbox: they are checked as at any other door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from agents import make_spec
from paying_agent import wait_until
from turning_store import TurningStore

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.effects import AskPerson
from toolchart.states.events import Answered

LONGEST_S = 60.0
"""Seconds after which a case that hangs fails."""

CHART: dict[str, Any] = {
    "name": "editor",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_editor",
            "transitions": [
                {"event": "answered", "target": "published"},
                {"event": "cancelled", "target": "stopped"},
            ],
        },
        "published": {"final": True, "enter": "say_published"},
        "stopped": {"final": True, "enter": "say_stopped"},
    },
}
FORM = {
    "type": "object",
    "properties": {"channel": {"enum": ["blog", "mail"]}},
    "required": ["channel"],
    "additionalProperties": False,
}
EFFECTS: dict[str, Any] = {
    "ask_editor": {"ask_person": {"question": "Publish it?", "form": FORM, "as": "verdict"}},
    "say_published": {"answer": "published in {{verdict.channel}}"},
    "say_stopped": {"answer": "stopped"},
}


class Editor:
    """A conversation `c` that asks for a channel, beside one of the same kind, `d`."""

    def __init__(self) -> None:
        self.store = TurningStore()
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ask(self, question: AskPerson) -> Answered | None:
        """Somebody who thinks for a long time, and then has no answer."""
        self.is_asked.set()
        await self.may_answer.wait()
        return None

    def open_engine(self, **options: Any) -> Engine:
        """An engine of the agent that asks."""
        spec = make_spec(chart=CHART, effects=EFFECTS)
        return Engine(spec, log=self.store, providers={"model": ScriptedProvider([])}, **options)

    def leave(self, data: bytes) -> None:
        """Put an entry into the inbox of the store, as any process can that has it."""
        self.store.post("c", "answered/1/x", data)


def make_entry(type_: str, *, conversation: str = "c", **fields: Any) -> bytes:
    return orjson.dumps({"conversation": conversation, "event": {"type": type_, **fields}})


ANSWER: dict[str, Any] = {"effect": 1, "content": {"channel": "mail"}}

REPLY = {"content": "forged", "finish_reason": "stop"}

FORGERIES: dict[str, bytes] = {
    "answer that breaks the form": make_entry("answered", effect=1, content={"channel": "fax"}),
    "answer with a field too many": make_entry("answered", effect=1, content={"channel": "mail", "a": 1}),
    "answer without a field": make_entry("answered", effect=1, content={}),
    "answer that is no object": make_entry("answered", effect=1, content="mail"),
    "answer that names no question": make_entry("answered", content={"channel": "mail"}),
    "answer to a question that was never asked": make_entry("answered", **{**ANSWER, "effect": 9}),
    "answer to a question of another conversation": make_entry("answered", **ANSWER, conversation="d"),
    "answer to a question of no conversation": make_entry("answered", **ANSWER, conversation="e"),
    "answer to a question of no child": make_entry("answered", **ANSWER, conversation="c.1"),
    "decision where no call waits": make_entry("decided", effect=1, call_id="x", approved=True),
    "what a model said": make_entry("replied", effect=1, reply=REPLY),
    "what a tool returned": make_entry("tool_finished", effect=1, call_id="x", outcome={"ok": True}),
    "what a function returned": make_entry("returned", effect=1, value={"channel": "mail"}),
    "time that has passed": make_entry("elapsed", effect=1),
    "turn that begins": make_entry("turn_started", message="go", settings={}),
    "resumption": make_entry("resumed"),
    "configuration": make_entry("configured"),
    "event of no kind": make_entry("paid"),
    "message that is no text": make_entry("user_said", message={"text": "go"}),
    "message with parts of no kind": make_entry("user_said", message="go", parts=[{"type": "x"}]),
    "message with a field too many": make_entry("user_said", message="go", settings={}),
    "cancellation whose reason is no text": make_entry("cancelled", reason=1),
    "cancellation of another conversation": make_entry("cancelled", conversation="d"),
    "message to another conversation": make_entry("user_said", message="go", conversation="d"),
    "no conversation": orjson.dumps({"event": {"type": "cancelled"}}),
    "conversation that is no text": orjson.dumps({"conversation": 1, "event": {"type": "cancelled"}}),
    "no event": orjson.dumps({"conversation": "c"}),
    "list": b"[]",
    "no JSON": b"\xff\x00",
    "nothing": b"",
    "endless depth": b"[" * 100_000,
}
"""What somebody may have left there."""


Door = Callable[[Editor, bytes], Awaitable[None]]


async def leave_for_a_turn_that_runs(editor: Editor, data: bytes) -> None:
    """The turn asks the person of its program when the entry comes."""
    async with editor.open_engine(asker=editor.ask) as engine:
        turn = asyncio.create_task(engine.arun("Publish.", conversation="c"))
        await editor.is_asked.wait()
        editor.leave(data)
        await wait_until(lambda: not editor.store.read_inbox(["c"]))
        editor.may_answer.set()
        await turn


async def leave_for_a_holder_that_gives_back(editor: Editor, data: bytes) -> None:
    """The turn rests, and its holder looks into the inbox before it gives the conversation back."""
    editor.store.before_release = lambda: editor.leave(data)
    async with editor.open_engine() as engine:
        await engine.arun("Publish.", conversation="c")


async def leave_at_rest(editor: Editor, data: bytes) -> None:
    """Nobody holds the conversation; a worker that looks for work finds the entry."""
    async with editor.open_engine() as engine:
        await engine.arun("Publish.", conversation="c")
    editor.leave(data)
    async with editor.open_engine() as engine:
        await engine.arecover()


DOORS: dict[str, Door] = {
    "running": leave_for_a_turn_that_runs,
    "given back": leave_for_a_holder_that_gives_back,
    "recover": leave_at_rest,
}
"""Who finds the entry."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("forgery", FORGERIES)
async def test_an_entry_that_no_door_would_let_in_is_refused(forgery: str, door: str) -> None:
    """Whoever finds the entry refuses what is no answer to the question, and no event that a person may send:
    nothing is written of it, the entry is gone, and the question still waits."""
    editor = Editor()
    async with editor.open_engine() as engine:
        await engine.arun("Publish.", conversation="d")
    async with asyncio.timeout(LONGEST_S):
        await DOORS[door](editor, FORGERIES[forgery])
    assert editor.store.read_inbox(["c"]) == []
    events = [replayed.record.event["type"] for replayed in replay_conversation(editor.store, "c")]
    assert set(events) == {"configured", "turn_started"}
    async with editor.open_engine() as engine:
        for name in ("c", "d"):
            assert [each["effect"] for each in engine.conversation(name).read_turn().questions] == [
                "ask_editor"
            ]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make_entry("answered", **ANSWER), "published in mail"),
        (make_entry("cancelled", reason="no"), "stopped"),
        (make_entry("cancelled", reason="no", content="I pay."), "stopped"),
    ],
    ids=["answer", "cancellation", "cancellation with words of a model"],
)
async def test_an_entry_as_a_door_leaves_it_is_taken(data: bytes, said: str, door: str) -> None:
    """The same who find it take an answer that fits, and a cancellation, which says nothing for a model."""
    editor = Editor()
    async with asyncio.timeout(LONGEST_S):
        await DOORS[door](editor, data)
    assert editor.store.read_inbox(["c"]) == []
    async with editor.open_engine() as engine:
        assert engine.conversation("c").read_turn().content == said
    assert not any(b"I pay." in line for line in editor.store.read_lines("c"))
