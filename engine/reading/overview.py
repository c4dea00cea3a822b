"""A conversation as a page shows it first: its row in a list, what it waits for, its results and cost.

Everything is read from the records, and from the totals of turns that stand beside them. Nothing is derived:
no chart is compiled and no step is taken again, so a view costs the records that it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolchart.engine.log.family import ChildLink, list_child_links, list_children
from toolchart.engine.reading.figures import read_total_usage
from toolchart.engine.reading.listing import ConversationSummary, summarize_conversation
from toolchart.engine.reading.results import read_results
from toolchart.engine.reading.waiting import Waiting, read_waiting
from toolchart.states.core.encoding import encode
from toolchart.states.errors import NotFound, ToolchartError
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


def require_existing(store: Store, conversation: str) -> None:
    """Refuse to read a conversation that does not exist.

    Raises:
        NotFound: there is none.
    """
    if store.read_last_line(conversation) is None:
        raise NotFound(conversation)
