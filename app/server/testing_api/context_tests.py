"""The tests of what finds the context of a turn: the document services, the intent and the topic.

Each asks what the agent itself has: a request names an entry by repeating its configuration, and cannot bring
another one. Intent and topic are found as in a turn, by the chart of `specs/sections/preparation.py`, in
conversations `test-...` of the log. A prompt or intents of one's own need the role `debug`: what models are
asked before a handler is chosen is the operator's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup, require_role
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.app.server.testing_api.collections import ask_service, clean_metadata
from toolchart.app.server.testing_api.entries import explain_no_entry, find_entry
from toolchart.app.server.testing_api.forms import IntentForm, SearchForm, TopicForm
from toolchart.app.server.testing_api.side_engines import open_side_engine
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.turn_context import (
    OTHER,
    SearchResult,
    build_search_variables,
    describe_context,
    make_search_function,
)
from toolchart.specs.chat_messages import read_history
from toolchart.specs.models import AgentSpec
from toolchart.specs.secrets import hide_secrets
from toolchart.specs.sections.context import IntentConfig, ModelChoice, TopicConfig
from toolchart.specs.sections.preparation import (
    DEFAULT_TOPIC_PROMPT,
    INTENT_PROMPT,
    SEARCH_FUNCTION,
    build_preparation_spec,
)
from toolchart.states.events import UNUSABLE_KINDS
from toolchart.states.flows.templates import render_template
from toolchart.tools.sources.effect_functions import effect

ROUTES = RouteGroup()

_UNREADABLE_KINDS = ("bad_output", "bad_response", *UNUSABLE_KINDS)
"""Failures of a topic that leave the user's message as the topic, as in a turn."""

# -- document services ---------------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/connections/rag/test", "chat", body=SearchForm)
async def try_service(request: Request) -> Response:
    """Tell whether a document service of the agent answers, and what it has.

    Raises:
        Refusal: 400; it does not, or the configuration is none of the agent's entries.
    """
    form, spec = await read_form(request, SearchForm), get_site(request).engine.spec
    begin_s = time.monotonic()
    if not form.config.get("url"):
        raise Refusal(400, "Missing required parameters: config.url", details={"success": False})
    config = {**form.config, **({"provider": form.provider} if form.provider else {})}
    name = find_entry(spec.rag_services, config)
    if name is None:
        text, kind = explain_no_entry("rag_services", spec.rag_services), "configuration"
        raise Refusal(400, text, details={"success": False, "errorType": kind})
    listing = await ask_service(name, spec.rag_services[name])
    if listing.problem:
        text = f"The service {name!r} does not answer: {listing.problem}"
        raise Refusal(400, text, details={"success": False, "errorType": "connection"})
    rows = [
        {"name": row.name, "count": row.count, "metadata": clean_metadata(row.metadata)}
        for row in listing.collections
    ]
    return JsonAnswer(
        {
            "success": True,
            "message": f"The service {name!r} answers and has {len(rows)} collections.",
            "provider": form.provider or spec.rag_services[name].provider or "",
            "type": "rag",
            "duration": round((time.monotonic() - begin_s) * 1000),
            "collectionCount": len(rows),
            "collections": rows,
        }
    )


