"""Diffs: what two conversations share, the first difference, and nothing that means nothing."""

from __future__ import annotations

import agents
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.log.diff import diff
from toolchart.engine.log.diff_diagram import mermaid
from toolchart.engine.log.fork import Changes
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.messages import Reply, ToolCall, Usage


def told(store: MemoryStore, name: str, *replies: object) -> Engine:
    """A conversation of one turn."""
    engine = agents.engine(replies, log=store)
    engine.run("go", conversation=name)
    return engine


def test_two_runs_of_the_same_have_no_difference() -> None:
    """Times, token counts and the ids that a provider draws are no difference."""
    store = MemoryStore()
    for name, call_id, tokens in (("a", "x1", 5), ("b", "y9", 7)):
        call = ToolCall(id=call_id, name="echo", arguments={"text": "hi"})
        usage = Usage(input=tokens)
        asked = Reply(finish_reason="tool_calls", tool_calls=(call,), usage=usage)
        told(store, name, asked, "done")
    found = diff(store, "a", "b")
    assert found.first is None
    assert len(found.common) == 6
    assert (found.left_rest, found.right_rest) == ((), ())


def test_the_first_difference_is_named_by_record_and_pointer() -> None:
    """What is in common, then where they part: record numbers, a JSON pointer and both values."""
    store = MemoryStore()
    told(store, "a", agents.calls(("echo", {"text": "hi"})), "done")
    told(store, "b", agents.calls(("echo", {"text": "ho"})), "done", "more")
    found = diff(store, "a", "b")
    assert found.first is not None
    assert (found.first.left_seq, found.first.right_seq) == (2, 2)
    assert found.first.pointer == "/event/reply/tool_calls/0/arguments/text"
    assert (found.first.left, found.first.right) == ("hi", "ho")
    assert [len(rest) for rest in (found.common, found.left_rest, found.right_rest)] == [2, 4, 4]


def test_a_conversation_that_ends_earlier_is_a_difference() -> None:
    """One is the beginning of the other: the first difference is that there is no record."""
    store = MemoryStore()
    engine = told(store, "a", "one", "two")
    engine.fork("a", name="b")
    engine.run("and?", conversation="b")
    found = diff(store, "a", "b")
    assert found.first is not None
    assert (found.first.left_seq, found.first.right_seq) == (None, 1)
    assert found.left_rest == ()


@settings(max_examples=25, deadline=None)
@given(at=st.integers(1, 7))
def test_a_fork_shares_its_past(at: int) -> None:
    """A fork is in common with its parent up to where it was changed, however it was cut."""
    store = MemoryStore()
    replies = [
        agents.calls(("echo", {"text": "hi"})),
        agents.calls(("echo", {"text": "ho"})),
        "done",
    ]
    engine = told(store, "a", *replies)
    engine.fork("a", at=at, name="b", from_log=True)
    assert diff(store, "a", "b").first is None


def test_the_diagram_has_one_node_a_step() -> None:
    """The card: one Mermaid diagram, the common path grey, each branch in its colour."""
    store = MemoryStore()
    replies = [agents.calls(("echo", {"text": "hi"}))] * 3
    engine = told(store, "a", *replies, 'say "done"', 'say "<less>"')
    engine.fork("a", changes=Changes(results={"call_1_2_0": "other"}), name="b")
    found = diff(store, "a", "b")
    drawn = mermaid(found)
    assert drawn.count(":::left") == len(found.left_rest) + 1
    assert drawn.count(":::right") == len(found.right_rest) + 1
    assert f"... {len(found.common) - 8} steps ..." in drawn
    assert drawn.startswith("flowchart TD\n")
