"""The result of a turn: `Turn` and, for a fork, `ForkResult`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from msgspec.structs import replace
from typing_extensions import TypeVar

from toolchart.engine.reading.waiting import (
    NOTHING_WAITS,
    PendingApproval,
    Row,
    Waiting,
    WaitingCall,
    build_approval,
    build_question,
    join_waiting,
    read_waiting,
)
from toolchart.engine.runtime.answer_form import find_answer_format
from toolchart.engine.runtime.parts import list_children
from toolchart.engine.runtime.waiting import list_questions, list_timers, list_undecided_calls
from toolchart.states.calls import build_tracked_call
from toolchart.states.content import (
    CitationPart,
    ContentPart,
    HostCallPart,
    Value,
    encode_plain,
    join_host_calls,
    merge_texts,
)
from toolchart.states.core.encoding import encode
from toolchart.states.core.requests import find_withdrawing_limit
from toolchart.states.effects import AskApproval
from toolchart.states.errors import ToolchartError
from toolchart.states.events import UNUSABLE_KINDS, Outcome, Settings
from toolchart.states.messages import Message, Usage
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot, TurnError
from toolchart.tools.execution.results import find_cut_notice
from toolchart.workers.json_data import to_json_data

if TYPE_CHECKING:
    from pydantic import BaseModel

OutputAhead = TypeVar("OutputAhead", covariant=True, default=Any)
"""The type of the answer of a turn: the `output_type` that it was run with."""

PASSING_KINDS = frozenset(
    (
        *("rate_limited", "overloaded", "server", "timeout", "connection", "bad_response", "bad_output"),
        *UNUSABLE_KINDS,
    )
)
"""Kinds of failures after which the same request may succeed later."""


class FinishedCall(Row, frozen=True, kw_only=True):
    """One tool call of a turn that has its outcome."""

    tool: str
    params: dict[str, Any] | None
    """The arguments; None where they could not be parsed."""
    result: dict[str, Any]
    """`{success, result or error, tool_name, execution_time_ms}`."""
    iteration: int
    """Number of the model reply that asked for it, from 0."""
    execution_time_ms: float
    outcome: Outcome

    @property
    def ok(self) -> bool:
        """Whether the tool ran and succeeded."""
        return self.outcome == "succeeded"

    @property
    def value(self) -> Any:
        """What the tool returned; None where it did not succeed."""
        return self.result.get("result")

    @property
    def error(self) -> str | None:
        """Why it did not succeed; None where it did."""
        return self.result.get("error")


class Turn(Value, Generic[OutputAhead], frozen=True, kw_only=True):
    """The result of a turn. It holds all tool calls, warnings and usage, however the turn ended."""

    content: str
    service: str
    """Name of the `llms` entry of the turn. A chart may have asked another one: the log has who answered."""
    model: str
    """The model of that entry; the log has the one that the host reported."""
    tool_calls: list[FinishedCall]
    """The calls that have their outcome, in order; empty where none has. In a turn that waits, others of the
    same reply may stand in `pending_approvals` or `waiting_calls`."""
    state: str
    """The state in which the chart rests: a final one, or one that waits for a decision."""
    is_over: bool
    """Whether the turn has ended."""
    ended_by: str | None
    """The effect that ended the turn, or `stuck`, `too_many_steps` or `endless` where the core ended it; None
    while the turn is open."""
    conversation: str
    """Id of the conversation."""
    iterations: int
    finish_reason: str
    usage: Usage
    parts: tuple[ContentPart, ...] = ()
    """The answer in order, where it is more than one text: texts, pictures, sounds, files, the sources of
    what it says, and what the host did itself meanwhile. `content` is the text among them."""
    host_calls: list[HostCallPart] = msgspec.field(default_factory=list)
    """The calls of tools that the host itself ran in this turn, in order, each with what became of it."""
    data: OutputAhead | None = None
    """The answer as data: an instance of `output_type`; the checked JSON of the answer where the handler has
    a `response_format`; else None. `output` has no None."""
    limit_reached: str | None = None
    """The limit at which the turn ended: `max_iterations`, `max_repeats`, `max_tool_only_streak` or the name
    of a budget. Where the model was then asked without its tools, and answered, `ok` is true."""
    limit_value: float | None = None
    """The value of that limit; None where the turn reached none."""
    waiting: Waiting = NOTHING_WAITS
    """What the turn waits for, its children included. `pending_approvals`, `waiting_calls`, `questions` and
    `due` are its parts."""
    awaits_user: bool = False
    """Whether the chart goes on with the user's next message."""
    waiting_messages: list[str] = msgspec.field(default_factory=list)
    """Messages of the user that no request has had yet: they came while the turn waited for a person, or
    after its last request. The next request has them, in this turn or in the next one."""
    warnings: tuple[str, ...] = ()
    """What the caller should know: a limit, a cut answer or result, an unknown finish word, what a host or a
    prompt lacks."""
    error: TurnError | None = None
    """Why the turn ended in error: kind, message, HTTP status and `llms` entry; None where it did not."""
    results: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    """The newest value of each result of the chart, as JSON data; a text is `{content: text}`."""
    result_errors: dict[str, TurnError] = msgspec.field(default_factory=dict)
    """Why a result has no newer value: its newest failure, where no value followed."""
    outputs: dict[str, BaseModel] = msgspec.field(default_factory=dict)
    """The results of which the user gave a pydantic class, as instances of it."""
    combined_text: str = ""
    """All text of all replies of the turn: `content` is the last, and what the model said beside its calls
    stands before it, each after an empty line."""

    @property
    def output(self) -> OutputAhead:
        """The answer as a value of the `output_type` that the turn was run with.

        Raises:
            ToolchartError: the turn has none: it waits for somebody, ended without an answer, or was run
                without an `output_type`.
        """
        if self.data is not None:
            return self.data
        if not self.is_over:
            waits = [f"approval of {pending.tool!r} ({pending.id})" for pending in self.pending_approvals]
            raise ToolchartError(
                f"conversation {self.conversation!r} has no answer yet: its turn waits in {self.state!r}"
                + (f" for {', '.join(waits)}" if waits else "")
                + "\n  look at `is_over` first; `pending_approvals` and `questions` say what it waits for"
            )
        if self.ok:
            raise ToolchartError(
                f"the answer of conversation {self.conversation!r} is a text, which `content` has\n"
                "  run the turn with `output_type=` for a value; `warnings` says where a text broke its form"
            )
        raise ToolchartError(
            f"the turn of conversation {self.conversation!r} ended without an answer: {self.failure}\n"
            "  look at `ok` first; `error` and `limit_reached` say why"
        )

    @property
    def pending_approvals(self) -> list[PendingApproval]:
        """Tool calls that wait for a decision. What waits in children stands here and in `questions` too."""
        return [*self.waiting.approvals]

    @property
    def waiting_calls(self) -> list[WaitingCall]:
        """Tool calls of an open turn that were begun and have no outcome: it comes from outside
        (`ToolPending`), or the process stopped. `resume` runs those again whose tools are idempotent."""
        return [*self.waiting.calls]

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Questions to people that wait for an answer: `{effect, state, question, form, due}`, and for a
        child's its `conversation`. `form` is a JSON Schema, `due` the time at which the state stops waiting,
        or None."""
        own_name = ("conversation", self.conversation)
        return [
            dict(item for item in question.items() if item != own_name) for question in self.waiting.questions
        ]

    @property
    def due(self) -> str | None:
        """When the earliest open timer runs out: RFC 3339, UTC. Timers of a resting conversation fire when it
        is resumed; None where none is open."""
        return self.waiting.due

    @property
    def ok(self) -> bool:
        """Whether the turn ended with an answer of the model or of the chart: in no error, not with the text
        of a limit, and nobody must decide first."""
        return self.is_over and self.error is None and not self._ended_at_limit

    @property
    def is_retryable(self) -> bool:
        """Whether the turn ended in a failure that may pass: then `run_once` is worth calling again."""
        return self.is_over and self.error is not None and self.error.kind in PASSING_KINDS

    @property
    def failure(self) -> str | None:
        """Why the turn ended without an answer, in one line: `KIND: MESSAGE`; None where it did not."""
        if self.error is not None:
            return f"{self.error.kind}: {self.error.message}"
        return f"limit: {self.limit_reached}" if self._ended_at_limit else None

    @property
    def _ended_at_limit(self) -> bool:
        """Whether the turn ended with the text of a limit, and not with the model's own answer."""
        return self.limit_reached is not None and self.ended_by != "answer"

    @property
    def cost(self) -> float | None:
        """The money that the turn cost, in the currency of the price table; None where it is not known."""
        return self.usage.cost

    @property
    def citations(self) -> list[CitationPart]:
        """The sources that the answer names."""
        return [part for part in self.parts if isinstance(part, CitationPart)]

    @property
    def max_iterations_reached(self) -> bool:
        """Whether the turn ended at the limit of iterations."""
        return self.limit_reached == "max_iterations"

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON data; empty optional keys are left out."""
        data: dict[str, Any] = {
            "ok": self.ok,
            "is_over": self.is_over,
            "content": self.content,
            "service": self.service,
            "model": self.model,
            "tool_calls": encode_plain(self.tool_calls),
            "state": self.state,
            "conversation": self.conversation,
            "iterations": self.iterations,
            "usage": encode(self.usage),
            "finish_reason": self.finish_reason,
        }
        if self.combined_text != self.content:
            data["combined_text"] = self.combined_text
        if self.limit_reached:
            data["limit_reached"] = self.limit_reached
            data["limit_value"] = self.limit_value
            data["max_iterations_reached"] = self.max_iterations_reached
        if self.data is not None:
            data["data"] = to_json_data(self.data)
        if self.awaits_user:
            data["awaits_user"] = True
        optional_names = ("error", "pending_approvals", "waiting_calls", "questions", "due", "parts")
        other_names = ("host_calls", "waiting_messages", "warnings", "results", "result_errors")
        for name in (*optional_names, *other_names):
            if value := getattr(self, name):
                data[name] = encode_plain(value)
        return data


class ForkResult(Value, frozen=True, kw_only=True):
    """The result of a fork."""

    conversation: str
    parent: str
    at: int
    """Number of the newest record that both conversations share."""
    result: Turn | None
    """Result of the fork's turn; None where the conversation has no turn yet."""
    stopped: str | None = None
    """Where the fork ran from the log: the first request or call that the log has no answer to."""

    def to_dict(self) -> dict[str, Any]:
        """The fork as JSON data; `result` as `Turn.to_dict` gives it, or None."""
        result = self.result.to_dict() if self.result is not None else None
        shared = {"conversation": self.conversation, "parent": self.parent, "at": self.at}
        return {**shared, "result": result, "stopped": self.stopped}


