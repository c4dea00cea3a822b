"""A recorded stream put together: the whole answer that its pieces tell, as the host would have sent it.

A recording is whole, so nothing has to be shown as it grows; the pieces become the body of an answer that
was not streamed, and are read by the same map as that. What has no terminal marker was cut and is a
failure, and so is an error told inside the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from toolchart.providers.anthropic.stream import AnthropicStream
from toolchart.providers.gemini.stream import GeminiStream
from toolchart.providers.ollama.stream import OllamaStream
from toolchart.providers.openai.responses_stream import ResponseStream
from toolchart.providers.openai.stream import ChatStream
from toolchart.providers.shared.failures import unreadable
from toolchart.providers.shared.stream_frames import EventFrames, Frames, LineFrames

_STREAMS: dict[str, Callable[[], Any]] = {
    "chat": ChatStream,
    "gemini": GeminiStream,
    "messages": AnthropicStream,
    "ollama": OllamaStream,
    "responses": ResponseStream,
}


def whole_body(endpoint: str, body: bytes) -> Any:
    """The whole answer of a streamed body.

    Raises:
        ProviderError: an error told inside the stream, a stream that was cut, or one that is not JSON.
    """
    if endpoint not in _STREAMS:
        raise unreadable(f"recorded streams of {endpoint!r} are not read")
    stream = _STREAMS[endpoint]()
    values, done = _values(body.strip())
    for value in values:
        if isinstance(value, Mapping):
            stream.feed(value)
    return stream.body(done) if isinstance(stream, ChatStream) else stream.body()


def _values(body: bytes) -> tuple[list[Any], bool]:
    """The values of events, JSON lines or an array of chunks; and whether it says that it is over."""
    if body.startswith(b"["):
        try:
            return list(json.loads(body)), False  # keeps integers beyond 64 bits
        except (ValueError, RecursionError):
            raise unreadable("the recorded stream is not JSON") from None
    frames: Frames = LineFrames() if body.startswith(b"{") else EventFrames()
    # A recorder may have kept lone carriage returns, which end a line too.
    told = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    values = [*frames.feed(told), *frames.end()]
    return values, frames.done
