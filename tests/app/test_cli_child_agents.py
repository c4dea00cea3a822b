"""The commands over a conversation that runs child agents: one tree."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child_agents import ONE_CALL, FunctionModel, make_engine, make_parent_chart, make_spec, repeat_words

RunCli = Callable[..., Any]


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log with a conversation `talk` and two children."""
    run_agent = {"chart": ONE_CALL, "for_each": "items", "message": "do {{item}}", "as": "outcome"}
    effects = {"work": {"run_agent": run_agent}, "publish": {"answer": "{{outcome}}"}}
    path = str(tmp_path / "log.db")
    with make_engine(make_spec(make_parent_chart(), effects), FunctionModel(repeat_words), path) as engine:
        engine.run("go", conversation="talk", variables={"items": ["a", "b"]})
        engine.run("go", conversation="other", variables={"items": []})
    return path


def test_runs_hides_children_or_lists_them_below_their_parents(run_cli: RunCli, log: str) -> None:
    """Children stand below their parents with `--children`, and nowhere without."""
    shown = run_cli("runs", "--log", log).out.splitlines()
    assert [line.split()[0] for line in shown[1:]] == ["talk", "other"]
    shown = run_cli("runs", "--children", "--log", log).out.splitlines()
    assert [line.split("  20")[0].rstrip() for line in shown[1:]] == [
        "talk",
        "  talk.1.0",
        "  talk.1.1",
        "other",
    ]


def test_show_replay_and_verify_take_the_whole_tree(run_cli: RunCli, log: str) -> None:
    """`show` indents children below the record that asked for them; `replay` recomputes them too."""
    shown = run_cli("show", "ta", "--log", log).out
    assert "         0 " in shown
    assert "talk.1.0: DO A" in shown
    assert "talk and 2 children" in run_cli("replay", "talk", "--log", log).out
    assert json.loads(run_cli("replay", "talk", "--json", "--log", log).out)["children"] == [
        "talk.1.0",
        "talk.1.1",
    ]
    assert run_cli("verify", "--log", log).code == 0


@pytest.mark.parametrize("damaged", ["talk", "talk.1.0"])
def test_an_export_leaves_out_who_refers_to_a_damaged_conversation(
    run_cli: RunCli, log: str, tmp_path: Path, damaged: str
) -> None:
    """What an export of a damaged log prints can be imported: a parent or a child of what is damaged, which
    cannot be verified without it, is left out and named, too."""
    with sqlite3.connect(log) as database:
        (number,) = database.execute("SELECT number FROM conversations WHERE id = ?", (damaged,)).fetchone()
        (seq,) = database.execute(
            "SELECT max(id) & 0xffffffff FROM records WHERE id >> 32 = ?", (number,)
        ).fetchone()
        seq -= damaged != "talk"  # the newest record is the one to which the parent refers
        changed = 'UPDATE records SET line = replace(line, \'"at":"2\', \'"at":"1\') WHERE id = ?'
        database.execute(changed, ((number << 32) + seq,))
    result = run_cli("export", "--format", "jsonl", "--log", log)
    assert result.code == 5
    assert result.out == run_cli("export", "other", "--format", "jsonl", "--log", log).out
    assert f"damaged: conversation {damaged}, record {seq}: " in result.err
    for name in {"talk", "talk.1.0", "talk.1.1"} - {damaged}:
        assert f"left out: conversation {name}, record " in result.err
    (tmp_path / "intact.jsonl").write_text(result.out, "utf-8")
    assert run_cli("import", "intact.jsonl", "--log", "new.db").code == 0


def test_prune_deletes_a_family_together(run_cli: RunCli, log: str) -> None:
    """The newest conversation is kept with its children, or all go."""
    deleted = run_cli("prune", "--keep", "1", "--log", log).out.split()
    assert sorted(deleted) == ["talk", "talk.1.0", "talk.1.1"]
    assert run_cli("verify", "--log", log).code == 0


def test_cancel_ends_children_without_their_agents(run_cli: RunCli, tmp_path: Path) -> None:
    """`cancel` without a spec ends a turn whose child waits for a person: both logs say so, and replay."""
    path = str(tmp_path / "log.db")
    effects = {"work": {"run_agent": {"chart": ASKING, "message": "go", "as": "outcome"}}}
    effects["publish"] = {"answer": "{{outcome}}"}
    with make_engine(make_spec(make_parent_chart(), effects), FunctionModel(repeat_words), path) as engine:
        assert not engine.run("go", conversation="talk").is_over
    ended = run_cli("cancel", "talk", "--log", path)
    assert (ended.code, ended.out[:6]) == (0, "talk: "), ended.err
    assert "talk and 1 child" in run_cli("replay", "talk", "--log", path).out
    assert sorted(run_cli("prune", "--keep", "0", "--log", path).out.split()) == ["talk", "talk.1"]


ASKING = {
    "name": "asking",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask",
            "transitions": [
                {"event": "answered", "target": "done"},
                {"event": "cancelled", "target": "done"},
            ],
        },
        "done": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {"ask": {"ask_person": {"question": "Which?", "form": {"type": "object"}, "as": "chosen"}}},
}
