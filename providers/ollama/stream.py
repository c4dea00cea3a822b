"""Build an Ollama reply from the JSON lines of a streamed answer.

The lines are accumulated into the body that an unstreamed answer would have had; `wire.decode_reply` then
reads either kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.ollama.wire import decode_pictures, decode_usage
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import join_text
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    PartDelta,
    ReasoningDelta,
    TextDelta,
    Usage,
)


class OllamaAccumulator:
    """Accumulates one streamed answer of `/api/chat`.

    Texts come in pieces, each call comes whole, and the line with `done: true` ends the answer and has the
    token counts.

    Source: the server's `server/routes.go` of August 2026; recorded traffic.
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"content": [], "thinking": []}
        self._calls: list[Any] = []
        self._images: list[Any] = []

    def add_frame(self, line: Any) -> list[Delta]:
        """The deltas of one line.

        Raises:
            ProviderError: the line is an error, or no object.
        """
        check_object(line, "the stream has a line that is not an object")
        self._body |= line
        message = line.get("message")
        return list(self._iterate_deltas(message)) if isinstance(message, Mapping) else []

    def _iterate_deltas(self, message: Mapping[str, Any]) -> Iterator[Delta]:
        self._message |= message
        for key, delta_type in (("thinking", ReasoningDelta), ("content", TextDelta)):
            text = message.get(key)
            if isinstance(text, str) and text:
                self._texts[key].append(text)
                yield delta_type(text=text)
        for picture in decode_pictures(message):
            yield PartDelta(index=len(self._images), part=picture)
            self._images.append(picture.data)
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, Mapping):
                yield from self._add_call(call)

    def _add_call(self, call: Mapping[str, Any]) -> Iterator[Delta]:
        index = len(self._calls)
        self._calls.append(call)
        function = call.get("function")
        if isinstance(function, Mapping):
            arguments = function.get("arguments")
            yield CallStarted(index=index, name=str(function.get("name") or ""))
            if arguments is not None:
                is_text = isinstance(arguments, str)
                text = arguments if is_text else json.dumps(arguments, ensure_ascii=False)
                yield CallArguments(index=index, text=text)

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far."""
        return decode_usage(self._body)

    def build_body(self, is_done: bool = False) -> dict[str, Any]:
        """The body that an unstreamed answer would have had.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut: no line with `done: true`.
        """
        if self._body.get("done") is not True:
            raise build_bad_response_error("the stream ends before it is done")
        texts = {key: join_text(pieces) for key, pieces in self._texts.items()}
        message = {**self._message, **texts, "tool_calls": self._calls, "images": self._images}
        return {**self._body, "message": message}
