"""Large parts of records are stored once, and reading gives the original lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postgres_database import create_database
from web import serve_web

from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.large_parts import (
    MIN_PART_BYTES,
    join_large_parts,
    list_part_digests,
    split_large_parts,
)
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store

json = st.recursive(
    st.none() | st.integers(-9, 9) | st.text() | st.integers(1, 3).map(lambda n: "x" * MIN_PART_BYTES * n),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), json, max_size=4), json)
def test_split_lines_join_again(event: dict[str, Any], other: Any) -> None:
    """Any record is joined to the same bytes, and only large parts are split off."""
    line = orjson.dumps({"event": event, "other": other}, option=orjson.OPT_SORT_KEYS)
    stored_line, parts = split_large_parts(line)
    assert join_large_parts(stored_line, parts.get) == line
    assert sorted(list_part_digests(stored_line)) == sorted(parts)
    assert all(len(part) >= MIN_PART_BYTES for part in parts.values())
    assert len(stored_line) <= len(line)
    if parts:
        assert join_large_parts(stored_line, lambda digest: None) is None


@given(st.binary(max_size=60))
def test_bytes_that_are_not_a_record_stay_unchanged(line: bytes) -> None:
    """A line that is not JSON is not split; a line with a broken mark gives None, not an exception."""
    assert split_large_parts(line) == (line, {})
    assert join_large_parts(line, lambda digest: b"") is None or isinstance(
        join_large_parts(line, lambda d: b""), bytes
    )


@pytest.fixture
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Any]:
    """A function that opens this test's log in a kind of store."""

    def open_fresh_store(kind: str) -> Any:
        if kind == "postgres":
            return open_store(create_database(request.getfixturevalue("postgres"), tmp_path))
        return open_store(str(tmp_path / "log.db"))

    return open_fresh_store


def count_parts(store: Any) -> int:
    """Number of large parts in a store."""
    if isinstance(store, SqliteStore):
        return int(store._db.execute("SELECT count(*) FROM parts").fetchone()[0])
    return int(
        store._reading.run(lambda db: db.execute("SELECT count(*) FROM toolchart_parts").fetchone())[0]
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_equal_parts_are_stored_once(kind: str, open_log: Callable[[str], Any]) -> None:
    """Chart and spec of many conversations are stored once, until the last of them is deleted."""
    store = open_log(kind)
    engine = Engine("quickstart", log=store)
    for number in range(5):
        engine.run("2+2", conversation=f"c{number}")
    part_count = count_parts(store)
    assert 0 < part_count <= 3
    assert {type(result) for result in verify_store(store)} == {VerifiedConversation}
    for number in range(4):
        store.delete(f"c{number}")
    assert count_parts(store) == part_count
    assert {type(result) for result in verify_store(store)} == {VerifiedConversation}
    store.delete("c4")
    assert count_parts(store) == 0
    store.close()


def test_results_above_a_million_characters_are_kept(tmp_path: Path) -> None:
    """Issue 13: a larger result of a Python tool and of an HTTP tool is kept whole and is no failure; the
    model gets its first million characters and is told so."""
    much = "word " * 300_000
    big = agents.make_function_tool("big", {"type": "object", "properties": {}}, lambda arguments: much)
    store = SqliteStore(tmp_path / "log.db")
    with serve_web(lambda request: (200, {"Content-Type": "text/plain"}, much.encode())) as server:
        http = {"type": "http", "url": server.url, "allow_hosts": ["127.0.0.1"]}
        fetch = {"name": "fetch", "description": "", "parameters": {"type": "object"}, "implementation": http}
        replies = [agents.reply_with_calls(("big", {}), ("fetch", {})), "done"]
        tools = {"registry": [fetch]}
        with agents.make_engine(replies, log=store, functions=[big], tools=tools) as engine:
            result = engine.run("go", conversation="c")
    assert [call["outcome"] for call in result.tool_calls] == ["succeeded", "succeeded"]
    assert {call["result"]["result"] == much for call in result.tool_calls} == {True}
    loaded = load_conversation(store, "c")
    assert loaded is not None
    shown = [message.content or "" for message in loaded.snapshot.messages if message.role == "tool"]
    assert [len(text) < 1_001_000 and "of 1500000 characters" in text for text in shown] == [True] * 2
    assert [type(result) for result in verify_store(store)] == [VerifiedConversation]
    store.close()