def build_turn(
    snapshot: Snapshot, conversation: str, output_classes: Mapping[str, type[BaseModel]] | None = None
) -> Turn:
    """The result of the newest turn of a snapshot.

    Args:
        output_classes: pydantic classes by result name.
    """
    settings, is_over, limit = snapshot.settings, snapshot.is_over, _find_limit(snapshot)
    assert settings is not None, "a turn has settings"
    # What most results do not have is looked for only where the snapshot has something of its kind.
    data = None
    if "response_format" in settings.options and snapshot.answer and snapshot.error is None:
        form = find_answer_format(settings.options)
        data = form.parse(snapshot.answer)[0] if form is not None else None
    finish_reason = "error"
    if snapshot.reply is not None:
        finish_reason = snapshot.reply.finish_reason
    elif snapshot.answer is not None and snapshot.error is None:
        finish_reason = "stop"  # the chart answered without a reply
    answer, replies = snapshot.answer or "", _list_replies(snapshot)
    parts, host_calls = _collect_parts(answer, replies)
    results: dict[str, dict[str, Any]] = {}
    errors: dict[str, TurnError] = {}
    for name, result in snapshot.results.items():
        if result.value is not None:
            results[name] = result.value
        if result.error_kind != "none":
            errors[name] = TurnError(kind=result.error_kind, message=result.error)
    return Turn(
        content=answer,
        parts=parts,
        host_calls=host_calls,
        data=data,
        service=settings.service,
        model=settings.model,
        tool_calls=_list_finished_calls(snapshot) if snapshot.calls or snapshot.tracked_calls else [],
        state=snapshot.state,
        is_over=is_over,
        ended_by=snapshot.ended_by,
        conversation=conversation,
        iterations=snapshot.iteration,
        combined_text=_combine_texts(answer, replies),
        finish_reason=finish_reason,
        usage=snapshot.usage,
        limit_reached=limit,
        limit_value=_find_limit_value(snapshot, limit),
        waiting=NOTHING_WAITS
        if is_over and not snapshot.open_effects
        else describe_waiting(snapshot, conversation),
        awaits_user=is_over and not snapshot.has_ended,
        waiting_messages=[(item if isinstance(item, str) else item.content) or "" for item in snapshot.inbox]
        if snapshot.inbox
        else [],
        warnings=tuple(dict.fromkeys((*snapshot.warnings, *list_result_warnings(snapshot)))),
        error=snapshot.error,
        results=results,
        result_errors=errors,
        outputs={
            name: output_classes[name].model_validate(value)
            for name, value in results.items()
            if name in output_classes
        }
        if output_classes
        else {},
    )


