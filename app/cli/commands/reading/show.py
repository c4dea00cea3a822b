"""`toolchart show`: print the records of a conversation, one step each, and follow it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from toolchart.app.cli.log_access import find_conversation, open_log, open_log_for_reading, print_json
from toolchart.app.cli.newest_conversation import find_newest_conversation
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.app.cli.terminal.text import (
    escape_controls,
    escape_line,
    print_notice,
    shorten,
    style_text,
    terminal_width,
)
from toolchart.engine.log.family import list_child_links
from toolchart.engine.log.read_records import ReadRecord, describe_decider, read_conversation, read_line
from toolchart.engine.reading.overview import read_view
from toolchart.providers.transport.limits import describe_rate_limits
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import TextPart, decode_parts, describe_part
from toolchart.states.errors import SpecError
from toolchart.states.ports import Store

_INDENT = " " * 7

_POLL_INTERVAL_S = 0.2
"""Seconds between two reads of a log that is followed."""


@click.command(short_help="Show a conversation, step by step.")
@click.argument("conversation", required=False)
@click.option(
    "--around", type=click.IntRange(min=0), metavar="SEQ", help="Show only this record and its neighbours."
)
@click.option(
    "--context",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="With --around: number of neighbours on each side.",
)
@click.option(
    "--newest", "-n", type=click.IntRange(min=0), metavar="N", help="Show only the N newest records."
)
@click.option(
    "--follow", "-f", is_flag=True, help="Then print new records as they are written, until Ctrl-C."
)
@click.option("--until-over", is_flag=True, help="With --follow: stop when the newest turn is over.")
@click.option(
    "--overview",
    is_flag=True,
    help="In place of its steps: its state, owner, what it waits for, results, usage and children, as JSON.",
)
@json_option
@log_option
def command(
    conversation: str | None,
    around: int | None,
    context: int,
    newest: int | None,
    follow: bool,
    until_over: bool,
    overview: bool,
    as_json: bool,
    log: str | None,
) -> int:
    """Show every step of CONVERSATION: the event, the transition, its guards and its effects.

    Without an id it is the conversation with the newest record; a unique beginning of the id is enough. The
    agents that it runs stand, indented, below the record that asked for them, but with --around, --newest,
    --follow or --json. With --json: its records as stored, as JSON Lines.

    \b
    Example:  toolchart show 5f0c
              toolchart show 5f0c --overview | jq .waiting
              toolchart show 5f0c --around 12
              toolchart show --follow --newest 10
              toolchart show 5f0c --json | jq .event.type
    """
    selects_newest = newest is not None or follow
    if [around is not None, selects_newest, overview].count(True) > 1:
        raise click.UsageError("--around, --overview, and --newest or --follow exclude each other.")
    if until_over and not follow:
        raise click.UsageError("--until-over goes with --follow.")
    # What reads only may read a copy, which would never grow.
    with open_log(log) if follow else open_log_for_reading(log) as store:
        name = find_conversation(store, conversation) if conversation else find_newest_conversation(store)
        if name is None:
            print_notice("no conversations yet")
        elif overview:
            print_json(read_view(store, name).to_dict())
        elif not (as_json or selects_newest or around is not None):
            _print_family(store, name, "")
        else:
            if around is not None:
                records = _read_around(store, name, around, context)
            elif selects_newest:
                records = _read_newest(store, name, newest, follow=follow, until_over=until_over)
            else:
                records = read_conversation(store, name)
            for record in records:
                echo(record.line.decode() if as_json else format_record(record))
                get_output().flush()
    return 0


def _read_around(store: Store, conversation: str, seq: int, context: int) -> Iterator[ReadRecord]:
    """A record and its neighbours."""
    last = store.read_last_line(conversation)
    if last is not None and seq > last[0]:
        raise SpecError(f"{conversation} has no record {seq}", hint=f"its records are 0 to {last[0]}")
    for record in read_conversation(store, conversation):
        if abs(record.seq - seq) <= context:
            yield record


def _read_newest(
    store: Store, conversation: str, count: int | None, *, follow: bool, until_over: bool
) -> Iterator[ReadRecord]:
    """The newest records (None: all), then each new one, with `until_over` up to the end of the newest turn.
    The hash chain between them is checked."""
    last = store.read_last_line(conversation)
    seq = max(0, last[0] + 1 - count) if last is not None and count is not None else 0
    prev, is_over = None, False
    while True:
        for line in store.read_lines(conversation, seq):
            record = read_line(line, seq, prev, conversation)
            prev, is_over = record.hash, record.ends_turn
            yield record
            seq += 1
        if not follow or (until_over and is_over):
            return
        time.sleep(_POLL_INTERVAL_S)


def _print_family(store: Store, conversation: str, margin: str) -> None:
    """Print the records of a conversation; those of its children stand below the record that asked for
    them."""
    children: dict[int, list[str]] = {}
    for link in list_child_links(store, conversation, skip_unreadable=True):
        children.setdefault(link.effect, []).append(link.conversation)
    for record in read_conversation(store, conversation):
        echo("\n".join(margin + line for line in format_record(record).split("\n")))
        for ask in record.asks:
            for child in children.get(ask.id, ()):
                echo(f"{margin}{_INDENT}{style_text(escape_line(child), bold=True)}")
                _print_family(store, child, margin + _INDENT)


def format_record(record: ReadRecord) -> str:
    """Return a record as text: number, time, event, transition, effects and guards, then details."""
    source, target = escape_controls(record.source) or "·", escape_controls(record.target)
    move = target if source == target else f"{source} → {target}"
    event = escape_controls(record.event["type"])
    text = f"{record.seq:>4} {style_text(escape_line(record.at[11:23]), dim=True)} {event:<14}"
    text += f" {style_text(move, bold=True)}" if target else ""
    effects = escape_controls(", ".join(ask.name for ask in record.asks))
    text += f"  ⇒ {effects}" if effects else ""
    text += _format_marks(record)
    text += "".join(_format_compaction(ask.data.get("arguments") or {}) for ask in record.asks)
    reasons = [expression for expression, truth in record.guards.items() if truth]
    if reasons:
        text += style_text(f"   because {escape_controls(' and '.join(reasons))}", dim=True)
    return "\n".join([text, *(_INDENT + detail for detail in format_details(record.event))])


def _format_marks(record: ReadRecord) -> str:
    """Return what else a record says about its step."""
    marks = [f"cancels {len(record.cancels)}"] if record.cancels else []
    marks += ["came too late"] if record.is_late else []
    marks += ["not taken"] if record.is_untaken else []
    return f"  ({', '.join(marks)})" if marks else ""


def _format_compaction(arguments: Mapping[str, Any]) -> str:
    """Return what a `compact` among the effects of a record did to the size of requests."""
    if "tokens_after" not in arguments:
        return ""
    return f"  (about {arguments.get('tokens_before', 0)} → {arguments['tokens_after']} tokens)"


def format_details(event: dict[str, Any]) -> list[str]:
    """Return the details of an event, each shortened to one line of the terminal."""
    return [shorten(text, terminal_width() - len(_INDENT)) for text in describe_event(event)]


def describe_event(event: dict[str, Any]) -> list[str]:
    """Return the details of an event as lines of any length."""
    match event["type"]:
        case "configured":
            return [f"conversation {event['conversation']}, chart {_find_chart_name(event['chart'])}"]
        case "migrated":
            return [f"goes on with chart {_find_chart_name(event['chart'])}"]
        case "forked":
            changes = [key for key in ("settings", "system") if key in event]
            suffix = f", with other {' and '.join(changes)}" if changes else ""
            return [f"continues from record {event['seq']} of {event['parent']}{suffix}{_name_author(event)}"]
        case "continued":
            return [f"Toolchart {event.get('versions', {}).get('toolchart', '')} goes on"]
        case "user_said" | "turn_started":
            return [f"user{_name_author(event)}: {event['message']}", *_format_warnings(event)]
        case "replied":
            return _describe_reply(event["reply"])
        case "reviewed":
            return [_describe_verdict(verdict) for verdict in event["verdicts"] if len(verdict) > 2]
        case "agent_finished" | "agent_failed" | "agent_rested" if event["conversation"]:
            text = event.get("message") or event.get("content", "")
            return [f"{event['conversation']}: {text}"]
        case "agent_finished":
            return ["there was no item to work on"]
        case "decided":
            return [_describe_decision(event)]
        case "tool_finished" if not event["call_id"]:
            return ["there was no call to run"]
        case "tool_finished":
            return [_describe_outcome(event), *_format_notes(event)]
        case "failed":
            return [f"{event['kind']}: {event['message']}", *_format_rate_limits(event)]
        case "counted":
            return [_describe_count(event)]
        case "cancelled":
            said = f"{event.get('reason') or ''}{_name_author(event)}".strip()
            streamed = event.get("content")
            return [*([said] if said else []), *([f"model, until then: {streamed}"] if streamed else [])]
        case "calls_started" if event.get("calls"):
            return [", ".join(event["calls"])]
        case "call_submitted":
            where = f"batch job {event['job']}" if event.get("job") else f"a new batch job ({event['key']})"
            return [f"waits for {where} of {event['calls']} calls"]
        case "elapsed" | "resumed" | "calls_started":
            return []
    # an event of another release
    return [f"{key}: {encode_canonical_text(event[key])}" for key in event if key not in ("type", "effect")]


def _name_author(event: dict[str, Any]) -> str:
    return f" ({event['author']})" if event.get("author") else ""


def _describe_decision(event: dict[str, Any]) -> str:
    ruling = "approved" if event["approved"] else "denied"
    changes, reason = event.get("arguments"), event.get("reason")
    own_arguments = "" if changes is None else f", with other arguments: {encode_canonical_text(changes)}"
    return f"{event['call_id']} {ruling}{describe_decider(event)}{own_arguments}" + (
        f": {reason}" if reason else ""
    )


def _describe_count(event: dict[str, Any]) -> str:
    problem = f" ({event['problem']})" if event.get("problem") else ""
    return f"{event['tokens']} tokens, counted by the {event['source']}{problem}"


def _describe_outcome(event: dict[str, Any]) -> str:
    result = event["result"]
    value = result.get("result") if result.get("success") else result.get("error")
    tool = result.get("tool_name") or event["call_id"]
    return f"{tool} {event['outcome']}: {encode_canonical_text(value)}"


def _find_chart_name(text: str) -> str:
    """Return the name in the YAML of a recorded chart."""
    name_lines = (text_line for text_line in text.splitlines() if text_line.startswith("name:"))
    return next(name_lines, "").removeprefix("name:").strip() or "(no name)"


def _describe_reply(reply: dict[str, Any]) -> list[str]:
    lines = [f"model: {reply['content']}"] if reply.get("content") else []
    parts = decode_parts(reply.get("parts"))
    lines += [describe_part(part) for part in parts if not isinstance(part, TextPart)]
    for call in reply.get("tool_calls", ()):
        arguments = call.get("raw") or encode_canonical_text(call.get("arguments"))
        lines.append(f"calls {call['name']} {arguments}")
    lines = lines or [f"model: ({reply['finish_reason']})"]
    return [*lines, *_format_warnings(reply), *_format_rate_limits(reply)]


def _format_rate_limits(said: dict[str, Any]) -> list[str]:
    """Return what the host said about its limits with a reply or a failure."""
    limits = said.get("rate_limits")
    return [f"limits: {describe_rate_limits(limits)}"] if limits else []


def _describe_verdict(verdict: dict[str, Any]) -> str:
    reason = f": {verdict['reason']}" if verdict.get("reason") else ""
    return "; ".join([f"{verdict['call_id']} {verdict['ruling']}{reason}", *verdict.get("notes", ())])


def _format_warnings(event: dict[str, Any]) -> list[str]:
    return [f"warning: {warning}" for warning in event.get("warnings", ())]


def _format_notes(event: dict[str, Any]) -> list[str]:
    return [f"note: {note}" for note in event.get("notes", ())]
