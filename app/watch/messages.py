"""The messages of ASGI as the proxy sends and takes them: headers, and answers in the place of a host."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers of one connection. Source: RFC 9110, 7.6.1; the two names with `proxy-` of old clients too."""

NOT_FOR_HOSTS = HOP_BY_HOP | {b"host", b"accept-encoding", b"expect"}
"""`expect` is answered here: the server says `100 Continue` before the body is read."""


def select_headers(headers: Headers, left_out: frozenset[bytes]) -> Headers:
    """The headers that are passed on: all but some, and but those that `Connection` names."""
    lowered = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower() for name, value in lowered if name == b"connection" for word in value.split(b",")
    }
    dropped = left_out | named if named else left_out
    return [(name, value) for name, value in lowered if name not in dropped]


def describe_error(error: Exception) -> str:
    """What an error says; its kind where it says nothing."""
    return str(error) or type(error).__name__


async def send_words(send: Send, status: int, words: str) -> None:
    """Answer in the place of a host, in the form in which most hosts send errors."""
    body = json.dumps({"error": {"message": f"toolchart watch: {words}", "type": "toolchart_watch"}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
