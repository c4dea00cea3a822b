"""Output that `run`, `resume`, `approve` and `fork` share: the steps of a turn and its result."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.app.cli.exit_codes import CANCELLED, SUCCESS, find_result_code
from toolchart.app.cli.parameters.options import format_command, list_engine_options
from toolchart.app.cli.terminal.log_messages import configure_logging
from toolchart.app.cli.terminal.output import echo, get_output
from toolchart.app.cli.terminal.people import find_people
from toolchart.app.cli.terminal.stopping import stop_on_signals
from toolchart.app.cli.terminal.text import escape_controls, is_terminal, print_notice, shorten
from toolchart.engine.log.decisions import require_undecided
from toolchart.engine.log.family import find_root
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.reading.steps import read_configured
from toolchart.engine.reading.waiting import has_open_turn
from toolchart.engine.runtime.waiting import find_waiting_conversation, waits_for_decision
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.engine.turns.inbox import HANDED_OVER
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import TextPart, describe_part
from toolchart.states.errors import IllegalEvent, SpecError
from toolchart.states.events import Decided, Event, Replied
from toolchart.states.messages import Delta, TextDelta, TextWithdrawn

if TYPE_CHECKING:
    from toolchart.app.cli.stored_agent import AgentChoice
    from toolchart.app.cli.terminal.live_steps import StepDisplay
    from toolchart.engine.durable.client import DurableClient
    from toolchart.engine.durable.stretches import Stretch
    from toolchart.engine.reading.waiting import PendingApproval
    from toolchart.engine.runtime.engine import Engine
    from toolchart.engine.runtime.result import Turn
    from toolchart.states.core.step import Step
    from toolchart.states.ports import Store
    from toolchart.states.snapshot import Snapshot, TurnError


class FormAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question, from the command line."""

    content: dict[str, Any]
    """The fields of the form."""
    question: str | None = None
    """Name of the effect that asks, where several do."""
    by: str = "command line"
    """Who answers."""

    def send(self, engine: Engine, conversation: str) -> Turn:
        """Answer, and go on with the turn.

        Raises:
            SpecError: no such question is open, or the answer does not fit its form.
        """
        result = engine.conversation(conversation).answer(self.content, question=self.question, by=self.by)
        assert result is not None, "no other turn runs in this engine"
        return result


class TurnObserver:
    """An observer that keeps the streamed text, and passes each step to a display."""

    def __init__(self, display: StepDisplay | None = None) -> None:
        self._display = display
        self.streamed = ""
        """The answer as far as it was streamed to stdout."""
        self._is_line_open = False

    def on_delta(self, delta: Delta) -> None:
        """Print a piece of the answer's text on stdout as it arrives. What must have a form is printed when
        it is known to have it."""
        match delta:
            case TextDelta() if delta.doubt != "form":
                echo(escape_controls(delta.text), nl=False)
                self.streamed += delta.text
                self._is_line_open = True
            case TextWithdrawn() if self.streamed:
                self.streamed = ""
                if delta.reason != "calls":  # else the reply that called tools ends the line
                    self._end_line()
                    print_withdrawal(delta.reason)

    def __call__(self, event: Event, step: Step) -> None:
        """End the line of a streamed reply, and pass the step to the display."""
        is_streamed = isinstance(event, Replied) and self._is_line_open
        if isinstance(event, Replied):
            self._end_line()
        if self._display is not None:
            # A person who sees both streams reads the text once.
            sees_both = is_terminal(get_output()) and is_terminal(sys.stderr)
            self._display.show(event, step, is_text_shown=is_streamed and sees_both)

    def _end_line(self) -> None:
        if self._is_line_open:
            echo()
        self._is_line_open = False


def print_withdrawal(reason: str) -> None:
    """Say on stderr why the text that stands above is no part of the answer."""
    print_notice(f"the text above is no part of the answer: {_WITHDRAWALS[reason]}")


_WITHDRAWALS = {
    "form": "it has not the form that the answer must have",
    "failure": "the host broke it off, and the model was asked again",
    "chart": "the turn ended with another text",
}


