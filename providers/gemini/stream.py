"""Gemini's streamed answers, put together as they come.

Every chunk is an answer of its own kind with some of the parts. What is read in the end is the body that
`generateContent` would have sent, so that a streamed reply and a whole one agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.gemini.wire import from_wire
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta
from toolchart.states.messages import Reply


class GeminiStream:
    """One streamed answer of `streamGenerateContent`.

    Parts stand in their order, unmerged, since a thought signature belongs to its part; usage may come
    with any chunk, and the last one counts. Calls come whole, each in one part.

    Source: recorded traffic; google-genai 3.4.0, `types.py` (`partial_args` is for Vertex, on request).
    """

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._content: dict[str, Any] = {}
        self._parts: list[Any] = []
        self._calls = 0

    def feed(self, chunk: Any) -> list[Delta]:
        """What a chunk adds; without `alt=sse` the chunks come as one array.

        Raises:
            ProviderError: an error told inside the stream, or a chunk that is no object.
        """
        if isinstance(chunk, list):
            return [delta for one in chunk for delta in self._feed(one)]
        return self._feed(chunk)

    def _feed(self, chunk: Any) -> list[Delta]:
        if not isinstance(chunk, Mapping):
            raise unreadable(f"the stream has a piece that is no object but {type(chunk).__name__}")
        if chunk.get("error"):
            error = chunk["error"]
            code = error.get("code") if isinstance(error, Mapping) else None
            raise failure(code if isinstance(code, int) else 200, dict(chunk))
        self._whole |= _said(chunk)
        candidates = chunk.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(candidate, Mapping):
            return []
        self._candidate |= _said(candidate)
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        if isinstance(content, Mapping):
            self._content |= _said(content)
        new = [p for p in parts if isinstance(p, Mapping)] if isinstance(parts, list) else []
        self._parts += new
        return [delta for part in new for delta in self._deltas(part)]

    def _deltas(self, part: Mapping[str, Any]) -> Iterator[Delta]:
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(text, str) and text:
            yield ReasoningDelta(text=text) if part.get("thought") else TextDelta(text=text)
        if isinstance(call, Mapping):
            index, self._calls = self._calls, self._calls + 1
            yield CallStarted(index=index, name=str(call.get("name") or ""))
            if isinstance(call.get("args"), Mapping):
                yield CallArguments(index=index, text=json.dumps(call["args"], ensure_ascii=False))

    def body(self) -> dict[str, Any]:
        """The answer as it would have come in one piece.

        Raises:
            ProviderError: the stream was cut: neither a finish reason nor a reason for the blocking.
        """
        feedback = self._whole.get("promptFeedback")
        blocked = isinstance(feedback, Mapping) and feedback.get("blockReason")
        if not self._candidate.get("finishReason") and not blocked:
            raise unreadable("the stream ends without a finish reason")
        whole = {key: value for key, value in self._whole.items() if key != "candidates"}
        if self._candidate:
            content = {**self._content, "parts": self._parts}
            whole["candidates"] = [{**self._candidate, "content": content}]
        return whole

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ProviderError: the stream was cut.
        """
        return from_wire(self.body())


def _said(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """What is said and not left open; a later chunk does not unsay it."""
    return {str(key): value for key, value in mapping.items() if value is not None}
