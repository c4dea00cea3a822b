"""Fetch embeddings (vectors of texts, for semantic search) from a model host.

`catalog.py` in the folder of a host sends the request and reads the vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from toolchart.providers.hosts import HOSTS, find_host
from toolchart.providers.shared.addresses import check_offline_mode
from toolchart.providers.shared.failures import build_bad_response_error
from toolchart.providers.shared.host_client import HostClient
from toolchart.specs.models import LLMConfig
from toolchart.states.descriptors import load_row_reference
from toolchart.states.errors import SpecError, suggest_name

BATCH_SIZE = 64
"""Texts per request. Source: the smallest of the hosts' own limits is Gemini's 100."""

Vector = list[float]


class HostEmbedder:
    """Fetches vectors from the host of an `llms` entry.

    Args:
        model: the host's embedding model.
        resolve: replaces `${VARIABLE}` references; called at the last moment.
        beside: folder of the spec; certificates in the entry are relative to it.

    Raises:
        SpecError: the provider has no embeddings.
    """

    def __init__(
        self, config: LLMConfig, model: str, resolve: Callable[[str], str], beside: Path | None = None
    ) -> None:
        row = find_host(config.provider)
        reference = row.fetch_embeddings
        if not reference:
            raise SpecError(
                f"provider {config.provider!r} makes no embeddings",
                path="embeddings.llm",
                hint=suggest_name(
                    config.provider, [other.name for other in HOSTS.known_rows if other.fetch_embeddings]
                ),
            )
        self._fetch_vectors: Callable[[HostClient, str, Sequence[str]], list[Vector]] = load_row_reference(
            row, reference
        )
        self._config = config
        self._model = model
        self._resolve = resolve
        self._beside = beside

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
        check_offline_mode(self._config, self._resolve)
        host = HostClient(self._config, self._resolve, self._beside)
        with host.open_client(self._config.timeout_s):
            batches = _split_batches(texts)
            return [vector for batch in batches for vector in self._fetch_batch(host, batch)]

    def _fetch_batch(self, host: HostClient, texts: Sequence[str]) -> list[Vector]:
        vectors = self._fetch_vectors(host, self._model, texts)
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts) or len(lengths) != 1 or lengths == {0}:
            raise build_bad_response_error(f"{len(texts)} texts were not answered with as many vectors")
        return vectors


def _split_batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), BATCH_SIZE):
        yield texts[start : start + BATCH_SIZE]
