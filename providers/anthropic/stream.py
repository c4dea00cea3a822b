"""Anthropic's streamed messages, put together event by event to the body of one that was not streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolchart.providers.anthropic.wire import from_wire, told_failure
from toolchart.providers.shared.failures import unreadable
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta
from toolchart.states.messages import Reply

_GROWING = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}
"""Where a delta has its text, and the key of the block that grows by it."""


class AnthropicStream:
    """One streamed answer of `/v1/messages`.

    Blocks grow by their index; a call's input comes as pieces of JSON text; `message_delta` brings the
    stop reason and the tokens so far, `message_stop` is the end. Unknown events are passed by.

    Source: platform.claude.com, `Streaming messages`.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._grown: dict[int, dict[str, list[str]]] = {}
        self._calls: dict[int, int] = {}
        self._stopped = False

    def feed(self, event: Any) -> list[Delta]:
        """What an event adds.

        Raises:
            ProviderError: an error told inside the stream, or an event that is no object.
        """
        if not isinstance(event, Mapping):
            raise unreadable(f"the stream has a piece that is no object but {type(event).__name__}")
        if event.get("error") or event.get("type") == "error":
            raise told_failure(event)
        match event.get("type"):
            case "message_start" if isinstance(event.get("message"), Mapping):
                self._message = dict(event["message"])
                self._count(self._message.get("usage"))
            case "content_block_start":
                return self._start(_index(event), event.get("content_block"))
            case "content_block_delta":
                return self._grow(_index(event), event.get("delta"))
            case "message_delta":
                if isinstance(event.get("delta"), Mapping):
                    self._message |= event["delta"]
                self._count(event.get("usage"))
            case "message_stop":
                self._stopped = True
            case _:
                pass
        return []

    def _count(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _start(self, index: int, block: Any) -> list[Delta]:
        if not isinstance(block, Mapping) or index in self._blocks:
            return []
        self._blocks[index] = dict(block)
        if block.get("type") == "tool_use":
            self._calls[index] = len(self._calls)
            return [CallStarted(index=self._calls[index], name=str(block.get("name") or ""))]
        text = block.get(str(block.get("type")))
        return self._shown(index, str(block.get("type")), text) if isinstance(text, str) else []

    def _grow(self, index: int, delta: Any) -> list[Delta]:
        if index not in self._blocks or not isinstance(delta, Mapping):
            return []
        kind = delta.get("type")
        source, key = _GROWING.get(kind, ("", "")) if isinstance(kind, str) else ("", "")
        text = delta.get(source)
        if isinstance(text, str):
            self._grown.setdefault(index, {}).setdefault(key, []).append(text)
            return self._shown(index, key, text)
        if kind == "citations_delta" and isinstance(delta.get("citation"), Mapping):
            listed = self._blocks[index].get("citations")
            cited = list(listed) if isinstance(listed, list) else []
            self._blocks[index]["citations"] = [*cited, delta["citation"]]
        return []

    def _shown(self, index: int, key: str, text: str) -> list[Delta]:
        kind = self._blocks[index].get("type")
        if not text:
            return []
        if key == "text" and kind == "text":
            return [TextDelta(text=text)]
        if key == "thinking" and kind == "thinking":
            return [ReasoningDelta(text=text)]
        if key == "input" and index in self._calls:
            return [CallArguments(index=self._calls[index], text=text)]
        return []

    def body(self) -> dict[str, Any]:
        """The answer as it would have come in one piece.

        Raises:
            ProviderError: the stream was cut: no `message_stop`.
        """
        if not self._stopped:
            raise unreadable("the stream ends before the message does")
        content = [self._whole(index) for index in sorted(self._blocks)]
        return {**self._message, "content": content, "usage": self._usage or None}

    def _whole(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key, pieces in self._grown.get(index, {}).items():
            text = "".join(pieces)
            if key == "input":
                block[key] = _parsed(text) if text.strip() else block.get(key)
            else:
                begun = block.get(key)
                block[key] = (begun if isinstance(begun, str) else "") + text
        return block

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ProviderError: the stream was cut.
        """
        return from_wire(self.body())


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _parsed(text: str) -> Any:
    """The input, or its text where it is no object: then the map says what is wrong with it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
