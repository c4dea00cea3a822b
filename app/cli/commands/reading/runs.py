"""`toolchart runs`: list and filter the conversations of a log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import catch_up_log, open_log_for_reading, print_json, print_unreadable
from toolchart.app.cli.parameters.options import (
    Moment,
    json_option,
    load_named_spec,
    log_option,
    parse_tags,
    tag_option,
)
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.tables import format_cost, format_tokens
from toolchart.app.cli.terminal.text import escape_line, print_notice, shorten, style_text, terminal_width
from toolchart.engine.log.turn_totals import add_usages
from toolchart.engine.reading.chart_differences import ChartDifference, OwnCharts
from toolchart.engine.reading.figures import read_figures
from toolchart.engine.reading.listing import (
    ConversationFilter,
    build_query,
    complete_row,
    explain_state,
    find_workers,
    is_searched,
    iterate_candidates,
    summarize_conversation,
)
from toolchart.engine.turns.parking import find_parking
from toolchart.states.errors import LogDamaged
from toolchart.states.messages import Usage
from toolchart.states.ports import IndexQuery, Store

DEFAULT_LIMIT = 100
"""Conversations that are shown unless another number is asked for."""

_COLUMNS = ("conversation", "started", "turns", "records", "state", "message")

_BEFORE_HIT = 12
"""Characters that a table shows before the first word that was found."""

_USAGE_COLUMNS = ("model", "in", "out", "cost", "s")


@click.command(short_help="List the conversations of a log.")
@click.option(
    "--search",
    metavar="WORDS",
    help="Only conversations with all these words: in messages, answers, arguments and results of tools, "
    "agent, owner, tags, or at the beginning of the id.",
)
@click.option(
    "--status",
    metavar="STATUS",
    help="Only conversations that stand so: waiting, approval, answer, open, failed, limit, cancelled, "
    "finished, new.",
)
@click.option(
    "--attention", is_flag=True, help="List those that wait for a person, then those that failed, at the end."
)
@click.option("--state", metavar="STATE", help="Only conversations whose current state is this.")
@click.option("--tool", metavar="NAME", help="Only conversations in which the model called this tool.")
@click.option("--model", metavar="NAME", help="Only conversations that used this model.")
@click.option(
    "--text", metavar="WORDS", help="Only conversations with this text in a message, ignoring case."
)
@click.option("--owner", metavar="NAME", help="Only conversations of this owner.")
@tag_option
@click.option(
    "--since",
    type=Moment(),
    metavar="TIME",
    help="Only conversations written to since then: 2026-11-01, 2h, 30d.",
)
@click.option("--children", is_flag=True, help="Also list the agents that conversations run, below them.")
@click.option("--until", type=Moment(), metavar="TIME", help="Only conversations started until then.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Only the N newest conversations that match.  [default: {DEFAULT_LIMIT}; with --json all]",
)
@click.option(
    "--spec",
    metavar="SPEC",
    help="Your own agent spec: also show where a conversation's chart differs from its charts.",
)
@click.option("--usage", is_flag=True, help="Also show model, tokens, cost and seconds, and their sums.")
@json_option
@log_option
def command(
    search: str | None,
    status: str | None,
    attention: bool,
    state: str | None,
    tool: str | None,
    model: str | None,
    text: str | None,
    owner: str | None,
    tags: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    children: bool,
    limit: int | None,
    spec: str | None,
    usage: bool,
    as_json: bool,
    log: str | None,
) -> int:
    """List the conversations of a log, oldest first: id, start, turns, records, state, first message.

    Only the first records and the newest one of each are read, and damage in these is named; `verify`
    checks all.

    --search, --status and --attention use the search index of the log. Where this user may write the log,
    what the index lacks is written first; else it is read from the records.

    With --spec, conversations whose chart is none of that agent's are named below the list, with what their
    charts declare and the agent does not: nobody who goes on with the agent performs that.

    \b
    Example:  toolchart runs
              toolchart runs --state error --since 2d
              toolchart runs --search "refund order-7731"
              toolchart runs --usage --model gpt-4o
              toolchart runs --json | jq -r .conversation
    """
    selection = ConversationFilter(
        search=search,
        status=status,
        state=state,
        since=since,
        until=until,
        tool=tool,
        model=model,
        text=text,
        owner=owner,
        tags=parse_tags(tags),
    )
    if limit is None and not as_json:
        limit = DEFAULT_LIMIT
    query = build_query(selection, "attention" if attention else "newest")
    if is_searched(query):
        catch_up_log(log)
    own_charts = OwnCharts(load_named_spec(spec)) if spec is not None else None
    with open_log_for_reading(log) as store:
        listing = _Listing(store, selection, query, own_charts, with_children=children, with_usage=usage)
        listing.read(limit)
    rows = _sort_families(listing.rows[::-1])
    if listing.has_more:
        print_notice(f"the {'first' if attention else 'newest'} {limit} conversations; --limit N shows more")
    if as_json:
        for row in rows:
            print_json(row, lines=True)
    elif rows:
        _print_conversation_table(rows)
        if usage:
            echo(_format_totals(rows))
        for difference in reversed(listing.differences):
            print_notice(escape_line(f"{difference.conversation}: {difference.describe()}"))
    elif not listing.code:
        count = listing.count
        print_notice(_explain_nothing(log, selection, count))
    return listing.code


def _explain_nothing(log: str | None, selection: ConversationFilter, count: int) -> str:
    """Why nothing is listed."""
    if not count and not is_searched(build_query(selection)):
        return "no conversations yet"
    with open_log_for_reading(log) as store:
        reason = explain_state(store, selection)
    return reason or ("no conversation matches" if not count else f"none of {count} conversations matches")


class _Listing:
    """The conversations that a command lists, the newest first."""

    def __init__(
        self,
        store: Store,
        selection: ConversationFilter,
        query: IndexQuery,
        own_charts: OwnCharts | None,
        *,
        with_children: bool,
        with_usage: bool,
    ) -> None:
        self._store = store
        self._own_charts = own_charts
        self.differences: list[ChartDifference] = []
        """Listed conversations whose charts are none of the operator's."""
        self._selection = selection
        self._query = query
        self._with_children = with_children
        self._with_usage = with_usage
        self.rows: list[dict[str, Any]] = []
        self.code = SUCCESS
        """The exit code for what could not be read."""
        self.has_more = False
        """Whether there are conversations beyond the limit."""
        self.count = 0
        """Conversations that were looked at."""

    def read(self, limit: int | None) -> None:
        """Read conversations until so many match; why one cannot be read is printed."""
        workers = find_workers(self._store)
        for candidate in track_progress(iterate_candidates(self._store, self._query), "reading"):
            name = candidate.conversation
            if limit is not None and len(self.rows) >= limit:
                self.has_more = True
                return
            self.count += 1
            if not candidate.is_found:
                continue
            try:
                self._read_row(name, workers.get(name, {}))
            except LogDamaged as problem:
                self.code = max(self.code, print_unreadable(problem))

    def _read_row(self, name: str, work: dict[str, Any]) -> None:
        store, selection = self._store, self._selection
        row = summarize_conversation(store, name)
        if row.parent and not self._with_children:
            self.count -= 1
        elif selection.matches_row(row) and selection.matches_records(store, name):
            listed = complete_row(store, row, self._query)
            if listed is None:
                return
            usage = _read_usage(store, name) if self._with_usage else {}
            parking = find_parking(store, name) if not work else None
            parked = {"parked": parking} if parking is not None else {}
            self.rows.append({**listed.to_dict(), **work, **parked, **usage, **self._compare_chart(name)})

    def _compare_chart(self, name: str) -> dict[str, Any]:
        """Whether the chart is one of the operator's, and what it declares beside; nothing without a spec."""
        if self._own_charts is None:
            return {}
        difference = self._own_charts.find_difference(self._store, name)
        if difference is None:
            return {"own_chart": True, "foreign_effects": []}
        self.differences.append(difference)
        return {"own_chart": False, "foreign_effects": list(difference.effects)}


