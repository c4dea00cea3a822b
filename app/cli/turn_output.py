"""What `run`, `resume` and `approve` share: showing a turn, and what it came to."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import CANCELLED, DONE, LIMIT, NO
from toolchart.app.cli.log_access import print_json, to_type
from toolchart.app.cli.terminal.approval_prompt import Asking, somebody_there
from toolchart.app.cli.terminal.log_messages import hear
from toolchart.app.cli.terminal.text import on_terminal, printable, short, talk
from toolchart.states.canonical_json import canonical_text
from toolchart.states.deltas import Delta, TextDelta
from toolchart.states.errors import SpecError
from toolchart.states.events import AnyEvent, Failed, Replied
from toolchart.states.suggestions import nearest

if TYPE_CHECKING:
    from toolchart.engine.runtime.driver import Observer
    from toolchart.engine.runtime.result import TurnResult
    from toolchart.states.core.step import Step
    from toolchart.states.events import Decided
    from toolchart.states.ports import Store
    from toolchart.states.snapshot import Snapshot
    from toolchart.tools.execution.executor import ToolExecutor


class Witness:
    """An observer that keeps what a result does not tell, and lets a display see every step."""

    def __init__(self, display: Observer | None = None) -> None:
        self.failure: Failed | None = None
        """The model call that failed last, unless a reply came after it."""
        self._display = display
        self.streamed = ""
        """Text of the newest reply, where it was shown as it grew."""

    def on_delta(self, delta: Delta) -> None:
        """Show the answer's text on stdout as it grows."""
        if isinstance(delta, TextDelta):
            click.echo(printable(delta.text), nl=False)
            self.streamed += delta.text

    def __call__(self, event: AnyEvent, step: Step) -> None:
        """Take note of a step."""
        if isinstance(event, Failed):
            self.failure = event
        elif isinstance(event, Replied):
            self.failure = None
            if self.streamed:
                click.echo()
                if event.reply.tool_calls:  # that was not the answer yet
                    self.streamed = ""
        if self._display is not None:
            self._display(event, step)


def watch(*, silent: bool, verbose: bool = False) -> Witness:
    """What watches a turn: the machine is shown moving on a terminal, and anywhere if `verbose`."""
    hear(verbose=verbose)
    if not verbose and (silent or not on_terminal(sys.stderr)):
        return Witness()
    from toolchart.app.cli.terminal.live_steps import Live

    return Witness(Live(whole=verbose))


def tell(result: TurnResult, seen: Witness, *, as_json: bool, quiet: bool = False) -> int:
    """Print a result, the answer on stdout, what a person should know on stderr; the exit code."""
    if not quiet:
        _remark(result, seen)
    if as_json:
        print_json(result.to_dict())
    elif result.over and (not seen.streamed or seen.streamed != result.content):
        shown = printable(result.content) if on_terminal(sys.stdout) else result.content
        click.echo(
            shown, color=True
        )  # as it is: to change what the model wrote is not our business
    if result.limit_reached:
        return LIMIT
    return DONE if result.over and result.ended_by != "answer_with_error" else NO


def _remark(result: TurnResult, seen: Witness) -> None:
    for warning in result.warnings:
        talk(f"warning: {warning}")
    for call in result.undecided:
        approve = to_type("approve", result.conversation_id, call["id"])
        talk(
            f"waiting for a decision: {call['tool']} {short(canonical_text(call['params']), 200)}\n"
            f"  {approve}   (or with --deny)"
        )
    if result.ended_by == "answer_with_error":
        why = f"finish reason {result.finish_reason}"
        if seen.failure is not None:
            why = f"{seen.failure.kind}: {seen.failure.message}"
        talk(f"toolchart: the turn ended in state {result.state!r}; {why}")
        talk(f"  every step: {to_type('show', result.conversation_id)}")


def cancelled(store: Store, conversation: str, again: list[str]) -> int:
    """Say that the turn was cancelled, and how to go on; the exit code.

    Args:
        again: words of a command that continues the conversation once its turn is over.
    """
    from toolchart.engine.log.replay import standing

    found = standing(store, conversation)
    if found is None:
        talk("toolchart: cancelled before anything was written")
        return CANCELLED
    go_on = again if found.snapshot.over else ["resume", conversation]
    talk(
        f"toolchart: cancelled; conversation {conversation} has every step up to here\n"
        f"  look:   {to_type('show', conversation)}\n"
        f"  go on:  {to_type(*go_on)}"
    )
    return CANCELLED


def continued(
    store: Store, conversation: str, spec: str | None, decision: Decided | None, as_json: bool
) -> int:
    """Go on with an open turn, with the agent of the log or another one; the exit code."""
    from toolchart.engine.log.replay import standing
    from toolchart.engine.runtime.engine import Engine

    found = standing(store, conversation)
    assert found is not None, "the conversation was found in this log"
    if decision is not None:
        _check_waiting(found.snapshot, conversation, decision.call_id)
    elif found.snapshot.over:
        talk("nothing is open here: this is the answer of the last turn")
    agent: Any = spec or found.configured.spec
    seen = watch(silent=as_json)
    asking = Asking() if somebody_there() else None
    with Engine(agent, log=store, observer=seen, approver=asking) as engine:
        if asking is not None:
            asking.tools = engine.tools
        if decision is not None and decision.arguments is not None:
            decision = _checked(engine.tools, found.snapshot, decision)
        try:
            result = engine.resume(conversation, decision)
        except KeyboardInterrupt:
            return cancelled(store, conversation, ["resume", conversation])
    return tell(result, seen, as_json=as_json)


def _checked(tools: ToolExecutor, snapshot: Snapshot, decision: Decided) -> Decided:
    """The decision, its arguments as the tool takes them.

    Raises:
        SpecError: they do not fit; nothing was decided.
    """
    call = next(one.call for one in snapshot.calls if one.call.id == decision.call_id)
    judged = tools.judge(replace(call, arguments=decision.arguments, raw=None), (call.name,))
    if judged.outcome is not None:
        raise SpecError(judged.reason, path="--args", hint="nothing was decided: the call waits")
    return replace(decision, arguments=judged.arguments)


def _check_waiting(snapshot: Snapshot, conversation: str, call_id: str) -> None:
    """Demand that the call waits for a decision.

    Raises:
        SpecError: it does not; names the nearest, or those that do.
    """
    waiting = [one.call.id for one in snapshot.calls if one.ruling == "needs_approval"]
    if call_id not in waiting:
        raise SpecError(
            f"no call {call_id!r} waits for a decision in conversation {conversation!r}",
            hint=nearest(call_id, waiting) if waiting else "no call waits there at all",
        )
