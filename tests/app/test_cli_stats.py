"""`toolchart stats` and `toolchart runs --usage`: figures counted from the records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest

from toolchart.engine.log.stores import open_store
from toolchart.engine.reading.figures import read_figures

RunCli = Callable[..., Any]

USAGE = {"input": 100, "output": 10, "cost": 0.5}


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log of two conversations: three turns, three replies, a failure and two tool calls."""
    call = agents.reply_with_calls(("echo", {"text": "a"}), ("weather", {"town": "Rome"}))
    replies = [{**call, "usage": USAGE}, {"content": "One.", "usage": USAGE}, "Two."]
    handlers = [
        {"name": "asked", "match": {"kind": "b"}, "llm": "model", "tools": {"enabled": True}},
        {"name": "usual", "llm": "model", "tools": {"enabled": True}},
    ]
    address = str(tmp_path / "log.db")
    with agents.make_engine(replies, log=address, responses=handlers) as engine:
        engine.run("one", conversation="a")
        engine.run("two", conversation="a", model="other")
    fail = {"fail": {"kind": "auth", "message": "no key", "status": 401}}
    with agents.make_engine([fail], log=address, responses=handlers) as engine:
        engine.run("three", conversation="b", variables={"kind": "b"})
    return address


def test_figures_are_those_of_the_records(log: str) -> None:
    """Turns, models, usage, handlers, failures and tool outcomes are counted from the records alone."""
    store = open_store(log)
    first, second = read_figures(store, "a"), read_figures(store, "b")
    store.close()
    assert [turn.handler for turn in (*first.turns, *second.turns)] == ["usual", "usual", "asked"]
    assert (first.usage.input, first.usage.output, first.usage.cost) == (200, 20, 1.0)
    assert first.models == ("m", "other")
    assert [(call.tool, call.outcome) for call in first.turns[0].tool_calls] == [
        ("weather", "failed"),
        ("echo", "succeeded"),
    ]
    assert [call.has_failed for call in second.turns[0].model_calls] == [True]
    assert (second.turns[0].has_failed, second.turns[0].ended_by) == (True, "answer_with_error")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("model", [("m", 2, 3, 1), ("other", 1, 1, 0)]),
        ("handler", [("asked", 1, 1, 1), ("usual", 2, 3, 0)]),
        ("state", [("error", 1, 1, 1), ("finished", 2, 3, 0)]),
    ],
)
def test_stats_group_the_turns(by: str, expected: list[Any], log: str, run_cli: RunCli) -> None:
    """Each grouping has its turns, model calls and errors; JSON has one line a group."""
    lines = run_cli("stats", "--by", by, "--json", "--log", log).out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["group"], row["turns"], row["model_calls"], row["errors"]) for row in rows] == expected
    table = run_cli("stats", "--by", by, "--log", log).out.splitlines()
    assert table[0].split()[:3] == [by, "turns", "errors"]
    assert table[-1].split()[:2] == ["all", "3"]


def test_stats_of_tools_have_outcomes(log: str, run_cli: RunCli) -> None:
    """A line per tool has its calls and their outcomes; conditions select conversations."""
    lines = run_cli("stats", "--by", "tool", "--json", "--log", log).out.splitlines()
    rows = {row["group"]: row["outcomes"] for row in map(json.loads, lines)}
    assert rows == {"echo": {"succeeded": 1}, "weather": {"failed": 1}}
    nothing = run_cli("stats", "--by", "tool", "--where", "state=error", "--log", log)
    assert (nothing.code, nothing.out, "nothing to sum up" in nothing.err) == (0, "", True)
    wrong = run_cli("stats", "--where", "sate=error", "--log", log)
    assert (wrong.code, "did you mean 'state'" in wrong.err) == (2, True)
    unknown = run_cli("stats", "--where", "status=eror", "--log", log)
    assert (unknown.code, "there is no status 'eror'" in unknown.err) == (2, True)


def test_runs_show_usage_and_sums(log: str, run_cli: RunCli) -> None:
    """`runs --usage` has model, tokens, cost and seconds of each conversation, and a line with the sums."""
    lines = run_cli("runs", "--usage", "--log", log).out.splitlines()
    assert lines[0].split()[-6:] == ["model", "in", "out", "cost", "s", "message"]
    assert "m, other" in lines[1]
    assert lines[-1].startswith("2 conversations, 3 turns, 200 tokens in, 20 out, cost 1.000000, ")
    row = json.loads(run_cli("runs", "--usage", "--json", "--log", log).out.splitlines()[0])
    assert (row["models"], row["input"], row["cost"]) == (["m", "other"], 200, 1.0)


def test_a_fork_in_a_turn_asks_the_model_of_that_turn(run_cli: RunCli, work_dir: Path) -> None:
    """An input of a batch that failed is tried again as a fork of its turn: `stats --by model`,
    `runs --model` and a fork of the fork know which model it asks."""
    for name, replies in (("bad", "[{fail: {kind: bad_request}}]"), ("good", "[fine]")):
        llms = f"llms: {{m: {{provider: scripted, model: tiny, replies: {replies}}}}}\n"
        (work_dir / f"{name}.yaml").write_text(f"{llms}responses: [{{llm: m, prompt: p}}]\n", "utf-8")
    (work_dir / "in.jsonl").write_text('{"id": "k1", "message": "hi"}\n', "utf-8")
    assert run_cli("batch", "bad.yaml", "in.jsonl", "--output", "o.jsonl").code == 1
    assert run_cli("batch", "good.yaml", "in.jsonl", "--output", "o.jsonl").code == 0

    def list_names(*options: str) -> list[str]:
        lines = run_cli("runs", "--json", *options).out.splitlines()
        return [json.loads(line)["conversation"] for line in lines]

    assert list_names() == ["in:k1", "in:k1~2"]
    assert run_cli("fork", "in:k1~2", "--at", "0", "--name", "again", "--spec", "good.yaml").code == 0
    table = run_cli("stats", "--by", "model").out
    assert "tiny" in table
    assert "(none)" not in table
    assert list_names("--model", "tiny") == ["in:k1", "in:k1~2", "again"]
    assert list_names("--model", "large") == []


def test_two_groupings_at_once_are_refused(run_cli: RunCli) -> None:
    """`--by day,model` is refused with the words that are allowed, and that one is named at a time."""
    result = run_cli("stats", "--by", "day,model")
    assert result.code == 2
    text = " ".join(result.err.split())
    assert "'day', 'model', 'handler', 'state', 'tool'. Name one at a time." in text
