"""`toolchart mine`: the agent on stdout or in a file, the report on stderr, and users' mistakes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from command_runs import RunCli

from toolchart.engine.log.stores import open_store

MESSAGES = [
    {"role": "system", "content": "You refund orders."},
    {"role": "user", "content": "refund 7"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "find_order", "arguments": '{"id": 7}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "found"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "b", "type": "function", "function": {"name": "refund", "arguments": '{"id": 7}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "done"},
    {"role": "assistant", "content": "Refunded."},
]


@pytest.fixture
def filled(run_cli: RunCli, tmp_path: Path) -> RunCli:
    """A command line beside a log of 12 conversations in which an order is found before it is refunded."""
    (tmp_path / "chats.json").write_text(json.dumps([MESSAGES] * 12), "utf-8")
    assert run_cli("import", "chats.json", "--conversation", "c", "--log", "log.db").code == 0
    return run_cli


def test_the_agent_goes_to_stdout_and_the_report_to_stderr(filled: RunCli, tmp_path: Path) -> None:
    """What is printed is a spec that `check` and `draw` take; the report has rules and shares."""
    mined = filled("mine", "--log", "log.db")
    assert mined.code == 0
    (tmp_path / "mined.yaml").write_text(mined.out, "utf-8")
    checked = filled("check", "mined.yaml")
    assert (checked.code, "clean" in checked.out) == (0, True)
    assert filled("draw", "mined.yaml", "--format", "mermaid").code == 0
    assert "mined 12 conversations, 12 turns, 24 calls of 2 tools" in mined.err
    assert "4 enforced, 0 broken there, 0 not tested there" in mined.err
    assert "it replays 12 of 12; 6 of 6 held out" in mined.err


def test_out_writes_a_file_and_json_is_the_report(filled: RunCli, tmp_path: Path) -> None:
    """With --out nothing is printed on stdout; with --json the report is."""
    written = filled("mine", "--log", "log.db", "--out", "a.yaml")
    assert (written.code, written.out) == (0, "")
    assert "toolchart check a.yaml" in written.err
    report = filled("mine", "--log", "log.db", "--json", "--out", "b.yaml")
    data = json.loads(report.out)
    assert data["shares"]["all"] == {"replayed": 12, "of": 12}
    assert [rule["status"] for rule in data["rules"]] == ["kept"] * 4
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()


def test_single_conversations_are_mined_by_id(filled: RunCli) -> None:
    """Ids choose conversations, and so few are called few."""
    mined = filled("mine", "c-0", "c-1", "c-0", "--log", "log.db", "--json")
    assert json.loads(mined.out)["conversations"] == 2
    assert "few" in filled("mine", "c-0", "--log", "log.db").err


def test_a_damaged_conversation_is_named_and_left_out(filled: RunCli, tmp_path: Path) -> None:
    """The others are mined, and the exit code says that one could not be read."""
    with sqlite3.connect(tmp_path / "log.db") as database:
        rows = database.execute("SELECT id, line FROM records").fetchall()
        number, line = next(row for row in rows if b'"conversation":"c-3"' in row[1])
        changed = line.replace(b"find_order", b"find_offer")
        assert changed != line
        database.execute("UPDATE records SET line = ? WHERE id = ?", (changed, number))
    mined = filled("mine", "--log", "log.db")
    assert mined.code == 1
    assert "c-3 is left out: " in mined.err
    assert "mined 11 conversations" in mined.err


MISTAKES = [
    (("mine", "--log", "none.db"), 2, "none.db"),
    (("mine", "nobody", "--log", "log.db"), 2, "nobody"),
    (("mine", "--log", "log.db", "--tag", "team=a"), 2, "no conversation to mine with the tag team=a"),
    (("mine", "--log", "log.db", "--tag", "team"), 2, "is not of the form name=value"),
    (("mine", "c-0", "--log", "log.db", "--tag", "team=a"), 2, "not both"),
    (("mine", "--log", "log.db", "--out", "chats.json"), 2, "the file exists already"),
    (("mine", "--log", "log.db", "--out", "none/a.yaml"), 2, "cannot be written: No such file"),
    (("mine", "--log", "log.db", "--support", "0"), 2, "--support"),
]


@pytest.mark.parametrize(("words", "code", "text"), MISTAKES, ids=[" ".join(row[0][1:]) for row in MISTAKES])
def test_mistakes_are_said_in_plain_words(
    filled: RunCli, words: tuple[str, ...], code: int, text: str
) -> None:
    """Each mistake names what is wrong, prints no agent and no traceback."""
    mined = filled(*words)
    assert (mined.code, mined.out) == (code, "")
    assert text in mined.err
    assert "Traceback" not in mined.err


def test_an_empty_log_says_how_to_fill_it(run_cli: RunCli, tmp_path: Path) -> None:
    """A log without a conversation is said to be that, with the commands that record some."""
    open_store(str(tmp_path / "log.db"), create=True).close()
    mined = run_cli("mine", "--log", "log.db")
    assert (mined.code, mined.out) == (2, "")
    assert "there is no conversation to mine" in mined.err
    assert "toolchart watch" in mined.err
