"""Call chat completions of OpenAI and compatible hosts through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.openai.compatible_hosts import find_profile
from toolchart.providers.openai.http import BodySender
from toolchart.providers.openai.responses_client import ResponsesProvider
from toolchart.providers.openai.stream import ChatAccumulator
from toolchart.providers.openai.wire import SUPPORTED_OPTIONS, EchoReasoning, decode_reply, encode_request
from toolchart.providers.shared.addresses import resolve_address
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_client import find_api_key
from toolchart.providers.shared.own_data import find_foreign_data
from toolchart.providers.shared.settings import AdapterSettings, read_adapter_settings
from toolchart.providers.shared.warnings import find_unsupported_options
from toolchart.providers.transport.connections import HttpHooks, build_client_options, get_silence_timeout_s
from toolchart.providers.transport.stream_frames import EventFrameReader, iterate_frames
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.messages import Delta, FinishReason, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_DOMAIN = "api.openai.com"


class OpenAISettings(AdapterSettings):
    """Keys that only an `openai` entry has."""

    api: Literal["chat", "responses"] = "chat"
    """Which API to call: chat completions, or OpenAI's Responses."""
    store: bool = True
    """Responses: whether the host stores them; if not, encrypted reasoning is kept in the log."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How the host spells the token limit; by default the new name at OpenAI and the old one elsewhere."""
    seed_name: Literal["seed", "random_seed"] = "seed"
    """How the host spells the seed."""
    sends_tool_names: bool = False
    """Whether a tool's result carries the tool's name."""
    echo_reasoning: EchoReasoning = "tool_turns"
    """Whether reasoning is sent back to the host that sent it."""
    finish_words: dict[str, FinishReason] | None = None
    """Finish words that only this host sends, and their meaning."""
    refuses: tuple[str, ...] = ()
    """Options that the host refuses; they are left out, with a warning."""
    stream_usage: bool = True
    """Whether to request token counts at the end of a stream; false for hosts that refuse
    `stream_options`."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the host names them."""
    headers: dict[str, str] | None = None
    """More HTTP headers; `${VARIABLE}` is replaced."""


class OpenAIProvider(HostAdapter):
    """Calls chat completions of one host. The SDK's retries are off: the chart decides about retries."""

    name = "openai"

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
    ) -> OpenAIProvider | ResponsesProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        address = resolve_address(config, resolve) or ""
        host_name = urlsplit(address).hostname
        settings = read_adapter_settings(OpenAISettings, config, find_profile(host_name))
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
        if settings.api == "responses":
            return ResponsesProvider(client, store=settings.store, extra_body=settings.extra_body)
        return cls(client, settings)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /chat/completions`."""
        wire = encode_request(
            request,
            origin=self.get_origin(request),
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
        refused_options = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in request.options
        ]
        unsupported_options = find_unsupported_options(request, SUPPORTED_OPTIONS, "the host")
        foreign_data = find_foreign_data(request.messages, self.get_origin(request), "message")
        return [*refused_options, *unsupported_options, *foreign_data]

    def _choose_max_tokens_name(self) -> str:
        if self._settings.max_tokens_name:
            return self._settings.max_tokens_name
        is_openai = self._client.base_url.host == OPENAI_DOMAIN
        return "max_completion_tokens" if is_openai else "max_tokens"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
