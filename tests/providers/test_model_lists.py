"""Lists of models that need more than a key: Azure's deployments, and what Google publishes on Vertex AI."""

from __future__ import annotations

import json
from typing import Any

import azure.identity
import google.auth
import google.auth.exceptions
import pytest
from cloud_credentials import GOOGLE_TOKEN, TOKEN, FakeCredential, FakeGoogleCredential, SignedOutCredential
from web import WebAnswer, serve_web

from toolchart.providers.catalogs import list_models
from toolchart.providers.hosts import find_host
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError, SpecError

RESOURCE = "/subscriptions/s-1/resourceGroups/group/providers/Microsoft.CognitiveServices/accounts/harbour"
JSON = {"content-type": "application/json"}


def make_azure_entry(address: str, **keys: Any) -> LLMConfig:
    """An entry with a resource, whose management interface is at an address."""
    entry = {"provider": "azure", "base_url": "https://harbour.openai.azure.com", "api_key": "k"}
    return LLMConfig.model_validate({**entry, "resource": RESOURCE, "management_url": address, **keys})


def make_deployment(name: str, state: str = "Succeeded", **capabilities: str) -> dict[str, Any]:
    """A deployment as Azure describes it."""
    properties = {"model": {"name": "base"}, "provisioningState": state, "capabilities": capabilities}
    return {"name": name, "properties": properties}


def test_azure_lists_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15, build 7: the deployments that answer in chats, over all pages, asked of the management
    interface with a token for it, and without the key of the resource."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", FakeCredential)
    pages = {
        "1": [
            make_deployment("talks", chatCompletion="true", maxContextToken="128000"),
            make_deployment("embeds", embeddings="true"),
            make_deployment("begins", "Creating", chatCompletion="true"),
        ],
        "2": [make_deployment("responds", responses="true"), {"name": "plain"}],
    }

    def answer(request: dict[str, Any]) -> WebAnswer:
        number = "2" if "page=2" in request["path"] else "1"
        address = f"http://{request['headers']['Host']}"
        more = {"nextLink": f"{address}{RESOURCE}/deployments?page=2"} if number == "1" else {}
        return 200, JSON, json.dumps({"value": pages[number], **more}).encode()

    FakeCredential.scopes.clear()
    with serve_web(answer) as server:
        models = list_models(make_azure_entry(server.url), str)
        sent = server.requests
    assert [(model.name, model.context) for model in models] == [
        ("plain", None),
        ("responds", None),
        ("talks", 128000),
    ]
    assert sent[0]["path"] == f"{RESOURCE}/deployments?api-version=2024-10-01"
    assert {request["headers"]["authorization"] for request in sent} == {f"Bearer {TOKEN}"}
    assert not any("api-key" in request["headers"] for request in sent)
    assert set(FakeCredential.scopes) == {f"{server.url}/.default"}


def test_the_next_page_must_be_at_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to another address does not get the token."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", FakeCredential)

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, JSON, b'{"value": [], "nextLink": "http://127.0.0.1.example.org/more"}'

    with serve_web(answer) as server, pytest.raises(ProviderError, match="another address"):
        list_models(make_azure_entry(server.url), str)


def test_azure_needs_its_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `resource` there is no list, and the error says what to add; a wrong id is refused before
    anything is sent; nobody signed in is `auth`."""
    entry = LLMConfig.model_validate({"provider": "azure", "base_url": "http://127.0.0.1:9", "api_key": "k"})
    assert not find_host("azure").can_list_models(entry.extra_options())
    with pytest.raises(SpecError, match="lists models only with `resource`"):
        list_models(entry, str)
    with serve_web(lambda _: (200, JSON, b"{}")) as server:
        with pytest.raises(SpecError, match="no id of an Azure resource"):
            list_models(make_azure_entry(server.url, resource="harbour"), str)
        monkeypatch.setattr(azure.identity, "DefaultAzureCredential", SignedOutCredential)
        with pytest.raises(ProviderError, match="nobody is signed in") as raised:
            list_models(make_azure_entry(server.url), str)
        assert raised.value.kind == "auth"
        assert not server.requests


def test_lists_stay_on_this_machine_in_offline_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline mode forbids a list that stands at another, remote address than the entry's."""
    monkeypatch.setenv("TOOLCHART_OFFLINE", "1")
    entry = make_azure_entry("https://management.azure.com", base_url="http://127.0.0.1:9")
    with pytest.raises(SpecError, match="TOOLCHART_OFFLINE"):
        list_models(entry, str)


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
