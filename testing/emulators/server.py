"""A server on loopback that answers and refuses like one model host: `emulate_host` and `Emulator`."""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from toolchart.providers.shared.adapted_requests import is_thinking, read_switches
from toolchart.providers.shared.host_rows import HOST_ROWS, HostRow, Wire, find_row
from toolchart.states.errors import ProviderError, SpecError, suggest_name
from toolchart.states.messages import Reply
from toolchart.testing.emulators.answers import (
    SIGNATURE_START,
    Answer,
    build_error,
    choose_error_form,
    make_reply,
    sign_text,
)
from toolchart.testing.emulators.checks import Refusal, RequestView, check_request, read_view

_PATHS: tuple[tuple[str, Wire], ...] = (
    (r"/chat/completions$", "chat"),
    (r"/responses$", "responses"),
    (r"/v1/messages$", "messages"),
    (r"/api/chat$", "ollama"),
    (r":(?:stream)?[gG]enerateContent$", "gemini"),
)
"""The wire format by the end of a path."""

MODELS = {
    "openai": "gpt-5.5",
    "azure": "gpt-4.1",
    "anthropic": "claude-opus-5",
    "gemini": "gemini-3-pro",
    "ollama": "qwen3",
    "mistral": "mistral-large-latest",
    "groq": "openai/gpt-oss-120b",
    "deepseek": "deepseek-v4-pro",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "xai": "grok-4",
    "vllm": "Qwen/Qwen3.5-32B",
    "lmstudio": "qwen3-8b",
}
"""A model of each of the twelve hosts that were described whole."""

_SPOKEN: tuple[Wire, ...] = ("chat", "responses", "messages", "gemini", "ollama")


def list_emulated_hosts() -> list[str]:
    """The hosts that can be emulated, those that were described whole first."""
    others = [row.name for row in HOST_ROWS if row.name not in MODELS and not row.ended_on]
    return [*MODELS, *(name for name in others if set(find_row(name).wires) & set(_SPOKEN))]


ScriptedAnswer = Reply | ProviderError
"""What a script answers: a reply, or an error with its status."""


class Emulator:
    """A running stand-in of one host.

    It answers from its script, and when that is empty by a rule: it calls the tools that the user names, one
    after the other, or else the first one once, and then answers. A request that the host refuses uses
    nothing of the script.
    """

    def __init__(self, row: HostRow, model: str, script: Iterable[ScriptedAnswer] = ()) -> None:
        self.row = row
        self.model = model
        self.port = 0
        self.script: deque[ScriptedAnswer] = deque(script)
        self.bodies: list[Any] = []
        """The bodies that came, refused ones too."""
        self.refusals: list[Refusal] = []
        """What was refused, in order."""
        self.warnings: list[Refusal] = []
        """What the host is only said to refuse, and what was therefore answered."""
        self.on_refusal: Callable[[Refusal], None] = lambda refusal: None
        """Called for each refusal and each warning."""
        self._count = 0
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        """The address that an entry names."""
        address = self.row.base_url
        if self.row.provider == "openai" and self.row.chat_url:
            address = self.row.chat_url
        path = urlsplit(address).path if self.row.provider == "openai" else ""
        return f"http://127.0.0.1:{self.port}{path.rstrip('/')}"

    @property
    def entry(self) -> dict[str, Any]:
        """An `llms` entry that calls it."""
        keys = {"provider": self.row.provider, "base_url": self.base_url, "model": self.model}
        if self.row.provider == "openai":
            keys["host_profile"] = self.row.name
        return {**keys, "api_key": "emulated"}

    def answer(self, path: str, headers: Mapping[str, str], data: bytes) -> tuple[int, Any, Answer | None]:
        """Status, error body and answer to one request; one of the last two is empty."""
        wire = next((wire for pattern, wire in _PATHS if re.search(pattern, urlsplit(path).path)), None)
        if wire is None or (wire not in self.row.wires and not (wire == "chat" and self.row.chat_url)):
            return 404, self._build_error("chat", 404, f"there is no {path} here", "not_found"), None
        try:
            body = json.loads(data)
        except ValueError:
            body = None
        with self._lock:
            self.bodies.append(body)
            if not isinstance(body, Mapping):
                return 400, self._build_error(wire, 400, "the body is no JSON object"), None
            model_match = re.search(r"/(?:models|deployments)/([^/:]+)", path)
            view = read_view(wire, body, model_match.group(1) if model_match else "")
            refused = self._note_refusals(view, headers)
            if refused is not None:
                error = self._build_error(wire, refused.status, refused.message, refused.code, refused.param)
                return refused.status, error, None
            self._count += 1
            scripted_reply = self.script.popleft() if self.script else make_reply(view)
            if isinstance(scripted_reply, ProviderError):
                status = scripted_reply.status or 500
                return status, self._build_error(wire, status, scripted_reply.message, "server_error"), None
            thinks = is_thinking(self.row.name, view.model, read_switches(view.body))
            return 200, None, Answer(self.row, view, scripted_reply, self._count, thinks=bool(thinks))

    def _note_refusals(self, view: RequestView, headers: Mapping[str, str]) -> Refusal | None:
        """The first certain refusal; None if the request is taken."""
        refusals = [*check_request(self.row, view, headers), *_check_signatures(view)]
        for refusal in refusals:
            (self.refusals if refusal.is_certain else self.warnings).append(refusal)
            self.on_refusal(refusal)
        return next((refusal for refusal in refusals if refusal.is_certain), None)

    def _build_error(self, wire: Wire, status: int, message: str, code: str = "", param: str = "") -> Any:
        return build_error(choose_error_form(self.row, wire), status, message, code, param)

    def list_models(self) -> dict[str, Any]:
        """The list of models, in the forms of all hosts at once."""
        name = self.model
        rows = [{"id": name, "name": name, "model": name, "object": "model", "display_name": name}]
        return {"object": "list", "data": rows, "models": rows}


