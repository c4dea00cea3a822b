"""`toolchart stats`: sums of the turns and tool calls of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import open_log_for_reading, print_json, print_unreadable
from toolchart.app.cli.parameters.conditions import parse_conditions
from toolchart.app.cli.parameters.options import NameChoice, json_option, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.tables import format_cost, format_table, format_tokens
from toolchart.app.cli.terminal.text import print_notice, print_text
from toolchart.engine.reading.figures import (
    TURN_GROUPS,
    ConversationTurns,
    ToolStatistics,
    TurnStatistics,
    count_tool_calls,
    count_turns,
    read_turns,
)
from toolchart.engine.reading.listing import ConversationFilter, is_selected
from toolchart.states.errors import LogDamaged
from toolchart.states.ports import Store

_TOOL = "tool"

_TURN_HEAD = (
    "",
    "turns",
    "errors",
    "limits",
    "model calls",
    "failed",
    "tool calls",
    "in",
    "out",
    "cost",
    "s",
)
_TOOL_HEAD = ("tool", "calls", "outcomes", "median s", "slowest s", "s")


@click.command(short_help="Sum up turns, tokens, cost and tool calls.")
@click.option(
    "--by",
    type=NameChoice([*TURN_GROUPS, _TOOL]),
    default="day",
    show_default=True,
    help="What one line is about.",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="K=V",
    help="Only conversations with this agent, state, model, tool, text, since or until. Repeatable.",
)
@json_option
@log_option
def command(by: str, conditions: tuple[str, ...], as_json: bool, log: str | None) -> int:
    """Sum up the turns of a log by day, model, handler or state, or its tool calls by tool.

    Sub-agents count with their own turns. A forked turn counts where it was made again. Tokens and cost are
    those that hosts or the price table have given; an empty cell says that nothing was given.

    \b
    Example:  toolchart stats
              toolchart stats --by model --where since=30d
              toolchart stats --by tool --json
    """
    with open_log_for_reading(log) as store:
        conversations = _TurnReader(store, parse_conditions(conditions))
        if by == _TOOL:
            tool_rows = count_tool_calls(conversations)
            _print_rows(tool_rows, as_json, lambda: format_table(_TOOL_HEAD, map(_format_tool, tool_rows)))
        else:
            rows, total = count_turns(conversations, by)
            head = (by, *_TURN_HEAD[1:])
            lines = [*map(_format_turns, rows), ("all", *_format_turns(total)[1:])]
            _print_rows(rows, as_json, lambda: format_table(head, lines))
    return conversations.code


class _TurnReader:
    """Reads the turns of the selected conversations, one conversation after the other."""

    def __init__(self, store: Store, where: ConversationFilter | None) -> None:
        self._store = store
        self._where = where
        self.code = SUCCESS
        """The exit code, for conversations that cannot be read."""

    def __iter__(self) -> Iterator[ConversationTurns]:
        for name in track_progress(self._store.list_conversations(), "reading"):
            try:
                if self._where is not None and not is_selected(self._store, name, self._where):
                    continue
                turns = read_turns(self._store, name)
            except LogDamaged as problem:
                self.code = max(self.code, print_unreadable(problem))
                continue
            yield name, turns


def _print_rows(
    rows: Sequence[TurnStatistics | ToolStatistics], as_json: bool, format_rows: Callable[[], str]
) -> None:
    if as_json:
        for row in rows:
            print_json(row.to_dict(), lines=True)
    elif rows:
        print_text(format_rows())
    else:
        print_notice("nothing to sum up")


def _format_turns(row: TurnStatistics) -> tuple[str, ...]:
    counts = (row.turns, row.errors, row.limits, row.model_calls, row.failed_model_calls, row.tool_calls)
    usage = (format_tokens(row.usage.input), format_tokens(row.usage.output), format_cost(row.usage.cost))
    return (row.group or "(none)", *map(str, counts), *usage, f"{row.seconds:.1f}")


def _format_tool(row: ToolStatistics) -> tuple[str, ...]:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in row.outcomes.items())
    times = (row.median_seconds, row.slowest_seconds, row.seconds)
    return (row.group, str(row.calls), outcomes, *(f"{seconds:.3f}" for seconds in times))
