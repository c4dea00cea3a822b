"""A conversation as a page shows it first: its row in a list, what it waits for, its results and cost.

Everything is read from the records, and from the totals of turns that stand beside them. Nothing is derived:
no chart is compiled and no step is taken again, so a view costs the records that it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.engine.log.family import (
    ChildLink,
    KnownForks,
    list_child_links,
    list_children,
    read_fork_parent,
)
from toolchart.engine.log.fork import FORK_NOTE
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.reading.figures import read_total_usage
from toolchart.engine.reading.listing import ConversationSummary, summarize_conversation
from toolchart.engine.reading.results import read_results
from toolchart.engine.reading.waiting import Waiting, read_waiting
from toolchart.states.content import Value
from toolchart.states.core.encoding import encode
from toolchart.states.errors import NotFound, ToolchartError
from toolchart.states.events import Continued, Forked, Replied, ToolFinished, TurnStarted
from toolchart.states.messages import Usage
from toolchart.states.ports import Store


class ConversationView(ConversationSummary, frozen=True, kw_only=True):
    """A conversation as a page shows it first: its row in a list, and what it waits for and cost."""

    waiting: Waiting
    results: Mapping[str, Any]
    """The newest value of each result of the chart; a text is `{content: text}`."""
    total_usage: Usage
    """Tokens and cost of its model calls and of those of the agents that it runs."""
    children: tuple[str, ...]
    """The conversations of the agents that it runs, in the order in which they were asked for."""

    @property
    def cost(self) -> float | None:
        """The money that it cost with its children, in the currency of the price table; None where it is not
        known."""
        return self.total_usage.cost

    def to_dict(self) -> dict[str, Any]:
        """The view as JSON data; the server and the command line print the same."""
        row = {name: getattr(self, name) for name in ConversationSummary.__struct_fields__}
        return {
            **row,
            "waiting": self.waiting.to_dict(),
            "results": self.results,
            "total_usage": encode(self.total_usage),
            "cost": self.cost,
            "children": list(self.children),
        }


def read_view(store: Store, conversation: str) -> ConversationView:
    """A conversation as a page shows it first.

    Raises:
        NotFound: there is no such conversation.
        LogDamaged: a record cannot be read.
    """
    require_existing(store, conversation)
    summary = summarize_conversation(store, conversation)
    return ConversationView(
        **{name: getattr(summary, name) for name in ConversationSummary.__struct_fields__},
        waiting=read_waiting(store, conversation),
        results=read_results(store, conversation),
        total_usage=read_total_usage(store, conversation),
        children=tuple(list_children(store, conversation, skip_unreadable=True)),
    )


class ChildView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a conversation runs, as a page lists it."""

    conversation: str
    effect: int
    """The effect of the parent that asked for it."""
    item: int
    """Its place in the list that the effect works on."""
    state: str
    """`?` where it cannot be read."""
    records: int
    problem: str
    """Why it cannot be read; else empty."""


def read_children(store: Store, conversation: str) -> list[ChildView]:
    """The agents that a conversation runs, in the order in which they were asked for."""
    return [_read_child(store, link) for link in list_child_links(store, conversation, skip_unreadable=True)]


def _read_child(store: Store, link: ChildLink) -> ChildView:
    state, records, problem = "?", 0, ""
    try:
        summary = summarize_conversation(store, link.conversation)
        state, records = summary.state, summary.records
    except ToolchartError as error:
        problem = str(error)
    return ChildView(**msgspec.structs.asdict(link), state=state, records=records, problem=problem)


# -- forks -----------------------------------------------------------------------------------------


class RecordedChanges(Value, frozen=True, kw_only=True):
    """What a fork changed."""

    settings: Mapping[str, Any] = {}
    """The settings of the turn that differ from those of its parent, by the names that `ForkChanges` takes;
    None for an option that is not set any more."""
    system: str | None = None
    """The new system prompt; None where it is that of the parent."""
    results: tuple[str, ...] = ()
    """The ids of the calls whose results it gave."""
    arguments: tuple[str, ...] = ()
    """The ids of the calls whose arguments it gave."""


class ForkView(Value, frozen=True, kw_only=True):
    """One fork of a conversation, as a page lists it."""

    conversation: str
    parent: str
    """What it was forked from: the root of the tree, or another fork."""
    at: int
    """Number of the newest record that it shares with its parent."""
    began_at: str
    """When it was forked: RFC 3339, UTC."""
    newest_at: str
    """The time of its newest record."""
    state: str
    """`?` where it cannot be read."""
    records: int
    """Its own records, without those that it shares."""
    author: str
    """Who forked it; empty where nobody said so."""
    changes: RecordedChanges
    problem: str = ""
    """Why it cannot be read; else empty."""


