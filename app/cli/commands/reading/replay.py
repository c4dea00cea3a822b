"""`toolchart replay`: recompute a conversation from its log and compare every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import json_option, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_notice, print_text, shorten
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.replay import ReplayedStep, compare_configuration, replay_conversation
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import ReplayMismatch, UnknownSemantics

if TYPE_CHECKING:
    from toolchart.engine.runtime.wire_replay import WireComparison
    from toolchart.states.events import Configured

_MAX_VALUE_CHARS = 300
"""Printed characters of a value; `--json` prints it in full."""


@click.command(short_help="Recompute a conversation from its log and compare, offline.")
@click.argument("conversation")
@click.option(
    "--spec",
    metavar="SPEC",
    help="Also compare this agent with the recorded one: chart, tool schemas and spec.",
)
@click.option(
    "--no-wire",
    is_flag=True,
    help="Leave out the model hosts: build no body of a call again, and decode no kept answer. It is faster.",
)
@json_option
@log_option
def command(conversation: str, spec: str | None, no_wire: bool, as_json: bool, log: str | None) -> int:
    """Recompute every step of CONVERSATION from its recorded events and compare it with the log.

    The body of each model call is built again through its adapter, and so is the reply of each raw answer
    that the log keeps (`log_answers`). The last line counts what could not be compared, and says why.
    The conversations of the agents that it runs are recomputed too.

    No network is used and no tool is run. At the first difference, prints its place, the expected and the
    actual value and the cause, and exits with 1.

    \b
    Example:  toolchart replay 5f0c
              toolchart replay 5f0c --log exported.jsonl --json | jq .pointer
              toolchart replay 5f0c --spec agent.yaml
              toolchart replay 5f0c --no-wire
    """
    comparison = None if no_wire else _build_comparison(spec)
    names: list[str] = []
    count = requests = 0
    with _open_family(conversation, log) as family:
        for name, steps in family:
            expected_configuration = None if names else _build_configuration(spec, name)
            names.append(name)
            if comparison is not None:
                steps = comparison.compare_steps(steps)
            try:
                new_count, new_requests = _count_steps(steps, expected_configuration)
            except ReplayMismatch as mismatch:
                _print_mismatch(name, mismatch, as_json)
                return NEGATIVE
            count, requests = count + new_count, requests + new_requests
    if as_json:
        result: dict[str, object] = {"conversation": names[0], "ok": True, "steps": count}
        result |= {"requests": requests, **({"children": names[1:]} if names[1:] else {})}
        print_json({**result, **_count_compared(comparison)})
    else:
        _print_success(names, count, requests, comparison)
    return SUCCESS


def _count_compared(comparison: WireComparison | None) -> dict[str, object]:
    """Return what was compared with the adapters, for `--json`."""
    if comparison is None:
        return {}
    counts: dict[str, object] = {"bodies": comparison.bodies, "answers": comparison.answers}
    not_compared = {"bodies": comparison.uncompared_bodies, "answers": comparison.uncompared_answers}
    left_out = {kind: dict(reasons) for kind, reasons in not_compared.items() if reasons}
    return {**counts, **({"not_compared": left_out} if left_out else {})}


def _print_success(names: list[str], count: int, requests: int, comparison: WireComparison | None) -> None:
    parts = [f"{count} steps and {_format_count(requests, 'request')} recomputed"]
    if comparison is not None and comparison.bodies:
        parts.append(f"{_format_count(comparison.bodies, 'body', 'bodies')} built again")
    if comparison is not None and comparison.answers:
        parts.append(f"{_format_count(comparison.answers, 'answer')} decoded again")
    children = len(names) - 1
    child_count = f" and {_format_count(children, 'child', 'children')}" if children else ""
    print_text(f"{names[0]}{child_count}: {', '.join(parts)}, all equal{_format_left_out(comparison)}")


def _format_left_out(comparison: WireComparison | None) -> str:
    """Return what was not compared, with the reasons; empty where there is nothing."""
    if comparison is None:
        return "; bodies and answers of model calls not compared (--no-wire)"
    left_out = [
        f"{_format_count(reasons.total(), *words)} not compared: {'; '.join(reasons)}"
        for words, reasons in (
            (("body", "bodies"), comparison.uncompared_bodies),
            (("answer", "answers"), comparison.uncompared_answers),
        )
        if reasons
    ]
    return f"; {', '.join(left_out)}" if left_out else ""


def _format_count(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or f'{word}s'}"


def _build_comparison(spec: str | None) -> WireComparison:
    """Return a comparison of bodies with the adapters of this agent, or of the recorded one."""
    from toolchart.engine.runtime.wire_replay import WireComparison
    from toolchart.specs.loader import load_spec

    return WireComparison(load_spec(spec) if spec is not None else None)


@contextmanager
def _open_family(
    conversation: str, log: str | None
) -> Iterator[Iterable[tuple[str, Iterator[ReplayedStep]]]]:
    """Yield the name and the replayed steps of a conversation and its children."""
    with open_log_for_reading(log) as store:
        names = [name for _, name in iterate_family(store, find_conversation(store, conversation))]
        yield ((name, replay_conversation(store, name)) for name in names)


def _build_configuration(spec: str | None, name: str) -> Configured | None:
    """Return the event that record 0 would hold if this agent had written the log."""
    if spec is None:
        return None
    from toolchart.engine.runtime.engine import Engine

    with Engine(spec, log="memory") as engine:
        return engine.build_configured_event(name)


def _count_steps(steps: Iterator[ReplayedStep], expected_configuration: Configured | None) -> tuple[int, int]:
    """Replay all steps; return the numbers of steps and of requests."""
    count = requests = 0
    newest_configuration: Configured | None = None
    for step in track_progress(steps, "replaying"):
        if expected_configuration is not None and step.configured is not newest_configuration:
            compare_configuration(step.configured, expected_configuration, step.record.seq)
            newest_configuration = step.configured
        count += 1
        requests += sum(ask.messages is not None and bool(ask.digest) for ask in step.record.asks)
    return count, requests


def _print_mismatch(conversation: str, mismatch: ReplayMismatch, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "conversation": conversation,
                "ok": False,
                "seq": mismatch.seq,
                "pointer": mismatch.pointer,
                "expected": mismatch.expected,
                "got": mismatch.actual,
                "blame": mismatch.blame,
                **({"host": mismatch.host} if mismatch.host else {}),
                **({"release": mismatch.release} if isinstance(mismatch, UnknownSemantics) else {}),
            }
        )
        return
    if isinstance(mismatch, UnknownSemantics):
        print_notice(f"toolchart: conversation {conversation}: {mismatch}")
        return
    print_notice(
        f"toolchart: conversation {conversation}: record {mismatch.seq} differs at {mismatch.pointer}\n"
        f"  expected (the log):  {_format_value(mismatch.expected)}\n"
        f"  actual (replay):     {_format_value(mismatch.actual)}\n"
        f"  cause: {mismatch.cause}"
    )


def _format_value(value: object) -> str:
    return shorten(encode_canonical_text(value), _MAX_VALUE_CHARS)
