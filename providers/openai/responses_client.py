"""Call OpenAI's Responses API through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.openai.responses_stream import ResponsesAccumulator
from toolchart.providers.openai.responses_wire import (
    NAME,
    decode_reply,
    encode_request,
    find_unsupported_options,
)
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.stream_frames import EventFrameReader, iterate_frames
from toolchart.providers.shared.warnings import add_warnings, find_foreign_data
from toolchart.states.messages import Delta, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class ResponsesProvider:
    """Calls `/responses` of one host (`api: responses` of an `openai` entry).

    Args:
        store: whether the host stores the response. If not, its reasoning comes encrypted and is sent back
            with its call, so that the log alone holds the conversation.
        extra_body: more keys of the request body.
    """

    name = NAME

    def __init__(
        self, client: AsyncOpenAI, *, store: bool = True, extra_body: dict[str, Any] | None = None
    ) -> None:
        self._client = client
        self._store = store
        self._extra_body = extra_body

    async def complete(self, request: Request) -> Reply:
        """The whole reply to a request.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions(ValueError):
            response = await self._client.responses.with_raw_response.create(**self._build_body(request))
            data = json.loads(response.content)
        return _add_request_warnings(request, decode_reply(data))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        reader, accumulator = EventFrameReader(), ResponsesAccumulator()
        create = self._client.responses.with_streaming_response.create
        with convert_exceptions():
            async with (
                create(**self._build_body(request), stream=True) as response,
                aclosing(iterate_frames(response.iter_bytes(), reader)) as frames,
            ):
                async for frame in frames:
                    for delta in accumulator.add_frame(frame):
                        yield delta
        yield _add_request_warnings(request, decode_reply(accumulator.build_body()))

    def _build_body(self, request: Request) -> dict[str, Any]:
        body = encode_request(request)
        if not self._store:
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        return {**body, "extra_body": self._extra_body}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _add_request_warnings(request: Request, reply: Reply) -> Reply:
    """The reply with a warning for each part of the request that the Responses API cannot express."""
    warnings = [*find_unsupported_options(request), *find_foreign_data(request.messages, NAME)]
    return add_warnings(reply, warnings)
