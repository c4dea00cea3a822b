"""Benchmark of the wire: whole loops over loopback, single calls of long conversations, and streamed chunks.

    python benchmarks/wire.py [--rounds 5] [--sizes 10,100,300] [--messages 20,200,2000,6000] [--chunks 20000]

The host is a process of its own that answers at once: with a call of a tool until the conversation has as
many results as its address says, then with a text. It reads no JSON.

1. Loops: an engine (chart `tool_loop`, log in memory) beside a plain loop with the official SDK, which sends
   `chat.completions.create` and appends to a list. Milliseconds of wall clock time per iteration; both sides
   in turns, medians over the rounds.
2. Calls: milliseconds of CPU time of the event loop's thread in one `complete`, for the first request of a
   conversation (cold) and for one that is a message longer (warm), beside the HTTP library alone with the
   same bytes.
3. Streams: microseconds of CPU time per streamed chunk of text, through engine and adapter, beside the HTTP
   library and `json.loads` alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import conftest  # noqa: F401  makes a checkout importable
import httpx2
from openai import AsyncOpenAI

from toolchart.engine.log.stores import open_store
from toolchart.engine.runtime.engine import Engine
from toolchart.providers.registry import create_provider
from toolchart.providers.transport.encoded_bodies import encode_body, forget_message_parts
from toolchart.specs.models import LLMConfig
from toolchart.states.message_list import MessageList, RequestMessages
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition
from toolchart.tools import tool

HOST = """
import asyncio, json, sys

def whole(message, reason):
    return {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}}

CALL = {"type": "function", "function": {"name": "add", "arguments": json.dumps({"a": 1, "b": 2})}}
ANSWERS = {
    "responses": {"status": "completed", "output": [{"type": "message", "content": [
        {"type": "output_text", "text": "Three."}]}]},
    "messages": {"content": [{"type": "text", "text": "Three."}], "stop_reason": "end_turn"},
    "chat": {"message": {"content": "Three."}, "done": True, "done_reason": "stop"},
    "generateContent": {"candidates": [{"content": {"parts": [{"text": "Three."}]}, "finishReason": "STOP"}]},
    "completions": whole({"role": "assistant", "content": "Three."}, "stop"),
}
TEXTS = {name: json.dumps(answer).encode() for name, answer in ANSWERS.items()}

def make_answer(path, body):
    end = path.replace(":", "/").rpartition("/")[2]
    if end != "completions":
        return TEXTS[end]
    limit, results = int(path.split("/")[1]), body.count(b'"tool_call_id"')
    if results >= limit:
        return TEXTS[end]
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": f"call_{results}", **CALL}]}
    return json.dumps(whole(message, "tool_calls")).encode()

CHUNK = 'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{"content":"a word "}}]}'
LAST = 'data: {"id":"r","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'

def make_stream(count):
    return ((CHUNK + "\\n\\n") * count + LAST + "\\n\\ndata: [DONE]\\n\\n").encode()

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            path = head.split(b" ", 2)[1].decode()
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\\r")[0] or 0)
            body = await reader.readexactly(length)
            is_stream = b'"stream":true' in body
            data = make_stream(int(path.split("/")[1])) if is_stream else make_answer(path, body)
            kind = b"text/event-stream" if is_stream else b"application/json"
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Type: %s\\r\\nContent-Length: %d\\r\\n\\r\\n%s"
                         % (kind, len(data), data))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
PROMPT, QUESTION = "You add numbers.", "Add them all."


@contextmanager
def run_host() -> Iterator[str]:
    """The address of the host, which runs in a process of its own."""
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


@tool(name="add", isolation="inline")
def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# -- loops ---------------------------------------------------------------------------------------


async def time_engine_loop(address: str, iterations: int) -> float:
    """Milliseconds per iteration of one turn of an engine."""
    spec = {
        "chart": "tool_loop",
        "llms": {
            "a": {
                "provider": "openai",
                "model": "m",
                "api_key": "k",
                "base_url": f"{address}/{iterations}/v1",
            }
        },
        "limits": {"max_iterations": iterations + 1},
        "tools": {},
        "responses": [{"llm": "a", "prompt": PROMPT, "tools": {"enabled": True}}],
    }
    engine = Engine(spec, log=open_store("memory"), functions=[add_numbers])
    engine.hosts.get_provider("a")
    start = time.perf_counter()
    result = await engine.arun(QUESTION)
    seconds = time.perf_counter() - start
    assert (result.content, len(result.tool_calls)) == ("Three.", iterations), result
    await engine.hosts.aclose()
    return seconds * 1000 / iterations


async def time_sdk_loop(address: str, iterations: int) -> float:
    """Milliseconds per iteration of a plain loop with the SDK."""
    client = AsyncOpenAI(api_key="k", base_url=f"{address}/{iterations}/v1", max_retries=0)
    function = {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}
    tools: Any = [{"type": "function", "function": function}]
    messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": QUESTION}]
    count, start = 0, time.perf_counter()
    while True:
        reply = await client.chat.completions.create(model="m", messages=messages, tools=tools)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)  # type: ignore[union-attr]
            result = json.dumps({"success": True, "result": arguments["a"] + arguments["b"]})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            count += 1
    seconds = time.perf_counter() - start
    assert count == iterations
    await client.close()
    return seconds * 1000 / iterations


