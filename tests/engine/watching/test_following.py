"""Watched conversations are held against an agent: where they leave it is said at once, and in the log."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from enforced_programs import describe_tool, make_spec
from foreign_loops import ENCODERS, Loop, make_exchange
from msgspec.structs import replace

from toolchart.app.watch.rules import load_rules
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.mining.replaying import Replayer
from toolchart.engine.watching.recorder import PlacedCall, Recorder, WatchFigures
from toolchart.engine.watching.seen_calls import SeenCall, add_answer, read_request
from toolchart.specs.loader import load_spec
from toolchart.states.messages import Message, Reply, ToolCall

SPEC = make_spec(
    describe_tool("look_up"),
    describe_tool("book", needs=["look_up"], max_calls=1),
    describe_tool("refund", not_after=["book"]),
    describe_tool("pay", requires_approval=True),
    limits={"max_iterations": 3},
)


class Scene:
    """One program under a watch, of which each exchange is written by hand."""

    def __init__(self, replayer: Replayer, wire: str = "chat") -> None:
        self.store = open_store("memory")
        self.said: list[str] = []
        self.recorder = Recorder(self.store, {}, say=self.said.append, replayer=replayer)
        self.wire = wire
        self.system = "Be brief."
        self.messages: list[Message] = []
        self.number = 0

    def user(self, text: str) -> None:
        """The user says something."""
        self.messages.append(Message(role="user", content=text))

    def model(self, *names: str, arguments: dict[str, Any] | None = None) -> None:
        """The model calls tools, whose results come next, or answers."""
        self.number += 1
        calls = tuple(
            ToolCall(
                id=f"call_{self.number}_{index}",
                name=name,
                arguments=arguments or {"text": "x"},
                native_id=f"call_{self.number}_{index}",
            )
            for index, name in enumerate(names)
        )
        text = None if calls else "Done."
        reply = Reply(content=text, tool_calls=calls, finish_reason="tool_calls" if calls else "stop")
        self._ask(reply)
        self.messages.append(Message(role="assistant", content=text, tool_calls=calls))
        for call in calls:
            result = Message(role="tool", content="result", tool_call_id=call.id, name=call.name)
            self.messages.append(result)

    def fail(self) -> None:
        """The host refuses the next request."""
        self.number += 1
        self._ask(None)

    def _ask(self, reply: Reply | None) -> None:
        loop = Loop(name="it", wire=self.wire, rng=Random(1), first="-", system=self.system)
        kind = "" if reply is not None else "429"
        at = float(self.number)
        exchange = make_exchange(loop, self.number, at, at + 0.5, self.messages, reply, kind=kind)
        self.recorder.note(exchange)

    def close(self) -> WatchFigures:
        """What was recorded."""
        return self.recorder.close()

    def list_warnings(self) -> list[str]:
        """The warnings of all replies of the log."""
        return [
            warning
            for name in self.store.list_conversations()
            for line in self.store.read_lines(name)
            for warning in json.loads(line)["event"].get("reply", {}).get("warnings", ())
        ]


def make_scene(**more: Any) -> Scene:
    """A program that is held against the agent."""
    return Scene(Replayer(load_spec({**SPEC, **more})))


@pytest.mark.parametrize("wire", ENCODERS)
def test_what_the_agent_would_do_leaves_it_nowhere(wire: str) -> None:
    """Two turns within the rules, on each wire: nothing is said."""
    scene = Scene(Replayer(load_spec(SPEC)), wire)
    for text in ("one", "two"):
        scene.user(text)
        scene.model("look_up")
        scene.model("book")
        scene.model()
    figures = scene.close()
    assert (figures.turns, figures.departures, scene.said, scene.list_warnings()) == (2, [], [], [])


CASES = {
    "unknown": (["shout"], "Tool 'shout' not found"),
    "needs": (["book"], "book needs look_up to have succeeded first"),
    "not_after": (["look_up", "book", "refund"], "refund must not run after book"),
    "max_calls": (["look_up", "book", "book"], "book may run at most once in a turn"),
    "approval": (["pay"], "pay ran, and here a person is asked"),
    "limit": (["look_up", "look_up", "look_up", "look_up"], "the calls of a reply do not run"),
}


@pytest.mark.parametrize("name", CASES)
def test_where_a_program_leaves_the_agent_is_said_once(name: str) -> None:
    """Each rule: what was said at once, the reply of the log and the figures name the same place; the rest
    of that turn says nothing more, and the next turn is compared anew."""
    calls, words = CASES[name]
    scene = make_scene()
    scene.user("go")
    for call in calls:
        scene.model(call)
    scene.model("shout")
    scene.model()
    scene.user("again")
    scene.model("look_up")
    scene.model()
    figures = scene.close()
    (departure,) = figures.departures
    assert (departure.turn, figures.turns) == (1, 2)
    assert words in departure.reason
    (said,) = scene.said
    assert departure.reason in said
    assert [departure.reason in warning for warning in scene.list_warnings()] == [True]


def test_arguments_that_do_not_fit_leave_the_agent() -> None:
    """The schemas of the agent count, not those that the program offers."""
    scene = make_scene()
    scene.user("go")
    scene.model("look_up", arguments={"text": {"deep": 1}})
    (departure,) = scene.close().departures
    assert "Invalid arguments for 'look_up'" in departure.reason


def test_a_call_that_is_made_once_more_is_one_call() -> None:
    """A host that refuses now and then is no matter of the chart."""
    scene = make_scene()
    scene.user("go")
    for _ in range(5):
        scene.fail()
    scene.model("look_up")
    scene.fail()
    scene.model()
    assert scene.close().departures == []


def test_another_prompt_within_a_turn_is_the_same_turn() -> None:
    """What a turn has had counts on when another agent of the program takes over."""
    scene = make_scene()
    scene.user("go")
    scene.model("look_up")
    scene.model("book")
    scene.system = "You are another one."
    scene.model("book")
    (departure,) = scene.close().departures
    assert "book may run at most once" in departure.reason


def test_a_shorter_list_of_messages_forgets_nothing() -> None:
    """A program that trims its list within a turn does not lose what its calls have been."""
    scene = make_scene()
    scene.user("go")
    scene.model("look_up")
    scene.model("book")
    scene.messages = [Message(role="user", content="Summary: go on"), *scene.messages[-2:]]
    scene.model("book")
    figures = scene.close()
    assert figures.shortened == 1
    (departure,) = figures.departures
    assert "book may run at most once" in departure.reason


def test_a_turn_that_goes_back_remembers_the_conversation() -> None:
    """What has succeeded in a conversation has, also where its program goes back and asks otherwise."""
    scene = make_scene()
    scene.user("go")
    scene.model("look_up")
    scene.model()
    earlier = list(scene.messages)
    scene.user("book it")
    scene.model("look_up")
    scene.model("book")
    scene.model()
    scene.messages = earlier
    scene.user("refund it")
    scene.model("refund")
    figures = scene.close()
    assert figures.branches == 1
    (departure,) = figures.departures
    assert "refund must not run after book" in departure.reason


def test_what_was_said_of_a_turn_before_the_watch_counts() -> None:
    """A program whose first request has a turn that has begun: what its calls have been counts."""
    scene = make_scene()
    scene.user("go")
    calls = [
        ToolCall(id=name, name=name, arguments={"text": "x"}, native_id=name) for name in ("look_up", "book")
    ]
    for call in calls:
        result = Message(role="tool", content="done", tool_call_id=call.id, name=call.name)
        scene.messages += [Message(role="assistant", tool_calls=(call,)), result]
    scene.model("book")
    (departure,) = scene.close().departures
    assert "book may run at most once" in departure.reason
    begun = make_scene()
    begun.messages = scene.messages[:3]
    begun.model("book")
    assert begun.close().departures == []


def test_what_a_program_had_run_before_the_watch_is_held_against_the_agent_too() -> None:
    """A call that the agent refuses is where the conversation leaves it, also if its model asked earlier."""
    scene = make_scene()
    scene.user("go")
    call = ToolCall(id="b", name="book", arguments={"text": "x"}, native_id="b")
    result = Message(role="tool", content="done", tool_call_id="b", name="book")
    scene.messages += [Message(role="assistant", tool_calls=(call,)), result]
    scene.model()
    (departure,) = scene.close().departures
    assert "book needs look_up to have succeeded first" in departure.reason


def test_a_text_that_is_no_end_to_the_chart_is_said() -> None:
    """A chart that has each answer judged does not end where the program does."""
    model = {"provider": "scripted", "model": "m"}
    scene = make_scene(chart="reflection", limits={}, llms=dict.fromkeys(("main", "writer", "critic"), model))
    scene.user("go")
    scene.model()
    (departure,) = scene.close().departures
    assert departure.reason == "the turn was answered, and here it is not: the agent is in judging"


def test_a_chart_alone_knows_its_limits_and_no_tools() -> None:
    """Every call that can be read is a good one, until the chart ends the turn."""
    scene = Scene(load_rules("tool_loop"))
    scene.user("go")
    for _ in range(30):
        scene.model("anything")
    scene.model()
    (departure,) = scene.close().departures
    assert "limit" in departure.reason


def test_a_child_that_was_taken_for_that_of_another_call_goes_on() -> None:
    """Two programs ask an agent the same. The one whose child it was taken for goes on while the child waits
    for its model: the child keeps its turn, and what its turn has had."""
    store = open_store("memory")
    spec = make_spec(describe_tool("ask"), describe_tool("look_up"), describe_tool("book", needs=["look_up"]))
    recorder = Recorder(store, {}, replayer=Replayer(load_spec(spec)), is_enforced=True)
    number = 0

    def ask(name: str, messages: list[Message], reply: Reply) -> tuple[PlacedCall, SeenCall]:
        nonlocal number
        number += 1
        loop = Loop(name=name, wire="chat", rng=Random(1), first="-", system=name)
        exchange = make_exchange(loop, number, float(number), number + 0.5, messages, reply)
        call = read_request(exchange)
        return recorder.place(call), add_answer(call, exchange)

    def answer(asked: tuple[PlacedCall, SeenCall], messages: list[Message]) -> Reply:
        placed, call = asked
        reply = recorder.answer(replace(placed, call=call))
        assert reply is not None
        placed.conversation.write()
        recorder.note_shown(placed, reply, call.exchange)
        said = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
        results = [Message(role="tool", content="done", tool_call_id=each.id) for each in reply.tool_calls]
        messages += [said, *results]
        return reply

    question = "How far is it from Nice to Bath?"
    parents = [[Message(role="user", content=name)] for name in ("first", "second")]
    for index, messages in enumerate(parents):
        call = ToolCall(id=f"ask_{index}", name="ask", arguments={"text": question}, native_id=f"ask_{index}")
        answer(ask("parent", messages, make_reply(call)), messages)
    child = [Message(role="user", content=question)]
    calls = [
        ToolCall(id=name, name=name, arguments={"text": "x"}, native_id=name) for name in ("look_up", "book")
    ]
    answer(ask("child", child, make_reply(calls[0])), child)
    waiting = ask("child", child, make_reply(calls[1]))
    for messages in parents:
        answer(ask("parent", messages, Reply(content="Far.", finish_reason="stop")), messages)
    conversation = waiting[0].conversation
    answer(waiting, child)
    assert recorder.get_follower(conversation).problem == ""
    answer(ask("child", child, Reply(content="Done.", finish_reason="stop")), child)
    assert recorder.close().departures == []
    assert all(isinstance(each, VerifiedConversation) for each in verify_store(store))


def make_reply(*calls: ToolCall) -> Reply:
    """A reply with these calls."""
    return Reply(tool_calls=calls, finish_reason="tool_calls")
