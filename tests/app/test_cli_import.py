"""`toolchart import`: files in all forms that it knows, and what is done with imported conversations."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.commands.keeping import import_
from toolchart.app.cli.parameters.keys import read_public_keys
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store

RunCli = Callable[..., Any]

CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"n": 1}'}}
ASK = [
    {"role": "user", "content": "pay the rent"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
]
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "paid at noon"}
ANSWER = {"role": "assistant", "content": "It is paid."}
WHOLE = [*ASK, RESULT, ANSWER]
TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]

FORMS = {
    "a list": (json.dumps(WHOLE), [WHOLE]),
    "an object": (json.dumps({"messages": WHOLE}), [WHOLE]),
    "a list of lists": (json.dumps([WHOLE, TALK]), [WHOLE, TALK]),
    "a list of objects": (json.dumps([{"messages": WHOLE}, {"traj": TALK}]), [WHOLE, TALK]),
    "lines of objects": ("\n".join(json.dumps({"messages": m}) for m in (WHOLE, TALK)), [WHOLE, TALK]),
    "lines of lists": (f"\ufeff{json.dumps(WHOLE)}\r\n\n{json.dumps(TALK)}\n", [WHOLE, TALK]),
    "lines of messages": ("\n".join(map(json.dumps, WHOLE)), [WHOLE]),
    "one line": (json.dumps({"messages": TALK}) + "\n", [TALK]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_and_exported_again(form: str, run_cli: RunCli, work_dir: Path) -> None:
    """JSON and JSON Lines, one conversation or several: each is imported, verifies, replays, and its
    export has the same texts, calls and results."""
    text, expected = FORMS[form]
    (work_dir / "in").write_text(text, "utf-8")
    done = run_cli("import", "in", "--conversation", "i")
    ids = done.out.split()
    assert (done.code, len(ids)) == (0, len(expected))
    for name, messages in zip(ids, expected, strict=True):
        exported = json.loads(run_cli("export", name, "--format", "openai").out)
        assert [{k: v for k, v in m.items() if k != "name"} for m in exported] == messages
        assert run_cli("replay", name).code == 0
    assert run_cli("verify").code == 0


REFUSED = {
    "broken line": (json.dumps({"messages": TALK}) + "\n{\n", "in:2: this line is not JSON"),
    "no JSON": ("hello\n", "in: not JSON"),
    "no list": ('{"user": 1}', "expected a list of messages"),
    "an empty list": ("[]", "expected a list of messages, and at least one"),
    "records": ('{"seq": 0}\n{"seq": 1}\n', "in: [0]: a message without a role"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_not_understood_is_refused(form: str, run_cli: RunCli, work_dir: Path) -> None:
    """A file that holds something else ends with exit 2 and the place, and nothing of it is in the log."""
    text, message = REFUSED[form]
    (work_dir / "in").write_text(text, "utf-8")
    done = run_cli("import", "in")
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert run_cli("runs", "--json").out == ""


def test_one_refused_conversation_does_not_affect_the_others(run_cli: RunCli, work_dir: Path) -> None:
    """Of several conversations those that are understood are imported; each other one is named: exit 1."""
    (work_dir / "in").write_text(json.dumps([TALK, [], WHOLE, [{"role": "bot", "content": "x"}]]), "utf-8")
    done = run_cli("import", "in", "--conversation", "i")
    assert (done.code, done.out.split()) == (1, ["i-0", "i-2"])
    assert "in, conversation 1: expected a list" in done.err
    assert "in, conversation 3: [0].role: unknown role 'bot'" in done.err
    assert "2 of 4 conversations imported" in done.err


@pytest.mark.parametrize("messages", [WHOLE, [*ASK, RESULT], ASK, ASK[:1]])
def test_an_imported_conversation_can_be_pruned_and_gone_on_with(
    run_cli: RunCli, work_dir: Path, messages: list[Any]
) -> None:
    """Wherever the list ends, no turn is left open that nobody could end: an agent goes on, and the
    conversation can be pruned; the export is still the list."""
    (work_dir / "in").write_text(json.dumps(messages), "utf-8")
    for name in ("a", "b"):
        assert run_cli("import", "in", "--conversation", name).code == 0
    assert json.loads(run_cli("export", "a", "--format", "openai").out)[: len(ASK[:1])] == ASK[:1]
    assert len(json.loads(run_cli("export", "a", "--format", "openai").out)) == len(messages)
    assert run_cli("run", "quickstart", "--conversation", "b", "2+2").out == "2+2 = 4\n"
    later = json.loads(run_cli("export", "b", "--format", "openai").out)
    assert [m["content"] for m in later if m["role"] == "user"] == ["pay the rent", "2+2"]
    assert run_cli("verify").code == 0
    assert sorted(run_cli("prune", "--keep", "0").out.split()) == ["a", "b"]


def test_no_worker_looks_at_what_was_over_when_it_was_imported(run_cli: RunCli, work_dir: Path) -> None:
    """Workers do not look at imported messages, and of imported records at those alone whose turn is open."""
    for name, messages in (("whole", WHOLE), ("asked", ASK)):
        (work_dir / "in").write_text(json.dumps(messages), "utf-8")
        assert run_cli("import", "in", "--conversation", name).code == 0
    store = open_store(".toolchart/log.db")
    assert list(store.list_unfinished()) == []
    store.append("open", 0, import_messages(ASK, "open", "2026-01-01T00:00:00Z")[:-1])
    store.close()
    (work_dir / "records.jsonl").write_text(run_cli("export", "--format", "jsonl").out)
    assert run_cli("import", "records.jsonl", "--log", "other.db").code == 0
    store = open_store("other.db")
    assert list(store.list_unfinished()) == ["open"]
    store.close()


@pytest.mark.parametrize("messages", [[*ASK, RESULT], ASK, ASK[:1]])
def test_an_open_imported_turn_can_be_ended_without_an_agent(
    run_cli: RunCli, work_dir: Path, messages: list[Any]
) -> None:
    """`prune` says why an imported conversation with an open turn stays; `cancel` needs no agent and asks
    nobody, and then `prune` takes it."""
    store = open_store(".toolchart/log.db")
    *lines, ending = import_messages(messages, "a", "2026-01-01T00:00:00Z")
    assert b'"cancelled"' in ending
    store.append("a", 0, lines)  # as an import left it that ended no turns
    store.close()
    kept = run_cli("prune", "--keep", "0")
    assert (kept.code, kept.out) == (0, "")
    assert "kept a: a turn is open; finish it, or end it: toolchart cancel ID" in kept.err
    ended = run_cli("cancel", "a", "--reason", "nobody goes on")
    assert (ended.code, ended.out) == (0, "a: error\n"), ended.err
    assert run_cli("replay", "a").code == 0
    assert run_cli("verify").code == 0
    assert run_cli("prune", "--keep", "0").out.split() == ["a"]


@pytest.mark.parametrize("messages", [WHOLE, ASK[:1], [*TALK, *ASK[:1]]])
def test_an_imported_conversation_of_an_owner_is_erased_with_the_owner(
    run_cli: RunCli, work_dir: Path, messages: list[Any]
) -> None:
    """`--owner` says whose an imported conversation is: its owner goes on with it, nobody else does, and
    `prune --owner` deletes it, also where the list ends with a message of the user."""
    (work_dir / "in").write_text(json.dumps(messages), "utf-8")
    assert run_cli("import", "in", "--conversation", "a", "--owner", "anna").code == 0
    assert run_cli("import", "in", "--conversation", "b").code == 0
    assert (run_cli("replay", "a").code, run_cli("verify").code) == (0, 0)
    assert run_cli("run", "quickstart", "1+1", "--conversation", "a", "--owner", "ben").code == 2
    assert run_cli("run", "quickstart", "1+1", "--conversation", "a", "--owner", "anna").out == "1+1 = 2\n"
    assert run_cli("prune", "--owner", "anna").out.split() == ["a"]
    assert "b" in run_cli("runs", "--json").out
    refused = run_cli("import", "in", "--owner", " ")
    assert (refused.code, "owner is empty" in refused.err) == (2, True)


@pytest.mark.parametrize("name", [None, "pay"])
def test_show_names_imported_tools(run_cli: RunCli, work_dir: Path, name: str | None) -> None:
    """A result in OpenAI's form says which call it answers, and not which tool: `show` names the tool."""
    result = RESULT if name is None else {**RESULT, "name": name}
    (work_dir / "in").write_text(json.dumps([*ASK, result, ANSWER]), "utf-8")
    run_cli("import", "in", "--conversation", "i")
    shown = run_cli("show", "i").out
    assert 'calls pay {"n": 1}' in shown
    assert 'pay succeeded: "paid at noon"' in shown


