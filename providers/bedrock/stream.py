"""Read Bedrock's event stream: cut its bytes into frames by botocore, and join them into a whole answer.

Every frame is an event, `{"contentBlockDelta": {...}}`, as the shape `ConverseStreamOutput` names them. They
are accumulated into the body that `Converse` would have answered; `wire.decode_reply` then reads either kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolchart.providers.bedrock.wire import FINISH_WORDS, classify_stream_error, collect_block, decode_usage
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    PartCollector,
    choose_finish_word,
    join_pieces,
    merge_counts,
    read_blocks,
    read_index,
    read_string,
    read_text,
)
from toolchart.providers.shared.streamed_calls import (
    StreamedCall,
    StreamedCalls,
    build_input,
    choose_arguments,
    drop_other_arguments,
    find_arguments,
    read_start,
)
from toolchart.providers.transport.stream_frames import FrameDecoder
from toolchart.states.errors import ProviderError, format_install
from toolchart.states.messages import Delta, ReasoningDelta, TextDelta, Usage


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
        self._decode_frame = FrameDecoder().decode_frame

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
                event = _read_event(message.headers, message.payload, self._decode_frame)
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


def _read_event(headers: Mapping[str, Any], payload: bytes, decode: Callable[[bytes], Any]) -> dict[str, Any]:
    """An event or an exception by its name; an error of the connection as `error`."""
    kind = headers.get(":message-type")
    if kind == "error":
        return {"error": {"code": headers.get(":error-code"), "message": headers.get(":error-message")}}
    name = str(headers[":exception-type" if kind == "exception" else ":event-type"])
    return {name: decode(payload) if payload else {}}


class _Block:
    """One content block as it grows."""

    __slots__ = ("call", "citations", "index", "picture", "pieces", "results", "start")

    def __init__(self, index: int, start: Mapping[str, Any], call: StreamedCall | None = None) -> None:
        self.index = index
        self.start = dict(start)
        self.pieces: dict[str, list[Any]] = {}
        self.citations: list[Mapping[str, Any]] = []
        self.picture: dict[str, Any] = {}
        self.results: list[Any] = []
        """The content of a result of the host's own tool."""
        self.call = call
        """The call of the block; None for a block of another kind, and for a call that the host runs."""

    def build(self) -> dict[str, Any]:
        """The block of an answer that was not streamed."""
        if self.call is not None:
            use = drop_other_arguments(self.start["toolUse"], "input")
            use |= {"toolUseId": self.call.id, "name": self.call.name}
            return {"toolUse": {**use, "input": build_input(self.call.build_arguments())}}
        if isinstance(self.start.get("toolUse"), Mapping):
            use, pieces = self.start["toolUse"], self.pieces.get("input", ())
            return {"toolUse": {**use, "input": build_input(choose_arguments(pieces, [use.get("input")]))}}
        texts = {key: join_pieces(pieces) for key, pieces in self.pieces.items()}
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
    `metadata` with the tokens comes after it. Unknown events are ignored. A block that begins with the index
    of another one, or without an index, is a block of its own.
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._calls = StreamedCalls()
        self._is_stopped = False
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
        index = value.get("contentBlockIndex")
        if type(index) is not int:
            index = read_index(index)
        match name:
            case "contentBlockStart" if isinstance(value.get("start"), Mapping):
                return self._start_block(index, value["start"])
            case "contentBlockDelta" if isinstance(value.get("delta"), Mapping):
                return self._extend_block(index, value["delta"])
            case "contentBlockStop":
                block = self._find_block(index)
                if block is not None:
                    for built in read_blocks(block.build(), {})[0]:
                        collect_block(self._parts, built)
                return self._parts.take_deltas()
            case "messageStop" | "metadata":
                word = choose_finish_word(self._body.get("stopReason"), value.get("stopReason"), FINISH_WORDS)
                self._is_stopped = self._is_stopped or name == "messageStop"
                self._body = {**merge_counts(self._body, value), "stopReason": word}
            case _:
                pass
        return []

    def _find_block(self, index: int | None) -> _Block | None:
        if index is None:
            return self._blocks[-1] if self._blocks else None
        return self._by_index.get(index)

    def _add_block(
        self, index: int | None, start: Mapping[str, Any], call: StreamedCall | None = None
    ) -> _Block:
        block = _Block(len(self._blocks) if index is None else index, start, call)
        self._blocks.append(block)
        self._by_index[block.index] = block
        return block

    def _start_block(self, index: int | None, start: Mapping[str, Any]) -> list[Delta]:
        use = start.get("toolUse")
        if isinstance(use, Mapping) and not use.get("type"):
            name, call_id = str(use.get("name") or ""), read_string(use.get("toolUseId")) or ""
            piece = {"call_id": call_id, "name": name, "arguments": read_start(find_arguments(use))}
            return self._add_call(index, use, **piece, is_start=True)
        block = self._add_block(index, start)
        if start.get("text"):
            block.pieces["text"] = [start["text"]]
            return [TextDelta(text=read_text(start["text"]))]
        return []

    def _add_call(self, index: int | None, use: Mapping[str, Any], **piece: Any) -> list[Delta]:
        """Add a piece of a call, whose block begins with it where it has none."""
        count = len(self._calls.calls)
        call, deltas = self._calls.add_piece(index=index, **piece)
        if call.index == count:
            self._add_block(index, {"toolUse": use}, call)
        return [*deltas]

    def _extend_block(self, index: int | None, delta: Mapping[str, Any]) -> list[Delta]:
        """Add a delta to the block that it fits; what a reader is shown of it."""
        block, texts = self._find_block(index), [*_iterate_texts(delta)]
        host_use = block.start.get("toolUse") if block is not None and block.call is None else None
        for key, value in texts:
            if key == "input" and not isinstance(host_use, Mapping):
                return self._add_call(index, {}, arguments=value)
        if block is None or (block.call is not None and texts):
            block = self._add_block(index, {})
        return _extend_block(block, texts, delta)

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
        if not self._is_stopped:
            raise build_bad_response_error("the stream ends before the message does")
        content = [block.build() for block in sorted(self._blocks, key=lambda block: block.index)]
        others = {key: value for key, value in self._body.items() if key != "p"}  # padding of the frames
        return {"output": {"message": {"role": "assistant", "content": content}}, **others}


def _extend_block(block: _Block, texts: list[tuple[str, Any]], delta: Mapping[str, Any]) -> list[Delta]:
    """Add a delta to a block; what a reader is shown of it."""
    deltas: list[Delta] = []
    for key, value in texts:
        block.pieces.setdefault(key, []).append(value)
        text = read_text(value)
        if text and key == "text":
            deltas.append(TextDelta(text=text))
        elif text and key == "reasoning":
            deltas.append(ReasoningDelta(text=text))
    if isinstance(delta.get("image"), Mapping):
        block.picture |= delta["image"]
    if isinstance(delta.get("toolResult"), list):
        block.results += delta["toolResult"]
    if isinstance(delta.get("citation"), Mapping):
        block.citations.append(delta["citation"])
    return deltas


def _iterate_texts(delta: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The texts of a delta under our names for them."""
    if delta.get("text") is not None:
        yield "text", delta["text"]
    for outer, names in _INNER_TEXTS.items():
        inner = delta.get(outer)
        if isinstance(inner, Mapping):
            yield from ((own, inner[name]) for name, own in names.items() if inner.get(name) is not None)


_INNER_TEXTS = {
    "toolUse": {"input": "input"},
    "reasoningContent": {"text": "reasoning", "signature": "signature", "redactedContent": "redactedContent"},
}