async def compare_loops(address: str, sizes: list[int], rounds: int) -> None:
    """Print the milliseconds per iteration of both loops."""
    print("loop: ms per iteration (median, least)")
    print(f"{'iterations':>12}{'engine':>18}{'plain SDK loop':>18}{'ratio':>8}")
    for loop in (time_engine_loop, time_sdk_loop):
        await loop(address, 3)
    for size in sizes:
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(await time_engine_loop(address, size))
            theirs.append(await time_sdk_loop(address, size))
        cells = "".join(f"{statistics.median(row):10.2f} {min(row):7.2f}" for row in (ours, theirs))
        print(f"{size:>12}{cells}{statistics.median(ours) / statistics.median(theirs):8.2f}")


# -- single calls --------------------------------------------------------------------------------

ENTRIES: dict[str, dict[str, Any]] = {
    "chat": {"provider": "openai", "base_url": "/0/v1"},
    "responses": {"provider": "openai", "base_url": "/0/v1", "api": "responses"},
    "gemini": {"provider": "gemini", "base_url": ""},
    "anthropic": {"provider": "anthropic", "base_url": ""},
    "ollama": {"provider": "ollama", "base_url": ""},
}


def make_messages(count: int) -> MessageList:
    """A conversation with so many messages: calls, and results of about 200 characters."""
    messages = [Message(role="user", content=QUESTION)]
    for number in range((count - 1) // 2):
        arguments = {"a": number, "b": 2}
        call = ToolCall(id=f"call_{number}", name="add", arguments=arguments, raw=json.dumps(arguments))
        result = json.dumps({"success": True, "result": number, "text": "some words " * 15})
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", tool_call_id=call.id, name="add", content=result))
    return MessageList(messages)


async def time_calls(address: str, entry: dict[str, Any], count: int, rounds: int) -> list[float]:
    """Milliseconds of CPU time: of the first call, of a later one, and of the HTTP library alone."""
    keys = {**entry, "base_url": address + entry["base_url"], "api_key": "k", "model": "m"}
    provider: Any = create_provider(LLMConfig.model_validate(keys), resolve=str)
    offered_tools = (ToolDefinition(name="add", description="Add two numbers.", parameters=PARAMETERS),)
    cold, warm, floor = [], [], []
    async with httpx2.AsyncClient() as client:
        for _ in range(rounds):
            messages = make_messages(count)
            forget_message_parts()
            for times in (cold, warm):
                request = Request(model="m", messages=RequestMessages(PROMPT, messages), tools=offered_tools)
                start = time.thread_time()
                await provider.complete(request)
                times.append((time.thread_time() - start) * 1000)
                messages = messages.append(Message(role="user", content="And more."))
            data = encode_body(provider.build_body(request, stream=False))
            start = time.thread_time()
            await client.post(f"{address}/0/v1/chat/completions", content=data)
            floor.append((time.thread_time() - start) * 1000)
    await provider.aclose()
    return [statistics.median(times) for times in (cold, warm, floor)]


async def compare_calls(address: str, counts: list[int], rounds: int) -> None:
    """Print the CPU time of single calls."""
    print("\ncall: ms of CPU (cold / warm / the HTTP library alone)")
    print(f"{'messages':>12}" + "".join(f"{name:>24}" for name in ENTRIES))
    for entry in ENTRIES.values():
        await time_calls(address, entry, 3, 2)
    for count in counts:
        rows = [await time_calls(address, entry, count, rounds) for entry in ENTRIES.values()]
        print(f"{count:>12}" + "".join(f"{' / '.join(f'{ms:.2f}' for ms in row):>24}" for row in rows))


# -- streams -------------------------------------------------------------------------------------


async def time_streams(address: str, chunks: int) -> tuple[float, float]:
    """Microseconds of CPU time per chunk: engine and adapter; the HTTP library with a JSON parser."""
    llm = {"provider": "openai", "model": "m", "api_key": "k", "base_url": f"{address}/{chunks}/v1"}
    engine = Engine(
        {"chart": "tool_loop", "llms": {"a": llm}, "responses": [{"llm": "a", "prompt": PROMPT}]},
        log=open_store("memory"),
    )
    start = time.thread_time()
    await engine.arun(QUESTION, on_delta=lambda _: None)
    ours = (time.thread_time() - start) / chunks
    await engine.hosts.aclose()
    start = time.thread_time()
    async with (
        httpx2.AsyncClient() as client,
        client.stream("POST", f"{address}/{chunks}/v1/x", content=b'{"stream":true}') as response,
    ):
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                json.loads(line[6:])
    return ours * 1e6, (time.thread_time() - start) / chunks * 1e6


async def compare_streams(address: str, chunks: int, rounds: int) -> None:
    """Print the CPU time per streamed chunk."""
    pairs = [await time_streams(address, chunks) for _ in range(rounds)]
    ours, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"\nstream: {ours:.1f} us of CPU per chunk; the HTTP library and json.loads alone {floor:.1f} us")


async def run_benchmarks(options: argparse.Namespace) -> None:
    """All three comparisons."""
    with run_host() as address:
        await compare_loops(address, [int(size) for size in options.sizes.split(",")], options.rounds)
        await compare_calls(address, [int(count) for count in options.messages.split(",")], options.rounds)
        await compare_streams(address, options.chunks, options.rounds)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="10,100,300")
    parser.add_argument("--messages", default="20,200,2000,6000")
    parser.add_argument("--chunks", type=int, default=20_000)
    asyncio.run(run_benchmarks(parser.parse_args()))


if __name__ == "__main__":
    main()
