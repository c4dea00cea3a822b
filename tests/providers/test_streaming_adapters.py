"""Streams through the real SDKs over loopback: the recorded reply, however the bytes are split."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import RECORDED, index, needs_recorded, replayer

from toolchart.providers.gemini.stream import GeminiStream
from toolchart.providers.ollama.stream import OllamaStream
from toolchart.providers.openai.responses_stream import ResponseStream
from toolchart.providers.openai.stream import ChatStream
from toolchart.providers.recording.cassettes import Exchange, read_cassette
from toolchart.providers.recording.recorded_calls import reply_of
from toolchart.providers.recording.stream_bodies import whole_body
from toolchart.providers.registry import create_provider
from toolchart.providers.shared.stream_frames import EventFrames, LineFrames
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import CallArguments, CallStarted, ReasoningDelta, TextDelta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Message, Reply, Request, arguments_text

STREAMS: dict[str, Callable[[], Any]] = {
    "chat": ChatStream,
    "gemini": GeminiStream,
    "ollama": OllamaStream,
    "responses": ResponseStream,
}


def body_of(stream: Any, done: bool) -> Any:
    """The whole answer; only chat completions have a word of their own for the end."""
    return stream.body(done) if isinstance(stream, ChatStream) else stream.body()


def fed(values: Iterable[Any], stream: Any) -> list[Any]:
    """The deltas of values."""
    return [delta for value in values for delta in stream.feed(value)]


ENTRIES = {
    "chat": {"provider": "openai", "base_url": "/v1", "finish_words": {"": "stop"}},
    "responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "gemini": {"provider": "gemini"},
    "ollama": {"provider": "ollama"},
}

STREAMED = [
    entry["file"]
    for entry in index()
    if entry["kind"] == "cassette" and {"sse", "ndjson"} & set(entry.get("features", ()))
]


def streamed(path: str, endpoints: tuple[str, ...] = tuple(STREAMS)) -> list[Exchange]:
    """The streamed exchanges of a cassette; arrays are what a recorder made of a stream."""
    return [
        one
        for one in read_cassette(RECORDED / path)
        if one.streamed and one.endpoint in endpoints and not one.body.startswith(b"[")
    ]


def outcome(work: Callable[[], Reply]) -> Reply | str:
    """The reply, or the class of the failure."""
    try:
        return work()
    except ProviderError as error:
        return error.kind


# -- pure --------------------------------------------------------------------------------------------


@needs_recorded
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_stream_is_the_same_however_its_bytes_are_split(size: int) -> None:
    """S3.4: every recorded stream, cut anywhere, gives the body that it gives whole."""
    seen = 0
    for path in STREAMED:
        for exchange in streamed(path):
            body = exchange.body.strip()
            frames = LineFrames() if body.startswith(b"{") else EventFrames()
            growing = STREAMS[exchange.endpoint]()
            try:
                whole = whole_body(exchange.endpoint, body)
            except ProviderError:
                continue
            for start in range(0, len(body), size):
                fed(frames.feed(body[start : start + size]), growing)
            fed(frames.end(), growing)
            assert body_of(growing, frames.done) == whole, path
            seen += 1
    assert seen > 120


@needs_recorded
def test_deltas_say_what_the_reply_says() -> None:
    """S3.4: text, reasoning, names and arguments of the deltas are those of the whole reply."""
    for path in STREAMED:
        for exchange in streamed(path, ("chat", "gemini", "ollama")):
            reply = outcome(lambda exchange=exchange: reply_of(exchange))  # type: ignore[misc]
            if isinstance(reply, str):
                continue
            body = exchange.body.strip()
            frames = LineFrames() if body.startswith(b"{") else EventFrames()
            growing = STREAMS[exchange.endpoint]()
            deltas = [*fed(frames.feed(body), growing), *fed(frames.end(), growing)]
            text = "".join(one.text for one in deltas if isinstance(one, TextDelta))
            assert text == (reply.content or ""), path
            names = [one.name for one in deltas if isinstance(one, CallStarted)]
            assert names == [call.name for call in reply.tool_calls], path
            for place, call in enumerate(reply.tool_calls):
                given = "".join(
                    one.text
                    for one in deltas
                    if isinstance(one, CallArguments) and one.index == place
                )
                assert given == arguments_text(call) or json.loads(given) == call.arguments, path
            if reply.reasoning and exchange.endpoint != "chat":
                thought = "".join(one.text for one in deltas if isinstance(one, ReasoningDelta))
                assert thought == reply.reasoning, path


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=5)
    | st.sampled_from(
        ["stop", "tool_calls", "error", "response.completed", "response.output_text.delta"]
    ),
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


@settings(max_examples=2500, deadline=None)
@given(st.lists(json_values, max_size=4), st.booleans())
def test_no_sequence_of_values_breaks_an_accumulator(values: list[Any], done: bool) -> None:
    """Ten thousand sequences of anything, over the four kinds of stream: a body, or a `ProviderError`."""
    for make in STREAMS.values():
        growing = make()
        try:
            fed(values, growing)
            body_of(growing, done)
        except ProviderError:
            continue


@given(
    st.lists(
        st.binary(max_size=12) | st.sampled_from([b"data: {}", b"\n", b"\n\n", b"data: [DONE]\n\n"])
    )
)
def test_no_bytes_break_the_frames(chunks: list[bytes]) -> None:
    """Whatever arrives is values or a `ProviderError`, and the same in one piece."""

    def values(frames: Any, pieces: list[bytes]) -> Any:
        try:
            told = [value for piece in pieces for value in frames.feed(piece)]
            return [*told, *frames.end()]
        except ProviderError:
            return "error"

    for make in (EventFrames, LineFrames):
        assert values(make(), chunks) == values(make(), [b"".join(chunks)])


# -- through the SDKs --------------------------------------------------------------------------------


async def through(provider: Any, count: int) -> list[Any]:
    """So many streamed answers: the pieces of each, or the class of its failure."""
    found: list[Any] = []
    request = Request(model="m", messages=[Message(role="user", content="hi")])
    for _ in range(count):
        try:
            found.append([piece async for piece in provider.stream(request)])
        except ProviderError as error:
            found.append(error.kind)
    await provider.aclose()
    return found


def served(path: str, endpoint: str, count: int, **options: Any) -> list[Any]:
    """A cassette's answers, through the adapter and its SDK."""
    entry = dict(ENTRIES[endpoint])
    with replayer().CassetteServer(RECORDED / path, match="order", **options) as server:
        entry["base_url"] = server.url + entry.get("base_url", "")
        config = LLMConfig.model_validate({"api_key": "k", **entry})
        provider = create_provider(config, resolve=lambda text: text)
        return asyncio.run(through(provider, count))


