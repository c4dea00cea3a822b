"""Raw answers: every host's answer has its digest, and kept answers decode again as live ones do."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from host_answers import (
    FAILURES,
    JSON_TYPE,
    WHOLE_BODIES,
    answer_request,
    encode_stream,
    find_answered_endpoint,
)
from recorded_exchanges import Exchange, read_cassette
from recorded_traffic import CORPORA, find_recording, list_cassette_paths
from web import WebAnswer, serve_web
from wire_requests import (
    ENTRIES,
    LIBRARY_ENTRIES,
    NETWORK_ENTRIES,
    REQUESTS,
    WIRE_ENTRIES,
    make_config,
    send_request,
)

from toolchart.providers.hosts import HOSTS
from toolchart.providers.registry import create_body_builder, create_provider
from toolchart.providers.transport import raw_answers
from toolchart.providers.transport.raw_answers import AnswerCapture, compute_answer_digest, read_raw_answer
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError
from toolchart.states.messages import RawAnswer, Reply, Request, TextDelta
from toolchart.states.ports import AnswerDecoder

PLAIN = REQUESTS["tools"]

for_network_entries = pytest.mark.parametrize("name", NETWORK_ENTRIES)

Outcome = tuple[Reply | ProviderError, AnswerCapture, RawAnswer | None]


def ask_host(
    name: str, answer: Callable[[dict[str, Any]], WebAnswer], *, stream: bool, keeps: bool = True
) -> Outcome:
    """What the adapter of an entry makes of an answer, and the capture of that answer."""

    async def ask(address: str) -> Outcome:
        provider = create_provider(make_config(name, address, api_key="k"), resolve=str)
        try:
            with AnswerCapture(keeps_bytes=keeps) as capture:
                outcome = await send_request(provider, PLAIN, stream=stream)
            return outcome, capture, capture.build_raw_answer(is_streamed=stream)
        finally:
            await provider.aclose()

    with serve_web(answer) as server:
        return asyncio.run(ask(server.url))


def strip_reply(reply: Any) -> Any:
    """A reply without what does not come from the bytes of its answer; an error as its kind and status."""
    if isinstance(reply, ProviderError):
        return reply.kind, reply.status, reply.retryable
    return {
        name: getattr(reply, name) for name in set(Reply.__struct_fields__) - {"wire_digest", "rate_limits"}
    }


def decode_again(decoder: Any, request: Request, raw: RawAnswer) -> Any:
    """What the adapter makes of a kept answer."""
    assert isinstance(decoder, AnswerDecoder)
    try:
        content, status = read_raw_answer(raw), raw.status or 200
        return decoder.decode_again(request, content, status=status, is_streamed=raw.is_streamed)
    except ProviderError as error:
        return error


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("name", "compress"),
    [
        *((name, None) for name in NETWORK_ENTRIES),
        *((name, compress) for name in LIBRARY_ENTRIES for compress in (gzip.compress, zlib.compress)),
    ],
)
def test_every_host_row_has_the_digest_of_the_answer(name: str, stream: bool, compress: Any) -> None:
    """Whatever adapter reads it: the digest is SHA-256 over the bytes after `content-encoding` is undone.

    The bytes are kept as they were, and the adapter decodes them to the same reply, without a key.
    """
    bodies: list[bytes] = []

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        status, headers, data = answer_request(http_request)
        bodies.append(data)
        if compress is None:
            return status, headers, data
        coding = "gzip" if compress is gzip.compress else "deflate"
        return status, {**headers, "content-encoding": coding}, compress(data)

    reply, capture, raw = ask_host(name, answer, stream=stream)
    assert isinstance(reply, Reply), reply
    digest = urlsafe_b64encode(sha256(bodies[-1]).digest()[:24]).decode()
    assert capture.digest == digest == compute_answer_digest(bodies[-1])
    assert capture.is_whole
    assert raw is not None
    assert (read_raw_answer(raw), raw.status, raw.is_streamed, raw.is_cut) == (bodies[-1], 0, stream, False)
    builder = create_body_builder(make_config(name), resolve=str)
    assert strip_provider_host(decode_again(builder, PLAIN, raw)) == strip_provider_host(reply)


@pytest.mark.parametrize("name", WIRE_ENTRIES)
@pytest.mark.parametrize("indent", [None, 2], ids=["line", "lines"])
def test_a_whole_answer_to_a_stream_request_is_the_reply(name: str, indent: int | None) -> None:
    """S3.4: a gateway that answers a request for a stream with whole JSON gives the reply that the same JSON
    gives where no stream was asked for, with its text as deltas, on every wire; kept, it decodes again."""

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        endpoint, _ = find_answered_endpoint(http_request)
        return 200, JSON_TYPE, json.dumps(WHOLE_BODIES[endpoint], indent=indent).encode()

    async def collect(address: str) -> list[Any]:
        provider = create_provider(make_config(name, address, api_key="k"), resolve=str)
        try:
            return [item async for item in provider.stream(PLAIN)]
        finally:
            await provider.aclose()

    with serve_web(answer) as server:
        *deltas, streamed = asyncio.run(collect(server.url))
    whole, _, _ = ask_host(name, answer, stream=False)
    assert isinstance(streamed, Reply)
    assert strip_provider_host(streamed) == strip_provider_host(whole)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello there"
    reply, _, raw = ask_host(name, answer, stream=True)
    assert raw is not None
    builder = create_body_builder(make_config(name), resolve=str)
    assert strip_provider_host(decode_again(builder, PLAIN, raw)) == strip_provider_host(reply)


def strip_provider_host(reply: Any) -> Any:
    """As `strip_reply`, also without the address of the host."""
    data = strip_reply(reply)
    if isinstance(data, dict) and data["provider_data"]:
        data["provider_data"] = {key: value for key, value in data["provider_data"].items() if key != "host"}
    return data


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in LIBRARY_ENTRIES for kind in FAILURES if kind != "bad_response"),
        *((name, "bad_response") for name in WIRE_ENTRIES),
    ],
)
def test_a_failed_call_has_the_digest_of_its_answer(name: str, stream: bool, kind: str) -> None:
    """An error status and an answer that cannot be read are answers too, and decode to the same failure."""
    error, capture, raw = ask_host(name, lambda _: FAILURES[kind], stream=stream)
    assert isinstance(error, ProviderError)
    assert capture.digest == compute_answer_digest(FAILURES[kind][2])
    assert raw is not None
    builder = create_body_builder(make_config(name), resolve=str)
    assert strip_reply(decode_again(builder, PLAIN, raw)) == strip_reply(error)


@for_network_entries
def test_without_the_setting_no_byte_is_kept(name: str) -> None:
    """By default the digest is all: nothing of the body stays in memory."""
    _, capture, raw = ask_host(name, answer_request, stream=True, keeps=False)
    assert capture.digest is not None
    assert raw is None


def test_a_cut_stream_has_the_digest_of_what_came() -> None:
    """The digest covers the bytes that were read, and the kept answer says that it is cut."""
    content_type, data = encode_stream("chat")
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(data)}\r\n\r\n"

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + data[:100])
        await writer.drain()
        writer.close()

    async def ask() -> Outcome:
        server = await asyncio.start_server(break_off, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        provider = create_provider(make_config("openai", address, api_key="k"), resolve=str)
        async with server:
            with AnswerCapture(keeps_bytes=True) as capture:
                outcome = await send_request(provider, PLAIN, stream=True)
            await provider.aclose()
        return outcome, capture, capture.build_raw_answer(is_streamed=True)

    error, capture, raw = asyncio.run(ask())
    assert isinstance(error, ProviderError)
    assert capture.digest == compute_answer_digest(data[:100])
    assert raw is not None
    assert (raw.is_cut, read_raw_answer(raw)) == (True, data[:100])


def test_the_last_answer_of_a_call_counts() -> None:
    """A redirect within the origin is followed; the digest is that of the answer it leads to."""

    def answer(http_request: dict[str, Any]) -> WebAnswer:
        if "moved" in http_request["path"]:
            return answer_request({**http_request, "path": "/v1/chat/completions"})
        return 307, {"location": "/moved/chat/completions"}, b"over there"

    reply, capture, raw = ask_host("openai", answer, stream=False)
    assert isinstance(reply, Reply)
    assert raw is not None
    assert capture.digest == compute_answer_digest(read_raw_answer(raw))
    assert b"Hello there" in read_raw_answer(raw)


def test_a_large_answer_has_a_digest_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than `MAX_KEPT_BYTES` nothing is kept; one byte less, and all is."""
    _, _, raw = ask_host("anthropic", answer_request, stream=False)
    assert raw is not None
    size = len(read_raw_answer(raw))
    monkeypatch.setattr(raw_answers, "MAX_KEPT_BYTES", size)
    assert ask_host("anthropic", answer_request, stream=False)[2] is not None
    monkeypatch.setattr(raw_answers, "MAX_KEPT_BYTES", size - 1)
    _, capture, kept = ask_host("anthropic", answer_request, stream=False)
    assert kept is None
    assert capture.digest == compute_answer_digest(read_raw_answer_without_limit(raw))
    with pytest.raises(ValueError, match="larger one than a log keeps"):
        read_raw_answer(raw)


