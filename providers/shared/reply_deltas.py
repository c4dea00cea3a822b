"""Split a whole reply into streaming deltas, for providers that have no real stream.

The scripted, recorded and text-call providers use this: they hold the whole reply before they stream it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator

from msgspec.structs import replace

from toolchart.providers.shared.wire_values import join_text
from toolchart.states.messages import (
    CallArguments,
    CallStarted,
    Delta,
    ReasoningDelta,
    Reply,
    TextDelta,
    encode_arguments,
)

_WORD = re.compile(r"\s*\S+\s*")


def iterate_deltas(reply: Reply) -> Iterator[Delta]:
    """The deltas of a reply, one per word: reasoning, then content, then tool calls."""
    for word in _split_words(reply.reasoning):
        yield ReasoningDelta(text=word)
    for word in _split_words(reply.content):
        yield TextDelta(text=word)
    for index, call in enumerate(reply.tool_calls):
        yield CallStarted(index=index, name=call.name)
        for word in _split_words(encode_arguments(call)):
            yield CallArguments(index=index, text=word)


async def stream_reply(reply: Reply) -> AsyncGenerator[Delta | Reply, None]:
    """The deltas of a reply, then the reply itself, as `StreamingProvider.stream` promises."""
    for delta in iterate_deltas(reply):
        yield delta
    yield reply


class DeltaJoiner:
    """Passes deltas on. Half a character at the end of one waits for its other half in the next."""

    def __init__(self) -> None:
        self._halves: dict[tuple[type, int], str] = {}

    def join_delta(self, delta: Delta) -> Delta | None:
        """The delta with the half that waited before it; None while there is nothing to show."""
        if isinstance(delta, CallStarted):
            return delta
        place = (type(delta), delta.index if isinstance(delta, CallArguments) else 0)
        half = self._halves.pop(place, "") if self._halves else ""
        if not half and not "\ud800" <= delta.text[-1:] <= "\udbff":
            return delta
        text = half + delta.text
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._halves[place] = text[:-1], text[-1]
        return replace(delta, text=join_text([text])) if text else None


def _split_words(text: str | None) -> list[str]:
    """The words of a text with their white space, so that joining them gives the text back."""
    return (_WORD.findall(text) or [text]) if text else []
