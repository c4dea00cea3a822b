"""Results: what declared effects bring: values for templates, facts for guards, changes of the context.

A result is named by `as`. It lives for a run of the chart, from its start to its termination. Templates read
it by `{{name}}` and `{{name.field}}`, guards by `name.field`. Beside the fields of its schema every result
has the fields below (`RESERVED_FIELDS`); a schema may not use the names of the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from toolchart.states.calls import close_open_calls
from toolchart.states.effects import Effect, RunAgent
from toolchart.states.errors import IllegalEvent
from toolchart.states.events import (
    FAILURE_KINDS,
    AgentAnswering,
    AgentFailed,
    AgentFinished,
    AgentRested,
    Answered,
    Failed,
    Replied,
    Returned,
)
from toolchart.states.flows.templates import look_up_variable
from toolchart.states.messages import Message, Reply
from toolchart.states.snapshot import Result, SnapshotBuilder, SnapshotFields

COUNTERS = ("count", "failures", "pending", "left_out")
"""Fields that templates read from a result and never from its value."""

RESERVED_FACTS = (*COUNTERS, "attempt", "error_kind", "finish_reason", "has_content")
"""The facts of every result: names that a schema may not use."""

_NO_RESULT = Result()

# -- reading -------------------------------------------------------------------------------------


def read_result_fact(name: str, snapshot: SnapshotFields) -> Any:
    """The value of a fact such as `draft.count`; 0 where the result has no such value yet.

    Charts whose guards could read a value that is not there are refused, so the 0 is never decided by.
    """
    result_name, _, field = name.partition(".")
    result = snapshot.results.get(result_name, _NO_RESULT)
    if field == "pending":
        return _count_pending(snapshot, result_name)
    read = _RESERVED_READERS.get(field)
    if read is not None:  # a value may have a field of this name too, and must not pass for the counter
        return read(result)
    return (result.value or {}).get(field, 0)


def _count_pending(snapshot: SnapshotFields, result_name: str) -> int:
    return sum(
        len(effect.messages) - len(effect.answered) if isinstance(effect, RunAgent) else 1
        for effect in snapshot.open_effects
        if effect.result == result_name
    )


_RESERVED_READERS: dict[str, Callable[[Result], Any]] = {
    "count": lambda result: result.count,
    "failures": lambda result: result.failures,
    "attempt": lambda result: result.attempt,
    "left_out": lambda result: result.left_out,
    "finish_reason": lambda result: result.finish_reason,
    "error_kind": lambda result: name_failure_kind(result.error_kind),
    "error": lambda result: result.error,
    "rejected": lambda result: result.rejected,
    "has_content": lambda result: _has_content((result.value or {}).get("content")),
}

RESERVED_FIELDS = ("pending", *_RESERVED_READERS)


def name_failure_kind(kind: str) -> str:
    """The kind of a failure as guards know it: one of `FAILURE_KINDS`, `none` or `other`."""
    return kind if kind == "none" or kind in FAILURE_KINDS else "other"


def _has_content(content: Any) -> bool:
    """Whether a text is more than blanks; a function may also return a number or a list."""
    return bool(content.strip()) if isinstance(content, str) else content is not None


def build_template_reader(
    snapshot: SnapshotFields, item: Any = None, missing: Any = None
) -> Callable[[str], Any]:
    """A function that returns the value of a dotted name in a template.

    Args:
        item: the value of `{{item}}`.
        missing: returned for a name that has no value. A value that is null is there.
    """

    def read_name(path: str) -> Any:
        name, _, rest = path.partition(".")
        if name in snapshot.results:
            return _read_result(snapshot, name, rest, missing)
        if name == "user_message":
            return snapshot.user_message
        if name == "item":
            return look_up_variable({"item": item}, path, missing)
        return look_up_variable(snapshot.variables, path, missing)

    return read_name


def _read_result(snapshot: SnapshotFields, name: str, field: str, missing: Any) -> Any:
    result = snapshot.results[name]
    value = result.value
    if not field:
        if value is None:
            return missing
        return value["content"] if value.keys() == {"content"} else value
    if value is not None and field not in COUNTERS:
        field_value = look_up_variable(value, field, _NO_VALUE)
        if field_value is not _NO_VALUE and (field_value is not None or field not in RESERVED_FIELDS):
            return field_value
    return read_result_fact(f"{name}.{field}", snapshot) if field in RESERVED_FIELDS else missing


_NO_VALUE = object()


# -- changing ------------------------------------------------------------------------------------


def set_result(builder: SnapshotBuilder, name: str, **changes: Any) -> None:
    """Change fields of a result; the others stay."""
    result = builder.results.get(name, _NO_RESULT)
    builder.results = {**builder.results, name: replace(result, **changes)}


def keep_value(
    builder: SnapshotBuilder, name: str, value: Mapping[str, Any], finish_reason: str = "stop"
) -> None:
    """Keep the newest value of a result, joined with those before it where reducers are declared."""
    if not name:
        return
    result = builder.results.get(name, _NO_RESULT)
    set_result(
        builder,
        name,
        **_join_value(builder, name, value),
        count=result.count + 1,
        attempt=0,
        finish_reason=finish_reason,
        error_kind="none",
        error="",
        rejected="",
        items={},
    )


def _join_value(builder: SnapshotBuilder, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a result that one more value changes."""
    reducers = builder.reducers.get(name)
    if reducers is None:
        return {"value": dict(value)}
    result = builder.results.get(name, _NO_RESULT)
    joined, left_out = reducers.join(result.value, value)
    return {"value": joined, "left_out": result.left_out + left_out}