def only_streams(endpoint: str) -> list[str]:
    """Cassettes whose every exchange is streamed by one endpoint; the small ones, for time."""
    found = []
    for path in STREAMED:
        every = read_cassette(RECORDED / path)
        mine = streamed(path, (endpoint,))
        if mine and len(mine) == len(every) and sum(len(one.body) for one in mine) < 60_000:
            found.append(path)
    return found


@needs_recorded
@pytest.mark.parametrize("endpoint", sorted(ENTRIES))
@pytest.mark.parametrize("split", ["event", 7])
def test_recorded_streams_through_the_sdks(endpoint: str, split: Any) -> None:
    """Each recorded stream arrives through the official SDK as the reply that the recording tells."""
    paths = only_streams(endpoint)
    paths = paths if split == "event" else paths[:12]
    seen = 0
    for path in paths:
        exchanges = streamed(path, (endpoint,))
        if any(one.status != 200 for one in exchanges):
            continue
        for exchange, pieces in zip(
            exchanges, served(path, endpoint, len(exchanges), split=split), strict=True
        ):
            expected = outcome(lambda exchange=exchange: reply_of(exchange))  # type: ignore[misc]
            if isinstance(expected, str) or isinstance(pieces, str):
                assert isinstance(expected, str), path
                assert isinstance(pieces, str), path
                continue
            reply = pieces[-1]
            assert isinstance(reply, Reply), path
            assert not [piece for piece in pieces[:-1] if isinstance(piece, Reply)]
            assert (reply.content, reply.tool_calls) == (expected.content, expected.tool_calls), (
                path
            )
            assert (reply.usage, reply.reasoning) == (expected.usage, expected.reasoning), path
            seen += 1
    assert seen >= {"ollama": 1}.get(endpoint, 5)


@needs_recorded
@pytest.mark.parametrize("endpoint", sorted(ENTRIES))
def test_a_cut_stream_is_an_error(endpoint: str) -> None:
    """A stream that ends without its terminal marker is a failure, never a short answer."""
    seen = 0
    for path in only_streams(endpoint):
        first = re.split(rb"\r?\n", streamed(path, (endpoint,))[0].body)[0]
        if seen < 3 and not re.search(rb'"finish_?[rR]eason": ?"|"done":true', first):
            (pieces,) = served(path, endpoint, 1, cut_after=1)
            assert pieces in ("bad_response", "connection"), path
            seen += 1
    assert seen


def test_the_sdks_are_loaded_when_they_are_used() -> None:
    """Importing the pure parts brings no SDK."""
    import subprocess
    import sys

    code = "import sys; sys.path.insert(0, 'tests'); import conftest; "
    code += "import toolchart.providers.recording.stream_bodies; "
    code += "print([m for m in ('openai', 'ollama', 'google.genai') if m in sys.modules])"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
