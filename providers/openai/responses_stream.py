"""Build the body of a streamed response of OpenAI's Responses API from its events.

The last event holds the whole response, so nothing has to be joined. Some hosts leave its `output` empty;
then the items of the `response.output_item.done` events are the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.shared.failures import build_bad_response_error, classify_error_body, has_error
from toolchart.states.messages import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta

_TERMINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed")


class ResponsesAccumulator:
    """Accumulates one streamed response.

    Source: openai 3.52.0, `types/responses/response_stream_event.py`.
    """

    def __init__(self) -> None:
        self._response: Any = None
        self._call_indexes: dict[int, int] = {}
        self._items: dict[int, Any] = {}

    def add_frame(self, event: Any) -> list[Delta]:
        """The deltas of one event: text, reasoning and the arguments of calls.

        Raises:
            ProviderError: the event is an error, or no object.
        """
        if not isinstance(event, Mapping):
            raise build_bad_response_error(
                f"the stream has a piece that is not an object but {type(event).__name__}"
            )
        if has_error(event):
            raise classify_error_body(event)
        return list(self._iterate_deltas(event))

    def _iterate_deltas(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        kind, text = event.get("type"), event.get("delta")
        if kind in _TERMINAL_EVENTS:
            self._response = event.get("response") or {}
        item = event.get("item")
        item = item if isinstance(item, Mapping) else {}
        position = event.get("output_index")
        position = position if isinstance(position, int) else len(self._items)
        if kind == "response.output_item.done" and item:
            self._items[position] = item
        if kind == "response.output_item.added" and item.get("type") == "function_call":
            index = self._call_indexes[position] = len(self._call_indexes)
            yield CallStarted(index=index, name=str(item.get("name") or ""))
        if not isinstance(text, str) or not text:
            return
        if kind == "response.output_text.delta":
            yield TextDelta(text=text)
        elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
            yield ReasoningDelta(text=text)
        elif kind == "response.function_call_arguments.delta":
            yield CallArguments(index=self._call_indexes.get(position, 0), text=text)

    def build_body(self, is_done: bool = False) -> Any:
        """The response of the terminal event.

        Args:
            is_done: not used: the stream itself says when it is whole.

        Raises:
            ProviderError: the stream was cut.
        """
        if self._response is None:
            raise build_bad_response_error("the stream ended before the response did")
        response = self._response
        if self._items and isinstance(response, Mapping) and not response.get("output"):
            output = [self._items[position] for position in sorted(self._items)]
            return {**response, "output": output}
        return response
