"""`show`, `runs`, `verify` and `replay`: what can be asked of a log, and of a damaged one."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolchart.app.cli.parameters.options import log_option
from toolchart.engine.log.stores import DEFAULT_LOG
from toolchart.engine.log.stores.sqlite import SqliteStore

Typed = Callable[..., Any]


@pytest.fixture
def talk(typed: Typed) -> str:
    """A conversation of six records, in the default log."""
    typed("run", "quickstart", "1+1", "--conversation", "talk-one")
    return "talk-one"


def changed(here: Path, seq: int, line: bytes) -> None:
    """Put another line in a record's place."""
    database = sqlite3.connect(here / DEFAULT_LOG)
    database.execute("UPDATE records SET line = ? WHERE seq = ?", (line, seq))
    database.commit()
    database.close()


def line_of(here: Path, seq: int) -> bytes:
    """The stored line of a record."""
    database = sqlite3.connect(here / DEFAULT_LOG)
    (line,) = database.execute("SELECT line FROM records WHERE seq = ?", (seq,)).fetchone()
    database.close()
    return bytes(line)


# -- where the log is --------------------------------------------------------------------------------


def test_the_default_log_is_the_engines() -> None:
    """The help names the log that the engine uses."""
    assert f"[default: {DEFAULT_LOG}]" in str(log_option(lambda: None).__click_params__[0].help)