def keep_failure(builder: SnapshotBuilder, name: str, kind: str, message: str, rejected: str = "") -> None:
    """Count a failure of a result; its newest value stays."""
    if not name:
        return
    result = builder.results.get(name, _NO_RESULT)
    set_result(
        builder,
        name,
        failures=result.failures + 1,
        attempt=result.attempt + 1,
        error_kind=kind,
        error=message,
        rejected=rejected,
    )


def reduce_result_reply(builder: SnapshotBuilder, effect: Effect, event: Replied) -> None:
    """A reply to a call with a result: no message, no open calls."""
    reply = event.reply
    value = event.output if event.output is not None else {"content": reply.content or ""}
    keep_value(builder, effect.result, value, reply.finish_reason)
    builder.usage = builder.usage.plus(reply.usage)
    builder.warnings += reply.warnings


def reduce_result_failure(builder: SnapshotBuilder, effect: Effect, event: Failed) -> None:
    """A failure of an effect with a result, or of a function or a person's form."""
    rejected = event.reply.content or "" if event.reply is not None else ""
    keep_failure(builder, effect.result, event.kind, event.message, rejected)
    builder.usage = builder.usage.plus(event.paid_usage)


def reduce_return(builder: SnapshotBuilder, event: Returned) -> None:
    """A function returned: an object is the value itself, anything else its `content`."""
    effect = builder.find_open_effect(event.effect)
    value = event.value if isinstance(event.value, dict) else {"content": event.value}
    keep_value(builder, effect.result, value)


def reduce_form(builder: SnapshotBuilder, event: Answered) -> None:
    """A person answered: the fields of the form are the value."""
    keep_value(builder, builder.find_open_effect(event.effect).result, event.content)


# -- agents --------------------------------------------------------------------------------------


def reduce_agent_answer(builder: SnapshotBuilder, event: AgentFinished | AgentFailed) -> None:
    """A child ended: its answer is kept, or its error, or it is the newest message of the conversation.

    Raises:
        IllegalEvent: the item does not exist or is answered.
    """
    effect = _find_agent_effect(builder, event)
    if not effect.messages:  # nothing to do: the list is empty
        keep_value(builder, effect.result, {"items": []})
        return
    resting = tuple(item for item in effect.resting if item != event.item)
    effect = replace(effect, answered=(*effect.answered, event.item), resting=resting)
    _replace_effect(builder, effect)
    builder.usage = builder.usage.plus(event.usage)
    if effect.is_list:
        _keep_item(builder, effect, event)
    elif isinstance(event, AgentFailed):
        _keep_agent_failure(builder, effect, event)
    else:
        keep_value(builder, effect.result, _build_agent_value(event))
        if not effect.result:
            _append_words(builder, event.content)


def reduce_agent_rest(builder: SnapshotBuilder, event: AgentRested) -> None:
    """A child waits for the user: what it said is the answer of this turn.

    Raises:
        IllegalEvent: the item does not exist or is answered.
    """
    effect = _find_agent_effect(builder, event)
    resting, rests = (*effect.resting, event.item), (*effect.rests, event.item)
    _replace_effect(builder, replace(effect, resting=resting, rests=rests))
    builder.usage = builder.usage.plus(event.usage)
    if not effect.result:  # a sub-task may run beside the conversation's own model and tools
        _append_words(builder, event.content)
    builder.answer = event.content
    builder.ended_by = effect.name


