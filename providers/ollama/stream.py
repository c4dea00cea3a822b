"""Ollama's streamed answers, put together line by line to the body of one that was not streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.ollama.wire import from_wire
from toolchart.providers.shared.failures import failure, unreadable
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta
from toolchart.states.messages import Reply


class OllamaStream:
    """One streamed answer of `/api/chat`.

    Texts grow, calls come whole, and the line with `done: true` ends it and brings the counts.

    Source: the server's `server/routes.go` of August 2026; recorded traffic.
    """

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"content": [], "thinking": []}
        self._calls: list[Any] = []

    def feed(self, chunk: Any) -> list[Delta]:
        """What a line adds.

        Raises:
            ProviderError: an error told inside the stream, or a line that is no object.
        """
        if not isinstance(chunk, Mapping):
            raise unreadable(f"the stream has a line that is no object but {type(chunk).__name__}")
        if chunk.get("error"):
            status = chunk.get("status") or chunk.get("status_code")
            raise failure(status if isinstance(status, int) else 200, dict(chunk))
        self._whole |= chunk
        message = chunk.get("message")
        return list(self._deltas(message)) if isinstance(message, Mapping) else []

    def _deltas(self, message: Mapping[str, Any]) -> Iterator[Delta]:
        self._message |= message
        for key, kind in (("thinking", ReasoningDelta), ("content", TextDelta)):
            text = message.get(key)
            if isinstance(text, str) and text:
                self._texts[key].append(text)
                yield kind(text=text)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                yield from self._call(call)

    def _call(self, call: Mapping[str, Any]) -> Iterator[Delta]:
        index = len(self._calls)
        self._calls.append(call)
        function = call.get("function")
        if isinstance(function, Mapping):
            given = function.get("arguments")
            yield CallStarted(index=index, name=str(function.get("name") or ""))
            if given is not None:
                text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
                yield CallArguments(index=index, text=text)

    def body(self) -> dict[str, Any]:
        """The answer as it would have come in one piece.

        Raises:
            ProviderError: the stream was cut: no line said that it is done.
        """
        if self._whole.get("done") is not True:
            raise unreadable("the stream ends before it is done")
        message = {**self._message, **{key: "".join(v) for key, v in self._texts.items()}}
        return {**self._whole, "message": {**message, "tool_calls": self._calls}}

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ProviderError: the stream was cut.
        """
        return from_wire(self.body())
