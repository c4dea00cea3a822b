"""An MCP server without a library, which answers the call of its tool with a flood; its argument names it.

`python mcp_flooding_server.py FLOOD` speaks over standard input and output; `answer_post` over HTTP.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

PIECE = 2**16


def answer_plainly(request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to anything but the call of a tool; None where a server answers nothing."""
    if "id" not in request:
        return None
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    match request["method"]:
        case "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "flood", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}
        case _:
            return {**answer, "error": {"code": -32601, "message": "Method not found"}}
    return {**answer, "result": result}


def iterate_flood(flood: str, request: dict[str, Any]) -> Iterator[bytes]:
    """The pieces of the answer to a call: a message without an end, one of many values, or an honest one."""
    begin = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request["id"]
    if flood == "honest":
        yield begin + b"x" * 15_000_000 + b'"}]}}'
    elif flood == "values":
        yield b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":{"a":[' % request["id"]
        for _ in range(500):
            yield b"{}," * 30_000
        yield b"{}]}}}"
    else:
        yield begin
        while True:
            yield b"x" * PIECE


def answer_post(flood: str, form: str, web_request: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    """The answer over HTTP: `json`, `stream`, `lines` of one event, or `gzip`; the longest has 80 MiB."""
    if web_request["method"] != "POST":
        return 405, {}, b""
    request = json.loads(web_request["body"])
    plain = answer_plainly(request)
    is_call = request.get("method") == "tools/call"
    if plain is None:
        return 202, {}, b""
    if not is_call:
        return 200, {"Content-Type": "application/json"}, json.dumps(plain).encode()
    pieces = list(islice(iterate_flood(flood, request), 80 * 2**20 // PIECE))
    if form == "lines":
        return 200, {"Content-Type": "text/event-stream"}, b"data: " + b"\ndata: ".join(pieces) + b"\n\n"
    content = b"".join(pieces)
    if form == "stream":
        return 200, {"Content-Type": "text/event-stream"}, b"data: " + content + b"\n\n"
    if form == "gzip":
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return 200, headers, gzip.compress(content, 1)
    return 200, {"Content-Type": "application/json"}, content


def main() -> None:
    """Answer each line of standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "tools/call":
            for piece in iterate_flood(sys.argv[1], request):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.write(b"\n")
        elif (answer := answer_plainly(request)) is not None:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
