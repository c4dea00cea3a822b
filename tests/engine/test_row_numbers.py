"""Row numbers in SQLite: the number of a deleted conversation is never given to another one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import LogConflict


def test_a_running_store_does_not_write_into_another_conversation(tmp_path: Path) -> None:
    """Where a conversation is deleted and another process begins one, a store that knew the first refuses
    its next turn and leaves the other one alone."""
    path = tmp_path / "log.db"
    running, other = SqliteStore(path), SqliteStore(path)
    running.append("old", 0, [b"one"])
    running.append("old", 1, [b"two"])
    other.delete("old")
    other.append("new", 0, [b"first", b"second"])
    with pytest.raises(LogConflict):
        running.append("old", 2, [b"three"])
    assert list(other.read_lines("new")) == [b"first", b"second"]
    assert list(running.read_lines("old")) == []
    running.close()
    other.close()


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    """A conversation that begins after the newest one was deleted gets a number that no other had."""
    store = SqliteStore(tmp_path / "log.db")
    numbers = []
    for name in ("a", "b", "c"):
        store.append(name, 0, [b"line"])
        with sqlite3.connect(tmp_path / "log.db") as database:
            numbers += [row[0] for row in database.execute("SELECT number FROM conversations")]
        store.delete(name)
    assert len(set(numbers)) == 3
    store.close()