def _list_replies(snapshot: Snapshot) -> list[tuple[int, Message]]:
    """The model's messages of the turn, the newest first, each with how many messages stand behind it."""
    replies: list[tuple[int, Message]] = []
    replies_left = snapshot.replies
    for behind, message in enumerate(reversed(snapshot.messages)):
        if message.role != "assistant":
            continue
        # The answer at a limit is a message, and no reply.
        is_limit_text = not replies and snapshot.limit_reached and message.content == snapshot.answer
        replies_left -= not is_limit_text
        if replies_left < 0:
            break
        replies.append((behind, message))
    return replies


def _combine_texts(answer: str, replies: Sequence[tuple[int, Message]]) -> str:
    """The texts of the turn's replies, and the answer where the chart gave it."""
    texts: list[str] = []
    behind_later = 0
    for behind, message in replies:
        if texts and behind == behind_later + 1:  # a reply that was paused, and went on
            texts[-1] = (message.content or "") + texts[-1]
        elif message.content:
            texts.append(message.content)
        behind_later = behind
    if answer and not (texts and texts[0].endswith(answer)):
        texts.insert(0, answer)
    return "\n\n".join(reversed(texts))


def _collect_parts(
    answer: str, replies: Sequence[tuple[int, Message]]
) -> tuple[tuple[ContentPart, ...], list[HostCallPart]]:
    """The parts of the answer, and the calls of the turn that its hosts made.

    The answer is what the model said last in a row, as `find_answer_text` reads it. Where the chart gave
    another text, only that text is the answer.
    """
    calls: dict[str, HostCallPart] = {}
    for _, message in replies:
        for part in reversed(message.parts):
            if isinstance(part, HostCallPart):
                # What became of a call may come in a later reply than the call.
                key = part.id or f"#{len(calls)}"
                later = calls.pop(key, None)
                calls[key] = part if later is None else join_host_calls(part, later)
    host_calls = [*reversed(calls.values())]
    last_in_a_row = [message for place, (behind, message) in enumerate(replies) if behind == place]
    has_parts = any(message.parts for message in last_in_a_row)
    if not has_parts or "".join(message.content or "" for message in reversed(last_in_a_row)) != answer:
        return (), host_calls
    return merge_texts(_join_messages(reversed(last_in_a_row))), host_calls


