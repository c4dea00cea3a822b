"""`toolchart show`, `runs`, `verify` and `replay` on intact and on damaged logs."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_logs import chain_conversations

from toolchart import Engine
from toolchart.app.cli.parameters.options import log_option
from toolchart.engine.log.stores import DEFAULT_LOG
from toolchart.engine.log.stores.sqlite import SqliteStore

RunCli = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def conversation(run_cli: RunCli) -> str:
    """A conversation of six records in the default log."""
    run_cli("run", "quickstart", "1+1", "--conversation", "talk-one")
    return "talk-one"


def replace_line(work_dir: Path, seq: int, line: bytes) -> None:
    """Replace the stored line of a record."""
    database = sqlite3.connect(work_dir / DEFAULT_LOG)
    database.execute("UPDATE records SET line = ? WHERE id & 0xffffffff = ?", (line, seq))
    database.commit()
    database.close()


def read_line(work_dir: Path, seq: int) -> bytes:
    """Return the stored line of a record."""
    database = sqlite3.connect(work_dir / DEFAULT_LOG)
    (line,) = database.execute("SELECT line FROM records WHERE id & 0xffffffff = ?", (seq,)).fetchone()
    database.close()
    return bytes(line)


# -- where the log is --------------------------------------------------------------------------------


def test_the_default_log_is_the_engines() -> None:
    """The help names the default log of the engine."""
    assert f"[default: {DEFAULT_LOG}]" in str(log_option(lambda: None).__click_params__[-1].help)


def test_the_log_is_named_before_or_after_the_command(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--log` works before and after the command; the later one wins, and both win over TOOLCHART_LOG."""
    for name in ("one", "two", "three"):
        run_cli("run", "quickstart", "1+1", "--conversation", name, "--log", f"{name}.db")

    def list_id(*words: str) -> str:
        (row,) = run_cli(*words).out.splitlines()
        return str(json.loads(row)["conversation"])

    assert list_id("runs", "--json", "--log", "one.db") == "one"
    assert list_id("--log", "two.db", "runs", "--json") == "two"
    assert list_id("--log", "two.db", "runs", "--json", "--log", "one.db") == "one"
    monkeypatch.setenv("TOOLCHART_LOG", "three.db")
    assert list_id("runs", "--json") == "three"
    assert list_id("--log", "two.db", "runs", "--json") == "two"


@pytest.mark.parametrize("words", ["runs", "verify", "run quickstart 1+1", "import talk.json"])
@pytest.mark.parametrize("folder", ["logs/", "there", "there/", "."])
def test_a_folder_is_no_log(folder: str, words: str, run_cli: RunCli, work_dir: Path) -> None:
    """An address that names a folder is refused with the address of a file in it, and nothing is created."""
    (work_dir / "there").mkdir()
    (work_dir / "talk.json").write_text('[{"role": "user", "content": "hi"}]')
    result = run_cli(*words.split(), "--log", folder)
    assert (result.code, result.out) == (2, "")
    assert f"{folder} is a folder, and a log is a file or a database" in result.err
    assert f"write {Path(folder, 'log.db')}" in result.err
    assert sorted(path.name for path in work_dir.iterdir()) == ["talk.json", "there"]


@pytest.mark.parametrize("command", ["runs", "verify", "show x", "replay x"])
def test_reading_a_missing_log(run_cli: RunCli, work_dir: Path, command: str) -> None:
    """Commands that read do not create a log; the error explains how to create or name one."""
    result = run_cli(*command.split())
    assert result.code == 2
    assert "there is no log at .toolchart/log.db" in result.err
    assert "--log" in result.err
    assert list(work_dir.iterdir()) == []


# -- show and runs -----------------------------------------------------------------------------------


def test_show_prints_every_step(run_cli: RunCli, conversation: str) -> None:
    """`show` prints event, transition, true guards and details of each step."""
    output = run_cli("show", conversation).out
    for text in (
        "conversation talk-one, chart full",
        "user: 1+1",
        "prompting → awaiting_tools  ⇒ review_calls",
        "because finish_reason == 'tool_calls'",
        'calls calculator {"expression":"1+1"}',
        "calculator succeeded: 2",
        "model: 1+1 = 2",
    ):
        assert text in output


