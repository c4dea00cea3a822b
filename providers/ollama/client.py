"""Ollama's native chat, through the official SDK's client as transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from toolchart.providers.ollama.stream import OllamaStream
from toolchart.providers.ollama.wire import from_wire, to_wire, warnings_of
from toolchart.providers.shared.failures import failure, from_exception, unreadable
from toolchart.providers.shared.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.shared.stream_values import json_lines
from toolchart.providers.shared.warnings import with_warnings
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    import httpx
    from ollama import AsyncClient


class OllamaSettings(AdapterSettings):
    """Keys of an `ollama` entry beyond the common ones."""

    options: dict[str, Any] | None = None
    """The server's model options: `num_ctx`, `top_k`, `repeat_penalty`, ..."""
    think: bool | Literal["low", "medium", "high"] | None = None
    """Whether and how much the model thinks."""
    keep_alive: str | float | None = None
    """How long the model stays loaded."""


class OllamaProvider:
    """`/api/chat` of one server.

    The SDK finds the server, authenticates and keeps the connections; its typed `chat()` is passed
    by, since it drops call ids and most of a schema (measured at 0.6.3; a test watches for a change).
    """

    name = "ollama"

    def __init__(self, client: AsyncClient, settings: OllamaSettings | None = None) -> None:
        self._client = client
        self._settings = settings or OllamaSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: Hooks | None = None
    ) -> OllamaProvider:
        """The provider of an `llms` entry; without an address `OLLAMA_HOST`, else this machine."""
        from ollama import AsyncClient

        settings = own_settings(OllamaSettings, config)
        headers = {"authorization": f"Bearer {resolve(config.api_key)}"} if config.api_key else None
        host = resolve(config.base_url) if config.base_url else None
        more = {"event_hooks": hooks} if hooks else {}
        return cls(AsyncClient(host, headers=headers, timeout=config.timeout_s, **more), settings)

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        try:
            http = self._client._client
            response = await http.post("/api/chat", json=self._body(request, stream=False))
            _check(response)
            data = response.json()
        except ProviderError:
            raise
        except ValueError:
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return self._told(request, from_wire(data))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows, and last the whole of it.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        growing, http = OllamaStream(), self._client._client
        body = self._body(request, stream=True)
        try:
            async with http.stream("POST", "/api/chat", json=body) as response:
                if response.is_error:
                    await response.aread()
                _check(response)
                async with aclosing(json_lines(response.aiter_bytes())) as lines:
                    async for line in lines:
                        for delta in growing.feed(line):
                            yield delta
        except ProviderError:
            raise
        except Exception as error:
            raise from_exception(error) from error
        yield self._told(request, growing.reply())

    def _told(self, request: Request, reply: Reply) -> Reply:
        return with_warnings(reply, warnings_of(request, reply, self._settings.options))

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        body = to_wire(request, self._settings.options, stream=stream)
        for name in ("think", "keep_alive"):
            value = getattr(self._settings, name)
            if value is not None:
                body[name] = value
        return body

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client._client.aclose()


def _check(response: httpx.Response) -> None:
    """Refuse an error status; read here and not by the SDK, which drops the headers (`retry-after`)."""
    if response.is_error:
        try:
            body = response.json()
        except ValueError:
            body = response.text
        raise failure(response.status_code, body, response.headers)
