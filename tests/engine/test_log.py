"""The log: one record per step, the hash chain, one writer, and detection of every changed byte."""

from __future__ import annotations

import json
import re
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from agents import make_engine, reply_with_calls

from toolchart.engine.log import record as records
from toolchart.engine.log.replay import read_chain, replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import VerifiedConversation, verify_conversation, verify_store
from toolchart.states.errors import LogConflict, LogDamaged, LogUnavailable, ReplayMismatch, SpecError


def write_log() -> list[bytes]:
    """Run a turn with one tool call; return its record lines."""
    run = make_engine([reply_with_calls(("calculator", {"expression": "6*7"})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read_lines("c"))


def test_one_record_is_one_step() -> None:
    """Each record has the event, the states before and after, the guard values and the effects."""
    rows = [json.loads(line) for line in write_log()]
    assert [(row["event"]["type"], row["source"], row["target"]) for row in rows] == [
        ("configured", "", ""),
        ("turn_started", "", "prompting"),
        ("replied", "prompting", "awaiting_tools"),
        ("reviewed", "awaiting_tools", "executing"),
        ("tool_finished", "executing", "prompting"),
        ("replied", "prompting", "finished"),
    ]
    assert rows[2]["guards"]["finish_reason == 'tool_calls'"] is True
    assert rows[2]["fired"] == [{"row": 0}]
    assert [[ask["effect"] for ask in row.get("asks", [])] for row in rows] == [
        [],
        ["call_model"],
        ["review_calls"],
        ["run_tools"],
        ["call_model"],
        ["answer"],
    ]
    assert list(rows[4]["asks"][0]) == ["id", "effect", "digest", "messages"]
    assert rows[3]["asks"][0]["calls"] == [row["event"]["call_id"] for row in rows[4:5]]
    assert [row["seq"] for row in rows] == list(range(6))
    assert all(now["prev"] == before["hash"] for before, now in pairwise(rows))
    assert rows[0]["event"]["chart"].startswith("name: ")
    assert rows[0]["event"]["format"] == records.FORMAT
    assert [row["iteration"] for row in rows] == [0, 0, 0, 0, 1, 1]


def test_the_order_of_states_survives_the_log() -> None:
    """The log keeps the order of states, so a chart without `initial` replays and continues."""
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
    run = make_engine(["one"], chart=chart)
    run.run("go", conversation="c")
    assert sum(1 for _ in replay(run.store.read_lines("c"), "c")) == 3
    assert make_engine(["two"], chart=chart, log=run.store).run("go", conversation="c").content == "two"


def test_secrets_never_reach_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key from the environment is logged as a reference; a literal key is not logged at all."""
    monkeypatch.setenv("SOME_KEY", "sk-from-environment")
    llms = {
        "model": {"provider": "scripted", "model": "m", "replies": ["x"], "api_key": "sk-literal-1"},
        "other": {"provider": "openai", "model": "m", "api_key": "${SOME_KEY}"},
    }
    run = make_engine(["hi"], llms=llms)
    run.run("go", conversation="c")
    text = b"".join(run.store.read_lines("c")).decode()
    assert "sk-from" not in text  # not "sk-" alone: a salt may spell it
    assert "sk-literal" not in text
    assert "${SOME_KEY}" in text


def test_sqlite_works_with_two_open_handles(tmp_path: Path) -> None:
    """One handle reads what another committed; of two that append record N one gets LogConflict."""
    path, lines = tmp_path / "log.db", write_log()
    first, second = SqliteStore(path), SqliteStore(path)
    first.append("c", 0, lines[:3])
    assert list(second.read_lines("c")) == lines[:3]
    second.append("c", 3, lines[3:4])
    with pytest.raises(LogConflict):
        first.append("c", 3, lines[3:4])
    assert [row[0] for row in sqlite3.connect(path).execute("PRAGMA journal_mode")] == ["wal"]


def test_a_log_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    """A missing log, a wrong path and a file of another kind each give a clear error; nothing changes."""
    with pytest.raises(LogUnavailable, match="there is no log"):
        open_store(tmp_path / "none.db", create=False)
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, f"{tmp_path}/file/"):
        with pytest.raises(SpecError, match="is a folder, and a log is a file"):
            open_store(folder)
    with pytest.raises(LogUnavailable):
        open_store(tmp_path / "file" / "deep.db")
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database at all, but long enough to look at" * 40)
    with pytest.raises(LogDamaged):
        open_store(other)
    assert other.read_bytes().startswith(b"not a database")


def test_every_changed_byte_is_found() -> None:
    """A change of any single byte of any record is found, and the error names the record."""
    lines = write_log()
    for seq, line in enumerate(lines):
        for offset in range(len(line)):
            broken = [*lines]
            broken[seq] = line[:offset] + bytes([line[offset] ^ 1]) + line[offset + 1 :]
            with pytest.raises(LogDamaged) as error_info:
                verify_conversation(broken, "c")
            assert error_info.value.seq in (seq, seq + 1)


def test_records_that_moved_are_found() -> None:
    """A removed, doubled, swapped or foreign record breaks the chain."""
    lines = write_log()
    for broken in (
        lines[:2] + lines[3:],
        lines[:3] + lines[2:],
        [*lines[:2], lines[3], lines[2], *lines[4:]],
        lines[1:],
        [],
    ):
        with pytest.raises(LogDamaged):
            verify_conversation(broken, "c")
    with pytest.raises(LogDamaged, match="belongs to"):
        verify_conversation(lines, "d")


def test_an_edited_byte_in_the_file_is_found(tmp_path: Path) -> None:
    """Verify finds an edited byte of any record in the SQLite file and names the record."""
    path = tmp_path / "log.db"
    store = SqliteStore(path)
    run = make_engine([reply_with_calls(("echo", {"text": "hello"})), "end"], log=store)
    run.run("find me", conversation="c")
    lines = list(store.read_lines("c"))
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("VACUUM")  # a page that was split may keep a stale copy of the row
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw = path.read_bytes()
    for seq, line in enumerate(lines):
        at = raw.find(line[:60])
        assert at > 0
        path.write_bytes(raw[: at + 30] + bytes([raw[at + 30] ^ 1]) + raw[at + 31 :])
        reopened_store = SqliteStore(path)
        (result,) = verify_store(reopened_store)
        reopened_store.close()
        assert isinstance(result, LogDamaged)
        assert result.seq == seq
    path.write_bytes(raw)
    reopened_store = SqliteStore(path)
    assert [type(result) for result in verify_store(reopened_store)] == [VerifiedConversation]


def test_replay_finds_what_a_rewritten_log_claims() -> None:
    """A log that was changed and given valid hashes again does not replay."""
    lines = write_log()
    prev, forged_lines = records.GENESIS, []
    for seq, line in enumerate(lines):
        row = json.loads(line)
        row.pop("hash")
        row["prev"] = prev
        if seq == 4:
            row["target"] = "finished"
        body = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        prev = __import__("hashlib").sha256(body).hexdigest()
        forged_lines.append(body[:-1] + f',"hash":"{prev}"}}'.encode())
    assert sum(1 for _ in read_chain(forged_lines, "c")) == 6
    with pytest.raises(ReplayMismatch) as error_info:
        list(replay(forged_lines, "c"))
    assert (error_info.value.seq, error_info.value.pointer) == (4, "/target")
    assert (error_info.value.expected, error_info.value.actual) == ("finished", "prompting")
    assert error_info.value.blame == "chart"


def test_messages_are_written_once() -> None:
    """Invariant 6: the bytes of an iteration do not grow with the conversation."""
    run = make_engine(
        [reply_with_calls(("echo", {"text": f"{n:010}"})) for n in range(60)] + ["end"],
        chart="tool_loop",
        limits={"max_iterations": 99},
        tools={"registry": [{"name": "echo"}]},
    )
    run.run("go", conversation="c")
    lines = [_mask_values(line) for line in run.store.read_lines("c")][2:-1]
    assert len(lines) == 180
    assert lines[:3] * 60 == lines
    assert sum(len(line) for line in list(run.store.read_lines("c"))[2:-1]) / 60 < 2200


def _mask_values(line: bytes) -> bytes:
    """A record with all hashes, salts and numbers replaced by constants."""
    line = re.sub(rb'"salt":"[^"]*"', b'"salt":"S"', line)
    return re.sub(rb"\d+", b"0", re.sub(rb'"[0-9a-f]{64}"|"[\w-]{32}"', b'"H"', line))
