"""`toolchart doctor` detects each problem and prints the next step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import WebAnswer, serve_web

RunCli = Callable[..., Any]

KEY = "sk-secret-0123456789abcdef"


def answer_request(request: dict[str, Any]) -> WebAnswer:
    """Act as an Ollama host with two models, one of which calls tools, and as an OpenAI-compatible host."""
    path = request["path"]
    headers = {"content-type": "application/json"}
    if path == "/v1/models":
        if request["headers"].get("authorization") != f"Bearer {KEY}":
            return 401, headers, b'{"error": {"message": "bad key"}}'
        return 200, headers, b'{"data": [{"id": "gpt-small"}]}'
    if path == "/api/tags":
        return 200, headers, b'{"models": [{"name": "qwen3:latest"}, {"name": "mute:1b"}]}'
    if path == "/api/show":
        capabilities = ["tools"] if json.loads(request["body"])["model"] == "qwen3:latest" else []
        return 200, headers, json.dumps({"capabilities": ["completion", *capabilities]}).encode()
    return 404, headers, b"{}"


def run_doctor(
    run_cli: RunCli, work_dir: Path, llm: dict[str, Any], **changes: Any
) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the checks of an agent with this entry, without those of the machine."""
    spec = {
        "llms": {"box": llm},
        "tools": {"registry": [{"name": "echo"}]},
        "responses": [{"llm": "box", "tools": {"enabled": True}}],
        **changes,
    }
    (work_dir / "agent.yaml").write_text(json.dumps(spec))
    result = run_cli("doctor", "agent.yaml", "--json")
    assert "Traceback" not in result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    return result.code, [row for row in rows if row["about"].startswith(("llms", "prices"))]


