"""The endpoints below `/v1`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.openai_api.chat_answers import build_completion, stream_completion
from toolchart.app.server.openai_api.chat_requests import ChatTurn, CompletionForm, read_chat
from toolchart.app.server.openai_api.errors import shape_error
from toolchart.app.server.protocols.served_models import find_model, list_models
from toolchart.app.server.protocols.turns import Pieces, continue_turn, finish_turn, read_answers, start_turn
from toolchart.app.server.site import get_access, get_site
from toolchart.engine.runtime.parts import StreamOptions

ROUTES = RouteGroup(shape_error=shape_error)


@ROUTES.endpoint("GET", "/v1/models", "read")
async def list_served_models(request: Request) -> Response:
    """List the agent and its handlers as models."""
    models = [_describe_model(model.name) for model in list_models(get_site(request).engine.spec)]
    return JsonAnswer({"object": "list", "data": models})


@ROUTES.endpoint("GET", "/v1/models/{model}", "read")
async def show_model(request: Request) -> Response:
    """Show one model."""
    model = find_model(get_site(request).engine.spec, request.path_params["model"])
    return JsonAnswer(_describe_model(model.name))


def _describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolchart"}


@ROUTES.endpoint("POST", "/v1/chat/completions", "chat", body=CompletionForm)
async def complete_chat(request: Request) -> Response:
    """Run a turn, in the form of OpenAI's chat completions."""
    form = await read_form(request, CompletionForm)
    pieces = await _open_chat(request, form, read_chat(form))
    if not form.stream:
        return JsonAnswer(build_completion(await finish_turn(pieces), form.model))
    include_usage = form.stream_options is not None and form.stream_options.include_usage
    return stream_answer(request, stream_completion(pieces, form.model, include_usage=include_usage))


async def _open_chat(request: Request, form: CompletionForm, turn: ChatTurn) -> Pieces:
    site, access = get_site(request), get_access(request)
    model = find_model(site.engine.spec, form.model)
    if turn.answers:
        answers = read_answers(turn.answers, access)
        engine = site.client_tools.find_engine(answers[0].item.root)
        return await continue_turn(site, engine, answers, access.name, turn.output_type)
    if turn.conversation is not None:
        if site.engine.store.read_last_line(turn.conversation) is None:
            raise Refusal(404, f"there is no conversation {turn.conversation!r}")
        engine = site.client_tools.find_engine(turn.conversation)
        own: StreamOptions = {**turn.options, "handler": model.handler, "conversation": turn.conversation}
        return await start_turn(site, engine, turn.message, **own)
    engine = site.client_tools.get_engine(turn.tools)
    options: StreamOptions = {**turn.options, "handler": model.handler}
    return await start_turn(site, engine, turn.message, **options)
