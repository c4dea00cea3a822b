"""The typed public methods of the SDKs (`sdk: typed`), and the private names that the fast path uses."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from host_answers import answer_request
from web import serve_web
from wire_requests import REQUESTS, make_config

from toolchart.providers.registry import create_provider
from toolchart.providers.transport import typed_calls
from toolchart.states.messages import Reply

TYPED_ENTRIES = (*("openai", "openai compatible", "openai responses"), *("ollama", "gemini"))


def find_methods(name: str) -> list[tuple[type, str]]:
    """The typed methods by which the models of an entry are called, whole and streamed."""
    if name == "gemini":
        from google.genai.models import AsyncModels

        return [(AsyncModels, "generate_content"), (AsyncModels, "generate_content_stream")]
    if name == "ollama":
        from ollama import AsyncClient

        return [(AsyncClient, "chat")]
    from openai.resources.chat.completions import AsyncCompletions
    from openai.resources.responses import AsyncResponses

    return [(AsyncResponses if "responses" in name else AsyncCompletions, "create")]


@contextmanager
def instrument(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[list[dict[str, Any]]]:
    """The arguments of the typed methods' calls within the block, as a program that watches them sees."""
    seen: list[dict[str, Any]] = []
    with monkeypatch.context() as patch:
        for owner, method in find_methods(name):
            original = getattr(owner, method)

            async def watch(self: Any, *, _original: Any = original, **arguments: Any) -> Any:
                seen.append(arguments)
                return await _original(self, **arguments)

            patch.setattr(owner, method, watch)
        yield seen


def ask(name: str, *, stream: bool, requests: list[str], **keys: Any) -> tuple[list[Any], list[Any]]:
    """What an entry sends for some requests, and the items of its replies."""

    async def run(address: str) -> list[Any]:
        provider = create_provider(make_config(name, address, api_key="k", **keys), resolve=str)
        try:
            if stream:
                return [[item async for item in provider.stream(REQUESTS[one])] for one in requests]
            return [await provider.complete(REQUESTS[one]) for one in requests]
        finally:
            await provider.aclose()

    with serve_web(answer_request) as server:
        replies = asyncio.run(run(server.url))
        sent = [
            (
                request["method"],
                request["path"],
                json.loads(request["body"]),
                request["headers"]["Host"] != "",
            )
            for request in server.requests
        ]
    return sent, [strip_address(reply) for reply in replies]


def strip_address(reply: Any) -> Any:
    """A reply without the address of its host."""
    if isinstance(reply, list):
        return [strip_address(item) for item in reply]
    if not isinstance(reply, Reply):
        return reply
    data = {key: value for key, value in (reply.provider_data or {}).items() if key != "host"}
    warnings = [re.sub(r"127\.0\.0\.1:\d+", "HOST", warning) for warning in reply.warnings]
    fields = {field: getattr(reply, field) for field in Reply.__struct_fields__}
    return fields | {"provider_data": data, "warnings": warnings}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", TYPED_ENTRIES)
def test_typed_methods_send_the_same_and_are_seen(
    name: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `sdk: typed` each request has the method, path and body of the fast path; the reply, its deltas
    and its digest are the same; a program that instruments the typed method sees every call and its model."""
    requests = list(REQUESTS)
    fast = ask(name, stream=stream, requests=requests)
    with instrument(monkeypatch, name) as seen:
        assert ask(name, stream=stream, requests=requests, sdk="typed") == fast
    assert len(seen) >= len(requests)
    assert all(arguments["model"] == "m" for arguments in seen)
    with instrument(monkeypatch, name) as seen:
        ask(name, stream=stream, requests=requests[:1])
    assert not seen


@pytest.mark.parametrize("name", ["openai", "openai responses", "gemini", "ollama"])
def test_installed_sdks_have_what_the_fast_path_uses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed version of each SDK has the private names of the fast path: nothing falls back."""
    for stream in (False, True):
        with instrument(monkeypatch, name) as seen:
            _, (reply,) = ask(name, stream=stream, requests=["plain"])
        assert not seen
        warnings = (reply[-1] if stream else reply)["warnings"]
        assert not [warning for warning in warnings if warning.startswith("sdk:")]


REMOVED = [
    ("openai", "openai", "_client"),
    ("openai responses", "openai", "_client"),
    ("ollama", "ollama", "_client"),
    ("gemini", "google-genai", "_api_client._build_request"),
    ("gemini", "google-genai", "t_model"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "package", "removed"), REMOVED)
def test_an_sdk_without_a_private_name_is_called_by_its_typed_methods(
    name: str, package: str, removed: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a version of an SDK lacks a private name of the fast path, its typed methods are called with the
    same bodies, and each reply has a warning that names the SDK and what it lacks."""
    fast, _ = ask(name, stream=stream, requests=["tools", "results"])
    find = typed_calls.find_missing_name

    def find_without(client: Any, *names: str) -> str:
        """As if the SDK had no such name."""
        return removed if removed in names else find(client, *names)

    with instrument(monkeypatch, name) as seen, monkeypatch.context() as patch:
        for module in ("openai", "ollama", "gemini"):
            patch.setattr(f"toolchart.providers.{module}.client.find_missing_name", find_without)
        sent, replies = ask(name, stream=stream, requests=["tools", "results"])
    assert sent == fast
    assert len(seen) >= 2
    for reply in replies:
        (warning,) = [one for one in (reply[-1] if stream else reply)["warnings"] if one.startswith("sdk:")]
        assert package in warning
        assert removed in warning
