"""Readers take what the log recorded: core, rules for charts and texts of a release are not asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from msgspec.structs import replace
from package_copies import (
    OTHER_SEMANTICS,
    ROOT,
    append_to_module,
    change_texts,
    copy_package,
    run_python,
    run_release,
)
from written_logs import ADD, WrittenLog, write_conversation

import toolchart
from toolchart.engine.log.continuation.versions import build_versions
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.record import seal_line
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_store
from toolchart.engine.reading.diff import compare_conversations
from toolchart.engine.reading.messages import collect_transcript
from toolchart.engine.reading.steps import ConfigurationReader, read_configuration
from toolchart.states.core.step import SEMANTICS
from toolchart.states.errors import LogDamaged, LogUnavailable, NewerLog

READING_COMMANDS = (
    ("runs",),
    ("runs", "--tool", "echo", "--json"),
    ("show", "new"),
    ("show", "fork", "--json"),
    ("show", "new", "-n", "3"),
    ("verify",),
    ("export", "new"),
    ("export", "fork"),
    ("export", "new", "--format", "jsonl"),
    ("draw", "new"),
    ("draw", "other", "--format", "mermaid"),
    ("diff", "new", "other"),
)
"""Commands that read a log and must not derive anything."""


def write_log(path: Path) -> None:
    """A log with two conversations, `new` and `other`, and a fork of the first."""
    store = open_store(str(path))
    log = write_conversation(store, 1, name="new")
    log.start_turn("and now?")
    with make_engine([reply_with_calls(("echo", {"text": "x"})), "done"], log=store, chart="full") as engine:
        engine.run("go", conversation="other")
        engine.conversation("other").fork(3, name="fork", run_tools=True)
    store.close()


@pytest.fixture(scope="module")
def changed_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with other texts, another number of semantics, a core that cannot step, and a
    loader that refuses every chart: the folder for `PYTHONPATH`."""
    package = copy_package(tmp_path_factory.mktemp("release"))
    change_texts(package)
    refuse_step = "def step(machine, snapshot, event):\n    raise AssertionError('derived')"
    append_to_module(package, "states.core.step", f"{OTHER_SEMANTICS}\n\n\n{refuse_step}")
    refuse_chart = (
        "def check_rules(chart):\n"
        "    from toolchart.states.errors import SpecError\n"
        "    raise SpecError('this release refuses every chart')"
    )
    append_to_module(package, "states.chart.rules", refuse_chart)
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
    and counts the same."""
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
    assert f"semantics {SEMANTICS}" in output
    assert f"release {toolchart.__version__}" in output


def test_a_release_with_other_texts_replays(tmp_path: Path) -> None:
    """The texts of the core are in the log, so a release with other ones derives the same steps."""
    log = tmp_path / "log.db"
    write_log(log)
    package = copy_package(tmp_path)
    change_texts(package)
    for code, output in run_commands(package.parent, log, ("replay", "new"), ("replay", "other")):
        assert (code, "all equal" in output) == (0, True), output


@pytest.mark.parametrize(("number", "which"), [(1, "an older"), (3, "a later")])
def test_a_log_of_another_format_is_named(number: int, which: str) -> None:
    """Whoever reads, verifies or derives a log of another format learns its number and whose it is."""
    body = b'{"any":["key"],"event":{"type":"configured","format":%d}}' % number
    line, _ = seal_line(body)
    store = MemoryStore()
    store.append("c", 0, [line])
    message = f"has format {number}; this Toolchart reads format 2\n  {which} release wrote it"
    for read in (
        lambda: list(read_conversation(store, "c")),
        lambda: list(replay_conversation(store, "c")),
        lambda: load_conversation(store, "c"),
    ):
        with pytest.raises(LogUnavailable, match=message):
            read()
    (outcome,) = verify_store(store)
    assert message in str(outcome)
    assert isinstance(outcome, NewerLog) == (number > 2)
    damaged = MemoryStore()
    damaged.append("c", 0, [line.replace(b"key", b"kex")])
    assert [type(outcome) for outcome in verify_store(damaged)] == [LogDamaged]


def test_a_diff_ignores_ids_of_effects_and_versions() -> None:
    """Two conversations that differ only in release and numbering have no difference."""
    store = MemoryStore()
    for name, release in (("a", "0.2.0"), ("b", "0.3.0")):
        log = WrittenLog(store, name)
        log.configure(versions=replace(build_versions((ADD,), {}), toolchart=release))
        log.start_turn()
        log.call_tool("c1")
        log.end_turn()
    assert compare_conversations(store, "a", "b").first is None


def test_a_reference_to_nothing_is_damage() -> None:
    """A record that refers to a message which no record has is named."""
    store = MemoryStore()
    write_conversation(store)
    records = list(read_conversation(store, "c"))
    changed = [
        replace(record, messages=({"result": "nobody"},)) if record.seq == 3 else record for record in records
    ]
    with pytest.raises(LogDamaged, match="record 3: it refers to a message that is not there"):
        collect_transcript(changed)


def test_no_record_is_read_twice_for_the_configuration() -> None:
    """A reader that keeps how far it read finds what a fresh one finds, while a conversation grows, goes on
    under another spec, is forked, and is deleted and begun anew; of a grown one it reads the new records."""
    store, reader = MemoryStore(), ConfigurationReader(most=2)
    read_lines = store.read_lines
    starts: list[int] = []

    def note_start(conversation: str, start: int = 0) -> Any:
        starts.append(start)
        return read_lines(conversation, start)

    def check(name: str) -> None:
        found, fresh = reader.read(store, name), read_configuration(store, name)
        assert found is not None
        assert fresh is not None
        assert found.hash == fresh.hash

    with make_engine(["one", "two", "three"], log=store) as engine:
        engine.run("go", conversation="c")
        check("c")
        engine.run("on", conversation="c")
        newest = store.read_last_line("c")
        assert newest is not None
        store.read_lines = note_start  # type: ignore[method-assign]
        reader.read(store, "c")
        assert len(starts) == 1
        assert 0 < starts[0] < newest[0]
        store.read_lines = read_lines  # type: ignore[method-assign]
        engine.conversation("c").fork(1, name="f")
        check("f")
    with make_engine(["other"], log=store, prompt="Another prompt.") as engine:
        engine.run("again", conversation="c")
        check("c")
    store.delete("f")
    store.delete("c")
    assert reader.read(store, "c") is None
    with make_engine(["anew"], log=store, prompt="A third.") as engine:
        engine.run("again", conversation="c")
        for name in ("c", "c", "d"):
            if store.read_last_line(name) is not None:
                check(name)
