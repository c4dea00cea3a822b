"""Programs of others, watched: their conversations told apart, recorded whole, and replayed."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from foreign_loops import ENCODERS, SeenExchange, World

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.watching.grouping import compute_digests
from toolchart.engine.watching.recorder import Recorder, WatchFigures
from toolchart.states.effects import CallModel
from toolchart.states.messages import Message
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
