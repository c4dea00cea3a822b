"""OpenAI and the hosts that speak like it, through the official SDK as transport."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from toolchart.providers.openai.compatible_hosts import profile_of
from toolchart.providers.openai.responses_client import ResponsesProvider
from toolchart.providers.openai.stream import ChatStream
from toolchart.providers.openai.wire import NAME, EchoReasoning, from_wire, to_wire
from toolchart.providers.shared.failures import from_exception, unreadable
from toolchart.providers.shared.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.shared.stream_frames import EventFrames
from toolchart.providers.shared.stream_values import values_of
from toolchart.providers.shared.warnings import foreign_data, with_warnings
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import FinishReason, Reply, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OFFICIAL = "api.openai.com"


class OpenAISettings(AdapterSettings):
    """Keys of an `openai` entry beyond the common ones."""

    api: Literal["chat", "responses"] = "chat"
    """Chat completions, or OpenAI's Responses."""
    store: bool = True
    """Responses: whether the host keeps them; without it reasoning travels encrypted, in our log."""
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How the host spells the limit; without it OpenAI's new word at OpenAI, the old one elsewhere."""
    echo_reasoning: EchoReasoning = "tool_turns"
    """Whether reasoning is sent back to the host that sent it."""
    finish_words: dict[str, FinishReason] | None = None
    """The host's own finish reasons, and what they mean."""
    refuses: tuple[str, ...] = ()
    """Options that the host refuses; they are left out, with a warning."""
    stream_usage: bool = True
    """Whether a stream is asked to tell tokens at its end; for hosts that refuse `stream_options`, false."""
    extra_body: dict[str, Any] | None = None
    """Further keys of the request, as the host knows them."""
    headers: dict[str, str] | None = None
    """Further HTTP headers; values may be `${VARIABLE}`."""


class OpenAIProvider:
    """Chat completions of one host. The SDK's own retries are off: retrying is the chart's business."""

    name = "openai"

    def __init__(self, client: AsyncOpenAI, settings: OpenAISettings | None = None) -> None:
        self._client = client
        self._settings = settings or OpenAISettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: Hooks | None = None
    ) -> OpenAIProvider | ResponsesProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: no key anywhere, or a setting that there is not.
        """
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        base_url = resolve(config.base_url) if config.base_url else None
        address = base_url or os.environ.get("OPENAI_BASE_URL") or f"https://{OFFICIAL}"
        host = urlsplit(address).hostname
        settings = own_settings(OpenAISettings, config, profile_of(host))
        key = resolve(config.api_key) if config.api_key else None
        if key is None and base_url and urlsplit(base_url).hostname != OFFICIAL:
            key = (
                _ambient_key() or "none"
            )  # most compatible hosts on one's own machine ask for none
        try:
            client = AsyncOpenAI(
                api_key=key,
                base_url=base_url,
                timeout=config.timeout_s,
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(event_hooks=hooks) if hooks else None,
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

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        try:
            raw = await self._client.chat.completions.with_raw_response.create(
                **self._body(request), extra_body=self._settings.extra_body
            )
            data = json.loads(raw.content)
        except ProviderError:
            raise
        except ValueError:
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return self._told(request, from_wire(data, self._settings.finish_words))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows, and last the whole one.

        The bytes are read past the SDK's own stream: that ends silently where a stream was cut, and raises
        bare errors at a piece that is not JSON (measured at 3.52.0).
        """
        frames, growing = EventFrames(), ChatStream()
        body = self._body(request)
        if self._settings.stream_usage:
            body["stream_options"] = {"include_usage": True}
        create = self._client.chat.completions.with_streaming_response.create
        try:
            async with (
                create(**body, stream=True, extra_body=self._settings.extra_body) as response,
                aclosing(values_of(response.iter_bytes(), frames)) as chunks,
            ):
                async for chunk in chunks:
                    for delta in growing.feed(chunk):
                        yield delta
        except ProviderError:
            raise
        except Exception as error:
            raise from_exception(error) from error
        whole = growing.body(frames.done)
        yield self._told(request, from_wire(whole, self._settings.finish_words))

    def _told(self, request: Request, reply: Reply) -> Reply:
        left_out = [
            f"{name}: this host refuses it, so it was left out"
            for name in self._settings.refuses
            if name in request.options
        ]
        return with_warnings(reply, [*left_out, *foreign_data(request.messages, NAME)])

    def _body(self, request: Request) -> dict[str, Any]:
        body = to_wire(
            request,
            max_tokens_name=self._max_tokens_name(),
            echo_reasoning=self._settings.echo_reasoning,
        )
        return {key: value for key, value in body.items() if key not in self._settings.refuses}

    def _max_tokens_name(self) -> str:
        if self._settings.max_tokens_name:
            return self._settings.max_tokens_name
        official = self._client.base_url.host == OFFICIAL
        return "max_completion_tokens" if official else "max_tokens"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _ambient_key() -> str | None:
    return os.environ.get("OPENAI_API_KEY")
