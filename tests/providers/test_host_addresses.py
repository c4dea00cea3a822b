"""The base address of a model host in every form in which people write and copy it."""

from __future__ import annotations

from typing import Any

import pytest
from counting_host import TEXT, serve_counting_host

from toolchart.engine import Engine
from toolchart.providers.entries import find_api_key, resolve_address
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError

ENDINGS: dict[str, tuple[str, dict[str, Any], str, tuple[str, ...]]] = {
    "openai": (
        "OPENAI_BASE_URL",
        {},
        "/v1/chat/completions",
        (
            "/v1",
            "/v1/",
            "/V1//",
            "/v1/chat/completions",
            "/v1/Chat/Completions/",
            "/v1/responses",
            "/v1/embeddings",
        ),
    ),
    "responses": ("OPENAI_BASE_URL", {"api": "responses"}, "/v1/responses", ("/v1", "/v1/responses/")),
    "ollama": (
        "OLLAMA_HOST",
        {},
        "/api/chat",
        ("", "/", "/api", "/API/", "/api/chat", "/api/generate/", "/v1", "/v1/", "/v1/chat/completions"),
    ),
    "anthropic": (
        "ANTHROPIC_BASE_URL",
        {},
        "/v1/messages",
        ("", "/", "/v1", "/V1/", "/v1/messages", "/v1/Messages/", "/v1/models"),
    ),
    "gemini": (
        "GOOGLE_GEMINI_BASE_URL",
        {},
        "/v1beta/models/m:generateContent",
        ("", "/", "/v1beta", "/V1Beta/", "/v1beta/models", "/v1beta/models/gemini-2.5-flash:generateContent"),
    ),
    "gemini v1": (
        "GOOGLE_GEMINI_BASE_URL",
        {"api_version": "v1"},
        "/v1/models/m:generateContent",
        ("", "/v1", "/v1/models/"),
    ),
    "bedrock": (
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        {"region": "eu-west-1"},
        "/model/m/converse",
        ("", "/", "/model", "/model/x/converse"),
    ),
}
"""By provider: its variable, further keys, the path that must arrive, and endings that mean it."""

CASES = [
    (name, ending, prefix) for name, row in ENDINGS.items() for ending in row[3] for prefix in ("", "/gate")
]


@pytest.mark.parametrize("place", ["entry", "variable"])
def test_no_form_of_an_address_sends_a_path_twice(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an address ends in, with a slash or not, in whichever case, behind a gateway's prefix, in the
    entry or in the variable of its SDK: the request arrives at the path of the API, once."""
    for name, ending, prefix in CASES:
        variable, keys, path, _ = ENDINGS[name]
        provider = {"responses": "openai", "gemini v1": "gemini"}.get(name, name)
        with serve_counting_host() as host:
            entry = {"provider": provider, "model": "m", "api_key": "k", **keys}
            if place == "entry":
                entry["base_url"] = host.address + prefix + ending
            else:
                monkeypatch.setenv(variable, host.address + prefix + ending)
            spec = {"chart": "tool_loop", "llms": {"a": entry}, "responses": [{"llm": "a"}]}
            with Engine(spec, log="memory") as engine:
                assert engine.run("hi").content == TEXT, (name, ending)
            assert host.paths == [prefix + path], (name, ending)


@pytest.mark.parametrize(
    ("provider", "address", "words"),
    [
        ("openai", "127.0.0.1:8000/v1", "no address of a model host"),
        ("openai", "ftp://host/v1", "no address of a model host"),
        ("openai", "http:///v1", "no address of a model host"),
        ("openai", "http://host:port/v1", "no address of a model host"),
        ("openai", "http://[::1/v1", "no address of a model host"),
        ("openai", "https://host/v1?api-version=preview", "no query"),
        ("openai", "https://host/v1#top", "no fragment"),
        ("openai", "https://host/v1/messages", "`provider: anthropic`"),
        ("openai", "https://host/api/chat", "`provider: ollama`"),
        ("openai", "https://host/v1beta/models/m:generateContent", "`provider: gemini`"),
        ("openai", "https://host/model/m/converse", "`provider: bedrock`"),
        ("anthropic", "https://host/v1/chat/completions", "`provider: openai`"),
        ("anthropic", "https://host/openai/v1", "`provider: openai`"),
        ("ollama", "http://host:11434/v1/messages", "`provider: anthropic`"),
        ("gemini", "https://host/v1beta/openai/", "`provider: openai`"),
        ("gemini", "https://host/v1", "`api_version: v1`"),
        ("bedrock", "https://host/openai/v1", "`provider: openai`"),
    ],
)
def test_an_address_that_cannot_be_meant_is_an_error(provider: str, address: str, words: str) -> None:
    """What is no address, or that of another API, is refused before any request, with what to write."""
    entry = LLMConfig.model_validate(
        {"provider": provider, "model": "m", "api_key": "k", "base_url": address}
    )
    with pytest.raises(SpecError) as caught:
        create_provider(entry, resolve=str)
    assert words in str(caught.value)
    assert "base_url" in str(caught.value)


def test_an_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the address comes from the environment, the error says from which variable."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://host/v1/chat/completions")
    with pytest.raises(SpecError, match="ANTHROPIC_BASE_URL"):
        resolve_address(LLMConfig(provider="anthropic", model="m"), str)


def test_the_addresses_of_hosts_stay_as_they_are() -> None:
    """No path that a host has of its own is cut off: those of the table of hosts, gateways and other ends."""
    from toolchart.providers.shared.host_rows import HOST_ROWS

    own_addresses = {
        address
        for row in HOST_ROWS
        for address in (row.base_url, row.chat_url)
        if address and (row.provider == "openai")
    }
    others = {"https://host/api", "https://x.services.ai.azure.com/models", "https://gate/deepseek/v3"}
    for address in sorted(own_addresses | others):
        assert resolve_address(LLMConfig(provider="openai", base_url=address), str) == address.rstrip("/")


KEYED = [
    ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ("openai", "http://api.openai.com/v1", None),
    ("openai", "https://api.openai.com.other.test/v1", None),
    ("openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    ("openai", "https://generativelanguage.googleapis.com/v1beta/openai", None),
    ("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("anthropic", "http://api.anthropic.com", None),
    ("anthropic", "https://api.mistral.ai", None),
    ("gemini", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
    ("ollama", "https://ollama.com", "OLLAMA_API_KEY"),
    ("ollama", "http://ollama.com", None),
    ("ollama", "http://127.0.0.1:9999", "OLLAMA_API_KEY"),
    ("ollama", "http://other.test:11434", None),
    ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", None),
]
"""A provider, the address of its entry, and the variable whose key goes there."""


@pytest.mark.parametrize(("provider", "address", "variable"), KEYED)
def test_a_key_of_the_environment_goes_to_its_host_alone(
    provider: str, address: str, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that an entry writes gets the key of the host that it belongs to, for the wire of its
    provider; a stranger's gets none, nor does any over plain HTTP but this machine."""
    for name in ("OPENAI", "MISTRAL", "ANTHROPIC", "GEMINI", "OLLAMA"):
        monkeypatch.setenv(f"{name}_API_KEY", f"key-of-{name}_API_KEY")
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "key-of-bedrock")
    key = find_api_key(LLMConfig.model_validate({"provider": provider, "base_url": address}), str)
    assert key == (variable and f"key-of-{variable}")