# -- the intent ------------------------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/connections/intent/test", "chat", body=IntentForm)
async def try_intent(request: Request) -> Response:
    """Find the intent of a message among the intents of the page and the collections that it has chosen.

    Raises:
        Refusal: 400 where something is missing, 403 for other intents than the agent's without the role
            `debug`, 502 where the model cannot be asked.
    """
    form, site = await read_form(request, IntentForm), get_site(request)
    spec = site.engine.spec
    if not form.query.strip():
        raise Refusal(400, "Missing required parameters: query")
    choice = _choose_model(spec, form.provider_config, form.model)
    intents = _read_intents(request, spec, form)
    collections = _read_collections(spec, form.selected_collections)
    if not intents and not collections:
        raise Refusal(400, "There is nothing to choose from: add an intent, or select a collection.")
    options = {**intents, **collections, OTHER: "None of these."}
    config = IntentConfig(provider=choice, detection=intents)
    test_spec = spec.model_copy(update={"intent": config, "topic": None, "rag_services": {}})
    result = await _find_context(
        site,
        get_access(request),
        build_preparation_spec(test_spec, asks_topic=False),
        form.query,
        build_search_variables(form.query, {}, ()),
        _make_options_function(options),
    )
    _refuse_failure(result, "intent")
    context, _ = describe_context(result.results, {}, form.query)
    values = {"user_message": form.query, "search": {"options": _format_options(options)}}
    return JsonAnswer(
        {
            "query": form.query,
            "detected_intent": context.get("intent"),
            "available_intents": list(options),
            "intent_count": len(intents),
            "collection_count": len(collections),
            "provider": spec.llms[choice.llm].provider,
            "model": choice.model,
            "prompt_used": render_template(
                INTENT_PROMPT.replace("{{topic.topic_summary}}", "{{user_message}}"), values
            )[0],
            "conversation": result.conversation,
        }
    )


def _read_intents(request: Request, spec: AgentSpec, form: IntentForm) -> dict[str, str]:
    """The intents that the page tests: its own where it has any, else the agent's.

    Raises:
        Refusal: 403; they are others than the agent's, and the role `debug` is missing.
    """
    own = dict(spec.intent.detection) if spec.intent else {}
    section = form.working_config.get("intent")
    written = section.get("detection") if isinstance(section, Mapping) else None
    if not isinstance(written, Mapping):
        return own
    intents = {str(name): str(text) for name, text in written.items()}
    if intents != own:
        require_role(get_access(request), "debug")
    return intents


