"""Searches services by `POST {url}/query`, and sorts what they find by thresholds: match, partial, none.

The body is `{query, collection, top_k}`, the answer `{results: [{text, distance, metadata}],
collection_metadata}`. Smaller distances are nearer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from toolchart.specs.secrets import resolve_environment
from toolchart.specs.sections.context import RagService
from toolchart.tools.definition import ToolFailure
from toolchart.tools.sources.services import Hit

TOP_K = 3
MAX_DISTANCE = 1.0
"""Results that are farther away are dropped."""
ATTEMPTS = 3
FIRST_WAIT_S = 1.0
"""Seconds before the second attempt; doubled before the third."""
TIMEOUT_S = 30.0
NO_DOCUMENTS = "[No relevant documents found]"


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a service."""

    text: str
    distance: float
    title: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one collection has on a query, the nearest passage first."""

    service: str
    collection: str
    description: str
    passages: tuple[Passage, ...]
    is_match: bool

    @property
    def name(self) -> str:
        """`service/collection`, which is also the name of the intent."""
        return f"{self.service}/{self.collection}"

    @property
    def distance(self) -> float:
        """Distance of the nearest passage."""
        return self.passages[0].distance


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search: one match, or all partial matches, the nearest first."""

    matches: tuple[Finding, ...]
    problems: tuple[str, ...] = ()
    """Services that could not be asked."""

    @property
    def rag_results(self) -> str:
        """`match`, `partial` or `none`."""
        if not self.matches:
            return "none"
        return "match" if self.matches[0].is_match else "partial"

    def format_context(self) -> str:
        """The value of `{{rag_context}}`: each passage under its title and its collection."""
        parts = [
            f"### {passage.title} (from {finding.collection})\n\n{passage.text}"
            for finding in self.matches
            for passage in finding.passages
        ]
        return "\n\n---\n\n".join(parts) or NO_DOCUMENTS


async def search_services(
    services: Mapping[str, RagService], places: Sequence[tuple[str, str]], query: str
) -> Found:
    """Search collections in order; the first match ends the search.

    Args:
        places: pairs of service and collection.
    """
    partials: list[Finding] = []
    problems: list[str] = []
    for service, collection in places:
        if service not in services:
            problems.append(f"there is no service {service!r} in rag_services")
            continue
        try:
            answer = await _query(services[service], collection, query)
            finding = _read_answer(service, collection, services[service], answer)
        except ToolFailure as error:
            problems.append(f"{service}/{collection} could not be searched: {error}")
            continue
        if finding is not None and finding.is_match:
            return Found(matches=(finding,), problems=tuple(problems))
        if finding is not None:
            partials.append(finding)
    partials.sort(key=lambda finding: finding.distance)
    return Found(matches=tuple(partials), problems=tuple(problems))


def list_places(services: Mapping[str, RagService], chosen: Any) -> list[tuple[str, str]]:
    """The collections to search: those that the caller chose, else those that the services list.

    Args:
        chosen: `{service, name}`, `{service, collection}` or `service/collection`, in a list; or such
            names in one text, with commas between them.
    """
    if isinstance(chosen, str):
        chosen = [name.strip() for name in chosen.split(",") if name.strip()]
    if not isinstance(chosen, Sequence) or not chosen:
        return [
            (name, collection) for name, service in services.items() for collection in service.collections
        ]
    places = []
    for entry in chosen:
        if isinstance(entry, Mapping):
            places.append((str(entry.get("service", "")), str(entry.get("name") or entry.get("collection"))))
        else:
            service, _, collection = str(entry).partition("/")
            places.append((service, collection))
    return places


async def _query(service: RagService, collection: str, query: str) -> dict[str, Any]:
    """The answer of a service, asked up to three times.

    Raises:
        ToolFailure: it did not answer, or with something else.
    """
    import httpx

    url = resolve_environment(service.url, "rag_services").rstrip("/") + "/query"
    body = {"query": query, "collection": collection, "top_k": TOP_K}
    wait_s, problem = FIRST_WAIT_S, ""
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(wait_s)
                wait_s *= 2
            try:
                answer = (await client.post(url, json=body)).raise_for_status().json()
            except (httpx.HTTPError, ValueError) as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if isinstance(answer, dict) and isinstance(answer.get("results"), list):
                return answer
            problem = "its answer has no list `results`"
    raise ToolFailure(problem)


def _read_answer(
    name: str, collection: str, service: RagService, answer: Mapping[str, Any]
) -> Finding | None:
    """What an answer holds below the thresholds; those of a collection go before those of its service."""
    metadata = answer.get("collection_metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    passages = sorted(map(_read_passage, answer["results"]), key=lambda passage: passage.distance)
    passages = [passage for passage in passages if passage.distance <= MAX_DISTANCE]
    match_threshold = float(metadata.get("match_threshold") or service.match_threshold)
    partial_threshold = float(metadata.get("partial_threshold") or service.partial_threshold)
    if not passages or passages[0].distance >= max(match_threshold, partial_threshold):
        return None
    return Finding(
        service=name,
        collection=collection,
        description=str(metadata.get("description") or collection),
        passages=tuple(passages),
        is_match=passages[0].distance < match_threshold,
    )


def _read_passage(result: Any) -> Passage:
    result = result if isinstance(result, Mapping) else {}
    metadata = result.get("metadata")
    title = metadata.get("title") if isinstance(metadata, Mapping) else None
    distance = result.get("distance")
    return Passage(
        text=str(result.get("text", "")),
        distance=float(distance) if isinstance(distance, (int, float)) else MAX_DISTANCE + 1,
        title=str(title or "Document"),
    )


class ServiceSearch:
    """The search behind `rag_query` and `search_documents` where a spec has `rag_services`."""

    def __init__(self, services: Mapping[str, RagService]) -> None:
        self._services = services

    def search(self, query: str, *, collection: str | None, limit: int) -> Sequence[Hit]:
        """At most `limit` passages, the nearest first; called in a thread."""
        places = list_places(self._services, [collection] if collection and "/" in collection else None)
        if collection and "/" not in collection:
            places = [(service, collection) for service in self._services]
        found = asyncio.run(search_services(self._services, places, query))
        if found.problems and not found.matches:
            raise ToolFailure("; ".join(found.problems))
        passages = [(finding, passage) for finding in found.matches for passage in finding.passages]
        return [
            Hit(
                file=finding.name,
                line=1,
                title=passage.title,
                snippet=passage.text,
                text=passage.text,
                score=1.0 - passage.distance,
                collection=finding.collection,
            )
            for finding, passage in passages[:limit]
        ]
