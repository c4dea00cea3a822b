"""Folding: large parts are kept once, and nobody above the store can tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logs import database

from toolchart.engine import Engine
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.large_parts import SMALLEST, fold, folds, unfold
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import Verified, verify_store
from toolchart.states.errors import LogDamaged

json = st.recursive(
    st.none()
    | st.integers(-9, 9)
    | st.text()
    | st.integers(1, 3).map(lambda n: "x" * SMALLEST * n),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), json, max_size=4), json)
def test_what_is_folded_unfolds(event: dict[str, Any], other: Any) -> None:
    """Any record comes back byte for byte, and no part of it is kept that is small."""
    line = orjson.dumps({"event": event, "other": other}, option=orjson.OPT_SORT_KEYS)
    folded, parts = fold(line)
    assert unfold(folded, parts.get) == line
    assert sorted(folds(folded)) == sorted(parts)
    assert all(len(part) >= SMALLEST for part in parts.values())
    assert len(folded) <= len(line)
    if parts:
        assert unfold(folded, lambda digest: None) is None


@given(st.binary(max_size=60))
def test_bytes_that_are_no_record_stay_as_they_are(line: bytes) -> None:
    """What is not JSON is not folded; a broken mark is told, and raises nothing."""
    assert fold(line) == (line, {})
    assert unfold(line, lambda digest: b"") is None or isinstance(
        unfold(line, lambda d: b""), bytes
    )


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Any]:
    """The test's own log of a kind."""

    def make(kind: str) -> Any:
        if kind == "postgres":
            return open_store(database(request.getfixturevalue("postgres"), tmp_path))
        return open_store(str(tmp_path / "log.db"))

    return make


def parts_of(store: Any) -> int:
    """How many parts a store keeps."""
    if isinstance(store, SqliteStore):
        return int(store._db.execute("SELECT count(*) FROM parts").fetchone()[0])
    return int(store._connected().execute("SELECT count(*) FROM toolchart_parts").fetchone()[0])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_same_is_kept_once(kind: str, fresh: Callable[[str], Any]) -> None:
    """Chart and spec of many conversations are on the disk once, until the last of them is forgotten."""
    store = fresh(kind)
    engine = Engine("quickstart", log=store)
    for number in range(5):
        engine.run("2+2", conversation=f"c{number}")
    kept = parts_of(store)
    assert 0 < kept <= 3
    assert {type(found) for found in verify_store(store)} == {Verified}
    for number in range(4):
        store.delete(f"c{number}")
    assert parts_of(store) == kept
    assert {type(found) for found in verify_store(store)} == {Verified}
    store.delete("c4")
    assert parts_of(store) == 0
    store.close()


def test_a_large_result_is_whole_again(fresh: Callable[[str], Any]) -> None:
    """A result of a megabyte is read as it was written."""
    store = fresh("sqlite")
    big = agents.fixed_tool(
        "big", {"type": "object", "properties": {}}, lambda given: "y" * 1_000_000
    )
    with agents.engine([agents.calls(("big", {})), "done"], log=store, functions=[big]) as engine:
        result = engine.run("go", conversation="c")
    assert result.tool_calls[0]["result"]["result"] == "y" * 1_000_000
    assert [type(found) for found in verify_store(store)] == [Verified]


def test_a_missing_or_changed_part_is_damage(tmp_path: Path) -> None:
    """A part that is gone or was changed is found, and the record that holds it is named."""
    path = tmp_path / "log.db"
    with Engine("quickstart", log=path) as engine:
        engine.run("2+2", conversation="c")
    with sqlite3.connect(path) as database_:
        database_.execute("UPDATE parts SET data = replace(data, 'replied', 'reblied')")
    (changed,) = verify_store(SqliteStore(path))
    assert isinstance(changed, LogDamaged)
    assert (changed.conversation, changed.seq) == ("c", 0)
    with sqlite3.connect(path) as database_:
        database_.execute("DELETE FROM parts")
    (gone,) = verify_store(SqliteStore(path))
    assert "a part of it is missing" in str(gone)


def test_a_log_of_the_first_version_is_brought_up(tmp_path: Path) -> None:
    """A file without parts opens, reads, goes on, and has parts from then on."""
    path = tmp_path / "log.db"
    with Engine("quickstart", log=path) as engine:
        engine.run("2+2", conversation="c")
    store = SqliteStore(path)
    lines = list(store.read("c"))
    store.close()
    with sqlite3.connect(path) as database_:
        database_.execute("DROP TABLE parts")
        database_.execute("UPDATE records SET line = ? WHERE seq = 0", (lines[0],))
        database_.execute("PRAGMA user_version = 1")
    store = SqliteStore(path)
    assert list(store.read("c")) == lines
    with Engine("quickstart", log=store) as engine:
        engine.run("3+3", conversation="d")
    assert parts_of(store) > 0
    assert {type(found) for found in verify_store(store)} == {Verified}
