"""What the workflow of a conversation knows of it, and what people may say to it by an update.

In: what an activity returns of a conversation (`Report`), and the JSON of an update. Out: the JSON of what
waits, and why an update is refused. Nothing here reads a log, a clock or a file: the workflow calls it, and
Temporal may call the workflow again at any time with the same history.

Temporal refuses a payload of 2 MB, again and again. So a report has a bound, and what is larger is left out
of it: the log has it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from toolchart.engine.durable.stretches import Rest, Stretch
from toolchart.states.errors import SpecError
from toolchart.states.events import Answered, Cancelled, Decided, DecisionSignature

LARGEST_REPORTED = 256_000
"""Most bytes of a result, and of what waits, that a report has."""

_LONGEST_TEXT = 10_000
"""Most characters of the reason of an update, and of a name in it."""


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a conversation stands after work on it, as the log has it."""

    rest: Rest
    is_closed: bool = False
    """Whether it is over and cannot go on by itself: the run of its chart has ended, no timer is open, and
    only a new message begins another turn. Also where the log has no such conversation."""
    result: dict[str, Any] | None = None
    """The result of its newest turn, as `Turn.to_dict` gives it, where that is over."""
    waiting: dict[str, Any] = {}
    """What waits in it and in its children, as `Waiting.to_dict` gives it."""


