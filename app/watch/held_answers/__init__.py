"""Answers of model hosts whose calls wait until they are decided, on the five wires that are watched.

    held = HeldStream(wire, content_type)
    send(held.feed(data))               # for what comes: text passes, calls and the end stay
    send(held.keep_alive())             # while a person decides
    send(held.finish(reply, is_changed=False))

An event passes if it is surely plain. From the first that is not, everything is held, in its order. What may
be a call and is none that the decoders read has a name in `unknown`: such an answer cannot be judged.
"""

from __future__ import annotations

import json
from typing import Any

from toolchart.app.watch.held_answers.chat import ChatWire
from toolchart.app.watch.held_answers.gemini import GeminiWire
from toolchart.app.watch.held_answers.messages import MessagesWire
from toolchart.app.watch.held_answers.ollama import OllamaWire
from toolchart.app.watch.held_answers.reading import (
    DONE,
    HEAD,
    HELD,
    NO_JSON,
    Cutter,
    Verdict,
    judge_all,
    read_json,
    tell_unknown,
)
from toolchart.app.watch.held_answers.responses import ResponsesWire
from toolchart.app.watch.held_answers.wire import Json, Wire
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, TextDelta

_WIRES: dict[str, type[Wire]] = {
    "chat": ChatWire,
    "responses": ResponsesWire,
    "messages": MessagesWire,
    "gemini": GeminiWire,
    "ollama": OllamaWire,
}


class HeldBody:
    """An answer that is one JSON body; nothing of it passes before it is decided.

    Args:
        wire: `chat`, `responses`, `messages`, `gemini`, or `ollama`.
        body: without an encoding of its transfer.
    """

    def __init__(self, wire: str, body: bytes) -> None:
        self._wire, self._data = _WIRES[wire](), body
        self._value, problem = read_json(body.removeprefix(b"\xef\xbb\xbf"))
        self._chunks: list[Any] = self._value if isinstance(self._value, list) else [self._value]
        verdict = judge_all(map(self._judge, self._chunks)) if not problem else tell_unknown(problem)
        self.unknown = verdict.unknown
        """What in it may be a call and is none that the decoders read; empty for none."""
        self.has_calls = verdict.has_call
        """Whether it has a function call."""

    def _judge(self, value: Any) -> Verdict:
        return self._wire.judge_body(value) if isinstance(value, dict) else tell_unknown("no JSON object")

    def finish(self, reply: Reply, *, is_changed: bool) -> bytes:
        """The body as it came, or with the text and the calls of `reply` in the place of the host's.

        Raises:
            ValueError: it is to be changed, and is no answer.
        """
        if not is_changed:
            return self._data
        try:
            if isinstance(self._value, list):  # the chunks of a stream
                accumulator = self._wire.make_accumulator()
                accumulator.add_frame(self._value)
                return _write_json([self._wire.change_body(accumulator.build_body(), reply)])
            return _write_json(self._wire.change_body(self._value, reply))
        except (AttributeError, KeyError, TypeError, ProviderError) as error:
            raise ValueError(f"the answer of the host cannot be changed: {error!r}") from error


