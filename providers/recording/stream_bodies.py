"""Joins a recorded stream into the body that the host would have sent without streaming.

A recording is complete, so nothing has to be shown as it arrives. The joined body is read by the same code
as a body that was not streamed. A stream without its terminal marker was cut and is a failure; so is a stream
that contains an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolchart.providers.hosts import find_wire_format
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.transport.stream_frames import EventFrameReader, FrameReader, LineFrameReader


def join_stream_body(endpoint: str, body: bytes) -> Any:
    """The complete answer of a streamed body.

    Raises:
        ProviderError: the stream contains an error, was cut, or is not JSON.
    """
    wire_format = find_wire_format(endpoint)
    if wire_format is None:
        raise build_bad_response_error(f"recorded streams of the endpoint {endpoint!r} cannot be read")
    accumulator = wire_format.load_accumulator()()
    frames = wire_format.create_frame_reader()
    if frames is None:
        values, is_done = _read_stream_values(body.strip())
    else:
        values, is_done = [*frames.add_bytes(body), *frames.finish()], frames.is_done
    for value in values:
        if isinstance(value, Mapping):
            accumulator.add_frame(value)
    return accumulator.build_body(is_done)


def _read_stream_values(body: bytes) -> tuple[list[Any], bool]:
    """The values of events, JSON lines or an array of chunks; and whether the stream has its end marker."""
    if body.startswith(b"["):
        try:
            return list(json.loads(body)), False  # keeps integers beyond 64 bits
        except (ValueError, RecursionError):
            raise build_bad_response_error("the recorded stream is not JSON") from None
    frames: FrameReader = LineFrameReader() if body.startswith(b"{") else EventFrameReader()
    # A recorder may have kept lone carriage returns, which end a line too.
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    values = [*frames.add_bytes(lines), *frames.finish()]
    return values, frames.is_done
