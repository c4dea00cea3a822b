"""A small web server on loopback for tests; it records the requests that it gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class WebServer:
    """A running server: its port and the requests so far."""

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

    class Handler(BaseHTTPRequestHandler):
        def _send_answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            request = {
                "method": self.command,
                "path": self.path,
                "headers": dict(self.headers),
                "body": self.rfile.read(length),
            }
            web_server.requests.append(request)
            status, headers, body = make_answer(request)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _send_answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            """Suppress the log on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web_server.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield web_server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
