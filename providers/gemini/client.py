"""Call Gemini's `generateContent` through the official SDK, google-genai, as transport."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from toolchart.providers.catalogs import (
    HostClient,
    OfferedModel,
    read_list,
    read_rows,
    read_token_count,
    read_vector,
    sign_by_headers,
)
from toolchart.providers.entries import (
    AdapterSettings,
    SdkSettings,
    find_api_key,
    read_adapter_settings,
    resolve_address,
)
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import SUPPORTED_OPTIONS, decode_reply, encode_request
from toolchart.providers.hosts import GEMINI_VERSION, VERTEX_VERSION
from toolchart.providers.shared.adapted_requests import adapt_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_rows import find_message_form
from toolchart.providers.shared.requests import (
    find_foreign_data,
    find_parallel_calls,
    find_unsupported_options,
)
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.connections import HttpHooks, build_client_options, get_silence_timeout_s
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.transport.typed_calls import (
    TypedCall,
    add_typed_hooks,
    build_fallback_warning,
    find_missing_name,
)
from toolchart.providers.wire_adapter import WireAdapter
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    from google.genai import Client


ThinkingLevel = Literal["minimal", "low", "medium", "high", "xhigh"]
"""How much the model thinks. Source: google-genai 3.4.0, `types.ThinkingLevel`."""


_VERTEX_COUNTED_KEYS = ("model", "contents", "systemInstruction", "tools", "generationConfig")
"""Sources: google-genai 3.4.0, `models.py`, `_CountTokensParameters_to_vertex`; cloud.google.com, Vertex AI
REST, `publishers.models.countTokens`."""


class ThinkingSettings(AdapterSettings):
    """Keys of the mapping form of `thinking`."""

    include_thoughts: bool | None = None
    """Whether the reply contains the thoughts."""
    thinking_budget: int | None = None
    """Tokens for thinking; 0 for none, -1 if the model decides."""
    thinking_level: ThinkingLevel | None = None
    """How much the model thinks, as a word."""

    def encode(self) -> dict[str, Any]:
        """These keys in the spelling of the REST interface."""
        level = self.thinking_level.upper() if self.thinking_level else None
        keys = {
            "includeThoughts": self.include_thoughts,
            "thinkingBudget": self.thinking_budget,
            "thinkingLevel": level,
        }
        return {key: value for key, value in keys.items() if value is not None}


class VertexSettings(AdapterSettings):
    """Keys of the mapping `vertex`."""

    project: str
    """Id of the Google Cloud project."""
    location: str = "global"
    """Region, such as `europe-west4`."""


class GeminiSettings(SdkSettings):
    """Keys that only a `gemini` entry has."""

    api_version: str | None = None
    """Version of the REST interface; default: that of the API, or of Vertex AI."""
    vertex: VertexSettings | None = None
    """Where on Vertex AI the model is served; the sign-in is that of Google's library, and no key is used."""
    thinking: ThinkingSettings | bool | int | ThinkingLevel | None = None
    """Whether and how much the model thinks: `true` returns thoughts, `false` or `0` disables thinking, a
    number is the budget in tokens (-1: the model decides), a word is the level; or a mapping of all three."""

    def build_thinking_config(self) -> dict[str, Any] | None:
        """The body's `thinkingConfig`; `thinkingBudget` is for Gemini 2.5, the levels are for 3."""
        match self.thinking:
            case None:
                return None
            case ThinkingSettings() as settings:
                return settings.encode()
            case True:
                return {"includeThoughts": True}
            case False | 0:
                return {"thinkingBudget": 0}
            case int(budget):
                return {"includeThoughts": True, "thinkingBudget": budget}
            case level:
                return {"includeThoughts": True, "thinkingLevel": level.upper()}


