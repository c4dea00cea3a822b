"""Call OpenAI's Responses API through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.openai.http import BodySender
from toolchart.providers.openai.responses_stream import ResponsesAccumulator
from toolchart.providers.openai.responses_wire import NAME, SUPPORTED_OPTIONS, decode_reply, encode_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_client import read_token_count
from toolchart.providers.shared.own_data import find_foreign_data
from toolchart.providers.shared.warnings import find_unsupported_options
from toolchart.providers.transport.stream_frames import EventFrameReader, iterate_frames
from toolchart.states.messages import Delta, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_COUNTED_KEYS = (
    "input",
    "instructions",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
)
"""The keys of a body that the counter takes."""


class ResponsesProvider(HostAdapter):
    """Calls `/responses` of one host (`api: responses` of an `openai` entry).

    Args:
        store: whether the host stores the response. If not, its reasoning comes encrypted and is sent back
            with its call, so that the log alone holds the conversation.
        extra_body: more keys of the request body.
        renews_token: whether the client puts another token into later requests.
    """

    name = NAME
    has_counter = True

    def __init__(
        self,
        client: AsyncOpenAI,
        *,
        store: bool = True,
        extra_body: dict[str, Any] | None = None,
        renews_token: bool = False,
    ) -> None:
        self._client = client
        self._sender = BodySender(client, renews_token=renews_token)
        self.host = client.base_url.netloc.decode()
        self._store = store
        self._extra_body = extra_body

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /responses`."""
        body = encode_request(request, self.get_origin(request))
        if not self._store:
            include = [*body.get("include", ()), "reasoning.encrypted_content"]
            body |= {"store": False, "include": include}
        if stream:
            body["stream"] = True
        return body | (self._extra_body or {})

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions(ValueError):
            response = await self._sender.post_body("/responses", body)
            data = json.loads(response.content)
        return decode_reply(data)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        reader, accumulator = EventFrameReader(), ResponsesAccumulator()
        with convert_exceptions():
            async with aclosing(self._sender.stream_bytes("/responses", body)) as pieces:
                async for frame in iterate_frames(pieces, reader):
                    for delta in accumulator.add_frame(frame):
                        yield delta
        yield decode_reply(accumulator.build_body())

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `POST /responses/input_tokens`.

        Source: openai 3.54.0, `types/responses/input_token_count_params.py`.

        Raises:
            ProviderError: the host did not count.
        """
        counted = {key: value for key, value in body.items() if key in _COUNTED_KEYS}
        with convert_exceptions(ValueError):
            response = await self._sender.post_body("/responses/input_tokens", counted)
            return read_token_count(json.loads(response.content), "input_tokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the Responses API cannot express."""
        foreign_data = find_foreign_data(request.messages, self.get_origin(request), "output")
        return [*find_unsupported_options(request, SUPPORTED_OPTIONS, "the Responses API"), *foreign_data]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
