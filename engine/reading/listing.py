"""Summaries: one row for each conversation of a list, from its first records and its last one.

Nothing is derived for a list: what a conversation costs here does not grow with its length. The records
that a row is made of are checked against their hashes; those between are not read. Conditions on tool,
model, agent and text read its records, as far as they need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from toolchart.engine.log.family import find_parent, read_heading
from toolchart.engine.log.leases import describe_worker
from toolchart.engine.log.read_records import parse_line, read_line
from toolchart.engine.reading.search import (
    ORDERS,
    Candidate,
    SearchHit,
    count_unread,
    is_found,
    iterate_found,
    parse_search,
    parse_status,
    read_choices,
    read_hit,
    read_status,
)
from toolchart.engine.reading.steps import read_forked_model
from toolchart.states.content import Value
from toolchart.states.errors import LogDamaged, SpecError, suggest_name
from toolchart.states.events import Forked
from toolchart.states.ports import IndexQuery, Store

_FIRST_MESSAGE_LIMIT = 4
"""Number of first records in which to look for a user message."""


class ConversationSummary(Value, frozen=True, kw_only=True):
    """One row of a list of conversations."""

    conversation: str
    """Its id."""
    at: str
    """When it began: RFC 3339, UTC."""
    newest_at: str
    """The time of its newest record."""
    turns: int
    records: int
    state: str
    """Its current state; empty before its first turn."""
    message: str
    """The first words of the user; of a fork, where it comes from."""
    parent: str = ""
    """For a child: the conversation that runs it."""
    owner: str = ""
    """Whose it is: empty for nobody's. A child, and a fork that names none, has that of its parent."""
    author: str = ""
    """Who began it: sent its first message, or forked it. Empty where nobody said so."""
    tags: Mapping[str, str] = {}
    """What was attached to it when it began."""


class ListedConversation(ConversationSummary, frozen=True, kw_only=True):
    """A row of a list with how the conversation stands, and what a search found in it."""

    status: str
    """How its newest turn stands: `approval` and `answer` wait for a person; `open`, `failed`, `limit`,
    `cancelled`, `finished`, `new`, `unreadable`."""
    hit: SearchHit | None
    """Where it has the words of the search; None without a search, and where only its id has them."""


