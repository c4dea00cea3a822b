"""Tests of streaming: accumulators and decoders alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_exchanges import Exchange, get_adapter, read_cassette, read_recorded_reply
from recorded_traffic import CORPORA, find_recording, list_streamed_cassettes

from toolchart.providers.transport.stream_frames import EventFrameReader, LineFrameReader
from toolchart.states.errors import ProviderError
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    Reply,
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
