"""Readers take what the log recorded: core, rules for charts and texts of a release are not asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from format1_logs import NAMES, chain_lines, make_store
from msgspec.structs import replace
from package_copies import ROOT, change_texts, copy_package, replace_in_file, run_python, run_release

from toolchart.engine.exchange.conversion import plan_conversion
from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.engine.log.diff import compare_conversations
from toolchart.engine.log.reading.records import parse_line, read_conversation
from toolchart.engine.log.reading.transcript import collect_transcript
from toolchart.engine.log.reading.visited_path import draw_conversation_path
from toolchart.engine.log.retention import list_conversation_ages
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.errors import LogDamaged

READING_COMMANDS = (
    ("runs",),
    ("runs", "--tool", "safe", "--json"),
    ("show", "new"),
    ("show", "old", "--json"),
    ("tail", "new", "-n", "3"),
    ("verify",),
    ("export", "new"),
    ("export", "old"),
    ("export", "new", "--format", "otel", "--content"),
    ("export", "new", "--format", "xes"),
    ("export", "new", "--format", "jsonl"),
    ("draw", "new"),
    ("draw", "old", "--format", "mermaid"),
    ("diff", "new", "other"),
)
"""Commands that read a log and must not derive anything."""


def write_log(path: Path) -> None:
    """A log with a conversation of format 1 (`old`) and two of format 2 (`new`, `other`)."""
    source = make_store("full")
    (new,) = plan_conversion(source, "c", "0.2.0", "new")
    (other,) = plan_conversion(make_store("planner"), "c", "0.2.0", "other")
    store = open_store(str(path))
    for name, lines in (("new", new.lines), ("other", other.lines)):
        store.append(name, 0, lines)
    store.append("old", 0, _rename_conversation(list(source.read_lines("c")), "old"))
    store.close()


def _rename_conversation(lines: list[bytes], name: str) -> list[bytes]:
    records = [json.loads(line) for line in lines]
    records[0]["event"]["conversation"] = name
    return chain_lines(records)


@pytest.fixture(scope="module")
def changed_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with other texts, another number of semantics, a core that cannot step, and a
    loader that refuses every chart: the folder for `PYTHONPATH`."""
    package = copy_package(tmp_path_factory.mktemp("release"))
    change_texts(package)
    step_file = package / "states/core/step.py"
    replace_in_file(step_file, "SEMANTICS = 5", "SEMANTICS = 99")
    replace_in_file(
        step_file, "    row = _describe_event(type(event))\n", "    raise AssertionError('derived')\n"
    )
    rules_file = package / "states/chart/rules.py"
    text = rules_file.read_text()
    start = text.index("def check_rules(")
    body = text.index('"""', text.index('"""', start) + 3) + 3
    rules_file.write_text(
        f"{text[:body]}\n    raise SpecError('this release refuses every chart')\n{text[body:]}"
    )
    return package.parent


RUN_ALL = """
import json, sys
from click.testing import CliRunner
from toolchart.app.cli import cli
results = [CliRunner().invoke(cli, words) for words in json.loads(sys.argv[1])]
print(json.dumps([[result.exit_code, result.output] for result in results]))
"""
"""Runs several commands in one process and prints their exit codes and outputs."""


def run_commands(folder: Path, log: Path, *commands: Sequence[str]) -> list[list[Any]]:
    """Exit code (0 unless an error stopped it) and output of each command of the package in a folder."""
    code, output = run_python(folder, log, "-c", RUN_ALL, json.dumps(commands))
    assert code == 0, output
    results: list[list[Any]] = json.loads(output)
    return results


def test_another_release_reads_the_logs_of_this_one(tmp_path: Path, changed_release: Path) -> None:
    """A release with other texts, other semantics and other rules for charts shows, exports, draws, compares
    and counts the same, in logs of both formats."""
    log = tmp_path / "log.db"
    write_log(log)
    expected = run_commands(ROOT / ".typing", log, *READING_COMMANDS)
    results = run_commands(changed_release, log, *READING_COMMANDS)
    for words, result, expected_result in zip(READING_COMMANDS, results, expected, strict=True):
        assert result == expected_result, words
        assert expected_result[0] == 0, expected_result


def test_replay_under_other_semantics_names_the_release(tmp_path: Path, changed_release: Path) -> None:
    """A release with other semantics says so and names the release that derived the log."""
    log = tmp_path / "log.db"
    write_log(log)
    code, output = run_release(changed_release, log, "replay", "new")
    assert code == 1
    assert "semantics 5" in output
    assert "release 0.2.0" in output


