"""Hosts that speak like OpenAI: what each does its own way, as data; and Azure, which has another address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from recorded import RECORDED, index, needs_recorded, replayer

from toolchart.providers.openai.client import OpenAIProvider, OpenAISettings
from toolchart.providers.openai.compatible_hosts import _profiles, profile_of
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.recorded_calls import reply_of
from toolchart.providers.registry import create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Message, Reply, Request, ToolDefinition

AZURE = [
    entry["file"]
    for entry in index()
    if entry["kind"] == "cassette" and entry["file"].startswith("cassettes/azure-openai/")
    if all("/deployments/" in one.uri for one in read_cassette(RECORDED / entry["file"]))
]
"""Cassettes of deployments alone. Others go through `/models` of AI services, which is an `openai` entry
with a `base_url`, or through Responses."""


def made(**entry: Any) -> Any:
    """The provider of an entry."""
    config = LLMConfig.model_validate({"provider": "openai", "api_key": "k", **entry})
    return create_provider(config, resolve=lambda text: text)


def settings_of(provider: OpenAIProvider) -> OpenAISettings:
    """What a provider goes by."""
    return provider._settings


@pytest.mark.parametrize("host", sorted(_profiles()))
def test_every_profile_is_settings_of_an_entry(host: str) -> None:
    """S3.8: a host's profile holds for its names, and an entry's own keys go before."""
    own: Mapping[str, Any] = profile_of(host)
    assert own
    provider = made(base_url=f"https://x.{host}/v1")
    for key, value in own.items():
        found = getattr(settings_of(provider), key)
        assert (list(found) if isinstance(found, tuple) else found) == value
    assert profile_of(f"not{host}") == {}
    other = made(
        base_url=f"https://{host}/v1", echo_reasoning="never", max_tokens_name="max_tokens"
    )
    assert settings_of(other).echo_reasoning == "never"
    assert settings_of(other).max_tokens_name == "max_tokens"


def test_without_an_address_it_is_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own address counts too."""
    assert settings_of(made()).max_tokens_name == "max_completion_tokens"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.mistral.ai/v1")
    assert settings_of(made()).max_tokens_name == "max_tokens"


def test_what_a_host_refuses_is_left_out_and_told() -> None:
    """An option that a host answers with an error is not sent, and the reply says so."""
    provider = made(base_url="https://api.cerebras.ai/v1")
    request = Request(
        model="m",
        messages=[],
        tools=(ToolDefinition(name="a", description="A"),),
        options={"parallel_tool_calls": False, "temperature": 0},
    )
    body = provider._body(request)
    assert "parallel_tool_calls" not in body
    assert body["temperature"] == 0
    told = provider._told(request, Reply(finish_reason="stop"))
    assert told.warnings == ("parallel_tool_calls: this host refuses it, so it was left out",)


@needs_recorded
@pytest.mark.parametrize("path", AZURE)
def test_recorded_azure_traffic(path: str) -> None:
    """Azure's answers through its own client: the deployment stands in the path, the version beside it."""
    exchanges = [one for one in read_cassette(RECORDED / path) if one.endpoint == "chat"]
    with replayer().CassetteServer(RECORDED / path, match="order") as server:
        provider = made(provider="azure", base_url=server.url, api_version="2024-06-01")
        found = asyncio.run(_answers(provider, [one.streamed for one in exchanges]))
        assert found == [_expected(exchange) for exchange in exchanges]
        for sent in server.requests:
            assert sent["path"] == "/openai/deployments/dep/chat/completions?api-version=2024-06-01"
            assert json.loads(sent["body"])["model"] == "dep"


def _expected(exchange: Exchange) -> Reply | str:
    try:
        return reply_of(exchange)
    except ProviderError as error:
        return error.kind


async def _answers(provider: Any, streamed: list[bool]) -> list[Any]:
    request = Request(model="dep", messages=[Message(role="user", content="hi")])
    return [await _answer(provider, request, one) for one in streamed]


async def _answer(provider: Any, request: Request, streamed: bool) -> Any:
    try:
        if not streamed:
            return await provider.complete(request)
        return [piece async for piece in provider.stream(request)][-1]
    except ProviderError as error:
        return error.kind


def test_azure_without_an_endpoint_says_what_is_missing() -> None:
    """No endpoint anywhere: one clear error with both ways to give it."""
    with pytest.raises(SpecError, match=r"openai\.azure\.com"):
        made(provider="azure")
    assert (
        made(provider="azure", base_url="https://x.openai.azure.com", deployment="d").name
        == "openai"
    )
