"""Answers of a gigabyte in six shapes for five wires, and a turn in a process of its own that reads one.

`bytes`     one text that does not end
`lines`     lines of nothing, which no piece ever comes out of; whole: blanks behind the value
`deltas`    small pieces of text
`nodes`     small values in pieces of some kilobytes
`calls`     tool calls
`gzip`      blanks, compressed a thousandfold

The child says what became of the turn, the most memory that it had at once, and how long the turn took.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import chain, repeat
from typing import Any, NamedTuple

from flooding_hosts import GZIP_BLOCK, GZIP_HEAD, read_peak_mib

GIGABYTE = 2**30

SHAPES = ("bytes", "lines", "deltas", "nodes", "calls", "gzip")
WIRES = ("openai", "responses", "ollama", "gemini", "anthropic")
FORMS = ("whole", "stream")


class Answer(NamedTuple):
    """The body of an answer: its beginning, what follows again and again, and its headers."""

    head: bytes
    block: bytes
    headers: str


def build_answer(wire: str, shape: str, form: str) -> Answer:
    """The answer of a shape, as a host of a wire would send it whole or streamed."""
    is_stream = form == "stream"
    media_type = ("application/x-ndjson" if wire == "ollama" else "text/event-stream") if is_stream else ""
    headers = f"Content-Type: {media_type or 'application/json'}"
    if shape == "gzip":
        return Answer(GZIP_HEAD, GZIP_BLOCK, f"{headers}\r\nContent-Encoding: gzip")
    if not is_stream:
        return Answer(*_WHOLE[shape](wire), headers)
    if shape == "bytes":
        return Answer(_frame(wire, {"a": "b"})[:-4], b"a" * 2**16, headers)
    if shape == "lines":
        return Answer(b"", b"\n" * 2**16 if wire == "ollama" else b": nothing\n\n" * 2**12, headers)
    piece = _PIECES[wire](*_CONTENTS[shape])
    return Answer(b"", _frame(wire, piece) * (1000 if shape == "deltas" else 20), headers)


# -- streamed ------------------------------------------------------------------------------------------------

_CONTENTS: dict[str, tuple[str, int]] = {
    "deltas": ("text", 1),
    "nodes": ("text", 1000),
    "calls": ("call", 100),
}
"""What a piece of a shape brings, and how often."""


def _frame(wire: str, value: Any) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    return data + b"\n" if wire == "ollama" else b"data: " + data + b"\n\n"


def _build_openai_piece(kind: str, count: int) -> Any:
    call = {"id": "", "function": {"name": "f", "arguments": "{}"}}
    if kind == "call":
        return {"choices": [{"index": 0, "delta": {"tool_calls": [call] * count}}]}
    return {"choices": [{"index": 0, "delta": {"content": "word "}}] * count}


def _build_responses_piece(kind: str, count: int) -> Any:
    if kind == "call":
        item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        return {"type": "response.output_item.done", "item": item, "extra": [{}] * 10}
    if count == 1:
        return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "word "}
    return {"type": "response.output_text.delta", "delta": "word ", "logprobs": [{}] * count}


def _build_ollama_piece(kind: str, count: int) -> Any:
    if kind == "call":
        return {"message": {"tool_calls": [{"function": {"name": "f", "arguments": {}}}] * count}}
    return {"message": {"content": "word "}, **({"extra": [{}] * count} if count > 1 else {})}


def _build_gemini_piece(kind: str, count: int) -> Any:
    part = {"functionCall": {"name": "f", "args": {}}} if kind == "call" else {"text": "word "}
    return {"candidates": [{"content": {"parts": [part] * count}}]}


def _build_anthropic_piece(kind: str, count: int) -> Any:
    if kind == "call":
        block = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        return {"type": "content_block_start", "index": 0, "content_block": block}
    delta = {"type": "text_delta", "text": "word "}
    extra = {"extra": [{}] * count} if count > 1 else {}
    return {"type": "content_block_delta", "index": 0, "delta": delta, **extra}


_PIECES: dict[str, Any] = {
    "openai": _build_openai_piece,
    "responses": _build_responses_piece,
    "ollama": _build_ollama_piece,
    "gemini": _build_gemini_piece,
    "anthropic": _build_anthropic_piece,
}

# -- whole ---------------------------------------------------------------------------------------------------

_CALLS: dict[str, tuple[bytes, bytes]] = {
    "openai": (
        b'{"choices":[{"message":{"tool_calls":[',
        b'{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}',
    ),
    "responses": (b'{"output":[', b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}'),
    "ollama": (b'{"message":{"tool_calls":[', b'{"function":{"name":"f","arguments":{}}}'),
    "gemini": (b'{"candidates":[{"content":{"parts":[', b'{"functionCall":{"name":"f","args":{}}}'),
    "anthropic": (b'{"content":[', b'{"type":"tool_use","id":"c","name":"f","input":{}}'),
}
"""Where the calls of a whole answer begin, and one of them."""


def _repeat_value(head: bytes, value: bytes) -> tuple[bytes, bytes]:
    return head + value, (b"," + value) * 1000


_WHOLE: dict[str, Any] = {
    "bytes": lambda wire: (b'{"text": "', b"a" * 2**16),
    "lines": lambda wire: (b"{}", b"\n" * 2**16),
    "deltas": lambda wire: _repeat_value(b'{"choices":[', b'{"delta":{"content":"word "}}'),
    "nodes": lambda wire: _repeat_value(b'{"choices":[', b"{}"),
    "calls": lambda wire: _repeat_value(*_CALLS[wire]),
}

# -- the host and the child ----------------------------------------------------------------------------------


@asynccontextmanager
async def serve(answer: Answer, size: int) -> AsyncGenerator[tuple[int, list[int]]]:
    """The port of a host that answers each request so, with about so many bytes, and what it has sent so far.

    A host sends as long as somebody reads: the bytes of all its answers are counted together.
    """
    sent, served = [0], list[asyncio.Task[None]]()

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
            await reader.readexactly(int(fields.get(b"content-length", 0)))
            headers = f"{answer.headers}\r\nTransfer-Encoding: chunked"
            writer.write(f"HTTP/1.1 200 OK\r\n{headers}\r\n\r\n".encode())
            for piece in chain([answer.head] if answer.head else [], repeat(answer.block)):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
                sent[0] += len(piece)
                if sent[0] > size:
                    break
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(send(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], sent
    finally:
        server.close()
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def run_turn(wire: str, shape: str, form: str, size: int = GIGABYTE) -> dict[str, Any]:
    """What a child process says of a turn whose model answers so.

    `ok`, `error`, `message`, `calls`, `peak_mib`, `seconds`; and `sent_mib`, what the host got rid of.
    """
    async with serve(build_answer(wire, shape, form), size) as (port, sent):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, wire, form, str(port)), stdout=subprocess.PIPE
        )
        output, _ = await child.communicate()
    return {**json.loads(output), "sent_mib": sent[0] / 2**20}


ENTRIES: dict[str, dict[str, Any]] = {
    "openai": {"provider": "openai", "base_url": "/v1"},
    "responses": {"provider": "openai", "base_url": "/v1", "api": "responses"},
    "ollama": {"provider": "ollama"},
    "gemini": {"provider": "gemini"},
    "anthropic": {"provider": "anthropic"},
}


async def _answer_turn(wire: str, form: str, port: int) -> dict[str, Any]:
    import time

    from toolchart import Agent

    def f() -> str:
        """Do nothing."""
        return "done"

    entry = {**ENTRIES[wire], "model": "m", "api_key": "k", "timeout_s": 300, "retries": 0}
    entry["base_url"] = f"http://127.0.0.1:{port}{entry.get('base_url', '')}"
    async with Agent(entry, tools=[f]).open(log="memory") as agent:
        begin = time.monotonic()
        if form == "stream":
            async with agent.stream("hi") as stream:
                async for _ in stream:
                    pass
            turn = stream.turn
        else:
            turn = await agent.arun("hi")
        seconds = time.monotonic() - begin
    return {
        "ok": turn.ok,
        "error": turn.error.kind if turn.error is not None else None,
        "message": turn.error.message if turn.error is not None else turn.limit_reached,
        "calls": len(turn.tool_calls),
        "peak_mib": read_peak_mib(),
        "seconds": seconds,
    }


if __name__ == "__main__":
    _wire, _form, _port = sys.argv[1:]
    print(json.dumps(asyncio.run(_answer_turn(_wire, _form, int(_port)))))
