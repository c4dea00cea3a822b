"""Call Ollama's native chat API through the HTTP client of the official SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from toolchart.providers.adapter import HostAdapter
from toolchart.providers.catalogs import HostClient, OfferedModel, read_list, read_rows, read_vector
from toolchart.providers.entries import AdapterSettings, find_api_key, read_adapter_settings
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.ollama.wire import collect_warnings, decode_reply, encode_request
from toolchart.providers.shared.failures import convert_exceptions, raise_for_status
from toolchart.providers.transport.connections import HttpHooks, build_client_options
from toolchart.providers.transport.encoded_bodies import encode_body
from toolchart.providers.transport.stream_frames import iterate_json_lines
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Delta, Reply, Request

if TYPE_CHECKING:
    from ollama import AsyncClient


_JSON_HEADERS = {"content-type": "application/json"}


class OllamaSettings(AdapterSettings):
    """Keys that only an `ollama` entry has."""

    options: dict[str, Any] | None = None
    """The server's model options: `num_ctx`, `top_k`, `repeat_penalty`, ..."""
    think: bool | Literal["low", "medium", "high"] | None = None
    """Whether and how much the model thinks."""
    keep_alive: str | float | None = None
    """How long the model stays loaded: seconds, or a text such as `5m`."""


class OllamaProvider(HostAdapter):
    """Calls `/api/chat` of one server.

    The SDK finds the server, authenticates and keeps the connections. Its typed `chat()` is not used, since
    it drops call ids and most of a schema (measured at 0.6.3; a test watches for a change). Error statuses
    are read here, since the SDK drops the headers (`retry-after`).
    """

    name = "ollama"

    def __init__(self, client: AsyncClient, settings: OllamaSettings | None = None) -> None:
        self._client = client
        self.host = client._client.base_url.netloc.decode()
        self._settings = settings or OllamaSettings()

    @classmethod
    def from_config(
        cls, config: LLMConfig, resolve: Callable[[str], str], hooks: HttpHooks | None = None
    ) -> OllamaProvider:
        """The provider of an `llms` entry.

        The address is the entry's `base_url`, else `OLLAMA_HOST`, else this machine.

        Raises:
            SpecError: the entry has an unknown key or a wrong value.
        """
        import httpx
        from ollama import AsyncClient

        settings = read_adapter_settings(OllamaSettings, config)
        key = find_api_key(config, resolve)
        headers = {"authorization": f"Bearer {key}"} if key else None
        host = resolve(config.base_url) if config.base_url else None
        options = build_client_options(config, resolve, httpx, hooks)
        client = AsyncClient(host, headers=headers, **options)
        if key is None:  # the SDK itself would send OLLAMA_API_KEY to any host
            client._client.headers.pop("authorization", None)
        return cls(client, settings)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /api/chat`."""
        body = encode_request(request, self._settings.options, stream=stream, origin=self.get_origin(request))
        for name in ("think", "keep_alive"):
            value = getattr(self._settings, name)
            if value is not None:
                body.setdefault(name, value)
        return body

    async def send_body(self, body: dict[str, Any]) -> Reply:
        """The whole reply to a body.

        Raises:
            ProviderError: the call failed.
        """
        with convert_exceptions(ValueError):
            response = await self._client._client.post(
                "/api/chat", content=encode_body(body), headers=_JSON_HEADERS
            )
            raise_for_status(response)
            data = response.json()
        return decode_reply(data)

    async def stream_body(self, body: dict[str, Any]) -> AsyncGenerator[Delta | Reply, None]:
        """The deltas of the reply as they arrive, and last the whole reply.

        Raises:
            ProviderError: the call failed, or the stream was cut.
        """
        accumulator, http = OllamaAccumulator(), self._client._client
        with convert_exceptions():
            data = encode_body(body)
            async with http.stream("POST", "/api/chat", content=data, headers=_JSON_HEADERS) as response:
                if response.is_error:
                    await response.aread()
                raise_for_status(response)
                async with aclosing(iterate_json_lines(response.aiter_bytes())) as frames:
                    async for frame in frames:
                        for delta in accumulator.add_frame(frame):
                            yield delta
        yield accumulator.build_reply()

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the server could not follow."""
        return collect_warnings(request, reply, self._settings.options, self.get_origin(request))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client._client.aclose()


# -- address, models and embeddings ----------------------------------------------------------------


_OLLAMA_PORT = 11434


def complete_address(host: str) -> str:
    """The address with scheme and port; Ollama accepts a bare host name.

    Source: ollama 0.6.3, `_parse_host`.
    """
    if "://" in host:
        return host
    parts = urlsplit(f"http://{host}")
    return parts.geturl() if parts.port else f"http://{parts.hostname}:{_OLLAMA_PORT}{parts.path}"


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """Source: Ollama's `docs/api.md`: `/api/tags` lists the models, `/api/show` has `capabilities`."""
    for row in read_rows(host.fetch_json("/api/tags"), "models"):
        name = str(row.get("model") or row.get("name"))
        details = host.fetch_json("/api/show", model=name)
        capabilities = details.get("capabilities") if isinstance(details, Mapping) else None
        fields = {}
        if capabilities:  # older servers send none
            fields = {key: key in capabilities for key in ("tools", "vision", "thinking")}
        yield OfferedModel(name=name, context=_read_ollama_window(details), **fields)


def _read_ollama_window(details: Any) -> int | None:
    """The context window in tokens; its key starts with the name of the architecture."""
    info = details.get("model_info") if isinstance(details, Mapping) else None
    windows = [v for k, v in (info or {}).items() if str(k).endswith(".context_length")]
    return windows[0] if windows and isinstance(windows[0], int) else None


def fetch_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Source: Ollama's `docs/api.md`, `POST /api/embed`."""
    answer = host.fetch_json("/api/embed", model=model, input=list(texts))
    rows = read_list(answer, "embeddings")
    return [read_vector({"embedding": row}, "embedding") for row in rows]
