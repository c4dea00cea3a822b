"""Gemini, through the official SDK as transport."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal

from toolchart.providers.gemini.stream import GeminiStream
from toolchart.providers.gemini.wire import NAME, from_wire, to_wire
from toolchart.providers.shared.failures import from_exception, unreadable
from toolchart.providers.shared.settings import AdapterSettings, Hooks, own_settings
from toolchart.providers.shared.stream_values import sse_values
from toolchart.providers.shared.warnings import foreign_data, side_by_side, with_warnings
from toolchart.specs.models import LLMConfig
from toolchart.states.deltas import Delta
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    from google.genai import Client

API_VERSION = "v1beta"
"""Set on purpose: since 3.0 the SDK's default is `v1`, which lacks the `-latest` aliases."""


Level = Literal["minimal", "low", "medium", "high", "xhigh"]
"""How much to think. Source: google-genai 3.4.0, `types.ThinkingLevel`."""


class Thinking(AdapterSettings):
    """All that can be said of thinking."""

    include_thoughts: bool | None = None
    """Whether the reply shows the thoughts."""
    thinking_budget: int | None = None
    """Tokens; 0 for none, -1 where the model decides."""
    thinking_level: Level | None = None
    """How much, in words."""


class GeminiSettings(AdapterSettings):
    """Keys of a `gemini` entry beyond the common ones."""

    api_version: str = API_VERSION
    """Version of the REST interface."""
    thinking: Thinking | bool | int | Level | None = None
    """Whether and how much the model thinks: `true` shows thoughts, `false` or `0` thinks none, a number
    is the budget in tokens (-1: the model decides), a word the level; or all three as a mapping."""

    def thinking_config(self) -> dict[str, Any] | None:
        """The SDK's `thinking_config`; `thinking_budget` is for Gemini 2.5, the levels for 3."""
        match self.thinking:
            case None:
                return None
            case Thinking() as given:
                return given.model_dump(exclude_none=True)
            case True:
                return {"include_thoughts": True}
            case False | 0:
                return {"thinking_budget": 0}
            case int(budget):
                return {"include_thoughts": True, "thinking_budget": budget}
            case level:
                return {"include_thoughts": True, "thinking_level": level}


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
                "there is no API key for Gemini",
                path="llms.*.api_key",
                hint="export GEMINI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            ) from None
        return cls(client, settings)

    async def complete(self, request: Request) -> Reply:
        """One whole reply."""
        body = self._body(request)
        try:
            answer = await self._client.aio.models.generate_content(
                model=body["model"],
                contents=body["contents"],
                config=body["config"].model_copy(update={"should_return_http_response": True}),
            )
            # The body as it came: the SDK's own objects drop what they do not know.
            response = answer.sdk_http_response
            data = json.loads((response.body if response else None) or "")
        except (json.JSONDecodeError, TypeError):
            raise unreadable("the answer is not JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        return _told(request, from_wire(data))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """The reply as it grows, and last the whole of it.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        growing = GeminiStream()
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    for delta in growing.feed(event):
                        yield delta
        except ProviderError:
            raise
        except Exception as error:
            raise from_exception(error) from error
        yield _told(request, growing.reply())

    async def _events(self, request: Request) -> AsyncGenerator[Any, None]:
        """The stream's chunks as they came; the SDK sends, and its objects, which drop what they do
        not know, are passed by."""
        api = self._client._api_client
        path, data = _raw_request(api, self._body(request))
        sent = api._build_request("post", path, data)
        answer: Any = (await api._async_request(http_request=sent, stream=True)).response_stream
        try:
            # aiohttp is the SDK's transport where it is installed, httpx2 otherwise.
            httpx = hasattr(answer, "aiter_bytes")
            pieces = answer.aiter_bytes() if httpx else answer.content.iter_any()
            async with aclosing(sse_values(pieces)) as values:
                async for value in values:
                    yield value
        finally:
            if hasattr(answer, "aclose"):
                await answer.aclose()
            else:
                answer.close()

    def _body(self, request: Request) -> dict[str, Any]:
        from google.genai import types

        body = to_wire(request)
        thinking = self._settings.thinking_config()
        if thinking is not None:
            body["config"]["thinking_config"] = thinking
        config = types.GenerateContentConfig(**body["config"], automatic_continuation=False)
        contents = [types.Content.model_validate(one) for one in body["contents"]]
        return {"model": body["model"], "contents": contents, "config": config}

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()


def _listening(hooks: Hooks) -> dict[str, Any]:
    """A transport of our own keeps the SDK from aiohttp, which it prefers where that is installed."""
    import httpx2

    return {"event_hooks": hooks, "transport": httpx2.AsyncHTTPTransport()}


def _told(request: Request, reply: Reply) -> Reply:
    found = [*foreign_data(request.messages, NAME), *side_by_side(request, reply, "Gemini")]
    return with_warnings(reply, found)


def _raw_request(api: Any, body: dict[str, Any]) -> tuple[str, Any]:
    """Path and body as the SDK's own streaming method makes them.

    Source: google-genai 3.4.0, `models.py`, `_generate_content_stream`.
    """
    from google.genai import _common, models, types

    asked = types._GenerateContentParameters(**body)
    made = models._GenerateContentParameters_to_mldev(api, asked, None, asked)
    path = "{model}:streamGenerateContent?alt=sse".format_map(made["_url"])
    made.pop("config", None)
    return path, _common.encode_unserializable_types(_common.convert_to_dict(made))