def find_failure(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the only failed check and assert that it has a hint."""
    (row,) = [row for row in rows if row["ok"] is False]
    assert row["hint"]
    return row


def test_a_healthy_agent_passes(run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With key, host, model and tool support: exit 0, and the key is not printed."""
    monkeypatch.setenv("BOX_KEY", KEY)
    with serve_web(answer_request) as server:
        llm = {"provider": "ollama", "base_url": server.url, "api_key": "${BOX_KEY}", "model": "qwen3"}
        code, rows = run_doctor(run_cli, work_dir, llm)
        text_result = run_cli("doctor", "agent.yaml")
    assert code == text_result.code == 0
    findings = " | ".join(row["said"] for row in rows)
    for words in (
        "is configured",
        "key from BOX_KEY",
        "offers 2 models",
        "'qwen3' is available",
        "supports tool calls",
    ):
        assert words in findings
    assert KEY not in text_result.out + text_result.err
    assert "ok      llms.box: model 'qwen3' is available" in text_result.out


def test_an_anthropic_agent_passes(run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent on Anthropic's API is asked for its models with its own headers, and passes."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with serve_web(answer_as_anthropic) as server:
        key = "${ANTHROPIC_API_KEY}"
        llm = {"provider": "anthropic", "base_url": server.url, "model": "claude-test", "api_key": key}
        code, rows = run_doctor(run_cli, work_dir, llm)
    assert [row["said"] for row in rows if row["ok"] is False] == []
    assert code == 0
    findings = " | ".join(row["said"] for row in rows)
    for words in ("key from ANTHROPIC_API_KEY", "offers 2 models", "'claude-test' is available"):
        assert words in findings


def answer_as_anthropic(request: dict[str, Any]) -> WebAnswer:
    """Act as Anthropic's API: `/v1/models` with the key in its own header and a version."""
    headers = {"content-type": "application/json"}
    if request["headers"].get("x-api-key") != KEY:
        return 401, headers, b'{"type": "error", "error": {"type": "authentication_error"}}'
    if request["headers"].get("anthropic-version") and request["path"].startswith("/v1/models"):
        names = ("claude-test", "claude-other")
        rows = [{"type": "model", "id": name, "display_name": name.title()} for name in names]
        return 200, headers, json.dumps({"data": rows, "has_more": False}).encode()
    return 400, headers, b"{}"


def test_an_azure_agent_is_not_asked_for_models(run_cli: RunCli, work_dir: Path) -> None:
    """A host whose list has other names than calls take passes with "unknown", and gets no request."""
    with serve_web(answer_request) as server:
        llm = {"provider": "openai", "host_profile": "azure", "base_url": server.url, "model": "m"}
        code, rows = run_doctor(run_cli, work_dir, llm)
        assert server.requests == []
    assert code == 0
    assert [row["said"] for row in rows if row["ok"] is None] == [
        "no key is sent; this host may not need one",
        "the host has no list of models, so it was not asked",
    ]


def test_an_unknown_model_is_named_with_the_nearest(run_cli: RunCli, work_dir: Path) -> None:
    """A model that the host lacks fails; the hint names the nearest model and, for Ollama, how to pull it."""
    with serve_web(answer_request) as server:
        llm = {"provider": "ollama", "base_url": server.url, "model": "qwen3x"}
        code, rows = run_doctor(run_cli, work_dir, llm)
    row = find_failure(rows)
    assert code == 1
    assert "has no model 'qwen3x'" in row["said"]
    assert "ollama pull qwen3x" in row["hint"]
    assert "qwen3:latest" in row["hint"]


def test_a_model_without_tools_fails_where_tools_are_offered(run_cli: RunCli, work_dir: Path) -> None:
    """S3.3: a model that cannot call tools fails only if a handler offers tools."""
    with serve_web(answer_request) as server:
        llm = {"provider": "ollama", "base_url": server.url, "model": "mute:1b"}
        code, rows = run_doctor(run_cli, work_dir, llm)
        assert "does not support tool calls" in find_failure(rows)["said"]
        assert "models list" in find_failure(rows)["hint"]
        without_tools = run_doctor(run_cli, work_dir, llm, responses=[{"llm": "box"}], tools=None)
    assert code == 1
    assert without_tools[0] == 0


def test_unknown_capabilities_are_no_failure(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that does not report capabilities gives the result "unknown", which is not a failure."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serve_web(answer_request) as server:
        llm = {"provider": "openai", "base_url": server.url + "/v1", "model": "gpt-small"}
        code, rows = run_doctor(run_cli, work_dir, {**llm, "api_key": "${OPENAI_API_KEY}"})
    assert code == 0
    assert [row["said"] for row in rows if row["ok"] is None] == [
        "the host does not say whether 'gpt-small' supports tool calls"
    ]
    assert any(row["said"] == "key from OPENAI_API_KEY" for row in rows)


@pytest.mark.parametrize(
    ("llm", "problem", "hint"),
    [
        ({"provider": "openai", "base_url": "URL/v1", "api_key": "wrong-key"}, "auth (HTTP 401)", "refused"),
        ({"provider": "openai", "base_url": "URL"}, "HTTP 404", "/v1"),
        ({"provider": "ollama", "base_url": "http://127.0.0.1:9"}, "could not be reached", "ollama serve"),
        ({"provider": "openai", "base_url": "http://127.0.0.1:9/v1"}, "not be reached", "is it running"),
        ({"provider": "openai"}, "no API key", "export OPENAI_API_KEY"),
        ({"provider": "openai", "api_key": "${UNSET_X}"}, "UNSET_X is not set", "export UNSET_X"),
        ({"provider": "openai", "api_key": "k", "heders": {}}, "no setting 'heders'", "mean 'headers'"),
    ],
)
def test_every_failure_has_a_next_step(
    run_cli: RunCli, work_dir: Path, llm: dict[str, Any], problem: str, hint: str
) -> None:
    """Refused and missing keys, unreachable hosts and misspelt settings: exit 1 with cause and hint."""
    with serve_web(answer_request) as server:
        llm = {**llm, "model": "m"}
        if "base_url" in llm:
            llm["base_url"] = llm["base_url"].replace("URL", server.url)
        code, rows = run_doctor(run_cli, work_dir, llm)
    assert code == 1
    row = find_failure(rows)
    assert problem in row["said"]
    assert hint in row["hint"]
    assert "wrong-key" not in json.dumps(rows)


def test_the_offline_agent_needs_no_key(run_cli: RunCli, work_dir: Path) -> None:
    """The shipped offline agent passes without key and network, and nothing is written."""
    result = run_cli("doctor", "quickstart")
    assert result.code == 0, result.out
    assert "FAILED" not in result.out
    assert not list(work_dir.iterdir())


def test_prices_are_checked(run_cli: RunCli, work_dir: Path) -> None:
    """An unreadable price table fails; a money budget without a table is reported as unknown."""
    llm = {"provider": "scripted", "replies": ["x"]}
    code, rows = run_doctor(run_cli, work_dir, llm, prices="none.yaml")
    assert (code, find_failure(rows)["about"]) == (1, "prices")
    code, rows = run_doctor(run_cli, work_dir, llm, limits={"max_cost": 1})
    assert code == 0
    assert rows[0]["ok"] is None
    assert "no price table" in rows[0]["said"]
    code, rows = run_doctor(run_cli, work_dir, llm, prices={"models": {"m": {"input": 1, "output": 2}}})
    assert rows[0]["said"] == "1 models, in USD"


def test_the_machine_is_checked(run_cli: RunCli, work_dir: Path) -> None:
    """Reports the versions of Python and packages, and whether the log can be created or written."""
    result = run_cli("doctor", "--json")
    rows = {row["about"]: row for row in map(json.loads, result.out.splitlines())}
    assert result.code == 0
    assert rows["python"]["ok"] is rows["pydantic"]["ok"] is rows["log"]["ok"] is True
    assert rows["pydantic"]["said"][0].isdigit()
    (work_dir / "file").write_text("")
    result = run_cli("doctor", "--log", "file/log.db", "--json")
    row = next(row for row in map(json.loads, result.out.splitlines()) if row["about"] == "log")
    assert result.code == 1
    assert (row["ok"], row["hint"]) == (False, "choose another log with --log FILE")


def test_a_log_that_is_only_read_is_told(run_cli: RunCli, work_dir: Path) -> None:
    """A file of records is opened for reading: it is only read, or what is wrong with it is said."""

    def check(name: str) -> tuple[Any, ...]:
        result = run_cli("doctor", "--log", name, "--json")
        row = next(row for row in map(json.loads, result.out.splitlines()) if row["about"] == "log")
        return result.code, row["ok"], row["said"]

    run_cli("run", "quickstart", "1+1", "--conversation", "one")
    (work_dir / "log.jsonl").write_bytes(run_cli("export", "--format", "jsonl").out.encode())
    (work_dir / "empty.jsonl").write_text("")
    assert check("log.jsonl") == (0, True, "log.jsonl can be read; it is only read")
    code, ok, said = check("empty.jsonl")
    assert (code, ok, "line 1 of empty.jsonl: the file is empty" in said) == (1, False, True)
    code, ok, said = check("nowhere.jsonl")
    assert (code, ok, "cannot be read: No such file" in said) == (1, False, True)


def test_a_spec_that_cannot_be_read_is_wrong_usage(run_cli: RunCli) -> None:
    """A missing agent spec is exit 2, as in every command."""
    assert run_cli("doctor", "nowhere.yaml").code == 2
