"""Build an Anthropic reply from the server-sent events of a streamed message.

The events are accumulated into the body that an unstreamed answer would have had; `wire.decode_reply` then
reads either kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.providers.anthropic.wire import collect_block, decode_usage
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import PartCollector, decode_streamed_input, join_text
from toolchart.states.messages import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta, Usage

_DELTA_KEYS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}
"""By type of delta: the key that holds its text, and the key of the block that the text extends."""


class AnthropicAccumulator:
    """Accumulates one streamed answer of `/v1/messages`.

    Deltas extend blocks by index. The input of a call arrives as pieces of JSON text. `message_delta` has
    the stop reason and the tokens so far; `message_stop` ends the message. Unknown events are ignored.

    Source: platform.claude.com, `Streaming messages`.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._call_indexes: dict[int, int] = {}
        self._is_stopped = False
        self._parts = PartCollector()

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event.

        Raises:
            ProviderError: the event is an error, or no object.
        """
        check_object(event, "the stream has a piece that is not an object")
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), Mapping):
                self._message = dict(event["message"])
                self._add_usage(self._message.get("usage"))
            case "content_block_start":
                return self._start_block(_read_index(event), event.get("content_block"))
            case "content_block_delta":
                return self._extend_block(_read_index(event), event.get("delta"))
            case "content_block_stop" if (index := _read_index(event)) in self._blocks:
                # A source needs the whole of its text, and a call the whole of its input.
                collect_block(self._parts, self._build_block(index))
                return self._parts.take_deltas()
            case "message_delta":
                if isinstance(event.get("delta"), Mapping):
                    self._message |= event["delta"]
                self._add_usage(event.get("usage"))
            case "message_stop":
                self._is_stopped = True
            case _:
                pass
        return []

    def _add_usage(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _start_block(self, index: int, block: Any) -> list[Delta]:
        if not isinstance(block, Mapping) or index in self._blocks:
            return []
        self._blocks[index] = dict(block)
        if block.get("type") == "tool_use":
            self._call_indexes[index] = len(self._call_indexes)
            name = str(block.get("name") or "")
            return [CallStarted(index=self._call_indexes[index], name=name)]
        text = block.get(str(block.get("type")))
        if not isinstance(text, str):
            return []
        return self._build_deltas(index, str(block.get("type")), text)

    def _extend_block(self, index: int, delta: Any) -> list[Delta]:
        if index not in self._blocks or not isinstance(delta, Mapping):
            return []
        kind = delta.get("type")
        source, key = _DELTA_KEYS.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
        text = delta.get(source)
        if isinstance(text, str):
            self._pieces.setdefault(index, {}).setdefault(key, []).append(text)
            return self._build_deltas(index, key, text)
        if kind == "citations_delta" and isinstance(delta.get("citation"), Mapping):
            citations = self._blocks[index].get("citations")
            citations = list(citations) if isinstance(citations, list) else []
            self._blocks[index]["citations"] = [*citations, delta["citation"]]
        return []

    def _build_deltas(self, index: int, key: str, text: str) -> list[Delta]:
        kind = self._blocks[index].get("type")
        if not text:
            return []
        if key == "text" and kind == "text":
            return [TextDelta(text=text)]
        if key == "thinking" and kind == "thinking":
            return [ReasoningDelta(text=text)]
        if key == "input" and index in self._call_indexes:
            return [CallArguments(index=self._call_indexes[index], text=text)]
        return []

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
        content = [self._build_block(index) for index in sorted(self._blocks)]
        return {**self._message, "content": content, "usage": self._usage or None}

    def _build_block(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key, pieces in self._pieces.get(index, {}).items():
            text = join_text(pieces)
            if key == "input":
                block[key] = decode_streamed_input(text) if text.strip() else block.get(key)
            else:
                start = block.get(key)
                block[key] = (start if isinstance(start, str) else "") + text
        return block


def _read_index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