def test_the_log_is_named_before_or_after_the_command(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--log` stands on either side and goes before TOOLCHART_LOG; the nearer one counts."""
    for name in ("one", "two", "three"):
        typed("run", "quickstart", "1+1", "--conversation", name, "--log", f"{name}.db")

    def listed(*words: str) -> str:
        (row,) = typed(*words).out.splitlines()
        return str(json.loads(row)["conversation"])

    assert listed("runs", "--json", "--log", "one.db") == "one"
    assert listed("--log", "two.db", "runs", "--json") == "two"
    assert listed("--log", "two.db", "runs", "--json", "--log", "one.db") == "one"
    monkeypatch.setenv("TOOLCHART_LOG", "three.db")
    assert listed("runs", "--json") == "three"
    assert listed("--log", "two.db", "runs", "--json") == "two"


def test_a_folder_is_a_log_too(typed: Typed, here: Path) -> None:
    """`--log FOLDER/` keeps JSON Lines, and every question can be asked of it."""
    typed("--log", "logs/", "run", "quickstart", "1+1", "--conversation", "c")
    assert len((here / "logs" / "c.jsonl").read_text().splitlines()) == 6
    for words in (("runs",), ("show", "c"), ("verify",), ("replay", "c")):
        assert typed("--log", "logs/", *words).code == 0


@pytest.mark.parametrize("command", ["runs", "verify", "show x", "replay x"])
def test_asking_a_log_that_is_not_there(typed: Typed, here: Path, command: str) -> None:
    """No log is made by asking; the message says how to make or name one."""
    done = typed(*command.split())
    assert done.code == 2
    assert "there is no log at .toolchart/log.db" in done.err
    assert "--log" in done.err
    assert list(here.iterdir()) == []


# -- show and runs -----------------------------------------------------------------------------------


def test_show_tells_what_happened_and_why(typed: Typed, talk: str) -> None:
    """Each step has its event, its move, the guard that decided, and what was said."""
    shown = typed("show", talk).out
    for text in (
        "conversation talk-one, chart tool_loop",
        "user: 1+1",
        "prompting → awaiting_tools  ⇒ review_calls",
        "because finish_reason == 'tool_calls'",
        'calls calculator {"expression":"1+1"}',
        "calculator succeeded: 2",
        "model: 1+1 = 2",
    ):
        assert text in shown


def test_show_prints_the_records_as_they_are_stored(typed: Typed, talk: str, here: Path) -> None:
    """`show --json` is the stored lines, byte for byte."""
    shown = typed("show", talk, "--json").out.encode().splitlines()
    store = SqliteStore(here / DEFAULT_LOG)
    assert shown == list(store.read(talk))
    store.close()


def test_the_beginning_of_an_id_is_enough(typed: Typed, talk: str) -> None:
    """A unique beginning finds its conversation; of several all are named; else the nearest."""
    assert typed("show", "talk").code == 0
    typed("run", "quickstart", "1+1", "--conversation", "talk-two")
    several = typed("show", "talk")
    assert several.code == 2
    assert "talk-one, talk-two" in several.err
    assert typed("show", "talk-o").code == 0
    typo = typed("show", "tlak-one")
    assert (typo.code, "did you mean 'talk-one'" in typo.err) == (2, True)
    assert "toolchart runs lists them" in typed("show", "zzz").err


def test_an_id_that_begins_another(typed: Typed, talk: str) -> None:
    """A whole id is found though another one begins with it."""
    typed("run", "quickstart", "2+2", "--conversation", "talk-one-more")
    assert "1+1 = 2" in typed("show", talk).out


def test_runs_lists_conversations(typed: Typed, talk: str) -> None:
    """`runs` has id, start, turns, records, state and first words; `--json` one object a line."""
    typed("run", "careful", "delete a.txt", "--conversation", "b")
    head, one, two = typed("runs").out.splitlines()
    assert head.split() == ["conversation", "started", "turns", "records", "state", "message"]
    assert one.split()[0] == talk
    assert one.endswith("finished           1+1")
    assert two.endswith("awaiting_approval  delete a.txt")
    rows = [json.loads(row) for row in typed("runs", "--json").out.splitlines()]
    assert [(row["turns"], row["records"], row["state"]) for row in rows] == [
        (1, 6, "finished"),
        (1, 4, "awaiting_approval"),
    ]


def test_an_empty_log_says_so(typed: Typed, here: Path) -> None:
    """A log without conversations is no error and no empty table."""
    from toolchart.engine.log.stores.sqlite import SqliteStore

    SqliteStore(here / "new.db").close()
    done = typed("runs", "--log", "new.db")
    assert (done.code, done.out, done.err) == (0, "", "no conversations yet\n")


# -- verify ------------------------------------------------------------------------------------------


def test_a_sound_log_verifies(typed: Typed, talk: str) -> None:
    """Every conversation with its records and head; `--json` for programs."""
    done = typed("verify")
    assert done.code == 0
    assert done.out.startswith(f"{talk}: 6 records verify, head ")
    row = json.loads(typed("verify", talk, "--json").out)
    assert (row["ok"], row["records"], len(row["head"])) == (True, 6, 64)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_edited_byte_of_any_record_is_found(
    typed: Typed, talk: str, here: Path, data: st.DataObject
) -> None:
    """Issue 2: whichever byte of whichever record is edited, `verify` exits with 5 and names it."""
    seq = data.draw(st.integers(0, 5))
    line = line_of(here, seq)
    place = data.draw(st.integers(0, len(line) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    changed(here, seq, line[:place] + bytes([value]) + line[place + 1 :])
    try:
        done = typed("verify")
        told = json.loads(typed("verify", "--json").out)
    finally:
        changed(here, seq, line)
    assert (done.code, done.out) == (5, "")
    assert f"conversation {talk}, record {seq}: " in done.err
    assert (told["ok"], told["seq"]) == (False, seq)


def test_a_byte_edited_in_the_file_itself_is_found(typed: Typed, talk: str, here: Path) -> None:
    """The same with no database between: one byte of the file, found by the record's own text."""
    path = here / DEFAULT_LOG
    database = sqlite3.connect(path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    whole = path.read_bytes()
    for seq in (1, 2, 3, 4, 5):
        place = whole.index(line_of(here, seq)[:60]) + 20
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        done = typed("verify")
        assert done.code == 5
        assert f"record {seq}: " in done.err
    path.write_bytes(whole)
    assert typed("verify").code == 0


def test_a_missing_record_is_found(typed: Typed, talk: str, here: Path) -> None:
    """A record that was taken out is named by `verify`; `show` and `replay` stop there too."""
    database = sqlite3.connect(here / DEFAULT_LOG)
    database.execute("DELETE FROM records WHERE seq = 2")
    database.commit()
    database.close()
    for command in (("verify",), ("show", talk), ("replay", talk)):
        done = typed(*command)
        assert done.code == 5
        assert f"conversation {talk}, record 2: it is missing" in done.err


def test_one_damaged_conversation_does_not_hide_the_others(
    typed: Typed, talk: str, here: Path
) -> None:
    """`verify` and `runs` go on after damage, and exit with 5 in the end."""
    changed(here, 5, b"not a record at all")
    typed("run", "quickstart", "2+2", "--conversation", "sound")
    assert "sound: 6 records verify" in typed("verify").out
    listed = typed("runs")
    assert listed.code == 5
    assert f"conversation {talk}, record 5" in listed.err
    assert [row.split()[0] for row in listed.out.splitlines()] == ["conversation", "sound"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: b"no database" * 100,
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:100] + b"\xff" * 2000 + whole[2100:],
    ],
    ids=["foreign", "cut", "overwritten"],
)
@pytest.mark.parametrize("command", ["verify", "runs", "show talk", "replay talk"])
def test_a_file_that_sqlite_cannot_read(
    typed: Typed, talk: str, here: Path, spoil: Callable[[bytes], bytes], command: str
) -> None:
    """Where SQLite itself says that the file is malformed, the log is damaged: exit 5, one message."""
    path = here / DEFAULT_LOG
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    path.write_bytes(spoil(path.read_bytes()))
    done = typed(*command.split())
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("toolchart: ")
    assert "Traceback" not in done.err


# -- replay ------------------------------------------------------------------------------------------


def test_replay_has_figures(typed: Typed, talk: str) -> None:
    """A sound conversation derives again: exit 0 and a line of figures."""
    done = typed("replay", talk)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{talk}: 6 steps and 2 requests derived again, all equal\n"
    assert json.loads(typed("replay", talk, "--json").out) == {
        "conversation": talk,
        "ok": True,
        "steps": 6,
        "requests": 2,
    }


def forged(here: Path, old: str, new: str) -> None:
    """A whole chain written anew with another chart: it verifies, and does not replay."""
    store = SqliteStore(here / DEFAULT_LOG)
    lines = list(store.read("talk-one"))
    store.close()
    database = sqlite3.connect(here / DEFAULT_LOG)
    prev = "0" * 64
    for seq, line in enumerate(lines):
        row = json.loads(line)
        row.pop("hash")
        row["prev"] = prev
        if seq == 0:
            assert old in row["event"]["chart"]
            row["event"]["chart"] = row["event"]["chart"].replace(old, new)
        body = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        prev = hashlib.sha256(body).hexdigest()
        line = body[:-1] + f',"hash":"{prev}"}}'.encode()
        database.execute("UPDATE records SET line = ? WHERE seq = ?", (line, seq))
    database.commit()
    database.close()


def test_a_log_that_does_not_replay(typed: Typed, talk: str, here: Path) -> None:
    """A log whose chart decides otherwise exits with 1: where, what was expected, what came, why."""
    forged(here, "target: finished", "target: error")
    assert typed("verify").code == 0
    done = typed("replay", talk)
    assert (done.code, done.out) == (1, "")
    assert "record 5 differs at /target" in done.err
    assert 'expected (the log):  "finished"' in done.err
    assert 'got (this replay):   "error"' in done.err
    assert "cause: chart" in done.err
    told = json.loads(typed("replay", talk, "--json").out)
    assert (told["seq"], told["pointer"], told["blame"]) == (5, "/target", "chart")
    assert (told["expected"], told["got"]) == ("finished", "error")
