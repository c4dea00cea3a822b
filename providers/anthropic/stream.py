"""Build an Anthropic reply from the server-sent events of a streamed message.

The events are accumulated into the body that an unstreamed answer would have had; `wire.decode_reply` then
reads either kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.anthropic.wire import (
    CALL_KINDS,
    FINISH_WORDS,
    TEXT_BLOCK,
    collect_block,
    decode_usage,
)
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
from toolchart.states.messages import Delta, ReasoningDelta, TextDelta, Usage

_DELTA_KEYS = {
    "text_delta": ("text", "text", "text"),
    "thinking_delta": ("thinking", "thinking", "thinking"),
    "signature_delta": ("signature", "signature", "thinking"),
    "input_json_delta": ("partial_json", "input", "tool_use"),
}
"""By type of delta: the key that holds its text, the key of the block that the text extends, and the type of
the block that it begins where there is none."""


class _Block:
    """One content block as it grows."""

    __slots__ = ("call", "index", "pieces", "start")

    def __init__(self, index: int, start: Mapping[str, Any], call: StreamedCall | None = None) -> None:
        self.index = index
        self.start = dict(start)
        self.pieces: dict[str, list[Any]] = {}
        self.call = call
        """The call of the block; None for a block of another kind, and for a call that the host runs."""

    def build(self) -> dict[str, Any]:
        """The block of an answer that was not streamed."""
        block = dict(self.start)
        for key, pieces in self.pieces.items():
            if key == "input":
                block[key] = build_input(choose_arguments(pieces, [block.get(key)]))
            else:
                start = block.get(key)
                block[key] = join_pieces([start, *pieces] if isinstance(start, str) else pieces)
        if self.call is not None:
            block = drop_other_arguments(block, "input") | {"id": self.call.id, "name": self.call.name}
            block["input"] = build_input(self.call.build_arguments())
        return block


class AnthropicAccumulator:
    """Accumulates one streamed answer of `/v1/messages`.

    Deltas extend blocks by index. The input of a call arrives as pieces of JSON text. `message_delta` has
    the stop reason and the tokens so far; `message_stop` ends the message. Unknown events are ignored. A
    block that begins with the index of another one, or without an index, is a block of its own, and a delta
    that no block fits begins one.

    Source: platform.claude.com, `Streaming messages`.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._calls = StreamedCalls()
        self._is_stopped = False
        self._parts = PartCollector()

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event.

        Raises:
            ProviderError: the event is an error, or no object.
        """
        check_object(event, "the stream has a piece that is not an object")
        index = event.get("index")
        if type(index) is not int:
            index = read_index(index)
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), Mapping):
                self._message = dict(event["message"])
                self._usage = merge_counts(self._usage, self._message.get("usage"))
            case "content_block_start" if isinstance(event.get("content_block"), Mapping):
                return self._start_block(index, event["content_block"])
            case "content_block_delta" if isinstance(event.get("delta"), Mapping):
                return self._extend_block(index, event["delta"])
            case "content_block_stop":
                block = self._find_block(index)
                if block is not None:
                    # A source needs the whole of its text, and a call the whole of its input.
                    for built in read_blocks(block.build(), TEXT_BLOCK)[0]:
                        collect_block(self._parts, built)
                return self._parts.take_deltas()
            case "message_delta":
                if isinstance(event.get("delta"), Mapping):
                    word = self._message.get("stop_reason")
                    self._message |= {
                        key: value for key, value in event["delta"].items() if value is not None
                    }
                    later = event["delta"].get("stop_reason")
                    self._message["stop_reason"] = choose_finish_word(word, later, FINISH_WORDS)
                self._usage = merge_counts(self._usage, event.get("usage"))
            case "message_stop":
                self._is_stopped = True
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
        kind = str(start.get("type"))
        if kind == "tool_use":
            name, call_id = str(start.get("name") or ""), read_string(start.get("id")) or ""
            count = len(self._calls.calls)
            call, deltas = self._calls.add_piece(
                index=index,
                call_id=call_id,
                name=name,
                arguments=read_start(find_arguments(start)),
                is_start=True,
            )
            if call.index == count:
                self._add_block(index, start, call)
            return [*deltas]
        block = self._add_block(index, start)
        text = start.get(kind)
        return _build_deltas(block, kind, text)

    def _extend_block(self, index: int | None, delta: Mapping[str, Any]) -> list[Delta]:
        block, kind = self._find_block(index), delta.get("type")
        if kind == "citations_delta" and block is not None and isinstance(delta.get("citation"), Mapping):
            citations = block.start.get("citations")
            if not isinstance(citations, list):
                citations = block.start["citations"] = []
            citations.append(delta["citation"])
        source, key, block_kind = (
            _DELTA_KEYS.get(kind, ("", "", "")) if isinstance(kind, str) else ("", "", "")
        )
        text = delta.get(source)
        if text is None:
            return []
        # Pieces of a call of the model are joined by the rule of all wires; a call that the host runs
        # itself keeps its own.
        if key == "input" and (block is None or block.start.get("type") not in CALL_KINDS[1:]):
            count = len(self._calls.calls)
            call, deltas = self._calls.add_piece(index=index, arguments=text)
            if call.index == count:
                self._add_block(index, {"type": "tool_use"}, call)
            return [*deltas]
        if block is None or (key != "input" and block.start.get("type") in CALL_KINDS):
            block = self._add_block(index, {"type": block_kind})
        block.pieces.setdefault(key, []).append(text)
        return _build_deltas(block, key, text)

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        return decode_usage(self._usage or None)

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut: no `message_stop`.
        """
        if not self._is_stopped:
            raise build_bad_response_error("the stream ends before the message does")
        content = [block.build() for block in sorted(self._blocks, key=lambda block: block.index)]
        content = content or self._message.get("content") or []
        return {**self._message, "content": content, "usage": self._usage or None}


def _build_deltas(block: _Block, key: str, text: Any) -> list[Delta]:
    """What a reader is shown of a text that a block begins with, or grows by."""
    text, kind = read_text(text), block.start.get("type")
    if not text or key != kind:
        return []
    if kind == "text":
        return [TextDelta(text=text)]
    return [ReasoningDelta(text=text)] if kind == "thinking" else []
