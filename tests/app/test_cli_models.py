"""`toolchart models list` against local hosts that speak the APIs of OpenAI, Ollama, Anthropic and Gemini."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import WebAnswer, serve_web

RunCli = Callable[..., Any]

OPENAI = {
    "data": [
        {"id": "plain"},
        {
            "id": "router",
            "supported_parameters": ["tools", "reasoning"],
            "context_length": 128000,
            "architecture": {"input_modalities": ["text", "image"]},
        },
        {
            "id": "mistral",
            "capabilities": {"function_calling": True, "vision": False},
            "max_context_length": 32768,
        },
        {"id": "vllm", "max_model_len": 4096},
        {"id": "groq", "context_window": 8192},
        "no row",
    ]
}

MODEL_DETAILS = {
    "qwen3:8b": {
        "capabilities": ["completion", "tools", "thinking"],
        "model_info": {"qwen3.context_length": 40960},
    },
    "gemma3:latest": {
        "capabilities": ["completion", "vision"],
        "model_info": {"gemma3.context_length": 131072},
    },
    "old:latest": {"modelfile": "..."},
}

ANTHROPIC = {
    "data": [
        {
            "id": "claude-new",
            "max_input_tokens": 1000000,
            "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": False}},
        },
        {"id": "claude-old"},
    ]
}

GEMINI = [
    {
        "models": [
            {
                "name": "models/gemini-3-pro",
                "inputTokenLimit": 1048576,
                "thinking": True,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
            },
            {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
        ],
        "nextPageToken": "second",
    },
    {"models": [{"name": "models/gemini-2.0-flash", "inputTokenLimit": 1000}]},
]


def answer_request(request: dict[str, Any]) -> WebAnswer:
    """Answer like every kind of host."""
    path, headers = request["path"], {k.lower(): v for k, v in request["headers"].items()}
    if path == "/v1/models":
        if headers.get("authorization") == "Bearer wrong":
            return 401, {}, b'{"error": {"message": "Incorrect API key provided: wrong"}}'
        return build_json_answer(OPENAI)
    if path == "/api/tags":
        return build_json_answer({"models": [{"name": name, "model": name} for name in MODEL_DETAILS]})
    if path == "/api/show":
        return build_json_answer(MODEL_DETAILS[json.loads(request["body"])["model"]])
    if path == "/v1/models?limit=1000":
        return build_json_answer(ANTHROPIC)
    if path.startswith("/v1beta/models?pageSize=1000"):
        return build_json_answer(GEMINI["pageToken=second" in path])
    if path == "/html/models":
        return 200, {"content-type": "text/html"}, b"<html>"
    return 404, {}, b"nothing here"


def build_json_answer(value: Any) -> WebAnswer:
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


def list_models(run_cli: RunCli, provider: str, base_url: str | None) -> dict[str, dict[str, Any]]:
    """Return the JSON rows of `models list` by model name."""
    address = ("--base-url", base_url) if base_url else ()
    result = run_cli("models", "list", "--provider", provider, *address, "--json")
    assert result.code == 0, result.err
    return {row.pop("model"): row for row in map(json.loads, result.out.splitlines())}


def test_capabilities_of_compatible_hosts(run_cli: RunCli) -> None:
    """Capabilities are read from each host's own field names, and are unknown if the host has none."""
    with serve_web(answer_request) as server:
        models = list_models(run_cli, "openai", server.url + "/v1")
    unknown = {
        "host": "openai",
        "tools": None,
        "vision": None,
        "thinking": None,
        "context": None,
        "tested": None,
    }
    assert models == {
        "plain": unknown,
        "router": {**unknown, "tools": True, "vision": True, "thinking": True, "context": 128000},
        "mistral": {**unknown, "tools": True, "vision": False, "context": 32768},
        "vllm": {**unknown, "context": 4096},
        "groq": {**unknown, "context": 8192},
    }


def test_capabilities_of_ollama(run_cli: RunCli) -> None:
    """Ollama's capabilities and context window are read for each model; unknown for an old server."""
    with serve_web(answer_request) as server:
        models = list_models(run_cli, "ollama", server.url)
    assert [models["qwen3:8b"][key] for key in ("tools", "vision", "thinking", "context")] == [
        True,
        False,
        True,
        40960,
    ]
    assert models["gemma3:latest"]["tools"] is False
    assert models["old:latest"]["tools"] is None


