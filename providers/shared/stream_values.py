"""JSON values out of a stream of bytes, however the network split them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from toolchart.providers.shared.stream_frames import EventFrames, Frames, LineFrames


async def values_of(chunks: AsyncIterable[bytes], frames: Frames) -> AsyncGenerator[Any, None]:
    """The values as they are whole, until the stream says that it is over or ends.

    Raises:
        ProviderError: a piece that is not JSON, as the last one of a cut stream is.
    """
    async for data in chunks:
        for value in frames.feed(data):
            yield value
        if frames.done:
            return
    for value in frames.end():
        yield value


def json_lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Any, None]:
    """The values of newline-delimited JSON."""
    return values_of(chunks, LineFrames())


def sse_values(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Any, None]:
    """The JSON data of server-sent events."""
    return values_of(chunks, EventFrames())
