"""Diffs: the common records of two conversations and their first relevant difference."""

from __future__ import annotations

import re

import agents
import pytest
from hostile_texts import HOSTILE_TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.exchange.diff_diagram import draw_diff
from toolchart.engine.log.diff import ConversationDiff, compare_conversations
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.reading.records import ReadRecord
from toolchart.engine.log.stores.memory import MemoryStore
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
    engine.fork("a", name="b")
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
    engine.fork("a", at=at, name="b", from_log=True)
    assert compare_conversations(store, "a", "b").first is None


def test_the_diagram_has_one_node_per_step() -> None:
    """The Mermaid diagram has the common path once and one node per step of each branch."""
    store = MemoryStore()
    replies = [agents.reply_with_calls(("echo", {"text": "hi"}))] * 3
    engine = run_turn(store, "a", *replies, 'say "done"', 'say "<less>"')
    engine.fork("a", changes=ForkChanges(results={"call_1_2_0": "other"}), name="b")
    diff = compare_conversations(store, "a", "b")
    diagram = draw_diff(diff)
    assert diagram.count(":::left") == len(diff.left_rest) + 1
    assert diagram.count(":::right") == len(diff.right_rest) + 1
    assert f"... {len(diff.common) - 8} steps ..." in diagram
    assert diagram.startswith("flowchart TD\n")


FLOWCHART_LINE = re.compile(
    r"""
      flowchart\ TD
    | \ +(\w+\ -->(\|"[^"\n]*"\|)?\ )?\w+(\["[^"\n]*"\]|\(\["[^"\n]*"\]\)):::\w+
    | \ +classDef\ .*
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_names_stay_labels_in_the_diagram(text: str) -> None:
    """Names of conversations, states and events from a foreign log cannot become lines or arrows."""
    record = ReadRecord(
        seq=1,
        at="2026-01-01T00:00:00.000Z",
        turn=1,
        iteration=1,
        event={"type": text},
        source="",
        target=text,
        guards={},
        prev="",
        hash="",
        line=b"",
    )
    diff = ConversationDiff(
        left=text, right=text, common=(record,), first=None, left_rest=(record, record), right_rest=()
    )
    for line in draw_diff(diff).splitlines():
        assert FLOWCHART_LINE.fullmatch(line), line
        assert "%%{" not in line
        assert "</b>" not in line
        assert "\u202e" not in line
