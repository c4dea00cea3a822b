"""Azure's `/openai/v1`, a row of the table of hosts: its address, its key, and tokens of Entra ID."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import azure.identity
import pytest
from azure.core.credentials import AccessToken
from cassette_server import CassetteServer
from cloud_credentials import TOKEN, FakeCredential, SignedOutCredential
from host_answers import WHOLE_BODIES
from msgspec.structs import replace
from recorded_exchanges import Exchange, read_cassette, read_recorded_reply
from recorded_traffic import find_recording, list_cassette_paths
from reply_comparison import drop_digest
from web import WebAnswer, serve_web
from wire_requests import QUESTION, send_request

from toolchart.providers.catalogs import HostEmbedder, list_models
from toolchart.providers.entries import can_list_models, find_api_key
from toolchart.providers.hosts import find_host
from toolchart.providers.registry import create_provider
from toolchart.providers.transport.limits import read_rate_limits
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import strike_secrets
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request

REQUEST = Request(model="harbour", messages=[QUESTION])
SCOPE = "https://cognitiveservices.azure.com/.default"
KEY = "key-of-azure-0123456789"

both_wires = pytest.mark.parametrize("api", ["chat", "responses"])


def make_entry(address: str | None, **keys: Any) -> LLMConfig:
    """An entry for Azure whose resource is at an address."""
    base_url = f"{address}/openai/v1" if address else None
    entry = {"provider": "openai", "host_profile": "azure", "base_url": base_url, **keys}
    return LLMConfig.model_validate(entry)


def answer(request: dict[str, Any]) -> WebAnswer:
    """A reply in the wire format of the path."""
    endpoint = "responses" if request["path"].endswith("/responses") else "chat"
    return 200, {"content-type": "application/json"}, json.dumps(WHOLE_BODIES[endpoint]).encode()


async def ask(address: str, times: int = 1, **keys: Any) -> None:
    """Some requests that are answered."""
    provider: Any = create_provider(make_entry(address, **keys), resolve=str)
    for _ in range(times):
        assert (await provider.complete(REQUEST)).content == "Hello there"
    await provider.aclose()


def read_tokens(requests: list[dict[str, Any]]) -> list[str]:
    """What signed each request."""
    headers = [{name.lower(): value for name, value in r["headers"].items()} for r in requests]
    return [header["authorization"].removeprefix("Bearer ") for header in headers]


@both_wires
async def test_a_key_goes_to_the_undated_interface(api: str) -> None:
    """The request goes to `/openai/v1` with the key and the deployment as its model."""
    with serve_web(answer) as server:
        await ask(server.url, api=api, api_key=KEY)
    (sent,) = server.requests
    assert sent["path"] == f"/openai/v1/{'responses' if api == 'responses' else 'chat/completions'}"
    assert json.loads(sent["body"])["model"] == "harbour"
    assert read_tokens([sent]) == [KEY]


def test_the_key_of_the_environment_goes_to_azure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`AZURE_OPENAI_API_KEY` goes to a resource below Azure's domains, over HTTPS, and nowhere else; the key
    of OpenAI does not go to Azure."""
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai-0123456789")

    def find(address: str) -> str | None:
        return find_api_key(LLMConfig(provider="openai", base_url=address), str)

    for domain in ("openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com"):
        assert find(f"https://harbour.{domain}/openai/v1") == KEY
        assert find(f"http://harbour.{domain}/openai/v1") is None
        assert find(f"https://harbour.{domain}.example.org/openai/v1") is None
        assert find(f"https://harbour{domain}/openai/v1") is None
    assert find("https://azure/openai/v1") is None


def test_an_address_is_required() -> None:
    """There is no address that all users share: the error gives its form."""
    with pytest.raises(SpecError, match="Azure OpenAI has no address") as caught:
        create_provider(make_entry(None, api_key=KEY), resolve=str)
    assert "https://RESOURCE.openai.azure.com/openai/v1" in str(caught.value.hint)


@both_wires
async def test_a_token_signs_in(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `auth: entra` the token of the credential is sent, also where the environment has a key; it is
    known as a secret."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", FakeCredential)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    FakeCredential.scopes.clear()
    with serve_web(answer) as server:
        await ask(server.url, api=api, auth="entra")
    assert read_tokens(server.requests) == [TOKEN]
    assert set(FakeCredential.scopes) == {SCOPE}
    assert TOKEN not in strike_secrets(f"a {TOKEN} b")


