"""A model host on loopback that speaks half of its answer, and the rest when the test lets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from web import QuietHandler, run_server

WORDS = [f"word{number} " for number in range(40)]
ANSWER = "".join(WORDS)


@dataclass
class GatedHost:
    """A running host of OpenAI's chat completions."""

    port: int = 0
    questions: list[str] = field(default_factory=list)
    """The last message of each request, in order."""
    may_end: threading.Event = field(default_factory=threading.Event)
    """Set to let every answer come to its end."""

    @property
    def url(self) -> str:
        """The base URL of its API."""
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def serve_gated_host() -> Iterator[GatedHost]:
    """Run the host until the block ends."""
    host = GatedHost()

    class Handler(QuietHandler):
        def answer_request(self) -> None:
            request = json.loads(self.read_body())
            host.questions.append(request["messages"][-1]["content"])
            if not request.get("stream"):
                host.may_end.wait()
                message = {"role": "assistant", "content": ANSWER}
                self._begin("application/json")
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                self._write(json.dumps({"id": "r", "model": "m", "choices": [choice]}))
                return
            self._begin("text/event-stream")
            half = len(WORDS) // 2
            for word in WORDS[:half]:
                self._write_delta({"content": word})
            host.may_end.wait()
            for word in WORDS[half:]:
                self._write_delta({"content": word})
            self._write_delta({}, "stop")
            self._write("data: [DONE]\n\n")

        def _begin(self, media_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", media_type)
            self.end_headers()

        def _write_delta(self, delta: dict[str, Any], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            self._write(f"data: {json.dumps({'id': 'r', 'model': 'm', 'choices': [choice]})}\n\n")

        def _write(self, text: str) -> None:
            try:
                self.wfile.write(text.encode())
                self.wfile.flush()
            except OSError:  # whoever asked has gone
                self.close_connection = True

    with run_server(Handler) as host.port:
        try:
            yield host
        finally:
            host.may_end.set()
