"""Tests of host addresses and of `TOOLCHART_OFFLINE=1`."""

from __future__ import annotations

from typing import Any

import pytest

from toolchart.providers.entries import OFFLINE_VARIABLE, is_local_address, resolve_address
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError


def build_config(provider: str, **more: Any) -> LLMConfig:
    """An `llms` entry."""
    return LLMConfig.model_validate({"provider": provider, **more})


@pytest.mark.parametrize(
    ("provider", "address"),
    [("openai", None), ("gemini", None), ("ollama", "http://10.0.0.7:11434"), ("openai", "https://x.org/v1")],
)
def test_offline_refuses_remote_hosts(
    provider: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TOOLCHART_OFFLINE=1 no provider of a remote host is created; the error says what to do."""
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    with pytest.raises(SpecError, match=r"TOOLCHART_OFFLINE=1 forbids") as caught:
        create_provider(build_config(provider, base_url=address, api_key="k"), resolve=str)
    assert (address or "https://") in str(caught.value)
    assert "scripted" in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        build_config("openai", base_url="http://localhost:8000/v1"),
        build_config("openai", base_url="http://127.0.0.1:1/v1"),
        build_config("ollama"),
        build_config("gemini", base_url="http://[::1]:9", api_key="k"),
        build_config("scripted", replies=["x"]),
    ],
)
def test_offline_allows_local_providers(config: LLMConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts, recordings and servers on loopback work in offline mode."""
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    assert create_provider(config, resolve=str).name == config.provider


def test_remote_hosts_are_allowed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the variable is unset or `0`, remote hosts are allowed."""
    remote = build_config("openai", base_url="https://x.org/v1", api_key="k")
    assert create_provider(remote, resolve=str).name == "openai"
    monkeypatch.setenv(OFFLINE_VARIABLE, "0")
    assert create_provider(remote, resolve=str).name == "openai"


def test_address_variables_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address from an SDK's own environment variable is checked too."""
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    monkeypatch.setenv("OLLAMA_HOST", "models.example.org")
    with pytest.raises(SpecError, match=r"models\.example\.org:11434"):
        create_provider(build_config("ollama"), resolve=str)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8/v1")
    assert create_provider(build_config("openai", api_key="k"), resolve=str).name == "openai"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("box", "http://box:11434"),
        ("box:80", "http://box:80"),
        ("http://box", "http://box"),
        ("https://box:1/", "https://box:1"),
    ],
)
def test_ollama_addresses_may_be_bare_hosts(host: str, address: str) -> None:
    """A bare host gets Ollama's scheme and port, as in its SDK."""
    assert resolve_address(build_config("ollama", base_url=host), str) == address


def test_similar_names_are_not_local() -> None:
    """Only a loopback IP or `localhost` is local, not a name that starts like one."""
    assert is_local_address("http://127.8.9.1")
    for address in ("http://127.0.0.1.evil.org", "http://localhost.evil.org", "https://10.0.0.1", "x"):
        assert not is_local_address(address)