def test_show_prints_the_records_as_they_are_stored(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """`show --json` prints the stored lines byte for byte."""
    lines = run_cli("show", conversation, "--json").out.encode().splitlines()
    store = SqliteStore(work_dir / DEFAULT_LOG)
    assert lines == list(store.read_lines(conversation))
    store.close()


def test_the_beginning_of_an_id_is_enough(run_cli: RunCli, conversation: str) -> None:
    """A unique prefix finds its conversation; an ambiguous one lists all; a typo names the nearest."""
    assert run_cli("show", "talk").code == 0
    run_cli("run", "quickstart", "1+1", "--conversation", "talk-two")
    several = run_cli("show", "talk")
    assert several.code == 2
    assert "talk-one, talk-two" in several.err
    assert run_cli("show", "talk-o").code == 0
    run_cli("run", "quickstart", "2+2", "--conversation", "talk-one-more")
    assert "1+1 = 2" in run_cli("show", conversation).out, "a whole id is found also where it begins another"
    typo = run_cli("show", "tlak-one")
    assert (typo.code, "did you mean 'talk-one'" in typo.err) == (2, True)
    assert "list them with: toolchart runs" in run_cli("show", "zzz").err


def test_runs_lists_conversations(run_cli: RunCli, conversation: str) -> None:
    """`runs` prints id, start, turns, records, state and first message; `--json` one object per line."""
    run_cli("run", "careful", "delete a.txt", "--conversation", "b")
    head, first, second = run_cli("runs").out.splitlines()
    assert head.split() == ["conversation", "started", "turns", "records", "state", "message"]
    assert first.split()[0] == conversation
    assert first.endswith("finished           1+1")
    assert second.endswith("awaiting_approval  delete a.txt")
    rows = [json.loads(row) for row in run_cli("runs", "--json").out.splitlines()]
    assert [(row["turns"], row["records"], row["state"]) for row in rows] == [
        (1, 6, "finished"),
        (1, 4, "awaiting_approval"),
    ]


def test_an_empty_log(run_cli: RunCli, work_dir: Path) -> None:
    """A log without conversations is not an error and prints no table."""
    from toolchart.engine.log.stores.sqlite import SqliteStore

    SqliteStore(work_dir / "new.db").close()
    result = run_cli("runs", "--log", "new.db")
    assert (result.code, result.out, result.err) == (0, "", "no conversations yet\n")


# -- verify ------------------------------------------------------------------------------------------


def test_an_intact_log_verifies(run_cli: RunCli, conversation: str) -> None:
    """`verify` prints every conversation with its number of records and its head; also as JSON."""
    result = run_cli("verify")
    assert result.code == 0
    assert result.out.startswith(f"{conversation}: 6 records verify, head ")
    row = json.loads(run_cli("verify", conversation, "--json").out)
    assert (row["ok"], row["records"], len(row["head"])) == (True, 6, 64)


def test_a_byte_edited_in_the_file_itself_is_found(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """Issue 2: if a byte of any record is edited in the file, `verify` exits with 5 and names the record."""
    path = work_dir / DEFAULT_LOG
    database = sqlite3.connect(path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    whole = path.read_bytes()
    for seq in range(6):
        head = read_line(work_dir, seq)[:200]
        assert head in whole
        # Everywhere: the file may keep an older copy of a page.
        path.write_bytes(whole.replace(head, head[:20] + bytes([head[20] ^ 1]) + head[21:]))
        result = run_cli("verify")
        assert (result.code, result.out) == (5, "")
        assert f"conversation {conversation}, record {seq}: " in result.err
        damage = json.loads(run_cli("verify", "--json").out.splitlines()[0])
        assert (damage["ok"], damage["seq"]) == (False, seq)
    path.write_bytes(whole)
    assert run_cli("verify").code == 0


def test_a_missing_record_is_found(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """`verify` names a removed record; `show` and `replay` stop at it."""
    database = sqlite3.connect(work_dir / DEFAULT_LOG)
    database.execute("DELETE FROM records WHERE id & 0xffffffff = 2")
    database.commit()
    database.close()
    for command in (("verify",), ("show", conversation), ("replay", conversation)):
        result = run_cli(*command)
        assert result.code == 5
        assert f"conversation {conversation}, record 2: it is missing" in result.err


def test_one_damaged_conversation_does_not_hide_the_others(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """`verify` and `runs` continue after a damaged conversation and exit with 5."""
    replace_line(work_dir, 5, b"not a record at all")
    run_cli("run", "quickstart", "2+2", "--conversation", "sound")
    assert "sound: 6 records verify" in run_cli("verify").out
    listing = run_cli("runs")
    assert listing.code == 5
    assert f"conversation {conversation}, record 5" in listing.err
    assert [row.split()[0] for row in listing.out.splitlines()] == ["conversation", "sound"]


@pytest.mark.parametrize("seq", [0, 1, 5])
def test_runs_names_a_changed_record_that_it_reads(
    run_cli: RunCli, conversation: str, work_dir: Path, seq: int
) -> None:
    """`runs` names a conversation in which one byte of a record that it reads was changed, lists the others,
    exits with 5, and says what to do next."""
    line = read_line(work_dir, seq)
    digit = line.index(b'"at":"2') + 6
    replace_line(work_dir, seq, line[:digit] + b"1" + line[digit + 1 :])
    run_cli("run", "quickstart", "2+2", "--conversation", "sound")
    result = run_cli("runs")
    assert result.code == 5
    assert f"damaged: conversation {conversation}, record {seq}: its hash does not match" in result.err
    assert "\n  `toolchart verify` lists all damage" in result.err
    assert "\n  toolchart export --format jsonl > intact.jsonl" in result.err
    assert [row.split()[0] for row in result.out.splitlines()] == ["conversation", "sound"]


@pytest.mark.parametrize("seq", [0, 3])
@pytest.mark.parametrize("command", ["show", "replay", "export"])
def test_damage_says_what_to_do_next(
    run_cli: RunCli, conversation: str, work_dir: Path, command: str, seq: int
) -> None:
    """Whatever command damage ends, it names the commands that list all damage and that keep the intact
    conversations, and not itself; `show` has printed the records before the damage."""
    line = read_line(work_dir, seq)
    digit = line.index(b'"at":"2') + 6
    replace_line(work_dir, seq, line[:digit] + b"1" + line[digit + 1 :])
    result = run_cli(command, conversation)
    assert result.code == 5
    assert f"toolchart: conversation {conversation}, record {seq}: its hash does not match" in result.err
    assert "\n  `toolchart verify` lists all damage" in result.err
    assert "; toolchart import intact.jsonl --log new.db" in result.err
    assert "toolchart show" not in result.err
    assert ("1+1" in run_cli("show", conversation).out) == (seq > 0)


def test_an_export_keeps_what_is_intact(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """An export of a damaged log has every intact conversation whole, names each damaged one with its place
    and exits with 5; of a damaged log without intact conversations it prints nothing."""
    export = ("export", "--format", "jsonl")
    for seq in (1, 5):  # the end of one is damaged, and the beginning of another one
        replace_line(work_dir, seq, b"not a record at all")
        run_cli("run", "quickstart", "2+2", "--conversation", f"sound-{seq}")
        if seq == 1:
            replace_line(work_dir, 1, b"not a record at all")
            nothing = run_cli(*export)
            assert (nothing.code, nothing.out) == (5, "")
            assert "damaged: conversation talk-one, record 1: " in nothing.err
            assert "damaged: conversation sound-1, record 1: " in nothing.err
    result = run_cli(*export)
    assert result.code == 5
    assert result.out == run_cli("export", "sound-5", "--format", "jsonl").out
    assert result.err.count("damaged: ") == 2
    assert "1 of 3 conversations are intact and written" in result.err
    one = run_cli("export", "sound-1", "--format", "jsonl")
    assert (one.code, one.out) == (5, "")


def test_what_the_page_says_keeps_the_intact_conversations(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """The commands of `docs/log.md` for a damaged log, run as printed, end with a log of all intact
    conversations; `verify` names them too."""
    for name in ("before", "after"):
        run_cli("run", "quickstart", "2+2", "--conversation", name)
    database = sqlite3.connect(work_dir / DEFAULT_LOG)
    database.execute("UPDATE records SET line = replace(line, '1+1', '1+2') WHERE id >> 32 = 1")
    database.execute("UPDATE records SET line = x'00' WHERE id = (2 << 32) + 4")
    database.commit()
    database.close()
    named = run_cli("verify").err
    assert "toolchart export --format jsonl > intact.jsonl" in named
    page = (ROOT / "docs" / "log.md").read_text("utf-8")
    section = page.partition("### Keeping the intact conversations of a damaged log\n")[2].partition("\n#")[0]
    commands = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    shim = work_dir / "bin" / "toolchart"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m toolchart "$@"\n', "utf-8")
    shim.chmod(0o700)
    path = os.pathsep.join([str(shim.parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TOOLCHART_LOG", None)
    codes = [
        subprocess.run(
            ["sh", "-c", command], cwd=work_dir, env=environment, timeout=60, check=False
        ).returncode
        for command in commands
    ]
    assert codes == [5, 5, 0, 0]
    kept = run_cli("export", "--format", "jsonl", "--log", "new.db")
    assert kept.out == run_cli("export", "after", "--format", "jsonl").out


@pytest.mark.parametrize("words", ["verify", "show talk", "resume talk --trust-log", "cancel talk"])
@pytest.mark.parametrize("is_empty", [False, True])
def test_a_copy_without_the_write_ahead_log_says_what_is_missing(
    run_cli: RunCli, work_dir: Path, words: str, is_empty: bool
) -> None:
    """Of a log that is in use and was begun lately, the file alone has no tables: the error says so, and how
    to copy such a log. Nothing is written to the copy."""
    with Engine("quickstart", log="used.db") as engine:
        engine.run("1+1", conversation="talk")
        data = b"" if is_empty else (work_dir / "used.db").read_bytes()
    (work_dir / "copy.db").write_bytes(data)
    result = run_cli(*words.split(), "--log", "copy.db")
    assert (result.code, result.out) == (2, "")
    assert "copy.db has no tables and no records of a log" in result.err
    assert "copy.db-wal" in result.err
    assert '".backup copy.db"' in result.err
    assert (work_dir / "copy.db").read_bytes() == data


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: b"no SQLite" + whole[9:],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:100] + b"\xff" * 2000 + whole[2100:],
    ],
    ids=["beginning", "cut", "overwritten"],
)
@pytest.mark.parametrize("command", ["verify", "runs", "show talk", "replay talk"])
def test_a_file_that_sqlite_cannot_read(
    run_cli: RunCli, conversation: str, work_dir: Path, spoil: Callable[[bytes], bytes], command: str
) -> None:
    """If SQLite reports a malformed file, the log counts as damaged: exit 5 and one message."""
    path = work_dir / DEFAULT_LOG
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    path.write_bytes(spoil(path.read_bytes()))
    result = run_cli(*command.split())
    assert (result.code, result.out) == (5, "")
    assert result.err.startswith("toolchart: ")
    assert "Traceback" not in result.err


# -- replay ------------------------------------------------------------------------------------------


def forge_chart(work_dir: Path, old: str, new: str) -> None:
    """Rewrite the whole hash chain with another chart: the log verifies, but does not replay."""
    store = SqliteStore(work_dir / DEFAULT_LOG)
    rows = [json.loads(line) for line in store.read_lines("talk-one")]
    store.close()
    assert old in rows[0]["event"]["chart"]
    rows[0]["event"]["chart"] = rows[0]["event"]["chart"].replace(old, new)
    database = sqlite3.connect(work_dir / DEFAULT_LOG)
    for seq, line in enumerate(chain_conversations({"c": rows}, is_strict=False)["c"]):
        database.execute("UPDATE records SET line = ? WHERE id & 0xffffffff = ?", (line, seq))
    database.execute("DELETE FROM small_values WHERE kind = 'checkpoint'")
    database.execute("DELETE FROM parts")  # the new lines hold everything themselves
    database.commit()
    database.close()


def test_a_log_that_does_not_replay(run_cli: RunCli, conversation: str, work_dir: Path) -> None:
    """A log whose chart decides otherwise exits with 1 and prints place, expected, actual value and cause."""
    forge_chart(work_dir, "target: finished", "target: error")
    assert run_cli("verify").code == 0
    result = run_cli("replay", conversation)
    assert (result.code, result.out) == (1, "")
    assert "record 5 differs at /target" in result.err
    assert 'expected (the log):  "finished"' in result.err
    assert 'actual (replay):     "error"' in result.err
    assert "cause: chart" in result.err
    mismatch = json.loads(run_cli("replay", conversation, "--json").out)
    assert (mismatch["seq"], mismatch["pointer"], mismatch["blame"]) == (5, "/target", "chart")
    assert (mismatch["expected"], mismatch["got"]) == ("finished", "error")
