"""The page of a run: the chart with the visited path, and each record with its guards."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.conversations import reading
from toolchart.app.server.conversations.reading import find_named_conversation
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_log, get_site
from toolchart.app.studio.drawings import draw_for_page
from toolchart.app.studio.pages.layout import show_page
from toolchart.app.studio.sharing import build_shared_page, list_page_modules, read_origin, survey_content
from toolchart.engine.exchange.exports import EXPORT_FORMATS
from toolchart.engine.log.fork import SETTABLE_NAMES
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.reading.listing import summarize_conversation
from toolchart.engine.reading.overview import read_children
from toolchart.engine.reading.steps import ConfigurationReader, read_readable_steps, read_step_columns
from toolchart.engine.reading.visited_path import draw_conversation_path, find_active_states, read_chart
from toolchart.engine.reading.waiting import NOTHING_WAITS, read_waiting
from toolchart.states.core.encoding import encode
from toolchart.states.diagram.effect_kinds import find_effect_kind
from toolchart.states.effects import CallModel, compute_effect_digest
from toolchart.states.errors import LogDamaged, ToolchartError
from toolchart.states.messages import Request as ModelRequest
from toolchart.states.ports import Store

ROUTES = RouteGroup()


@ROUTES.page("/conversations/{conversation}")
async def show_run(request: Request) -> Response:
    """Show a conversation as a run through its chart."""
    store, name = get_log(request), find_named_conversation(request)
    values = await asyncio.to_thread(read_run, store, name, _get_reader(request))
    spec = get_site(request).engine.spec
    return show_page(
        request,
        "run.html",
        "/conversations",
        formats=EXPORT_FORMATS,
        llms=list(spec.llms),
        settings=SETTABLE_NAMES,
        modules=list(list_page_modules()),
        shared=False,
        **values,
    )


def _get_reader(request: Request) -> ConfigurationReader:
    """What the server has read of charts: of a long run no record is read twice for them."""
    reader: ConfigurationReader = get_site(request).running.setdefault(
        "recorded configurations", ConfigurationReader()
    )
    return reader


def read_run(store: Store, conversation: str, reader: ConfigurationReader | None = None) -> dict[str, Any]:
    """What the page shows at once of a conversation, also of a damaged one. Figures need all of its records,
    so the page asks for them afterwards."""
    origin, waiting = None, NOTHING_WAITS
    try:
        summary: Any = summarize_conversation(store, conversation)
        origin, waiting = read_origin(store, conversation), read_waiting(store, conversation)
    except ToolchartError:
        summary = {
            "conversation": conversation,
            "state": "?",
            "parent": "",
            "owner": "",
            "author": "",
            "records": 0,
        }
    drawing = draw_for_page(lambda: read_chart(store, conversation, reader))
    waits = {"approvals": msgspec.to_builtins(waiting.approvals), "questions": waiting.questions}
    return {"summary": summary, "origin": origin, "open_requests": waits, **drawing}


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/steps", "read")
async def list_steps(request: Request) -> Response:
    """At most `limit` steps from `start` on in columns: times, events, states, effects, calls, tokens."""
    store, name = get_log(request), find_named_conversation(request)
    start = reading.parse_number(request.query_params, "start", 0, 2**40)
    most = get_site(request).limits.record_page
    limit = max(1, reading.parse_number(request.query_params, "limit", most, most))
    reader = _get_reader(request)
    return JsonAnswer(await asyncio.to_thread(read_steps, store, name, start, limit, reader))


def read_steps(
    store: Store, conversation: str, start: int, limit: int, reader: ConfigurationReader | None = None
) -> dict[str, Any]:
    """Steps in columns as `StepColumns` says. Beside them, by place in `targets`: the active states with
    their ancestors; and by name of an effect: its kind, for its colour."""
    columns = read_step_columns(store, conversation, start, limit)
    names = {ask[2] for ask in columns.asks}
    try:
        chart = read_chart(store, conversation, reader)
        active = find_active_states(chart, columns.targets)
        kinds = {name: find_effect_kind(name, chart.vocabulary) for name in names}
    except LogDamaged:
        active = {label: tuple(label.split("+")) for label in columns.targets}
        kinds = {name: find_effect_kind(name) for name in names}
    return {
        **msgspec.to_builtins(columns),
        "active": [active[label] for label in columns.targets],
        "kinds": kinds,
    }


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@ROUTES.page("/conversations/{conversation}/share")
async def show_share(request: Request) -> Response:
    """Say what a file of the run would show, and offer it."""
    store, name = get_log(request), find_named_conversation(request)
    content = await asyncio.to_thread(survey_content, store, name)
    return show_page(request, "share.html", "/conversations", conversation=name, content=content)


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/share", "read")
async def share(request: Request) -> Response:
    """The run as one page that opens without a server; `redact` names patterns, with commas."""
    store, name = get_log(request), find_named_conversation(request)
    patterns = [text for text in request.query_params.get("redact", "").split(",") if text]
    page = await asyncio.to_thread(build_shared_page, store, name, patterns)
    headers = {"Content-Disposition": f'attachment; filename="{_UNSAFE.sub("_", name)}.html"'}
    return Response(page, media_type="text/html", headers=headers)


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/children", "read")
async def list_run_children(request: Request) -> Response:
    """The sub-agents that it runs, each with the effect that asked for it."""
    store, name = get_log(request), find_named_conversation(request)
    return JsonAnswer({"children": msgspec.to_builtins(await asyncio.to_thread(read_children, store, name))})


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/visits", "read")
async def count_visits(request: Request) -> Response:
    """How often each state and row of its chart was visited, and the seconds in each state."""
    store, name = get_log(request), find_named_conversation(request)
    _, overlay = await asyncio.to_thread(draw_conversation_path, store, name)
    edges = [[source, row, count] for (source, row), count in overlay.edges.items()]
    return JsonAnswer({"visits": overlay.states, "seconds": overlay.seconds, "edges": edges})


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/open", "read")
async def list_open_effects(request: Request) -> Response:
    """The effects that its newest step leaves open."""
    store, name = get_log(request), find_named_conversation(request)
    loaded_conversation = await asyncio.to_thread(load_conversation, store, name)
    effects = loaded_conversation.snapshot.open_effects if loaded_conversation is not None else ()
    rows = [{"id": item.id, "effect": item.name, "state": item.state} for item in effects]
    return JsonAnswer(
        {"open": rows, "next": loaded_conversation.next_seq if loaded_conversation is not None else 0}
    )


@ROUTES.endpoint("GET", "/api/conversations/{conversation}/requests", "read")
async def show_requests(request: Request) -> Response:
    """The whole requests to models that record `seq` asks for, derived and compared with their recorded
    digests."""
    store, name = get_log(request), find_named_conversation(request)
    seq = reading.parse_number(request.query_params, "seq", 0, 2**40)
    start = reading.parse_number(request.query_params, "from", 0, 2**40)
    return JsonAnswer({"requests": await asyncio.to_thread(derive_requests, store, name, seq, start)})


def derive_requests(store: Store, conversation: str, seq: int, start: int = 0) -> list[dict[str, Any]]:
    """The model requests that record `seq` asks for, whole: effect, host (`llms` entry), digest and request;
    of its messages those from number `start` on.

    The log holds what each request is made of, and its digest. So requests are derived, and compared with it.

    Raises:
        LogDamaged: a record or a checkpoint is not the one that was written.
        ReplayMismatch: a request differs from the recorded digest.
        UnknownSemantics: another release wrote these records.
    """
    ids = [ask.id for step in islice(read_readable_steps(store, conversation, seq), 1) for ask in step.asks]
    loaded_conversation = load_conversation(store, conversation, seq) if ids else None
    if loaded_conversation is None:
        return []
    settings, effects = loaded_conversation.snapshot.settings, loaded_conversation.snapshot.open_effects
    return [
        {
            "effect": effect.id,
            "host": effect.host or (settings.service if settings else ""),
            "digest": compute_effect_digest(effect),
            "request": _encode_request(effect.request, start),
        }
        for effect in effects
        if isinstance(effect, CallModel) and effect.id in ids
    ]


def _encode_request(request: ModelRequest, start: int) -> dict[str, Any]:
    lists = {"messages": tuple(request.messages)[start:], "tools": tuple(request.tools)}
    data: dict[str, Any] = encode(replace(request, options=dict(request.options), **lists))
    return data
