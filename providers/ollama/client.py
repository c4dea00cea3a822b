"""Call Ollama's native chat API through the HTTP client of the official SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolchart.providers.catalogs import HostClient, OfferedModel, read_list, read_rows, read_vector
from toolchart.providers.entries import SdkSettings, find_api_key, read_adapter_settings, resolve_address
from toolchart.providers.ollama.stream import OllamaAccumulator
from toolchart.providers.ollama.wire import (
    build_provider_data,
    collect_warnings,
    decode_reply,
    encode_request,
)
from toolchart.providers.shared.host_rows import ThoughtForm, find_message_form, find_thought_form
from toolchart.providers.shared.sent_messages import fit_messages
from toolchart.providers.transport.connections import HttpHooks, build_client_options
from toolchart.providers.transport.raw_answers import note_adaptations
from toolchart.providers.transport.stream_frames import LineFrameReader
from toolchart.providers.transport.typed_calls import (
    TypedCall,
    add_typed_hooks,
    build_fallback_warning,
    find_missing_name,
)
from toolchart.providers.wire_adapter import HttpAdapter
from toolchart.specs.models import LLMConfig
from toolchart.states.messages import Reply, Request

if TYPE_CHECKING:
    from ollama import AsyncClient


class OllamaSettings(SdkSettings):
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


_PRIVATE_NAMES = ("_client",)
"""What the code below uses of the SDK's client that is private."""


class OllamaProvider(HttpAdapter):
    """Calls `/api/chat` of one server.

    The SDK finds the server, authenticates and keeps the connections. Its typed `chat()` is not used, since
    it drops call ids and most of a schema (measured at 0.6.3; a test watches for a change): with
    `sdk: typed` it is called, and a hook sends what it drops. Error statuses are read here, since the SDK
    drops the headers (`retry-after`).
    """

    name = "ollama"

    accumulator = OllamaAccumulator
    frame_reader = LineFrameReader

    def __init__(
        self, client: AsyncClient, settings: OllamaSettings | None = None, *, host: str = ""
    ) -> None:
        self._sdk_client = client  # it closes its connections when it is garbage-collected
        self._settings = settings or OllamaSettings()
        missing_name = find_missing_name(client, *_PRIVATE_NAMES)
        self._is_typed = self._settings.sdk == "typed" or bool(missing_name)
        lacks_name = bool(missing_name) and self._settings.sdk != "typed"
        self._warnings = [build_fallback_warning("ollama", missing_name)] if lacks_name else []
        if missing_name:
            self.host = host
        else:
            super().__init__(client._client)

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
        host = resolve_address(config, resolve)
        options = build_client_options(config, resolve, httpx, hooks)
        client = AsyncClient(host, headers=headers, **options)
        is_fast = settings.sdk == "fast" and not find_missing_name(client, *_PRIVATE_NAMES)
        # The SDK itself would send OLLAMA_API_KEY to any host.
        if key is None and is_fast:
            client._client.headers.pop("authorization", None)
        if not is_fast:
            own_hooks = [] if key else [_drop_key]
            options["event_hooks"]["request"] += own_hooks
            options["event_hooks"] = add_typed_hooks(options["event_hooks"])
            client = AsyncClient(host, headers=headers, **options)
        return cls(client, settings, host=urlsplit(host or "").netloc)

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

    async def _chat(self, body: Mapping[str, Any], has_all: bool) -> Any:
        """Call the SDK's `chat`.

        Args:
            has_all: whether it gets all keys that it knows, or what its types take in any case.
        """
        names = ("model", "messages", "tools", "stream", "think", "format", "options", "keep_alive")
        arguments = {name: body[name] for name in names if name in body}
        if not has_all:
            texts = [{"role": one["role"], "content": one["content"]} for one in body["messages"]]
            arguments = {"model": body["model"], "messages": texts, "stream": body["stream"]}
        return await self._sdk_client.chat(**arguments)

    async def fetch_content(self, body: dict[str, Any]) -> bytes:
        """Send this body; the bytes of the answer."""
        if not self._is_typed:
            return await super().fetch_content(body)
        return await TypedCall(self.encode_content(body)).fetch_content(partial(self._chat, body))

    async def stream_bytes(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """Send this body; the bytes of the streamed answer."""
        call = TypedCall(self.encode_content(body))
        typed = call.stream_bytes(partial(self._chat, body)) if self._is_typed else super().stream_bytes(body)
        async with aclosing(typed) as pieces:
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        """Close the connections."""
        close = getattr(self._sdk_client, "close", None)  # the SDK has it since 0.6.1
        if close is not None:
            await close()
        else:
            await super().aclose()

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
        warnings = collect_warnings(request, reply, self._settings.options, self.get_origin(request))
        return [*self._warnings, *warnings]


async def _drop_key(request: Any) -> None:
    """A hook of an HTTP client that has no key of its own."""
    request.headers.pop("authorization", None)


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
