"""Split a whole reply into streaming deltas, for providers that have no real stream.

The scripted, recorded and text-call providers use this: they hold the whole reply before they stream it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator

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


def _split_words(text: str | None) -> list[str]:
    """The words of a text with their white space, so that joining them gives the text back."""
    return (_WORD.findall(text) or [text]) if text else []