def _join_messages(messages: Iterable[Message]) -> Iterator[ContentPart]:
    """The parts of messages in a row; the places of sources count from the beginning of the first."""
    length = 0
    for message in messages:
        for part in message.list_parts():
            is_placed = isinstance(part, CitationPart) and part.start is not None and part.end is not None
            if isinstance(part, CitationPart) and is_placed and length:
                yield replace(part, start=(part.start or 0) + length, end=(part.end or 0) + length)
            else:
                yield part
        length += len(message.content or "")


def _find_limit(snapshot: Snapshot) -> str | None:
    """The limit at which a turn ended, with the text of the limit or with an answer without tools."""
    return snapshot.limit_reached or (
        find_withdrawing_limit(snapshot) if snapshot.ended_by == "answer" else None
    )


def _find_limit_value(snapshot: Snapshot, limit: str | None) -> float | None:
    """The value of a limit; None where it is no number of the settings."""
    limits = snapshot.settings.limits if snapshot.settings is not None else None
    value: float | None = getattr(limits, limit or "", None)
    return value


def _list_finished_calls(snapshot: Snapshot) -> list[FinishedCall]:
    """The calls of the turn that have their outcome.

    The calls of a reply are tracked when the last of them ends; until then all of them are open calls.
    """
    tracked = [*snapshot.tracked_calls]
    if snapshot.calls:
        ended = [call for call in snapshot.calls if call.outcome is not None]
        if len(ended) < len(snapshot.calls):
            tracked += [build_tracked_call(snapshot, call) for call in ended]
    return [
        FinishedCall(
            tool=call.tool,
            params=call.params,
            result=call.result,
            iteration=call.iteration,
            execution_time_ms=call.execution_time_ms,
            outcome=call.outcome,
        )
        for call in tracked
    ]