def read_raw_answer_without_limit(raw: RawAnswer) -> bytes:
    """The bytes of a kept answer of any size."""
    return zlib.decompress(b64decode(raw.content))


def test_an_answer_with_a_known_secret_is_not_kept() -> None:
    """A host may repeat the key that it refuses: such bytes stay out of the log, and the digest remains."""
    remember_secret("sk-very-secret-value")
    body = b'{"error": {"message": "Incorrect API key provided: sk-very-secret-value"}}'
    answer = (401, {"content-type": "application/json"}, body)
    error, capture, raw = ask_host("openai", lambda _: answer, stream=False)
    assert isinstance(error, ProviderError)
    assert capture.digest == compute_answer_digest(body)
    assert raw is None


@pytest.mark.parametrize("content", ["", "!", "AAAA", "eJwDAAAAAAE=AA"])
def test_damaged_bytes_are_refused(content: str) -> None:
    """What is no compressed text raises ValueError, and nothing else."""
    with pytest.raises(ValueError, match=r"Base64|base64|padding|larger one"):
        read_raw_answer(RawAnswer(content=content))


# -- recorded traffic --------------------------------------------------------------------------------


_ENTRIES = {
    "chat": {"provider": "openai", "base_url": "/v1"},
    "responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "gemini": {"provider": "gemini"},
    "messages": {"provider": "anthropic"},
    "ollama": {"provider": "ollama"},
    "converse": {"provider": "bedrock", "region": "eu-central-1"},
}
_LEAST = {"own": 40, "recorded": 500}