class RenewedCredential:
    """A credential whose token is another one at each request, as after it expired."""

    count = 0

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        """The next token."""
        RenewedCredential.count += 1
        return AccessToken(f"token-number-{RenewedCredential.count}-of-the-test", int(time.time()) - 1)


@both_wires
async def test_a_renewed_token_is_sent(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that was renewed goes with the next request."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", RenewedCredential)
    with serve_web(answer) as server:
        await ask(server.url, times=3, api=api, auth="entra")
    assert len(set(read_tokens(server.requests))) == 3


async def test_a_failed_sign_in_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is signed in, or `azure-identity` is missing, the call fails with the kind `auth` and the
    reason; nothing is sent."""
    with serve_web(answer) as server:
        provider: Any = create_provider(make_entry(server.url, auth="entra"), resolve=str)
        monkeypatch.setattr(azure.identity, "DefaultAzureCredential", SignedOutCredential)
        with pytest.raises(ProviderError, match="nobody is signed in") as signed_out:
            await provider.complete(REQUEST)
        await provider.aclose()
        provider = create_provider(make_entry(server.url, auth="entra"), resolve=str)
        monkeypatch.setitem(sys.modules, "azure.identity", None)
        with pytest.raises(ProviderError, match=r"needs azure-identity: pip install") as missing:
            await provider.complete(REQUEST)
        await provider.aclose()
    assert signed_out.value.kind == missing.value.kind == "auth"
    assert not server.requests


def test_the_token_goes_to_azure_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auth: entra` at another host is refused for calls and for lists, before a token is fetched."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", SignedOutCredential)
    for keys in ({}, {"base_url": "http://127.0.0.1:9/v1"}, {"host_profile": "mistral"}):
        entry = LLMConfig.model_validate({"provider": "openai", "auth": "entra", **keys})
        for use in (create_provider, list_models):
            with pytest.raises(SpecError, match="signs in at Azure") as caught:
                use(entry, resolve=str)
            assert "host_profile: azure" in str(caught.value.hint)


def test_embeddings_are_signed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests beside model calls carry the token; the scope of another cloud is that of the entry."""
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", FakeCredential)
    FakeCredential.scopes.clear()
    body = json.dumps({"data": [{"index": 0, "embedding": [1.0]}]}).encode()
    with serve_web(lambda _: (200, {"content-type": "application/json"}, body)) as server:
        entry = make_entry(server.url, auth="entra", entra_scope="https://other.example/.default")
        assert HostEmbedder(entry, "m", str).embed(["text"]) == [[1.0]]
    assert read_tokens(server.requests) == [TOKEN]
    assert set(FakeCredential.scopes) == {"https://other.example/.default"}


def test_its_models_are_not_listed() -> None:
    """Azure's list has base models and no deployments, so that nothing is judged by it."""
    assert not can_list_models(make_entry("https://harbour.openai.azure.com"))
    assert not can_list_models(LLMConfig(provider="openai", base_url="https://harbour.openai.azure.com/x"))
    assert can_list_models(LLMConfig(provider="openai"))
    assert find_host("openai").list_models


RECORDED = [path for path in list_cassette_paths() if path.startswith("cassettes/azure-openai/")]


@pytest.mark.parametrize("path", RECORDED)
async def test_recorded_traffic(path: str) -> None:
    """Recorded answers of Azure are decoded, with what their headers say about limits."""
    exchanges = [exchange for exchange in read_cassette(find_recording(path)) if exchange.endpoint == "chat"]
    with CassetteServer(find_recording(path), match="order") as server:
        provider: Any = create_provider(make_entry(server.url, api_key="k"), resolve=str)
        outcomes = [
            await send_request(provider, REQUEST, stream=exchange.is_streamed) for exchange in exchanges
        ]
        await provider.aclose()
    assert [drop_digest(one) if isinstance(one, Reply) else one.kind for one in outcomes] == [
        _find_expected_outcome(exchange) for exchange in exchanges
    ]
    assert {request["path"] for request in server.requests} <= {"/openai/v1/chat/completions"}


def _find_expected_outcome(exchange: Exchange) -> Reply | str:
    try:
        limits = read_rate_limits(exchange.headers)
        return replace(read_recorded_reply(exchange), rate_limits=limits or None)
    except ProviderError as error:
        return error.kind
