"""Signs the requests of an HTTP client with what a library gives at that moment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import httpx


class TokenAuth(httpx.Auth):
    """Adds headers to every request.

    Args:
        find_headers: the headers, made anew for each request, since tokens expire.
    """

    def __init__(self, find_headers: Callable[[], Mapping[str, str]]) -> None:
        self._find_headers = find_headers

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """The request with the headers."""
        request.headers.update(self._find_headers())
        yield request
