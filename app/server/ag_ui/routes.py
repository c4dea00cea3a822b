"""`/ag-ui`: runs of the agent, and of one handler."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.ag_ui.run_events import RunEvents
from toolchart.app.server.ag_ui.run_requests import RunForm, RunRequest, read_run
from toolchart.app.server.answers import Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup, require_role
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.protocols.served_models import ServedModel, find_model, list_models
from toolchart.app.server.protocols.turns import Pieces, continue_turn, read_answers, start_turn
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.states.errors import SpecError, ToolchartError

ROUTES = RouteGroup()


@ROUTES.endpoint("POST", "/ag-ui", "chat", body=RunForm)
async def run_agent(request: Request) -> Response:
    """Run a turn of a thread, as events of AG-UI."""
    return await _run_model(request, list_models(get_site(request).engine.spec)[0])


@ROUTES.endpoint("POST", "/ag-ui/{model}", "chat", body=RunForm)
async def run_handler(request: Request) -> Response:
    """Run a turn of a thread with one handler, as events of AG-UI."""
    return await _run_model(request, find_model(get_site(request).engine.spec, request.path_params["model"]))


async def _run_model(request: Request, model: ServedModel) -> Response:
    form, site = await read_form(request, RunForm), get_site(request)
    loaded = load_conversation(site.engine.store, form.thread_id)
    run = read_run(form, is_new=loaded is None)
    pieces = await _open_run(site, get_access(request), run, model.handler)
    snapshot = loaded.snapshot if loaded is not None else None
    events = RunEvents(form.thread_id, form.run_id, snapshot, site.client_tools.is_client_tool)
    return stream_answer(request, _stream_run(pieces, events))


async def _open_run(site: Site, access: Access, run: RunRequest, handler: str | None) -> Pieces:
    if run.is_abandoned:
        return _cancel_turn(site, access, run.conversation)
    if run.answers:
        answers = read_answers(run.answers, access)
        if answers[0].item.root != run.conversation:
            raise Refusal(400, "the answers belong to another thread")
        engine = site.client_tools.find_engine(run.conversation)
        return await continue_turn(site, engine, answers, access.name)
    engine = site.client_tools.get_engine(run.tools)
    options: StreamOptions = {**run.options, "handler": handler, "conversation": run.conversation}
    return await start_turn(site, engine, run.message, **options)


async def _cancel_turn(site: Site, access: Access, conversation: str) -> Pieces:
    """End a turn whose question nobody answers."""
    require_role(access, "approve")
    result = await site.engine.acancel(conversation, f"given up by {access.name}")
    if result is None:
        raise SpecError("the turn runs elsewhere, and is told to stop")
    yield result


async def _stream_run(pieces: Pieces, events: RunEvents) -> AsyncGenerator[ServerEvent, None]:
    for event in events.begin():
        yield ServerEvent(data=event)
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                for event in events.take(piece):
                    yield ServerEvent(data=event)
    except (Refusal, ToolchartError) as error:
        code = error.details.get("code") if isinstance(error, Refusal) else None
        for event in events.fail(str(error), code or "error"):
            yield ServerEvent(data=event)
