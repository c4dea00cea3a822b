"""What reaches a host is the body that the adapter digested: for every host, whole, streamed and failing."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from effort import choose_count
from host_answers import FAILURES, WHOLE_BODIES, answer_request
from web import WebAnswer, serve_web
from wire_requests import (
    ENTRIES,
    LIBRARY_ENTRIES,
    NETWORK_ENTRIES,
    QUESTION,
    REQUESTS,
    SYSTEM,
    iterate_digests,
    make_builders,
    make_config,
    send_request,
)

from toolchart.providers.adapter import HostAdapter, compute_body_digest, compute_wire_digest
from toolchart.providers.hosts import HOSTS
from toolchart.providers.openai.client import ResponsesProvider
from toolchart.providers.registry import create_body_builder, create_provider
from toolchart.specs.models import LLMConfig
from toolchart.states import message_list
from toolchart.states.descriptors import load_reference
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.message_list import MessageList, RequestMessages
from toolchart.states.messages import Message, Reply, Request

ROOT = Path(__file__).resolve().parents[2]

for_network_entries = pytest.mark.parametrize("name", NETWORK_ENTRIES)


def read_arrived_body(http_request: dict[str, Any]) -> dict[str, Any]:
    """The JSON that arrived; with Gemini and Bedrock the model arrives in the path."""
    body: dict[str, Any] = json.loads(http_request["body"])
    match = re.search(r"/models?/([^:/]+)(?::|/converse)", http_request["path"])
    return {"model": unquote(match[1]), **body} if match else body


def send_all(name: str, address: str, requests: list[Request], *, stream: bool) -> list[Any]:
    """The replies of the host of an entry, or its errors."""

    async def run() -> list[Any]:
        provider = create_provider(make_config(name, address, api_key="k"), resolve=str)
        try:
            return [await send_request(provider, request, stream=stream) for request in requests]
        finally:
            await provider.aclose()

    return asyncio.run(run())


ADAPTERS = [
    *(load_reference(row.adapter) for row in HOSTS.builtin_rows if row.needs_network),
    ResponsesProvider,
]


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.__name__)
def test_what_sends_a_body_never_sees_the_request(adapter: type[HostAdapter]) -> None:
    """The functions that talk to a host get the body only: nothing of the request can be added behind it."""
    for function in (adapter.send_body, adapter.stream_body):
        assert list(inspect.signature(function).parameters) == ["self", "body"]
    assert adapter.complete is HostAdapter.complete
    assert adapter.stream is HostAdapter.stream


def test_every_host_and_wire_format_is_covered() -> None:
    """A new host comes with an entry of this corpus, and a new wire format with an adapter that uses it."""
    assert {entry["provider"] for entry in ENTRIES.values()} == {row.name for row in HOSTS.builtin_rows}
    formats = {wire_format.name for row in HOSTS.builtin_rows for wire_format in row.formats}
    assert formats == set(WHOLE_BODIES)


@pytest.mark.parametrize("row", HOSTS.builtin_rows, ids=lambda row: row.name)
def test_the_adapter_of_a_host_cannot_forget_the_digest(row: Any) -> None:
    """Every adapter builds bodies; one with a network has `HostAdapter` report their digests."""
    adapter = load_reference(row.adapter)
    assert callable(adapter.build_body)
    assert issubclass(adapter, HostAdapter) == row.needs_network


@for_network_entries
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_body_that_arrives_is_the_one_that_was_digested(name: str, stream: bool) -> None:
    """DESIGN 7.3: for each request the JSON that arrives equals `build_body`, and its digest is reported.

    The SDKs add nothing. A process without the key builds the same body from the request.
    """
    requests = list(REQUESTS.values())
    with serve_web(answer_request) as server:
        replies = send_all(name, server.url, requests, stream=stream)
    builder = create_body_builder(make_config(name, server.url), resolve=str)
    assert len(server.requests) == len(requests)
    for request, http_request, reply in zip(requests, server.requests, replies, strict=True):
        assert isinstance(reply, Reply), reply
        arrived = read_arrived_body(http_request)
        assert arrived == json.loads(json.dumps(builder.build_body(request, stream=stream)))
        assert reply.wire_digest == compute_body_digest(arrived)
        assert reply.wire_digest == compute_wire_digest(builder, request, stream=stream)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in LIBRARY_ENTRIES for kind in FAILURES if kind != "bad_response"),
        *((name, "bad_response") for name in NETWORK_ENTRIES),
    ],
)
def test_a_failed_call_reports_the_digest(name: str, stream: bool, kind: str) -> None:
    """DESIGN 7.3: an error status and an answer that cannot be read leave the digest in the error."""
    request = REQUESTS["second turn"]
    with serve_web(lambda _: FAILURES[kind]) as server:
        (error,) = send_all(name, server.url, [request], stream=stream)
    assert isinstance(error, ProviderError)
    assert error.kind == kind
    assert error.wire_digest == compute_body_digest(read_arrived_body(server.requests[-1]))


@for_network_entries
def test_a_cut_stream_reports_the_digest(name: str) -> None:
    """A stream that ends too early is an error with the digest of its request."""

    def answer_with_half(http_request: dict[str, Any]) -> WebAnswer:
        status, headers, data = answer_request(http_request)
        return status, headers, data[: len(data) // 3]

    with serve_web(answer_with_half) as server:
        (error,) = send_all(name, server.url, [REQUESTS["tools"]], stream=True)
    assert isinstance(error, ProviderError)
    assert error.wire_digest == compute_body_digest(read_arrived_body(server.requests[0]))


@for_network_entries
def test_an_unreachable_host_reports_the_digest(name: str) -> None:
    """A connection that fails came after the body was built."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (error,) = send_all(name, address, [REQUESTS["plain"]], stream=False)
    assert error.kind == "connection"
    builder = create_body_builder(make_config(name, address), resolve=str)
    assert error.wire_digest == compute_wire_digest(builder, REQUESTS["plain"], stream=False)


