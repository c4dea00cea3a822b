"""A host that sends without end costs a failed call, and no more memory than the limit of a reply."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import zlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from flooding_hosts import ask_flooding_host, serve_flood
from web import serve_web
from wire_requests import ENTRIES, LIBRARY_ENTRIES, QUESTION, WIRE_ENTRIES, make_config

from toolchart.providers.adapter import iterate_in_time
from toolchart.providers.catalogs import list_models
from toolchart.providers.openai.wire import decode_reply
from toolchart.providers.registry import create_provider
from toolchart.providers.transport import stream_frames
from toolchart.providers.transport.reply_guard import BodyGuard
from toolchart.providers.wire_adapter import StreamDecoder
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Request
from toolchart.states.reading_limits import READING

MARGIN_MIB = 32
"""What a call may take beside the bytes of the reply: buffers of the socket and of the libraries."""


@pytest.mark.parametrize(
    ("name", "flood"), [("openai", "gzip"), ("openai", "line"), ("anthropic", "gzip"), ("anthropic", "plain")]
)
def test_a_flood_is_a_failed_call_that_costs_about_the_limit(name: str, flood: str) -> None:
    """S3.10: a gzip bomb, a body without end and a line without end end as `bad_response`, not to be tried
    again; the process grows by little more than the largest reply. Both HTTP libraries do so."""
    entry = {**ENTRIES[name], "timeout_s": 120}
    result = asyncio.run(ask_flooding_host(flood, entry, stream=flood == "line"))
    assert (result["kind"], result["retryable"]) == ("bad_response", False)
    assert "more than 32 MiB" in result["message"] or "larger than 64 MiB" in result["message"]
    assert result["grown_mib"] < READING.reply_bytes / 2**20 + MARGIN_MIB


@pytest.mark.slow
def test_deltas_without_end_are_a_failed_call() -> None:
    """S3.10: a stream of small pieces without end ends at the greatest number of pieces."""
    result = asyncio.run(ask_flooding_host("deltas", {**ENTRIES["openai"], "timeout_s": 600}, stream=True))
    assert (result["kind"], result["retryable"]) == ("bad_response", False)
    assert "more than 250,000 pieces" in result["message"]
    assert result["grown_mib"] < READING.reply_bytes / 2**20 + MARGIN_MIB


def test_deltas_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.10: the reader of a stream stops at the greatest number of pieces, compressed or not."""
    monkeypatch.setattr(READING, "stream_pieces", 50)

    decoder = StreamDecoder(stream_frames.EventFrameReader(), _OneDelta(), decode_reply)
    deltas: list[Any] = []

    def read() -> None:
        while True:
            deltas.extend(decoder.add_bytes(b"data: {}\n\n"))

    with pytest.raises(ProviderError, match="more than 50 pieces"):
        read()
    assert len(deltas) == 50


class _OneDelta:
    """An accumulator that gives a delta for each frame."""

    def add_frame(self, frame: Any) -> list[Any]:
        """The frame."""
        return [frame]

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """Nothing."""
        return {}


def test_a_stream_of_ready_pieces_ends_at_the_deadline() -> None:
    """S3.10: pieces for which nobody has to wait do not outrun `timeout_s`."""

    async def pieces() -> AsyncGenerator[int]:
        number = 0
        while True:
            yield (number := number + 1)

    async def read() -> None:
        async for _ in iterate_in_time(pieces(), 0.01):
            pass

    with pytest.raises(ProviderError) as caught:
        asyncio.run(read())
    assert (caught.value.kind, caught.value.retryable) == ("timeout", True)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_flood_with_an_error_status_keeps_its_kind(name: str) -> None:
    """S3.10: of an error only its beginning is read; the status still says what happened."""
    entry = {**ENTRIES[name], "timeout_s": 120}
    result = asyncio.run(ask_flooding_host("gzip", entry, stream=False, status="503 Busy"))
    assert (result["kind"], result["retryable"], result["status"]) == ("overloaded", True, 503)
    assert result["grown_mib"] < READING.error_bytes / 2**20 + MARGIN_MIB


FLOODS = [
    *itertools.product(
        LIBRARY_ENTRIES, ["gzip", "plain", "line", "deltas", "gzipped deltas"], ["whole", "stream", "error"]
    ),
    *(
        (name, flood, form)
        for name in WIRE_ENTRIES
        if name not in LIBRARY_ENTRIES
        for flood, form in (("gzip", "whole"), ("line", "stream"), ("deltas", "stream"), ("plain", "error"))
    ),
]
"""Every flood in every form for each HTTP library, and each form on every other wire."""


@pytest.mark.parametrize(("name", "flood", "form"), FLOODS)
def test_every_wire_has_the_limits(name: str, flood: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.10: on every wire a flood ends as a failed call, whole, streamed and with an error status."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAPLANTED")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    for limit in ("reply_bytes", "stream_bytes", "error_bytes"):
        monkeypatch.setattr(READING, limit, 2**20)
    monkeypatch.setattr(READING, "line_bytes", 2**19)

    async def ask() -> None:
        async with serve_flood(flood, "503 Busy" if form == "error" else "200 OK") as address:
            config = make_config(name, address, **({} if name == "bedrock" else {"api_key": "k"}))
            provider: Any = create_provider(config, resolve=str)
            request = Request(model="m", messages=(QUESTION,))
            try:
                if form == "stream":
                    async for _ in provider.stream(request):
                        pass
                else:
                    await provider.complete(request)
            finally:
                await provider.aclose()

    with pytest.raises(ProviderError) as caught:
        asyncio.run(ask())
    assert caught.value.kind == ("overloaded" if form == "error" else "bad_response")


def test_lists_of_models_are_read_within_the_limit() -> None:
    """S3.10: what is fetched beside model calls, such as a list of models, has the same limit."""

    async def fetch() -> None:
        async with serve_flood("gzip") as address:
            config = LLMConfig.model_validate({"provider": "openai", "base_url": address, "api_key": "k"})
            await asyncio.to_thread(list_models, config, str)

    with pytest.raises(ProviderError, match="larger than 64 MiB"):
        asyncio.run(fetch())


def _compress_raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", _compress_raw), ("", bytes)],
)
@pytest.mark.parametrize("size", [1, 3, 100_000])
def test_what_is_compressed_is_read_as_it_was(encoding: str, compress: Any, size: int) -> None:
    """S3.4: a compressed body arrives whole, however it is cut, in each form that servers send."""
    text = bytes(range(256)) * 1000
    data, guard = compress(text), BodyGuard("reply_bytes", encoding)
    pieces = [piece for at in range(0, len(data), size) for piece in guard.add_bytes(data[at : at + size])]
    assert b"".join(pieces) == text


def test_an_unknown_compression_is_named() -> None:
    """S3.10: an answer in a compression that nobody asked for fails and says which."""
    with serve_web(lambda _: (200, {"content-encoding": "br"}, b"...")) as server:
        provider: Any = create_provider(make_config("anthropic", server.url, api_key="k"), resolve=str)

        async def ask() -> None:
            try:
                await provider.complete(Request(model="m", messages=(QUESTION,)))
            finally:
                await provider.aclose()

        with pytest.raises(ProviderError, match="compressed as 'br'"):
            asyncio.run(ask())
