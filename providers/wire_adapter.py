"""Base classes of adapters that send one JSON body in one request, and read the answer whole or streamed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.descriptor import StreamAccumulator
from toolchart.providers.shared.failures import convert_exceptions, raise_for_status
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.stream_frames import EventFrameReader, FrameReader, iterate_frames
from toolchart.states.messages import Delta, Reply

if TYPE_CHECKING:
    import httpx

_JSON_HEADERS = {"content-type": "application/json"}


class WireAdapter(HostAdapter):
    """Sends one JSON body in one request, and reads the answer, whole or streamed, by its wire format.

    A subclass says how its host gets the body (`fetch_json`, `stream_bytes`) and what reads the answer.
    """

    accumulator: Callable[[], StreamAccumulator]
    """Joins the frames of a stream into the body that an unstreamed answer would have had."""

    frame_reader: Callable[[], FrameReader] = EventFrameReader
    """Cuts the bytes of a stream into frames."""

    json_errors: tuple[type[Exception], ...] = (ValueError,)
    """Exceptions of `fetch_json` that mean that the answer is not JSON."""

    @abstractmethod
    async def fetch_json(self, body: dict[str, Any]) -> Any:
        """Send this body; the JSON of the answer. Every exception becomes a failed call."""

    @abstractmethod
    def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer. Every exception becomes a failed call."""

    @abstractmethod
    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer, whole or joined from a stream.

        Raises:
            ProviderError: the answer is an error, or no reply.
        """

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions(*self.json_errors):
            answer = await self.fetch_json(body)
        return self.decode_answer(answer)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        reader, accumulator = self.frame_reader(), self.accumulator()
        with convert_exceptions():
            # The frames are closed before the bytes, so that the connection is free when the reply is here.
            async with (
                aclosing(self.stream_bytes(body)) as pieces,
                aclosing(iterate_frames(pieces, reader)) as frames,
            ):
                async for frame in frames:
                    for delta in accumulator.add_frame(frame):
                        yield delta
        yield self.decode_answer(accumulator.build_body(reader.is_done))


class HttpAdapter(WireAdapter):
    """A `WireAdapter` that sends its bodies through a client of httpx."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.host = client.base_url.netloc.decode()

    @abstractmethod
    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of the call, below the address."""

    def encode_content(self, body: dict[str, Any]) -> bytes:
        """The bytes that are sent for a body."""
        return encode_body(body)

    async def post_content(self, path: str, data: bytes) -> Any:
        """The JSON answer of a path to some bytes. Every exception becomes a failed call."""
        response = await self._client.post(path, content=data, headers=_JSON_HEADERS)
        raise_for_status(response)
        return response.json()

    async def fetch_json(self, body: dict[str, Any]) -> Any:
        """Send this body; the JSON of the answer."""
        return await self.post_content(self.get_path(body, stream=False), self.encode_content(body))

    async def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer."""
        path, data = self.get_path(body, stream=True), self.encode_content(body)
        async with self._client.stream("POST", path, content=data, headers=_JSON_HEADERS) as response:
            if response.is_error:
                await response.aread()
            raise_for_status(response)
            async for piece in response.aiter_bytes():
                yield piece

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