class UnreadableConversation(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation that a list cannot show."""

    conversation: str
    damaged: str = ""
    """What is damaged."""


def summarize_conversation(store: Store, conversation: str) -> ConversationSummary:
    """Summarize a conversation from its first records and its last one.

    Raises:
        LogDamaged: a record that the summary needs is not the one that was written. Others are not checked.
    """
    newest = store.read_last_line(conversation)
    if newest is None:
        raise LogDamaged("it has no records", conversation=conversation)
    last = read_line(newest[1], newest[0], None, conversation)
    at = message = parent = owner = author = ""
    tags: Mapping[str, str] = {}
    prev = None
    for seq, line in enumerate(store.read_lines(conversation)):
        record = read_line(line, seq, prev, conversation)
        prev = record.hash
        if not seq:
            at, owner, tags = record.at, record.event.get("owner") or "", record.event.get("tags") or {}
            link = find_parent(record)
            parent = str(link["conversation"]) if link is not None else ""
            if parent or record.event_type == Forked.TYPE:
                heading = read_heading(store, conversation)
                owner, tags = (heading.owner, heading.tags) if heading is not None else (owner, tags)
        if record.event_type == Forked.TYPE:
            message = f"(from record {record.event['seq']} of {record.event['parent']})"
            author = record.author
        if record.event_type == "turn_started":
            message, author = record.event.get("message", ""), author or record.author
            break
        if seq >= _FIRST_MESSAGE_LIMIT:
            break
    return ConversationSummary(
        conversation=conversation,
        at=at,
        newest_at=last.at,
        turns=last.turn,
        records=newest[0] + 1,
        state=last.target,
        message=message,
        parent=parent,
        owner=owner,
        author=author,
        tags=tags,
    )


MAX_LOOKED_AT = 2000
"""Conversations that are looked at for one page, so that a condition which few meet keeps nobody waiting. A
page that ends there, even an empty one, has a `next`."""


class ConversationPage(Value, frozen=True, kw_only=True):
    """A part of a list of conversations, the newest first."""

    conversations: tuple[ListedConversation | UnreadableConversation, ...]
    next: str | None
    """Where the next part begins: give it as `before`. None where there is none."""
    unread: int = 0
    """Conversations that a list by attention leaves out, because the search index does not have them yet."""


def read_page(
    store: Store,
    where: ConversationFilter,
    *,
    limit: int,
    before: str | None = None,
    with_children: bool = False,
    condition: Callable[[str], bool] | None = None,
    order: str = "newest",
) -> ConversationPage:
    """The newest conversations that meet all conditions.

    Args:
        before: the `next` of the page before.
        with_children: whether the agents that conversations run are listed too.
        condition: a further condition on the id, asked last.
        order: `newest`, or `attention`: those that wait for a person, those that failed, then all others.

    Raises:
        SpecError: `limit` is below 1; there is no such order or status; or nothing can be searched for.
    """
    if limit < 1:
        raise SpecError(f"limit is a whole number from 1, not {limit!r}")
    rows: list[ListedConversation | UnreadableConversation] = []
    query = build_query(where, order)
    candidates = iterate_candidates(store, query, before)
    unread = count_unread(store, query)
    for count, candidate in enumerate(candidates, 1):
        name = candidate.conversation
        row = _read_row(store, name, where, query, with_children) if candidate.is_found else None
        if row is not None and condition is not None and isinstance(row, ListedConversation):
            row = row if condition(name) else None
        if row is not None:
            rows.append(row)
        if len(rows) >= limit or count >= MAX_LOOKED_AT:
            has_more = next(candidates, None) is not None
            return ConversationPage(conversations=tuple(rows), next=name if has_more else None, unread=unread)
    return ConversationPage(conversations=tuple(rows), next=None, unread=unread)


def build_query(where: ConversationFilter, order: str = "newest") -> IndexQuery:
    """What conditions ask of the search index.

    Raises:
        SpecError: there is no such order or status; or nothing can be searched for.
    """
    if order not in ORDERS:
        raise SpecError(f"there is no order {order!r}", path="order", hint=suggest_name(order, ORDERS))
    return IndexQuery(
        terms=parse_search(where.search) if where.search is not None else (),
        statuses=parse_status(where.status) if where.status is not None else (),
        owner=where.owner,
        by_attention=order == "attention",
    )


def is_searched(query: IndexQuery) -> bool:
    """Whether the search index answers a query; else every conversation is looked at."""
    return bool(query.terms or query.statuses or query.by_attention)


def iterate_candidates(store: Store, query: IndexQuery, before: str | None = None) -> Iterator[Candidate]:
    """The conversations to look at, in the order of a query: all, or those that its search finds."""
    if is_searched(query):
        return iterate_found(store, query, before)
    return (Candidate(name, True) for name in store.iterate_newest_first(before))


def _read_row(
    store: Store, name: str, where: ConversationFilter, query: IndexQuery, with_children: bool
) -> ListedConversation | UnreadableConversation | None:
    """The row of a conversation; None where the conditions leave it out."""
    try:
        row = summarize_conversation(store, name)
        if row.parent and not with_children:
            return None
        if not (where.matches_row(row) and where.matches_records(store, name)):
            return None
        return complete_row(store, row, query)
    except LogDamaged as damage:
        # Whose it is cannot be read either, so it is not shown to whoever asks for one owner's.
        return UnreadableConversation(conversation=name, damaged=str(damage)) if where.owner is None else None


def complete_row(store: Store, row: ConversationSummary, query: IndexQuery) -> ListedConversation | None:
    """A row with how the conversation stands, and where it has the words of the search; None where its status
    is none of the query: the index may be older than the newest record.

    Raises:
        LogDamaged: a record cannot be read.
    """
    status = read_status(store, row.conversation)
    if query.statuses and status not in query.statuses:
        return None
    hit = read_hit(store, row.conversation, query.terms) if query.terms else None
    fields = {name: getattr(row, name) for name in ConversationSummary.__struct_fields__}
    return ListedConversation(**fields, status=status, hit=hit)


def explain_state(store: Store, where: ConversationFilter) -> str:
    """Why a list is empty whose condition names a state in which no conversation is, with the states that
    there are; else empty."""
    states = read_choices(store).states if where.state is not None else ()
    if where.state is None or where.state in states or not states:
        return ""
    names = ", ".join(states)
    return f"no conversation is in the state {where.state!r}; there are: {names}"


def find_workers(store: Store) -> dict[str, dict[str, Any]]:
    """Who works on which conversation now: `worker`, and since when in `worked_on_since`."""
    return {
        lease.conversation: {
            "worker": describe_worker(lease.worker),
            "worked_on_since": datetime.fromtimestamp(lease.since, UTC).isoformat(timespec="seconds"),
        }
        for lease in store.list_leases()
    }


# -- filters -------------------------------------------------------------------------------------


class ConversationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a conversation; all that are set must hold."""

    search: str | None = None
    """Each of these words is found in it, or its id begins with it; see `engine/reading/search.py`."""
    status: str | None = None
    """How its newest turn stands: a status of a row, or `waiting` for those that wait for a person."""
    state: str | None = None
    """Its current state."""
    since: datetime | None = None
    """Its newest record is from this time or later."""
    until: datetime | None = None
    """Its first record is from this time or earlier."""
    tool: str | None = None
    """The model called this tool."""
    model: str | None = None
    """This model was requested, or has answered."""
    agent: str | None = None
    """The name in the spec of its agent."""
    text: str | None = None
    """A message contains this text, ignoring case."""
    owner: str | None = None
    """It is this owner's."""
    tags: Mapping[str, str] = {}
    """It has all these tags."""

    def matches_row(self, row: ConversationSummary) -> bool:
        """Whether a summary meets the conditions on owner, tags, state and time."""
        if self.owner is not None and row.owner != self.owner:
            return False
        if any(row.tags.get(name) != value for name, value in self.tags.items()):
            return False
        if self.state is not None and row.state != self.state:
            return False
        if self.since is not None and _parse_time(row.newest_at) < self.since:
            return False
        return self.until is None or _parse_time(row.at) <= self.until

    def matches_records(self, store: Store, conversation: str) -> bool:
        """Whether the records meet the conditions on tool, model and text; stops reading once they do."""
        texts = {"tool": self.tool, "model": self.model, "agent": self.agent, "text": self.text}
        unmet = {name: value.lower() for name, value in texts.items() if value is not None}
        if not unmet:
            return True
        if "model" in unmet and unmet["model"] == read_forked_model(store, conversation).lower():
            del unmet["model"]
        for seq, line in enumerate(store.read_lines(conversation)):
            event = parse_line(line, seq, conversation).event
            for name in list(unmet):
                if any(_matches_value(name, unmet[name], value) for value in _EXTRACTORS[name](event)):
                    del unmet[name]
            if not unmet:
                return True
        return False


def select_conversations(store: Store, where: ConversationFilter | None = None) -> list[str]:
    """The roots that meet the conditions, the oldest first; children and forks are left out.

    Raises:
        LogDamaged: a record cannot be read.
    """
    return [
        name
        for name in store.list_conversations()
        if is_root(store, name) and (where is None or is_selected(store, name, where))
    ]


def is_root(store: Store, conversation: str) -> bool:
    """Whether a conversation is neither a child nor a fork.

    Raises:
        LogDamaged: its first record cannot be read.
    """
    first = next(iter(store.read_lines(conversation)), None)
    if first is None:
        return False
    record = parse_line(first, 0, conversation)
    return record.event_type != Forked.TYPE and not record.event.get("parent")


def is_selected(store: Store, conversation: str, where: ConversationFilter) -> bool:
    """Whether a conversation meets the conditions.

    Raises:
        LogDamaged: a record that a condition needs cannot be read.
    """
    if store.read_last_line(conversation) is None:
        return False
    row, query = summarize_conversation(store, conversation), build_query(where)
    if not (where.matches_row(row) and where.matches_records(store, conversation)):
        return False
    return not is_searched(query) or is_found(store, conversation, query)


def _matches_value(name: str, filter_value: str, value: str) -> bool:
    return filter_value in value.lower() if name == "text" else filter_value == value.lower()


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _find_tool_names(event: dict[str, Any]) -> Iterator[str]:
    for call in event.get("reply", {}).get("tool_calls", ()):
        yield call["name"]


def _find_model_names(event: dict[str, Any]) -> Iterator[str]:
    for part in ("settings", "reply"):
        model = event.get(part, {}).get("model") if isinstance(event.get(part), dict) else None
        if model:
            yield model


def _find_message_texts(event: dict[str, Any]) -> Iterator[str]:
    if event["type"] == "turn_started":
        yield event["message"]
        yield from (message["content"] for message in event.get("history", ()) if message.get("content"))
    elif event["type"] == "user_said":
        yield event["message"]
    elif event["type"] == "replied":
        yield event["reply"].get("content") or ""


def _find_agent_names(event: dict[str, Any]) -> Iterator[str]:
    spec = event.get("spec")
    if isinstance(spec, dict) and spec.get("name"):
        yield str(spec["name"])


_EXTRACTORS = {
    "tool": _find_tool_names,
    "model": _find_model_names,
    "agent": _find_agent_names,
    "text": _find_message_texts,
}
