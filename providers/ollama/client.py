"""Call Ollama's native chat API over plain HTTP (httpx2); its SDK has no public way to post a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolchart.providers.catalogs import HostClient, OfferedModel, read_list, read_rows, read_vector
from toolchart.providers.entries import AdapterSettings, find_api_key, read_adapter_settings, resolve_address
from toolchart.providers.hosts import find_host
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.ollama.wire import (
    build_provider_data,
    collect_warnings,
    decode_reply,
    encode_request,
)
from toolchart.providers.shared.host_rows import ThoughtForm, find_message_form, find_thought_form
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.connections import HttpHooks, create_client
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.transport.stream_frames import LineFrameReader
from toolchart.providers.wire_adapter import HttpAdapter
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    import httpx2


class OllamaSettings(AdapterSettings):
    """Keys that only an `ollama` entry has."""

    options: dict[str, Any] | None = None
    """The server's model options: `num_ctx`, `top_k`, `repeat_penalty`, ..."""
    think: bool | Literal["low", "medium", "high"] | None = None
    """Whether and how much the model thinks."""
    thoughts_in_text: ThoughtForm | None = None
    """Whether the text of a reply may begin with thoughts between `<think>` and `</think>`, which are no part
    of the answer: `never`, `opened` (with both markers) or `unopened` (the opening one may be missing, so a
    stream waits for the closing one). By default the model's name decides."""
    keep_alive: str | float | None = None
    """How long the model stays loaded: seconds, or a text such as `5m`."""


class OllamaProvider(HttpAdapter):
    """Calls `/api/chat` of one server. It never retries: the chart decides about retries."""

    name = "ollama"

    accumulator = OllamaAccumulator
    frame_reader = LineFrameReader

    def __init__(self, client: httpx2.AsyncClient, settings: OllamaSettings | None = None) -> None:
        super().__init__(client)
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
        settings = read_adapter_settings(OllamaSettings, config)
        client = create_client(
            config,
            resolve,
            hooks,
            address=resolve_address(config, resolve) or "",
            headers=find_host(config.provider).build_headers(find_api_key(config, resolve)),
            follows_redirects=True,
        )
        return cls(client, settings)

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The body of `POST /api/chat`."""
        sent, changes = fit_messages(request, find_message_form("ollama", self.host, request.model))
        note_adaptations(changes)
        body = encode_request(sent, self._settings.options, stream=stream, origin=self.get_origin(request))
        for name in ("think", "keep_alive"):
            value = getattr(self._settings, name)
            if value is not None:
                body.setdefault(name, value)
        return body

    def get_path(self, body: dict[str, Any], *, stream: bool) -> str:
        """The path of a call, whole or streamed."""
        return "/api/chat"

    def decode_answer(self, answer: Any) -> Reply:
        """The reply of an answer. Raises ProviderError."""
        return decode_reply(answer)

    def find_thought_form(self, request: Request) -> ThoughtForm:
        """By the entry and the model; `opened` while the model is asked not to think."""
        is_off = self._settings.think is False or request.options.get("reasoning_effort") == "none"
        return self._settings.thoughts_in_text or ("opened" if is_off else find_thought_form(request.model))

    def keep_thoughts(self, reply: Reply, text: str) -> Reply:
        """They go back as the thoughts that the server sends apart."""
        return replace(reply, provider_data=build_provider_data(reply.reasoning, reply.tool_calls))

    def list_warnings(self, request: Request, reply: Reply) -> list[str]:
        """A warning for each part of the request that the server could not follow."""
        return collect_warnings(request, reply, self._settings.options, self.get_origin(request))


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
