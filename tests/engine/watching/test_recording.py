"""Programs of others, watched: their conversations told apart, recorded whole, and replayed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from foreign_loops import ENCODERS, WITHOUT_IDS, Loop, SeenExchange, World, make_exchange

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.watching.grouping import compute_digests
from toolchart.engine.watching.recorder import Recorder, WatchFigures
from toolchart.states.effects import CallModel
from toolchart.states.messages import Message, Reply, ToolCall
from toolchart.states.ports import Store


def record(seen: list[SeenExchange]) -> tuple[Store, WatchFigures]:
    """The log of a watch that has seen these exchanges, and its figures."""
    store = open_store("memory")
    recorder = Recorder(store, {"watch": "test"})
    for each in seen:
        recorder.note(each.exchange)
    return store, recorder.close()


def list_events(store: Store, conversation: str) -> list[dict[str, Any]]:
    """The events of a conversation."""
    return [json.loads(line)["event"] for line in store.read_lines(conversation)]


def read_calls(store: Store, conversation: str) -> list[tuple[str, list[Message], dict[str, Any]]]:
    """The model calls of a conversation: its prompt, the messages that the log derives, and the event that
    answered it. Replies that were said before anything was seen have no digest, and are left out."""
    calls, asked = [], None
    for replayed in replay_conversation(store, conversation):
        event = dict(replayed.record.event)
        if event["type"] in ("replied", "failed") and event.get("answer_digest") and asked is not None:
            calls.append((*asked, event))
        for effect in replayed.step.effects:
            if isinstance(effect, CallModel):
                # Where a program changes its prompt within a turn, the next one begins without words.
                messages = [each for each in effect.request.messages if each.role != "user" or each.content]
                system = messages.pop(0).content or "" if messages[0].role == "system" else ""
                asked = (system, messages)
    return calls


@pytest.mark.parametrize("wire", ENCODERS)
@pytest.mark.parametrize("seed", range(12))
def test_what_loops_ask_beside_each_other_is_told_apart_or_marked(seed: int, wire: str) -> None:
    """Four programs with the same few words, with retries, cut streams, children, other prompts and
    summaries: each call is in the conversation of its loop, unless it says that this is not certain. All
    logs verify."""
    check_world(World(seed, [wire]))


@pytest.mark.parametrize("seed", range(8))
def test_loops_of_all_wires_are_told_apart_or_marked(seed: int) -> None:
    """As above, six programs over five wires at once."""
    check_world(World(1000 + seed, list(ENCODERS), loops=6))


def check_world(world: World) -> None:
    """Hold the recording of a world against what really happened."""
    seen = list(world.iterate_exchanges())
    store, figures = record(seen)
    assert not figures.problems
    assert figures.calls == len(seen)
    assert figures.branches == 0
    assert figures.retries <= figures.failed
    for verified in verify_store(store):
        assert isinstance(verified, VerifiedConversation)
    by_digest: dict[tuple[Any, ...], list[SeenExchange]] = defaultdict(list)
    for each in seen:
        by_digest[each.system, tuple(compute_digests(each.messages))].append(each)
    owners: dict[str, set[tuple[str, int]]] = defaultdict(set)
    total = 0
    for name in store.list_conversations():
        for system, messages, event in read_calls(store, name):
            total += 1
            candidates = by_digest[system, tuple(compute_digests(messages))]
            assert candidates, ("a request that nobody sent", name, messages)
            warnings = " ".join((event.get("reply") or {}).get("warnings", ()))
            truths = {(each.loop.name, each.segment) for each in candidates}
            if "not certain" not in warnings:
                owners[name] = owners[name] & truths if owners[name] else truths
                assert owners[name], ("one conversation has calls of two loops", name)
    assert total == len(seen)
    if not figures.uncertain:
        parts = sum(1 + loop.segment for loop in world.loops)
        assert len(figures.conversations) == parts
        assert figures.children == sum(bool(loop.parent) for loop in world.loops)


class Wire:
    """Makes exchanges of one program after the other."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.seen: list[SeenExchange] = []

    def ask(
        self, messages: list[Message], reply: Reply, system: str = "Be brief.", *, is_streamed: bool = False
    ) -> Message:
        """One exchange; the message of its reply."""
        loop = Loop(name="loop", wire=self.wire, rng=Random(0), first="", system=system)
        number = len(self.seen) + 1
        exchange = make_exchange(loop, number, number, number + 0.5, messages, reply, is_streamed=is_streamed)
        self.seen.append(SeenExchange(exchange, loop, 0, list(messages), system))
        return Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)

    def call(self, name: str, *texts: str) -> Reply:
        """A reply that calls a tool once with each text."""
        ids = ["" if self.wire in WITHOUT_IDS else f"call_{len(self.seen)}_{text}" for text in texts]
        calls = [
            ToolCall(id=call_id, name=name, arguments={"text": text}, native_id=call_id or None)
            for call_id, text in zip(ids, texts, strict=True)
        ]
        return Reply(tool_calls=tuple(calls), finish_reason="tool_calls")


DONE = Reply(content="It is so.", finish_reason="stop")


def say(text: str) -> Message:
    """Words of a user."""
    return Message(role="user", content=text)


