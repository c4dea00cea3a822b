"""Sign-in at Vertex AI through google-auth: a token of the library's own kind goes to the host."""

from __future__ import annotations

import json
from typing import Any

import google.auth
import pytest
from cloud_credentials import GOOGLE_TOKEN, FakeGoogleCredential
from host_answers import WHOLE_BODIES
from web import WebAnswer, serve_web
from wire_requests import QUESTION

from toolchart.providers.registry import create_body_builder, create_provider
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Request

REQUEST = Request(model="gpt", messages=[QUESTION])


def answer_with(wire: str) -> Any:
    """A host of this wire."""

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/json"}, json.dumps(WHOLE_BODIES[wire]).encode()

    return answer


def make_vertex_entry(address: str) -> LLMConfig:
    """An entry that signs in by google-auth."""
    vertex = {"project": "harbour", "location": "europe-west4"}
    return LLMConfig.model_validate({"provider": "gemini", "base_url": address, "vertex": vertex})


async def test_vertex_signs_in_by_google_auth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15, build 7: with `vertex` the request goes to the model's address in the project, with the token
    of google-auth and without a key; replay builds the same body."""
    monkeypatch.setattr(google.auth, "default", lambda **_: (FakeGoogleCredential(), "other"))
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-the-environment")
    with serve_web(answer_with("gemini")) as server:
        entry = make_vertex_entry(f"http://127.0.0.1:{server.port}")
        provider = create_provider(entry, resolve=str)
        assert (await provider.complete(REQUEST)).content == "Hello there"
        sent = server.requests[0]
        headers = {key.lower(): value for key, value in sent["headers"].items()}
        assert headers["authorization"] == f"Bearer {GOOGLE_TOKEN}"
        assert "x-goog-api-key" not in headers
        place = "/v1beta1/projects/harbour/locations/europe-west4/publishers/google/models/gpt"
        assert sent["path"] == f"{place}:generateContent"
        builder = create_body_builder(entry, resolve=str)
        assert builder.build_body(REQUEST, stream=False) == provider.build_body(REQUEST, stream=False)
        await provider.aclose()


async def test_vertex_counts_the_contents_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vertex's counter takes contents, instructions, tools and configuration, not a request around them."""
    monkeypatch.setattr(google.auth, "default", lambda **_: (FakeGoogleCredential(), "other"))

    def count(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/json"}, b'{"totalTokens": 77}'

    with serve_web(count) as server:
        entry = make_vertex_entry(f"http://127.0.0.1:{server.port}").model_copy(
            update={"count_tokens": "host"}
        )
        provider = create_provider(entry, resolve=str)
        request = Request(
            model="gpt", messages=[Message(role="system", content="Be brief."), QUESTION], options={"seed": 1}
        )
        assert await provider.count_tokens(request) == 77  # type: ignore[attr-defined]
        await provider.aclose()
        sent = server.requests[0]
    assert sent["path"].endswith("/publishers/google/models/gpt:countTokens")
    assert json.loads(sent["body"]).keys() == {"contents", "systemInstruction", "generationConfig"}


async def test_a_token_of_google_is_struck_where_the_host_quotes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that quotes the token in its refusal, also one that was renewed, does not bring it further."""
    credential = FakeGoogleCredential()
    monkeypatch.setattr(google.auth, "default", lambda **_: (credential, "other"))

    def refuse(_: dict[str, Any]) -> WebAnswer:
        said = f"whoever sent {credential.token} is not allowed here"
        error = {"error": {"code": 403, "message": said, "status": "PERMISSION_DENIED"}}
        return 403, {"content-type": "application/json"}, json.dumps(error).encode()

    with serve_web(refuse) as server:
        provider = create_provider(make_vertex_entry(f"http://127.0.0.1:{server.port}"), resolve=str)
        for token in ("quoted-token-of-google-0123456789", "renewed-token-of-google-0123456789"):
            credential.token = token
            with pytest.raises(ProviderError, match="is not allowed here") as raised:
                await provider.complete(REQUEST)
            assert token not in strike_secrets(f"{raised.value}; later: {token}")
        await provider.aclose()


PATHS = [
    (False, "gemini-3", "/v1beta/models/gemini-3"),
    (False, "models/gemini-3", "/v1beta/models/gemini-3"),
    (False, "tunedModels/mine", "/v1beta/tunedModels/mine"),
    (False, "a b?c", "/v1beta/models/a%20b%3Fc"),
    (True, "gemini-3", "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3"),
    (True, "maker/model@1", "/v1beta1/projects/p/locations/global/publishers/maker/models/model@1"),
    (True, "publishers/m/models/x", "/v1beta1/projects/p/locations/global/publishers/m/models/x"),
]
"""Whether on Vertex AI, the name of a model, and the path before the method."""


@pytest.mark.parametrize(("on_vertex", "model", "path"), PATHS)
async def test_a_model_of_google_is_called_at_its_path(
    on_vertex: bool, model: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model stands in the path with its collection, as Google's SDK writes it, and cannot leave it."""
    monkeypatch.setattr(google.auth, "default", lambda **_: (FakeGoogleCredential(), "other"))
    keys = {"vertex": {"project": "p"}} if on_vertex else {"api_key": "k"}
    with serve_web(answer_with("gemini")) as server:
        entry = LLMConfig.model_validate({"provider": "gemini", "base_url": server.url, **keys})
        provider = create_provider(entry, resolve=str)
        await provider.complete(Request(model=model, messages=[QUESTION]))
        with pytest.raises(ProviderError, match="is no name of a model"):
            await provider.complete(Request(model="../../v1/files", messages=[QUESTION]))
        await provider.aclose()
    assert [request["path"] for request in server.requests] == [f"{path}:generateContent"]
