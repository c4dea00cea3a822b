"""Small web servers on loopback for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests of every method, and writes no log on standard error."""

    def answer_request(self) -> None:
        """Answer the request that has come."""
        raise NotImplementedError

    def _handle_method(self) -> None:
        self.answer_request()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _handle_method  # noqa: N815

    def read_body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send an answer of known length."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Suppress the log on standard error."""


@contextmanager
def run_server(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Run a server until the block ends; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class WebServer:
    """A running server that records the requests that it gets."""

    port: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"http://127.0.0.1:{self.port}"


WebAnswer = tuple[int, dict[str, str], bytes]


@contextmanager
def serve_web(make_answer: Callable[[dict[str, Any]], WebAnswer]) -> Iterator[WebServer]:
    """Run a server that answers each request with the result of a function."""
    web_server = WebServer()

    class Handler(QuietHandler):
        def answer_request(self) -> None:
            headers, body = dict(self.headers), self.read_body()
            request = {"method": self.command, "path": self.path, "headers": headers, "body": body}
            web_server.requests.append(request)
            self.send_whole(*make_answer(request))

    with run_server(Handler) as web_server.port:
        yield web_server