def build_observer(*, is_silent: bool, verbose: bool = False) -> TurnObserver:
    """Build the observer of a turn. It displays the steps on a terminal, or on any stderr if `verbose`."""
    configure_logging(verbose=verbose)
    if not verbose and (is_silent or not is_terminal(sys.stderr)):
        return TurnObserver()
    from toolchart.app.cli.terminal.live_steps import StepDisplay

    return TurnObserver(StepDisplay(is_verbose=verbose))


def report_result(result: Turn, observer: TurnObserver, *, as_json: bool, quiet: bool = False) -> int:
    """Print the result of a turn: the answer on stdout, notices on stderr. Returns the exit code."""
    from toolchart.app.cli.log_access import print_json

    if not quiet:
        _print_notices(result)
    if as_json:
        print_json(result.to_dict())
    elif result.is_over and (not observer.streamed or observer.streamed != result.content):
        answer = escape_controls(result.content) if is_terminal(get_output()) else result.content
        echo(answer, color=True)  # unchanged: click must not strip escape sequences from the model's text
    return find_result_code(result)


def format_run(call: PendingApproval) -> str:
    """What running a call does and why people are asked: each on a line of its own, after a line end."""
    lines = [f"it runs: {call.runs}" if call.runs else "", call.reason]
    return "".join(f"\n  {line}" for line in lines if line)


def _print_notices(result: Turn) -> None:
    """Print on stderr: what the answer has beside text, warnings, calls that wait for approval, the error."""
    for part in result.parts:
        if not isinstance(part, TextPart):
            print_notice(shorten(describe_part(part), 200))
    for warning in result.warnings:
        print_notice(f"warning: {warning}")
    for call in result.pending_approvals:
        approve = format_command("approve", call.conversation or result.conversation, call.id)
        print_notice(
            f"waiting for approval: {call.tool} {shorten(encode_canonical_text(call.params), 200)}\n"
            f"  {approve}   (or with --deny){format_run(call)}"
        )
    for waiting in result.waiting_calls:
        params = shorten(encode_canonical_text(waiting.params), 200)
        resume = format_command("resume", result.conversation)
        print_notice(f"waiting for the outcome of {waiting.tool} {params}\n  then: {resume}")
    for question in result.questions:
        print_notice(
            f"waiting for an answer: {shorten(question['question'], 200)}\n"
            f"  {format_answer_command(question.get('conversation', result.conversation), question)}"
        )
    if result.awaits_user:
        until = f", until {result.due}" if result.due else ""
        print_notice(f"the chart goes on with the next message of conversation {result.conversation}{until}")
    elif result.due:
        print_notice(f"waiting until {result.due}; then: {format_command('resume', result.conversation)}")
    if result.error is not None:
        print_notice(
            f"toolchart: the turn ended in state {result.state!r}; {format_turn_error(result.error)}"
        )
        if result.error.kind == "connection":
            print_notice("  is the host running, and its address right? ask it: toolchart doctor AGENT")
        print_notice(f"  every step: {format_command('show', result.conversation)}")


def format_answer_command(conversation: str, question: dict[str, Any]) -> str:
    """The command that answers a question, with an answer to fill in."""
    fields = question["form"].get("properties") or {}
    content = encode_canonical_text({name: _make_sample(field) for name, field in fields.items()})
    return format_command("resume", conversation, "--answer", content)


def _make_sample(field: Any) -> Any:
    """A value of a field for a command to copy: its default, its first choice, or one of its type."""
    field = field if isinstance(field, dict) else {}
    if "default" in field:
        return field["default"]
    if field.get("enum"):
        return field["enum"][0]
    samples = {"boolean": True, "integer": 0, "number": 0, "array": [], "object": {}}
    return samples.get(str(field.get("type")), "...")


def format_turn_error(error: TurnError) -> str:
    """Format why a turn ended in error: kind, message, HTTP status and `llms` entry."""
    places = []
    if error.status is not None:
        places.append(f"HTTP {error.status}")
    if error.host is not None:
        places.append(f"llms.{error.host}")
    return f"{error.kind}: {error.message}" + (f" ({', '.join(places)})" if places else "")