def test_a_release_with_other_texts_replays(tmp_path: Path) -> None:
    """The texts of the core are in the log, so a release with other ones derives the same steps."""
    log = tmp_path / "log.db"
    write_log(log)
    package = copy_package(tmp_path)
    change_texts(package)
    for code, output in run_commands(package.parent, log, ("replay", "new"), ("replay", "other")):
        assert (code, "all equal" in output) == (0, True), output


def test_replay_of_format_1_names_release_and_command(tmp_path: Path) -> None:
    """`replay` of a log of format 1 exits with 1 and says who replays it and how to go on."""
    log = tmp_path / "log.db"
    write_log(log)
    code, output = run_release(ROOT / ".typing", log, "replay", "old")
    assert code == 1
    assert "release 0.1" in output
    assert "toolchart convert old" in output


def test_convert_writes_beside_the_old_conversation(tmp_path: Path) -> None:
    """`convert` prints the new id, leaves the old conversation alone, and has nothing to do a second time."""
    log = tmp_path / "log.db"
    write_log(log)
    show, convert = ("show", "old", "--json"), ("convert",)
    commands = (show, convert, show, convert, ("verify",))
    before, first, after, second, verified = run_commands(ROOT / ".typing", log, *commands)
    assert before[0] == 0
    assert first[1].splitlines()[0] == "old.2"
    assert after == before
    assert second == [0, "no conversation of this log needs to be converted\n"]
    assert verified[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_both_formats_draw_the_same_path(name: str) -> None:
    """Visits, rows and seconds of a converted conversation are those of the old one."""
    store = make_store(name)
    (converted,) = plan_conversion(store, "c", "0.2.0")
    store.append(converted.name, 0, converted.lines)
    _, old = draw_conversation_path(store, "c")
    _, new = draw_conversation_path(store, converted.name)
    assert (old.states, old.edges, old.seconds, old.current) == (
        new.states,
        new.edges,
        new.seconds,
        new.current,
    )


def test_a_diff_ignores_ids_of_effects_and_versions() -> None:
    """Two conversations that differ only in release and numbering have no difference."""
    store = make_store("full")
    for name, version in (("a", "0.2.0"), ("b", "0.3.0")):
        (converted,) = plan_conversion(store, "c", version, name)
        store.append(name, 0, converted.lines)
    assert compare_conversations(store, "a", "b").first is None


def test_an_imported_list_is_exported_as_it_was() -> None:
    """Import and export are inverse, ids that were used twice included, and each answer names its effect."""
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "1", "tool_call_id": "x", "name": "add"},
        {"role": "assistant", "content": "once more", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "x", "name": "add"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "thanks"},
    ]
    lines = import_messages(messages, "c", "2026-01-01T00:00:00.000Z")
    assert verify_conversation(lines, "c").records == len(lines)
    assert export_messages(lines, "c") == messages
    answers = ("replied", "reviewed", "tool_finished")
    records = [parse_line(line, seq) for seq, line in enumerate(lines)]
    assert all(record.event["effect"] for record in records if record.event_type in answers)


def test_a_reference_to_nothing_is_damage() -> None:
    """A record that refers to a message which no record has is named."""
    store = make_store("full")
    (converted,) = plan_conversion(store, "c", "0.2.0")
    store.append(converted.name, 0, converted.lines)
    records = list(read_conversation(store, converted.name))
    changed = [
        replace(record, messages=({"result": "nobody"},)) if record.seq == 3 else record for record in records
    ]
    with pytest.raises(LogDamaged, match="record 3: it refers to a message that is not there"):
        collect_transcript(changed)


def test_an_open_turn_is_kept_in_both_formats() -> None:
    """A conversation whose turn is open is not old enough for deletion, whatever its format."""
    store = MemoryStore()
    lines = list(make_store("full").read_lines("c"))
    store.append("c", 0, lines[:4])
    (converted,) = plan_conversion(store, "c", "0.2.0")
    store.append(converted.name, 0, converted.lines)
    assert [age.is_open for age in list_conversation_ages(store)] == [True, True]
    ended = make_store("full")
    (converted,) = plan_conversion(ended, "c", "0.2.0")
    ended.append(converted.name, 0, converted.lines)
    assert [age.is_open for age in list_conversation_ages(ended)] == [False, False]