class GeminiProvider(WireAdapter):
    """Calls `generateContent` of one host.

    The SDK signs and sends the request. Its `generate_content` is not used: it makes the body anew from its
    own types, which lose what they do not know, and it has a tool loop, continuation and retries.
    """

    name = "gemini"
    has_counter = True
    accumulator = GeminiAccumulator

    def __init__(
        self,
        client: Client,
        settings: GeminiSettings | None = None,
        *,
        http_client: Any = None,
        host: str = "",
    ) -> None:
        # The client closes its connections when it is garbage-collected, so it is kept here.
        self._client = client
        self._http_client = http_client
        self._settings = settings or GeminiSettings()
        missing_name = _find_missing_name(client)
        self._is_typed = self._settings.sdk == "typed" or bool(missing_name)
        lacks_name = bool(missing_name) and self._settings.sdk != "typed"
        self._warnings = [build_fallback_warning("google-genai", missing_name)] if lacks_name else []
        self.host = host
        if not missing_name:
            self.host = urlsplit(client._api_client._http_options.base_url or "").netloc

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> GeminiProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        import httpx2
        from google.genai import Client, types

        settings = read_adapter_settings(GeminiSettings, config)
        vertex = settings.vertex
        if vertex is not None:
            hooks = {**(hooks or {}), "request": [*(hooks or {}).get("request", ()), _remember_token]}
        http_client = httpx2.AsyncClient(
            follow_redirects=True, **build_client_options(config, resolve, httpx2, hooks)
        )
        key = None if vertex is not None else find_api_key(config, resolve)
        place: dict[str, Any] = {"api_key": key}
        if vertex is not None:  # google.auth signs in, when the first request is sent
            place = {"vertexai": True, "project": resolve(vertex.project), "location": vertex.location}
        version = settings.api_version or (GEMINI_VERSION if vertex is None else VERTEX_VERSION)
        try:
            if key is None and vertex is None:  # the SDK itself would send the environment's key to any host
                raise ValueError
            client = Client(
                **place,
                http_options=types.HttpOptions(
                    base_url=resolve_address(config, resolve) if config.base_url or vertex is None else None,
                    api_version=version,
                    timeout=round(get_silence_timeout_s(config) * 1000),
                    retry_options=types.HttpRetryOptions(attempts=1),
                    # The client also keeps the SDK from aiohttp, which it prefers where that is installed.
                    httpx_async_client=http_client,
                ),
            )
        except ValueError:
            raise SpecError(
                "there is no API key for Gemini",
                path="llms.*.api_key",
                hint="export GEMINI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            ) from None
        if settings.sdk == "typed" or _find_missing_name(client):
            http_client.event_hooks = add_typed_hooks(http_client.event_hooks)
        host = "" if vertex is not None else urlsplit(resolve_address(config, resolve) or "").netloc
        return cls(client, settings, http_client=http_client, host=host)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `generateContent`, and beside it the `model`, which is sent in the path.

        A streamed call has the same body and another path.
        """
        adapted = adapt_request(request, wire="gemini", host=self.host)
        form = find_message_form("gemini", self.host, request.model)
        sent, changes = fit_messages(adapted.request, form)
        note_adaptations((*adapted.list_adaptations(request), *changes))
        body = encode_request(sent, self.get_origin(request))
        thinking = self._settings.build_thinking_config()
        if thinking is not None:
            config = body.get("generationConfig", {})
            config = {**config, "thinkingConfig": {**thinking, **config.get("thinkingConfig", {})}}
            body = {**body, "generationConfig": config}
        return body

    async def fetch_content(self, body: dict[str, Any]) -> bytes:
        """Send this body; the bytes of the answer."""
        if self._is_typed:
            method = partial(self._call_typed, self._client.aio.models.generate_content, body)
            return await TypedCall(_encode_sent(body)).fetch_content(method)
        return await self._post(body, "generateContent")

    async def _call_typed(self, method: Any, body: Mapping[str, Any], has_all: bool) -> Any:
        """Call a typed method of the SDK. It runs no tools and goes on with no answer by itself.

        Args:
            has_all: whether it gets contents, instruction, tools and settings, or what its types take in any
                case.
        """
        config: dict[str, Any] = {
            "automatic_function_calling": {"disable": True},
            "automatic_continuation": False,
        }
        if not has_all:
            return await method(model=body["model"], contents="-", config=config)
        names = ("systemInstruction", "tools", "toolConfig", "safetySettings", "cachedContent")
        config |= {**body.get("generationConfig", {}), **{name: body[name] for name in names if name in body}}
        return await method(model=body["model"], contents=body["contents"], config=config)

    async def _post(self, body: dict[str, Any], method: str) -> bytes:
        """The answer of one of the model's methods."""
        api = self._client._api_client
        http_request = _build_http_request(api, body, method)
        answer = await api._async_request(http_request=http_request, stream=False)
        return str(answer.response_stream[0]).encode()

    async def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer."""
        if self._is_typed:
            method = partial(self._call_typed, self._client.aio.models.generate_content_stream, body)
            async with aclosing(TypedCall(_encode_sent(body)).stream_bytes(method)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        api = self._client._api_client
        http_request = _build_http_request(api, body, "streamGenerateContent?alt=sse")
        answer: Any = (await api._async_request(http_request=http_request, stream=True)).response_stream
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        finally:
            await answer.aclose()

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_reply(answer)

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `countTokens`.

        Outside Vertex it takes the whole request as `generateContentRequest`, with its `model`. The SDK's own
        call sends only `contents` there, and refuses tools and instructions (3.4.0,
        `_CountTokensConfig_to_mldev`).
        Source: google.ai.generativelanguage.v1beta, `CountTokensRequest`; google-genai 3.4.0, `types.py`,
        `CountTokensResponse`.

        Raises:
            ProviderError: the host did not count.
        """
        if self._is_typed and _find_missing_name(self._client):
            message = "tokens cannot be counted: this version of google-genai lacks a name that it takes"
            raise ProviderError(kind="bad_request", message=message)
        api = self._client._api_client
        name = _build_model_path(api, body["model"])
        counted = {"model": body["model"], "generateContentRequest": {**body, "model": name}}
        if self._settings.vertex is not None:  # Vertex takes the contents themselves
            counted = {key: value for key, value in body.items() if key in _VERTEX_COUNTED_KEYS}
        with convert_exceptions():
            content = await self._post(counted, "countTokens")
        with convert_exceptions(ValueError):
            return read_token_count(json.loads(content), "totalTokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that Gemini could not follow."""
        foreign_data = find_foreign_data(
            request.messages, self.get_origin(request), "content", sends_media=True
        )
        unsupported_options = find_unsupported_options(request, SUPPORTED_OPTIONS, "Gemini")
        return [
            *self._warnings,
            *foreign_data,
            *unsupported_options,
            *find_parallel_calls(request, reply, "Gemini"),
        ]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aio.aclose()
        if self._http_client is not None:
            await self._http_client.aclose()


_PRIVATE_NAMES = (*("_api_client._http_options", "_api_client._build_request", "_api_client._async_request"),)
"""What this module uses of the SDK's client that is private; and `google.genai._transformers.t_model`."""


def _find_missing_name(client: Client) -> str:
    """A private name that the SDK lacks; empty if it has all."""
    missing_name = find_missing_name(client, *_PRIVATE_NAMES)
    try:
        from google.genai import _transformers
    except ImportError:
        return missing_name or "_transformers"
    return missing_name or find_missing_name(_transformers, "t_model")


async def _remember_token(request: Any) -> None:
    """A hook of the HTTP client: the token that Google's library put into a request is a secret.

    The library renews it by itself, so each request may have another.
    """
    remember_secret(request.headers.get("authorization", "").removeprefix("Bearer "))


def _build_model_path(api: Any, model: str) -> str:
    """The model as it stands in a path: `models/NAME`, on Vertex AI `publishers/google/models/NAME`."""
    from google.genai import _transformers

    return str(_transformers.t_model(api, model))


def _build_http_request(api: Any, body: dict[str, Any], method: str) -> Any:
    """The SDK's request: the model in its path, and the rest of the body as bytes, which it sends unchanged.

    Source: google-genai 3.4.0, `models.py`, `_generate_content`; `_api_client.py`, `_async_request_once`.
    """
    path = f"{_build_model_path(api, body['model'])}:{method}"
    http_request = api._build_request("post", path, {})
    http_request.data = _encode_sent(body)
    return http_request


def _encode_sent(body: Mapping[str, Any]) -> bytes:
    """The bytes of a body: all but its model, which stands in the path."""
    return encode_body({key: value for key, value in body.items() if key != "model"})


# -- models and embeddings -------------------------------------------------------------------------


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """Models that generate content. Source: the REST reference of `models.list`; it has nothing on tools.

    On Vertex AI another list is asked, which names what Google publishes.
    """
    if host.options.get("vertex"):
        yield from iterate_vertex_models(host)
        return
    version = host.options.get("api_version") or GEMINI_VERSION
    page = ""
    while True:
        data = host.fetch_json(f"/{version}/models?pageSize=1000{page}")
        for row in read_rows(data, "models"):
            if "generateContent" in (row.get("supportedGenerationMethods") or ["generateContent"]):
                yield OfferedModel(
                    name=str(row.get("name")).removeprefix("models/"),
                    thinking=row.get("thinking"),
                    context=row.get("inputTokenLimit"),
                )
        if not data.get("nextPageToken"):
            return
        page = f"&pageToken={data['nextPageToken']}"


def fetch_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Source: Gemini API reference, `models.batchEmbedContents`."""
    version = host.options.get("api_version") or GEMINI_VERSION
    model_path = f"models/{model.removeprefix('models/')}"
    requests = [{"model": model_path, "content": {"parts": [{"text": text}]}} for text in texts]
    answer = host.fetch_json(f"/{version}/{model_path}:batchEmbedContents", requests=requests)
    return [read_vector(row, "values") for row in read_list(answer, "embeddings")]


# -- Vertex AI, signed in by google-auth -----------------------------------------------------------


_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_PREFIX = "publishers/google/models"


def build_auth(config: LLMConfig, resolve: Callable[[str], str]) -> Callable[[Any], Any] | None:
    """The sign-in of an entry with `vertex`; None for one with a key."""
    return sign_by_headers(_find_headers) if config.extra_options().get("vertex") else None


def _find_headers() -> Mapping[str, str]:
    """A token of the application default credentials, and the project that pays for the request.

    Source: google-genai 3.4.0, `_api_client.py`, `load_auth`, `_request_once`.

    Raises:
        ProviderError: `auth`; nobody is signed in.
    """
    import google.auth
    from google.auth.transport.requests import Request as AuthRequest

    try:
        credentials: Any = google.auth.default(scopes=[_SCOPE])[0]
        if not credentials.valid:
            credentials.refresh(AuthRequest())
    except Exception as error:  # whatever a credential of the library raises
        message = f"Google gave no token: {describe_error(error)}"
        raise ProviderError(kind="auth", message=message) from error
    remember_secret(credentials.token)
    payer = getattr(credentials, "quota_project_id", None)
    return {
        "authorization": f"Bearer {credentials.token}",
        **({"x-goog-user-project": payer} if payer else {}),
    }


def iterate_vertex_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models that Google publishes, by the names that a call takes. The list does not say what they can.

    Source: google-genai 3.4.0, `models.py`, `list` with `query_base`; `_transformers.py`, `t_models_url`,
    `t_extract_models`.
    """
    vertex = host.options["vertex"]
    host.move_to(host.address if host.config.base_url else _build_address(vertex.get("location", "global")))
    version = host.options.get("api_version") or VERTEX_VERSION
    page = ""
    while True:
        data = host.fetch_json(f"/{version}/{_PREFIX}{page}")
        for row in read_rows(data, "publisherModels"):
            yield OfferedModel(name=str(row.get("name")).removeprefix(f"{_PREFIX}/"))
        if not data.get("nextPageToken"):
            return
        page = f"?pageToken={data['nextPageToken']}"


def _build_address(location: str) -> str:
    """The address of a location. Source: google-genai 3.4.0, `_api_client.py`.

    Raises:
        SpecError: the location is no name of one.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", location):
        raise SpecError(
            f"{location!r} is no location of Vertex AI",
            path="llms.*.vertex.location",
            hint="write `global`, or a region such as `europe-west4`",
        )
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"
