"""Embeddings: texts turned into vectors by a model host, for search by meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolchart.providers.models import Host
from toolchart.providers.shared.addresses import refuse_offline
from toolchart.providers.shared.failures import unreadable
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

MOST_AT_ONCE = 64
"""Texts of one request. Source: the smallest of the hosts' own limits is Gemini's 100."""

Vector = list[float]


class HostEmbedder:
    """Asks the host of an `llms` entry for vectors.

    Args:
        model: the host's embedding model.
        resolve: fills in `${VARIABLE}`, at the last moment.

    Raises:
        SpecError: a provider that embeds nothing.
    """

    def __init__(self, config: LLMConfig, model: str, resolve: Callable[[str], str]) -> None:
        if config.provider not in _ASK:
            raise SpecError(
                f"provider {config.provider!r} makes no embeddings",
                path="embeddings.llm",
                hint=nearest(config.provider, _ASK),
            )
        self._config = config
        self._model = model
        self._resolve = resolve

    @property
    def name(self) -> str:
        """What the vectors depend on: an index made with another one is made anew."""
        return f"{self._config.provider}/{self._model}"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, all of one length.

        Raises:
            SpecError: a variable is not set, or the host is elsewhere where `TOOLCHART_OFFLINE=1` forbids it.
            ProviderError: the host could not be reached, refused, or did not answer with vectors.
        """
        import httpx

        refuse_offline(self._config, self._resolve, asks=True)
        host = Host(self._config, self._resolve)
        with httpx.Client(timeout=self._config.timeout_s, headers=host.headers) as client:
            host.client = client
            return [vector for part in _parts(texts) for vector in self._vectors(host, part)]

    def _vectors(self, host: Host, texts: Sequence[str]) -> list[Vector]:
        vectors = _ASK[self._config.provider](host, self._model, texts)
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or lengths == {0}:
            raise unreadable(f"{len(texts)} texts were not answered with as many vectors")
        return vectors


def _parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), MOST_AT_ONCE):
        yield texts[start : start + MOST_AT_ONCE]


def _openai(host: Host, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: OpenAI API reference, `POST /embeddings`; rows have an `index`, their order is not promised."""
    rows = _rows(host.ask("/embeddings", model=model, input=list(texts)), "data")
    ordered = sorted(rows, key=lambda row: row.get("index", 0) if isinstance(row, Mapping) else 0)
    return [_numbers(row, "embedding") for row in ordered]


def _ollama(host: Host, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: Ollama's `docs/api.md`, `POST /api/embed`."""
    found = host.ask("/api/embed", model=model, input=list(texts))
    return [_numbers({"embedding": row}, "embedding") for row in _rows(found, "embeddings")]


def _gemini(host: Host, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: Gemini API reference, `models.batchEmbedContents`."""
    named = f"models/{model.removeprefix('models/')}"
    requests = [{"model": named, "content": {"parts": [{"text": text}]}} for text in texts]
    found = host.ask(f"/{host.version}/{named}:batchEmbedContents", requests=requests)
    return [_numbers(row, "values") for row in _rows(found, "embeddings")]


_ASK: dict[str, Callable[[Host, str, Sequence[str]], list[Vector]]] = {
    "openai": _openai,
    "ollama": _ollama,
    "gemini": _gemini,
}
"""How each provider is asked."""


def _rows(data: Any, key: str) -> list[Any]:
    rows = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(rows, list):
        raise unreadable(f"the host's answer has no {key!r}")
    return rows


def _numbers(row: Any, key: str) -> Vector:
    values = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(values, list) or not all(isinstance(one, (int, float)) for one in values):
        raise unreadable(f"a row of the host's answer has no numbers under {key!r}")
    return [float(one) for one in values]
