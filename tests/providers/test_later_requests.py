"""Later requests of OpenAI's SDK, which are sent without it, are those that it would send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from host_answers import WHOLE_BODIES, encode_stream
from web import WebAnswer, serve_web
from wire_requests import QUESTION, make_config

from toolchart.providers.registry import create_provider
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Request

ENTRIES = ("openai", "openai responses")
REQUEST = Request(model="m", messages=[QUESTION])
JSON = {"content-type": "application/json"}


def answer_request(request: dict[str, Any]) -> WebAnswer:
    """A reply in the wire format of the path, as a stream where one is requested."""
    endpoint = "responses" if "/responses" in request["path"] else "chat"
    if json.loads(request["body"]).get("stream"):
        content_type, body = encode_stream(endpoint)
        return 200, {"content-type": content_type}, body
    return 200, JSON, json.dumps(WHOLE_BODIES[endpoint]).encode()


async def call(provider: Any, is_streamed: bool) -> Any:
    """The reply, whole or streamed."""
    if not is_streamed:
        return await provider.complete(REQUEST)
    return [item async for item in provider.stream(REQUEST)][-1]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_later_requests_are_as_the_first(entry: str, is_streamed: bool) -> None:
    """Issue 15.7: address, headers and body of the second and third request are those of the first, which
    the SDK made; a longer body has its own length; replies are the same."""
    with serve_web(answer_request) as server:
        provider: Any = create_provider(
            make_config(entry, server.url, api_key="key-of-the-test", headers={"x-own": "yes"}), resolve=str
        )
        replies = [await call(provider, is_streamed) for _ in range(3)]
        longer = Request(model="m", messages=[QUESTION, QUESTION])
        await provider.complete(longer)
        await provider.aclose()
    first, *others, last = server.requests
    assert replies[0] == replies[1] == replies[2]
    for request in others:
        assert request == first
    assert int(last["headers"]["Content-Length"]) == len(last["body"]) > 0
    assert "yes" in first["headers"].values()


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_a_later_refusal_is_as_a_first_one(entry: str, is_streamed: bool) -> None:
    """Kind, message, status, wait and digest of a refusal do not depend on which request it answers; after it
    the host answers again."""
    refusal = {"error": {"message": "slow down", "type": "tokens", "code": "rate_limit_exceeded"}}
    refuses = [True, False, True, False]

    def answer(request: dict[str, Any]) -> WebAnswer:
        if refuses[len(server.requests) - 1]:
            return 429, {**JSON, "retry-after": "7"}, json.dumps(refusal).encode()
        return answer_request(request)

    failures = []
    with serve_web(answer) as server:
        provider: Any = create_provider(make_config(entry, server.url, api_key="k"), resolve=str)
        for _ in range(2):
            with pytest.raises(ProviderError) as raised:
                await call(provider, is_streamed)
            failures.append(raised.value)
            assert (await call(provider, is_streamed)).content == "Hello there"
        await provider.aclose()
    first, later = (
        (error.kind, error.message, error.status, error.retryable, error.retry_after_s, error.wire_digest)
        for error in failures
    )
    assert first == later
    assert first[:5] == ("rate_limited", "slow down", 429, True, 7)


@pytest.mark.parametrize("data", [b"<html>", b""], ids=["no JSON", "empty"])
async def test_a_later_answer_that_is_no_json_is_a_failed_call(data: bytes) -> None:
    """A success that cannot be read is `bad_response`, as the first one would be."""

    def answer(request: dict[str, Any]) -> WebAnswer:
        return answer_request(request) if len(server.requests) == 1 else (200, JSON, data)

    with serve_web(answer) as server:
        provider: Any = create_provider(make_config("openai", server.url, api_key="k"), resolve=str)
        await provider.complete(REQUEST)
        with pytest.raises(ProviderError) as raised:
            await provider.complete(REQUEST)
        await provider.aclose()
    assert raised.value.kind == "bad_response"


async def test_a_host_that_went_away_is_a_failed_connection() -> None:
    """A later request to a host that is gone is `connection`, retryable."""
    with serve_web(answer_request) as server:
        provider: Any = create_provider(make_config("openai", server.url, api_key="k"), resolve=str)
        await provider.complete(REQUEST)
    with pytest.raises(ProviderError) as raised:
        await provider.complete(REQUEST)
    assert (raised.value.kind, raised.value.retryable) == ("connection", True)
    await provider.aclose()
