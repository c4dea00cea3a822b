"""`toolchart models validate`: questions, scores, saved results and badges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import serve_web

RunCli = Callable[..., Any]

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


def build_lookup_reply(number: Any) -> dict[str, Any]:
    """Return a reply that calls `lookup` with a number."""
    return {"tool_calls": [{"name": "lookup", "arguments": {"number": number}}]}


@pytest.fixture
def validate_model(run_cli: RunCli, work_dir: Path) -> Callable[..., Any]:
    """Run the command against a scripted model with these replies."""
    (work_dir / "cases.json").write_text(json.dumps(CASES))

    def run(replies: list[Any], *words: str) -> Any:
        model = {"provider": "scripted", "model": "m", "replies": replies}
        spec = {"llms": {"a": model}, "responses": [{"llm": "a"}]}
        (work_dir / "agent.json").write_text(json.dumps(spec))
        return run_cli("models", "validate", "agent.json", "--suite", "cases.json", *words)

    return run


RIGHT = [*(build_lookup_reply(n) for n in range(4)), "Hello!"]


def test_a_model_with_correct_calls_is_validated(validate_model: Callable[..., Any], work_dir: Path) -> None:
    """S1.17: prints counts per category, rate and interval, and saves every result."""
    result = validate_model(RIGHT)
    assert result.code == 0
    assert "scripted/m  5 of 5  (100%, 95 % between 57% and 100%)" in result.out
    assert "saved results: validated 5/5" in result.out
    saved = json.loads((work_dir / ".toolchart" / "models.json").read_text())["models"]["scripted/m"]
    assert saved["categories"] == {"simple": [4, 4], "irrelevant": [1, 1]}
    assert [entry["case"] for entry in saved["history"]] == ["one_0", "one_1", "one_2", "one_3", "talk"]


def test_wrong_calls_are_printed_and_counted(validate_model: Callable[..., Any]) -> None:
    """S1.17: below 0.8 the exit code is 1; each failure prints its reason; later runs add up."""
    result = validate_model(
        [build_lookup_reply(0), build_lookup_reply("1"), "no", build_lookup_reply(3), build_lookup_reply(9)],
        "--json",
    )
    report = json.loads(result.out)
    assert result.code == 1
    assert (report["passed"], report["total"], report["standing"]["validated"]) == (2, 5, False)
    assert report["categories"] == {"simple": [2, 4], "irrelevant": [0, 1]}
    assert "FAILED  one_1  " in result.err
    assert "not integer" in result.err
    again = json.loads(validate_model(RIGHT, "--json").out)
    assert (again["passed"], again["total"]) == (5, 5)
    assert (again["standing"]["passed"], again["standing"]["total"]) == (7, 10)


def test_failed_requests_are_not_saved(validate_model: Callable[..., Any]) -> None:
    """S1.17: cases that could not be asked are not saved, and the exit code is 1."""
    down = {"fail": {"kind": "unavailable", "message": "busy"}}
    result = validate_model([down] * 5, "--json")
    report = json.loads(result.out)
    assert result.code == 1
    assert (report["total"], report["not_asked"], report["standing"]) == (0, 5, None)


def test_a_limit_bounds_each_category(validate_model: Callable[..., Any]) -> None:
    """S1.17: `--limit` takes the first cases of each category."""
    result = validate_model([build_lookup_reply(0), "Hello!"], "--limit", "1", "--json")
    assert json.loads(result.out)["categories"] == {"simple": [1, 1], "irrelevant": [1, 1]}


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--llm", "b"], "there is no llm 'b'"), (["--suite", "basc"], "did you mean 'basic'")],
)
def test_mistakes(validate_model: Callable[..., Any], words: list[str], message: str) -> None:
    """Wrong names end in one message and exit 2."""
    result = validate_model(["x"], *words)
    assert result.code == 2
    assert message in result.err


def test_the_list_shows_badges(run_cli: RunCli, work_dir: Path) -> None:
    """S1.16: `models list` shows the saved results of each model."""

    def host(request: Any) -> Any:
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
    (work_dir / "results.json").write_text(json.dumps({"version": 1, "models": models}))
    with serve_web(host) as server:
        host_options = ("--provider", "openai", "--base-url", f"{server.url}/v1")
        list_command = ("models", "list", *host_options, "--results", "results.json")
        table = run_cli(*list_command).out.splitlines()
        rows = [json.loads(line) for line in run_cli(*list_command, "--json").out.splitlines()]
    endings = {line.split()[0]: line.split()[5:] for line in table[1:]}
    assert endings == {"good": ["validated", "9/10"], "poor": ["tested", "3/10"], "new": ["-"]}
    by_model = {row["model"]: row["tested"] for row in rows}
    assert by_model["good"]["validated"]
    assert not by_model["poor"]["validated"]
    assert by_model["new"] is None
