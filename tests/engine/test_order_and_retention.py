"""Verify finds a wrong order of records, retention keeps what it must."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import agents
import pytest
from effort import choose_count
from hostile_logs import chain_conversations
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.log.retention import ConversationAge, find_kept, list_conversation_ages
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation, verify_store
from toolchart.states.errors import LogDamaged


def write_log(turns: int = 1) -> MemoryStore:
    """Run turns with one tool call each; return the store."""
    store = MemoryStore()
    engine = agents.make_engine([agents.reply_with_calls(("echo", {"text": "x"})), "done"] * turns, log=store)
    for _ in range(turns):
        engine.run("go", conversation="c")
    return store


# -- order -----------------------------------------------------------------------------------------


def rewrite_log(lines: list[bytes], change: dict[int, Any]) -> list[bytes]:
    """The log with some records changed, and all hashes computed again."""
    rows = [json.loads(line) for line in lines]
    for seq, alter in change.items():
        alter(rows[seq])
    return chain_conversations({"c": rows}, is_strict=False)["c"]


@pytest.mark.parametrize(
    ("seq", "change", "words"),
    [
        (2, lambda d: d.update(source="finished"), "the one before ended in 'prompting'"),
        (5, lambda d: d.update(turn=7), "due is 1"),
        (4, lambda d: d["event"].update(call_id="other"), "no call 'other' is open"),
        (5, lambda d: d.update(iteration=0), "goes backwards"),
        (0, lambda d: d.update(event={"type": "cancelled"}), "begins with its configuration"),
    ],
)
def test_records_that_cannot_follow_each_other_are_found(seq: int, change: Any, words: str) -> None:
    """Where all hashes are valid, states, turns, iterations and calls must still be in order."""
    lines = rewrite_log(list(write_log().read_lines("c")), {seq: change})
    with pytest.raises(LogDamaged, match=words) as error_info:
        verify_conversation(lines, "c")
    assert error_info.value.seq == seq


def test_a_call_cannot_end_twice() -> None:
    """A second outcome of a call is found, although its hash and its states are valid."""
    lines = list(write_log().read_lines("c"))
    second = json.loads(lines[4]) | {"seq": 5, "source": "prompting", "target": "prompting"}
    twice = rewrite_log([*lines[:5], json.dumps(second).encode()], {})
    with pytest.raises(LogDamaged, match="has ended already"):
        verify_conversation(twice, "c")


# -- retention -------------------------------------------------------------------------------------

NOW = datetime(2026, 6, 1, tzinfo=UTC)

age_lists = st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.integers(-1, 8)), min_size=1, max_size=9)


@settings(max_examples=choose_count(short=75, long=300))
@given(
    age_lists,
    st.none() | st.integers(0, 90).map(lambda days: timedelta(days=days)),
    st.none() | st.integers(0, 9),
)
def test_retention_keeps_what_it_must(
    age_values: list[tuple[int, bool, int]], older_than: timedelta | None, keep: int | None
) -> None:
    """Retention keeps the newest N, open turns, young conversations and all ancestors of kept forks."""
    ages = [
        ConversationAge(
            conversation=str(index),
            newest_at=(NOW - timedelta(days=days)).isoformat(),
            parent=str(parent) if 0 <= parent < index else None,
            is_open=is_open,
        )
        for index, (days, is_open, parent) in enumerate(age_values)
    ]
    kept = find_kept(ages, NOW, older_than=older_than, keep=keep)
    prunable = {age.conversation for age in ages} - kept.keys()
    for age in ages:
        if age.conversation in prunable:
            assert not age.is_open
            assert older_than is None or NOW - datetime.fromisoformat(age.newest_at) > older_than
        elif age.parent is not None:
            assert age.parent not in prunable
    assert len(ages) - len(prunable) >= min(keep or 0, len(ages))


def test_the_log_verifies_after_retention() -> None:
    """Only whole conversations are deleted, and the parent of a kept fork stays."""
    store = write_log()
    engine = agents.make_engine(["x", "y", "z"], log=store)
    engine.run("go", conversation="old")
    engine.run("go", conversation="parent")
    engine.conversation("parent").fork(name="fork")
    ages = list_conversation_ages(store)
    kept = find_kept(ages, NOW.replace(year=2999), older_than=timedelta(days=1), keep=1)
    assert kept == {"fork": "among the newest", "parent": "a fork or child of it is kept"}
    prunable = [age.conversation for age in ages if age.conversation not in kept]
    assert sorted(prunable) == ["c", "old"]
    for name in prunable:
        store.delete(name)
    assert not [conversation for conversation in verify_store(store) if isinstance(conversation, LogDamaged)]
    assert sorted(store.list_conversations()) == ["fork", "parent"]


def test_a_conversation_with_an_open_turn_is_kept() -> None:
    """A turn that waits for a decision or was interrupted is open at every record but its last."""
    waiting = MemoryStore()
    Engine("careful", log=waiting).run("delete a.txt", conversation="c")
    assert [conversation.is_open for conversation in list_conversation_ages(waiting)] == [True]
    lines = list(write_log().read_lines("c"))
    for count, is_open in ((1, False), (2, True), (3, True), (4, True), (5, True), (6, False)):
        broken = MemoryStore()
        broken.append("c", 0, lines[:count])
        assert [conversation.is_open for conversation in list_conversation_ages(broken)] == [is_open], count
