"""The page of a run: the chart with the visited path, and each record with its guards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer
from toolchart.app.server.conversations import reading
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.studio.drawings import draw_for_page
from toolchart.app.studio.pages.layout import show_page
from toolchart.engine.log.family import list_children
from toolchart.engine.log.reading.records import parse_line, read_conversation
from toolchart.engine.log.reading.summaries import summarize_conversation
from toolchart.engine.log.reading.visited_path import (
    find_active_states,
    find_configuration,
    load_recorded_chart,
)
from toolchart.engine.log.verify import verify_store
from toolchart.states.chart.document import Chart
from toolchart.states.core.configurations import CONFIGURATION_TYPES
from toolchart.states.errors import LogDamaged, ToolchartError
from toolchart.states.events import Forked
from toolchart.states.ports import Store

_CHART_MARKS = tuple(f'{{"type":"{name}"'.encode() for name in CONFIGURATION_TYPES)
"""What stands in the records that hold a chart."""


async def show_run(request: Request) -> Response:
    """Show a conversation as a run through its chart."""
    store, name = get_site(request).engine.store, str(request.path_params["conversation"])
    reading.require_conversation(store, name)
    values = await asyncio.to_thread(read_run, store, name)
    return show_page(request, "run.html", "/conversations", **values)


def read_run(store: Store, conversation: str) -> dict[str, Any]:
    """What the page shows at once of a conversation, also of a damaged one. Figures need all of its records,
    so the page asks for them afterwards."""
    try:
        summary, _ = summarize_conversation(store, conversation)
        children = list_children(store, conversation)
    except ToolchartError:
        summary, children = {"conversation": conversation, "state": "?", "parent": ""}, []
    drawing = draw_for_page(lambda: load_chart(store, conversation))
    return {"summary": summary, "children": children, **drawing}


async def verify(request: Request) -> Response:
    """Whether the hashes of all records hold."""
    store, name = get_site(request).engine.store, str(request.path_params["conversation"])
    reading.require_conversation(store, name)
    outcomes = await asyncio.to_thread(lambda: list(verify_store(store, [name])))
    problems = [str(outcome) for outcome in outcomes if isinstance(outcome, LogDamaged)]
    return JsonAnswer({"is_sound": not problems, "problems": problems})


async def list_steps(request: Request) -> Response:
    """The steps of a conversation in columns, as the page marks them on the chart."""
    store, name = get_site(request).engine.store, str(request.path_params["conversation"])
    reading.require_conversation(store, name)
    start = reading.parse_number(request.query_params, "start", 0, 2**40)
    return JsonAnswer(await asyncio.to_thread(read_steps, store, name, start))


def read_steps(store: Store, conversation: str, start: int) -> dict[str, list[Any]]:
    """Number, time, event, target, rows and active states of each record from `start` on, as far as they can
    be read."""
    steps = list(_read_until_damage(store, conversation, start))
    labels = {step.target for step in steps}
    try:
        active = find_active_states(load_chart(store, conversation), labels)
    except LogDamaged:
        active = {label: tuple(label.split("+")) for label in labels}
    return {
        "seq": [step.seq for step in steps],
        "at": [step.at for step in steps],
        "event": [step.event.type for step in steps],
        "target": [step.target for step in steps],
        "turn": [step.turn for step in steps],
        "fired": [[[row.source, row.row] for row in step.fired] for step in steps],
        "active": [active[step.target] for step in steps],
    }


class _EventName(msgspec.Struct):
    type: str


class _FiredRow(msgspec.Struct):
    source: str
    row: int


class _Step(msgspec.Struct):
    """As much of a record as the page marks; reading the rest of 10,000 records would take seconds."""

    seq: int
    at: str
    turn: int
    event: _EventName
    target: str
    fired: list[_FiredRow] = []


_decode_step = msgspec.json.Decoder(_Step).decode


def _read_until_damage(store: Store, conversation: str, start: int) -> Iterator[_Step]:
    for line in store.read_lines(conversation, start):
        try:
            yield _decode_step(line)
        except (msgspec.DecodeError, UnicodeError):
            return


def load_chart(store: Store, conversation: str) -> Chart:
    """The newest chart of a conversation. Only the records that hold charts are parsed.

    Raises:
        LogDamaged: it cannot be read.
    """
    lines = enumerate(store.read_lines(conversation))
    records = [
        parse_line(line, seq, conversation)
        for seq, line in lines
        if not seq or any(mark in line for mark in _CHART_MARKS)
    ]
    if records and records[0].event_type == Forked.TYPE:
        return load_recorded_chart(
            find_configuration(read_conversation(store, conversation, include_shared=True))
        )
    return load_recorded_chart(find_configuration(records))


ROUTES = RouteGroup(
    name="run page",
    endpoints=(
        Endpoint(
            method="GET",
            path="/conversations/{conversation}",
            role="read",
            answer=show_run,
            summary="The page of a run.",
            is_page=True,
            in_openapi=False,
        ),
        Endpoint(
            method="GET",
            path="/api/conversations/{conversation}/verify",
            role="read",
            answer=verify,
            summary="Check the hashes of all records.",
        ),
        Endpoint(
            method="GET",
            path="/api/conversations/{conversation}/steps",
            role="read",
            answer=list_steps,
            summary="The steps from `start` on in columns: number, time, event, target, rows, active states.",
        ),
    ),
)