def _read_collections(spec: AgentSpec, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The collections that the page has chosen, each with its description.

    Raises:
        Refusal: 400; one is of a service that the agent does not have.
    """
    collections: dict[str, str] = {}
    for row in rows:
        service, name, metadata = row.get("service"), row.get("name"), row.get("metadata")
        if service not in spec.rag_services:
            raise Refusal(400, explain_no_entry("rag_services", spec.rag_services))
        text = metadata.get("description") if isinstance(metadata, Mapping) else None
        collections[f"{service}/{name}"] = str(text or name)
    return collections


def _format_options(options: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: {description}" for name, description in options.items())


def _make_options_function(options: Mapping[str, str]) -> Any:
    """The function of the chart that finds no documents, and offers these intents."""

    @effect(name=SEARCH_FUNCTION, idempotent=True, timeout_s=300)
    async def offer_options(topic: Any, message: str, collections: Any) -> SearchResult:
        return SearchResult(
            rag_results="none",
            service="",
            collection="",
            rag_context="",
            options=_format_options(options),
            names=list(options),
            problems=[],
        )

    return offer_options


# -- the topic -------------------------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/connections/topic/test", "chat", body=TopicForm)
async def try_topic(request: Request) -> Response:
    """Find the topic of each message of a conversation as a turn does, one after the other.

    Raises:
        Refusal: 400 where something is missing, 403 for another prompt than the agent's without the role
            `debug`, 502 where the model cannot be asked.
    """
    form, site = await read_form(request, TopicForm), get_site(request)
    spec = site.engine.spec
    choice = _choose_model(spec, form.provider_config, form.model)
    count = sum(_is_of_user(message) for message in form.messages)
    most = site.limits.test_messages
    if not 1 <= count <= most:
        raise Refusal(400, f"messages has 1 to {most} messages of the user, found {count}")
    config = TopicConfig(provider=choice, prompt=_read_prompt(request, spec, form))
    test_spec = spec.model_copy(update={"topic": config, "intent": None, "rag_services": {}})
    evolution: list[dict[str, Any]] = []
    for index, message in enumerate(form.messages):
        if _is_of_user(message):
            topic = evolution[-1]["detectedTopic"] if evolution else ""
            step = await _find_topic(request, test_spec, form.messages[:index], message, topic)
            evolution.append({"messageIndex": len(evolution), **step})
    return JsonAnswer(
        {
            "evolution": evolution,
            "provider": spec.llms[choice.llm].provider,
            "model": choice.model,
            "messageCount": len(form.messages),
            "userMessageCount": count,
        }
    )


def _read_prompt(request: Request, spec: AgentSpec, form: TopicForm) -> str | None:
    """The question for the topic: the agent's, or that of the page.

    Raises:
        Refusal: 403; it is another one than the agent's, and the role `debug` is missing.
    """
    own = spec.topic.prompt if spec.topic else None
    written = form.custom_prompt
    if not written or not written.strip() or written in (own, DEFAULT_TOPIC_PROMPT if own is None else own):
        return own
    require_role(get_access(request), "debug")
    return written


async def _find_topic(
    request: Request,
    spec: AgentSpec,
    earlier: Sequence[Mapping[str, Any]],
    message: Mapping[str, Any],
    topic: str,
) -> dict[str, Any]:
    """One step of the topics of a conversation, for a message and what came before it."""
    text = str(message.get("text") or "")
    history = read_history([_convert_message(row) for row in earlier])
    result = await _find_context(
        get_site(request),
        get_access(request),
        build_preparation_spec(spec, asks_topic=True, is_first=not earlier),
        text,
        build_search_variables(text, {"current_topic": topic}, history),
        make_search_function(spec),
    )
    _refuse_failure(result, "topic")
    topic_data = result.results.get("topic", {})
    status = str(topic_data.get("topic_status") or "new_topic")
    step = {"userMessage": text, "detectedTopic": str(topic_data.get("topic_summary") or text)}
    parent = {"parentTopic": topic} if topic and status == "continuation" else {}
    return {**step, **parent, "topicStatus": status}


def _is_of_user(message: Mapping[str, Any]) -> bool:
    return message.get("type") == "user" and bool(str(message.get("text") or "").strip())


def _convert_message(message: Mapping[str, Any]) -> dict[str, Any]:
    kind = "user" if message.get("type") == "user" else "bot"
    return {"type": kind, "text": str(message.get("text") or "")}


# -- both ------------------------------------------------------------------------------------------------


def _choose_model(spec: AgentSpec, config: Mapping[str, Any], model: str) -> ModelChoice:
    """The entry of the agent that a request describes, with a model of it.

    Raises:
        Refusal: 400; there is none such, or the request names no model.
    """
    if not isinstance(config.get("provider"), str) or not model.strip():
        raise Refusal(400, "Missing required parameters: provider_config with a provider, model")
    name = find_entry(spec.llms, config)
    if name is None:
        raise Refusal(400, explain_no_entry("llms", spec.llms))
    return ModelChoice(llm=name, model=model)


def _refuse_failure(result: Turn, name: str) -> None:
    """Refuse to answer a test whose model could not be asked.

    Raises:
        Refusal: 502.
    """
    error = result.result_errors.get(name) or result.error
    if error is not None and error.kind not in _UNREADABLE_KINDS:
        text = f"The model could not be asked for the {name}: {hide_secrets(error.message)}"
        raise Refusal(502, text, details={"errorType": error.kind})


async def _find_context(
    site: Site, access: Access, spec: AgentSpec, message: str, variables: Mapping[str, Any], function: Any
) -> Turn:
    """The turn in which the context was found, by the chart of a spec."""
    options = site.claim(access, f"test-{generate_conversation_id()}")
    options["variables"] = dict(variables)
    with site.turns.hold():
        async with open_side_engine(site, spec, _list_llms(spec), functions=[function]) as engine:
            return await engine.arun(message, **options)


def _list_llms(spec: AgentSpec) -> set[str]:
    """The entries that the chart of the context asks."""
    calls = [effect["call_model"] for effect in (spec.effects or {}).values() if "call_model" in effect]
    return {spec.responses[0].llm, *(call["llm"] for call in calls)}
