"""Fetch embeddings (vectors of texts, for semantic search) from a model host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolchart.providers.model_catalog import HostClient
from toolchart.providers.shared.addresses import check_offline_mode
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.specs.models import LLMConfig
from toolchart.states.errors import SpecError, suggest_name

BATCH_SIZE = 64
"""Texts per request. Source: the smallest of the hosts' own limits is Gemini's 100."""

Vector = list[float]


class HostEmbedder:
    """Fetches vectors from the host of an `llms` entry.

    Args:
        model: the host's embedding model.
        resolve: replaces `${VARIABLE}` references; called at the last moment.

    Raises:
        SpecError: the provider has no embeddings.
    """

    def __init__(self, config: LLMConfig, model: str, resolve: Callable[[str], str]) -> None:
        if config.provider not in _VECTOR_FETCHERS:
            raise SpecError(
                f"provider {config.provider!r} makes no embeddings",
                path="embeddings.llm",
                hint=suggest_name(config.provider, _VECTOR_FETCHERS),
            )
        self._config = config
        self._model = model
        self._resolve = resolve

    @property
    def name(self) -> str:
        """Provider and model. An index whose vectors come from another embedder must be built again."""
        return f"{self._config.provider}/{self._model}"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, all of the same length.

        Raises:
            SpecError: a variable is not set, or the host is remote in offline mode.
            ProviderError: the host could not be reached, refused the request, or sent no vectors.
        """
        import httpx

        check_offline_mode(self._config, self._resolve, needs_network=True)
        host = HostClient(self._config, self._resolve)
        with httpx.Client(timeout=self._config.timeout_s, headers=host.headers) as client:
            host.client = client
            batches = _split_batches(texts)
            return [vector for batch in batches for vector in self._fetch_batch(host, batch)]

    def _fetch_batch(self, host: HostClient, texts: Sequence[str]) -> list[Vector]:
        vectors = _VECTOR_FETCHERS[self._config.provider](host, self._model, texts)
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or lengths == {0}:
            raise build_bad_response_error(
                f"{len(texts)} texts were not answered with as many vectors"
            )
        return vectors


def _split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), BATCH_SIZE):
        yield texts[start : start + BATCH_SIZE]


def _fetch_openai_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: OpenAI API reference, `POST /embeddings`; rows have an `index`, their order is not promised."""
    rows = _read_vector_rows(host.fetch_json("/embeddings", model=model, input=list(texts)), "data")
    rows.sort(key=lambda row: row.get("index", 0) if isinstance(row, Mapping) else 0)
    return [_read_vector(row, "embedding") for row in rows]


def _fetch_ollama_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: Ollama's `docs/api.md`, `POST /api/embed`."""
    answer = host.fetch_json("/api/embed", model=model, input=list(texts))
    rows = _read_vector_rows(answer, "embeddings")
    return [_read_vector({"embedding": row}, "embedding") for row in rows]


def _fetch_gemini_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[Vector]:
    """Source: Gemini API reference, `models.batchEmbedContents`."""
    model_path = f"models/{model.removeprefix('models/')}"
    requests = [{"model": model_path, "content": {"parts": [{"text": text}]}} for text in texts]
    answer = host.fetch_json(f"/{host.version}/{model_path}:batchEmbedContents", requests=requests)
    return [_read_vector(row, "values") for row in _read_vector_rows(answer, "embeddings")]


_VECTOR_FETCHERS: dict[str, Callable[[HostClient, str, Sequence[str]], list[Vector]]] = {
    "openai": _fetch_openai_vectors,
    "ollama": _fetch_ollama_vectors,
    "gemini": _fetch_gemini_vectors,
}
"""The function that fetches the vectors of one batch, by provider."""


def _read_vector_rows(data: Any, key: str) -> list[Any]:
    rows = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(rows, list):
        raise build_bad_response_error(f"the host's answer has no {key!r}")
    return rows


def _read_vector(row: Any, key: str) -> Vector:
    values = row.get(key) if isinstance(row, Mapping) else None
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) for v in values):
        raise build_bad_response_error(f"a row of the host's answer has no numbers under {key!r}")
    return [float(value) for value in values]