def _read_usage(store: Store, conversation: str) -> dict[str, Any]:
    """Models, tokens, cost and seconds of a conversation, counted from all its records."""
    figures = read_figures(store, conversation)
    used = figures.usage
    return {
        "models": list(figures.models),
        "input": used.input,
        "output": used.output,
        "cost": used.cost,
        "seconds": figures.seconds,
    }


def _format_totals(rows: list[dict[str, Any]]) -> str:
    """The sums of the listed conversations, as a line."""
    used = add_usages(Usage(input=row["input"], output=row["output"], cost=row["cost"]) for row in rows)
    cost = f", cost {format_cost(used.cost)}" if used.cost is not None else ""
    return (
        f"{len(rows)} conversations, {sum(row['turns'] for row in rows)} turns, "
        f"{format_tokens(used.input) or '?'} tokens in, {format_tokens(used.output) or '?'} out{cost}, "
        f"{sum(row['seconds'] for row in rows):.1f} s"
    )


def _sort_families(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with children right below their parents; `depth` says how deep."""
    names = {row["conversation"] for row in rows}
    children: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(row["parent"] if row["parent"] in names else "", []).append(row)
    sorted_rows: list[dict[str, Any]] = []

    def add_children(parent: str, depth: int) -> None:
        for row in children.get(parent, ()):
            sorted_rows.append({**row, "depth": depth})
            add_children(row["conversation"], depth + 1)

    add_children("", 0)
    return sorted_rows


def _print_conversation_table(rows: list[dict[str, Any]]) -> None:
    has_owners = any(row["owner"] for row in rows)
    usage_columns = _USAGE_COLUMNS if "seconds" in rows[0] else ()
    head = (*_COLUMNS[:-1], *(("owner",) if has_owners else ()), *usage_columns, _COLUMNS[-1])
    cells = [head, *(_format_row(row, has_owners) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head) - 1)]
    message_width = max(20, terminal_width() - sum(widths) - 2 * len(widths))
    for number, line in enumerate(cells):
        cells_of_line = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        text = "  ".join([*cells_of_line, shorten(line[-1], message_width)]).rstrip()
        echo(text if number else style_text(text, bold=True))


def _format_row(row: dict[str, Any], has_owners: bool) -> tuple[str, ...]:
    start = row["at"][:19].replace("T", " ")
    indent = "  " * row["depth"]
    name, state = indent + shorten(row["conversation"], 40), shorten(row["state"], 30)
    if "worker" in row:
        state = f"{state} ({row['worker']} since {row['worked_on_since'][11:19]})"
    elif "parked" in row:
        state = f"{state} (parked)"
    counts = (str(row["turns"]), str(row["records"]))
    owner = (shorten(row["owner"], 30),) if has_owners else ()
    return (name, start, *counts, state, *owner, *_format_usage(row), _describe_message(row))


def _describe_message(row: dict[str, Any]) -> str:
    """The first message; of a search the text around the words that were found."""
    hit = row["hit"]
    if not hit:
        return str(row["message"])
    start = max(0, hit["marks"][0][0] - _BEFORE_HIT)
    return f"record {hit['seq']}: {'…' if start else ''}{hit['text'][start:]}"


def _format_usage(row: dict[str, Any]) -> tuple[str, ...]:
    if "seconds" not in row:
        return ()
    tokens = (format_tokens(row["input"]), format_tokens(row["output"]))
    return (shorten(", ".join(row["models"]), 30), *tokens, format_cost(row["cost"]), f"{row['seconds']:.1f}")
