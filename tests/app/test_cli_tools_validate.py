"""`toolchart models validate`: questions, judged calls, the record, and its badges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import RECORDED, needs_recorded
from web import web

Typed = Callable[..., Any]

CASES = {
    "tools": [
        {
            "name": "lookup",
            "description": "Look a number up.",
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer"}},
                "required": ["number"],
            },
        }
    ],
    "cases": [
        {
            "id": f"one_{n}",
            "category": "simple",
            "message": f"Look {n} up.",
            "calls": [{"name": "lookup", "arguments": {"number": n}}],
        }
        for n in range(4)
    ]
    + [{"id": "talk", "category": "irrelevant", "message": "Hello."}],
}


def looking(number: Any) -> dict[str, Any]:
    """A reply that looks a number up."""
    return {"tool_calls": [{"name": "lookup", "arguments": {"number": number}}]}


@pytest.fixture
def validated(typed: Typed, here: Path) -> Callable[..., Any]:
    """Run the command against a model that gives these replies."""
    (here / "cases.json").write_text(json.dumps(CASES))

    def run(replies: list[Any], *words: str) -> Any:
        model = {"provider": "scripted", "model": "m", "replies": replies}
        spec = {"llms": {"a": model}, "responses": [{"llm": "a"}]}
        (here / "agent.json").write_text(json.dumps(spec))
        return typed("models", "validate", "agent.json", "--suite", "cases.json", *words)

    return run


RIGHT = [*(looking(n) for n in range(4)), "Hello!"]


def test_a_model_that_calls_rightly_is_validated(validated: Callable[..., Any], here: Path) -> None:
    """S1.17: counts for each category, rate and interval; the record has every result."""
    done = validated(RIGHT)
    assert done.code == 0
    assert "scripted/m  5 of 5  (100%, 95 % between 57% and 100%)" in done.out
    assert "on record: validated 5/5" in done.out
    kept = json.loads((here / ".toolchart" / "models.json").read_text())["models"]["scripted/m"]
    assert kept["categories"] == {"simple": [4, 4], "irrelevant": [1, 1]}
    assert [one["case"] for one in kept["history"]] == ["one_0", "one_1", "one_2", "one_3", "talk"]


def test_wrong_calls_are_told_and_counted(validated: Callable[..., Any]) -> None:
    """S1.17: below 0.8 the answer is no; each failure says what was wrong; later runs add up."""
    done = validated([looking(0), looking("1"), "no", looking(3), looking(9)], "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert (found["passed"], found["total"], found["standing"]["validated"]) == (2, 5, False)
    assert found["categories"] == {"simple": [2, 4], "irrelevant": [0, 1]}
    assert "FAILED  one_1  " in done.err
    assert "not integer" in done.err
    again = json.loads(validated(RIGHT, "--json").out)
    assert (again["passed"], again["total"]) == (5, 5)
    assert (again["standing"]["passed"], again["standing"]["total"]) == (7, 10)


def test_a_host_that_is_down_says_nothing_of_its_model(validated: Callable[..., Any]) -> None:
    """S1.17: what could not be asked is not on record, and the answer is no."""
    down = {"fail": {"kind": "unavailable", "message": "busy"}}
    done = validated([down] * 5, "--json")
    found = json.loads(done.out)
    assert done.code == 1
    assert (found["total"], found["not_asked"], found["standing"]) == (0, 5, None)


def test_a_limit_bounds_each_category(validated: Callable[..., Any]) -> None:
    """S1.17: `--limit` takes the first cases of each category."""
    done = validated([looking(0), "Hello!"], "--limit", "1", "--json")
    assert json.loads(done.out)["categories"] == {"simple": [1, 1], "irrelevant": [1, 1]}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--llm", "b"], "there is no llm 'b'"),
        (["--suite", "basc"], "did you mean 'basic'"),
        (["--suite", "bfcl"], "needs the benchmark's question files"),
    ],
)
def test_mistakes(validated: Callable[..., Any], words: list[str], told: str) -> None:
    """Wrong names end in one message and exit 2."""
    done = validated(["x"], *words)
    assert done.code == 2
    assert told in done.err


def test_the_list_shows_badges(typed: Typed, here: Path) -> None:
    """S1.16: `models list` shows what the record says of each model of a host."""

    def host(asked: Any) -> Any:
        data = {"object": "list", "data": [{"id": "good"}, {"id": "poor"}, {"id": "new"}]}
        return 200, {"content-type": "application/json"}, json.dumps(data).encode()

    entry = {"at": "2026-01-01T00:00:00Z", "suite": "basic", "case": "c", "category": "simple"}
    models = {
        f"openai/{name}": {
            "passed": passed,
            "total": 10,
            "last_tested": entry["at"],
            "categories": {"simple": [passed, 10]},
            "history": [{**entry, "passed": True}],
        }
        for name, passed in (("good", 9), ("poor", 3))
    }
    (here / "results.json").write_text(json.dumps({"version": 1, "models": models}))
    with web(host) as server:
        where = ("--provider", "openai", "--base-url", f"{server.url}/v1")
        listed = ("models", "list", *where, "--results", "results.json")
        table = typed(*listed).out.splitlines()
        rows = [json.loads(line) for line in typed(*listed, "--json").out.splitlines()]
    endings = {line.split()[0]: line.split()[5:] for line in table[1:]}
    assert endings == {"good": ["validated", "9/10"], "poor": ["tested", "3/10"], "new": ["-"]}
    by_model = {row["model"]: row["tested"] for row in rows}
    assert by_model["good"]["validated"]
    assert not by_model["poor"]["validated"]
    assert by_model["new"] is None


@needs_recorded
def test_the_benchmark_runs_from_its_files(validated: Callable[..., Any]) -> None:
    """S1.17: `--suite bfcl` takes every category of the benchmark's own files."""
    folder = str(RECORDED / "bfcl")
    words = ("--suite", "bfcl", "--questions", folder, "--limit", "1", "--json")
    found = json.loads(validated(["I cannot."] * 40, *words).out)
    assert found["not_asked"] == 0
    assert len(found["categories"]) == found["total"] == 17
    assert found["categories"]["irrelevance"] == [1, 1]
    assert found["categories"]["parallel"] == found["categories"]["multi_turn_base"] == [0, 1]
