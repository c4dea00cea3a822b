"""A whole reply told in pieces, for providers that have no wire to wait for."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator

from toolchart.states.deltas import CallArguments, CallStarted, Delta, ReasoningDelta, TextDelta
from toolchart.states.messages import Reply, arguments_text

_WORD = re.compile(r"\s*\S+\s*")


def pieces_of(reply: Reply) -> Iterator[Delta]:
    """Deltas that together say what the reply says, word by word."""
    for word in _words(reply.reasoning):
        yield ReasoningDelta(text=word)
    for word in _words(reply.content):
        yield TextDelta(text=word)
    for index, call in enumerate(reply.tool_calls):
        yield CallStarted(index=index, name=call.name)
        for word in _words(arguments_text(call)):
            yield CallArguments(index=index, text=word)


async def in_pieces(reply: Reply) -> AsyncGenerator[Delta | Reply, None]:
    """The deltas, then the reply itself."""
    for delta in pieces_of(reply):
        yield delta
    yield reply


def _words(text: str | None) -> list[str]:
    """The text in words, with nothing lost: what is only blank is one piece."""
    return (_WORD.findall(text) or [text]) if text else []
