"""Anthropic's Messages over plain HTTP: the interface is small, and its SDK is not needed for it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from toolchart.providers.anthropic.stream import AnthropicStream
from toolchart.providers.anthropic.wire import NAME, from_wire, to_wire
from toolchart.providers.shared.failures import failure, from_exception, unreadable
from toolchart.providers.shared.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.shared.stream_values import sse_values
from toolchart.providers.shared.tool_choice import choice_of
from toolchart.providers.shared.warnings import foreign_data, unmet, with_warnings
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    import httpx

ADDRESS = "https://api.anthropic.com"
VERSION = "2023-06-01"
"""The interface's version, which every request names."""


class AnthropicSettings(AdapterSettings):
    """Keys of an `anthropic` entry beyond the common ones."""

    thinking: dict[str, Any] | None = None
    """The request's `thinking`: `{type: enabled, budget_tokens: 1024}`, `{type: adaptive}`, ..."""
    headers: dict[str, str] | None = None
    """More headers, such as `anthropic-beta`; `${VARIABLE}` is filled in."""
    extra_body: dict[str, Any] | None = None
    """More keys of the request body, as the host names them."""


class AnthropicProvider:
    """`/v1/messages` of one host. Nothing is retried here: that is the chart's business."""

    name = NAME

    def __init__(
        self, client: httpx.AsyncClient, settings: AnthropicSettings | None = None
    ) -> None:
        self._client = client
        self._settings = settings or AnthropicSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: Hooks | None = None
    ) -> AnthropicProvider:
        """The provider of an `llms` entry; without an address `ANTHROPIC_BASE_URL`, else Anthropic's.

        Raises:
            SpecError: no key anywhere, or a setting that there is not.
        """
        import httpx

        settings = own_settings(AnthropicSettings, config)
        given = resolve(config.api_key) if config.api_key else os.environ.get("ANTHROPIC_API_KEY")
        if not given:
            raise SpecError(
                "there is no API key for Anthropic",
                path="llms.*.api_key",
                hint="export ANTHROPIC_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            )
        ambient = os.environ.get("ANTHROPIC_BASE_URL") or ADDRESS
        more = {name: resolve(value) for name, value in (settings.headers or {}).items()}
        client = httpx.AsyncClient(
            base_url=resolve(config.base_url) if config.base_url else ambient,
            headers={"x-api-key": given, "anthropic-version": VERSION, **more},
            timeout=config.timeout_s,
            event_hooks=hooks,
        )
        return cls(client, settings)

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        try:
            response = await self._client.post("/v1/messages", json=self._body(request))
            _check(response)
            data = response.json()
        except ProviderError:
            raise
        except ValueError:
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return _told(request, from_wire(data))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows, and last the whole of it.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        growing = AnthropicStream()
        body = self._body(request, stream=True)
        try:
            async with self._client.stream("POST", "/v1/messages", json=body) as response:
                if response.is_error:
                    await response.aread()
                _check(response)
                async with aclosing(sse_values(response.aiter_bytes())) as events:
                    async for event in events:
                        for delta in growing.feed(event):
                            yield delta
        except ProviderError:
            raise
        except Exception as error:
            raise from_exception(error) from error
        yield _told(request, growing.reply())

    def _body(self, request: Request, *, stream: bool = False) -> dict[str, Any]:
        thinking = {"thinking": self._settings.thinking} if self._settings.thinking else {}
        return {
            **to_wire(request, stream=stream),
            **thinking,
            **(self._settings.extra_body or {}),
        }

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _check(response: httpx.Response) -> None:
    if response.is_error:
        try:
            body = response.json()
        except ValueError:
            body = response.text
        raise failure(response.status_code, body, response.headers)


def _told(request: Request, reply: Reply) -> Reply:
    """The reply, with what Anthropic was not told."""
    found = foreign_data(request.messages, NAME)
    found += unmet(choice_of(request.options.get("tool_choice")), reply, "Anthropic")
    if request.options.get("seed") is not None:
        found.append("seed: Anthropic takes none")
    shape = request.options.get("response_format")
    if isinstance(shape, Mapping) and shape.get("type") == "json_object":
        found.append("response_format: Anthropic takes a JSON schema, and no JSON without one")
    return with_warnings(reply, found)