def wake_agents(builder: SnapshotBuilder, message: str) -> None:
    """Give the user's message to the children that wait for it."""
    for effect in builder.open_effects:
        if isinstance(effect, RunAgent) and effect.resting:
            messages = tuple(
                message if item in effect.resting else text for item, text in enumerate(effect.messages)
            )
            _replace_effect(builder, replace(effect, messages=messages, resting=()))


def has_open_items(snapshot: SnapshotFields, effect: Effect) -> bool:
    """Whether a child of a `run_agent` is not done."""
    current = next((other for other in snapshot.open_effects if other.id == effect.id), effect)
    assert isinstance(current, RunAgent)
    return len(current.answered) < len(current.messages)


def _find_agent_effect(builder: SnapshotBuilder, event: AgentAnswering) -> RunAgent:
    effect = builder.find_open_effect(event.effect)
    assert isinstance(effect, RunAgent), "only `run_agent` is answered by these events"
    is_open_item = not effect.messages or (
        event.item < len(effect.messages) and event.item not in effect.answered
    )
    if not is_open_item:
        condition = f"item {event.item} of effect {effect.id} ({effect.name}) is open"
        raise IllegalEvent(event.TYPE, builder.state, false_conditions=(condition,))
    return effect


def _replace_effect(builder: SnapshotBuilder, effect: Effect) -> None:
    builder.open_effects = tuple(
        [effect if other.id == effect.id else other for other in builder.open_effects]
    )


def _build_agent_value(event: AgentFinished) -> dict[str, Any]:
    return event.output if event.output is not None else {"content": event.content}


def _keep_item(builder: SnapshotBuilder, effect: RunAgent, event: AgentFinished | AgentFailed) -> None:
    """Keep the answer to one item; with the last one the list is the value, in the order of the items."""
    result = builder.results.get(effect.result, _NO_RESULT)
    has_failed = isinstance(event, AgentFailed)
    entry = (
        {"error_kind": event.kind, "error": event.message}
        if isinstance(event, AgentFailed)
        else _build_agent_value(event)
    )
    items = {**result.items, str(event.item): entry}
    set_result(
        builder,
        effect.result,
        items=items,
        count=result.count + (not has_failed),
        failures=result.failures + has_failed,
        attempt=result.attempt + 1 if has_failed else 0,
        error_kind=entry["error_kind"] if has_failed else "none",
        error=entry["error"] if has_failed else "",
    )
    if len(effect.answered) == len(effect.messages):
        entries = [items[str(index)] for index in range(len(effect.messages))]
        changes = _join_value(builder, effect.result, {"items": entries})
        set_result(builder, effect.result, **changes, items={}, finish_reason="stop")


def keep_finished_items(builder: SnapshotBuilder, effect: Effect) -> None:
    """Keep what the children of a list have brought, where the list is cancelled before its last one ends: an
    interruption costs what is not done, and nothing else. A child without an answer has its place, and says
    why."""
    if not isinstance(effect, RunAgent) or not effect.is_list or not effect.result:
        return
    items = builder.results.get(effect.result, _NO_RESULT).items
    if items:
        entries = [items.get(str(index), _INTERRUPTED) for index in range(len(effect.messages))]
        set_result(
            builder, effect.result, **_join_value(builder, effect.result, {"items": entries}), items={}
        )


_INTERRUPTED = {"error_kind": "interrupted", "error": "it was interrupted before it had an answer"}


def _keep_agent_failure(builder: SnapshotBuilder, effect: RunAgent, event: AgentFailed) -> None:
    keep_failure(builder, effect.result, event.kind, event.message)
    if not effect.result:
        builder.failure = Failed(effect=effect.id, kind=event.kind, message=event.message)
        builder.attempt, builder.unusable_replies = builder.attempt + 1, 0


def build_agent_message(content: str) -> Message:
    """What a child said to the user, as a message of the conversation."""
    return Message(role="assistant", content=content)


def _append_words(builder: SnapshotBuilder, content: str) -> None:
    """Keep what a child said to the user as a message, as if a model had said it."""
    close_open_calls(builder, "an agent answered")
    builder.append_message(build_agent_message(content), "agent")
    builder.reply = Reply(content=content, finish_reason="stop")
    builder.failure = None
    builder.attempt = builder.unusable_replies = 0
