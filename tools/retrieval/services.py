"""Asks document services: searches by `POST {url}/query`, and lists collections by `GET {url}/collections`.

The body of a search is `{query, collection, top_k}`, the answer `{results: [{text, distance, metadata}],
collection_metadata}`. Smaller distances are nearer; thresholds sort what is found: match, partial, none.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.specs.secrets import remember_secret, remember_spec_secrets, resolve_environment
from toolchart.specs.sections.context import RagService, ServiceAuth, ServiceRetry
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.reading_limits import READING, format_bytes, name_limit
from toolchart.tools.definition import ToolFailure
from toolchart.tools.services import Hit
from toolchart.workers.error_text import describe_error

if TYPE_CHECKING:
    import httpx

TOP_K = 3
ATTEMPTS = 3
FIRST_WAIT_S = 1.0
"""Seconds before the second attempt; doubled before each further one."""
LISTING_TIMEOUT_S = 5.0
"""Longest wait for a list of collections: a page waits for it."""
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


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """One collection that a service has."""

    name: str
    count: int = 0
    """Documents in it."""
    metadata: dict[str, Any] = {}


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
    services: Mapping[str, RagService],
    places: Sequence[tuple[str, str]],
    query: str,
    *,
    uses_own_top_k: bool = False,
) -> Found:
    """Search collections in order; the first match ends the search.

    Args:
        places: pairs of service and collection.
        uses_own_top_k: whether each service is asked for as many passages as its `top_k` says.
    """
    partials: list[Finding] = []
    problems: list[str] = []
    for name, collection in places:
        if name not in services:
            problems.append(f"there is no service {name!r} in rag_services")
            continue
        service = services[name]
        if service.collection and collection != service.collection:
            problems.append(f"{name}/{collection} is not searched: only {service.collection!r} of it is")
            continue
        try:
            top_k = (service.top_k if uses_own_top_k else None) or TOP_K
            answer = await query_service(name, service, collection, query, top_k)
            finding = _read_answer(name, collection, service, answer)
        except ToolFailure as error:
            problems.append(f"{name}/{collection} could not be searched: {error}")
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
            (name, collection)
            for name, service in services.items()
            for collection in service.searched_collections
        ]
    places = []
    for entry in chosen:
        if isinstance(entry, Mapping):
            places.append((str(entry.get("service", "")), str(entry.get("name") or entry.get("collection"))))
        else:
            service, _, collection = str(entry).partition("/")
            places.append((service, collection))
    return places


async def query_service(
    name: str, service: RagService, collection: str, query: str, top_k: int
) -> dict[str, Any]:
    """The answer of a service to a query, asked as often as its `retry` says.

    Raises:
        ToolFailure: it did not answer, or with something else.
        SpecError: a variable of the entry is not set, or its `auth` is not complete.
    """
    import httpx

    body = {"query": query, "collection": collection, "top_k": top_k}
    retry = service.retry or ServiceRetry()
    wait_s = FIRST_WAIT_S if retry.delay_s is None else retry.delay_s
    problem = ""
    options: dict[str, Any] = {"timeout": service.timeout_s, "trust_env": False}
    url, headers = _find_url(name, service, "/query"), build_service_headers(name, service)
    async with httpx.AsyncClient(headers=headers, **options) as client:
        for attempt in range(retry.max_attempts or ATTEMPTS):
            if attempt:
                await asyncio.sleep(wait_s)
                wait_s *= 2
            try:
                answer = await _ask(client, "POST", url, json=body)
            except (httpx.HTTPError, ValueError) as error:
                problem = describe_error(error)
                continue
            if isinstance(answer, dict) and isinstance(answer.get("results"), list):
                return answer
            problem = "its answer has no list `results`"
    raise ToolFailure(problem)


async def _ask(client: httpx.AsyncClient, method: str, url: str, **options: Any) -> Any:
    """The JSON answer of a service, which is not read further than `service_bytes`.

    Raises:
        ToolFailure: it is larger.
        httpx.HTTPError: there was no answer, or one with an error status.
        ValueError: it is not JSON, or has more values than an answer may have.
    """
    content = bytearray()
    async with client.stream(method, url, **options) as response:
        response.raise_for_status()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > READING.service_bytes:
                size = format_bytes(READING.service_bytes)
                raise ToolFailure(f"its answer is larger than {size} {name_limit('service_bytes')}")
    return parse_foreign_json(bytes(content), "tool_values")


async def list_service_collections(name: str, service: RagService) -> list[Collection]:
    """The collections that a service has; of one with `collection` that one alone. It is asked once.

    Raises:
        ToolFailure: it did not answer, or with something else.
        SpecError: a variable of the entry is not set, or its `auth` is not complete.
    """
    data = await fetch_service_json(name, service, "/collections")
    rows = data.get("collections") if isinstance(data, Mapping) else data
    if not isinstance(rows, list):
        raise ToolFailure("its answer has no list `collections`")
    collections = [_read_collection(row) for row in rows]
    return [
        row
        for row in collections
        if row is not None and (not service.collection or row.name == service.collection)
    ]


async def fetch_service_json(name: str, service: RagService, path: str) -> Any:
    """The JSON answer of a service to `GET {url}{path}`, asked once.

    Raises:
        ToolFailure: it did not answer, or not with JSON.
        SpecError: a variable of the entry is not set, or its `auth` is not complete.
    """
    import httpx

    options: dict[str, Any] = {"timeout": min(service.timeout_s, LISTING_TIMEOUT_S), "trust_env": False}
    url, headers = _find_url(name, service, path), build_service_headers(name, service)
    try:
        async with httpx.AsyncClient(headers=headers, **options) as client:
            return await _ask(client, "GET", url)
    except (httpx.HTTPError, ValueError) as error:
        raise ToolFailure(describe_error(error)) from None


def _read_collection(row: Any) -> Collection | None:
    """A collection as services describe it: a name, or an object with one; None for anything else."""
    if isinstance(row, str):
        return Collection(name=row)
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        return None
    count, metadata = row.get("count"), row.get("metadata")
    return Collection(
        name=row["name"],
        count=count if isinstance(count, int) and not isinstance(count, bool) else 0,
        metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
    )


def _find_url(name: str, service: RagService, path: str) -> str:
    """The address of a path of a service, whose own address may already end in one of its paths."""
    address = resolve_environment(service.url, f"rag_services.{name}.url").rstrip("/")
    return re.sub(r"/(query|collections)$", "", address, flags=re.IGNORECASE) + path


def build_service_headers(name: str, service: RagService) -> dict[str, str]:
    """The headers of requests to a service, those of its sign-in included.

    Raises:
        SpecError: a variable is not set, or a part of the sign-in is missing.
    """
    place = f"rag_services.{name}"
    remember_spec_secrets(service.model_dump(exclude_unset=True))
    headers = {
        key: resolve_environment(value, f"{place}.headers.{key}") for key, value in service.headers.items()
    }
    return {**headers, **(_build_sign_in(service.auth, f"{place}.auth") if service.auth else {})}


def _build_sign_in(auth: ServiceAuth, place: str) -> dict[str, str]:
    """The header of a sign-in.

    Raises:
        SpecError: its type is unknown, a part is missing, or a variable is not set.
    """

    def find_part(*keys: str) -> str:
        written = next((value for key in keys if (value := getattr(auth, key))), None)
        if written is None:
            raise SpecError(f"the sign-in of type {auth.type!r} needs `{keys[0]}`", path=place)
        value = resolve_environment(written, f"{place}.{keys[0]}")
        if keys[0] != "username":
            remember_secret(value)
        return value

    kind = auth.type.lower().replace("_", "-")
    if kind == "none":
        return {}
    if kind == "bearer":
        return {"Authorization": f"Bearer {find_part('token')}"}
    if kind == "basic":
        words = f"{find_part('username')}:{find_part('password')}".encode()
        encoded_words = base64.b64encode(words).decode()
        remember_secret(encoded_words)
        return {"Authorization": f"Basic {encoded_words}"}
    if kind in ("api-key", "apikey"):
        return {auth.header: find_part("api_key", "key")}
    raise SpecError(
        f"unknown type of sign-in {auth.type!r}",
        path=f"{place}.type",
        hint="allowed: bearer, basic, api-key, none",
    )


def _read_answer(
    name: str, collection: str, service: RagService, answer: Mapping[str, Any]
) -> Finding | None:
    """What an answer holds below the thresholds; those of a collection go before those of its service."""
    metadata = answer.get("collection_metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    passages = sorted(map(_read_passage, answer["results"]), key=lambda passage: passage.distance)
    passages = [passage for passage in passages if passage.distance <= service.max_distance]
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
        distance=float(distance) if isinstance(distance, (int, float)) else float("inf"),
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
            places = [
                (name, collection)
                for name, service in self._services.items()
                if service.collection in (None, collection)
            ]
        outcome = asyncio.run(search_services(self._services, places, query, uses_own_top_k=True))
        if outcome.problems and not outcome.matches:
            raise ToolFailure("; ".join(outcome.problems))
        passages = [(finding, passage) for finding in outcome.matches for passage in finding.passages]
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
