"""`toolchart show`: a conversation, step by step."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.log_access import find, json_option, log_option, opened, short
from toolchart.app.cli.terminal.text import printable, room, styled
from toolchart.engine.log.record import Record
from toolchart.engine.log.replay import read_chain
from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import SpecError

_INDENT = " " * 7


@click.command(short_help="Show a conversation, step by step.")
@click.argument("conversation")
@click.option(
    "--around",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Only this record and its neighbours.",
)
@click.option(
    "--context",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Neighbours on either side.",
)
@json_option
@log_option
def command(
    conversation: str, around: int | None, context: int, as_json: bool, log: str | None
) -> int:
    """Show CONVERSATION: every step with what came in, where it led and why.

    The beginning of an id is enough. With --json: the records as JSON Lines, as they are stored.

    \b
    Example:  toolchart show 5f0c
              toolchart show 5f0c --around 12
              toolchart show 5f0c --json | jq .event.type
    """
    with opened(log) as store:
        name = find(store, conversation)
        newest = store.last(name)
        if around is not None and newest is not None and around > newest[0]:
            raise SpecError(
                f"{name} has no record {around}", hint=f"its records are 0 to {newest[0]}"
            )
        for record in read_chain(store.read(name), name):
            if around is None or abs(record.seq - around) <= context:
                click.echo(record.line.decode() if as_json else line(record))
    return 0


def line(record: Record) -> str:
    """One record for people: number, time, event, move, reason, then what the event said."""
    source, target = printable(record.source) or "·", printable(record.target)
    move = target if source == target else f"{source} → {target}"
    event = printable(record.event["type"])
    text = f"{record.seq:>4} {styled(record.at[11:23], dim=True)} {event:<14}"
    text += f" {styled(move, bold=True)}" if target else ""
    asks = ", ".join(effect["type"] for effect in record.effects)
    text += f"  ⇒ {asks}" if asks else ""
    reasons = [expression for expression, truth in record.guards.items() if truth]
    if reasons:
        text += styled(f"   because {printable(' and '.join(reasons))}", dim=True)
    return "\n".join([text, *(_INDENT + detail for detail in details(record.event))])


def details(event: dict[str, Any]) -> list[str]:
    """What an event says, each in one line that fits."""
    return [short(text, room() - len(_INDENT)) for text in said(event)]


def said(event: dict[str, Any]) -> list[str]:
    """What an event says, in lines of any length."""
    match event["type"]:
        case "configured":
            return [f"conversation {event['conversation']}, chart {_chart_name(event['chart'])}"]
        case "forked":
            changed = [key for key in ("settings", "system") if key in event]
            with_ = f", with other {' and '.join(changed)}" if changed else ""
            return [f"goes on from record {event['seq']} of {event['parent']}{with_}"]
        case "turn_started":
            return [f"user: {event['message']}", *_warnings(event)]
        case "replied":
            return _reply(event["reply"])
        case "reviewed":
            return [_verdict(verdict) for verdict in event["verdicts"] if len(verdict) > 2]
        case "decided":
            by = f" by {event['by']}" if event.get("by") else ""
            said = "approved" if event["approved"] else "denied"
            reason = f": {event['reason']}" if event.get("reason") else ""
            return [f"{event['call_id']} {said}{by}{reason}"]
        case "tool_finished":
            result = event["result"]
            value = result.get("result") if result.get("success") else result.get("error")
            told = f"{result.get('tool_name')} {event['outcome']}: {canonical_text(value)}"
            return [told, *_notes(event)]
        case "failed":
            return [f"{event['kind']}: {event['message']}"]
        case "cancelled":
            return [event["reason"]] if event.get("reason") else []
    return []


def _chart_name(text: str) -> str:
    """The name inside a recorded chart."""
    named = (line for line in text.splitlines() if line.startswith("name:"))
    return next(named, "").removeprefix("name:").strip() or "(no name)"


def _reply(reply: dict[str, Any]) -> list[str]:
    lines = [f"model: {reply['content']}"] if reply.get("content") else []
    for call in reply.get("tool_calls", ()):
        given = call.get("raw") or canonical_text(call.get("arguments"))
        lines.append(f"calls {call['name']} {given}")
    return lines or [f"model: ({reply['finish_reason']})"]


def _verdict(verdict: dict[str, Any]) -> str:
    reason = f": {verdict['reason']}" if verdict.get("reason") else ""
    return "; ".join(
        [f"{verdict['call_id']} {verdict['ruling']}{reason}", *verdict.get("notes", ())]
    )


def _warnings(event: dict[str, Any]) -> list[str]:
    return [f"warning: {warning}" for warning in event.get("warnings", ())]


def _notes(event: dict[str, Any]) -> list[str]:
    return [f"note: {note}" for note in event.get("notes", ())]
