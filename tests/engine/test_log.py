"""The log: one record per step, the hash chain, one writer, and detection of every changed byte."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from agents import make_engine, reply_with_calls

from toolchart.engine.log import record as records
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError


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
