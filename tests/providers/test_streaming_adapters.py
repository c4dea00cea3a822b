"""Tests of streaming: accumulators alone, and recorded streams through the real SDKs over loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cassette_server import CassetteServer
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_exchanges import Exchange, get_adapter, read_cassette, read_recorded_reply
from recorded_traffic import CORPORA, find_recording, list_streamed_cassettes

from toolchart.providers.registry import create_provider
from toolchart.providers.transport.stream_frames import EventFrameReader, LineFrameReader
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import ProviderError
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    encode_arguments,
)


def read_pieces(endpoint: str, pieces: list[bytes]) -> tuple[list[Delta], Reply]:
    """The deltas and the reply of a stream that comes in pieces."""
    decoder = get_adapter(endpoint).make_stream_decoder()
    deltas = [delta for piece in pieces for delta in decoder.add_bytes(piece)]
    deltas += decoder.finish_bytes()
    return deltas, decoder.build_reply()


ENTRIES = {
    "chat": {"provider": "openai", "base_url": "/v1", "finish_words": {"": "stop"}},
    "responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "gemini": {"provider": "gemini"},
    "messages": {"provider": "anthropic"},
    "ollama": {"provider": "ollama"},
}

CASES = [
    (corpus, endpoint)
    for corpus in CORPORA
    for endpoint in sorted(ENTRIES)
    if (corpus, endpoint) != ("recorded", "messages")  # there are none
]
"""Corpora and the endpoints whose streams they have."""


def list_streamed(path: str, endpoints: tuple[str, ...] = tuple(ENTRIES)) -> list[Exchange]:
    """The streamed exchanges of a cassette, without streams that were recorded as arrays."""
    return [
        exchange
        for exchange in read_cassette(find_recording(path))
        if exchange.is_streamed
        and exchange.endpoint in endpoints
        and not exchange.response_body.startswith(b"[")
    ]


def find_outcome(work: Callable[[], Reply]) -> Reply | str:
    """The reply, or the kind of the error."""
    try:
        return work()
    except ProviderError as error:
        return error.kind


# -- pure --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_stream_is_the_same_however_its_bytes_are_split(size: int, corpus: str) -> None:
    """S3.4: every recorded stream, split anywhere, gives the same body as in one piece."""
    stream_count = 0
    for path in list_streamed_cassettes(corpus):
        for exchange in list_streamed(path):
            body = exchange.response_body.strip()
            whole = find_outcome(lambda exchange=exchange: read_recorded_reply(exchange))  # type: ignore[misc]
            if isinstance(whole, str):
                continue
            pieces = [body[start : start + size] for start in range(0, len(body), size)]
            _, reply = read_pieces(exchange.endpoint, pieces)
            assert reply == whole, path
            stream_count += 1
    assert stream_count >= {"own": 18, "recorded": 121}[corpus]


@pytest.mark.parametrize("corpus", CORPORA)
def test_deltas_add_up_to_the_reply(corpus: str) -> None:
    """S3.4: text, reasoning, names and arguments of the deltas add up to the whole reply."""
    for path in list_streamed_cassettes(corpus):
        for exchange in list_streamed(path, ("chat", "gemini", "messages", "ollama")):
            reply = find_outcome(lambda exchange=exchange: read_recorded_reply(exchange))  # type: ignore[misc]
            if isinstance(reply, str):
                continue
            deltas, _ = read_pieces(exchange.endpoint, [exchange.response_body.strip()])
            text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
            assert text == (reply.content or ""), path
            names = [delta.name for delta in deltas if isinstance(delta, CallStarted)]
            assert names == [call.name for call in reply.tool_calls], path
            for place, call in enumerate(reply.tool_calls):
                arguments = "".join(
                    delta.text
                    for delta in deltas
                    if isinstance(delta, CallArguments) and delta.index == place
                )
                assert arguments == encode_arguments(call) or json.loads(arguments) == call.arguments, path
            if reply.reasoning and exchange.endpoint != "chat":
                thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
                assert thought == reply.reasoning, path


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=5)
    | st.sampled_from(["stop", "tool_calls", "error", "response.completed", "response.output_text.delta"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "tool_calls",
                    "function",
                    "arguments",
                    "name",
                    "index",
                    "id",
                    "candidates",
                    "parts",
                    "functionCall",
                    "args",
                    "text",
                    "thought",
                    "message",
                    "done",
                    "error",
                    "finish_reason",
                    "finishReason",
                    "type",
                    "item",
                    "response",
                    "usage",
                    "reasoning",
                    "thinking",
                    "output_index",
                    "code",
                    "promptFeedback",
                    "role",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=14,
)


@settings(max_examples=choose_count(short=133, long=2_500), deadline=None)
@given(st.lists(json_values, max_size=4), st.booleans())
def test_no_sequence_of_values_breaks_an_accumulator(values: list[Any], is_done: bool) -> None:
    """Each sequence of arbitrary JSON values gives a body or a `ProviderError`."""
    for endpoint in ENTRIES:
        accumulator = get_adapter(endpoint).accumulator()
        with suppress(ProviderError):
            for value in values:
                accumulator.add_frame(value)
            accumulator.build_body(is_done)


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"data: {}", b"\n", b"\n\n", b"data: [DONE]\n\n"])))
def test_no_bytes_break_the_frames(chunks: list[bytes]) -> None:
    """Any bytes give frames or a `ProviderError`, however they are split."""

    def values(frames: Any, pieces: list[bytes]) -> Any:
        try:
            read_values = [value for piece in pieces for value in frames.add_bytes(piece)]
            return [*read_values, *frames.finish()]
        except ProviderError:
            return "error"

    for make in (EventFrameReader, LineFrameReader):
        assert values(make(), chunks) == values(make(), [b"".join(chunks)])


# -- through the SDKs --------------------------------------------------------------------------------


async def stream_replies(provider: Any, count: int) -> list[Any]:
    """`count` streamed answers: the items of each, or the kind of its error."""
    outcomes: list[Any] = []
    request = Request(model="m", messages=[Message(role="user", content="hi")])
    for _ in range(count):
        try:
            outcomes.append([piece async for piece in provider.stream(request)])
        except ProviderError as error:
            outcomes.append(error.kind)
    await provider.aclose()
    return outcomes


def replay_streams(path: str, endpoint: str, count: int, **options: Any) -> list[Any]:
    """The streamed answers of a cassette, read through the adapter and its SDK."""
    entry = dict(ENTRIES[endpoint])
    with CassetteServer(find_recording(path), match="order", **options) as server:
        entry["base_url"] = server.url + entry.get("base_url", "")
        config = LLMConfig.model_validate({"api_key": "k", **entry})
        provider = create_provider(config, resolve=lambda text: text)
        return asyncio.run(stream_replies(provider, count))


def only_streams(corpus: str, endpoint: str) -> list[str]:
    """Small cassettes of a corpus in which every exchange is a stream of this endpoint."""
    paths = []
    for path in list_streamed_cassettes(corpus):
        exchange_count = len(read_cassette(find_recording(path)))
        exchanges = list_streamed(path, (endpoint,))
        size = sum(len(exchange.response_body) for exchange in exchanges)
        if exchanges and len(exchanges) == exchange_count and size < 60_000:
            paths.append(path)
    return paths


@pytest.mark.parametrize(("corpus", "endpoint"), CASES)
@pytest.mark.parametrize("split", ["event", 7])
def test_recorded_streams_through_the_sdks(corpus: str, endpoint: str, split: Any) -> None:
    """Each recorded stream gives the recorded reply when read through the official SDK."""
    paths = only_streams(corpus, endpoint)
    paths = paths if split == "event" else paths[:12]
    stream_count = 0
    for path in paths:
        exchanges = list_streamed(path, (endpoint,))
        if any(exchange.status != 200 for exchange in exchanges):
            continue
        for exchange, pieces in zip(
            exchanges, replay_streams(path, endpoint, len(exchanges), split=split), strict=True
        ):
            expected = find_outcome(lambda exchange=exchange: read_recorded_reply(exchange))  # type: ignore[misc]
            if isinstance(expected, str) or isinstance(pieces, str):
                assert isinstance(expected, str), path
                assert isinstance(pieces, str), path
                continue
            reply = pieces[-1]
            assert isinstance(reply, Reply), path
            assert not [piece for piece in pieces[:-1] if isinstance(piece, Reply)]
            assert (reply.content, reply.tool_calls) == (expected.content, expected.tool_calls), path
            assert (reply.usage, reply.reasoning) == (expected.usage, expected.reasoning), path
            stream_count += 1
    assert stream_count >= (3 if corpus == "own" else {"ollama": 1}.get(endpoint, 5))


@pytest.mark.parametrize(("corpus", "endpoint"), CASES)
def test_a_cut_stream_is_an_error(corpus: str, endpoint: str) -> None:
    """A stream without its end marker is an error, never a short answer."""
    stream_count = 0
    for path in only_streams(corpus, endpoint):
        first = re.split(rb"\r?\n", list_streamed(path, (endpoint,))[0].response_body)[0]
        if stream_count < 3 and not re.search(rb'"finish_?[rR]eason": ?"|"done":true', first):
            (pieces,) = replay_streams(path, endpoint, 1, cut_after=1)
            assert pieces in ("bad_response", "connection"), path
            stream_count += 1
    assert stream_count


def test_the_sdks_are_loaded_when_they_are_used() -> None:
    """Importing the modules without I/O loads no SDK."""
    import subprocess
    import sys

    code = "import sys; sys.path.insert(0, 'tests'); import conftest; "
    code += "import toolchart.providers.registry; "
    code += "print([m for m in ('openai', 'ollama', 'google.genai') if m in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
