"""An agent in files, its model host on loopback, and what both saw: for tests of other people's pipelines.

What a message says decides what happens: `pay` calls a tool, and `refund` one that needs approval; `stumble`
makes the host fail once after the tool, `refuse` makes it refuse the key, `stay` makes it wait.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from web import QuietHandler, run_server

AGENT = """\
chart: tool_loop
llms: {{desk: {{provider: openai, model: m, base_url: "{address}", api_key: none}}}}
responses: [{{llm: desk, prompt: "Pay tickets.", tools: {{enabled: true}}}}]
tools:
  registry:
    - name: pay
      description: Pay a ticket.
      parameters: {{type: object, properties: {{ticket: {{type: string}}}}, required: [ticket]}}
      implementation: {{type: python, handler: "ticket_tools:pay"}}
    - name: refund
      description: Refund a ticket.
      parameters: {{type: object, properties: {{ticket: {{type: string}}}}, required: [ticket]}}
      implementation: {{type: python, handler: "ticket_tools:pay"}}
approval: [{{tools: refund, decision: ask}}]
"""

TOOLS = '''
from pathlib import Path

def pay(ticket: str) -> str:
    """Pay a ticket."""
    with (Path(__file__).parent / "payments").open("a") as file:
        file.write(ticket + "\\n")
    return "paid"
'''


class Desk:
    """The folder of the agent, and what its model host saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent, self.log = folder / "agent.yaml", folder / "log.db"
        self.requests: Counter[str] = Counter()
        """Model requests by the user's message."""
        self.failures: Counter[str] = Counter()
        self.stays = threading.Event()
        """Set when a request that stays has come."""
        self.let_go = threading.Event()

    @property
    def payments(self) -> list[str]:
        """The tickets that the tool paid, in order."""
        path = self.folder / "payments"
        return path.read_text("utf-8").split() if path.exists() else []

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of the answer to a request."""
        message = next(entry["content"] for entry in body["messages"] if entry["role"] == "user")
        self.requests[message] += 1
        if "refuse" in message:
            return 401, {"error": {"message": "no such key"}}
        tool = next((name for name in ("pay", "refund") if name in message), None)
        if body["messages"][-1]["role"] != "tool" and tool:
            arguments = json.dumps({"ticket": message.split()[-1]})
            call = {"id": "c1", "type": "function", "function": {"name": tool, "arguments": arguments}}
            return 200, _build_reply({"tool_calls": [call]}, "tool_calls")
        if "stumble" in message and not self.failures[message]:
            self.failures[message] += 1
            return 503, {"error": {"message": "overloaded"}}
        if "stay" in message and not self.let_go.is_set():
            self.stays.set()
            self.let_go.wait(60)
        return 200, _build_reply({"content": f"done: {message}"}, "stop")


def _build_reply(message: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return {"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@contextmanager
def open_desk(folder: Path) -> Iterator[Desk]:
    """Write the agent into a folder, and serve its model."""
    desk = Desk(folder)

    class Handler(QuietHandler):
        def answer_request(self) -> None:
            status, answer = desk.answer(json.loads(self.read_body()))
            self.send_whole(status, {"Content-Type": "application/json"}, json.dumps(answer).encode())

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # the client has gone
                self.close_connection = True

    with run_server(Handler) as port:
        desk.agent.write_text(AGENT.format(address=f"http://127.0.0.1:{port}/v1"), "utf-8")
        (folder / "ticket_tools.py").write_text(TOOLS, "utf-8")
        try:
            yield desk
        finally:
            desk.let_go.set()
