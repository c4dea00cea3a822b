"""Send encoded bodies through the client of OpenAI's SDK.

The SDK's typed methods walk every message with their transforms: 59 ms at 200 messages, 1.6 s at 6,000
(openai 3.52.0). Its `post` takes bytes as they are, with the same headers, address and errors, and makes
headers and address anew for each request, which takes about as long as sending it. So it sends the first
request to each path, and what it made is used again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import httpx2

from toolchart.providers.shared.failures import raise_for_status
from toolchart.providers.transport.encoded_bodies import encode_body

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MAX_KEPT_PATHS = 64
_OWN_HEADERS = ("content-length", "transfer-encoding")
"""Headers that depend on the body."""


class BodySender:
    """Posts bodies to the paths of one client.

    Args:
        renews_token: whether the SDK puts another token into later requests; then it makes each of them.
    """

    def __init__(self, client: AsyncOpenAI, *, renews_token: bool = False) -> None:
        self._client = client
        self._renews_token = renews_token
        self._kept: dict[str, tuple[httpx2.URL, list[tuple[bytes, bytes]]]] = {}
        """Address and headers of the requests to each path."""

    async def post_body(self, path: str, body: dict[str, Any], *, stream: bool = False) -> httpx2.Response:
        """The answer to a body; with `stream` its own body is not read yet.

        Raises:
            openai.OpenAIError: the call failed.
            httpx2.TransportError: the host could not be reached, or broke off.
            ProviderError: the answer is an error.
        """
        data, kept = encode_body(body), self._kept.get(path)
        if kept is None:
            return await self._post_by_sdk(path, data, stream)
        url, headers = kept
        http = self._client._client
        timeout = {"timeout": http.timeout.as_dict()}
        request = httpx2.Request("POST", url, headers=headers, content=data, extensions=timeout)
        response: httpx2.Response = await http.send(request, stream=stream)
        if response.is_error:
            await response.aread()
            raise_for_status(response)  # type: ignore[arg-type]
        return response

    async def _post_by_sdk(self, path: str, data: bytes, stream: bool) -> httpx2.Response:
        response = await self._client.post(
            path,
            cast_to=httpx2.Response,
            content=data,
            options={"headers": {"Content-Type": "application/json"}},
            stream=stream,
        )
        if not self._renews_token and len(self._kept) < _MAX_KEPT_PATHS:
            headers = [
                (name, value)
                for name, value in response.request.headers.raw
                if name.lower().decode() not in _OWN_HEADERS
            ]
            self._kept[path] = response.request.url, headers
        return response

    async def stream_bytes(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """The bytes of the streamed answer to a body.

        The raw bytes are read instead of the SDK's stream, which ends silently if the connection is cut and
        raises a plain exception for a piece that is not JSON (measured at 3.52.0).

        Raises:
            openai.OpenAIError: the call failed.
            httpx2.TransportError: the host could not be reached, or broke off.
            ProviderError: the answer is an error.
        """
        response = await self.post_body(path, body, stream=True)
        try:
            async for piece in response.aiter_bytes():
                yield piece
        finally:
            await response.aclose()
