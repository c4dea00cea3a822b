"""The list of models that needs more than a key: what Google publishes on Vertex AI."""

from __future__ import annotations

import json
from typing import Any

import google.auth
import google.auth.exceptions
import pytest
from cloud_credentials import GOOGLE_TOKEN, FakeGoogleCredential
from web import WebAnswer, serve_web

from toolchart.providers.catalogs import list_models
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError, SpecError

JSON = {"content-type": "application/json"}


def make_vertex_entry(address: str | None, location: str = "europe-west4") -> LLMConfig:
    """An entry for Vertex AI."""
    vertex = {"project": "harbour", "location": location}
    return LLMConfig.model_validate({"provider": "gemini", "base_url": address, "vertex": vertex})


def test_vertex_lists_what_google_publishes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15, build 7: the models that Google publishes, over all pages, with the token of google-auth and
    the project that pays, and without the key of the environment."""
    credential = FakeGoogleCredential("payer")
    monkeypatch.setattr(google.auth, "default", lambda **_: (credential, "other"))
    monkeypatch.setenv("GEMINI_API_KEY", "key-of-the-environment")

    def answer(request: dict[str, Any]) -> WebAnswer:
        is_last = "pageToken=t2" in request["path"]
        name = "second" if is_last else "first"
        page = {"publisherModels": [{"name": f"publishers/google/models/{name}", "versionId": "001"}]}
        return 200, JSON, json.dumps(page | ({} if is_last else {"nextPageToken": "t2"})).encode()

    with serve_web(answer) as server:
        assert [model.name for model in list_models(make_vertex_entry(server.url), str)] == [
            "first",
            "second",
        ]
        sent = server.requests
    assert sent[0]["path"] == "/v1beta1/publishers/google/models"
    for request in sent:
        headers = {name.lower(): value for name, value in request["headers"].items()}
        assert headers["authorization"] == f"Bearer {GOOGLE_TOKEN}"
        assert headers["x-goog-user-project"] == "payer"
        assert "x-goog-api-key" not in headers
    assert GOOGLE_TOKEN not in strike_secrets(f"a {GOOGLE_TOKEN} b")


def test_vertex_signed_out_or_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody signed in is `auth`, and nothing is sent; a location that is none is refused, since it would be
    part of an address."""

    def refuse(**_: Any) -> Any:
        raise google.auth.exceptions.DefaultCredentialsError("nobody is signed in")

    monkeypatch.setattr(google.auth, "default", refuse)
    with serve_web(lambda _: (200, JSON, b"{}")) as server:
        with pytest.raises(ProviderError, match="nobody is signed in") as raised:
            list_models(make_vertex_entry(server.url), str)
        assert raised.value.kind == "auth"
        assert not server.requests
    with pytest.raises(SpecError, match="no location of Vertex AI"):
        list_models(make_vertex_entry(None, "example.org/"), str)
