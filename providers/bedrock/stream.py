"""Read Bedrock's event stream: cut its bytes into frames by botocore, and join them into a whole answer.

Every frame is an event, `{"contentBlockDelta": {...}}`, as the shape `ConverseStreamOutput` names them. They
are accumulated into the body that `Converse` would have answered; `wire.decode_reply` then reads either kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.bedrock.wire import classify_stream_error, collect_block, decode_usage
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import PartCollector, decode_streamed_input, join_text
from toolchart.states.errors import ProviderError, format_install
from toolchart.states.messages import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta, Usage


class EventStreamReader:
    """Cuts bytes into the events of Bedrock's stream; checksums are checked.

    Source: botocore 1.44.5, `eventstream.py`.

    Raises:
        ProviderError: botocore is not installed.
    """

    is_done = False
    """The format has no end marker of its own."""

    def __init__(self) -> None:
        try:
            from botocore.eventstream import EventStreamBuffer, ParserError
        except ImportError:
            message = f"the streams of Bedrock need botocore: {format_install('bedrock')}"
            raise ProviderError(kind="bad_request", message=message) from None
        self._buffer: Any = EventStreamBuffer()
        self._errors = (ParserError, ValueError, KeyError, TypeError)
        self._pending_bytes = 0

    def add_bytes(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The events that these bytes complete.

        Raises:
            ProviderError: a frame is damaged.
        """
        self._buffer.add_data(data)
        self._pending_bytes += len(data)
        while True:
            try:
                message = next(self._buffer, None)
                if message is None:
                    return
                event = _read_event(message.headers, message.payload)
            except self._errors as error:
                problem = f"the stream has a frame that cannot be read: {error}"
                raise build_bad_response_error(problem) from None
            self._pending_bytes -= message.prelude.total_length
            yield event

    def finish(self) -> Iterator[dict[str, Any]]:
        """Nothing: every event came with its last byte.

        Raises:
            ProviderError: the stream was cut in a frame.
        """
        if self._pending_bytes:
            raise build_bad_response_error("the stream was cut in a frame")
        return iter(())


def _read_event(headers: Mapping[str, Any], payload: bytes) -> dict[str, Any]:
    """An event or an exception by its name; an error of the connection as `error`."""
    kind = headers.get(":message-type")
    if kind == "error":
        return {"error": {"code": headers.get(":error-code"), "message": headers.get(":error-message")}}
    name = str(headers[":exception-type" if kind == "exception" else ":event-type"])
    return {name: json.loads(payload) if payload else {}}


class _Block:
    """One content block as it grows."""

    __slots__ = ("call_index", "citations", "picture", "pieces", "results", "start")

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.start = dict(start)
        self.pieces: dict[str, list[str]] = {}
        self.citations: list[Mapping[str, Any]] = []
        self.picture: dict[str, Any] = {}
        self.results: list[Any] = []
        """The content of a result of the host's own tool."""
        self.call_index = 0

    def build(self) -> dict[str, Any]:
        """The block of an answer that was not streamed."""
        texts = {key: join_text(pieces) for key, pieces in self.pieces.items()}
        if "toolUse" in self.start:
            text = texts.get("input", "")
            call_input = decode_streamed_input(text) if text.strip() else {}
            return {"toolUse": {**self.start["toolUse"], "input": call_input}}
        if "toolResult" in self.start:
            return {"toolResult": {**self.start["toolResult"], "content": self.results}}
        if self.picture or "image" in self.start:
            return {"image": {**(self.start.get("image") or {}), **self.picture}}
        if "redactedContent" in texts:
            return {"reasoningContent": {"redactedContent": texts["redactedContent"]}}
        if "reasoning" in texts or "signature" in texts:
            signature = {"signature": texts["signature"]} if "signature" in texts else {}
            return {"reasoningContent": {"reasoningText": {"text": texts.get("reasoning", ""), **signature}}}
        if self.citations:
            content = [{"text": texts.get("text", "")}]
            return {"citationsContent": {"content": content, "citations": self.citations}}
        return {"text": texts["text"]} if "text" in texts else self.start


