"""Tests of the profiles of OpenAI-compatible hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolchart.providers.openai.client import OpenAIProvider, OpenAISettings
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.host_rows import HOST_ROWS, find_profile
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply, Request, ToolDefinition


def create_adapter(**entry: Any) -> Any:
    """The provider of an entry."""
    config = LLMConfig.model_validate({"provider": "openai", "api_key": "k", **entry})
    return create_provider(config, resolve=lambda text: text)


def get_settings(provider: OpenAIProvider) -> OpenAISettings:
    """The settings of a provider."""
    return provider._settings


DOMAINS = sorted(
    domain
    for row in HOST_ROWS
    for domain in row.domains
    if row.provider in ("openai", "ollama") and row.list_settings() and not row.ended_on
)


@pytest.mark.parametrize("host", DOMAINS)
def test_every_profile_is_settings_of_an_entry(host: str) -> None:
    """S3.8: a host's profile holds for its subdomains too, and an entry's own keys override it."""
    own: Mapping[str, Any] = find_profile(host)
    assert own
    provider = create_adapter(base_url=f"https://{'' if ':' in host else 'x.'}{host}/v1")
    for key, value in own.items():
        setting = getattr(get_settings(provider), key)
        assert (list(setting) if isinstance(setting, tuple) else setting) == value
    assert find_profile(f"not{host}") == {}
    other = create_adapter(
        base_url=f"https://{host}/v1", echo_reasoning="never", max_tokens_name="max_tokens"
    )
    assert get_settings(other).echo_reasoning == "never"
    assert get_settings(other).max_tokens_name == "max_tokens"


def test_the_default_address_selects_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default address, or the SDK's address variable, selects the profile."""
    assert get_settings(create_adapter()).max_tokens_name == "max_completion_tokens"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.mistral.ai/v1")
    assert get_settings(create_adapter()).max_tokens_name == "max_tokens"


def test_refused_options_are_left_out() -> None:
    """An option that the host refuses is not sent, and the reply has a warning."""
    provider = create_adapter(base_url="https://api.cerebras.ai/v1")
    request = Request(
        model="m",
        messages=[],
        tools=(ToolDefinition(name="a", description="A"),),
        options={"parallel_tool_calls": False, "temperature": 0},
    )
    body = provider.build_body(request, stream=False)
    assert "parallel_tool_calls" not in body
    assert body["temperature"] == 0
    warnings = provider.list_warnings(request, Reply(finish_reason="stop"))
    assert warnings == ["parallel_tool_calls: this host refuses it, so it was left out"]