class ForkTree(Value, frozen=True, kw_only=True):
    """A conversation and all forks around it."""

    root: str
    """The conversation that they come from in the end; it is no fork itself."""
    forks: tuple[ForkView, ...]
    """Its forks, their forks, and so on: parents before children, else the oldest first."""


def read_fork_tree(log: Store, known: KnownForks, conversation: str) -> ForkTree:
    """The forks of a conversation, and of what it was forked from.

    Args:
        log: what the reader may see of the log; other forks are left out.
        known: what is remembered of the whole log.

    Raises:
        NotFound: there is no such conversation.
    """
    require_existing(log, conversation)
    root = conversation
    while (parent := read_fork_parent(log, root)) and log.read_last_line(parent) is not None:
        root = parent
    members, forks = {root}, []
    for name, parent in known.list_newer(root):
        # It may have been deleted since, or be somebody else's.
        if parent in members and read_fork_parent(log, name) == parent:
            members.add(name)
            forks.append(_read_fork(log, name, parent))
    return ForkTree(root=root, forks=tuple(forks))


def _read_fork(log: Store, conversation: str, parent: str) -> ForkView:
    at, began_at, newest_at, state, records, author = 0, "", "", "?", 0, ""
    changes, problem = RecordedChanges(), ""
    try:
        first = parse_line(next(iter(log.read_lines(conversation))), 0, conversation)
        at, author = int(first.event["seq"]), str(first.event.get("author") or "")
        summary = summarize_conversation(log, conversation)
        began_at, newest_at, state = summary.at, summary.newest_at, summary.state
        records = summary.records
        changes = _read_changes(log, conversation, first)
    except ToolchartError as error:
        problem = str(error)
    return ForkView(
        conversation=conversation,
        parent=parent,
        at=at,
        began_at=began_at,
        newest_at=newest_at,
        state=state,
        records=records,
        author=author,
        changes=changes,
        problem=problem,
    )


def _read_changes(log: Store, conversation: str, first: ReadRecord) -> RecordedChanges:
    """What a fork changed, from its first records."""
    forked, settings = first.event, {}
    if forked.get("settings"):
        old = _find_settings(log, forked["parent"], forked["seq"])
        settings = _compare_settings(old, forked["settings"])
    results: list[str] = []
    arguments: list[str] = []
    for seq, line in enumerate(log.read_lines(conversation)):
        record = parse_line(line, seq, conversation)
        event = record.event
        if record.event_type == Replied.TYPE and event.get("changed_calls"):
            arguments += event["changed_calls"]
        elif record.event_type == ToolFinished.TYPE and FORK_NOTE in event.get("notes", ()):
            results.append(event["call_id"])
        elif record.event_type not in (Forked.TYPE, Continued.TYPE):
            break
    return RecordedChanges(
        settings=settings, system=forked.get("system"), results=tuple(results), arguments=tuple(arguments)
    )


_SETTINGS_MARKS = (TurnStarted.TYPE.encode(), Forked.TYPE.encode())


def _find_settings(log: Store, conversation: str, end: int) -> Mapping[str, Any]:
    """The settings in force after a record; empty where there are none yet."""
    settings: Mapping[str, Any] = {}
    for seq, line in zip(range(end + 1), log.read_lines(conversation), strict=False):
        # In the bytes first: most records of a long log need not be decoded for this.
        if not any(mark in line for mark in _SETTINGS_MARKS):
            continue
        event = parse_line(line, seq, conversation).event
        if event.get("type") == Forked.TYPE and not event.get("settings"):
            settings = _find_settings(log, event["parent"], event["seq"])
        elif event.get("type") in (TurnStarted.TYPE, Forked.TYPE):
            settings = event["settings"]
    return settings


def _compare_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that differ, by the names that a fork takes."""
    changed: dict[str, Any] = {}
    old_names, new_names = _flatten_settings(old), _flatten_settings(new)
    for name in sorted(old_names.keys() | new_names.keys()):
        if old_names.get(name) != new_names.get(name):
            changed[name] = new_names.get(name)
    return changed


def _flatten_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    limits, options = settings.get("limits") or {}, settings.get("options") or {}
    plain = {name: settings[name] for name in ("model", "tools", "strict") if name in settings}
    host = {"llm": settings["service"]} if "service" in settings else {}
    return {**plain, **host, **options, **{f"limits.{name}": value for name, value in limits.items()}}


def require_existing(store: Store, conversation: str) -> None:
    """Refuse to read a conversation that does not exist.

    Raises:
        NotFound: there is none.
    """
    if store.read_last_line(conversation) is None:
        raise NotFound(conversation)
