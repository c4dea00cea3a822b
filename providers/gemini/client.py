"""Call Gemini's `generateContent` through the official SDK, google-genai, as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from toolchart.providers.gemini.host import API_VERSION
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import NAME, decode_reply, encode_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.settings import AdapterSettings, HttpHooks, read_adapter_settings
from toolchart.providers.shared.stream_frames import iterate_event_data
from toolchart.providers.shared.warnings import add_warnings, find_foreign_data, find_parallel_calls
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.messages import Delta, Reply, Request

if TYPE_CHECKING:
    from google.genai import Client

ThinkingLevel = Literal["minimal", "low", "medium", "high", "xhigh"]
"""How much the model thinks. Source: google-genai 3.4.0, `types.ThinkingLevel`."""


class ThinkingSettings(AdapterSettings):
    """Keys of the mapping form of `thinking`."""

    include_thoughts: bool | None = None
    """Whether the reply contains the thoughts."""
    thinking_budget: int | None = None
    """Tokens for thinking; 0 for none, -1 if the model decides."""
    thinking_level: ThinkingLevel | None = None
    """How much the model thinks, as a word."""


class GeminiSettings(AdapterSettings):
    """Keys that only a `gemini` entry has."""

    api_version: str = API_VERSION
    """Version of the REST interface."""
    thinking: ThinkingSettings | bool | int | ThinkingLevel | None = None
    """Whether and how much the model thinks: `true` returns thoughts, `false` or `0` disables thinking, a
    number is the budget in tokens (-1: the model decides), a word is the level; or a mapping of all three."""

    def build_thinking_config(self) -> dict[str, Any] | None:
        """The SDK's `thinking_config`; `thinking_budget` is for Gemini 2.5, the levels are for 3."""
        match self.thinking:
            case None:
                return None
            case ThinkingSettings() as settings:
                return settings.model_dump(exclude_none=True)
            case True:
                return {"include_thoughts": True}
            case False | 0:
                return {"thinking_budget": 0}
            case int(budget):
                return {"include_thoughts": True, "thinking_budget": budget}
            case level:
                return {"include_thoughts": True, "thinking_level": level}


class GeminiProvider:
    """Calls `generateContent` of one host.

    The SDK's own tool loop, continuation and retries are all switched off.
    """

    name = "gemini"

    def __init__(self, client: Client, settings: GeminiSettings | None = None) -> None:
        # The client closes its connections when it is garbage-collected, so it is kept here.
        self._client = client
        self._settings = settings or GeminiSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> GeminiProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        from google import genai
        from google.genai import types

        settings = read_adapter_settings(GeminiSettings, config)
        try:
            client = genai.Client(
                api_key=resolve(config.api_key) if config.api_key else None,
                http_options=types.HttpOptions(
                    base_url=resolve(config.base_url) if config.base_url else None,
                    api_version=settings.api_version,
                    timeout=round(config.timeout_s * 1000),
                    # Explicitly one attempt: with aiohttp installed the SDK would add a second one.
                    retry_options=types.HttpRetryOptions(attempts=1),
                    async_client_args=_build_client_args(hooks) if hooks else None,
                ),
            )
        except ValueError:
            raise SpecError(
                "there is no API key for Gemini",
                path="llms.*.api_key",
                hint="export GEMINI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            ) from None
        return cls(client, settings)

    async def complete(self, request: Request) -> Reply:
        """The whole reply to a request.

        Raises:
            ProviderError: the call failed.
        """
        body = self._build_body(request)
        # Other ValueErrors are the SDK's and not about the answer's JSON.
        with convert_exceptions(json.JSONDecodeError, TypeError):
            answer = await self._client.aio.models.generate_content(
                model=body["model"],
                contents=body["contents"],
                config=body["config"].model_copy(update={"should_return_http_response": True}),
            )
            # The raw body: the SDK's own objects drop fields that they do not know.
            response = answer.sdk_http_response
            data = json.loads((response.body if response else None) or "")
        return _add_request_warnings(request, decode_reply(data))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        accumulator = GeminiAccumulator()
        with convert_exceptions():
            async with aclosing(self._iterate_chunks(request)) as chunks:
                async for chunk in chunks:
                    for delta in accumulator.add_frame(chunk):
                        yield delta
        yield _add_request_warnings(request, accumulator.build_reply())

    async def _iterate_chunks(self, request: Request) -> AsyncGenerator[Any, None]:
        """The raw chunks of a stream.

        The SDK sends the request. Its response objects are bypassed, because they drop unknown fields.
        """
        api = self._client._api_client
        path, data = _build_stream_request(api, self._build_body(request))
        http_request = api._build_request("post", path, data)
        answer: Any = (await api._async_request(http_request=http_request, stream=True)).response_stream
        try:
            # aiohttp is the SDK's transport where it is installed, httpx2 otherwise.
            is_httpx = hasattr(answer, "aiter_bytes")
            pieces = answer.aiter_bytes() if is_httpx else answer.content.iter_any()
            async with aclosing(iterate_event_data(pieces)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if hasattr(answer, "aclose"):
                await answer.aclose()
            else:
                answer.close()

    def _build_body(self, request: Request) -> dict[str, Any]:
        """The arguments of the SDK's `generate_content`."""
        from google.genai import types

        body = encode_request(request)
        thinking = self._settings.build_thinking_config()
        if thinking is not None:
            body["config"]["thinking_config"] = thinking
        config = types.GenerateContentConfig(**body["config"], automatic_continuation=False)
        contents = [types.Content.model_validate(content) for content in body["contents"]]
        return {"model": body["model"], "contents": contents, "config": config}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()


def _build_client_args(hooks: HttpHooks) -> dict[str, Any]:
    """Arguments of the SDK's HTTP client.

    The explicit transport keeps the SDK from using aiohttp, which it prefers where that is installed.
    """
    import httpx2

    return {"event_hooks": hooks, "transport": httpx2.AsyncHTTPTransport()}


def _add_request_warnings(request: Request, reply: Reply) -> Reply:
    """The reply with a warning for each part of the request that Gemini could not follow."""
    warnings = [*find_foreign_data(request.messages, NAME), *find_parallel_calls(request, reply, "Gemini")]
    return add_warnings(reply, warnings)


def _build_stream_request(api: Any, body: dict[str, Any]) -> tuple[str, Any]:
    """Path and body of a streaming request, as the SDK's own method builds them.

    Source: google-genai 3.4.0, `models.py`, `_generate_content_stream`.
    """
    from google.genai import _common, models, types

    parameters = types._GenerateContentParameters(**body)
    wire = models._GenerateContentParameters_to_mldev(api, parameters, None, parameters)
    path = "{model}:streamGenerateContent?alt=sse".format_map(wire["_url"])
    wire.pop("config", None)
    return path, _common.encode_unserializable_types(_common.convert_to_dict(wire))
