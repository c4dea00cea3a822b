"""`/v1/responses`: turns of conversations that the server keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.openai_api.chat_requests import ChatTurn
from toolchart.app.server.openai_api.errors import shape_error
from toolchart.app.server.openai_api.response_ids import ResponseName, read_response_id
from toolchart.app.server.openai_api.response_items import ResponseBuilder, describe_format, describe_tool
from toolchart.app.server.openai_api.response_requests import ResponseForm, read_response
from toolchart.app.server.openai_api.stored_responses import read_stored_response, require_newest
from toolchart.app.server.protocols.served_models import find_model
from toolchart.app.server.protocols.turns import Pieces, continue_turn, read_answers, start_turn
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.states.errors import ToolchartError

ROUTES = RouteGroup(shape_error=shape_error)


class _OpenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose turn has begun."""

    name: ResponseName
    pieces: Pieces


@ROUTES.endpoint("POST", "/v1/responses", "chat", body=ResponseForm)
async def create_response(request: Request) -> Response:
    """Run a turn of a conversation that the server keeps, in the form of OpenAI's responses."""
    form, site = await read_form(request, ResponseForm), get_site(request)
    opened = await _open_response(request, form, read_response(form))
    head = {
        "id": opened.name.id,
        "created_at": int(time.time()),
        "model": form.model,
        "previous_response_id": form.previous_response_id,
        "instructions": form.instructions,
        "tools": [describe_tool(tool) for tool in form.tools],
        "text": describe_format(form.text.format if form.text is not None else None),
    }
    builder = ResponseBuilder(head, site.client_tools.is_client_tool)
    if form.stream:
        return stream_answer(request, _stream_response(opened.pieces, builder))
    async with aclosing(opened.pieces) as pieces:
        async for piece in pieces:
            for _ in builder.take(piece):
                pass
    return JsonAnswer(builder.response)


async def _stream_response(pieces: Pieces, builder: ResponseBuilder) -> AsyncGenerator[ServerEvent, None]:
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                for event in builder.take(piece):
                    yield ServerEvent(event=event["type"], data=event)
    except (Refusal, ToolchartError) as error:
        for event in builder.fail(str(error)):
            yield ServerEvent(event=event["type"], data=event)
    yield ServerEvent(data="[DONE]")


async def _open_response(request: Request, form: ResponseForm, turn: ChatTurn) -> _OpenResponse:
    site, access = get_site(request), get_access(request)
    model = find_model(site.engine.spec, form.model)
    previous = read_response_id(form.previous_response_id) if form.previous_response_id else None
    if previous is not None:
        require_newest(site.engine, previous)
    if turn.answers:
        answers = read_answers(turn.answers, access)
        root = answers[0].item.root
        if previous is not None and previous.conversation != root:
            raise Refusal(400, "the answers belong to another conversation than previous_response_id")
        engine = site.client_tools.find_engine(root)
        name = _name_response(site, root, is_new_turn=False)
        pieces = await continue_turn(site, engine, answers, access.name, turn.output_type)
        return _OpenResponse(name=name, pieces=pieces)
    conversation = previous.conversation if previous is not None else generate_conversation_id()
    name = _name_response(site, conversation, is_new_turn=not site.engine.waits_for_person(conversation))
    options: StreamOptions = {**turn.options, "handler": model.handler, "conversation": conversation}
    if previous is not None:
        options.pop("history", None)
    engine = site.client_tools.get_engine(turn.tools)
    return _OpenResponse(name=name, pieces=await start_turn(site, engine, turn.message, **options))


def _name_response(site: Site, conversation: str, *, is_new_turn: bool) -> ResponseName:
    """The response that begins with the next record of a conversation."""
    loaded = load_conversation(site.engine.store, conversation)
    turn = loaded.snapshot.turn if loaded is not None else 0
    seq = loaded.next_seq if loaded is not None else 0
    return ResponseName(conversation=conversation, turn=turn + is_new_turn, seq=seq)


@ROUTES.endpoint("GET", "/v1/responses/{response}", "read")
async def show_response(request: Request) -> Response:
    """Show a response."""
    name = read_response_id(request.path_params["response"])
    return JsonAnswer(await asyncio.to_thread(read_stored_response, get_site(request), name))
