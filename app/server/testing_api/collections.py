"""The collections of the agent's document services, as front ends choose, search and manage them.

A service says by `GET /collections` what it has, and searches by `POST /query`: both are passed through. What
it holds is changed at the service itself, so the endpoints that would change it answer 501 with that advice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form, read_json
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.forms import CollectionQueryForm
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import hide_secrets
from toolchart.specs.sections.context import RagService
from toolchart.states.errors import SpecError
from toolchart.tools.definition import ToolFailure
from toolchart.tools.retrieval.services import TOP_K, Collection, list_service_collections, query_service

ROUTES = RouteGroup()

_JSON_TEXTS = ("document_schema", "query_profile")
"""Keys of a collection's metadata whose values pages read as the text of a JSON document."""


class ServiceListing(msgspec.Struct, frozen=True, kw_only=True):
    """What a service has, or why it could not be asked."""

    name: str
    service: RagService
    collections: tuple[Collection, ...] = ()
    problem: str = ""


async def list_services(spec: AgentSpec) -> list[ServiceListing]:
    """Ask every document service of an agent at the same time what it has."""
    return await asyncio.gather(*(ask_service(name, service) for name, service in spec.rag_services.items()))


async def ask_service(name: str, service: RagService) -> ServiceListing:
    """Ask one service what it has; a failure is a part of the answer."""
    try:
        collections = await list_service_collections(name, service)
    except (ToolFailure, SpecError) as error:
        return ServiceListing(name=name, service=service, problem=hide_secrets(str(error)))
    return ServiceListing(name=name, service=service, collections=tuple(collections))


def describe_services(listings: list[ServiceListing]) -> dict[str, Any]:
    """The keys `collections` and `wrappers` of answers; a service that does not answer drops out."""
    alive = [listing for listing in listings if not listing.problem]
    return {
        "collections": [
            {
                "name": collection.name,
                "service": listing.name,
                "count": collection.count,
                "metadata": clean_metadata(collection.metadata),
            }
            for listing in alive
            for collection in listing.collections
        ],
        "wrappers": [_describe_wrapper(listing) for listing in alive],
    }


def _describe_wrapper(listing: ServiceListing) -> dict[str, Any]:
    service = listing.service
    row: dict[str, Any] = {
        "name": listing.name,
        "url": hide_secrets(service.url),
        "collectionCount": len(listing.collections),
    }
    titles = {"description": service.description, "collection": service.collection}
    return {**row, **{key: value for key, value in titles.items() if value}}


def clean_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a collection, with texts where pages expect the text of a JSON document."""
    return {
        key: json.dumps(value) if key in _JSON_TEXTS and not isinstance(value, str) else value
        for key, value in metadata.items()
        if value is not None
    }


@ROUTES.endpoint("GET", "/api/collections", "read")
async def list_collections(request: Request) -> Response:
    """List the collections of the agent's document services."""
    service_data = describe_services(await list_services(get_site(request).engine.spec))
    return JsonAnswer({**service_data, "hasWrappers": bool(service_data["wrappers"])})


@ROUTES.endpoint("POST", "/api/collections/{collection}/test-query", "chat", body=CollectionQueryForm)
async def query_collection(request: Request) -> Response:
    """Search one collection.

    Raises:
        Refusal: 400 or 404; the form is not complete, or the service is unknown. 502; it did not answer.
    """
    form, collection = await read_form(request, CollectionQueryForm), str(request.path_params["collection"])
    name, service = _find_service(request, form.service)
    if service.collection and collection != service.collection:
        raise Refusal(404, f"the service {name!r} is pinned to the collection {service.collection!r}")
    if not form.query.strip():
        raise Refusal(400, "Missing required parameters: query")
    top_k = form.top_k or service.top_k or TOP_K
    most = get_site(request).limits.top_k
    if not 1 <= top_k <= most:
        raise Refusal(400, f"top_k is a number from 1 to {most}, found {top_k}")
    begin_s = time.monotonic()
    try:
        answer = await query_service(name, service, collection, form.query, top_k)
    except ToolFailure as error:
        text = f"the service {name!r} could not be searched: {hide_secrets(str(error))}"
        raise Refusal(502, text) from None
    return JsonAnswer(
        {
            "query": form.query,
            "collection": collection,
            "service": name,
            "results": [_describe_result(row) for row in answer["results"] if isinstance(row, Mapping)],
            "execution_time_ms": round((time.monotonic() - begin_s) * 1000),
        }
    )


def _describe_result(row: Mapping[str, Any]) -> dict[str, Any]:
    """A passage; its score grows as its distance falls, where the service names none."""
    distance, score, metadata = row.get("distance"), row.get("score"), row.get("metadata")
    if not isinstance(score, (int, float)) and isinstance(distance, (int, float)):
        score = 1.0 - distance
    return {
        "text": str(row.get("text", "")),
        "distance": distance,
        "score": score,
        "metadata": dict(metadata) if isinstance(metadata, Mapping) else {},
    }


async def refuse_change(request: Request) -> Response:
    """Say that documents are changed at their service.

    Raises:
        Refusal: 400 without a service, 404 for an unknown one, else 501.
    """
    service_name = request.query_params.get("service", "")
    if not service_name and request.headers.get("content-type"):
        body = await read_json(request)
        service_name = body.get("service", "") if isinstance(body, dict) else ""
    name, _ = _find_service(request, service_name)
    raise Refusal(
        501,
        f"This server searches the collections of {name!r} and does not manage them. Use the service itself: "
        "its address is `rag_services." + name + ".url` in the configuration.",
    )


def _find_service(request: Request, name: Any) -> tuple[str, RagService]:
    """A service of the agent by its name.

    Raises:
        Refusal: 400 without a name, 404 for an unknown one.
    """
    services = get_site(request).engine.spec.rag_services
    if not isinstance(name, str) or not name:
        raise Refusal(400, "Missing required parameters: service")
    if name not in services:
        service_names = ", ".join(services) or "none"
        raise Refusal(404, f"the agent has no document service {name!r}; services: {service_names}")
    return name, services[name]


_MANAGED = (
    ("POST", "/api/collections", "Create a collection"),
    ("PUT", "/api/collections/{collection}/metadata", "Change the metadata of a collection"),
    ("DELETE", "/api/collections/{collection}", "Delete a collection"),
    ("DELETE", "/api/collections/{collection}/documents/all", "Delete the documents of a collection"),
    ("POST", "/api/collections/{collection}/documents", "Add documents to a collection"),
    ("GET", "/api/collections/{collection}/metadata-values", "List the values of a field of documents"),
)
"""Method, path and purpose of what is done at the service itself."""

for _method, _path, _purpose in _MANAGED:
    _sentence = f"{_purpose}: 501, because that is done at the service itself."
    ROUTES.endpoint(_method, _path, "read" if _method == "GET" else "chat", summary=_sentence)(refuse_change)