# -- files of records ------------------------------------------------------------------------------


@pytest.fixture
def exported(run_cli: RunCli, work_dir: Path) -> Path:
    """The file of a log with two conversations and a fork."""
    for name in ("one", "two"):
        run_cli("run", "quickstart", "1+1", "--conversation", name)
    assert run_cli("fork", "one", "--at", "3", "--name", "other", "--offline").code == 0
    path = work_dir / "all.jsonl"
    path.write_bytes(run_cli("export", "--format", "jsonl").out.encode())
    return path


def test_a_log_is_handed_to_a_stranger(run_cli: RunCli, work_dir: Path, exported: Path) -> None:
    """Commands that read take `--log FILE.jsonl` of a whole log, and print what they print of the log; an
    import of the file has the same bytes and heads."""
    reading = [("verify", "--json"), ("runs", "--json"), ("show", "one"), ("replay", "other"), ("stats",)]
    for words in (*reading, ("diff", "one", "two"), ("export", "--format", "jsonl")):
        expected = run_cli(*words)
        result = run_cli(*words, "--log", "all.jsonl")
        assert (result.code, result.out) == (expected.code, expected.out), words
    done = run_cli("import", "all.jsonl", "--log", "new.db")
    assert (done.code, done.out.split()) == (0, ["one", "two", "other"])
    assert run_cli("export", "--format", "jsonl", "--log", "new.db").out.encode() == exported.read_bytes()
    assert run_cli("verify", "--json", "--log", "new.db").out == run_cli("verify", "--json").out
    assert run_cli("resume", "one", "--log", "new.db").code == run_cli("resume", "one").code


