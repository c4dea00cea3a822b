"""A redirect to another origin gets nothing: no conversation, no key, no text to embed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from host_answers import WHOLE_BODIES
from web import WebAnswer, serve_web
from wire_requests import LIBRARY_ENTRIES, QUESTION, WIRE_ENTRIES, make_config

from toolchart.providers.catalogs import HostEmbedder, list_models
from toolchart.providers.registry import create_provider
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Request

REDIRECTS = [
    *((name, "whole", status) for name in LIBRARY_ENTRIES for status in (301, 302, 303, 308)),
    *((name, form, 307) for name in WIRE_ENTRIES for form in ("whole", "stream")),
    *((name, "count", 307) for name in ("openai responses", "gemini", "anthropic", "bedrock")),
]
"""Every status for each HTTP library, and one on every wire, whole, streamed and counted."""

JSON_TYPE = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials with which Bedrock's requests are signed."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")


def make_keyed_config(name: str, address: str) -> Any:
    """The entry of that name, with a key where it takes one."""
    return make_config(name, address, **({} if name == "bedrock" else {"api_key": "planted-key"}))


def ask(name: str, address: str, form: str) -> Any:
    """The reply of the host of an entry to a question."""

    async def run() -> Any:
        config = make_keyed_config(name, address)
        if form == "count":
            config = config.model_copy(update={"count_tokens": "host"})
        provider: Any = create_provider(config, resolve=str)
        request = Request(model="m", messages=(QUESTION,))
        try:
            if form == "count":
                return await provider.count_tokens(request)
            if form == "stream":
                return [item async for item in provider.stream(request)][-1]
            return await provider.complete(request)
        finally:
            await provider.aclose()

    return asyncio.run(run())


@pytest.mark.parametrize(("name", "form", "status"), REDIRECTS)
def test_a_redirect_to_another_origin_is_refused(name: str, form: str, status: int) -> None:
    """S8.4: no wire follows a host to another origin; the error names both origins and no key, and is not
    retryable."""
    with serve_web(lambda _: (200, JSON_TYPE, b"{}")) as stranger:
        target = f"{stranger.url}/v1/other?key=planted-key"
        with (
            serve_web(lambda _: (status, {"location": target}, b"")) as host,
            pytest.raises(ProviderError) as caught,
        ):
            ask(name, host.url, form)
    assert len(host.requests) == 1
    assert stranger.requests == []
    error = caught.value
    assert (error.kind, error.retryable, error.status) == ("connection", False, status)
    assert f"{host.url} redirects to {stranger.url}," in error.message
    assert "planted-key" not in error.message


@pytest.mark.parametrize(
    "location", ["//other.invalid/v1", "https://127.0.0.1/v1", "http://[bad", "ftp://x/"]
)
def test_other_spellings_of_another_origin_are_refused(location: str) -> None:
    """S8.4: an address without a scheme, with another scheme or port, or none at all is not the host's."""
    with (
        serve_web(lambda _: (307, {"location": location}, b"")) as host,
        pytest.raises(ProviderError) as caught,
    ):
        ask("openai", host.url, "whole")
    assert caught.value.kind == "connection"
    assert "which is another origin" in caught.value.message


@pytest.mark.parametrize("name", ["openai", "openai responses", "gemini", "ollama"])
def test_a_redirect_within_the_host_is_followed(name: str) -> None:
    """S8.4: a host may move a request to another path of its own, where the SDK follows it."""
    endpoints = {"openai responses": "responses", "gemini": "gemini", "ollama": "ollama"}
    body = json.dumps(WHOLE_BODIES[endpoints.get(name, "chat")]).encode()

    def answer(request: dict[str, Any]) -> WebAnswer:
        if request["path"].startswith("/moved"):
            return 200, JSON_TYPE, body
        return 307, {"location": "/moved"}, b""

    with serve_web(answer) as host:
        reply = ask(name, host.url, "whole")
    assert reply.finish_reason == "tool_calls"
    assert [request["path"].startswith("/moved") for request in host.requests] == [False, True]


def test_lists_and_embeddings_are_not_redirected() -> None:
    """S8.4: a list of models and texts to embed go to the host of the entry alone."""
    with (
        serve_web(lambda _: (200, JSON_TYPE, b"{}")) as stranger,
        serve_web(lambda _: (307, {"location": stranger.url}, b"")) as host,
    ):
        config = make_keyed_config("openai", host.url)
        with pytest.raises(ProviderError, match="which is another origin"):
            list_models(config, str)
        with pytest.raises(ProviderError, match="which is another origin"):
            HostEmbedder(config, "m", str).embed(["secret text"])
    assert stranger.requests == []
