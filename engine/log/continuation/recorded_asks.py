"""Asks: what a step asked for, as a record shows it, and the digest of all that its performer gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import to_builtins

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
    compute_arguments_digest,
    compute_effect_digest,
    compute_shown_digest,
)
from toolchart.states.events import Decided, Event, Returned, ToolFinished
from toolchart.states.messages import Message
from toolchart.states.snapshot import Snapshot

_get_id, _get_refused_id = attrgetter("id"), attrgetter("call.id")


class RecordedAsk(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    """An effect that a step asked for, as a record shows it.

    What performing it needs is derived, or stands in a checkpoint: `digest` covers it. The other fields say
    what readers want to see without deriving.
    """

    id: int
    """Number of the effect in the conversation; the event that answers it names this number."""
    effect: str
    """Its name in the chart."""
    state: str = ""
    """The state that it belongs to; empty where it is the record's `target`."""
    digest: str = ""
    """Digest of everything that the effect hands to its performer (`compute_effect_digest`); empty where its
    content was erased."""
    messages: int | None = None
    """`call_model`: how many messages the request has, the system message included."""
    sent: str = ""
    """In a redacted log, where another effect is performed: the keyed digest (HMAC) of its digest."""
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

    Messages are logged once, in the event that brought them. So a request appears as the number of its
    messages, and an answer has its text only where it differs from the model's reply.

    Args:
        snapshot: the one after the step.
        sent: keyed digests of effects by their ids, where the log is redacted.
    """
    describe_details = _ASK_DETAILS.get(type(effect))
    return RecordedAsk(
        id=effect.id,
        effect=effect.name,
        state="" if effect.state == snapshot.state else effect.state,
        digest=compute_effect_digest(effect),
        sent=sent.get(effect.id, "") if sent else "",
        result=effect.result,
        **(describe_details(effect, snapshot) if describe_details is not None else {}),
    )


def _describe_model_call(effect: CallModel, snapshot: Snapshot) -> dict[str, Any]:
    messages, own_count = effect.request.messages, effect.own_messages
    own = tuple(messages[-own_count:]) if own_count else ()
    return {"messages": len(messages), "host": effect.host, "own": own}


def _describe_tool_run(effect: RunTools, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "calls": tuple(map(_get_id, effect.calls)),
        "refused": tuple(map(_get_refused_id, effect.refused)),
    }


def _describe_approval(effect: AskApproval, snapshot: Snapshot) -> dict[str, Any]:
    to = {"to": list(effect.to)} if effect.to else {}
    return {"calls": tuple(map(_get_id, effect.calls)), "arguments": to}


def _describe_wait(effect: Wait, snapshot: Snapshot) -> dict[str, Any]:
    return {"seconds": effect.seconds, "due": effect.due}


def _describe_answer(effect: Answer, snapshot: Snapshot) -> dict[str, Any]:
    is_reply_text = snapshot.reply is not None and effect.content == (snapshot.reply.content or "")
    return {"content": None if is_reply_text else effect.content}


_IDENTITY = ("type", "id", "name", "state", "kind", "result")


def _describe_declared(effect: Effect, snapshot: Snapshot) -> dict[str, Any]:
    """The own fields of an effect of a flow that are not empty."""
    plain_data = _replace_tuples(to_builtins(effect))
    return {"arguments": {key: item for key, item in plain_data.items() if key not in _IDENTITY and item}}


def _replace_tuples(value: Any) -> Any:
    """JSON data with lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _replace_tuples(item) for key, item in value.items()}
    return [_replace_tuples(item) for item in value] if isinstance(value, list | tuple) else value


def _describe_work(effect: Perform, snapshot: Snapshot) -> dict[str, Any]:
    return {"arguments": effect.arguments}


# -- what performers got ---------------------------------------------------------------------------


HANDED_DIGESTS = ("arguments_digest", "shown_digest")
"""Fields of events with the digest of what a tool, a function or a person got."""


def compute_expected_digest(event: Event, snapshot: Snapshot) -> tuple[str, str]:
    """The name of the digest in an answer that follows from what was asked, and its value; empty for none.

    Args:
        snapshot: the one before the event.
    """
    match event:
        case ToolFinished(arguments_digest=digest) if digest:
            open_call = snapshot.calls.find(event.call_id)
            if open_call is not None:
                return "arguments_digest", compute_arguments_digest(open_call.call.arguments)
        case Returned(arguments_digest=digest) if digest:
            for effect in snapshot.open_effects:
                if effect.id == event.effect and isinstance(effect, CallFunction):
                    return "arguments_digest", compute_arguments_digest(effect.arguments)
        case Decided(shown_digest=digest, approved=True) if digest:
            open_call = snapshot.calls.find(event.call_id)
            if open_call is not None:
                reason = open_call.reason or ""
                return "shown_digest", compute_shown_digest(open_call.call, reason, event.definition)
    return "", ""


_ASK_DETAILS: dict[type[Effect], Callable[[Any, Snapshot], dict[str, Any]]] = {
    CallModel: _describe_model_call,
    RunTools: _describe_tool_run,
    AskApproval: _describe_approval,
    Wait: _describe_wait,
    Answer: _describe_answer,
    Perform: _describe_work,
    **dict.fromkeys((RunAgent, CallFunction, AskPerson, AwaitUser, Compact), _describe_declared),
}
"""The fields of an ask that readers want beside its digest, by the class of the effect; none for others."""
