"""A host on loopback that answers in the wire format of each provider, and counts what arrives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from web import QuietHandler, run_server

TEXT = "hello"

_CHAT = {
    "id": "r1",
    "model": "m",
    "choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
}

_BODIES: dict[str, Any] = {
    "/chat/completions": _CHAT,
    "/responses": {
        "id": "r1",
        "model": "m",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": TEXT}]}],
        "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
    },
    "/v1/messages": {
        "id": "r1",
        "model": "m",
        "stop_reason": "end_turn",
        "content": [{"type": "text", "text": TEXT}],
        "usage": {"input_tokens": 5, "output_tokens": 7},
    },
    ":generateContent": {
        "responseId": "r1",
        "modelVersion": "m",
        "candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
    },
    "/converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": TEXT}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12},
    },
    "/api/chat": {
        "model": "m",
        "message": {"role": "assistant", "content": TEXT},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 5,
        "eval_count": 7,
    },
}
"""By the end of the path: the answer."""


class CountingHost:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.address = ""
        self.requests = 0
        self.paths: list[str] = []
        """The path of each request, without its query."""
        self.open_connections = 0
        """Connections that the client has not closed."""
        self._changed = threading.Condition()

    def count(self, *, requests: int = 0, connections: int = 0) -> None:
        """Count a request, or a connection that opens or ends."""
        with self._changed:
            self.requests += requests
            self.open_connections += connections
            self._changed.notify_all()

    def wait_until_closed(self) -> None:
        """Return when the client has closed every connection.

        Raises:
            AssertionError: some stay open.
        """
        with self._changed:
            is_closed = self._changed.wait_for(lambda: not self.open_connections, 10)
        assert is_closed, f"{self.open_connections} connections stay open"


@contextmanager
def serve_counting_host() -> Iterator[CountingHost]:
    """A host that keeps its connections open, until the block ends."""
    host = CountingHost()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            host.count(connections=1)
            super().setup()

        def finish(self) -> None:
            super().finish()
            host.count(connections=-1)

        def answer_request(self) -> None:
            self.read_body()
            host.count(requests=1)
            path = self.path.partition("?")[0]
            host.paths.append(path)
            body = json.dumps(next(body for end, body in _BODIES.items() if path.endswith(end))).encode()
            self.send_whole(200, {"content-type": "application/json"}, body)

    with run_server(Handler) as port:
        host.address = f"http://127.0.0.1:{port}"
        yield host
