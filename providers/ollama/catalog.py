"""List the models of an Ollama server, fetch embeddings from it, and complete its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_list, read_rows, read_vector

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
