"""Base classes of adapters that send one JSON body in one request, and read the answer whole or streamed.

The bytes of an answer are decoded by `decode_whole` and by the `StreamDecoder` of `make_stream_decoder`, live
and when `replay` decodes a kept answer again (`decode_raw`).
"""

from __future__ import annotations

import codecs
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.descriptor import StreamAccumulator
from toolchart.providers.shared.failures import (
    build_bad_response_error,
    check_object,
    convert_exceptions,
    raise_for_status,
)
from toolchart.providers.shared.replies import iterate_deltas
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.raw_answers import note_usage
from toolchart.providers.transport.reply_guard import build_excess_error, build_size_error
from toolchart.providers.transport.stream_frames import (
    EventFrameReader,
    FrameReader,
    LineFrameReader,
    read_end,
)
from toolchart.states.call_arguments import quote_repeated_keys
from toolchart.states.json_bounds import DepthError, ExcessError, check_foreign_json, parse_foreign_json
from toolchart.states.messages import Delta, Reply, Usage
from toolchart.states.reading_limits import READING

if TYPE_CHECKING:
    import httpx2

_JSON_HEADERS = {"content-type": "application/json"}
_CHANGING_HEADERS = (b"content-length", b"cookie")
"""Headers that are not the same in each request to a path."""
_MAX_KEPT_PATHS = 64


class StreamDecoder:
    """Decodes one streamed answer: takes its bytes as they come, gives deltas, and last the whole reply.

    A gateway may answer with whole JSON although a stream was asked for. The first bytes tell: neither an
    event nor a frame of Bedrock begins with a brace or a bracket, and the first of JSON lines is a whole
    value.

    Args:
        reader: cuts the bytes into frames.
        accumulator: joins the frames into the body that an unstreamed answer would have had.
        decode_answer: makes the reply of that body.
    """

    def __init__(
        self, reader: FrameReader, accumulator: StreamAccumulator, decode_answer: Callable[[Any], Reply]
    ) -> None:
        self._reader = reader
        self._accumulator = accumulator
        self._decode_answer = decode_answer
        self._pieces_left = READING.stream_pieces
        self._head = bytearray()
        """The bytes so far, while they may be whole JSON."""
        self._has_begun = False
        """Whether anything but blanks came."""
        self._is_stream: bool | None = None
        """Whether the answer comes in frames; None while nothing tells."""
        self._whole_reply: Reply | None = None

    @property
    def is_done(self) -> bool:
        """Whether the stream itself has marked its end: nothing after it counts."""
        return self._reader.is_done

    def add_bytes(self, data: bytes) -> Iterator[Delta]:
        """The deltas of the next bytes.

        Raises:
            ProviderError: a frame is not JSON, or an error; or there are too many pieces.
        """
        if self._is_stream:
            return self._add_frames(self._reader.add_bytes(data))
        self._head += data
        # What came before is not looked at again for bytes that tell nothing: blanks in front, and all of a
        # first line but its end.
        if self._is_stream is None and (b"\n" in data if self._has_begun else not data.isspace()):
            self._is_stream = is_stream(self._head, self._reader)
            # HTML standard, 9.2.5: one byte order mark at the beginning is left out. JSON lines have it too.
            self._head = self._head.removeprefix(codecs.BOM_UTF8)
            self._has_begun = bool(self._head.strip()) and not codecs.BOM_UTF8.startswith(self._head)
        if not self._is_stream:
            if len(self._head) > READING.reply_bytes:
                raise build_size_error("reply_bytes")
            return iter(())
        data, self._head = bytes(self._head), bytearray()
        return self._add_frames(self._reader.add_bytes(data))

    def finish_bytes(self) -> Iterator[Delta]:
        """The deltas of what the end of the bytes completes; behind the mark of an end only an error does.

        Raises:
            ProviderError: as `add_bytes`; the last frame of a cut stream is not JSON.
        """
        if self._is_stream:
            return self._add_frames(self._reader.finish())
        return self._add_whole(bytes(self._head))

    def _add_whole(self, content: bytes) -> Iterator[Delta]:
        """The deltas of an answer in one piece."""
        answer = decode_json(content)
        if isinstance(answer, list):  # Gemini's frames without `alt=sse`
            yield from self._add_frames(iter(answer))
            return
        self._whole_reply = self._decode_answer(answer)
        yield from iterate_deltas(self._whole_reply)

    def _add_frames(self, frames: Iterator[Any]) -> Iterator[Delta]:
        for frame in frames:
            self._pieces_left -= 1
            if self._pieces_left < 0:
                raise build_excess_error(
                    f"the stream has more than {READING.stream_pieces:,} pieces", "stream_pieces"
                )
            if frame is None:  # `null` keeps a connection alive
                continue
            deltas = self._accumulator.add_frame(frame)
            if len(deltas) > 1:
                self._pieces_left -= len(deltas) - 1
            yield from deltas

    def read_usage(self) -> Usage | None:
        """The tokens that the host has counted so far; None if it has said nothing."""
        return self._accumulator.read_usage() if self._whole_reply is None else self._whole_reply.usage

    def build_reply(self) -> Reply:
        """The whole reply.

        Raises:
            ProviderError: the stream was cut, or is no reply.
        """
        if self._whole_reply is not None:
            return self._whole_reply
        return self._decode_answer(self._accumulator.build_body(self.is_done))


