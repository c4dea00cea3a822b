"""The log: chained, ordered, one writer, and every changed byte found."""

from __future__ import annotations

import json
import re
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from agents import calls, engine

from toolchart.engine.log import record as records
from toolchart.engine.log.replay import read_chain, replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import Verified, verify_lines, verify_store
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, ReplayMismatch


def logged() -> list[bytes]:
    """A small log with a call in it."""
    run = engine([calls(("calculator", {"expression": "6*7"})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read("c"))


def test_one_record_is_one_step() -> None:
    """The card: the log of a turn tells each move, its reason and what was asked for then."""
    rows = [json.loads(line) for line in logged()]
    assert [(row["event"]["type"], row["source"], row["target"]) for row in rows] == [
        ("configured", "", ""),
        ("turn_started", "", "prompting"),
        ("replied", "prompting", "awaiting_tools"),
        ("reviewed", "awaiting_tools", "executing"),
        ("tool_finished", "executing", "prompting"),
        ("replied", "prompting", "finished"),
    ]
    assert rows[2]["guards"] == {"finish_reason == 'tool_calls'": True}
    assert [row["seq"] for row in rows] == list(range(6))
    assert all(now["prev"] == before["hash"] for before, now in pairwise(rows))
    assert rows[0]["event"]["chart"].startswith("name: tool_loop")
    assert rows[0]["event"]["format"] == records.FORMAT
    assert [row["iteration"] for row in rows] == [0, 0, 0, 0, 1, 1]


def test_the_order_of_states_survives_the_log() -> None:
    """A chart whose first state is initial by its place replays and goes on: the log keeps the order."""
    chart = {
        "name": "zebra",
        "states": {
            "zulu": {
                "enter": "call_model",
                "transitions": [
                    {"event": "replied", "target": "alpha"},
                    {"event": "failed", "target": "alpha"},
                ],
            },
            "alpha": {"final": True, "enter": "answer"},
        },
    }
    run = engine(["one"], chart=chart)
    run.run("go", conversation="c")
    assert sum(1 for _ in replay(run.store.read("c"), "c")) == 3
    assert engine(["two"], chart=chart, log=run.store).run("go", conversation="c").content == "two"


def test_secrets_never_reach_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the spec is logged as a reference, one written out as nothing at all."""
    monkeypatch.setenv("SOME_KEY", "sk-from-environment")
    llms = {
        "model": {
            "provider": "scripted",
            "model": "m",
            "replies": ["x"],
            "api_key": "sk-literal-1",
        },
        "other": {"provider": "openai", "model": "m", "api_key": "${SOME_KEY}"},
    }
    run = engine(["hi"], llms=llms)
    run.run("go", conversation="c")
    text = b"".join(run.store.read("c")).decode()
    assert "sk-" not in text
    assert "${SOME_KEY}" in text


def test_sqlite_survives_reopening_and_two_processes_hands(tmp_path: Path) -> None:
    """What one handle committed another reads; of two that append record N one gets LogConflict."""
    path, lines = tmp_path / "log.db", logged()
    first, second = SqliteStore(path), SqliteStore(path)
    first.append("c", 0, lines[:3])
    assert list(second.read("c")) == lines[:3]
    second.append("c", 3, lines[3:4])
    with pytest.raises(LogConflict):
        first.append("c", 3, lines[3:4])
    assert [row[0] for row in sqlite3.connect(path).execute("PRAGMA journal_mode")] == ["wal"]


def test_a_log_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    """A missing log, a folder, and a file that is something else are told apart and left alone."""
    with pytest.raises(LogUnavailable, match="there is no log"):
        open_store(tmp_path / "none.db", create=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogUnavailable):
        open_store(f"{tmp_path}/file/")
    with pytest.raises(LogUnavailable):
        open_store(tmp_path / "file" / "deep.db")
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database at all, but long enough to look at" * 40)
    with pytest.raises(LogDamaged):
        open_store(other)
    assert other.read_bytes().startswith(b"not a database")


def test_every_changed_byte_is_found() -> None:
    """Any single byte of any record, changed, is found, and the record is named."""
    lines = logged()
    for seq, line in enumerate(lines):
        for place in range(len(line)):
            broken = [*lines]
            broken[seq] = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
            with pytest.raises(LogDamaged) as caught:
                verify_lines(broken, "c")
            assert caught.value.seq in (seq, seq + 1)


def test_records_that_moved_are_found() -> None:
    """A record taken out, doubled, swapped or from another conversation breaks the chain."""
    lines = logged()
    for broken in (
        lines[:2] + lines[3:],
        lines[:3] + lines[2:],
        [*lines[:2], lines[3], lines[2], *lines[4:]],
        lines[1:],
        [],
    ):
        with pytest.raises(LogDamaged):
            verify_lines(broken, "c")
    with pytest.raises(LogDamaged, match="belongs to"):
        verify_lines(lines, "d")


def test_an_edited_byte_in_the_file_is_found(tmp_path: Path) -> None:
    """Editing one byte of any record in the SQLite file is found by verify, which names the record."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    run = engine([calls(("echo", {"text": "hello"})), "end"], log=store)
    run.run("find me", conversation="c")
    lines = list(store.read("c"))
    store.close()
    raw = path.read_bytes()
    for seq, line in enumerate(lines):
        at = raw.find(line[:60])
        if at < 0:  # a long record lies on overflow pages; its beginning does not
            at = raw.find(line[:20])
        assert at > 0
        path.write_bytes(raw[: at + 30] + bytes([raw[at + 30] ^ 1]) + raw[at + 31 :])
        reopened = SqliteStore(path)
        (found,) = verify_store(reopened)
        reopened.close()
        assert isinstance(found, LogDamaged)
        assert found.seq == seq
    path.write_bytes(raw)
    reopened = SqliteStore(path)
    assert [type(one) for one in verify_store(reopened)] == [Verified]


def test_replay_finds_what_a_rewritten_log_claims() -> None:
    """A log that is rewritten with valid hashes, but says something else, does not replay."""
    lines = logged()
    prev, forged = records.GENESIS, []
    for seq, line in enumerate(lines):
        row = json.loads(line)
        row.pop("hash")
        row["prev"] = prev
        if seq == 4:
            row["target"] = "finished"
        body = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        prev = __import__("hashlib").sha256(body).hexdigest()
        forged.append(body[:-1] + f',"hash":"{prev}"}}'.encode())
    assert sum(1 for _ in read_chain(forged, "c")) == 6
    with pytest.raises(ReplayMismatch) as caught:
        list(replay(forged, "c"))
    assert (caught.value.seq, caught.value.pointer) == (4, "/target")
    assert (caught.value.expected, caught.value.got) == ("finished", "prompting")
    assert caught.value.blame == "chart"


def test_messages_are_written_once() -> None:
    """Invariant 6: the bytes of an iteration do not grow with the conversation."""
    run = engine(
        [calls(("echo", {"text": f"{n:010}"})) for n in range(60)] + ["end"],
        limits={"max_iterations": 99},
        tools={"registry": [{"name": "echo"}]},
    )
    run.run("go", conversation="c")
    lines = [_shape(line) for line in run.store.read("c")][2:-1]
    assert len(lines) == 180
    assert lines[:3] * 60 == lines
    assert sum(len(line) for line in run.store.read("c")) / 60 < 2048


def _shape(line: bytes) -> bytes:
    """A record with every hash and every number made alike."""
    return re.sub(rb"\d+", b"0", re.sub(rb'"[0-9a-f]{32,64}"', b'"H"', line))
