"""The tests of what finds the context of a turn: the search in documents, the intent and the topic.

Each uses what the agent itself has: a request may repeat a section of its configuration, and cannot bring
another one. Intent and topic are found as in a turn, by the chart of `specs/sections/preparation.py`, in a
conversation `test-...` of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.app.server.testing_api.bench import is_described_by
from toolchart.app.server.testing_api.forms import IntentForm, SearchForm
from toolchart.app.server.testing_api.side_engines import open_side_engine
from toolchart.engine.runtime.agents.turn_context import (
    build_search_variables,
    describe_context,
    make_search_function,
)
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.result import TurnResult
from toolchart.specs.history import read_history
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import hide_secrets
from toolchart.specs.sections.context import RagService
from toolchart.specs.sections.preparation import build_preparation_spec
from toolchart.states.errors import SpecError
from toolchart.tools.retrieval.services import list_places, search_services


async def try_search(request: Request) -> Response:
    """Search a service of the agent."""
    form, spec = await read_form(request, SearchForm), get_site(request).engine.spec
    name = _find_service(spec.rag_services, form)
    service = spec.rag_services[name]
    chosen = [{"service": name, "name": form.collection}] if form.collection else None
    places = list_places({name: service}, chosen)
    if not places:
        raise Refusal(400, f"Missing required parameters: collection (the service {name!r} lists none)")
    try:
        found = await search_services({name: service}, places, form.query)
    except SpecError as error:
        return JsonAnswer({"success": False, "service": name, "error": hide_secrets(str(error))})
    answer: dict[str, Any] = {
        "success": not found.problems,
        "service": name,
        "collections": [collection for _, collection in places],
        "rag_results": found.rag_results,
        "count": sum(len(finding.passages) for finding in found.matches),
    }
    if found.problems:
        answer["error"] = hide_secrets("; ".join(found.problems))
    return JsonAnswer(answer)


def _find_service(services: Mapping[str, RagService], form: SearchForm) -> str:
    """The service of the agent that a request names or describes.

    Raises:
        Refusal: 400; the agent has none such.
    """
    names = [form.service] if form.service else list(services)
    config = {**form.config, **({"provider": form.provider} if form.provider else {})}
    for name in names:
        if name in services and is_described_by(services[name].model_dump(exclude_none=True), config):
            return name
    known = ", ".join(services) or "none"
    raise Refusal(400, f"this service is no entry of the agent's `rag_services`; entries: {known}")


async def try_intent(request: Request) -> Response:
    """Find the intent of a message as a turn does."""
    form, site = await read_form(request, IntentForm), get_site(request)
    section = site.engine.spec.intent
    _require_section("intent", section, form)
    result = await _find_context(site, form, asks_topic=False)
    errors = {name: error.message for name, error in result.result_errors.items()}
    context, problems = describe_context(result.results, errors, form.query)
    intent = context.get("intent")
    is_found = intent is not None and not problems
    answer = {"success": is_found, "intent": intent, "conversation": result.conversation}
    return JsonAnswer({**answer, "rag_results": context["rag_results"], **_describe_problems(problems)})


async def try_topic(request: Request) -> Response:
    """Find the topic of a message as a turn does that has earlier messages."""
    form, site = await read_form(request, IntentForm), get_site(request)
    _require_section("topic", site.engine.spec.topic, form)
    result = await _find_context(site, form, asks_topic=True)
    found, error = result.results.get("topic", {}), result.result_errors.get("topic")
    answer = {"success": bool(found), "topic": found.get("topic_summary") or form.query}
    status = {"topic_status": found.get("topic_status"), "conversation": result.conversation}
    problems = (error.message,) if error is not None else ()
    return JsonAnswer({**answer, **status, **_describe_problems(problems)})


def _require_section(key: str, section: Any, form: IntentForm) -> None:
    """Refuse a test of what the agent does not have, or of another configuration than its own.

    Raises:
        Refusal: 400.
    """
    if section is None:
        raise Refusal(400, f"this agent has no section `{key}`")
    if not is_described_by(section.model_dump(exclude_none=True), form.config):
        raise Refusal(400, f"this is not the agent's section `{key}`; a request cannot bring another one")
    if not form.query.strip():
        raise Refusal(400, "Missing required parameters: query")


def _describe_problems(problems: tuple[str, ...]) -> dict[str, str]:
    return {"error": hide_secrets("; ".join(problems))} if problems else {}


async def _find_context(site: Site, form: IntentForm, *, asks_topic: bool) -> TurnResult:
    """The turn in which the context was found."""
    served = site.engine.spec
    spec = build_preparation_spec(served, asks_topic=asks_topic)
    name = f"test-{generate_conversation_id()}"
    earlier = read_history([_convert_message(message) for message in form.previousMessages])
    variables = build_search_variables(form.query, {}, earlier)
    functions = [make_search_function(served)]
    with site.turns.hold():
        async with open_side_engine(site, spec, _list_llms(spec), functions=functions) as engine:
            return await engine.arun(form.query, conversation=name, variables=variables)


def _convert_message(message: dict[str, Any]) -> dict[str, Any]:
    kind = "user" if message.get("type") == "user" else "bot"
    return {"type": kind, "text": str(message.get("text") or "")}


def _list_llms(spec: AgentSpec) -> set[str]:
    """The entries that the chart of the context asks."""
    calls = [effect["call_model"] for effect in (spec.effects or {}).values() if "call_model" in effect]
    return {spec.responses[0].llm, *(call["llm"] for call in calls)}


ROUTES = RouteGroup(
    name="tests of the context",
    endpoints=(
        Endpoint(
            method="POST",
            path="/api/connections/rag/test",
            role="chat",
            answer=try_search,
            body=SearchForm,
            summary="Search a document service of the agent.",
        ),
        Endpoint(
            method="POST",
            path="/api/connections/intent/test",
            role="chat",
            answer=try_intent,
            body=IntentForm,
            summary="Find the intent of a message.",
        ),
        Endpoint(
            method="POST",
            path="/api/connections/topic/test",
            role="chat",
            answer=try_topic,
            body=IntentForm,
            summary="Find the topic of a message.",
        ),
    ),
)