def answer_call(message: Message, text: str) -> Message:
    """The result of the only call of a message."""
    (call,) = message.tool_calls
    return Message(role="tool", content=text, tool_call_id=call.id, name=call.name)


@pytest.mark.parametrize("wire", ENCODERS)
def test_children_with_the_same_words_are_each_of_a_call_of_its_own(wire: str) -> None:
    """Two programs ask the same, and an expert of each is asked the same: both are children, and say that
    their parent is not certain. Where one alone waits for an expert, it is certain."""
    question = "What is Rome like in May?"
    world = Wire(wire)
    for _ in range(2):
        world.ask([say("Where to?")], world.call("ask_expert", question))
    for _ in range(2):
        world.ask([say(question)], DONE, "You are the expert.")
    store, figures = record(world.seen)
    children = [name for name in figures.conversations if "." in name]
    assert {name.partition(".")[0] for name in children} == set(figures.conversations[:2])
    assert figures.children == 2
    for name in children:
        (reply,) = [event["reply"] for event in list_events(store, name) if event["type"] == "replied"]
        assert "is not certain" in " ".join(reply["warnings"])

    alone = Wire(wire)
    alone.ask([say("Where to?")], alone.call("ask_expert", question, question))
    for _ in range(2):
        alone.ask([say(question)], DONE, "You are the expert.")
    store, figures = record(alone.seen)
    assert (figures.children, figures.uncertain) == (2, 0)
    for verified in verify_store(store):
        assert isinstance(verified, VerifiedConversation)


@pytest.mark.parametrize("has_calls", [True, False])
@pytest.mark.parametrize("wire", ENCODERS)
def test_a_program_that_drops_its_beginning_is_known_by_its_end(wire: str, has_calls: bool) -> None:
    """Also where calls have no ids, and where there are none: the newest reply and what led to it tell. The
    rest is a conversation that names the one before; where two end alike, it says that it is not certain."""
    world = Wire(wire)
    messages = [say("Is Lima far?")]
    messages += [world.ask(messages, DONE), say("And how is Kyiv?")]
    reply = world.ask(messages, world.call("look_up", "Kyiv") if has_calls else DONE)
    follower = answer_call(reply, "It is lovely.") if has_calls else say("Thank you.")
    world.ask([messages[-1], reply, follower], DONE)
    store, figures = record(world.seen)
    first, rest = figures.conversations
    (configured,) = [event for event in list_events(store, rest) if event["type"] == "configured"]
    assert configured["tags"]["continues"] == first
    assert (figures.shortened, figures.uncertain) == (1, 0)
    if has_calls and wire not in WITHOUT_IDS:
        return  # its ids tell it from any other
    again = Wire(wire)
    for beginning in ("Is Lima far?", "Is Oslo far?"):
        again.ask([say(beginning), *messages[1:]], world.call("look_up", "Kyiv") if has_calls else DONE)
    again.ask([messages[-1], reply, follower], DONE)
    _, figures = record(again.seen)
    assert (figures.shortened, figures.uncertain) == (1, 1)


def rewrite(seen: SeenExchange, change: Callable[[dict[str, Any]], None]) -> None:
    """Let the request of an exchange say something else."""
    body = json.loads(seen.exchange.request)
    change(body)
    seen.exchange = msgspec.structs.replace(seen.exchange, request=json.dumps(body).encode())


def test_a_program_goes_on_from_the_response_that_it_names() -> None:
    """Also from one that is not the newest: what was said after it is no part of what is asked."""
    world = Wire("responses")
    for words in ("Where to?", "By train?", "By ship?"):
        world.ask([say(words)], DONE)
        if len(world.seen) > 1:
            rewrite(world.seen[-1], lambda body: body.update(previous_response_id="resp1"))
    store, figures = record(world.seen)
    first, other = figures.conversations
    assert figures.branches == 1
    asked = [[message.content for message in messages] for _, messages, _ in read_calls(store, first)]
    assert asked == [["Where to?"], ["Where to?", "It is so.", "By train?"]]
    asked = [[message.content for message in messages] for _, messages, _ in read_calls(store, other)]
    assert asked == [["Where to?", "It is so.", "By ship?"]]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_item_that_a_request_names_is_the_one_of_its_response(is_streamed: bool) -> None:
    """`item_reference`, which clients send in the place of a message that the host keeps. One that was not
    seen is in no conversation, and the reason is said."""
    world = Wire("responses")
    messages = [say("Where to?")]
    messages += [world.ask(messages, DONE, is_streamed=is_streamed), say("Why?")]
    for item in ("msg1", "msg77"):
        world.ask(messages, DONE)

        def name_item(body: dict[str, Any], item: str = item) -> None:
            body["input"][1:2] = [{"type": "item_reference", "id": item}]

        rewrite(world.seen[-1], name_item)
    store, figures = record(world.seen)
    (name,) = figures.conversations
    asked = [[message.content for message in messages] for _, messages, _ in read_calls(store, name)]
    assert asked == [["Where to?"], ["Where to?", "It is so.", "Why?"]]
    (problem,) = figures.problems
    assert "msg77" in problem
