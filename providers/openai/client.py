"""Call chat completions of OpenAI and compatible hosts through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.openai.compatible_hosts import check_profile_name, find_profile
from toolchart.providers.openai.http import BodySender
from toolchart.providers.openai.responses_client import ResponsesProvider
from toolchart.providers.openai.responses_wire import SUPPORTED_OPTIONS as RESPONSES_OPTIONS
from toolchart.providers.openai.settings import OpenAISettings
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import (
    SUPPORTED_OPTIONS,
    decode_reply,
    encode_request,
    find_bridge_warnings,
)
from toolchart.providers.shared.addresses import resolve_address
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_client import find_api_key
from toolchart.providers.shared.model_rules import AdaptedRequest, adapt_request, find_rules
from toolchart.providers.shared.own_data import find_foreign_data
from toolchart.providers.shared.settings import read_adapter_settings
from toolchart.providers.shared.warnings import find_unsupported_options
from toolchart.providers.transport.connections import HttpHooks, build_client_options, get_silence_timeout_s
from toolchart.providers.transport.stream_frames import EventFrameReader, iterate_frames
from toolchart.specs.models import LLMConfig
from toolchart.states.content import AudioPart
from toolchart.states.errors import SpecError
from toolchart.states.messages import Delta, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_DOMAIN = "api.openai.com"


class OpenAIProvider(HostAdapter):
    """Calls chat completions of one host. The SDK's retries are off: the chart decides about retries."""

    name = "openai"

    rules_host: str | None = None
    """The host whose rules hold; None for that of the entry or of its address."""

    def __init__(
        self, client: AsyncOpenAI, settings: OpenAISettings | None = None, *, renews_token: bool = False
    ) -> None:
        self._client = client
        self._sender = BodySender(client, renews_token=renews_token)
        self.host = client.base_url.netloc.decode()
        self._settings = settings or OpenAISettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> OpenAIProvider | ResponsesProvider | DefaultProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        address = resolve_address(config, resolve) or ""
        host_name = urlsplit(address).hostname
        profile = find_profile(check_profile_name(config) or urlsplit(address).netloc)
        settings = read_adapter_settings(OpenAISettings, config, profile)
        key = find_api_key(config, resolve)
        if key is None and host_name != OPENAI_DOMAIN:
            # The SDK requires a key, but most compatible hosts on this machine do not.
            key = "none"
        try:
            client = AsyncOpenAI(
                api_key=key,
                base_url=address,
                timeout=get_silence_timeout_s(config),
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(**build_client_options(config, resolve, httpx2, hooks)),
                default_headers={k: resolve(v) for k, v in (settings.headers or {}).items()},
            )
        except OpenAIError:
            raise SpecError(
                "there is no API key for OpenAI",
                path="llms.*.api_key",
                hint="export OPENAI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            ) from None
        if settings.api == "chat":
            return cls(client, settings)
        is_chosen = "api" in config.extra_options()
        responses = ResponsesProvider(client, settings, stores_by_default=is_chosen)
        return responses if is_chosen else DefaultProvider(cls(client, settings), responses)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /chat/completions`."""
        adapted = self._adapt_request(request)
        wire = encode_request(
            adapted.request,
            origin=self.get_origin(request),
            fill_reasoning=self._settings.fill_reasoning and adapted.is_thinking is not False,
            id_form=adapted.id_form,
            needs_reply_after_results=adapted.needs_reply_after_results,
            needs_call_signatures=adapted.needs_call_signatures,
            max_tokens_name=self._choose_max_tokens_name(),
            seed_name=self._settings.seed_name,
            sends_tool_names=self._settings.sends_tool_names,
            echo_reasoning=self._settings.echo_reasoning,
        )
        body = {key: value for key, value in wire.items() if key not in self._settings.refuses}
        if stream:
            body["stream"] = True
            if self._settings.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body | (self._settings.extra_body or {})

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions(ValueError):
            response = await self._sender.post_body(self._get_path(body), body)
            data = json.loads(response.content)
        return decode_reply(data, self._settings.finish_words)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        reader, accumulator = EventFrameReader(), ChatAccumulator()
        with convert_exceptions():
            async with aclosing(self._sender.stream_bytes(self._get_path(body), body)) as pieces:
                async for frame in iterate_frames(pieces, reader):
                    for delta in accumulator.add_frame(frame):
                        yield delta
        yield decode_reply(accumulator.build_body(reader.is_done), self._settings.finish_words)

    def _get_path(self, body: dict[str, Any]) -> str:
        """The path of the call, below the address."""
        return "/chat/completions"

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each option that this host refuses, and for data of another host."""
        adapted = self._adapt_request(request)
        refused_options = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in adapted.request.options
        ]
        unsupported_options = find_unsupported_options(adapted.request, SUPPORTED_OPTIONS, "the host")
        foreign_data = find_foreign_data(request.messages, self.get_origin(request), "message")
        bridges = find_bridge_warnings(request, adapted.needs_reply_after_results)
        return [*adapted.warnings, *refused_options, *unsupported_options, *foreign_data, *bridges]

    def _adapt_request(self, request: Request) -> AdaptedRequest:
        """The request as its model takes it at this host."""
        host = self._settings.host_profile or self.rules_host or self.host
        return adapt_request(request, wire="chat", host=host, extra=self._settings.extra_body)

    def _choose_max_tokens_name(self) -> str:
        if self._settings.max_tokens_name:
            return self._settings.max_tokens_name
        is_openai = self._client.base_url.host == OPENAI_DOMAIN
        return "max_completion_tokens" if is_openai else "max_tokens"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class DefaultProvider(HostAdapter):
    """Calls OpenAI's own host where the entry names no API.

    It calls Responses, because chat completions refuse tools while the newest models reason; and chat
    completions for what only they take.
    """

    name = "openai"
    has_counter = True

    def __init__(self, chat: OpenAIProvider, responses: ResponsesProvider) -> None:
        self._chat = chat
        self._responses = responses
        self._settings = responses._settings
        self._chat_options = set(SUPPORTED_OPTIONS) - set(RESPONSES_OPTIONS) - set(self._settings.refuses)
        """Options that Responses lack."""
        self.host = responses.host

    def _choose_adapter(self, request: Request) -> OpenAIProvider | ResponsesProvider:
        """Chat completions for models that only they have, and for what only they take: sound, and of models
        that do not reason the options that Responses lack."""
        host = self._settings.host_profile or self.host
        has_sound = any(isinstance(part, AudioPart) for message in request.messages for part in message.parts)
        has_options = any(request.options.get(name) is not None for name in self._chat_options)
        rules = find_rules("responses", host, request.model)
        never_thinks = any(rule.never_thinks for rule in rules)
        is_chat_only = any(rule.is_chat_only for rule in rules)
        uses_chat = is_chat_only or has_sound or (never_thinks and has_options)
        return self._chat if uses_chat else self._responses

    def _find_adapter(self, body: dict[str, Any]) -> OpenAIProvider | ResponsesProvider:
        """The API that a body is for."""
        return self._chat if "messages" in body else self._responses

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body for the API that has the model."""
        return self._choose_adapter(request).build_body(request, stream=stream)

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        return await self._find_adapter(body).send_body(body)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        async with aclosing(self._find_adapter(body).stream_body(body)) as items:
            async for item in items:
                yield item

    async def count_body(self, body: dict[str, Any]) -> int | None:
        """The tokens of a body as a prompt; None for a model that only chat completions have.

        Raises:
            ProviderError: the host did not count.
        """
        return await self._find_adapter(body).count_body(body)

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the API cannot express."""
        return self._choose_adapter(request).list_warnings(request, reply)

    async def aclose(self) -> None:
        """Close the connections, which both APIs share."""
        await self._responses.aclose()
