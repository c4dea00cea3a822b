"""`toolchart models list` against hosts on loopback that speak the three wires."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from web import Answer, web

Typed = Callable[..., Any]

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

SHOWN = {
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


def host(asked: dict[str, Any]) -> Answer:
    """A host that speaks all three."""
    path, sent = asked["path"], {k.lower(): v for k, v in asked["headers"].items()}
    if path == "/v1/models":
        if sent.get("authorization") == "Bearer wrong":
            return 401, {}, b'{"error": {"message": "Incorrect API key provided: wrong"}}'
        return _json(OPENAI)
    if path == "/api/tags":
        return _json({"models": [{"name": name, "model": name} for name in SHOWN]})
    if path == "/api/show":
        return _json(SHOWN[json.loads(asked["body"])["model"]])
    if path.startswith("/v1beta/models?pageSize=1000"):
        return _json(GEMINI["pageToken=second" in path])
    if path == "/html/models":
        return 200, {"content-type": "text/html"}, b"<html>"
    return 404, {}, b"nothing here"


def _json(value: Any) -> Answer:
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


def listed(typed: Typed, provider: str, base_url: str) -> dict[str, dict[str, Any]]:
    """What the command lists as JSON, by model."""
    done = typed("models", "list", "--provider", provider, "--base-url", base_url, "--json")
    assert done.code == 0, done.err
    return {row.pop("model"): row for row in map(json.loads, done.out.splitlines())}


def test_a_compatible_host_tells_what_it_can(typed: Typed) -> None:
    """Capabilities are read in each host's own words, and are unknown where it says nothing."""
    with web(host) as server:
        found = listed(typed, "openai", server.url + "/v1")
    unknown = {
        "host": "openai",
        "tools": None,
        "vision": None,
        "thinking": None,
        "context": None,
        "tested": None,
    }
    assert found == {
        "plain": unknown,
        "router": {
            **unknown,
            "tools": True,
            "vision": True,
            "thinking": True,
            "context": 128000,
        },
        "mistral": {**unknown, "tools": True, "vision": False, "context": 32768},
        "vllm": {**unknown, "context": 4096},
        "groq": {**unknown, "context": 8192},
    }


def test_ollama_tells_capabilities(typed: Typed) -> None:
    """Ollama's capabilities and window come with each model; an old server's are unknown."""
    with web(host) as server:
        found = listed(typed, "ollama", server.url)
    assert [found["qwen3:8b"][key] for key in ("tools", "vision", "thinking", "context")] == [
        True,
        False,
        True,
        40960,
    ]
    assert found["gemma3:latest"]["tools"] is False
    assert found["old:latest"]["tools"] is None


def test_gemini_is_read_to_the_last_page(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is read, models that do not generate are left out, the key goes in its own header."""
    monkeypatch.setenv("GEMINI_API_KEY", "g-key")
    with web(host) as server:
        found = listed(typed, "gemini", server.url)
        keys = {asked["headers"].get("x-goog-api-key") for asked in server.asked}
    assert list(found) == ["gemini-2.0-flash", "gemini-3-pro"]
    assert found["gemini-3-pro"]["thinking"] is True
    assert keys == {"g-key"}


def test_the_table_is_for_people(typed: Typed, here: Path) -> None:
    """The hosts of an agent are asked with its own keys; entries that ask nobody are named."""
    with web(host) as server:
        (here / "agent.yaml").write_text(
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
        done = typed("models", "list", "agent.yaml")
        asked = server.asked[-1]["headers"]
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["model", "tools", "vision", "thinking", "context", "tested"]
    assert ["qwen3:8b", "yes", "no", "yes", "40960", "-"] in lines
    assert ["plain", "?", "?", "?", "?", "-"] in lines
    assert "box (ollama): 3 models" in done.err
    assert "rehearsal (scripted): asks no host" in done.err
    assert {k.lower(): v for k, v in asked.items()}["x-team"] == "blue"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "name an agent or a provider"),
        (("quickstart", "--provider", "openai"), 2, "one of the two"),
        (("quickstart", "--base-url", "http://x"), 2, "goes with --provider"),
        (("--provider", "olama"), 2, "did you mean 'ollama'"),
        (
            ("--provider", "openai", "--base-url", "http://127.0.0.1:9/v1"),
            1,
            "could not be reached",
        ),
        (("--provider", "openai", "--base-url", "URL/html"), 1, "not answered with JSON"),
        (("--provider", "openai", "--base-url", "URL/nowhere"), 1, "HTTP 404"),
    ],
)
def test_mistakes_are_told(typed: Typed, words: tuple[str, ...], code: int, told: str) -> None:
    """Wrong usage is exit 2, a host that cannot answer is exit 1; one message, no traceback."""
    with web(host) as server:
        done = typed("models", "list", *(word.replace("URL", server.url) for word in words))
    assert (done.code, done.out) == (code, "")
    assert told in done.err
    assert "Traceback" not in done.err


def test_one_silent_host_does_not_hide_the_others(typed: Typed, here: Path) -> None:
    """Every host of an agent is asked; the one that is silent is named, and the exit code is 1."""
    with web(host) as server:
        llms = {
            "away": {"provider": "ollama", "base_url": "http://127.0.0.1:9"},
            "box": {"provider": "ollama", "base_url": server.url},
        }
        (here / "agent.yaml").write_text(json.dumps({"llms": llms, "responses": [{"llm": "box"}]}))
        done = typed("models", "list", "agent.yaml", "--json")
    assert done.code == 1
    assert {json.loads(line)["host"] for line in done.out.splitlines()} == {"box"}
    assert "away (ollama): connection" in done.err


def test_a_refused_key_is_not_printed(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that repeats the key in its refusal does not get it onto the screen."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789")

    def refusing(asked: dict[str, Any]) -> Answer:
        key = asked["headers"]["authorization"].removeprefix("Bearer ")
        body = {"error": {"message": f"Incorrect API key provided: {key}"}}
        return 401, {"content-type": "application/json"}, json.dumps(body).encode()

    with web(refusing) as server:
        done = typed("models", "list", "--provider", "openai", "--base-url", server.url)
    assert done.code == 1
    assert "auth (HTTP 401)" in done.err
    assert "sk-wrong" not in done.err
