"""Reads conversations for answers: lists with filters and pages, records, messages; all in threads."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request

from toolchart.app.server.answers import Refusal
from toolchart.app.server.site import get_access, get_site
from toolchart.engine.reading.figures import ConversationFigures, read_turns
from toolchart.engine.reading.listing import (
    ConversationFilter,
    ConversationSummary,
    UnreadableConversation,
    explain_state,
    read_page,
)
from toolchart.engine.reading.messages import read_transcript
from toolchart.engine.reading.overview import read_view
from toolchart.engine.reading.search import read_choices
from toolchart.states.core.encoding import encode
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows."""

    where: ConversationFilter
    limit: int = 50
    before: str | None = None
    with_children: bool = False
    with_figures: bool = False
    with_choices: bool = False
    order: str = "newest"


def parse_list_query(query: QueryParams, most: int) -> ListQuery:
    """The query of a request, for a page of at most so many conversations.

    Raises:
        Refusal: 400; a value cannot be read.
    """
    where = ConversationFilter(
        search=(query.get("search") or "").strip("\r\n") or None,
        status=query.get("status") or None,
        state=query.get("state") or None,
        tool=query.get("tool") or None,
        model=query.get("model") or None,
        agent=query.get("agent") or None,
        text=query.get("text") or None,
        since=_parse_time("since", query.get("since")),
        until=_parse_time("until", query.get("until")),
        owner=query.get("owner") or None,
        tags=_parse_tags(query.getlist("tag")),
    )
    return ListQuery(
        where=where,
        limit=parse_number(query, "limit", 50, most),
        before=query.get("before") or None,
        with_children=query.get("children") == "true",
        with_figures=query.get("figures") == "true",
        with_choices=query.get("choices") == "true",
        order=query.get("order") or "newest",
    )


def _parse_tags(texts: list[str]) -> dict[str, str]:
    """The tags of `tag=NAME=VALUE`, which may stand several times.

    Raises:
        Refusal: 400; one has another form.
    """
    tags: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        tags[name] = value
    if not all("=" in text for text in texts) or "" in tags:
        raise Refusal(400, "a tag has the form NAME=VALUE")
    return tags


def parse_number(query: QueryParams, name: str, default: int, most: int) -> int:
    """A number of a query, at most `most`.

    Raises:
        Refusal: 400; it is none.
    """
    text = query.get(name)
    if text is None:
        return min(default, most)
    if not (text.isascii() and text.isdecimal()) or len(text) > 12:
        raise Refusal(400, f"{name} is not a number: {text[:40]!r}")
    return min(int(text), most)


def _parse_time(name: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise Refusal(400, f"{name} is not a time with a zone, such as 2026-11-01T00:00:00Z")
    return time


def list_conversations(store: Store, query: ListQuery) -> dict[str, Any]:
    """One page of conversations, and the `before` of the next page."""
    page = read_page(
        store,
        query.where,
        limit=query.limit,
        before=query.before,
        with_children=query.with_children,
        order=query.order,
    )
    rows = [_describe_row(store, row, with_figures=query.with_figures) for row in page.conversations]
    choices = {"choices": read_choices(store).to_dict()} if query.with_choices else {}
    notice = "" if rows or page.next or query.before else explain_state(store, query.where)
    return {**page.to_dict(), "conversations": rows, **choices, **({"notice": notice} if notice else {})}


def _describe_row(
    store: Store, row: ConversationSummary | UnreadableConversation, *, with_figures: bool
) -> dict[str, Any]:
    if not with_figures or isinstance(row, UnreadableConversation):
        return row.to_dict()
    try:
        return {**row.to_dict(), **read_usage(store, row.conversation)}
    except LogDamaged as damage:
        return UnreadableConversation(conversation=row.conversation, damaged=str(damage)).to_dict()


def read_usage(store: Store, conversation: str) -> dict[str, Any]:
    """Models, iterations, tools, tokens, cost and seconds of a conversation."""
    figures = ConversationFigures(turns=tuple(read_turns(store, conversation)))
    calls = [call for turn in figures.turns for call in turn.tool_calls]
    return {
        "models": list(figures.models),
        "model_calls": sum(len(turn.model_calls) for turn in figures.turns),
        "tools": list(dict.fromkeys(call.tool for call in calls)),
        "tool_calls": len(calls),
        "usage": encode(figures.usage),
        "seconds": figures.seconds,
        "has_failed": any(turn.has_failed for turn in figures.turns[-1:]),
    }


def read_overview(store: Store, conversation: str) -> dict[str, Any]:
    """A conversation as `Conversation.read` gives it, with its figures."""
    return {**read_view(store, conversation).to_dict(), **read_usage(store, conversation)}


def read_records(store: Store, conversation: str, start: int, limit: int) -> bytes:
    """Records as JSON, their stored bytes."""
    lines = list(islice(store.read_lines(conversation, start), limit))
    following = start + len(lines) if len(lines) == limit else None
    head = b'{"next":' + (str(following).encode() if following is not None else b"null")
    return head + b',"records":[' + b",".join(lines) + b"]}"


def read_messages(store: Store, conversation: str) -> dict[str, Any]:
    """The messages of a conversation as the model saw them, those shared with a parent of a fork first."""
    transcript = read_transcript(store, conversation)
    return {"system": transcript.system, "messages": [encode(message) for message in transcript.messages]}


# -- the conversation of a request ---------------------------------------------------------------


def find_named_conversation(request: Request) -> str:
    """The conversation of the path.

    Raises:
        Refusal: 404; there is none for whoever sends the request.
    """
    name = str(request.path_params["conversation"])
    get_site(request).require_conversation(get_access(request), name)
    return name


def must_wait(request: Request) -> bool:
    """Whether the answer comes when the turn rests; with `?wait=false` as soon as its first record is
    durable."""
    return request.query_params.get("wait") != "false"
