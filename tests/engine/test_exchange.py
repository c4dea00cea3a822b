"""Imports and exports: message lists without loss, and refusals with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from recorded_traffic import OWN, find_recording, needs_recorded

from toolchart.engine.exchange.exports import write_records
from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import RecordFile
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.errors import LogDamaged, LogUnavailable, SpecError
from toolchart.states.ports import Store

AT = "2026-01-01T00:00:00.000Z"
GOOD = (
    ("tau-bench.airline.gpt-4o.json", 100),
    ("tau-bench-fork.retail.tool-calling.json", 50),
    ("tau-bench-fork.retail.tool-calling-preconditions.json", 50),
)
"""Files and the number of their lists; 30 of the last file have arguments that are not JSON."""


def read_trajectories(name: str) -> list[Any]:
    """The message lists of a transcript file."""
    data = json.loads(find_recording(f"transcripts/{name}").read_text("utf-8"))
    return [entry["traj"] for entry in data]


@pytest.mark.parametrize(
    ("name", "count"),
    [("own__accepted.json", 8), *(pytest.param(*row, marks=needs_recorded) for row in GOOD)],
)
def test_trajectories_are_imported_and_exported(name: str, count: int) -> None:
    """Every trajectory imports, verifies, replays, and exports equal to its source.

    Only a tool message without a `name` gets the name of its tool, unless the list is kept as it came.
    """
    trajectories = read_trajectories(name)
    assert len(trajectories) == count
    for messages in trajectories:
        lines = import_messages(messages, "c", AT)
        assert verify_conversation(lines, "c").records == len(lines)
        assert sum(1 for _ in replay(lines, "c")) == len(lines)
        assert export_messages(lines, "c") in (messages, add_tool_names(messages))


def test_an_open_end_with_one_of_two_results_is_exported_completely() -> None:
    """A list that ends after one of two results imports, and exports equal to its source."""
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("tide", "lamp")
    ]
    messages = [
        {"role": "user", "content": "Look at both."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "tide", "content": "3.4 m", "name": "tide"},
    ]
    assert export_messages(import_messages(messages, "c", AT), "c") == messages


def add_tool_names(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the `name` of the tool on every tool message."""
    names: dict[str, str] = {}
    named_messages = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        own_name = {"name": names[message["tool_call_id"]]} if message["role"] == "tool" else {}
        named_messages.append({**own_name, **message})
    return named_messages


REFUSED = json.loads((OWN / "transcripts" / "own__refused.json").read_text("utf-8"))


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: str(entry["problem"]))
def test_lists_that_no_host_accepts_are_refused_or_kept(entry: dict[str, Any]) -> None:
    """Each refused list of our own corpus is refused by its file, or comes back as it was."""
    refusal, exported = "", None
    try:
        exported = export_messages(import_messages(entry["traj"], "c", AT, "file.json"), "c")
    except SpecError as error:
        refusal = str(error)
    assert "file.json" in refusal or exported == entry["traj"]


def write_log(*conversations: str) -> Store:
    """A log with a turn of one successful and one failed call in each conversation."""
    store = MemoryStore()
    for conversation in conversations:
        replies = [reply_with_calls(("calculator", {"expression": "6*7"}), ("weather", {})), "42"]
        make_engine(replies, log=store).run("What is 6*7?", conversation=conversation)
    return store


def test_an_exported_list_imports_again() -> None:
    """An exported list imports again and exports equal."""
    messages = export_messages(write_log("c").read_lines("c"), "c")
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert export_messages(import_messages(messages, "d", AT), "d") == messages


# -- files of records ------------------------------------------------------------------------------


def test_a_file_has_the_records(tmp_path: Path) -> None:
    """The file is a log with the records as they are stored; it is private, and never written over."""
    store, path = write_log("a", "b"), tmp_path / "old.jsonl"
    write_records(store, ["a", "b"], str(path))
    file = RecordFile(path)
    assert {name: list(file.read_lines(name)) for name in file.list_conversations()} == {
        name: list(store.read_lines(name)) for name in ("a", "b")
    }
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SpecError, match=r"old\.jsonl is there already"):
        write_records(store, ["a"], str(path))
    with pytest.raises(LogUnavailable, match="cannot be written"):
        write_records(store, ["a"], str(tmp_path / "nowhere" / "old.jsonl"))


def test_nothing_is_no_file(tmp_path: Path) -> None:
    """Without records there is no file: an empty one would be damage to whoever reads it."""
    assert not write_records(write_log("a"), ["gone"], str(tmp_path / "old.jsonl"))
    assert not list(tmp_path.iterdir())


def test_a_damaged_conversation_is_not_written(tmp_path: Path) -> None:
    """Where a conversation is damaged there is no file, so that nothing is deleted after it either."""
    store = write_log("a", "b")
    lines = list(store.read_lines("b"))
    store.delete("b")
    store.append("b", 0, [lines[0], lines[1].replace(b"6*7", b"6*8"), *lines[2:]])
    with pytest.raises(LogDamaged):
        write_records(store, ["a", "b"], str(tmp_path / "old.jsonl"))
    assert not list(tmp_path.iterdir())
