"""Tests of the profiles of OpenAI-compatible hosts, and of Azure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from cassette_server import CassetteServer
from msgspec.structs import replace
from recorded_traffic import find_recording, list_cassette_paths
from reply_comparison import drop_digest

from toolchart.providers.openai.client import OpenAIProvider, OpenAISettings
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.player import read_recorded_reply
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.host_rows import HOST_ROWS, find_profile
from toolchart.providers.transport.limits import read_rate_limits
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition

AZURE = [
    path
    for path in list_cassette_paths()
    if path.startswith("cassettes/azure-openai/")
    if all("/deployments/" in exchange.uri for exchange in read_cassette(find_recording(path)))
]
"""Cassettes with deployments only. Others go through `/models` of AI services, which is an `openai` entry
with a `base_url`, or through Responses."""


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
    if row.provider in ("openai", "azure", "ollama") and row.list_settings() and not row.ended_on
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


@pytest.mark.parametrize("path", AZURE)
def test_recorded_azure_traffic(path: str) -> None:
    """Azure's client sends deployment and API version in the address; its answers are decoded, with
    what their headers say about limits."""
    exchanges = [exchange for exchange in read_cassette(find_recording(path)) if exchange.endpoint == "chat"]
    with CassetteServer(find_recording(path), match="order") as server:
        provider = create_adapter(provider="azure", base_url=server.url, api_version="2024-06-01")
        outcomes = asyncio.run(_send_requests(provider, [exchange.is_streamed for exchange in exchanges]))
        assert [drop_digest(outcome) for outcome in outcomes] == [
            _find_expected_outcome(exchange) for exchange in exchanges
        ]
        for http_request in server.requests:
            assert http_request["path"] == "/openai/deployments/dep/chat/completions?api-version=2024-06-01"
            assert json.loads(http_request["body"])["model"] == "dep"


def _find_expected_outcome(exchange: Exchange) -> Reply | str:
    try:
        limits = read_rate_limits(exchange.headers)
        return replace(read_recorded_reply(exchange), rate_limits=limits or None)
    except ProviderError as error:
        return error.kind


async def _send_requests(provider: Any, stream_flags: list[bool]) -> list[Any]:
    request = Request(model="dep", messages=[Message(role="user", content="hi")])
    return [await _send_request(provider, request, is_stream) for is_stream in stream_flags]


async def _send_request(provider: Any, request: Request, is_stream: bool) -> Any:
    try:
        if not is_stream:
            return await provider.complete(request)
        return [piece async for piece in provider.stream(request)][-1]
    except ProviderError as error:
        return error.kind


def test_azure_without_an_endpoint_says_what_is_missing() -> None:
    """An entry without an endpoint is refused, and the error says how to give one."""
    with pytest.raises(SpecError, match=r"openai\.azure\.com"):
        create_adapter(provider="azure")
    assert (
        create_adapter(provider="azure", base_url="https://x.openai.azure.com", deployment="d").name
        == "openai"
    )