class HeldStream:
    """A streamed answer on its way to a program: what is plain passes at once, calls and the end are held.

    Only whole events pass, so that other bytes may be sent between any two of its own.

    Args:
        wire: `chat`, `responses`, `messages`, `gemini`, or `ollama`.
        content_type: of the host's answer. Where it is JSON and no events, all of it is held.
    """

    def __init__(self, wire: str, content_type: str) -> None:
        self._name, self._wire = wire, _WIRES[wire]()
        self._has_lines = wire == "ollama"
        self._is_body = "json" in content_type and not self._has_lines
        self._data = bytearray()
        """Of a body: its bytes so far."""
        self._has_passed = self._is_over = self._is_continued = False
        self.earlier_text = ""
        """The text of earlier answers that has passed, where the host was asked again."""
        self._begin()

    def _begin(self) -> None:
        """Begin with an answer."""
        self._cutter = Cutter(has_lines=self._has_lines)
        self._accumulator = self._wire.make_accumulator()
        self._can_read, self._is_done = True, False
        self._held: list[tuple[bytes, Any]] = []
        """Events that have not passed. Before anything else passes, heads wait among them: an answer of
        calls alone can then be replaced as a whole."""
        self._is_holding = self._is_continued
        self._verdict = HEAD
        self._text = ""
        """The text of this answer that has passed."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the host's answer as they come, cut anywhere; the bytes that may pass now."""
        if self._is_body:
            self._data += data
            return b""
        return b"".join(self._take(piece) for piece in self._cutter.cut(data) if not self._is_done)

    def _take(self, piece: bytes) -> bytes:
        """Take an event; what may pass now."""
        event, unknown = self._cutter.read(piece)
        verdict = self._judge(event, unknown)
        self._verdict = self._verdict.join(verdict)
        text = self._accumulate(event)
        self._held.append((piece, event))
        self._is_holding = self._is_holding or not verdict.is_plain
        if self._is_holding or (verdict.is_head and not self._has_passed and len(self._held) > 1):
            return b""
        if verdict.is_head and not self._has_passed and event is not None:
            return b""
        passed, self._held = self._held, []
        for _, each in passed:
            if each is not None:
                self._has_passed = True
                self._wire.note(each)
        self._text += text
        return b"".join(each for each, _ in passed)

    def _judge(self, event: Any, unknown: str) -> Verdict:
        if unknown:
            return tell_unknown(unknown)
        if event is None:
            return HEAD
        if event == DONE:
            return HELD
        return self._wire.judge(event) if isinstance(event, dict) else tell_unknown("no JSON object")

    def _accumulate(self, event: Any) -> str:
        """Add an event to the whole answer; its text."""
        self._is_done = self._is_done or event == DONE
        if not isinstance(event, dict) or not self._can_read:
            return ""
        try:
            deltas = self._accumulator.add_frame(event)
        except ProviderError:
            self._can_read = False
            return ""
        return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))

    def _judge_so_far(self) -> Verdict:
        if self._is_body:
            body = HeldBody(self._name, bytes(self._data))
            return Verdict(False, False, body.has_calls, body.unknown)
        rest = self._read_rest()
        if not rest.strip():
            return self._verdict
        return self._verdict.join(self._judge(*self._cutter.read(rest)))

    def _read_rest(self) -> bytes:
        """What follows the last whole event: what no empty line ends counts for some clients. A text that was
        cut counts for none, so it never passes; nor does what follows the mark of the end."""
        rest = bytes(self._cutter.rest)
        if not rest.strip():
            return rest
        is_cut = self._cutter.read(rest)[1] == NO_JSON
        return b"" if is_cut or self._is_done else rest

    @property
    def is_done(self) -> bool:
        """Whether the mark of the end has come: clients read no further, and nothing more passes."""
        return self._is_done

    @property
    def unknown(self) -> str:
        """What in it may be a call and is none that the decoders read, in words; empty for none.

        Of a body (see `content_type`) it means nothing before the end: half a body is no JSON.
        """
        return self._judge_so_far().unknown

    @property
    def has_calls(self) -> bool:
        """Whether it has a function call, so far."""
        return self._judge_so_far().has_call

    def ask_again(self) -> None:
        """The host is asked once more: what is held is dropped, and what comes now continues the stream.

        Where nothing has passed yet, the new answer streams like a first one. Else all of it is held, and
        `finish` writes it.
        """
        self.earlier_text += self._text
        self._is_continued = self._has_passed
        self._wire = self._wire if self._has_passed else _WIRES[self._name]()
        self._data.clear()
        self._begin()

    def finish(self, reply: Reply, *, is_changed: bool) -> bytes:
        """The rest of the stream; then nothing more.

        Unless `is_changed`, the held bytes as they came, if no other answer has passed in part. Else events
        with which the program's client sees the text that has passed, `reply.content` (what of it has not
        passed yet), exactly `reply.tool_calls`, and an end with the newest usage. The id of a response is the
        one that the program knows: that of the first answer, where the host was asked again.

        Raises:
            ValueError: a body is to be changed, and is no answer.
        """
        if self._is_over:
            return b""
        if self._is_body:
            rest = HeldBody(self._name, bytes(self._data)).finish(reply, is_changed=is_changed)
        elif is_changed or self._is_continued:
            text = (reply.content or "").removeprefix(self._text)
            rest = b"".join(
                map(self._write, self._wire.write_rest(self._build_body(), text, reply.tool_calls))
            )
        else:
            rest = b"".join(piece for piece, _ in self._held) + self._read_rest()
        self._is_over = True
        return rest

    def _build_body(self) -> Json:
        """The newest answer as a whole; empty where it cannot be read."""
        try:
            body = self._accumulator.build_body(self._is_done) if self._can_read else {}
        except ProviderError:
            return {}
        return body if isinstance(body, dict) else {}

    def _write(self, event: Json | str) -> bytes:
        """The bytes of an event of our own."""
        if self._has_lines:
            return _write_json(event) + b"\n"
        if isinstance(event, str):
            return f"data: {event}\n\n".encode()
        name = f"event: {event['type']}\n" if self._wire.names_events else ""
        return name.encode() + b"data: " + _write_json(event) + b"\n\n"

    def keep_alive(self) -> bytes:
        """Bytes that mean nothing to a client; they may be sent at any time before the end."""
        if self._is_over:
            return b""
        if self._has_lines:
            return self._write({"message": {"role": "assistant", "content": ""}, "done": False})
        # Blanks are allowed around JSON. google-genai takes a comment for JSON, and skips empty lines.
        if self._is_body:
            return b"\n"
        return b"\n\n" if self._name == "gemini" else b": waiting\n\n"

    def fail(self, words: str) -> bytes:
        """An error at which clients raise, in the place of what is held; then nothing more."""
        if self._is_over:
            return b""
        self._is_over = True
        error = self._wire.write_error(words)
        if self._is_body:
            return _write_json([error] if self._name == "gemini" else error)
        return self._write(error)


def _write_json(value: Any) -> bytes:
    """In ASCII: some clients take other line ends than ours for such."""
    return json.dumps(value).encode("ascii")
