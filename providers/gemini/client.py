"""Call Gemini's `generateContent` over plain HTTP (httpx2); its SDK has no public way to post a body."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from toolchart.providers.catalogs import (
    HostClient,
    OfferedModel,
    read_list,
    read_rows,
    read_token_count,
    read_vector,
    sign_by_headers,
)
from toolchart.providers.entries import AdapterSettings, find_api_key, read_adapter_settings, resolve_address
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import SUPPORTED_OPTIONS, decode_reply, encode_request
from toolchart.providers.hosts import GEMINI_VERSION, VERTEX_VERSION, find_host
from toolchart.providers.shared.adapted_requests import adapt_request
from toolchart.providers.shared.failures import convert_exceptions
from toolchart.providers.shared.host_rows import find_message_form
from toolchart.providers.shared.requests import (
    find_foreign_data,
    find_parallel_calls,
    find_unsupported_options,
)
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.connections import HttpHooks, create_client
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.wire_adapter import HttpAdapter, decode_json
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.messages import Reply, Request
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    import httpx2


ThinkingLevel = Literal["minimal", "low", "medium", "high", "xhigh"]
"""How much the model thinks. Source: google-genai 3.4.0, `types.ThinkingLevel`."""


_VERTEX_COUNTED_KEYS = ("contents", "systemInstruction", "tools", "generationConfig")
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


class GeminiSettings(AdapterSettings):
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


class GeminiProvider(HttpAdapter):
    """Calls `generateContent` of one host. It never retries: the chart decides about retries.

    Args:
        prefix: what stands before the model in a path.
    """

    name = "gemini"
    has_counter = True
    accumulator = GeminiAccumulator

    def __init__(
        self, client: httpx2.AsyncClient, settings: GeminiSettings | None = None, prefix: str = ""
    ) -> None:
        super().__init__(client)
        self._settings = settings or GeminiSettings()
        self._prefix = prefix

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> GeminiProvider:
        """The provider of an `llms` entry.

        Raises:
            SpecError: there is no key, or the entry has an unknown key or a wrong value.
        """
        settings = read_adapter_settings(GeminiSettings, config)
        vertex, address = settings.vertex, resolve_address(config, resolve) or ""
        key = None if vertex is not None else find_api_key(config, resolve)
        if vertex is not None and not config.base_url:
            address = _build_address(vertex.location)
        if vertex is None and not key:
            raise SpecError(
                "there is no API key for Gemini",
                path="llms.*.api_key",
                hint="export GEMINI_API_KEY=..., or give `api_key: ${VARIABLE}` in the llms entry",
            )
        headers = find_host(config.provider).build_headers(key)
        client = create_client(
            config, resolve, hooks, address=address, headers=headers, follows_redirects=True
        )
        if vertex is None:
            return cls(client, settings, f"/{settings.api_version or GEMINI_VERSION}")
        place = f"projects/{resolve(vertex.project)}/locations/{vertex.location}"
        provider = cls(client, settings, f"/{settings.api_version or VERTEX_VERSION}/{place}")
        provider.find_headers = GoogleSignIn().find_headers_in_thread
        return provider

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

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call; the model stands in it. Raises ProviderError."""
        return self._build_path(
            body["model"], "streamGenerateContent?alt=sse" if stream else "generateContent"
        )

    def _build_path(self, model: str, method: str) -> str:
        """The path of a method of a model.

        Raises:
            ProviderError: the model's name leads to another path.
        """
        if ".." in model:
            raise ProviderError(kind="bad_request", message=f"{model!r} is no name of a model")
        return f"{self._prefix}/{quote(self._build_model_name(model), safe='/:@')}:{method}"

    def _build_model_name(self, model: str) -> str:
        """The model with the collection that it stands in.

        Source: google-genai 3.6.1, `_transformers.py`, `t_model`.
        """
        if self._settings.vertex is None:
            return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
        if model.startswith(("models/", "publishers/")):
            return model
        publisher, _, name = model.rpartition("/")
        return f"publishers/{publisher or 'google'}/models/{name}"

    def encode_content(self, body: dict[str, Any]) -> bytes:
        """The bytes that are sent for a body: all but its model."""
        return encode_body({key: value for key, value in body.items() if key != "model"})

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_reply(answer)

    async def count_body(self, body: dict[str, Any]) -> int:
        """The tokens of a body as a prompt, by `countTokens`.

        Outside Vertex it takes the whole request as `generateContentRequest`, with its `model`.
        Source: google.ai.generativelanguage.v1beta, `CountTokensRequest`; google-genai 3.4.0, `types.py`,
        `CountTokensResponse`.

        Raises:
            ProviderError: the host did not count.
        """
        model = body["model"]
        counted: dict[str, Any] = {"generateContentRequest": {**body, "model": self._build_model_name(model)}}
        if self._settings.vertex is not None:  # Vertex takes the contents themselves
            counted = {key: value for key, value in body.items() if key in _VERTEX_COUNTED_KEYS}
        with convert_exceptions(ValueError):
            response = await self.post(self._build_path(model, "countTokens"), encode_body(counted))
            return read_token_count(decode_json(response.content), "totalTokens")

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that Gemini could not follow."""
        foreign_data = find_foreign_data(
            request.messages, self.get_origin(request), "content", sends_media=True
        )
        unsupported_options = find_unsupported_options(request, SUPPORTED_OPTIONS, "Gemini")
        return [*foreign_data, *unsupported_options, *find_parallel_calls(request, reply, "Gemini")]


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
    return sign_by_headers(GoogleSignIn().find_headers) if config.extra_options().get("vertex") else None


class GoogleSignIn:
    """Signs requests by the application default credentials of Google's library.

    Source: google-genai 3.4.0, `_api_client.py`, `load_auth`, `_request_once`.
    """

    def __init__(self) -> None:
        self._credentials: Any = None

    def find_headers(self) -> Mapping[str, str]:
        """A token that is valid now, and the project that pays for the request.

        Raises:
            ProviderError: `auth`; nobody is signed in.
        """
        import google.auth
        from google.auth.transport.requests import Request as AuthRequest

        try:
            if self._credentials is None:
                self._credentials = google.auth.default(scopes=[_SCOPE])[0]
            credentials = self._credentials
            if not credentials.valid:
                credentials.refresh(AuthRequest())
        except Exception as error:  # whatever a credential of the library raises
            message = f"Google gave no token: {describe_error(error)}"
            raise ProviderError(kind="auth", message=message) from error
        # The library renews it by itself, so each request may have another.
        remember_secret(credentials.token)
        payer = getattr(credentials, "quota_project_id", None)
        return {
            "authorization": f"Bearer {credentials.token}",
            **({"x-goog-user-project": payer} if payer else {}),
        }

    async def find_headers_in_thread(self) -> Mapping[str, str]:
        """The headers, found beside the event loop where that may ask a server."""
        is_ready = self._credentials is not None and self._credentials.valid
        return self.find_headers() if is_ready else await asyncio.to_thread(self.find_headers)


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
