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
from toolchart.providers.openai.settings import OpenAISettings
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_client import read_token_count
from toolchart.providers.shared.model_rules import AdaptedRequest, adapt_request
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

    Where the host does not store responses, reasoning comes encrypted and is sent back with its call, so that
    the log alone holds the conversation.

    Args:
        stores_by_default: whether the host stores responses where the settings do not say it.
        renews_token: whether the client puts another token into later requests.
        rules_host: the host whose rules hold, where neither settings nor address say it.
    """

    name = NAME
    has_counter = True

    def __init__(
        self,
        client: AsyncOpenAI,
        settings: OpenAISettings,
        *,
        stores_by_default: bool = True,
        renews_token: bool = False,
        rules_host: str | None = None,
    ) -> None:
        self._client = client
        self._sender = BodySender(client, renews_token=renews_token)
        self.host = client.base_url.netloc.decode()
        self._settings = settings
        self._store = stores_by_default if settings.store is None else settings.store
        self._rules_host = settings.host_profile or rules_host or self.host

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /responses`."""
        adapted = self._adapt_request(request)
        wire = encode_request(adapted.request, self.get_origin(request), id_form=adapted.id_form)
        body = {key: value for key, value in wire.items() if key not in self._settings.refuses}
        if not self._store:
            body["store"] = False
            if adapted.may_think:
                body["include"] = [*body.get("include", ()), "reasoning.encrypted_content"]
        if stream:
            body["stream"] = True
        return body | (self._settings.extra_body or {})

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it at this host."""
        extra = self._settings.extra_body
        return adapt_request(request, wire="responses", host=self._rules_host, extra=extra)

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
        adapted = self._adapt_request(request)
        refused_options = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in adapted.request.options and name in SUPPORTED_OPTIONS
        ]
        return [
            *adapted.warnings,
            *refused_options,
            *find_unsupported_options(adapted.request, SUPPORTED_OPTIONS, "the Responses API"),
            *find_foreign_data(request.messages, self.get_origin(request), "output"),
        ]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