class ConverseAccumulator:
    """Accumulates one streamed answer of `ConverseStream`.

    Deltas extend blocks by index; only the blocks of calls have a start. `messageStop` ends the message, and
    `metadata` with the tokens comes after it. Unknown events are ignored.
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._call_count = 0
        self._parts = PartCollector()

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event.

        Raises:
            ProviderError: the event is an exception, or no object.
        """
        check_object(event, "the stream has a piece that is not an object")
        for name, value in event.items():
            if name == "error" or name.endswith("Exception"):
                raise classify_stream_error(name, value)
            if isinstance(value, Mapping):
                return self._add_event(name, value)
        return []

    def _add_event(self, name: str, value: Mapping[str, Any]) -> list[Delta]:
        match name:
            case "contentBlockStart" if isinstance(value.get("start"), Mapping):
                return self._start_block(_read_index(value), value["start"])
            case "contentBlockDelta" if isinstance(value.get("delta"), Mapping):
                index = _read_index(value)
                block = self._blocks.setdefault(index, _Block({}))
                return _extend_block(block, value["delta"])
            case "contentBlockStop" if _read_index(value) in self._blocks:
                collect_block(self._parts, self._blocks[_read_index(value)].build())
                return self._parts.take_deltas()
            case "messageStop" | "metadata":
                self._body |= value
            case _:
                pass
        return []

    def _start_block(self, index: int, start: Mapping[str, Any]) -> list[Delta]:
        if index in self._blocks:
            return []
        block = self._blocks[index] = _Block(start)
        call = start.get("toolUse")
        if not isinstance(call, Mapping) or call.get("type"):
            return []
        block.call_index = self._call_count
        self._call_count += 1
        return [CallStarted(index=block.call_index, name=str(call.get("name") or ""))]

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        return decode_usage(self._body.get("usage"))

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut: no `messageStop`.
        """
        if "stopReason" not in self._body:
            raise build_bad_response_error("the stream ends before the message does")
        content = [self._blocks[index].build() for index in sorted(self._blocks)]
        others = {key: value for key, value in self._body.items() if key != "p"}  # padding of the frames
        return {"output": {"message": {"role": "assistant", "content": content}}, **others}


def _extend_block(block: _Block, delta: Mapping[str, Any]) -> list[Delta]:
    """Add a delta to a block; what a reader is shown of it."""
    for key, value in _iterate_texts(delta):
        block.pieces.setdefault(key, []).append(value)
        if not value:
            continue
        if key == "text":
            return [TextDelta(text=value)]
        if key == "reasoning":
            return [ReasoningDelta(text=value)]
        call = block.start.get("toolUse")
        if key == "input" and isinstance(call, Mapping) and not call.get("type"):
            return [CallArguments(index=block.call_index, text=value)]
    if isinstance(delta.get("image"), Mapping):
        block.picture |= delta["image"]
    if isinstance(delta.get("toolResult"), list):
        block.results += delta["toolResult"]
    if isinstance(delta.get("citation"), Mapping):
        block.citations.append(delta["citation"])
    return []


def _iterate_texts(delta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of a delta under our names for them."""
    if isinstance(delta.get("text"), str):
        yield "text", delta["text"]
    for outer, names in _INNER_TEXTS.items():
        inner = delta.get(outer)
        if isinstance(inner, Mapping):
            field_values = ((own, inner.get(name)) for name, own in names.items())
            yield from ((own, text) for own, text in field_values if isinstance(text, str))


_INNER_TEXTS = {
    "toolUse": {"input": "input"},
    "reasoningContent": {"text": "reasoning", "signature": "signature", "redactedContent": "redactedContent"},
}


def _read_index(event: Mapping[str, Any]) -> int:
    index = event.get("contentBlockIndex")
    return index if isinstance(index, int) else 0
