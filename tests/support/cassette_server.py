"""A server on loopback that answers requests with the recorded answers of a cassette."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from recorded_exchanges import Exchange, read_cassette
from web import QuietHandler, run_server

MatchMode = Literal["tail", "order", "strict-order"]

_DROPPED_HEADERS = {
    *("connection", "content-encoding", "content-length", "keep-alive", "set-cookie", "trailer"),
    *("date", "server", "transfer-encoding"),
}
JSON = {"content-type": "application/json"}
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")
_LINE_END = re.compile(rb"(?<=\n)")


def find_tail(uri: str) -> str:
    """The end of an address that names the endpoint, without host, version and model."""
    path = urlsplit(re.sub(r"^(?:<[^>]*>|\$\{[^}]*\})", "http://host", uri)).path
    if ":" in path.rpartition("/")[2]:
        return path.rpartition(":")[2]
    ends = ("/chat/completions", "/responses", "/api/chat", "/messages", "/models")
    known_end = next((end for end in ends if path.endswith(end)), None)
    return known_end or re.sub(r"^/v\d\w*(?=/)", "", path)


class CassetteServer:
    """Serves each exchange of a cassette once; use it as a context manager.

    Args:
        match: `tail` takes the next exchange with the same endpoint, `order` the next one, and
            `strict-order` the next one if it has the same endpoint.
        cut_after: closes the connection of a stream after this many pieces.
    """

    def __init__(self, path: Path, *, match: MatchMode = "tail", cut_after: int | None = None) -> None:
        self.exchanges = read_cassette(path)
        self.is_used = [False] * len(self.exchanges)
        self.requests: list[dict[str, str]] = []
        """Path and body of each request."""
        self.misses: list[str] = []
        """Requests without an answer."""
        self.cut_after = cut_after
        self._match = match
        self._split: str | int = "event"
        """How streams are sent: one event at a time, or in pieces of this many bytes."""
        self._lock = threading.Lock()
        self._running = run_server(_build_handler(self))
        self.url = ""
        """The base URL of the server."""

    def rewind(self, split: str | int) -> None:
        """Serve every exchange once more, streams in pieces of another size."""
        self.requests.clear()
        self.is_used = [False] * len(self.exchanges)
        self._split = split

    @property
    def is_done(self) -> bool:
        """Whether every exchange was used."""
        return all(self.is_used)

    def __enter__(self) -> CassetteServer:
        self.url = f"http://127.0.0.1:{self._running.__enter__()}"
        return self

    def __exit__(self, *error: Any) -> None:
        self._running.__exit__(*error)

    def take_exchange(self, method: str, path: str, body: bytes) -> Exchange | None:
        """Note a request and mark its exchange as used; None where no exchange answers it."""
        with self._lock:
            self.requests.append({"path": path, "body": body.decode("utf-8", "replace")})
            index = self._find_exchange(method, path)
            if index is None:
                self.misses.append(f"{method} {path}")
                return None
            self.is_used[index] = True
            return self.exchanges[index]

    def _find_exchange(self, method: str, path: str) -> int | None:
        free_indexes = [index for index, used in enumerate(self.is_used) if not used]
        if self._match != "tail":
            free_indexes = free_indexes[:1]
        for index in free_indexes:
            exchange = self.exchanges[index]
            has_tail = (exchange.method, find_tail(exchange.uri)) == (method, find_tail(path))
            if self._match == "order" or has_tail:
                return index
        return None

    def build_pieces(self, exchange: Exchange, path: str) -> list[bytes] | None:
        """The pieces of a stream; None where the answer is not one."""
        body = exchange.response_body
        if not exchange.is_streamed:
            return None
        if body.lstrip().startswith(b"["):
            if "alt=sse" not in path:
                return None
            # Recorded without `alt=sse`, asked for with it.
            values = (json.dumps(value, ensure_ascii=False) for value in json.loads(body))
            body = "".join(f"data: {value}\r\n\r\n" for value in values).encode()
        if isinstance(self._split, int):
            size = self._split
            return [body[start : start + size] for start in range(0, len(body), size)]
        pattern = _LINE_END if body.lstrip().startswith(b"{") else _EVENT_END
        return [piece for piece in pattern.split(body) if piece]


def _build_handler(cassette_server: CassetteServer) -> type[BaseHTTPRequestHandler]:
    """The class that answers the requests of one server."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer_request(self) -> None:
            body = self.read_body()
            exchange = cassette_server.take_exchange(self.command, self.path, body)
            if exchange is None:
                self.send_whole(418, JSON, b'{"error": {"message": "no recorded exchange"}}')
                return
            pieces = cassette_server.build_pieces(exchange, self.path)
            headers = {
                name: value.encode("ascii", "ignore").decode()
                for name, value in exchange.headers.items()
                if name not in _DROPPED_HEADERS and "\n" not in value
            }
            if pieces is None:
                self.send_whole(exchange.status, {**JSON, **headers}, exchange.response_body)
            else:
                self._send_stream(exchange.status, headers, pieces)

        def _send_stream(self, status: int, headers: dict[str, str], pieces: list[bytes]) -> None:
            is_lines = bool(pieces) and pieces[0].lstrip().startswith(b"{")
            content_type = "application/x-ndjson" if is_lines else "text/event-stream"
            self.send_response(status)
            stream_headers = {"content-type": content_type, "transfer-encoding": "chunked"}
            for name, value in {**headers, **stream_headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in pieces[: cassette_server.cut_after]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if cassette_server.cut_after is None:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

    return Handler
