"""Two promises of the log: what was approved is run, and no changed key hides what follows it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import agents
import pytest

from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Decided


def test_an_approved_call_is_run_by_another_process() -> None:
    """S5.3: a decision from elsewhere runs the call: nobody can have begun it before."""
    log = MemoryStore()
    waiting = Engine("careful", log=log).run("delete a.txt", conversation="c")
    decision = Decided(call_id=waiting.undecided[0]["id"], approved=True, by="a test")
    result = Engine("careful", log=log).resume("c", decision)
    assert result.tool_calls[0]["result"]["success"] is True
    assert result.state == "finished"


@pytest.mark.parametrize("place", [2, 7])
def test_a_changed_key_byte_is_found(tmp_path: Path, place: int) -> None:
    """A byte of a row's key, changed in the file, hides the rows after it; verify names the record."""
    path = tmp_path / "log.db"
    with agents.engine(["ok"] * 4, log=path) as engine:
        for _ in range(4):
            engine.run("hi", conversation="c")
    with sqlite3.connect(path) as database:
        database.execute("VACUUM")  # a page that was split may keep a stale copy of the row
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        line = database.execute("SELECT line FROM records WHERE seq = ?", (place,)).fetchone()[0]
    data = bytearray(path.read_bytes())
    at = data.find(line)  # whole: records of one millisecond begin alike
    assert data[at - 1] == place
    data[at - 1] ^= 0x40
    path.write_bytes(data)
    store = SqliteStore(path, create=False)
    damages = [found for found in verify_store(store) if isinstance(found, LogDamaged)]
    assert [(damage.conversation, damage.seq) for damage in damages] == [("c", place)]
    store.close()
