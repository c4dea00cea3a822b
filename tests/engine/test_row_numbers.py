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


OLD_CONVERSATIONS = """
CREATE TABLE old_conversations (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
INSERT INTO old_conversations SELECT number, id FROM conversations;
DROP TABLE conversations;
ALTER TABLE old_conversations RENAME TO conversations;
DROP TABLE leases;
DROP TABLE inbox;
PRAGMA user_version = 4;
"""


def test_a_file_of_schema_version_4_gets_such_numbers(tmp_path: Path) -> None:
    """A file that an earlier release wrote is upgraded as it is opened: the records stay, and the number of a
    conversation that is deleted afterwards is not used again."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    store.append("a", 0, [b"one"])
    store.append("b", 0, [b"two"])
    store.write_checkpoint("b", 0, b"{}")
    store.close()
    with sqlite3.connect(path) as database:
        database.executescript(OLD_CONVERSATIONS)
    store = SqliteStore(path)
    assert [list(store.read_lines(name)) for name in ("a", "b")] == [[b"one"], [b"two"]]
    assert list(store.read_checkpoints("b")) == [(0, b"{}")]
    store.delete("b")
    store.append("c", 0, [b"three"])
    with sqlite3.connect(path) as database:
        assert dict(database.execute("SELECT id, number FROM conversations")) == {"a": 1, "c": 3}
    store.close()