def report_cancellation(store: Store, conversation: str, retry_command: list[str]) -> int:
    """Print that the turn was cancelled and how to continue. Returns the exit code.

    Args:
        retry_command: words of a command that continues the conversation if its turn is over.
    """
    if store.read_last_line(conversation) is None:
        print_notice("toolchart: cancelled before anything was written to the log")
        return CANCELLED
    next_command = ["resume", conversation] if has_open_turn(store, conversation) else retry_command
    print_notice(
        f"toolchart: cancelled; the log of conversation {conversation} has every step until now\n"
        f"  show it:   {format_command('show', conversation)}\n"
        f"  continue:  {format_command(*next_command)}"
    )
    return CANCELLED


def continue_turn(
    store: Store, conversation: str, choice: AgentChoice, decision: Decided | FormAnswer | None
) -> int:
    """Continue an open turn with the operator's agent; see `choose_agent`. Returns the exit code.

    Where workers own the conversation, what the person says is handed over to them.

    Args:
        choice: the agent, who decides, and the log that is written.
        decision: what a person says first: a decision on a call, or the answer to a question.
    """
    from toolchart.app.cli.handing_over import find_owner
    from toolchart.engine.runtime.engine import Engine

    replayed = load_conversation(store, conversation)
    assert replayed is not None, "find_conversation returns only conversations of this log"
    waiting = replayed.snapshot
    if isinstance(decision, Decided):
        _, waiting = find_waiting_conversation(
            store, waiting, conversation, partial(waits_for_decision, decision.call_id)
        )
        _require_waiting_call(store, waiting, conversation, decision)
    elif decision is None and replayed.snapshot.has_ended:
        print_notice("no turn is open: this is the answer of the last turn")
    root_name = find_root(store, conversation)
    configured = read_configured(store, root_name) or replayed.configured
    owner = find_owner(root_name, log=choice.log, dsn=choice.dsn, run_here=choice.run_here)
    from toolchart.app.cli.stored_agent import choose_agent

    agent = choose_agent(choice.spec, configured, trust_log=choice.trust_log)
    observer = build_observer(is_silent=choice.as_json)
    approver, asker = find_people()
    # Opened again for writing: how it is written is the agent's choice, and the agent stands in the log.
    log: dict[str, Any] = {"log": choice.log, "durability": choice.durability}
    people: dict[str, Any] = {"approver": approver, "signer": choice.signer, "asker": asker}
    with (
        open_telemetry() as telemetry,
        Engine(
            **list_engine_options(agent), observer=observer, telemetry=telemetry, **log, **people
        ) as engine,
        stop_on_signals(engine) as request,
    ):
        if approver is not None:
            approver.tools = engine.tools
        if owner is not None and (decision is not None or not replayed.snapshot.has_ended):
            say = partial(_say, conversation, decision) if decision is not None else None
            return owner.hand_over(engine, root_name, say, as_json=choice.as_json)
        try:
            if isinstance(decision, FormAnswer):
                result = decision.send(engine, conversation)
            else:
                result = engine.conversation(conversation).resume(decision)
        except KeyboardInterrupt:
            return report_cancellation(store, conversation, ["resume", conversation])
        if request.is_made and not result.is_over:
            return report_cancellation(store, conversation, ["resume", conversation])
    if decision is not None and HANDED_OVER in result.warnings and not choice.as_json:
        print_notice(f"toolchart: {HANDED_OVER}")  # what it decides is decided, and waits for nobody
        return SUCCESS
    return report_result(result, observer, as_json=choice.as_json)


async def _say(conversation: str, message: Decided | FormAnswer, client: DurableClient) -> Stretch:
    """Leave a decision or an answer for workers."""
    if isinstance(message, Decided):
        return await client.decide(conversation, message)
    return await client.answer(conversation, message.content, question=message.question, by=message.by)


def _require_waiting_call(store: Store, snapshot: Snapshot, conversation: str, decision: Decided) -> None:
    """Check that a call waits for a decision.

    Raises:
        SpecError: it was decided, by whom and when; or there is no such call, and the hint names the nearest.
    """
    try:
        require_undecided(store, conversation, snapshot, decision)
    except IllegalEvent as error:
        raise SpecError(str(error)) from None
