"""Gemini, through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolchart.providers.failures import from_exception, unreadable
from toolchart.providers.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.wire_gemini import from_wire, to_wire
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    from google.genai import Client

API_VERSION = "v1beta"
"""Set on purpose: since 3.0 the SDK's default is `v1`, which lacks the `-latest` aliases."""


class GeminiSettings(AdapterSettings):
    """Keys of a `gemini` entry beyond the common ones."""

    api_version: str = API_VERSION
    """Version of the REST interface."""
    thinking: dict[str, Any] | None = None
    """The SDK's `thinking_config`: `include_thoughts`, `thinking_budget`, `thinking_level`."""


class GeminiProvider:
    """`generateContent` of one host. The SDK runs nothing, continues nothing and retries nothing."""

    name = "gemini"

    def __init__(self, client: Client, settings: GeminiSettings | None = None) -> None:
        # The client closes its connections when it is collected, so it is kept here.
        self._client = client
        self._settings = settings or GeminiSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: Hooks | None = None
    ) -> GeminiProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: no key anywhere, or a setting that there is not.
        """
        from google import genai
        from google.genai import types

        settings = own_settings(GeminiSettings, config)
        try:
            client = genai.Client(
                api_key=resolve(config.api_key) if config.api_key else None,
                http_options=types.HttpOptions(
                    base_url=resolve(config.base_url) if config.base_url else None,
                    api_version=settings.api_version,
                    timeout=round(config.timeout_s * 1000),
                    # One attempt, said aloud: with aiohttp installed the SDK would add one itself.
                    retry_options=types.HttpRetryOptions(attempts=1),
                    async_client_args=_listening(hooks) if hooks else None,
                ),
            )
        except ValueError:
            raise SpecError(
                "there is no API key for Gemini", path="llms.*.api_key",
                hint="export GEMINI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            ) from None  # fmt: skip
        return cls(client, settings)

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        from google.genai import types

        body = to_wire(request)
        if self._settings.thinking is not None:
            body["config"]["thinking_config"] = self._settings.thinking
        try:
            config = types.GenerateContentConfig(
                **body["config"], automatic_continuation=False, should_return_http_response=True
            )
            answer = await self._client.aio.models.generate_content(
                model=body["model"],
                contents=[types.Content.model_validate(one) for one in body["contents"]],
                config=config,
            )
            # The body as it came: the SDK's own objects drop what they do not know.
            response = answer.sdk_http_response
            data = json.loads((response.body if response else None) or "")
        except (json.JSONDecodeError, TypeError):
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return from_wire(data)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()


def _listening(hooks: Hooks) -> dict[str, Any]:
    """A transport of our own keeps the SDK from aiohttp, which it prefers where that is installed."""
    import httpx2

    return {"event_hooks": hooks, "transport": httpx2.AsyncHTTPTransport()}
