"""Asks: what a step asked for, as a record shows it, with what performing it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from toolchart.states.effects import (
    Answer,
    AskApproval,
    AskPerson,
    AwaitUser,
    CallFunction,
    CallModel,
    Compact,
    Effect,
    Perform,
    RunAgent,
    RunTools,
    Wait,
)
from toolchart.states.message_list import compute_request_digest
from toolchart.states.messages import Message
from toolchart.states.snapshot import Snapshot

_get_id, _get_refused_id = attrgetter("id"), attrgetter("call.id")


class RecordedAsk(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An effect that a step asked for, as a record shows it: its identity, and what performing it needs."""

    id: int
    """Number of the effect in the conversation; the event that answers it names this number."""
    effect: str
    """Its name in the chart."""
    state: str = ""
    """The state that it belongs to."""
    digest: str = ""
    """`call_model`: digest of the request."""
    messages: int | None = None
    """`call_model`: how many messages the request has, the system message included."""
    sent: str = ""
    """`call_model` in a redacted log: keyed digest (HMAC) of the request that was sent."""
    calls: tuple[str, ...] = ()
    """`run_tools`: ids of the calls to run. `ask_approval`: ids of the calls to decide."""
    refused: tuple[str, ...] = ()
    """`run_tools`: ids of the calls that are answered without running."""
    seconds: float | None = None
    """`wait`: how long."""
    content: str | None = None
    """An answer to the user, where it differs from the text of the reply."""
    result: str = ""
    """The name under which its result is kept."""
    host: str = ""
    """`call_model`: the `llms` entry to ask, where it is not that of the turn."""
    own: tuple[Message, ...] = ()
    """`call_model`: the messages at the end of the request that are not those of the conversation."""
    due: str = ""
    """`wait`: when it runs out."""
    arguments: dict[str, Any] = {}
    """What an agent, a function, a person or an effect of another package needs."""


def describe_ask(effect: Effect, snapshot: Snapshot, sent: Mapping[int, str] | None = None) -> RecordedAsk:
    """An effect as a record shows it.

    Messages are logged once, in the event that brought them. So a request appears as its digest and the
    number of its messages, and an answer has its text only where it differs from the model's reply.

    Args:
        snapshot: the one after the step.
        sent: keyed digests of requests by effect id, where the log is redacted.
    """
    details = _ASK_DETAILS.get(type(effect))
    if details is None:
        return RecordedAsk(id=effect.id, effect=effect.name, state=effect.state)
    ask = details(effect, snapshot)
    return replace(ask, sent=sent.get(effect.id, "")) if sent else ask


def _describe_model_call(effect: CallModel, snapshot: Snapshot) -> RecordedAsk:
    request = effect.request
    return RecordedAsk(
        id=effect.id,
        effect=effect.name,
        state=effect.state,
        digest=compute_request_digest(request),
        messages=len(request.messages),
        result=effect.result,
        host=effect.host,
        own=tuple(request.messages[-effect.own_messages :]) if effect.own_messages else (),
    )


def _describe_tool_run(effect: RunTools, snapshot: Snapshot) -> RecordedAsk:
    return RecordedAsk(
        id=effect.id,
        effect=effect.name,
        state=effect.state,
        calls=tuple(map(_get_id, effect.calls)),
        refused=tuple(map(_get_refused_id, effect.refused)),
    )


def _describe_approval(effect: AskApproval, snapshot: Snapshot) -> RecordedAsk:
    calls = tuple([call.id for call in effect.calls])
    to = {"to": list(effect.to)} if effect.to else {}
    return RecordedAsk(id=effect.id, effect=effect.name, state=effect.state, calls=calls, arguments=to)


def _describe_wait(effect: Wait, snapshot: Snapshot) -> RecordedAsk:
    return RecordedAsk(
        id=effect.id, effect=effect.name, state=effect.state, seconds=effect.seconds, due=effect.due
    )


def _describe_answer(effect: Answer, snapshot: Snapshot) -> RecordedAsk:
    is_reply_text = snapshot.reply is not None and effect.content == (snapshot.reply.content or "")
    content = None if is_reply_text else effect.content
    return RecordedAsk(id=effect.id, effect=effect.name, state=effect.state, content=content)


_IDENTITY = ("type", "id", "name", "state", "kind", "result")


def _describe_declared(effect: Effect, snapshot: Snapshot) -> RecordedAsk:
    """An effect of a flow, with everything that performing it needs."""
    plain_data = _replace_tuples(to_builtins(effect))
    data = {key: item for key, item in plain_data.items() if key not in _IDENTITY and item}
    return RecordedAsk(
        id=effect.id, effect=effect.name, state=effect.state, result=effect.result, arguments=data
    )


def _replace_tuples(value: Any) -> Any:
    """JSON data in the form in which a record gives it back: lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _replace_tuples(item) for key, item in value.items()}
    return [_replace_tuples(item) for item in value] if isinstance(value, list | tuple) else value


def _describe_work(effect: Perform, snapshot: Snapshot) -> RecordedAsk:
    return RecordedAsk(id=effect.id, effect=effect.name, state=effect.state, arguments=effect.arguments)


_ASK_DETAILS: dict[type[Effect], Callable[[Any, Snapshot], RecordedAsk]] = {
    CallModel: _describe_model_call,
    RunTools: _describe_tool_run,
    AskApproval: _describe_approval,
    Wait: _describe_wait,
    Answer: _describe_answer,
    Perform: _describe_work,
    **dict.fromkeys((RunAgent, CallFunction, AskPerson, AwaitUser, Compact), _describe_declared),
}
"""What performing an effect needs, by the class of its value; other effects need nothing but their
identity."""
