"""Build an Ollama reply from the JSON lines of a streamed answer.

The lines are accumulated into the body that an unstreamed answer would have had; `wire.decode_reply` then
reads either kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.ollama.wire import FINISH_WORDS, decode_pictures, decode_usage
from toolchart.providers.shared.failures import build_bad_response_error, check_object
from toolchart.providers.shared.replies import (
    choose_finish_word,
    join_pieces,
    list_call_entries,
    merge_counts,
    read_function,
    read_index,
    read_string,
    read_text,
)
from toolchart.providers.shared.streamed_calls import StreamedCall, StreamedCalls, find_arguments
from toolchart.states.messages import Delta, PartDelta, ReasoningDelta, TextDelta, Usage

_COUNTS = frozenset(("prompt_eval_count", "eval_count"))


class OllamaAccumulator:
    """Accumulates one streamed answer of `/api/chat`.

    Texts come in pieces, each call comes whole (gateways send pieces), and the line with `done: true` ends
    the answer and has the token counts.

    Source: the server's `server/routes.go` of August 2026; recorded traffic.
    """

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[Any]] = {"content": [], "thinking": []}
        self._calls = StreamedCalls()
        self._entries: list[Any] = []
        """The calls, and the entries that are none."""
        self._images: list[Any] = []

    def add_frame(self, line: Any) -> list[Delta]:
        """The deltas of one line.

        Raises:
            ProviderError: the line is an error, or no object.
        """
        check_object(line, "the stream has a line that is not an object")
        word = self._body.get("done_reason")
        if self._body.keys() & _COUNTS:
            self._body = merge_counts(self._body, line)
        else:
            self._body |= line
        if word is not None:
            self._body["done_reason"] = choose_finish_word(word, line.get("done_reason"), FINISH_WORDS)
        message = line.get("message")
        return list(self._iterate_deltas(message)) if isinstance(message, Mapping) else []

    def _iterate_deltas(self, message: Mapping[str, Any]) -> Iterator[Delta]:
        self._message |= message
        for key, delta_type in (("thinking", ReasoningDelta), ("content", TextDelta)):
            text = message.get(key)
            if text is not None and text != "":
                self._texts[key].append(text)
                yield delta_type(text=text if isinstance(text, str) else read_text(text))
        for picture in decode_pictures(message):
            yield PartDelta(index=len(self._images), part=picture)
            self._images.append(picture.data)
        entries = message.get("tool_calls")
        for entry in list_call_entries(entries) if entries else ():
            if isinstance(entry, Mapping):
                yield from self._add_call(entry)
            else:
                self._entries.append(entry)

    def _add_call(self, entry: Mapping[str, Any]) -> Iterator[Delta]:
        function, count = read_function(entry), len(self._calls.calls)
        name, arguments = str(function.get("name") or ""), find_arguments(function, entry)
        call, deltas = self._calls.add_piece(
            index=read_index(function.get("index")),
            call_id=read_string(entry.get("id")) or "",
            name=name,
            arguments=arguments,
            is_start=bool(name) and not isinstance(arguments, str),  # the server sends each call whole
        )
        if call.index == count:
            self._entries.append(call)
        return deltas

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
        texts = {key: join_pieces(pieces) for key, pieces in self._texts.items()}
        calls = [_build_call(entry) if isinstance(entry, StreamedCall) else entry for entry in self._entries]
        message = {**self._message, **texts, "tool_calls": calls, "images": self._images}
        return {**self._body, "message": message}


def _build_call(call: StreamedCall) -> dict[str, Any]:
    """The call as an unstreamed answer has it."""
    return {"id": call.id, "function": {"name": call.name, "arguments": call.build_arguments()}}