class Reception(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an update: the answer to its sender."""

    outcome: Literal["handed_over", "repeated"]
    """`handed_over`: it is durable in the inbox of the log, and a worker goes on with it. `repeated`: the log
    had the same already, and nothing was changed."""
    conversation: str
    """The conversation that goes on: the root of its family."""


class HandedOver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the activity says that hands an update over."""

    reception: Reception | None = None
    """None where it was refused."""
    stretch: Stretch | None = None
    """The one that goes on with it."""
    refusal: str = ""
    """Why nothing was written."""
    refusal_type: str = ""
    """Name of the class of the error."""
    report: Report | None = None
    """How the conversation stands, where it was refused."""


class Subject(msgspec.Struct, frozen=True):
    """A call or a question that an update is about."""

    kind: Literal["approvals", "questions"]
    """The list of what waits in which it stands."""
    name: str
    """Id of the call, or name of the effect that asks."""
    conversation: str
    """Where it waits; empty where that is not known."""

    def __str__(self) -> str:
        return f"{'call' if self.kind == 'approvals' else 'question'} {self.name!r}"


# -- updates ---------------------------------------------------------------------------------------


class Decision(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="decide", forbid_unknown_fields=True
):
    """The decision about a call that waits."""

    call_id: str
    approved: bool
    reason: str | None = None
    """Text for the model when the call is rejected."""
    by: str | None = None
    """Who decided."""
    arguments: dict[str, Any] | None = None
    """New arguments, if the approval changes them."""
    signature: DecisionSignature | None = None
    """What proves it, where its sender has signed it."""
    conversation: str = ""
    """A child in which the call waits; empty for the conversation of the workflow and its children."""

    def build_event(self) -> Decided:
        """The event for the inbox."""
        return Decided(
            call_id=self.call_id,
            approved=self.approved,
            reason=self.reason,
            by=self.by,
            arguments=self.arguments,
            signature=self.signature,
        )


class Answer(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer", forbid_unknown_fields=True
):
    """The answer to a question of the chart."""

    content: dict[str, Any]
    """The fields of the form."""
    question: str | None = None
    """Name of the effect that asks, where several questions are open."""
    by: str | None = None
    """Who answers."""
    conversation: str = ""
    """A child in which the question waits; empty for the conversation of the workflow and its children."""

    def build_event(self) -> Answered:
        """The event for the inbox."""
        return Answered(content=self.content, by=self.by)


class Cancellation(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="cancel", forbid_unknown_fields=True
):
    """The end of an open turn."""

    reason: str | None = None
    author: str | None = None
    """Who stops it."""

    @property
    def conversation(self) -> str:
        """A turn is that of the root."""
        return ""

    def build_event(self) -> Cancelled:
        """The event for the inbox."""
        return Cancelled(reason=self.reason, author=self.author or "")


PersonUpdate = Decision | Answer | Cancellation
"""What people say by an update; its tag is the name of the update."""

UpdateOf = TypeVar("UpdateOf", bound=PersonUpdate)


def encode_update(update: PersonUpdate) -> dict[str, Any]:
    """The argument of an update, as JSON has it.

    Raises:
        SpecError: it has none; says which field is wrong, or what JSON has no value for.
    """
    try:
        data = msgspec.to_builtins(update)
    except (TypeError, ValueError, RecursionError) as error:
        raise _build_form_error(type(update), error) from None
    decode_update(data, type(update))
    return data


def _build_form_error(kind: type[PersonUpdate], error: Exception) -> SpecError:
    return SpecError(f"this is no argument of the update {kind.__struct_config__.tag!r}: {error}")


def decode_update(data: Any, kind: type[UpdateOf]) -> UpdateOf:
    """An update from the JSON of its argument.

    Raises:
        SpecError: it is none; says which field is wrong.
    """
    fields = dict(data) if isinstance(data, Mapping) else data
    try:
        if isinstance(fields, dict):
            fields.pop("type", None)
            fields["type"] = kind.__struct_config__.tag
        update = msgspec.convert(fields, kind)
        msgspec.json.encode(update)
    except UnicodeEncodeError:
        raise SpecError("a text of the update has half of a surrogate pair, which is no character") from None
    except msgspec.ValidationError as error:
        raise _build_form_error(kind, error) from None
    texts = [getattr(update, name, None) or "" for name in ("call_id", "reason", "by", "author", "question")]
    if len(max(texts, key=len)) > _LONGEST_TEXT:
        raise SpecError(f"a text of the update has more than {_LONGEST_TEXT} characters")
    return update


def find_refusal(update: PersonUpdate, report: Report, on_the_way: Collection[Subject]) -> str | None:
    """Why an update has no place in a conversation that rests as a report says; None where it has one.

    Args:
        on_the_way: what people have said before, and no worker has taken yet.
    """
    if isinstance(update, Cancellation):
        is_over = report.is_closed or (report.result or {}).get("is_over")
        return "no turn of the conversation is open" if is_over else None
    subject = find_subject(update, report)
    if subject in on_the_way:
        return f"{subject} has its answer already: one was handed over before this"
    subjects = [each for each in _list_subjects(update, report) if each not in on_the_way]
    alternatives = ", ".join(each.name for each in subjects)
    hint = f"these wait: {alternatives}" if subjects else "nothing of this kind waits in the conversation"
    if isinstance(update, Decision):
        is_there = update.call_id in [each.name for each in subjects]
        return None if is_there else f"no call {update.call_id!r} waits for a decision\n  {hint}"
    if update.question is None and len(subjects) > 1:
        return f"name the question that is answered\n  {hint}"
    if not subjects or update.question not in (None, *[each.name for each in subjects]):
        which = f"question {update.question!r}" if update.question else "question"
        return f"no {which} waits for an answer\n  {hint}"
    return None


def find_subject(update: PersonUpdate, report: Report | None) -> Subject | None:
    """What an update is about; None where it does not say, or is a cancellation."""
    if isinstance(update, Cancellation):
        return None
    subjects = _list_subjects(update, report) if report is not None else []
    name = update.call_id if isinstance(update, Decision) else update.question
    if name is None:
        return subjects[0] if len(subjects) == 1 else None
    unknown = Subject(_KINDS[type(update)], name, update.conversation)
    return next((each for each in subjects if each.name == name), unknown)


def leave_out(waiting: Mapping[str, Any], on_the_way: Collection[Subject]) -> dict[str, Any]:
    """What waits, without the calls and questions that have their answer on the way."""
    return {
        kind: rows
        if kind not in _NAMES
        else [row for row in rows if _build_subject(kind, row) not in on_the_way]
        for kind, rows in waiting.items()
    }


_KINDS: dict[type[PersonUpdate], Literal["approvals", "questions"]] = {
    Decision: "approvals",
    Answer: "questions",
}

_NAMES = {"approvals": "id", "questions": "effect"}
"""By the list of what waits: the field of a row that an update names."""


def _build_subject(kind: Any, row: Mapping[str, Any]) -> Subject:
    return Subject(kind, row[_NAMES[kind]], row["conversation"])


def _list_subjects(update: Decision | Answer, report: Report) -> list[Subject]:
    """What waits for an update of this kind, in the conversation that it names and in its children."""
    kind = _KINDS[type(update)]
    subjects = [_build_subject(kind, row) for row in report.waiting.get(kind, ())]
    beginning = f"{update.conversation}."
    return [
        each for each in subjects if not update.conversation or f"{each.conversation}.".startswith(beginning)
    ]


# -- bounds ----------------------------------------------------------------------------------------


def _measure(data: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Data as a report may have it, and its bytes as JSON.

    A model or a tool may say half of a surrogate pair, which Temporal's readers refuse: U+FFFD stands for it.
    """
    try:
        return data, len(msgspec.json.encode(data))
    except UnicodeEncodeError:
        text = json.dumps(data, ensure_ascii=False)
        return _measure(json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")))


_SHOWN_OF_RESULT = (
    *("ok", "is_over", "service", "model", "state", "conversation", "iterations", "usage", "finish_reason"),
    *("limit_reached", "limit_value", "max_iterations_reached", "awaits_user", "due"),
)
"""What a result says without anything that a model, a tool or a person said."""


def fit_result(result: dict[str, Any], *, has_content: bool = True) -> dict[str, Any]:
    """The result of a turn as a report may have it: whole, or without what was said in the turn.

    Args:
        has_content: whether Temporal may keep what was said.
    """
    result, size = _measure(result)
    if has_content and size <= LARGEST_REPORTED:
        return result
    short = {name: value for name, value in result.items() if name in _SHOWN_OF_RESULT}
    reason = f"it has {size} bytes" if has_content else "Temporal keeps no content"
    warning = f"the log has the whole result: {reason}"
    data = {**short, "content": "", "tool_calls": [], "warnings": [warning]}
    if error := result.get("error"):
        data["error"] = {**error, "message": "the log says why"}
    return data


def fit_waiting(waiting: dict[str, Any], *, has_content: bool = True) -> dict[str, Any]:
    """What waits as a report may have it: whole, or ids, names and times alone.

    Args:
        has_content: whether Temporal may keep arguments, questions and forms.
    """
    waiting, size = _measure(waiting)
    if has_content and size <= LARGEST_REPORTED:
        return waiting
    kept = ("id", "tool", "conversation", "approvers", "effect", "state", "due")
    empty = {"params": None, "question": "", "form": {}}

    def shorten(row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value if name in kept else empty[name]
            for name, value in row.items()
            if name in kept or name in empty
        }

    lists = {kind: [shorten(row) for row in waiting[kind]] for kind in ("approvals", "questions", "calls")}
    return {**lists, "due": waiting["due"]}
