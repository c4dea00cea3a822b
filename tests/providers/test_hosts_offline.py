"""Where hosts are, and the switch that keeps everything on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from toolchart.providers.registry import create_provider
from toolchart.providers.shared.addresses import OFFLINE, address_of, on_this_machine
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError


def entry(provider: str, **more: Any) -> LLMConfig:
    """An `llms` entry."""
    return LLMConfig.model_validate({"provider": provider, **more})


@pytest.mark.parametrize(
    ("provider", "address"),
    [
        ("openai", None),
        ("gemini", None),
        ("ollama", "http://10.0.0.7:11434"),
        ("openai", "https://x.org/v1"),
    ],
)
def test_offline_refuses_hosts_elsewhere(
    provider: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With TOOLCHART_OFFLINE=1 nothing is made that would leave this machine; the error says what to do."""
    monkeypatch.setenv(OFFLINE, "1")
    with pytest.raises(SpecError, match=r"TOOLCHART_OFFLINE=1 forbids") as caught:
        create_provider(entry(provider, base_url=address, api_key="k"), resolve=str)
    assert (address or "https://") in str(caught.value)
    assert "scripted" in str(caught.value)


@pytest.mark.parametrize(
    "made",
    [
        entry("openai", base_url="http://localhost:8000/v1"),
        entry("openai", base_url="http://127.0.0.1:1/v1"),
        entry("ollama"),
        entry("gemini", base_url="http://[::1]:9", api_key="k"),
        entry("scripted", replies=["x"]),
    ],
)
def test_offline_lets_this_machine_and_rehearsals_be(
    made: LLMConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts, recordings and servers on loopback are made as ever."""
    monkeypatch.setenv(OFFLINE, "1")
    assert create_provider(made, resolve=str).name == made.provider


def test_without_the_switch_hosts_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset, or `0`, the switch forbids nothing."""
    elsewhere = entry("openai", base_url="https://x.org/v1", api_key="k")
    assert create_provider(elsewhere, resolve=str).name == "openai"
    monkeypatch.setenv(OFFLINE, "0")
    assert create_provider(elsewhere, resolve=str).name == "openai"


def test_an_ambient_address_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDKs' own variables move a host, so they are looked at as well."""
    monkeypatch.setenv(OFFLINE, "1")
    monkeypatch.setenv("OLLAMA_HOST", "models.example.org")
    with pytest.raises(SpecError, match=r"models\.example\.org:11434"):
        create_provider(entry("ollama"), resolve=str)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:8/v1")
    assert create_provider(entry("openai", api_key="k"), resolve=str).name == "openai"


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
    """A bare host gets Ollama's port, as its SDK does it."""
    assert address_of(entry("ollama", base_url=host), str) == address


def test_names_that_look_local_are_not() -> None:
    """Loopback is an address or `localhost`, never a name that begins so."""
    assert on_this_machine("http://127.8.9.1")
    for address in (
        "http://127.0.0.1.evil.org",
        "http://localhost.evil.org",
        "https://10.0.0.1",
        "x",
    ):
        assert not on_this_machine(address)
