"""`toolchart replay`: recompute a conversation from its log and compare every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.options import json_option, list_engine_options, load_named_spec, log_option
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_notice, print_text, shorten
from toolchart.engine.log.family import ANSWERS, iterate_family
from toolchart.engine.log.replay import ReplayedStep, compare_configuration, replay_conversation
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.errors import ReplayMismatch, UnknownSemantics

if TYPE_CHECKING:
    from toolchart.engine.runtime.wire_replay import WireComparison
    from toolchart.states.events import Configured
    from toolchart.states.ports import Store

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
    totals = _Totals()
    with _open_family(conversation, log) as (store, family):
        for name, steps in family:
            expected_configuration = None if names else _build_configuration(spec, name)
            names.append(name)
            if comparison is not None:
                steps = comparison.compare_steps(steps)
            try:
                totals.add_steps(steps, expected_configuration)
            except ReplayMismatch as mismatch:
                _print_mismatch(name, mismatch, as_json)
                return NEGATIVE
        left_out = _list_left_out(totals, comparison, store, names)
    if as_json:
        result: dict[str, object] = {"conversation": names[0], "ok": True, "steps": totals.steps}
        result |= {"requests": totals.requests, **({"children": names[1:]} if names[1:] else {})}
        if comparison is not None:
            result |= {"bodies": comparison.bodies, "answers": comparison.answers}
        not_compared = {words[-1]: dict(reasons) for words, reasons in left_out.items()}
        print_json({**result, **({"not_compared": not_compared} if not_compared else {})})
    else:
        _print_success(names, totals, comparison, left_out)
    return SUCCESS


def _list_left_out(
    totals: _Totals, comparison: WireComparison | None, store: Store, names: list[str]
) -> dict[tuple[str, str], Counter[str]]:
    """Return what was not compared, by one and many of it, each with how often for which reason."""
    # A fork takes answers of agents that the conversation ran which it branched off.
    children = Counter(
        "the log does not have them"
        if store.read_last_line(name) is None
        else "the conversation that was forked ran them"
        for name in totals.children - set(names)
    )
    calls = Counter({"their tools got other arguments, and notes say why": totals.calls_with_other_arguments})
    left_out = {("child", "children"): children, ("call", "calls"): +calls}
    if comparison is not None:
        left_out["body", "bodies"] = comparison.uncompared_bodies
        left_out["answer", "answers"] = comparison.uncompared_answers
    return {words: reasons for words, reasons in left_out.items() if reasons}


def _print_success(
    names: list[str],
    totals: _Totals,
    comparison: WireComparison | None,
    left_out: dict[tuple[str, str], Counter[str]],
) -> None:
    parts = [f"{totals.steps} steps and {_format_count(totals.requests, 'request')} recomputed"]
    if comparison is not None and comparison.bodies:
        parts.append(f"{_format_count(comparison.bodies, 'body', 'bodies')} built again")
    if comparison is not None and comparison.answers:
        parts.append(f"{_format_count(comparison.answers, 'answer')} decoded again")
    children = len(names) - 1
    child_count = f" and {_format_count(children, 'child', 'children')}" if children else ""
    gaps = ["bodies and answers of model calls not compared (--no-wire)"] if comparison is None else []
    gaps += [
        f"{_format_count(reasons.total(), *words)} not compared: {'; '.join(reasons)}"
        for words, reasons in left_out.items()
    ]
    gap_text = f"; {', '.join(gaps)}" if gaps else ""
    print_text(f"{names[0]}{child_count}: {', '.join(parts)}, all equal{gap_text}")


def _format_count(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or f'{word}s'}"


def _build_comparison(spec: str | None) -> WireComparison:
    """Return a comparison of bodies with the adapters of this agent, or of the recorded one."""
    from toolchart.engine.runtime.wire_replay import WireComparison

    return WireComparison(load_named_spec(spec) if spec is not None else None)


@contextmanager
def _open_family(
    conversation: str, log: str | None
) -> Iterator[tuple[Store, Iterable[tuple[str, Iterator[ReplayedStep]]]]]:
    """Yield the log, and the name and the replayed steps of a conversation and its children."""
    with open_log_for_reading(log) as store:
        names = [name for _, name in iterate_family(store, find_conversation(store, conversation))]
        yield store, ((name, replay_conversation(store, name)) for name in names)


def _build_configuration(spec: str | None, name: str) -> Configured | None:
    """Return the event that record 0 would hold if this agent had written the log."""
    if spec is None:
        return None
    from toolchart.engine.runtime.engine import Engine

    with Engine(**list_engine_options(spec), log="memory") as engine:
        return engine.conversation(name).build_configured_event()


class _Totals:
    """What was recomputed, and what the records leave open, over all conversations."""

    def __init__(self) -> None:
        self.steps = self.requests = self.calls_with_other_arguments = 0
        self.children: set[str] = set()
        """The conversations of the agents that answered."""

    def add_steps(self, steps: Iterator[ReplayedStep], expected_configuration: Configured | None) -> None:
        """Replay all steps of a conversation.

        Raises:
            ReplayMismatch: one differs, or the configuration is another than the expected one.
        """
        newest_configuration: Configured | None = None
        for step in track_progress(steps, "replaying"):
            if expected_configuration is not None and step.configured is not newest_configuration:
                compare_configuration(step.configured, expected_configuration, step.record.seq)
                newest_configuration = step.configured
            self.steps += 1
            self.requests += sum(ask.messages is not None and bool(ask.digest) for ask in step.record.asks)
            self.calls_with_other_arguments += step.has_other_arguments
            if step.record.event.get("head") and step.record.event["type"] in ANSWERS:
                self.children.add(str(step.record.event["conversation"]))


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
