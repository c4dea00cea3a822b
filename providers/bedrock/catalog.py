"""List the models of Bedrock: those of the makers, and the profiles that spread calls over regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from toolchart.providers.bedrock.signing import find_address
from toolchart.providers.model_catalog import OfferedModel
from toolchart.providers.shared.host_client import HostClient, read_rows


def iterate_models(host: HostClient) -> Iterator[OfferedModel]:
    """Models that answer with text, by the names that a call takes.

    Many models are called only through a profile (`eu.anthropic...`); those are listed by the profile's name.
    The lists stand at the address `bedrock` beside `bedrock-runtime`. They do not say whether a model calls
    tools or how large its window is.
    Source: botocore 1.44.5, the service model of `bedrock`, `ListFoundationModels`, `ListInferenceProfiles`.
    """
    address = find_address(host.config, host.resolve)
    host.move_to(address.replace("://bedrock-runtime", "://bedrock", 1))
    visions: dict[str, bool] = {}
    for row in read_rows(host.fetch_json("/foundation-models?byOutputModality=TEXT"), "modelSummaries"):
        name = str(row.get("modelId"))
        visions[name] = "IMAGE" in (row.get("inputModalities") or ())
        if "ON_DEMAND" in (row.get("inferenceTypesSupported") or ["ON_DEMAND"]):
            yield OfferedModel(name=name, vision=visions[name])
    for row in _iterate_profiles(host):
        models = [str(model.get("modelArn")).rpartition("/")[2] for model in read_rows(row, "models")]
        known = [visions[model] for model in models if model in visions]
        if known:
            yield OfferedModel(name=str(row.get("inferenceProfileId")), vision=all(known))


def _iterate_profiles(host: HostClient) -> Iterator[Mapping[str, Any]]:
    """The profiles of the region, page by page."""
    page = ""
    while True:
        data = host.fetch_json(f"/inference-profiles?maxResults=1000{page}")
        yield from read_rows(data, "inferenceProfileSummaries")
        if not data.get("nextToken"):
            return
        page = f"&nextToken={quote(str(data['nextToken']), safe='')}"
