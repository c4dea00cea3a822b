"""Chooses the boundary of the `bracket` format: an id that stands in no text that the model reads.

A marker counts as a call only with the boundary of the request. So a text that the model quotes, such as a
tool result or a document, cannot become a call if it does not contain the boundary. A random boundary would
promise that, but then nobody could build the body of the request again from the log. MIME has the same
problem, and the same answer serves here: the boundary is derived from the request, and checked against it.

- The first candidate is a digest of the beginning of the conversation. It stays the same from request to
  request, which keeps the host's prompt cache useful and the model's earlier calls alike.
- Whoever knows the beginning can compute that candidate and put it into a text. Then it occurs in the
  request, and is not taken. The next candidates are digests of everything in the request, that text included:
  nobody writes a text that names a digest of itself, and what occurs nevertheless is not taken either.

So the promise does not rest on a secret: it is checked for each request.

Source: RFC 2046, 5.1.1: a boundary must not appear in the parts that it separates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count, takewhile

from toolchart.states.canonical_json import encode_canonical
from toolchart.states.messages import Message, Request, encode_arguments

_LENGTH = 8
"""Hexadecimal digits: short enough that small models copy them without a mistake."""


def choose_boundary(request: Request) -> str:
    """The boundary of a request: the same for equal requests, and part of no text in it."""
    texts = list(_iterate_texts(request))
    candidates = _iterate_candidates(request.messages, texts)
    return next(candidate for candidate in candidates if not any(candidate in text for text in texts))


def _iterate_texts(request: Request) -> Iterator[str]:
    """Every text of the request that the model reads: messages, calls and descriptions of tools."""
    for message in request.messages:
        yield message.content or ""
        yield message.name or ""
        for call in message.tool_calls:
            yield call.name
            yield encode_arguments(call)
    for tool in request.tools:
        yield encode_canonical([tool.name, tool.description, tool.parameters]).decode()


def _iterate_candidates(messages: Sequence[Message], texts: Sequence[str]) -> Iterator[str]:
    """The candidates in their order, without an end."""
    opening = [message.content for message in takewhile(lambda m: m.role in ("system", "user"), messages)]
    yield _compute_candidate(["opening", *opening])
    for number in count():
        yield _compute_candidate([number, *texts])


def _compute_candidate(parts: Sequence[object]) -> str:
    return sha256(encode_canonical(parts)).hexdigest()[:_LENGTH]
