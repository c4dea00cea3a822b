"""List the models of Gemini, and fetch embeddings from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolchart.providers.gemini.host import API_VERSION
from toolchart.providers.gemini.vertex_catalog import iterate_vertex_models
from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_list, read_rows, read_vector


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """Models that generate content. Source: the REST reference of `models.list`; it has nothing on tools.

    On Vertex AI another list is asked, which names what Google publishes.
    """
    if host.options.get("vertex"):
        yield from iterate_vertex_models(host)
        return
    version = host.options.get("api_version") or API_VERSION
    page = ""
    while True:
        data = host.fetch_json(f"/{version}/models?pageSize=1000{page}")
        for row in read_rows(data, "models"):
            if "generateContent" in (row.get("supportedGenerationMethods") or ["generateContent"]):
                yield OfferedModel(
                    name=str(row.get("name")).removeprefix("models/"),
                    thinking=row.get("thinking"),
                    context=row.get("inputTokenLimit"),
                )
        if not data.get("nextPageToken"):
            return
        page = f"&pageToken={data['nextPageToken']}"


def fetch_vectors(host: HostClient, model: str, texts: Sequence[str]) -> list[list[float]]:
    """Source: Gemini API reference, `models.batchEmbedContents`."""
    version = host.options.get("api_version") or API_VERSION
    model_path = f"models/{model.removeprefix('models/')}"
    requests = [{"model": model_path, "content": {"parts": [{"text": text}]}} for text in texts]
    answer = host.fetch_json(f"/{version}/{model_path}:batchEmbedContents", requests=requests)
    return [read_vector(row, "values") for row in read_list(answer, "embeddings")]