def list_exchanges(corpus: str) -> list[Exchange]:
    """The model calls of a corpus that one of our adapters reads."""
    return [
        exchange
        for path in list_cassette_paths(corpus)
        for exchange in read_cassette(find_recording(path))
        if exchange.endpoint in _ENTRIES and not exchange.response_body.lstrip().startswith(b"[")
    ]


@pytest.mark.parametrize("corpus", CORPORA)
def test_recorded_answers_decode_again_to_the_same_reply(corpus: str) -> None:
    """Every recorded answer, of any status, whole or streamed, replays equal; ids and prices included."""
    exchanges = list_exchanges(corpus)
    queue: list[Exchange] = []

    def answer(_: dict[str, Any]) -> WebAnswer:
        exchange = queue.pop()
        content_type = exchange.headers.get("content-type", "").encode("ascii", "ignore").decode()
        return exchange.status, {"content-type": content_type or "application/json"}, exchange.response_body

    async def ask_all(address: str) -> int:
        count = 0
        for endpoint, entry in _ENTRIES.items():
            url = address + entry.get("base_url", "")
            config = make_config("openai").model_validate({**entry, "base_url": url, "api_key": "none"})
            provider: Any = create_provider(config, resolve=str)
            builder = create_body_builder(config, resolve=str)
            try:
                for exchange in exchanges:
                    if exchange.endpoint != endpoint:
                        continue
                    queue.append(exchange)
                    with AnswerCapture(keeps_bytes=True) as capture:
                        outcome = await send_request(provider, PLAIN, stream=exchange.is_streamed)
                    assert capture.digest == compute_answer_digest(exchange.response_body), exchange.uri
                    raw = capture.build_raw_answer(is_streamed=exchange.is_streamed)
                    assert raw is not None
                    again = decode_again(builder, PLAIN, raw)
                    assert strip_reply(again) == strip_reply(outcome), (exchange.uri, exchange.status)
                    count += 1
            finally:
                await provider.aclose()
        return count

    with serve_web(answer) as server:
        count = asyncio.run(ask_all(server.url))
    assert count >= _LEAST[corpus]


def test_the_entries_cover_every_row() -> None:
    """A new host row comes with an entry here: the tests above hold for all rows with a network."""
    rows = {row.name for row in HOSTS.builtin_rows if row.needs_network}
    assert {ENTRIES[name]["provider"] for name in NETWORK_ENTRIES} == rows