@pytest.mark.parametrize("name", ["openai responses", "ollama", "gemini", "anthropic"])
def test_a_request_without_a_form_has_no_digest(name: str) -> None:
    """A request that the host has no form for fails before there is a body, and nothing is sent."""
    request = Request(
        model="m", messages=[QUESTION], tools=REQUESTS["tools"].tools, options={"tool_choice": {"no": 1}}
    )
    with serve_web(answer_request) as server:
        errors = [send_all(name, server.url, [request], stream=stream)[0] for stream in (False, True)]
    assert [(error.kind, error.wire_digest) for error in errors] == [("bad_request", None)] * 2
    assert server.requests == []


def test_a_host_without_a_wire_digests_the_request() -> None:
    """A script hands the request itself over; its digest is in the reply or the error."""
    builder = create_body_builder(make_config("scripted"), resolve=str)
    provider: Any = builder
    for stream in (False, True):
        outcome = asyncio.run(send_request(provider, REQUESTS["results"], stream=stream))
        assert outcome.wire_digest == compute_wire_digest(builder, REQUESTS["results"], stream=stream)


def test_a_host_without_a_wire_costs_the_same_in_long_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The body of a request that the core made encodes equally many values at any length, and no message.

    It is a digest of the request's content: other messages give another body, other lists of them do not.
    """
    builder = create_body_builder(make_config("scripted"), resolve=str)
    encode: Callable[[Any], bytes] = message_list._encode
    conversations = [MessageList([QUESTION] * length) for length in (10, 11, 1000)]
    encoded: list[Any] = []
    monkeypatch.setattr(message_list, "_encode", lambda value: encoded.append(value) or encode(value))
    counts, bodies = [], []
    for conversation in conversations:
        encoded.clear()
        request = Request(model="m", messages=RequestMessages(SYSTEM.content, conversation))
        bodies.append(builder.build_body(request, stream=False))
        assert not any(isinstance(value, Message) for value in encoded)
        counts.append(len(encoded))
    plain_request = Request(model="m", messages=[SYSTEM, *[QUESTION] * 10])
    assert bodies[0] == builder.build_body(plain_request, stream=False)
    assert len(set(counts)) == 1
    assert len({compute_body_digest(body) for body in bodies}) == 3


@for_network_entries
def test_a_body_is_built_without_a_key(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder reads no key and no header, and needs no address of its own."""
    for variable in (
        name for row in HOSTS.builtin_rows for name in (*row.own_row.key_variables, row.address_variable)
    ):
        monkeypatch.delenv(variable, raising=False)
    keys: dict[str, Any] = {"api_key": "${NOT_SET}"}
    if ENTRIES[name]["provider"] in ("openai", "anthropic"):
        keys["headers"] = {"x-own": "${NOT_SET_EITHER}"}
    config = LLMConfig.model_validate({**ENTRIES[name], "base_url": None, **keys})

    def refuse_variable(text: str) -> str:
        raise SpecError(f"{text} is not set")

    body = create_body_builder(config, resolve=refuse_variable).build_body(REQUESTS["tools"], stream=True)
    assert body["model"] == "m"
    assert "NOT_SET" not in json.dumps(body)


def test_the_address_of_a_builder_is_resolved() -> None:
    """The address decides about options of compatible hosts, so a variable in it must be set."""
    config = LLMConfig.model_validate({"provider": "openai", "base_url": "${BOX}", "api_key": "${KEY}"})
    request = REQUESTS["tools"]
    addresses = ("https://api.cerebras.ai/v1", "https://api.mistral.ai/v1")
    bodies = [
        create_body_builder(config, resolve={"${BOX}": address}.__getitem__).build_body(request, stream=False)
        for address in addresses
    ]
    assert ["parallel_tool_calls" in body for body in bodies] == [False, True]
    with pytest.raises(KeyError, match="BOX"):
        create_body_builder(config, resolve={}.__getitem__)


def test_digests_are_the_same_in_every_process() -> None:
    """The digest of every request is the same in processes with other hash seeds."""
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]
    code = f"import sys; sys.path[:0] = {paths}; import conftest, json, wire_requests as w; "
    code += "print(json.dumps(dict(w.iterate_digests(w.make_builders()))))"
    expected = dict(iterate_digests(make_builders()))
    for seed in ("1", "2")[: choose_count(short=1, long=2)]:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == expected
