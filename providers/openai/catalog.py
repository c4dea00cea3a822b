"""List the models of OpenAI and compatible hosts, and fetch embeddings from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_list, read_rows, read_vector


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models of a host, with the capabilities that it reports. Source: OpenAI API, `GET /models`."""
    for row in read_rows(host.fetch_json("/models"), "data"):
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


def fetch_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Source: OpenAI API reference, `POST /embeddings`; rows have an `index`, their order is not promised."""
    rows = read_list(host.fetch_json("/embeddings", model=model, input=list(texts)), "data")
    rows.sort(key=lambda row: row.get("index", 0) if isinstance(row, Mapping) else 0)
    return [read_vector(row, "embedding") for row in rows]
