"""Benchmark of beginning a turn, and of an iteration over the wire, beside another tree.

    python benchmarks/turns.py [--rounds 5] [--beside TREE]

1. A turn of one reply: the first one of a new conversation, and a further one of a conversation that the
   engine has in memory. The log is in memory, or in SQLite with `durability: normal`.
2. An iteration of a turn with 100 of them over loopback, in the form of chat completions: whole and streamed.
   The host is a process of its own. A plain loop over the official SDK sends and reads the same.

Milliseconds of processor time of the process that runs the engine. Each measurement runs in a process of its
own, and the trees take turns; the medians are printed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import beside

TURNS, ITERATIONS = 200, 100

HOST = """
import asyncio, json, sys

def whole(message, reason):
    return {"id": "r", "model": "m", "object": "chat.completion", "created": 1,
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}}

def stream(message, reason):
    pieces = [{"role": "assistant", "content": ""}]
    if message["content"]:
        pieces += [{"content": word} for word in ("Thr", "ee", ".")]
    for call in message.get("tool_calls", ()):
        function = call["function"]
        pieces.append({"tool_calls": [{"index": 0, **call, "function": {**function, "arguments": ""}}]})
        pieces += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
                   for piece in (function["arguments"][:4], function["arguments"][4:])]
    head = {"id": "r", "model": "m", "object": "chat.completion.chunk", "created": 1}
    lines = [{**head, "choices": [{"index": 0, "delta": piece, "finish_reason": None}]} for piece in pieces]
    lines.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return "".join(f"data: {json.dumps(line)}\\n\\n" for line in lines) + "data: [DONE]\\n\\n"

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\\r")[0])
            body = await reader.readexactly(length)
            results = body.count(b'"tool_call_id"')
            message, reason = {"role": "assistant", "content": "Three."}, "stop"
            if results < int(sys.argv[1]):
                function = {"name": "add", "arguments": json.dumps({"a": results, "b": 2})}
                call = {"id": f"call_{results}", "type": "function", "function": function}
                message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
            is_stream = json.loads(body).get("stream")
            data = stream(message, reason) if is_stream else json.dumps(whole(message, reason))
            kind = "text/event-stream" if is_stream else "application/json"
            writer.write(f"HTTP/1.1 200 OK\\r\\nContent-Type: {kind}\\r\\n".encode())
            writer.write(f"Content-Length: {len(data)}\\r\\n\\r\\n{data}".encode())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def run_host() -> Iterator[str]:
    """The address of a host that asks for `ITERATIONS` calls, and then answers."""
    command = [sys.executable, "-c", HOST, str(ITERATIONS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.terminate()


def make_spec(entry: dict[str, Any]) -> dict[str, Any]:
    """An agent with one model."""
    return {
        "chart": "tool_loop",
        "llms": {"model": entry},
        "limits": {"max_iterations": ITERATIONS + 1},
        "tools": {},
        "responses": [{"llm": "model", "prompt": "You add numbers.", "tools": {"enabled": True}}],
    }


def measure_turn_ms(*, is_first: bool, in_sqlite: bool) -> float:
    """A turn of one reply: the first of a conversation, or a further one."""
    from toolchart import Engine
    from toolchart.engine.log.stores import open_store

    replies = ["done"] * (TURNS + 10)
    spec = make_spec({"provider": "scripted", "model": "m", "replies": replies})

    async def run(folder: str) -> float:
        log: Any = open_store(f"{folder}/log.db", durable=False) if in_sqlite else "memory"
        engine = Engine(spec, log=log)
        for _ in range(10):
            await engine.arun("go", conversation="c")
        gc.collect()
        start_s = time.process_time()
        for turn in range(TURNS):
            await engine.arun("go", conversation=f"c{turn}" if is_first else "c")
        return time.process_time() - start_s

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(folder)) / TURNS * 1e3


def measure_iteration_ms(*, is_streamed: bool) -> float:
    """An iteration over the wire."""
    from toolchart import Engine, tool

    @tool(isolation="inline")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def run(address: str) -> float:
        entry = {"provider": "openai", "model": "m", "api_key": "k", "base_url": address}
        engine = Engine(make_spec(entry), log="memory", functions=[add])
        elapsed_s = 0.0
        for _ in range(2):  # the first turn imports the SDK and opens the connection
            start_s = time.process_time()
            result: Any
            if is_streamed:
                result = [item async for item in engine.stream("go")][-1]
            else:
                result = await engine.arun("go")
            elapsed_s = time.process_time() - start_s
            assert len(result.tool_calls) == ITERATIONS, result
        await engine.aclose()
        return elapsed_s

    with run_host() as address:
        return asyncio.run(run(address)) / ITERATIONS * 1e3


def measure_sdk_ms(*, is_streamed: bool) -> float:
    """An iteration of a plain loop over the official SDK."""
    from openai import AsyncOpenAI

    parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    function = {"name": "add", "description": "Add two numbers.", "parameters": parameters}
    tools: Any = [{"type": "function", "function": function}]

    async def ask(client: AsyncOpenAI, messages: list[Any]) -> dict[str, Any]:
        if not is_streamed:
            reply = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            return reply.choices[0].message.model_dump(exclude_none=True)
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        stream = await client.chat.completions.create(model="m", messages=messages, tools=tools, stream=True)
        async for chunk in stream:
            delta = chunk.choices[0].delta
            message["content"] += delta.content or ""
            for piece in delta.tool_calls or ():
                data = piece.model_dump(exclude_none=True, exclude={"index"})
                if piece.id:
                    message["tool_calls"] = [data]
                else:
                    message["tool_calls"][0]["function"]["arguments"] += data["function"]["arguments"]
        return message

    async def run(address: str) -> float:
        client = AsyncOpenAI(api_key="k", base_url=address, max_retries=0)
        elapsed_s = 0.0
        for _ in range(2):
            messages: list[Any] = [{"role": "system", "content": "You add numbers."}]
            messages.append({"role": "user", "content": "go"})
            start_s = time.process_time()
            while True:
                message = await ask(client, messages)
                messages.append(message)
                if not message.get("tool_calls"):
                    break
                for call in message["tool_calls"]:
                    arguments = json.loads(call["function"]["arguments"])
                    content = json.dumps({"success": True, "result": arguments["a"] + arguments["b"]})
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            elapsed_s = time.process_time() - start_s
        await client.close()
        return elapsed_s

    with run_host() as address:
        return asyncio.run(run(address)) / ITERATIONS * 1e3


MEASUREMENTS: dict[str, beside.Measurement] = {
    "first turn, memory": lambda: measure_turn_ms(is_first=True, in_sqlite=False),
    "first turn, SQLite": lambda: measure_turn_ms(is_first=True, in_sqlite=True),
    "further turn, memory": lambda: measure_turn_ms(is_first=False, in_sqlite=False),
    "further turn, SQLite": lambda: measure_turn_ms(is_first=False, in_sqlite=True),
    "iteration, whole": lambda: measure_iteration_ms(is_streamed=False),
    "iteration, whole, SDK alone": lambda: measure_sdk_ms(is_streamed=False),
    "iteration, streamed": lambda: measure_iteration_ms(is_streamed=True),
    "iteration, streamed, SDK alone": lambda: measure_sdk_ms(is_streamed=True),
}


def main() -> None:
    """Parse the options, measure, print."""
    options = beside.make_parser(__doc__).parse_args()
    if options.run:
        gc.disable()
        print(MEASUREMENTS[options.run]())
        return
    beside.measure_medians(__file__, list(MEASUREMENTS), options)


if __name__ == "__main__":
    main()
