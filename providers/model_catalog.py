"""List the models that a host offers, with what each can do (tools, vision, thinking, context window).

The lists are fetched over plain HTTP, because the SDKs drop fields that they do not know: a compatible host
describes its models in more detail than OpenAI does. Ollama needs one request per model for its capabilities.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.providers.shared.addresses import check_offline_mode, resolve_address
from toolchart.providers.shared.failures import (
    build_bad_response_error,
    classify_exception,
    classify_http_error,
)
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    import httpx

API_KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "gemini": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY",),
}
"""Environment variables in which the SDKs look for a key; the first one that is set counts.
Source: openai 3.52.0, ollama 0.6.3, google-genai 3.4.0."""

_MAX_TIMEOUT_S = 20.0
"""Longest wait in seconds for one answer: a list takes less time than a reply may."""


class OfferedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a host. None means that the host does not say."""

    name: str
    tools: bool | None = None
    """Whether it calls tools natively."""
    vision: bool | None = None
    """Whether it accepts images."""
    thinking: bool | None = None
    """Whether it reasons before it answers."""
    context: int | None = None
    """Size of its context window in tokens."""


def list_models(config: LLMConfig, resolve: Callable[[str], str]) -> list[OfferedModel]:
    """The models of an entry's host, sorted by name.

    Raises:
        SpecError: the provider has no models to list, a variable is not set, or the host is remote in offline
            mode.
        ProviderError: the host could not be reached, refused the request, or sent no list.
    """
    import httpx

    iterate_models = _MODEL_READERS.get(config.provider)
    if iterate_models is None:
        raise SpecError(
            f"provider {config.provider!r} has no models to list",
            path="llms.*.provider",
            hint=suggest_name(config.provider, _MODEL_READERS),
        )
    check_offline_mode(config, resolve, needs_network=True)
    host = HostClient(config, resolve)
    timeout_s = min(config.timeout_s, _MAX_TIMEOUT_S)
    with httpx.Client(timeout=timeout_s, headers=host.headers) as client:
        host.client = client
        return sorted(iterate_models(host), key=lambda model: model.name)


def find_api_key(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The key that an entry's adapter sends: the entry's own, else the environment's.

    Raises:
        SpecError: a variable in `api_key` is not set.
    """
    if config.api_key:
        return resolve(config.api_key)
    names = API_KEY_VARIABLES.get(config.provider, ())
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class HostClient:
    """Fetches JSON from the host of an `llms` entry, with the entry's key and headers.

    The caller sets `client` before the first request, and closes it.
    """

    client: httpx.Client

    def __init__(self, config: LLMConfig, resolve: Callable[[str], str]) -> None:
        self.address = resolve_address(config, resolve) or ""
        self.version = str(config.extra_options().get("api_version") or "v1beta")
        key = find_api_key(config, resolve)
        headers = config.extra_options().get("headers")
        self.headers = {str(k): resolve(str(v)) for k, v in headers.items()} if headers else {}
        if key:
            header = "x-goog-api-key" if config.provider == "gemini" else "authorization"
            self.headers[header] = key if config.provider == "gemini" else f"Bearer {key}"

    def fetch_json(self, path: str, **body: Any) -> Any:
        """The JSON answer of a path. Sends POST if there is a body, else GET.

        Raises:
            ProviderError: the request failed, or the answer is not JSON.
        """
        try:
            url = self.address + path
            answer = self.client.post(url, json=body) if body else self.client.get(url)
            data = answer.json() if answer.status_code < 400 else _decode_error_body(answer)
        except ValueError:
            raise build_bad_response_error(f"the answer to {path} is not JSON") from None
        except Exception as error:
            raise classify_exception(error) from error
        if answer.status_code >= 400:
            raise classify_http_error(answer.status_code, data, answer.headers)
        return data


def _decode_error_body(answer: httpx.Response) -> Any:
    """The JSON of an error answer, or its text."""
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _read_model_rows(data: Any, key: str) -> list[Mapping[str, Any]]:
    rows = data.get(key) if isinstance(data, Mapping) else data
    if not isinstance(rows, list):
        raise build_bad_response_error(f"the host's list of models has no {key!r}")
    return [row for row in rows if isinstance(row, Mapping)]


# -- OpenAI and compatible hosts -----------------------------------------------------------------


def _iterate_openai_models(host: HostClient) -> Iterator[OfferedModel]:
    for row in _read_model_rows(host.fetch_json("/models"), "data"):
        yield OfferedModel(name=str(row.get("id")), **_read_capabilities(row))


def _read_capabilities(row: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `OfferedModel` from the keys that compatible hosts add to a model.

    Source: OpenRouter `supported_parameters`, `architecture` and `context_length`; Mistral `capabilities`
    and `max_context_length`; vLLM `max_model_len`; Groq `context_window` (their API references).
    """
    fields: dict[str, Any] = {}
    parameters = row.get("supported_parameters")
    if isinstance(parameters, list):
        fields |= {"tools": "tools" in parameters, "thinking": "reasoning" in parameters}
    capabilities = row.get("capabilities")
    if isinstance(capabilities, Mapping):
        fields["tools"] = capabilities.get("function_calling")
        fields["vision"] = capabilities.get("vision")
    architecture = row.get("architecture")
    modalities = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    if isinstance(modalities, list):
        fields["vision"] = "image" in modalities
    window_keys = ("context_length", "max_context_length", "max_model_len", "context_window")
    windows = (row[key] for key in window_keys if isinstance(row.get(key), int))
    fields["context"] = next(windows, None)
    return fields


# -- Ollama --------------------------------------------------------------------------------------


def _iterate_ollama_models(host: HostClient) -> Iterator[OfferedModel]:
    """Source: Ollama's `docs/api.md`: `/api/tags` lists the models, `/api/show` has `capabilities`."""
    for row in _read_model_rows(host.fetch_json("/api/tags"), "models"):
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


# -- Gemini --------------------------------------------------------------------------------------


def _iterate_gemini_models(host: HostClient) -> Iterator[OfferedModel]:
    """Models that generate content. Source: the REST reference of `models.list`; it has nothing on tools."""
    page = ""
    while True:
        data = host.fetch_json(f"/{host.version}/models?pageSize=1000{page}")
        for row in _read_model_rows(data, "models"):
            if "generateContent" in (row.get("supportedGenerationMethods") or ["generateContent"]):
                yield OfferedModel(
                    name=str(row.get("name")).removeprefix("models/"),
                    thinking=row.get("thinking"),
                    context=row.get("inputTokenLimit"),
                )
        if not data.get("nextPageToken"):
            return
        page = f"&pageToken={data['nextPageToken']}"


_MODEL_READERS: dict[str, Callable[[HostClient], Iterator[OfferedModel]]] = {
    "openai": _iterate_openai_models,
    "ollama": _iterate_ollama_models,
    "gemini": _iterate_gemini_models,
}
"""The function that lists a host's models, by provider."""


def find_model(name: str, models: list[OfferedModel]) -> OfferedModel | None:
    """The model of that name; Ollama's `:latest` and Gemini's `models/` may be left out of the name."""
    short_name = name.removeprefix("models/")
    models_by_name = {model.name: model for model in models}
    return models_by_name.get(short_name) or models_by_name.get(f"{short_name}:latest")
