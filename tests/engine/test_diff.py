"""Diffs: the common records of two conversations and their first relevant difference."""

from __future__ import annotations

import agents
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.diff import compare_conversations
from toolchart.states.messages import Reply, ToolCall, Usage


def run_turn(store: MemoryStore, name: str, *replies: object) -> Engine:
    """Run a conversation of one turn."""
    engine = agents.make_engine(replies, log=store, chart="tool_loop")
    engine.run("go", conversation=name)
    return engine


def test_two_equal_runs_have_no_difference() -> None:
    """Times, token counts and ids from a provider are not compared."""
    store = MemoryStore()
    for name, call_id, tokens in (("a", "x1", 5), ("b", "y9", 7)):
        call = ToolCall(id=call_id, name="echo", arguments={"text": "hi"})
        usage = Usage(input=tokens)
        reply = Reply(finish_reason="tool_calls", tool_calls=(call,), usage=usage)
        run_turn(store, name, reply, "done")
    diff = compare_conversations(store, "a", "b")
    assert diff.first is None
    assert len(diff.common) == 6
    assert (diff.left_rest, diff.right_rest) == ((), ())


def test_the_first_difference_is_named_by_record_and_pointer() -> None:
    """The first difference has both record numbers, a JSON pointer and both values."""
    store = MemoryStore()
    run_turn(store, "a", agents.reply_with_calls(("echo", {"text": "hi"})), "done")
    run_turn(store, "b", agents.reply_with_calls(("echo", {"text": "ho"})), "done", "more")
    diff = compare_conversations(store, "a", "b")
    assert diff.first is not None
    assert (diff.first.left_seq, diff.first.right_seq) == (2, 2)
    assert diff.first.pointer == "/event/reply/tool_calls/0/arguments/text"
    assert (diff.first.left, diff.first.right) == ("hi", "ho")
    assert [len(rest) for rest in (diff.common, diff.left_rest, diff.right_rest)] == [2, 4, 4]


def test_a_conversation_that_ends_earlier_is_a_difference() -> None:
    """Where one conversation has more records, the first difference is the missing record."""
    store = MemoryStore()
    engine = run_turn(store, "a", "one", "two")
    engine.conversation("a").fork(name="b")
    engine.run("and?", conversation="b")
    diff = compare_conversations(store, "a", "b")
    assert diff.first is not None
    assert (diff.first.left_seq, diff.first.right_seq) == (None, 1)
    assert diff.left_rest == ()


@settings(max_examples=25, deadline=None)
@given(at=st.integers(1, 7))
def test_an_unchanged_fork_has_no_difference(at: int) -> None:
    """A fork without changes is equal to its parent, wherever it was forked."""
    store = MemoryStore()
    replies = [
        agents.reply_with_calls(("echo", {"text": "hi"})),
        agents.reply_with_calls(("echo", {"text": "ho"})),
        "done",
    ]
    engine = run_turn(store, "a", *replies)
    engine.conversation("a").fork(at=at, name="b", from_log=True)
    assert compare_conversations(store, "a", "b").first is None


def test_unequal_steps_stand_beside_those_with_the_same_event() -> None:
    """Where both begin to differ their steps stand beside each other, and each pair says all that differs in
    it; a step that has no like on the other side stands alone."""
    store = MemoryStore()
    engine = run_turn(store, "a", agents.reply_with_calls(("echo", {"text": "hi"})), "done", "again")
    run_turn(store, "b", "at once", "again")
    engine.run("more", conversation="a")
    agents.make_engine(["again"], log=store, chart="tool_loop").run("other", conversation="b")
    rows = compare_conversations(store, "a", "b").align_rest()
    pairs = [(row.left and row.left.event_type, row.right and row.right.event_type) for row in rows]
    assert pairs == [
        ("replied", "replied"),
        ("reviewed", None),
        ("tool_finished", None),
        ("replied", None),
        ("turn_started", "turn_started"),
        ("replied", "replied"),
    ]
    differences = {pointer: (left, right) for pointer, left, right in rows[4].list_differences()}
    assert differences["/event/message"] == ("more", "other")
    assert rows[5].is_equal
    assert rows[1].list_differences() == rows[5].list_differences() == []