def is_stream(head: bytes | bytearray, reader: FrameReader) -> bool | None:
    """Whether an answer that begins so comes in frames; None while nothing tells.

    >>> is_stream(b"data: {", EventFrameReader()), is_stream(b" {", EventFrameReader())
    (True, False)
    >>> is_stream(b'{"done":', LineFrameReader()), is_stream(b'{"done":true}\\n', LineFrameReader())
    (None, True)
    """
    if len(head) < len(codecs.BOM_UTF8) and codecs.BOM_UTF8.startswith(head):
        return None
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if not start:
        return None
    if start[:1] not in (b"{", b"["):
        return True
    if not isinstance(reader, LineFrameReader):
        return False
    line, end, _ = start.partition(b"\n")
    if not end:
        return None
    try:
        parse_foreign_json(bytes(line), "reply_values")
    except ValueError:
        return False
    return True


def decode_json(content: bytes) -> Any:
    """The value of an answer.

    Raises:
        ProviderError: it is not JSON, has more values than `reply_values`, or is nested deeper
            than `MAX_DEPTH`.
    """
    with convert_exceptions(ValueError):
        try:
            check_foreign_json(content, "reply_values")
        except DepthError as error:  # as an answer that is no JSON: the next one may be another
            raise build_bad_response_error(f"the answer cannot be read: {error}") from None
        except ExcessError as error:
            raise build_excess_error(f"the answer cannot be read: {error}") from None
        # The names of calls in any API: an answer without any is read at once.
        if b"tool" in content or b"unction" in content:
            content = quote_repeated_keys(content)
        return json.loads(content)


class WireAdapter(HostAdapter):
    """Sends one JSON body in one request, and reads the answer, whole or streamed, by its wire format.

    A subclass says how its host gets the body (`fetch_content`, `stream_bytes`) and what reads the answer.
    """

    accumulator: Callable[[], StreamAccumulator]
    """Joins the frames of a stream into the body that an unstreamed answer would have had."""

    frame_reader: Callable[[], FrameReader] = EventFrameReader
    """Cuts the bytes of a stream into frames."""

    @abstractmethod
    async def fetch_content(self, body: dict[str, Any]) -> bytes:
        """Send this body; the bytes of the answer. Every exception becomes a failed call."""

    @abstractmethod
    def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer. Every exception becomes a failed call."""

    @abstractmethod
    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer, whole or joined from a stream.

        Raises:
            ProviderError: the answer is an error, or no reply.
        """

    def decode_whole(self, content: bytes) -> Reply:
        """The reply of the bytes of a whole answer.

        Raises:
            ProviderError: they are not JSON, an error, or no reply.
        """
        return self.decode_answer(decode_json(content))

    def make_stream_decoder(self) -> StreamDecoder:
        """A decoder for one streamed answer."""
        return StreamDecoder(self.frame_reader(), self.accumulator(), self.decode_answer)

    def _make_noted_decoder(self) -> StreamDecoder:
        """A decoder whose counts the record of the call gets if the call fails."""
        decoder = self.make_stream_decoder()
        note_usage(decoder.read_usage)
        return decoder

    def decode_raw(self, body: dict[str, Any], content: bytes, *, is_streamed: bool) -> Reply:
        """The reply of a raw answer that was kept.

        Raises:
            ProviderError: as when the answer came.
        """
        if not is_streamed:
            return self.decode_whole(content)
        decoder = self._make_noted_decoder()
        with convert_exceptions():
            for _ in (*decoder.add_bytes(content), *decoder.finish_bytes()):
                pass
        return decoder.build_reply()

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions():
            content = await self.fetch_content(body)
        return self.decode_whole(content)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        decoder = self._make_noted_decoder()
        with convert_exceptions():
            async with aclosing(self.stream_bytes(body)) as pieces:
                async for data in pieces:
                    for delta in decoder.add_bytes(data):
                        yield delta
                    if decoder.is_done:
                        await read_end(pieces)
                        break
                for delta in decoder.finish_bytes():
                    yield delta
        yield decoder.build_reply()


