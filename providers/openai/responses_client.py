"""OpenAI's Responses, through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.openai.responses_stream import ResponseStream
from toolchart.providers.openai.responses_wire import NAME, from_wire, to_wire, unsaid
from toolchart.providers.shared.failures import from_exception, unreadable
from toolchart.providers.shared.stream_frames import EventFrames
from toolchart.providers.shared.stream_values import values_of
from toolchart.providers.shared.warnings import foreign_data, with_warnings
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class ResponsesProvider:
    """`/responses` of one host (`api: responses` of an `openai` entry).

    Args:
        store: whether the host keeps the response. Without it the reasoning comes encrypted and is sent
            back with its call, so that the conversation stands in our log alone.
        extra_body: further keys of the request.
    """

    name = NAME

    def __init__(
        self, client: AsyncOpenAI, *, store: bool = True, extra_body: dict[str, Any] | None = None
    ) -> None:
        self._client = client
        self._store = store
        self._extra_body = extra_body

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        try:
            raw = await self._client.responses.with_raw_response.create(**self._body(request))
            data = json.loads(raw.content)
        except ProviderError:
            raise
        except ValueError:
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return self._warned(from_wire(data), request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows, and last the whole one."""
        frames, growing = EventFrames(), ResponseStream()
        create = self._client.responses.with_streaming_response.create
        try:
            async with (
                create(**self._body(request), stream=True) as response,
                aclosing(values_of(response.iter_bytes(), frames)) as chunks,
            ):
                async for chunk in chunks:
                    for delta in growing.feed(chunk):
                        yield delta
        except ProviderError:
            raise
        except Exception as error:
            raise from_exception(error) from error
        yield self._warned(from_wire(growing.body()), request)

    def _body(self, request: Request) -> dict[str, Any]:
        body = to_wire(request)
        if not self._store:
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        return {**body, "extra_body": self._extra_body}

    @staticmethod
    def _warned(reply: Reply, request: Request) -> Reply:
        return with_warnings(reply, [*unsaid(request), *foreign_data(request.messages, NAME)])

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