def test_capabilities_of_anthropic(run_cli: RunCli) -> None:
    """The window and capabilities are read where the list has them; they are unknown in an older list."""
    with serve_web(answer_request) as server:
        models = list_models(run_cli, "anthropic", server.url)
    keys = ("tools", "vision", "thinking", "context")
    assert [models["claude-new"][key] for key in keys] == [None, True, False, 1000000]
    assert [models["claude-old"][key] for key in keys] == [None] * 4


def test_gemini_is_read_to_the_last_page(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages are read, models that cannot generate are left out, and the key is sent in its own header."""
    monkeypatch.setenv("GEMINI_API_KEY", "g-key")
    with serve_web(answer_request) as server:
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)  # an address that may get the key
        models = list_models(run_cli, "gemini", None)
        keys = {request["headers"].get("x-goog-api-key") for request in server.requests}
    assert list(models) == ["gemini-2.0-flash", "gemini-3-pro"]
    assert models["gemini-3-pro"]["thinking"] is True
    assert keys == {"g-key"}


def test_the_table_of_an_agents_hosts(run_cli: RunCli, work_dir: Path) -> None:
    """The hosts of an agent are asked with its keys and headers; entries without a host are named."""
    with serve_web(answer_request) as server:
        (work_dir / "agent.yaml").write_text(
            json.dumps(
                {
                    "llms": {
                        "box": {"provider": "ollama", "base_url": server.url},
                        "own": {
                            "provider": "openai",
                            "base_url": server.url + "/v1",
                            "api_key": "k",
                            "headers": {"x-team": "blue"},
                        },
                        "rehearsal": {"provider": "scripted", "replies": ["x"]},
                    },
                    "responses": [{"llm": "box"}],
                }
            )
        )
        result = run_cli("models", "list", "agent.yaml")
        headers = server.requests[-1]["headers"]
    assert result.code == 0
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["model", "tools", "vision", "thinking", "context", "tested"]
    assert ["qwen3:8b", "yes", "no", "yes", "40960", "-"] in lines
    assert ["plain", "?", "?", "?", "?", "-"] in lines
    assert "box (ollama): 3 models" in result.err
    assert "rehearsal (scripted): has no list of models" in result.err
    assert {k.lower(): v for k, v in headers.items()}["x-team"] == "blue"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 2, "name either an agent or a provider"),
        (("quickstart", "--provider", "openai"), 2, "either an agent or a provider"),
        (("quickstart", "--base-url", "http://x"), 2, "needs --provider"),
        (("--provider", "olama"), 2, "did you mean 'ollama'"),
        (("--provider", "openai", "--base-url", "http://127.0.0.1:9/v1"), 1, "could not be reached"),
        (("--provider", "openai", "--base-url", "URL/html"), 1, "is not JSON"),
        (("--provider", "openai", "--base-url", "URL/nowhere"), 1, "HTTP 404"),
    ],
)
def test_wrong_usage_and_failing_hosts(
    run_cli: RunCli, words: tuple[str, ...], code: int, message: str
) -> None:
    """Wrong usage is exit 2, a host that cannot answer exit 1, each with one message and no traceback."""
    with serve_web(answer_request) as server:
        result = run_cli("models", "list", *(word.replace("URL", server.url) for word in words))
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert "Traceback" not in result.err


def test_one_unreachable_host_does_not_hide_the_others(run_cli: RunCli, work_dir: Path) -> None:
    """Every host of an agent is asked; an unreachable one is named, and the exit code is 1."""
    with serve_web(answer_request) as server:
        llms = {
            "away": {"provider": "ollama", "base_url": "http://127.0.0.1:9"},
            "box": {"provider": "ollama", "base_url": server.url},
        }
        (work_dir / "agent.yaml").write_text(json.dumps({"llms": llms, "responses": [{"llm": "box"}]}))
        result = run_cli("models", "list", "agent.yaml", "--json")
    assert result.code == 1
    assert {json.loads(line)["host"] for line in result.out.splitlines()} == {"box"}
    assert "away (ollama): connection" in result.err


def test_a_refused_key_is_not_printed(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that a host repeats in its error message is not printed."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789")

    def refuse_key(request: dict[str, Any]) -> WebAnswer:
        key = request["headers"]["authorization"].removeprefix("Bearer ")
        body = {"error": {"message": f"Incorrect API key provided: {key}"}}
        return 401, {"content-type": "application/json"}, json.dumps(body).encode()

    with serve_web(refuse_key) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)  # an address that may get the key
        result = run_cli("models", "list", "--provider", "openai")
    assert result.code == 1
    assert "auth (HTTP 401)" in result.err
    assert "sk-wrong" not in result.err
