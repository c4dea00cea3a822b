"""A gigabyte of answer, in six shapes on five wires, whole and streamed: a failed turn that stays small.

How long each takes is measured in `benchmarks/gigabyte.py`, beside reading the same bytes alone.
"""

from __future__ import annotations

import asyncio
from itertools import product

import pytest
from gigabyte import FORMS, SHAPES, WIRES, run_turn

from toolchart.providers import wire_adapter
from toolchart.providers.openai.wire import decode_reply
from toolchart.providers.transport.stream_frames import EventFrameReader, LineFrameReader
from toolchart.providers.wire_adapter import StreamDecoder
from toolchart.states.errors import ProviderError
from toolchart.states.reading_limits import READING

ALLOWED_MIB = 300
"""What the process of a turn may take in all."""

QUICK = [
    ("openai", "deltas", "whole"),
    ("openai", "gzip", "stream"),
    ("responses", "nodes", "stream"),
    ("ollama", "bytes", "stream"),
    ("ollama", "lines", "stream"),
    ("gemini", "calls", "whole"),
    ("anthropic", "bytes", "stream"),
    ("anthropic", "nodes", "whole"),
]
"""Those that take a second each."""


def check(wire: str, shape: str, form: str) -> None:
    """Run a turn against such a host."""
    turn = asyncio.run(run_turn(wire, shape, form))
    assert (turn["ok"], turn["error"], turn["calls"]) == (False, "bad_response", 0)
    assert "larger than" in turn["message"] or "more than" in turn["message"]
    assert turn["peak_mib"] < ALLOWED_MIB


@pytest.mark.parametrize(("wire", "shape", "form"), QUICK)
def test_a_gigabyte_of_answer_stays_small(wire: str, shape: str, form: str) -> None:
    """A turn whose model sends a gigabyte ends in a failure that names the limit, no tool is run, and its
    process never has 300 MB."""
    check(wire, shape, form)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "shape", "form"), [case for case in product(WIRES, SHAPES, FORMS) if case not in QUICK]
)
def test_every_gigabyte_of_answer_stays_small(wire: str, shape: str, form: str) -> None:
    """So does every other shape on every other wire."""
    check(wire, shape, form)


# -- what one piece costs ------------------------------------------------------------------------------------


class _Deltas:
    """An accumulator that gives so many deltas for each frame."""

    def __init__(self, count: int) -> None:
        self._count = count

    def add_frame(self, frame: object) -> list[object]:
        """The frame, so often."""
        return [frame] * self._count

    def build_body(self, is_done: bool = False) -> dict[str, object]:
        """Nothing."""
        return {}

    def read_usage(self) -> None:
        """Nothing is known."""


@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_piece_counts_as_often_as_it_is_shown(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece with many deltas counts as many pieces: each of them goes through the whole house."""
    monkeypatch.setattr(READING, "stream_pieces", 100)
    decoder = StreamDecoder(EventFrameReader(), _Deltas(count), decode_reply)
    assert len([*decoder.add_bytes(b"data: {}\n\n" * (100 // count))]) == 100
    with pytest.raises(ProviderError, match="more than 100 pieces"):
        list(decoder.add_bytes(b"data: {}\n\n" * 2))


@pytest.mark.parametrize("reader", [EventFrameReader, LineFrameReader])
def test_a_stream_has_so_many_lines(reader: type[EventFrameReader | LineFrameReader]) -> None:
    """Lines that bring nothing are counted with all others: so many, and not one more."""
    stream = reader()
    assert list(stream.add_bytes(b"\n" * (READING.stream_lines - 1))) == []
    assert list(stream.add_bytes(b"\n")) == []
    with pytest.raises(ProviderError, match="more than 1,000,000 lines") as refused:
        list(stream.add_bytes(b"\n"))
    assert (refused.value.kind, refused.value.retryable) == ("bad_response", False)


@pytest.mark.parametrize("beginning", [b"", b"\xef\xbb\xbf", b'{"a": "', b"\xef\xbb\xbf{"])
@pytest.mark.parametrize("reader", [EventFrameReader, LineFrameReader])
def test_a_beginning_that_tells_nothing_is_looked_at_once(
    reader: type[EventFrameReader | LineFrameReader], beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blanks in front of an answer, and a first line without an end, are not searched again with each piece;
    an answer in one piece has the limit of a whole one, however it was asked for."""
    looked: list[int] = []
    tell = wire_adapter.is_stream
    monkeypatch.setattr(
        wire_adapter, "is_stream", lambda head, reader: (looked.append(len(head)), tell(head, reader))[1]
    )
    monkeypatch.setattr(READING, "reply_bytes", 2**16)
    decoder = StreamDecoder(reader(), _Deltas(1), decode_reply)
    if beginning:
        assert list(decoder.add_bytes(beginning)) == []
    for _ in range(16):
        assert list(decoder.add_bytes(b" " * (2**12 - 1))) == []
    with pytest.raises(ProviderError, match="larger than 65,536 bytes") as refused:
        list(decoder.add_bytes(b" " * 20))
    assert refused.value.retryable is False
    assert looked == [len(beginning)] * bool(beginning)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("cut", range(1, 12))
def test_a_stream_is_told_wherever_it_is_cut(cut: int, mark: bytes) -> None:
    """Blanks and a byte order mark in front of a stream or of a whole answer change nothing, in any cut."""
    for reader, body, count in (
        (EventFrameReader(), b"\n \ndata: {}\n\n", 1),
        (LineFrameReader(), b"\n {}\n{}\n", 2),
    ):
        decoder = StreamDecoder(reader, _Deltas(1), decode_reply)
        whole = mark + body
        frames = [*decoder.add_bytes(whole[:cut]), *decoder.add_bytes(whole[cut:]), *decoder.finish_bytes()]
        assert frames == [{}] * count
