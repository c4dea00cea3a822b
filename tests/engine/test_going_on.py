"""Going on under another release, other texts, other semantics or another tool: the log says so, and replay
names the difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from package_copies import (
    OTHER_SEMANTICS,
    append_to_module,
    change_texts,
    copy_package,
    run_python,
    run_release,
)

from toolchart import tool
from toolchart.engine.log.replay import compare_configuration, replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.core.step import SEMANTICS
from toolchart.states.errors import ReplayMismatch

RUN_TURN = """
import sys
from toolchart import Engine
spec = {
    "chart": "tool_loop",
    "llms": {"m": {"provider": "scripted", "model": "m", "replies": [
        {"tool_calls": [{"name": "echo", "arguments": {"text": "x"}}]}, "first", "second", "third"]}},
    "tools": {"max_iterations": 1, "registry": [{"name": "echo"}]},
    "responses": [{"llm": "m", "prompt": "Be brief.", "tools": {"enabled": True}}],
}
with Engine(spec, log=sys.argv[1]) as engine:
    print(engine.run("go on", conversation="c").content)
"""
"""Runs one turn of the conversation `c` with the package in the path."""


def read_types(log: Path) -> list[str]:
    """The types of the events of the conversation."""
    store = open_store(log)
    types = [json.loads(line)["event"]["type"] for line in store.read_lines("c")]
    store.close()
    return types


@pytest.mark.slow
@pytest.mark.parametrize("change", ["texts", "semantics"])
def test_another_release_goes_on(change: str, tmp_path: Path) -> None:
    """A release with other texts or other semantics takes the next turn of a conversation of this one, reads
    it, and says what differs; the texts of the conversation stay those that were recorded."""
    log = tmp_path / "log.db"
    for name in ("changed", "original"):
        (tmp_path / name).mkdir()
    original, package = tmp_path / "original", copy_package(tmp_path / "changed")
    copy_package(original)
    if change == "texts":
        change_texts(package)
    else:
        append_to_module(package, "states.core.step", OTHER_SEMANTICS)
    code, output = run_python(original, log, "-c", RUN_TURN, str(log))
    assert code == 0, output
    code, output = run_python(package.parent, log, "-c", RUN_TURN, str(log))
    assert code == 0, output
    assert "I reached the maximum" in output, "the recorded text, not that of the release"
    assert ("continued" in read_types(log)) == (change == "semantics")
    for words in (("show", "c"), ("export", "c"), ("draw", "c"), ("verify",)):
        code, output = run_release(package.parent, log, *words)
        assert code == 0, output
    code, output = run_release(package.parent, log, "replay", "c")
    if change == "texts":
        assert (code, "all equal" in output) == (0, True), output
    else:
        assert code == 1
        assert f"semantics {SEMANTICS}" in output


def make_charge(body: str) -> Any:
    """Make a Python tool `charge` with one of two bodies."""
    if body == "first":

        @tool
        def charge() -> str:
            """Charge the card."""
            return "charged"

    else:

        @tool
        def charge() -> str:
            """Charge the card."""
            return "charged twice"

    return charge


def test_a_changed_tool_body_is_named() -> None:
    """A Python tool whose body changed while its definition did not is recorded, and replay names it."""
    store = MemoryStore()
    with make_engine(
        [reply_with_calls(("charge", {})), "done"], log=store, functions=[make_charge("first")]
    ) as e:
        e.run("go", conversation="c")
    with make_engine(["again"], log=store, functions=[make_charge("second")]) as changed:
        changed.run("go", conversation="c")
        steps = list(replay_conversation(store, "c"))
        current = changed.conversation("c").build_configured_event()
    assert [step.record.event["type"] for step in steps].count("continued") == 1
    with pytest.raises(ReplayMismatch) as mismatch:
        compare_configuration(steps[0].configured, current, 0)
    assert (mismatch.value.blame, mismatch.value.pointer.rpartition("/")[2]) == ("tool source", "charge")


def test_a_fork_under_a_changed_tool_says_so() -> None:
    """A fork by an engine whose tool has another body records that right after it branched off."""
    store = MemoryStore()
    replies = [reply_with_calls(("charge", {})), "done"]
    with make_engine(replies, log=store, functions=[make_charge("first")]) as engine:
        engine.run("go", conversation="c")
        engine.conversation("c").fork(at=1, name="same")
    with make_engine(replies, log=store, functions=[make_charge("second")]) as changed:
        changed.conversation("c").fork(at=1, name="other")
    types = {
        name: [json.loads(line)["event"]["type"] for line in store.read_lines(name)][:2]
        for name in ("same", "other")
    }
    assert types["same"][0] == "forked"
    assert "continued" not in types["same"]
    assert types["other"] == ["forked", "continued"]
    list(replay_conversation(store, "other"))
