"""Finds the context of a turn before its handler is chosen: topic, documents and intent, each in the log.

It runs a small chart (`specs/sections/preparation.py`) in a conversation of its own, whose id is that of the
conversation and `.context`. Each model call and each search is an effect there, with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from toolchart.specs.models import AgentSpec
from toolchart.specs.sections.preparation import SEARCH_FUNCTION
from toolchart.states.messages import Message
from toolchart.states.snapshot import Snapshot
from toolchart.tools.retrieval.services import Found, list_places, search_services
from toolchart.tools.sources.effect_functions import effect

RECENT_MESSAGES = 6
"""Messages that the topic is found from."""

OTHER = "other"
"""The option of the intent that is none of the others."""


class SearchResult(TypedDict):
    """What the search found, as the chart and the log have it."""

    rag_results: Literal["match", "partial", "none"]
    service: str
    collection: str
    rag_context: str
    options: str
    """The intents that a model may choose, one a line with its description."""
    names: list[str]
    problems: list[str]


def make_search_function(spec: AgentSpec) -> Callable[..., Any]:
    """The function that the chart calls: searches the services of the spec."""

    @effect(name=SEARCH_FUNCTION, idempotent=True, timeout_s=300)
    async def search_collections(topic: Any, message: str, collections: Any) -> SearchResult:
        query = str(topic).lower() if topic else message
        places = list_places(spec.rag_services, collections)
        return _describe_found(await search_services(spec.rag_services, places, query), spec)

    return search_collections


def _describe_found(search_outcome: Found, spec: AgentSpec) -> SearchResult:
    best = search_outcome.matches[0] if search_outcome.matches else None
    options = dict(spec.intent.detection) if spec.intent else {}
    options |= {finding.name: finding.description for finding in search_outcome.matches}
    options[OTHER] = "None of these."
    return SearchResult(
        rag_results=search_outcome.rag_results,  # type: ignore[typeddict-item]  # one of the three words
        service=best.service if best else "",
        collection=best.collection if best else "",
        rag_context=search_outcome.format_context(),
        options="\n".join(f"- {name}: {description}" for name, description in options.items()),
        names=list(options),
        problems=list(search_outcome.problems),
    )


def build_search_variables(
    message: str, variables: Mapping[str, Any], earlier_messages: Sequence[Message]
) -> dict[str, Any]:
    """The variables of the chart that finds the context."""
    texts = [
        f"{entry.role}: {entry.content}"
        for entry in earlier_messages
        if entry.role in ("user", "assistant") and entry.content
    ]
    return {
        "user_message": message,
        "recent_messages": "\n".join(texts[-RECENT_MESSAGES:]),
        "current_topic": variables.get("current_topic") or "",
        "collections": variables.get("collections") or [],
    }


def read_context(snapshot: Snapshot, message: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The variables that the chart has found, and warnings about what it could not ask."""
    values = {name: result.value or {} for name, result in snapshot.results.items()}
    errors = {name: result.error for name, result in snapshot.results.items() if result.error}
    return describe_context(values, errors, message)


def describe_context(
    values: Mapping[str, Mapping[str, Any]], errors: Mapping[str, str], message: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """As `read_context`, from the results of the chart and the errors of those that have failed."""
    search = values.get("search", {})
    problems = [*search.get("problems", ())]
    problems += [f"{name}: {error}" for name, error in errors.items()]
    context: dict[str, Any] = {
        "topic": values.get("topic", {}).get("topic_summary") or message,
        "rag_results": search.get("rag_results", "none"),
        "rag_context": search.get("rag_context", ""),
    }
    intent = _choose_intent(search, str(values.get("intent", {}).get("content", "")))
    if intent:
        context["intent"] = intent
        service, _, collection = intent.partition("/")
        if collection:
            context |= {"service": service, "collection": collection}
    if search.get("service") and "service" not in context:
        context |= {"service": search["service"], "collection": search["collection"]}
    return context, tuple(f"the context of the turn: {problem}" for problem in problems)


def _choose_intent(search: Mapping[str, Any], answer: str) -> str | None:
    """A match; else what the model named; `other` beside partial matches is the nearest of them."""
    nearest = f"{search.get('service')}/{search.get('collection')}" if search.get("service") else None
    if search.get("rag_results") == "match":
        return nearest
    word = answer.strip().strip("\"'`.").lower()
    names = search.get("names", ())
    mentioned_name = next((name for name in names if name.lower() == word), None)
    mentioned_name = mentioned_name or next((name for name in names if word and name.lower() in word), None)
    if mentioned_name == OTHER:
        return nearest or OTHER
    return mentioned_name