def describe_waiting(snapshot: Snapshot, conversation: str) -> Waiting:
    """What a turn in its snapshot waits for, without its children.

    A running turn is asked for it, whose snapshot has what redaction strikes out of the records.

    Args:
        conversation: the conversation of the snapshot.
    """
    asks = [effect for effect in snapshot.open_effects if isinstance(effect, AskApproval)]
    timers = [(timer.state, timer.due) for timer in list_timers(snapshot)]
    return Waiting(
        approvals=tuple(
            build_approval(
                open_call.call.id,
                open_call.call.name,
                open_call.call.arguments,
                conversation,
                asks[0].to if asks else (),
                open_call.definition,
                open_call.reason,
            )
            for open_call in list_undecided_calls(snapshot)
        ),
        questions=tuple(
            build_question(effect.name, effect.state, effect.question, effect.form, timers, conversation)
            for effect in list_questions(snapshot)
        ),
        calls=tuple(
            WaitingCall(
                id=open_call.call.id,
                tool=open_call.call.name,
                params=open_call.call.arguments,
                conversation=conversation,
            )
            for open_call in (() if snapshot.is_over else snapshot.calls)
            if open_call.has_begun and open_call.outcome is None
        ),
        due=timers[0][1] if timers and not snapshot.has_ended else None,
    )


# -- warnings --------------------------------------------------------------------------------------


def list_result_warnings(snapshot: Snapshot) -> list[str]:
    """What a turn's own end says: a limit, a cut answer, an unknown finish word, results that were cut."""
    warnings: list[str] = []
    settings = snapshot.settings
    limit = _find_limit(snapshot)
    if limit is not None:
        text = "a limit ended the turn" if snapshot.limit_reached else "the model answered without its tools"
        warnings.append(f"{text}: {limit} ({_find_limit_value(snapshot, limit)})")
    reply = snapshot.reply
    if reply is not None and reply.finish_reason in _FINISH_WARNINGS:
        word = f" ({reply.native_reason})" if reply.native_reason else ""
        warnings.append(f"{_FINISH_WARNINGS[reply.finish_reason]}{word}")
    if settings is not None and "response_format" in settings.options:
        warnings += _list_form_warnings(snapshot, settings)
    if snapshot.turn and snapshot.tracked_calls:
        warnings += _list_cut_results(snapshot)
    return warnings


def _list_cut_results(snapshot: Snapshot) -> list[str]:
    """Which results of the turn the model did not see whole, in their order."""
    cut_results: list[str] = []
    summaries = dict(snapshot.shown.view.summaries) if snapshot.shown is not None else {}
    results_left = snapshot.tracked_calls.length
    for message in reversed(snapshot.messages):
        if not results_left:
            break
        if message.role != "tool":
            continue
        results_left -= 1
        cut = find_cut_notice(message.content)
        if message.tool_call_id in summaries:
            size = json.loads(summaries[message.tool_call_id])["summary_of"]["characters"]
            cut_results.append(
                f"the model read a summary of the result of {message.name!r}, which has {size} characters"
            )
        elif cut is not None:
            cut_results.append(f"the model did not see the whole result of {cut[0]!r}: {cut[1]}")
    return cut_results[::-1]


def _list_form_warnings(snapshot: Snapshot, settings: Settings) -> list[str]:
    """That a turn ended well without the form that its handler demands: the model refused, or the chart
    answered in its own words."""
    if not snapshot.answer or snapshot.error is not None or snapshot.limit_reached:
        return []
    form = find_answer_format(settings.options)
    problem = form.parse(snapshot.answer)[1] if form is not None else ""
    return [f"the answer has not the form that response_format demands: {problem}"] if problem else []


_FINISH_WARNINGS = {
    "length": "the answer was cut off at its token limit",
    "content_filter": "the host filtered the answer",
    "malformed_call": "the model wrote a call that could not be read",
    "paused": "the host paused the answer",
    "error": "the host ended the answer with an error",
    "unknown": "the answer ended for a reason that is not known",
}
"""By finish reason: the warning about the last reply of a turn."""


def add_children(store: Store, result: Turn, snapshot: Snapshot) -> Turn:
    """The result of a turn with what waits in its children too, as their records say."""
    children = list_children(snapshot, result.conversation)
    names = [child.conversation for child in children if child.item not in child.effect.answered]
    parts = [result.waiting, *(read_waiting(store, name) for name in names)]
    return replace(result, waiting=join_waiting(parts)) if names else result