class HttpAdapter(WireAdapter):
    """A `WireAdapter` that posts its bodies through a client of httpx2.

    No SDK of a host is used: their typed methods walk every message (openai 3.52.0: 59 ms at 200
    messages, 1.6 s at 6,000), drop what their types do not have (ollama 0.6.3: call ids and most of a schema;
    google-genai 3.4.0: parts that it does not know), and end a stream silently that was cut. So what is
    digested is what is sent.
    """

    find_headers: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    """Finds headers of each request anew, as those of a sign-in that expires."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        import httpx2

        self._client = client
        self._request_type = httpx2.Request
        self.host = client.base_url.netloc.decode()
        self._kept: dict[str, tuple[httpx2.URL, list[tuple[bytes, bytes]]]] = {}
        """Address and headers of the requests to each path."""

    @abstractmethod
    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of the call, below the address."""

    def encode_content(self, body: dict[str, Any]) -> bytes:
        """The bytes that are sent for a body."""
        return encode_body(body)

    async def post(self, path: str, data: bytes, *, stream: bool = False) -> httpx2.Response:
        """The answer of a path to some bytes; with `stream` its own bytes are not read yet.

        Every exception becomes a failed call.

        Raises:
            ProviderError: the answer has an error status.
        """
        client, kept = self._client, self._kept.get(path)
        # Joining address and headers takes about as long as sending, and gives the same for each request.
        if kept is None:
            request = client.build_request("POST", path, content=data, headers=_JSON_HEADERS)
            if len(self._kept) < _MAX_KEPT_PATHS:
                headers = [pair for pair in request.headers.raw if pair[0].lower() not in _CHANGING_HEADERS]
                self._kept[path] = request.url, headers
        else:
            url, headers = kept
            request = self._request_type("POST", url, headers=headers, content=data)
            if client.cookies:
                client.cookies.set_cookie_header(request)
        return await self._send(request, stream=stream)

    async def _send(self, request: httpx2.Request, *, stream: bool = False) -> httpx2.Response:
        if self.find_headers is not None:
            request.headers.update(await self.find_headers())
        response = await self._client.send(request, stream=stream)
        if response.is_error:
            await response.aread()
            raise_for_status(response)
        return response

    async def fetch_content(self, body: dict[str, Any]) -> bytes:
        """Send this body; the bytes of the answer."""
        return (await self.post(self.get_path(body, stream=False), self.encode_content(body))).content

    async def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer."""
        response = await self.post(self.get_path(body, stream=True), self.encode_content(body), stream=True)
        try:
            async for piece in response.aiter_bytes():
                yield piece
        finally:
            await response.aclose()

    async def fetch_object(self, method: str, path: str, **options: Any) -> Mapping[str, Any]:
        """The JSON object that answers a request beside model calls.

        Args:
            options: of the request, as httpx2 has them.

        Raises:
            ProviderError: the request failed, or the answer is no object.
        """
        with convert_exceptions(ValueError):
            response = await self._send(self._client.build_request(method, path, **options))
            answer = decode_json(response.content)
        return check_object(answer, "the answer is no object")

    async def stream_path(self, path: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a file of the host. Every exception becomes a failed call."""
        response = await self._send(self._client.build_request("GET", path), stream=True)
        try:
            async for piece in response.aiter_bytes():
                yield piece
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
