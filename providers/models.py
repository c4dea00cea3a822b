"""What a host offers: its models, and what they can do where the host says so.

Asked over plain HTTP, since no SDK keeps what a host says beyond its own types: a compatible host tells
more of a model than OpenAI does, and Ollama's capabilities are a request per model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolchart.providers.shared.addresses import address_of, refuse_offline
from toolchart.providers.shared.failures import failure, from_exception, unreadable
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

if TYPE_CHECKING:
    import httpx

KEY_VARIABLES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "ollama": ("OLLAMA_API_KEY",),
    "gemini": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    "anthropic": ("ANTHROPIC_API_KEY",),
}
"""Where the SDKs look for a key, the first that is set. Source: openai 3.52.0, ollama 0.6.3, google-genai
3.4.0."""

_PATIENCE_S = 20.0
"""Seconds for one answer at most: a list is quick where a reply may not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedModel:
    """One model of a host; None is what the host does not say."""

    name: str
    tools: bool | None = None
    """Whether it calls tools natively."""
    vision: bool | None = None
    """Whether it sees pictures."""
    thinking: bool | None = None
    """Whether it reasons before it answers."""
    context: int | None = None
    """Tokens of its window."""


def list_models(config: LLMConfig, resolve: Callable[[str], str]) -> list[OfferedModel]:
    """The models of an entry's host, by name.

    Raises:
        SpecError: the provider has no models to list, a variable is not set, or the host is elsewhere
            where `TOOLCHART_OFFLINE=1` forbids it.
        ProviderError: the host could not be reached, refused, or gave no list.
    """
    import httpx

    lister = _LISTERS.get(config.provider)
    if lister is None:
        raise SpecError(
            f"provider {config.provider!r} has no models to list",
            path="llms.*.provider",
            hint=nearest(config.provider, _LISTERS),
        )
    refuse_offline(config, resolve, asks=True)
    host = Host(config, resolve)
    with httpx.Client(timeout=min(config.timeout_s, _PATIENCE_S), headers=host.headers) as client:
        host.client = client
        return sorted(lister(host), key=lambda one: one.name)


def key_of(config: LLMConfig, resolve: Callable[[str], str]) -> str | None:
    """The key that an entry's adapter sends: its own, else the environment's.

    Raises:
        SpecError: a variable in `api_key` is not set.
    """
    if config.api_key:
        return resolve(config.api_key)
    names = KEY_VARIABLES.get(config.provider, ())
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class Host:
    """A host's address, what it is sent with every request, and the client that asks it."""

    client: httpx.Client

    def __init__(self, config: LLMConfig, resolve: Callable[[str], str]) -> None:
        self.address = address_of(config, resolve) or ""
        self.version = str(config.extras().get("api_version") or "v1beta")
        key = key_of(config, resolve)
        own = config.extras().get("headers")
        self.headers = {str(k): resolve(str(v)) for k, v in own.items()} if own else {}
        if key:
            header = "x-goog-api-key" if config.provider == "gemini" else "authorization"
            self.headers[header] = key if config.provider == "gemini" else f"Bearer {key}"

    def ask(self, path: str, **body: Any) -> Any:
        """The JSON answer of a path; posted where there is a body."""
        try:
            url = self.address + path
            answer = self.client.post(url, json=body) if body else self.client.get(url)
            data = answer.json() if answer.status_code < 400 else _json(answer)
        except ValueError:
            raise unreadable(f"{path} is not answered with JSON") from None
        except Exception as error:
            raise from_exception(error) from error
        if answer.status_code >= 400:
            raise failure(answer.status_code, data, answer.headers)
        return data


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _rows(data: Any, key: str) -> list[Mapping[str, Any]]:
    rows = data.get(key) if isinstance(data, Mapping) else data
    if not isinstance(rows, list):
        raise unreadable(f"the host's list of models has no {key!r}")
    return [row for row in rows if isinstance(row, Mapping)]


# -- OpenAI and the hosts like it ----------------------------------------------------------------


def _openai(host: Host) -> Iterator[OfferedModel]:
    for row in _rows(host.ask("/models"), "data"):
        yield OfferedModel(name=str(row.get("id")), **_told(row))


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """What compatible hosts say beside the name.

    Source: OpenRouter `supported_parameters`, `architecture` and `context_length`; Mistral `capabilities`
    and `max_context_length`; vLLM `max_model_len`; Groq `context_window` (their API references).
    """
    told: dict[str, Any] = {}
    parameters = row.get("supported_parameters")
    if isinstance(parameters, list):
        told |= {"tools": "tools" in parameters, "thinking": "reasoning" in parameters}
    can = row.get("capabilities")
    if isinstance(can, Mapping):
        told |= {"tools": can.get("function_calling"), "vision": can.get("vision")}
    kinds = row.get("architecture")
    if isinstance(kinds, Mapping) and isinstance(kinds.get("input_modalities"), list):
        told["vision"] = "image" in kinds["input_modalities"]
    windows = ("context_length", "max_context_length", "max_model_len", "context_window")
    told["context"] = next((row[key] for key in windows if isinstance(row.get(key), int)), None)
    return told


# -- Ollama --------------------------------------------------------------------------------------


def _ollama(host: Host) -> Iterator[OfferedModel]:
    """Source: Ollama's `docs/api.md`: `/api/tags` names the models, `/api/show` tells `capabilities`."""
    for row in _rows(host.ask("/api/tags"), "models"):
        name = str(row.get("model") or row.get("name"))
        shown = host.ask("/api/show", model=name)
        can = shown.get("capabilities") if isinstance(shown, Mapping) else None
        # Older servers say nothing.
        said = {one: one in can for one in ("tools", "vision", "thinking")} if can else {}
        yield OfferedModel(name=name, context=_window(shown), **said)


def _window(shown: Any) -> int | None:
    info = shown.get("model_info") if isinstance(shown, Mapping) else None
    found = [v for k, v in (info or {}).items() if str(k).endswith(".context_length")]
    return found[0] if found and isinstance(found[0], int) else None


# -- Gemini --------------------------------------------------------------------------------------


def _gemini(host: Host) -> Iterator[OfferedModel]:
    """Models that generate content. Source: the REST reference of `models.list`; it does not tell tools."""
    page = ""
    while True:
        data = host.ask(f"/{host.version}/models?pageSize=1000{page}")
        for row in _rows(data, "models"):
            if "generateContent" in (row.get("supportedGenerationMethods") or ["generateContent"]):
                yield OfferedModel(
                    name=str(row.get("name")).removeprefix("models/"),
                    thinking=row.get("thinking"),
                    context=row.get("inputTokenLimit"),
                )
        if not data.get("nextPageToken"):
            return
        page = f"&pageToken={data['nextPageToken']}"


_LISTERS: dict[str, Callable[[Host], Iterator[OfferedModel]]] = {
    "openai": _openai,
    "ollama": _ollama,
    "gemini": _gemini,
}


def find_model(name: str, offered: list[OfferedModel]) -> OfferedModel | None:
    """The offered model of that name; Ollama's `:latest` and Gemini's `models/` may be left out."""
    wanted = name.removeprefix("models/")
    known = {one.name: one for one in offered}
    return known.get(wanted) or known.get(f"{wanted}:latest")
