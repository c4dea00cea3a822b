"""Ollama's native chat, through the official SDK's client as transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from toolchart.providers.failures import from_exception, unreadable
from toolchart.providers.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.wire_ollama import from_wire, to_wire
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
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
        body = to_wire(request, self._settings.options)
        for name in ("think", "keep_alive"):
            value = getattr(self._settings, name)
            if value is not None:
                body[name] = value
        try:
            response = await self._client._request_raw(  # type: ignore[no-untyped-call]
                "POST", "/api/chat", json=body
            )
            data = response.json()
        except ValueError:
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return from_wire(data)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client._client.aclose()
