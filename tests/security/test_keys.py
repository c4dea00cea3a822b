"""Fault 6: a key is found nowhere but at its own host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_runs import RunCli
from planted_key import KEY, find_key
from web import WebAnswer, serve_web

from toolchart.providers.entries import find_api_key
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import resolve_environment


def echo_key(request: dict[str, Any]) -> WebAnswer:
    """A host that quotes the key of a request in its error, or in its reply."""
    key = request["headers"].get("authorization", "") + request["headers"].get("Authorization", "")
    headers = {"content-type": "application/json"}
    if b"friendly" in request["body"]:
        message = {"role": "assistant", "content": f"I got {key}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return 200, headers, json.dumps({"id": "1", "model": "m", "choices": [choice]}).encode()
    return 401, headers, json.dumps({"error": {"message": f"the key {key} is wrong"}}).encode()


@pytest.mark.slow
def test_a_host_that_echoes_the_key_leaves_it_nowhere(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Database, exports, doctor and every output are free of a key that the host gave back."""
    monkeypatch.setenv("BOX_KEY", KEY)
    with serve_web(echo_key) as web:
        spec = {
            "llms": {"box": {"provider": "openai", "base_url": f"{web.url}/v1", "api_key": "${BOX_KEY}",
                             "model": "m"}},
            "responses": [{"llm": "box", "prompt": "x"}],
        }  # fmt: skip
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
        outputs = []
        for words in (
            ("run", "agent.yaml", "hello", "--conversation", "a"),
            ("run", "agent.yaml", "friendly", "--verbose"),
            ("run", "agent.yaml", "friendly", "--json", "--conversation", "b"),
            ("doctor", "agent.yaml"),
            *(("doctor", "agent.yaml", "--json"), ("show", "a"), ("show", "b", "--json"), ("runs", "--json")),
            *(("export", "b"), ("export", "b", "--format", "jsonl"), ("replay", "b")),
            *(("verify",), ("show", "b", "-n", "9", "--json"), ("models", "list", "agent.yaml")),
        ):
            result = run_cli(*words)
            outputs += [result.out, result.err]
        assert any("(secret)" in text for text in outputs)
        assert len(web.requests) >= 4
    assert find_key(tmp_path, *outputs) == []


@pytest.mark.parametrize(
    ("provider", "variable", "own"),
    [
        ("openai", "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
        ("gemini", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com"),
        ("ollama", "OLLAMA_API_KEY", "https://ollama.com"),
    ],
)
def test_no_ambient_key_goes_to_a_foreign_host(
    monkeypatch: pytest.MonkeyPatch, provider: str, variable: str, own: str
) -> None:
    """The key of the environment goes to its own host, and to no other that an entry names."""
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv(variable, KEY)

    def resolve(text: str) -> str:
        return resolve_environment(text, "test")

    def find(address: str | None, key: str | None = None) -> str | None:
        return find_api_key(LLMConfig(provider=provider, base_url=address, api_key=key), resolve)

    assert find(None) == KEY
    assert find(own) == KEY
    lookalike = own.removesuffix("/v1") + ".evil.example"
    for address in ("https://evil.example/v1", lookalike, "http://127.0.0.1:1/v1"):
        if provider == "ollama" and "127.0.0.1" in address:
            continue
        assert find(address) is None
        assert find(address, f"${{{variable}}}") == KEY


@pytest.mark.parametrize(
    ("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("ollama", "OLLAMA_API_KEY")]
)
def test_no_sdk_sends_the_ambient_key_by_itself(
    tmp_path: Path, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, provider: str, variable: str
) -> None:
    """A foreign host gets no key over the wire, whatever the SDK would read."""
    with serve_web(lambda request: (500, {}, b"{}")) as web:
        address = web.url.replace("127.0.0.1", "localhost")
        spec = {"llms": {"box": {"provider": provider, "base_url": address, "model": "m"}},
                "responses": [{"llm": "box", "prompt": "x"}]}  # fmt: skip
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(spec), "utf-8")
        monkeypatch.setenv(variable, KEY)
        run_cli("run", "agent.yaml", "hello")
        assert web.requests
        assert KEY not in str(web.requests)
