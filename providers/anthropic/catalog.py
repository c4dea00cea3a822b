"""List the models of Anthropic's API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_rows


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """The models of a host, on one page of the largest size.

    It does not say whether a model calls tools.
    Source: anthropic 2.12.0, `types/model_info.py`, `types/model_capabilities.py`; the API reference, List
    Models: limit 1000.
    """
    for row in read_rows(host.fetch_json("/v1/models?limit=1000"), "data"):
        yield OfferedModel(
            name=str(row.get("id")),
            vision=_read_support(row, "image_input"),
            thinking=_read_support(row, "thinking"),
            context=row.get("max_input_tokens"),
        )


def _read_support(row: Mapping[str, Any], name: str) -> bool | None:
    """Whether a model has a capability; None where an older list does not say."""
    capabilities = row.get("capabilities")
    capability = capabilities.get(name) if isinstance(capabilities, Mapping) else None
    return capability.get("supported") if isinstance(capability, Mapping) else None