def test_an_import_is_whole_or_nothing(run_cli: RunCli, work_dir: Path, exported: Path) -> None:
    """A file with a conversation that went on in the log, or with damage, leaves the log as it was."""
    assert run_cli("run", "quickstart", "2+2", "--conversation", "two").code == 0
    before = run_cli("export", "--format", "jsonl").out
    again = run_cli("import", "all.jsonl")
    assert (again.code, again.out) == (2, "")
    assert "already has a conversation 'two', with other records" in again.err
    assert "--log FILE.db" in again.err
    data = exported.read_bytes()
    (work_dir / "bad.jsonl").write_bytes(data[:-100] + b"x" + data[-99:])
    bad = run_cli("import", "bad.jsonl", "--log", "new.db")
    assert (bad.code, bad.out) == (5, "")
    count = data.count(b"\n")
    assert f"line {count} of bad.jsonl: its hash does not match its content" in bad.err
    assert not (work_dir / "new.db").exists()
    named = run_cli("import", "all.jsonl", "--conversation", "mine", "--log", "new.db")
    assert (named.code, "they hold their ids" in named.err) == (2, True)
    assert run_cli("export", "--format", "jsonl").out == before


def test_an_import_that_was_cut_off_is_repeated(
    run_cli: RunCli, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came into the log before an import ended is skipped when it is repeated; no id is printed before
    everything is written."""
    stopped: list[str] = []

    def stop(store: SqliteStore, conversation: str, *args: Any, **options: Any) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(conversation)
        append(store, conversation, *args, **options)

    append = SqliteStore.append
    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "append", stop)
        cut = run_cli("import", "all.jsonl", "--log", "new.db")
    assert (cut.code != 0, cut.out, stopped) == (True, "", ["one"])
    again = run_cli("import", "all.jsonl", "--log", "new.db")
    assert (again.code, again.out.split()) == (0, ["two", "other"])
    assert "skipped one: the log has the same records" in again.err
    whole = run_cli("import", "all.jsonl", "--log", "new.db")
    assert (whole.code, whole.out, whole.err.count("skipped")) == (0, "", 3)
    assert run_cli("export", "--format", "jsonl", "--log", "new.db").out.encode() == exported.read_bytes()


@pytest.mark.parametrize("change", ["cut", "another", "byte"])
def test_a_file_that_changes_after_the_check_is_told(
    change: str, run_cli: RunCli, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes into the log is what was verified: a conversation that was changed meanwhile is refused."""
    data = exported.read_bytes()
    start = data.index(b'{"conversation":"two"')
    with_change = {
        "cut": data[: start + 3000],
        "another": data[:start] + data[start:].replace(b"1+1", b"1+2"),
        "byte": data[: start + 900] + bytes([data[start + 900] ^ 1]) + data[start + 901 :],
    }[change]

    def open_and_change(*args: Any, **options: Any) -> Store:
        exported.write_bytes(with_change)
        return open_store(*args, **options)

    monkeypatch.setattr(import_, "open_store", open_and_change)
    result = run_cli("import", "all.jsonl", "--log", "new.db")
    assert (result.code, result.out) == (5, "")
    assert "all.jsonl was changed after it was verified" in result.err
    assert [
        json.loads(row)["conversation"]
        for row in run_cli("runs", "--json", "--log", "new.db").out.split("\n")[:-1]
    ] == ["one"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_records_come_from_a_regular_file(run_cli: RunCli, work_dir: Path, exported: Path) -> None:
    """Records and message lists from a pipe or a device are refused, and nothing waits for one: it might
    never end."""
    for name in ("pipe.jsonl", "pipe"):
        os.mkfifo(work_dir / name)
    for name in ("pipe.jsonl", "pipe", "/dev/zero"):
        refused = run_cli("import", name, "--log", "new.db")
        assert (refused.code, "no regular file" in refused.err) == (2, True), refused.err
        assert "to a file first" in refused.err


DOORS = {
    "spec": ("run", "PATH", "hello"),
    "check": ("check", "PATH"),
    "import": ("import", "PATH"),
    "history": ("run", "quickstart", "hello", "--history", "PATH"),
    "batch": ("batch", "quickstart", "PATH"),
    "attachment": ("run", "quickstart", "hello", "--attach", "PATH"),
    "log": ("runs", "--log", "PATH"),
}
"""By what a person names: the command that reads it."""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("file", ["pipe", "/dev/zero"])
def test_nothing_but_regular_files_is_read(door: str, file: str, run_cli: RunCli, work_dir: Path) -> None:
    """Every file that a person names is a regular one: a device without an end and a pipe that nobody
    writes into are refused at once, by one function."""
    os.mkfifo(work_dir / "pipe")
    result = run_cli(*(file if word == "PATH" else word for word in DOORS[door]))
    assert result.code == 2, result.err
    assert file in result.err
    assert result.out == ""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("file", ["pipe", "/dev/zero"])
def test_what_a_spec_or_an_option_names_is_a_regular_file_too(
    file: str, run_cli: RunCli, work_dir: Path
) -> None:
    """An OpenAPI document of a spec and a file of public keys are read by the same function."""
    os.mkfifo(work_dir / "pipe")
    (work_dir / "agent.yaml").write_text(
        "llms: {m: {provider: scripted, model: m, replies: [x]}}\n"
        f"responses: [{{llm: m}}]\ntools: {{openapi: [{{document: {file}}}]}}\n"
    )
    result = run_cli("tools", "list", "agent.yaml")
    assert "no regular file" in result.err
    assert file in result.err
    with pytest.raises(SpecError, match="no regular file"):
        read_public_keys((file,), ())


def test_nothing_is_no_archive(run_cli: RunCli, work_dir: Path, exported: Path) -> None:
    """Where nothing is deleted, `--archive` leaves no file, and says so."""
    for words in (("--owner", "nobody"), ("--older-than", "90d")):
        result = run_cli("prune", *words, "--archive", "old.jsonl")
        assert (result.code, result.out) == (0, "")
        assert "there is nothing to archive: old.jsonl was not written" in result.err
        assert not (work_dir / "old.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("verify --log cut.jsonl", 5, "the heading says 6 records, and 4 are there"),
        ("runs --log empty.jsonl", 5, "line 1 of empty.jsonl: the file is empty"),
        ("show one --log talk.jsonl", 2, "talk.jsonl is no file of records"),
        ("replay one --log nowhere.jsonl", 2, "nowhere.jsonl cannot be read: No such file or directory"),
        ("run quickstart hi --log all.jsonl", 2, "toolchart import all.jsonl --log FILE.db"),
        ("run quickstart hi --log new.jsonl", 2, "new.jsonl is a file of records, which is only read"),
        ("chat quickstart --log all.jsonl", 2, "toolchart import all.jsonl"),
        ("prune --older-than 1d --log all.jsonl", 2, "toolchart import all.jsonl"),
        ("fork one --at 3 --log all.jsonl", 2, "toolchart import all.jsonl"),
        ("import all.jsonl --log other.jsonl", 2, "other.jsonl is a file of records"),
        ("export", 2, "--format jsonl prints the whole log"),
        ("export --format openai", 2, "Name a CONVERSATION"),
        ("export nobody --format jsonl", 2, "there is no conversation 'nobody'"),
        ("replay all.jsonl", 2, "there is no conversation 'all.jsonl' in this log"),
    ],
)
def test_mistakes_with_files_of_records(
    words: str, code: int, error: str, run_cli: RunCli, work_dir: Path, exported: Path
) -> None:
    """Each mistake is told with what is wrong and what to do, and nothing is written."""
    (work_dir / "empty.jsonl").write_text("")
    (work_dir / "talk.jsonl").write_text(json.dumps(TALK[0]) + "\n")
    (work_dir / "cut.jsonl").write_bytes(b"".join(exported.read_bytes().splitlines(keepends=True)[:5]))
    before = {path: path.read_bytes() for path in work_dir.glob("*.jsonl")}
    result = run_cli(*words.split())
    assert (result.code, result.out) == (code, "")
    assert error in result.err
    assert {path: path.read_bytes() for path in work_dir.glob("*.jsonl")} == before


def test_a_file_has_the_bytes_of_the_log(run_cli: RunCli, work_dir: Path) -> None:
    """A file has the bytes of the log, whatever they would do to a terminal."""
    run_cli("run", "quickstart", "say \u009b31m\u202e", "--conversation", "odd")
    out = run_cli("export", "--format", "jsonl").out
    assert "\u009b31m\u202e" in out
    (work_dir / "odd.jsonl").write_text(out, "utf-8")
    assert run_cli("verify", "--log", "odd.jsonl").code == 0


def test_an_empty_log_has_no_file(run_cli: RunCli, work_dir: Path) -> None:
    """There is nothing to export from a log without conversations."""
    open_store(work_dir / "empty.db").close()
    result = run_cli("export", "--format", "jsonl", "--log", "empty.db")
    assert (result.code, result.out) == (2, "")
    assert "this log has no conversations" in result.err
