"""The chat API of existing front ends: one message in, one JSON answer out, the history comes with it."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.server.testing_api.forms import ChatForm
from toolchart.engine.log.family import name_context
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import TurnResult
from toolchart.providers.hosts import find_host
from toolchart.providers.shared.host_client import find_api_key
from toolchart.specs.models import LLMConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import SpecError


async def chat(request: Request) -> Response:
    """Answer a message. Everything before it comes with the request; each answer is a conversation."""
    form, site = await read_form(request, ChatForm), get_site(request)
    if not isinstance(form.prompt, str) or not form.prompt.strip():
        raise Refusal(400, "Invalid request: prompt is required and must be a string")
    name, prompt = generate_conversation_id(), form.prompt
    variables = {"collections": _list_collections(form)} if form.selectedCollections else {}
    history = [_convert_message(message) for message in form.previousMessages]
    engine = site.engine
    task = site.live_turns.begin(
        name, lambda _: engine.arun(prompt, conversation=name, history=history, variables=variables)
    )
    result: TurnResult = await site.live_turns.wait(name, task, until_rest=True)
    if result.error is not None:
        details = {"message": result.error.message, "conversation": name}
        raise Refusal(500, "Internal server error", details=details)
    return JsonAnswer(
        {
            "response": result.content,
            "status": "success" if result.is_over else "waiting",
            "topic": _find_topic(engine, name) or form.topic or prompt,
            "service": result.service,
            "model": result.model,
            "conversation": name,
        }
    )


def _convert_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the front end; everything that is not the user's is the assistant's."""
    kind = "user" if message.get("type") == "user" else "bot"
    return {"type": kind, "text": str(message.get("text") or "")}


def _list_collections(form: ChatForm) -> list[str]:
    return [f"{row.get('service', '')}/{row.get('name', '')}" for row in form.selectedCollections]


def _find_topic(engine: Engine, conversation: str) -> str:
    """The topic that was found before the handler was chosen; empty where none was looked for."""
    try:
        topic = engine.describe_turn(name_context(conversation)).results.get("topic", {})
    except SpecError:
        return ""
    return str(topic.get("topic_summary") or "")


async def describe_interface(request: Request) -> Response:
    """What a front end loads at its start; never keys."""
    spec = get_site(request).engine.spec
    collections = [
        {"service": name, "name": collection}
        for name, service in spec.rag_services.items()
        for collection in service.collections
    ]
    llms = {name: {"provider": entry.provider, "model": entry.model} for name, entry in spec.llms.items()}
    status = {name: {"configured": is_configured(entry)} for name, entry in spec.llms.items()}
    has_working_hosts = any(row["configured"] for row in status.values())
    open_handlers = [index for index, handler in enumerate(spec.responses) if not handler.match]
    return JsonAnswer(
        {
            "collections": collections,
            "wrappers": [],
            "modelSelection": {},
            "llms": llms,
            "defaultHandlerIndex": open_handlers[-1] if open_handlers else None,
            "defaultTopicPrompt": "",
            "hasConfig": True,
            "isZeroConfig": False,
            "providerStatus": status,
            "hasWorkingProviders": has_working_hosts,
            "hasResponseHandlers": True,
            "chatReady": has_working_hosts,
        }
    )


def is_configured(config: LLMConfig) -> bool:
    """Whether an entry has the key that its host wants, as far as can be said without asking the host."""
    if config.base_url and not config.api_key:
        return True
    try:
        key = find_api_key(config, partial(resolve_environment, where="api_key"))
    except SpecError:
        return False
    return bool(key) or not find_host(config.provider).key_variables


ROUTES = RouteGroup(
    name="chat",
    endpoints=(
        Endpoint(
            method="POST",
            path="/chat/api",
            role="chat",
            answer=chat,
            body=ChatForm,
            summary="Answer a message that brings its history.",
        ),
        Endpoint(
            method="GET",
            path="/api/ui-config",
            role="read",
            answer=describe_interface,
            summary="What a front end loads at its start.",
        ),
    ),
)
