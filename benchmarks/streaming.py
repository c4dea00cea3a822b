"""Benchmark of streaming: reading a megabyte of deltas, compared with only parsing the same JSON.

    python benchmarks/streaming.py [--bytes 1000000]

Prints the seconds for each kind of stream, the ratio to the floor, and the growth of the cost from a quarter
of the size to the full size: 4 is linear.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import conftest  # noqa: F401  makes a checkout importable

from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.transport.stream_frames import EventFrameReader, LineFrameReader

PIECE = "eight ch"

ChunkMaker = Callable[[str, bool], Any]


def make_chat_chunk(text: str, last: bool) -> Any:
    """Make a chunk of chat completions."""
    return {"choices": [{"delta": {"content": text}, "finish_reason": "stop" if last else None}]}


def make_gemini_chunk(text: str, last: bool) -> Any:
    """Make a chunk of generateContent."""
    end = {"finishReason": "STOP"} if last else {}
    return {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, **end}]}


def make_ollama_chunk(text: str, last: bool) -> Any:
    """Make a chunk of Ollama's chat API."""
    return {"message": {"role": "assistant", "content": text}, "done": last, "done_reason": "stop"}


KINDS: dict[str, tuple[ChunkMaker, Callable[[], Any], Callable[[], Any]]] = {
    "chat completions": (make_chat_chunk, EventFrameReader, ChatAccumulator),
    "gemini": (make_gemini_chunk, EventFrameReader, GeminiAccumulator),
    "ollama": (make_ollama_chunk, LineFrameReader, OllamaAccumulator),
}


def build_stream(make_chunk: ChunkMaker, size: int, events: bool) -> list[bytes]:
    """Build the bytes of a streamed answer of `size` characters."""
    count = size // len(PIECE)
    head, tail = (b"data: ", b"\n\n") if events else (b"", b"\n")
    return [head + json.dumps(make_chunk(PIECE, n == count - 1)).encode() + tail for n in range(count)]


def measure_seconds(work: Callable[[], object]) -> float:
    """Measure the seconds of a function: the best of five runs."""
    elapsed_s = []
    for _ in range(5):
        start_s = time.perf_counter()
        work()
        elapsed_s.append(time.perf_counter() - start_s)
    return min(elapsed_s)


def read_stream(chunks: list[bytes], frames: Any, accumulator: Any) -> int:
    """Read a stream without a network, from bytes to the whole answer; return the number of deltas."""
    deltas = sum(len(accumulator.add_frame(value)) for chunk in chunks for value in frames.add_bytes(chunk))
    accumulator.build_body(*([True] if isinstance(accumulator, ChatAccumulator) else []))
    return deltas


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1_000_000)
    size = parser.parse_args().bytes
    for name, (make_chunk, frames, accumulator) in KINDS.items():
        events = frames is EventFrameReader
        whole, part = (build_stream(make_chunk, size, events), build_stream(make_chunk, size // 4, events))
        floor = measure_seconds(lambda w=whole: [json.loads(c.removeprefix(b"data: ")) for c in w])  # type: ignore[misc]
        elapsed_s = measure_seconds(lambda w=whole, f=frames, g=accumulator: read_stream(w, f(), g()))  # type: ignore[misc]
        quarter = measure_seconds(lambda p=part, f=frames, g=accumulator: read_stream(p, f(), g()))  # type: ignore[misc]
        print(
            f"{name:17} {len(whole)} deltas: {elapsed_s:.2f} s, {elapsed_s / floor:.1f} times parsing alone; "
            f"growth from a quarter {elapsed_s / quarter:.1f}"
        )


if __name__ == "__main__":
    main()
