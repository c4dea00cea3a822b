"""The endpoints of conversations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.conversations import reading
from toolchart.app.server.conversations.forms import (
    AnswerForm,
    CancelForm,
    DecisionForm,
    MessageForm,
    NewConversation,
    check_new_id,
    decode_attachments,
)
from toolchart.app.server.conversations.reading import find_named_conversation, must_wait
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.event_stream import stream_events
from toolchart.app.server.protocols.contents import read_own_history
from toolchart.app.server.protocols.turns import find_begun_turn, find_said, run_message
from toolchart.app.server.repeated_requests import name_by_key
from toolchart.app.server.site import Site, get_access, get_log, get_site
from toolchart.engine.log.family import find_root
from toolchart.engine.reading.search import catch_up
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import DeltaObserver, StreamOptions, TurnOptions
from toolchart.engine.runtime.result import Turn
from toolchart.engine.turns.recovery import RecoveredTurn
from toolchart.specs.chat_messages import require_words
from toolchart.states.errors import NotFound
from toolchart.states.events import Decided
from toolchart.tools.whole_definition import name_by_digest

log = logging.getLogger("toolchart.server")


@asynccontextmanager
async def run_beside(site: Site) -> AsyncIterator[None]:
    """Look for records of other processes, go on with turns that nobody goes on with, and write what the
    search index lacks."""

    find_engine = site.client_tools.find_engine_or_own
    every_s = site.limits.recovery_s
    watch = site.engine.awatch_unfinished(_report_recovered, every_s=every_s, find_engine=find_engine)
    task = asyncio.create_task(watch)
    is_ending = asyncio.Event()
    indexing = asyncio.create_task(_fill_index(site, is_ending))
    try:
        async with site.feeds.poll():
            yield
    finally:
        task.cancel()
        is_ending.set()
        await asyncio.gather(task, indexing, return_exceptions=True)


_INDEX_S = 0.25
"""Seconds for which the search index is written at once, and then not: turns have the log meanwhile."""


async def _fill_index(site: Site, is_ending: asyncio.Event) -> None:
    """Write what the search index lacks when the server starts; later, whoever searches does."""
    left = -1
    while not is_ending.is_set():
        before = left
        left = await asyncio.to_thread(catch_up, site.engine.store, seconds=_INDEX_S)
        if not left or left == before:  # nothing is lacking, or nobody may write it
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(is_ending.wait(), _INDEX_S)


def _report_recovered(turn: RecoveredTurn) -> None:
    if turn.error is not None:
        log.warning("conversation %s does not go on: %s", turn.conversation, turn.error)


ROUTES = RouteGroup(run_beside)

_ONE = "/api/conversations/{conversation}"


# -- turns ---------------------------------------------------------------------------------------


@ROUTES.endpoint("POST", "/api/conversations", "chat", body=NewConversation)
async def start_conversation(request: Request) -> Response:
    """Begin a conversation with a message."""
    form, site = await read_form(request, NewConversation), get_site(request)
    require_words(form.message, form.attachments)
    keyed = name_by_key(request) if form.conversation is None else None
    name = check_new_id(form.conversation) or keyed or generate_conversation_id()
    claimed = site.claim(get_access(request), name, form.owner)
    if keyed is not None:
        return await _begin_once(request, name, form, claimed)
    if site.engine.store.read_last_line(name) is not None:
        raise Refusal(409, f"there is a conversation {name!r} already; send messages to it instead")
    return await _run_message(request, name, form, form.history, {**claimed, "tags": form.tags})


async def _begin_once(request: Request, name: str, form: NewConversation, claimed: StreamOptions) -> Response:
    """Begin the conversation of a request with a key, or find the turn that it has begun.

    Raises:
        Refusal: 422; another request has begun the conversation.
    """
    site, turn_options = get_site(request), _read_turn_options(form, form.history)
    options = cast("StreamOptions", {**turn_options, **claimed, "tags": form.tags})
    find_turn = await find_begun_turn(site, site.engine, name, form.message, options)
    return await _answer_turn(request, name, lambda on_delta: find_turn(on_delta=on_delta), begins_turn=True)


@ROUTES.endpoint("POST", f"{_ONE}/messages", "chat", body=MessageForm)
async def send_message(request: Request) -> Response:
    """Send a message: a turn begins, or the open one gets it (202)."""
    form = await read_form(request, MessageForm)
    require_words(form.message, form.attachments)
    site, name = get_site(request), find_named_conversation(request)
    claimed = site.claim(get_access(request), name)
    engine = site.client_tools.choose_engine(name)
    options = cast("StreamOptions", {**_read_turn_options(form, []), **claimed})
    said = await find_said(engine, name, form.message, options)
    if said is not None and said.turn.is_over:
        return _answer_result(name, said.turn)
    if said is not None:
        await site.live_turns.join(name)
    elif site.live_turns.is_running(name):
        author, key = claimed.get("author"), claimed.get("key")
        attachments = decode_attachments(form.attachments)
        conversation = engine.conversation(name)
        await conversation.asay(form.message, attachments=attachments, author=author, key=key)
        return JsonAnswer({"conversation": name, "as": "user_said"}, status_code=202)
    return await _run_message(request, name, form, [], claimed)


async def _run_message(
    request: Request, name: str, form: MessageForm, history: list[dict[str, Any]], heading: StreamOptions
) -> Response:
    options: TurnOptions = {**_read_turn_options(form, history), **heading}
    site = get_site(request)
    engine = site.client_tools.choose_engine(name)

    async def run_turn(on_delta: DeltaObserver) -> Turn:
        return await run_message(site, engine, form.message, **{**options, "on_delta": on_delta})

    return await _answer_turn(request, name, run_turn, begins_turn=True)


def _read_turn_options(form: MessageForm, history: list[dict[str, Any]]) -> TurnOptions:
    return {
        "handler": form.handler,
        "variables": form.variables,
        "history": read_own_history(history),
        "llm": form.llm,
        "model": form.model,
        "attachments": decode_attachments(form.attachments),
    }


async def _answer_turn(request: Request, name: str, run_turn: Any, *, begins_turn: bool = False) -> Response:
    """Begin a turn and answer with its result; with `?wait=false` as soon as its first record is durable.

    Args:
        begins_turn: whether the request can be carried out again where the turn fails.
    """
    turns = get_site(request).live_turns
    task = turns.begin(name, run_turn)
    result = await turns.wait(name, task, until_rest=must_wait(request))
    answer = _answer_result(name, result)
    answer.is_failure = begins_turn and result is not None and result.is_over and result.error is not None
    return answer


@ROUTES.endpoint("POST", f"{_ONE}/decisions", "approve", body=DecisionForm)
async def decide(request: Request) -> Response:
    """Approve or reject a call that waits, or approve it with other arguments."""
    form = await read_form(request, DecisionForm)
    name = find_named_conversation(request)
    decision = Decided(
        call_id=form.call_id,
        approved=form.approved,
        reason=form.reason,
        arguments=form.arguments,
        by=get_access(request).name,
        definition=name_by_digest(form.definition) if form.definition is not None else None,
    )
    turns = get_site(request).live_turns
    return _answer_result(name, await turns.decide(name, decision, until_rest=must_wait(request)))


@ROUTES.endpoint("POST", f"{_ONE}/answers", "approve", body=AnswerForm)
async def answer_question(request: Request) -> Response:
    """Answer a question of the chart."""
    form = await read_form(request, AnswerForm)
    site, name, by = get_site(request), find_named_conversation(request), get_access(request).name
    root = find_root(site.engine.store, name)

    async def give_answer(on_delta: DeltaObserver | None = None) -> Turn | None:
        engine = site.client_tools.find_engine(root)
        return await engine.conversation(name).aanswer(form.content, question=form.question, by=by)

    if site.engine.conversation(root).is_running:
        return _answer_result(name, await give_answer())
    return await _answer_turn(request, root, give_answer)


@ROUTES.endpoint("POST", f"{_ONE}/cancel", "chat", body=CancelForm)
async def cancel(request: Request) -> Response:
    """Stop the turn."""
    form = await read_form(request, CancelForm)
    name, by = find_named_conversation(request), get_access(request).name
    reason = form.reason or f"cancelled by {by}"
    conversation = get_site(request).engine.conversation(name)
    return _answer_result(name, await conversation.acancel(reason, author=by))


@ROUTES.endpoint("POST", f"{_ONE}/resume", "chat")
async def resume(request: Request) -> Response:
    """Go on with a turn that was left open."""
    name = find_named_conversation(request)
    conversation = get_site(request).client_tools.find_engine(name).conversation(name)
    return await _answer_turn(request, name, lambda on_delta: conversation.aresume(on_delta=on_delta))


def _answer_result(name: str, result: Turn | None) -> JsonAnswer:
    if result is None:
        return JsonAnswer({"conversation": name}, status_code=202)
    row = result.to_dict()
    if result.waiting_messages and not result.is_over:  # kept for the turn that waits, not answered yet
        return JsonAnswer({**row, "as": "user_said"}, status_code=202)
    return JsonAnswer(row)


# -- reading -------------------------------------------------------------------------------------


@ROUTES.endpoint("GET", "/api/conversations", "read")
async def list_conversations(request: Request) -> Response:
    """List conversations, with a search, filters and pages; with `choices=true` what one can choose from."""
    query = reading.parse_list_query(request.query_params, get_site(request).limits.page)
    return JsonAnswer(await asyncio.to_thread(reading.list_conversations, get_log(request), query))


@ROUTES.endpoint("GET", _ONE, "read")
async def read_conversation(request: Request) -> Response:
    """Read a conversation: figures, state, and what its newest turn waits for."""
    site, name = get_site(request), find_named_conversation(request)
    overview = await asyncio.to_thread(reading.read_overview, get_log(request), name)
    result = await asyncio.to_thread(_describe_newest_turn, site.engine, name)
    is_running = site.live_turns.is_running(find_root(site.engine.store, name))
    newest = None if result is None else result.to_dict()
    return JsonAnswer({**overview, "is_running": is_running, "result": newest})


def _describe_newest_turn(engine: Engine, name: str) -> Turn | None:
    try:
        return engine.conversation(name).read_turn()
    except NotFound:  # it has no turn yet
        return None


@ROUTES.endpoint("GET", f"{_ONE}/records", "read")
async def read_records(request: Request) -> Response:
    """Read records as they are stored, from `start`, at most `limit`."""
    store, name = get_log(request), find_named_conversation(request)
    start = reading.parse_number(request.query_params, "start", 0, 2**40)
    most = get_site(request).limits.record_page
    limit = max(1, reading.parse_number(request.query_params, "limit", 1000, most))
    body = await asyncio.to_thread(reading.read_records, store, name, start, limit)
    return Response(body, media_type="application/json")


@ROUTES.endpoint("GET", f"{_ONE}/messages", "read")
async def read_messages(request: Request) -> Response:
    """Read the messages as the model saw them."""
    store, name = get_log(request), find_named_conversation(request)
    return JsonAnswer(await asyncio.to_thread(reading.read_messages, store, name))


@ROUTES.endpoint("GET", f"{_ONE}/events", "read")
async def follow_events(request: Request) -> Response:
    """Follow a conversation by server-sent events; `Last-Event-ID` goes on after that record.

    They are records as they are written, deltas of replies as they stream, and results of turns.
    """
    name = find_named_conversation(request)
    last = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    start = int(last) + 1 if last.isascii() and last.isdecimal() and len(last) < 12 else 0
    return stream_events(request, get_site(request).feeds.follow(name, start))
