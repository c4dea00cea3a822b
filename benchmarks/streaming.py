"""What a streamed answer costs: a megabyte of deltas, beside parsing the same JSON and nothing else.

    python benchmarks/streaming.py [--bytes 1000000]

Prints seconds for each kind of stream, the ratio to the floor, and how the cost grows from a quarter of the
size to the whole: linear is 4.
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

from toolchart.providers.gemini.stream import GeminiStream
from toolchart.providers.ollama.stream import OllamaStream
from toolchart.providers.openai.stream import ChatStream
from toolchart.providers.shared.stream_frames import EventFrames, LineFrames

PIECE = "eight ch"

Make = Callable[[str, bool], Any]


def chat(text: str, last: bool) -> Any:
    """A chunk of chat completions."""
    return {"choices": [{"delta": {"content": text}, "finish_reason": "stop" if last else None}]}


def gemini(text: str, last: bool) -> Any:
    """A chunk of generateContent."""
    end = {"finishReason": "STOP"} if last else {}
    return {"candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, **end}]}


def ollama(text: str, last: bool) -> Any:
    """A chunk of Ollama's chat."""
    return {"message": {"role": "assistant", "content": text}, "done": last, "done_reason": "stop"}


KINDS: dict[str, tuple[Make, Callable[[], Any], Callable[[], Any]]] = {
    "chat completions": (chat, EventFrames, ChatStream),
    "gemini": (gemini, EventFrames, GeminiStream),
    "ollama": (ollama, LineFrames, OllamaStream),
}


def wire(make: Make, size: int, events: bool) -> list[bytes]:
    """The chunks of an answer of so many characters."""
    count = size // len(PIECE)
    head, tail = (b"data: ", b"\n\n") if events else (b"", b"\n")
    return [head + json.dumps(make(PIECE, n == count - 1)).encode() + tail for n in range(count)]


def best(work: Callable[[], object]) -> float:
    """Seconds of the quickest of five."""
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return min(spent)


def read(chunks: list[bytes], frames: Any, growing: Any) -> int:
    """Everything but the network: bytes to deltas, and the whole answer."""
    deltas = sum(len(growing.feed(value)) for chunk in chunks for value in frames.feed(chunk))
    growing.body(*([True] if isinstance(growing, ChatStream) else []))
    return deltas


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1_000_000)
    size = parser.parse_args().bytes
    for name, (make, frames, growing) in KINDS.items():
        events = frames is EventFrames
        whole, part = wire(make, size, events), wire(make, size // 4, events)
        floor = best(lambda w=whole: [json.loads(c.removeprefix(b"data: ")) for c in w])  # type: ignore[misc]
        spent = best(lambda w=whole, f=frames, g=growing: read(w, f(), g()))  # type: ignore[misc]
        quarter = best(lambda p=part, f=frames, g=growing: read(p, f(), g()))  # type: ignore[misc]
        print(
            f"{name:17} {len(whole)} deltas: {spent:.2f} s, {spent / floor:.1f} times parsing alone; "
            f"growth from a quarter {spent / quarter:.1f}"
        )


if __name__ == "__main__":
    main()
