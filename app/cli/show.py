"""`toolchart show`: a conversation, step by step."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.common import find, json_option, log_option, opened, short
from toolchart.engine.record import Record
from toolchart.engine.replay import read_chain
from toolchart.states.jsonvalue import canonical_text


@click.command(short_help="Show a conversation, step by step.")
@click.argument("conversation")
@json_option
@log_option
def command(conversation: str, as_json: bool, log: str | None) -> int:
    """Show CONVERSATION: every step with what came in, where it led and why.

    The beginning of an id is enough. With --json: the records as JSON Lines, as they are stored.

    \b
    Example:  toolchart show 5f0c
              toolchart show 5f0c --json | jq .event.type
    """
    with opened(log) as store:
        name = find(store, conversation)
        for record in read_chain(store.read(name), name):
            if as_json:
                click.echo(record.line.decode())
            else:
                click.echo(line(record))
    return 0


def line(record: Record) -> str:
    """One record for people: number, time, event, move, reason, then what the event said."""
    move = (
        record.target
        if record.source == record.target
        else f"{record.source or '·'} → {record.target}"
    )
    head = f"{record.seq:>4} {record.at[11:23]} {record.event['type']:<14} {move}"
    asks = ", ".join(effect["type"] for effect in record.effects)
    text = f"{head}  ⇒ {asks}" if asks else head
    reasons = [expression for expression, truth in record.guards.items() if truth]
    if reasons:
        text += f"   because {' and '.join(reasons)}"
    return "\n".join([text, *(f"       {detail}" for detail in details(record.event))])


def details(event: dict[str, Any]) -> list[str]:
    """What an event says, in short lines."""
    match event["type"]:
        case "configured":
            chart = event["chart"].splitlines()[0].removeprefix("name: ")
            return [f"conversation {event['conversation']}, chart {chart}"]
        case "turn_started":
            return [f"user: {short(event['message'], 110)}"]
        case "replied":
            return _reply(event["reply"])
        case "reviewed":
            return [f"{v['ruling']}: {v['reason']}" for v in event["verdicts"] if v.get("reason")]
        case "tool_finished":
            result = event["result"]
            value = result.get("result") if result.get("success") else result.get("error")
            told = short(canonical_text(value), 90)
            return [f"{result.get('tool_name')} {event['outcome']}: {told}"]
        case "failed":
            return [f"{event['kind']}: {short(event['message'], 110)}"]
    return []


def _reply(reply: dict[str, Any]) -> list[str]:
    lines = [f"model: {short(reply['content'], 110)}"] if reply.get("content") else []
    for call in reply.get("tool_calls", ()):
        given = call.get("raw") or canonical_text(call.get("arguments"))
        lines.append(f"calls {call['name']} {short(given, 90)}")
    return lines or [f"model: ({reply['finish_reason']})"]
