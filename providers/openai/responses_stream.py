"""Streamed Responses. The last event tells the whole response, so nothing has to be joined.

Where `output` of the last event is empty, the items that were told whole, one by one, are the response: each
`response.output_item.done` brings one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.openai.wire import told_failure
from toolchart.providers.shared.failures import unreadable
from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta

_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


class ResponseStream:
    """One streamed response.

    Source: openai 3.52.0, `types/responses/response_stream_event.py`.
    """

    def __init__(self) -> None:
        self._response: Any = None
        self._calls: dict[int, int] = {}
        self._items: dict[int, Any] = {}

    def feed(self, chunk: Any) -> list[Delta]:
        """What an event adds: text, reasoning and the arguments of calls.

        Raises:
            ProviderError: an error told inside the stream, or an event that is no object.
        """
        if not isinstance(chunk, Mapping):
            raise unreadable(f"the stream has a piece that is no object but {type(chunk).__name__}")
        if chunk.get("type") == "error" or chunk.get("error"):
            raise told_failure(chunk)
        return list(self._deltas(chunk))

    def _deltas(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        kind, text = event.get("type"), event.get("delta")
        if kind in _TERMINAL:
            self._response = event.get("response") or {}
        told = event.get("item")
        item = told if isinstance(told, Mapping) else {}
        index = event.get("output_index")
        at = index if isinstance(index, int) else len(self._items)
        if kind == "response.output_item.done" and item:
            self._items[at] = item
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            place = self._calls[at] = len(self._calls)
            yield CallStarted(index=place, name=str(item.get("name") or ""))
        if not isinstance(text, str) or not text:
            return
        if kind == "response.output_text.delta":
            yield TextDelta(text=text)
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            yield ReasoningDelta(text=text)
        elif kind == "response.function_call_arguments.delta":
            yield CallArguments(index=self._calls.get(at, 0), text=text)

    def body(self) -> Any:
        """The response of the terminal event.

        Raises:
            ProviderError: the stream was cut.
        """
        if self._response is None:
            raise unreadable("the stream ended before the response did")
        whole = self._response
        if self._items and isinstance(whole, Mapping) and not whole.get("output"):
            return {**whole, "output": [self._items[at] for at in sorted(self._items)]}
        return whole