def _check_signatures(view: RequestView) -> Iterator[Refusal]:
    """Refuse what an emulator signed and gets back changed."""

    def refuse(what: str) -> Refusal:
        return Refusal(
            message=f"Invalid `signature` in {what}",
            source="agno-agi/agno#8794 (2026-07-07); platform.claude.com, Extended thinking",
            evidence="traffic",
        )

    for entry in view.entries:
        content = entry.wire.get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, Mapping) and block.get("type") == "thinking":
                signature = str(block.get("signature"))
                if signature.startswith(SIGNATURE_START) and signature != sign_text(
                    str(block.get("thinking"))
                ):
                    yield refuse("`thinking` block")
        details = entry.wire.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            signature = str(detail.get("signature") or "")
            if signature != sign_text(str(detail.get("text", ""))) and (signature or "signature" in detail):
                yield refuse("`reasoning_details`")


def find_emulated_row(name: str) -> HostRow:
    """The row of a host that can be emulated.

    Raises:
        SpecError: there is no such host.
    """
    row, names = find_row(name), list_emulated_hosts()
    if row.name not in names:
        raise SpecError(f"there is no emulator of a host {name!r}", hint=suggest_name(name, names))
    return row


@contextmanager
def emulate_host(
    host: str, *, model: str | None = None, script: Iterable[ScriptedAnswer] = (), port: int = 0
) -> Iterator[Emulator]:
    """Serve an emulator on loopback while the block runs.

        with emulate_host("mistral") as mistral:
            agent = {"llms": {"main": mistral.entry}, ...}

    Args:
        host: word or domain of a row of the hosts.
        model: which model to name in `entry`; default: one that the host has.
        script: replies in order; when none is left, replies follow the rule.
        port: 0 for a free one.

    Raises:
        SpecError: there is no such host.
    """
    row = find_emulated_row(host)
    emulator = Emulator(row, model or MODELS.get(row.name, "model"), script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._send(200, "application/json", json.dumps(emulator.list_models()).encode())

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, error, answer = emulator.answer(self.path, headers, data)
            if answer is None:
                self._send(status, "application/json", json.dumps(error).encode())
            elif not _is_streamed(self.path, answer.view.body):
                self._send(status, "application/json", json.dumps(answer.build_body()).encode())
            else:
                self._stream(
                    answer, "application/x-ndjson" if "/api/chat" in self.path else "text/event-stream"
                )

        def _send(self, status: int, content_type: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, answer: Answer, content_type: str) -> None:
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for frame in answer.iterate_frames():
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    emulator.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield emulator
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _is_streamed(path: str, body: Mapping[str, Any]) -> bool:
    """Whether a stream is asked for; Ollama streams unless it is told not to."""
    if "enerateContent" in path:
        return "streamGenerateContent" in path
    return bool(body.get("stream", "/api/chat" in path))
