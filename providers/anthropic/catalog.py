"""List the models of Anthropic's API."""

from __future__ import annotations

from collections.abc import Iterator

from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_rows


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models of a host, on one page of the largest size.

    The list has no capabilities, so they stay unknown.
    Source: the API reference, `List Models`: `data: [{type, id, display_name, created_at}]`, limit 1000.
    """
    for row in read_rows(host.fetch_json("/v1/models?limit=1000"), "data"):
        yield OfferedModel(name=str(row.get("id")))
