"""Forks: plans a new conversation that starts from a record of another one, with changes.

Earlier records are shared by reference: record 0 of the fork holds the id of its parent, the number of
the shared record and its hash. The core asks again for the effects that were open there. So a fork
at the start of a turn runs the whole turn again, and a fork before a tool's result can replace it. A fork
before a reply hears that reply again, with other arguments of its calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from toolchart.engine.log.record import FORMAT, Record, parse_record
from toolchart.engine.log.replay import ReplayedConversation, load_conversation, read_chain
from toolchart.specs.turn_bounds import narrow_settings
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.core.encoding import decode, encode
from toolchart.states.core.step import SEMANTICS, step
from toolchart.states.effects import CallModel, RunAgent
from toolchart.states.errors import NotFound, SettingsWidened, SpecError, suggest_name
from toolchart.states.events import Forked, Limits, Replied, Settings, ToolFinished, TurnStarted
from toolchart.states.messages import MODEL_OPTIONS, ToolCall
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

_LIMIT_NAMES = tuple(Limits.__struct_fields__)

SETTABLE_NAMES = ("model", "llm", "tools", *MODEL_OPTIONS, *(f"limits.{name}" for name in _LIMIT_NAMES))
"""Names of the settings that a fork may change."""

_SETTING_ALIASES = {
    "tools.max_iterations": "limits.max_iterations",
    "max_iterations": "limits.max_iterations",
    "tools.allowed_tools": "tools",
}
"""The spec's own names for some of these settings."""


FORK_NOTE = "given by a fork"
"""Note of a result that a fork gave in place of the recorded one."""

NarrowTurn = Callable[[Settings, str], Settings]
"""Cuts the settings of a turn down to what its handler may have; see `TurnBounds.narrow`."""

FitArguments = Callable[[ToolCall, dict[str, Any]], dict[str, Any]]
"""The arguments that a person gives a call, as its tool takes them; see `ToolExecutor.read_own_arguments`."""


class ForkChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a fork."""

    settings: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """New values by name, one of `SETTABLE_NAMES`."""
    system: str | None = None
    """A new system prompt."""
    results: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """New results of tool calls, by call id."""
    arguments: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """New arguments of calls of one reply, by call id. The fork hears this reply again, with them."""
    narrow: NarrowTurn | None = None
    """What remains of the settings of a turn for whoever forks; None where the fork may have any."""

    @property
    def has_turn_changes(self) -> bool:
        """Whether settings or the system prompt of the turn change."""
        return bool(self.settings) or self.system is not None


class ForkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A fork that is possible: what its driver starts from."""

    parent: ReplayedConversation
    """The parent after the newest shared record."""
    event: Forked
    """Record 0 of the fork."""
    replacements: tuple[Replied | ToolFinished, ...]
    """What the fork hears first: a reply with other arguments, or other outcomes of tool calls, in place of
    the recorded ones."""


def plan_fork(
    store: Store,
    parent: str,
    name: str,
    at: int | None,
    changes: ForkChanges,
    author: str = "",
    *,
    fit_arguments: FitArguments | None = None,
) -> ForkPlan:
    """Plan the fork of a conversation at a record; nothing is written.

    Args:
        parent: id of the conversation to fork.
        name: id of the fork.
        at: number of the newest shared record. None chooses the record before the reply whose calls change,
            the one before the first changed result, the start of the newest turn where its settings change,
            else the newest record.
        author: who forks it.
        fit_arguments: checks changed arguments; None where no tool is known, as in a fork from the log.

    Raises:
        SpecError: there is no such record, setting or call, no turn that the changes apply to, or arguments
            do not fit.
    """
    if store.read_last_line(name) is not None:
        raise SpecError(f"there is a conversation {name!r} already", hint="choose another name")
    changed_reply = _find_changed_reply(store, parent, at, changes) if changes.arguments else None
    seq = _find_fork_record(store, parent, at, changes) if changed_reply is None else changed_reply.seq - 1
    loaded_conversation = load_conversation(store, parent, seq)
    if loaded_conversation is None or loaded_conversation.next_seq != seq + 1:
        hint = _describe_record_range(store, parent)
        raise SpecError(f"conversation {parent!r} has no record {seq}", hint=hint)
    _refuse_shared_child(loaded_conversation.snapshot, parent)
    settings = _change_settings(store, loaded_conversation.snapshot, changes, parent, seq)
    event = Forked(
        format=FORMAT,
        conversation=name,
        parent=parent,
        seq=seq,
        head=loaded_conversation.head,
        semantics=SEMANTICS,
        settings=settings,
        system=changes.system,
        author=author,
    )
    replacements: tuple[Replied | ToolFinished, ...] = tuple(
        _build_replacement(loaded_conversation.snapshot, call_id, result)
        for call_id, result in changes.results.items()
    )
    if changed_reply is not None:
        replied = _change_reply(changed_reply, changes.arguments, fit_arguments)
        replacements = (_address_reply(loaded_conversation, event, replied),)
    return ForkPlan(parent=loaded_conversation, event=event, replacements=replacements)


def has_lost_parent(store: Store, plan: ForkPlan) -> bool:
    """Whether the parent was deleted after a fork of it was planned.

    Asked after record 0 of the fork is durable and before anything is performed: whoever deleted the parent
    could not see the fork before.
    """
    return store.read_last_line(plan.event.parent) is None


def delete_orphan(store: Store, plan: ForkPlan) -> NoReturn:
    """Delete a fork that has just begun without its parent.

    Raises:
        SpecError: always; nothing of the fork was kept.
    """
    store.delete(plan.event.conversation)
    raise SpecError(f"conversation {plan.event.parent!r} was deleted while it was forked; nothing was kept")


def _refuse_shared_child(snapshot: Snapshot, parent: str) -> None:
    """Refuse to fork where a child has the conversation: it has said things that the fork cannot share."""
    for effect in snapshot.open_effects:
        if isinstance(effect, RunAgent) and effect.rests:
            raise SpecError(
                f"an agent that conversation {parent!r} runs ({effect.name}) talks with the user there, and "
                "children cannot be forked",
                hint=f"fork at a record before {effect.name} was asked for, or after it has ended: --at SEQ",
            )


def _describe_record_range(store: Store, parent: str) -> str:
    """The numbers of the parent's records, as a hint."""
    last = store.read_last_line(parent)
    return f"its records are 0 to {last[0]}" if last else "there is no such conversation"


# -- the shared record ---------------------------------------------------------------------------


def _find_fork_record(store: Store, parent: str, at: int | None, changes: ForkChanges) -> int:
    """Number of the newest record that fork and parent share."""
    if at is not None:
        return at
    newest = store.read_last_line(parent)
    if newest is None:
        raise NotFound(parent)
    if not (changes.results or changes.has_turn_changes):
        return newest[0]
    turn_start, before_result = None, None
    for record in read_chain(store.read_lines(parent), parent):
        if record.event["type"] == TurnStarted.TYPE:
            turn_start = record.seq
        is_replaced = record.event.get("call_id") in changes.results
        if record.event["type"] == ToolFinished.TYPE and is_replaced and before_result is None:
            before_result = record.seq - 1
    seq = before_result if changes.results else turn_start
    if seq is None:
        missing = f"no result of {', '.join(changes.results)}" if changes.results else "no turn"
        raise SpecError(
            f"conversation {parent!r} itself has {missing}",
            hint="name the record with --at; the log of a fork has only the records after its start",
        )
    return seq


# -- other arguments of calls --------------------------------------------------------------------
#
# A call gets its arguments from the reply that asks for it. So a fork with other arguments begins before that
# reply and hears it again, changed. Review, approval and tools then take the call as that of any reply.


def _list_call_ids(record: Record, event: Replied) -> list[str]:
    """The ids of the calls of a reply: those that the core gave, where the host's were missing or used."""
    return list(record.calls) or [call.id for call in event.reply.tool_calls]


def _find_changed_reply(store: Store, parent: str, at: int | None, changes: ForkChanges) -> Record:
    """The record of the reply that asked for the calls whose arguments change.

    Raises:
        SpecError: no reply asked for them, or no single one did; or the fork is to share that reply.
    """
    if changes.results:
        raise SpecError(
            "a fork changes arguments of calls, or results: a call with other arguments has no result yet",
            hint="fork with the arguments, and then that fork with the result",
        )
    if store.read_last_line(parent) is None:
        raise NotFound(parent)
    replies: dict[str, Record] = {}
    for record in read_chain(store.read_lines(parent), parent):
        if (
            record.event["type"] == Replied.TYPE
            and not record.late
            and record.event["reply"].get("tool_calls")
        ):
            event = record.decode_event()
            assert isinstance(event, Replied), "its type says so"
            replies |= dict.fromkeys(_list_call_ids(record, event), record)
    for call_id in changes.arguments:
        if call_id not in replies:
            hint = suggest_name(call_id, replies) if replies else "it has no calls at all"
            raise SpecError(
                f"conversation {parent!r} itself has no call {call_id!r}",
                hint=f"{hint}; calls of records that a fork shares are changed in a fork of its parent",
            )
    records = {replies[call_id].seq: replies[call_id] for call_id in changes.arguments}
    if len(records) > 1:
        places = ", ".join(f"{call_id!r} by record {replies[call_id].seq}" for call_id in changes.arguments)
        raise SpecError(
            f"the calls were asked for by different replies: {places}",
            hint="a fork changes one reply, after which the later ones do not exist; name the calls of one",
        )
    [record] = records.values()
    if at is not None and at != record.seq - 1:
        names = ", ".join(map(repr, changes.arguments))
        raise SpecError(
            f"a fork with other arguments of {names} shares the records up to {record.seq - 1}, before the "
            f"reply that asked for the call, not up to {at}",
            hint=f"leave the record out, or name {record.seq - 1}",
        )
    return record


def _change_reply(
    record: Record, arguments: Mapping[str, Mapping[str, Any]], fit: FitArguments | None
) -> Replied:
    """The recorded reply with other arguments of its calls.

    What the model said stays, and so does what its host wants back with it. What was true of its way from the
    host does not: nothing was sent and nothing was paid here. The log of the parent has that.
    """
    event = record.decode_event()
    assert isinstance(event, Replied), "found by its type"
    calls = list(event.reply.tool_calls)
    for position, call_id in enumerate(_list_call_ids(record, event)):
        if call_id in arguments:
            call = replace(calls[position], arguments=dict(arguments[call_id]), raw=None, problem=None)
            if fit is not None:
                call = replace(call, arguments=_fit_arguments(replace(call, id=call_id), fit))
            calls[position] = call
    reply = replace(
        event.reply,
        tool_calls=tuple(calls),
        usage=None,
        response_id=None,
        details=None,
        wire_digest=None,
        rate_limits=None,
    )
    return replace(
        event,
        at="",
        reply=reply,
        deltas=(),
        answer_digest=None,
        raw_answer=None,
        changed_calls=tuple(arguments),
    )


def _fit_arguments(call: ToolCall, fit: FitArguments) -> dict[str, Any]:
    try:
        return fit(call, call.arguments or {})
    except SpecError as error:
        raise SpecError(
            f"the new arguments of {call.id!r} are refused: {error.message}", hint=error.hint
        ) from None


def _address_reply(parent: ReplayedConversation, forked: Forked, replied: Replied) -> Replied:
    """The reply as the answer of the same model call in the fork, where it is asked for under another id.

    Raises:
        SpecError: the calls of that effect are never run: its reply is a value of the flow.
    """
    effect = next((effect for effect in parent.snapshot.open_effects if effect.id == replied.effect), None)
    assert isinstance(effect, CallModel), "the core took the reply as its answer"
    if effect.result:
        raise SpecError(
            f"calls in a reply to {effect.name} are not run, so that their arguments say nothing",
            hint="change the arguments of a call that the agent runs",
        )
    asked = step(parent.machine, parent.snapshot, forked).snapshot.open_effects
    same = next(new for new in asked if (new.state, new.name) == (effect.state, effect.name))
    return replace(replied, effect=same.id)


# -- the changes ---------------------------------------------------------------------------------


def _change_settings(
    store: Store, snapshot: Snapshot, changes: ForkChanges, parent: str, at: int
) -> Settings | None:
    """The settings of the fork's turn, narrowed and changed; None where they stay as they are recorded.

    Raises:
        SettingsWidened: a change gives the turn more than its handler has.
    """
    if snapshot.settings is None and not changes.has_turn_changes:
        return None
    if changes.has_turn_changes and (snapshot.settings is None or snapshot.is_over):
        raise SpecError(
            f"no turn is open after record {at}, so there are no settings to change",
            hint="fork at the record that starts the turn, or change the agent for the next one",
        )
    settings = snapshot.settings
    assert settings is not None, "just checked"
    narrow = changes.narrow
    if narrow is not None and (snapshot.open_effects or not snapshot.is_over):
        # A turn that waits for the user is narrowed too: a timer may go on with it.
        handler = _find_turn_handler(store, parent, at)
        settings = change_within_bound(settings, changes.settings, lambda value: narrow(value, handler))
    else:
        for name, value in changes.settings.items():
            settings = replace_setting(settings, name, value)
    return settings if changes.has_turn_changes or settings != snapshot.settings else None


def _find_turn_handler(store: Store, conversation: str, at: int) -> str:
    """The name of the handler of the newest turn up to a record; empty where it has none."""
    handler = None
    for seq, line in zip(range(at + 1), store.read_lines(conversation), strict=False):
        # In the bytes first: most records of a long log need not be decoded for this.
        if seq and _TURN_MARK not in line:
            continue
        event = parse_record(line, seq, conversation).event
        if event.get("type") == TurnStarted.TYPE:
            handler = str(event.get("handler", ""))
        elif event.get("type") == Forked.TYPE:
            handler = _find_turn_handler(store, event["parent"], event["seq"])
    return handler or ""


_TURN_MARK = TurnStarted.TYPE.encode()


def change_within_bound(
    settings: Settings, changes: Mapping[str, Any], narrow: Callable[[Settings], Settings]
) -> Settings:
    """Recorded settings within their bound, with changes that only narrow them further.

    Host and model come first, because the bound of the others depends on them.

    Raises:
        SettingsWidened: a change gives more than the bound or the recording; `path` names it.
        SpecError: there is no such setting, or it cannot have the value.
    """
    settings = narrow(settings)
    choices = {name: value for name, value in changes.items() if name in ("llm", "model")}
    for name, value in choices.items():
        settings = replace_setting(settings, name, value)
    settings = narrow(settings)
    for name, value in changes.items():
        if name in choices:
            continue
        changed = replace_setting(settings, name, value)
        if narrow_settings(changed, settings) != _drop_unset_options(changed):
            raise SettingsWidened(
                f"{value!r} is more than the handler of the turn gives", path=f"settings.{name}"
            )
        settings = _drop_unset_options(changed)
    return settings


def _drop_unset_options(settings: Settings) -> Settings:
    """The settings without options that are None, which are as if they were not there."""
    options = {name: value for name, value in settings.options.items() if value is not None}
    return replace(settings, options=options)


def replace_setting(settings: Settings, name: str, value: Any) -> Settings:
    """The settings with one value replaced and checked; `name` is one of `SETTABLE_NAMES` or the spec's own.

    Raises:
        SpecError: there is no such setting, or it cannot have the value.
    """
    name = _SETTING_ALIASES.get(name, name)
    data = encode(settings)
    if name not in SETTABLE_NAMES:
        raise SpecError(f"a fork cannot set {name!r}", hint=suggest_name(name, SETTABLE_NAMES))
    if name in MODEL_OPTIONS:
        return replace(settings, options={**settings.options, name: value})
    if name.startswith("limits."):
        data["limits"] = {**data.get("limits", {}), name.removeprefix("limits."): value}
    elif name == "tools":
        data["tools"] = [value] if isinstance(value, str) else value
    else:
        data["service" if name == "llm" else name] = value
    try:
        return decode(Settings, data)
    except ValueError as error:
        raise SpecError(f"{name} cannot be {value!r}: {error}") from None


def _build_replacement(snapshot: Snapshot, call_id: str, value: Any) -> ToolFinished:
    """The event that gives an open call its new result."""
    open_calls = {
        open_call.call.id: open_call.call for open_call in snapshot.calls if open_call.outcome is None
    }
    if call_id not in open_calls:
        raise SpecError(
            f"no call {call_id!r} waits for a result there",
            hint=suggest_name(call_id, open_calls) if open_calls else "no call waits there at all",
        )
    result = {
        "success": True,
        "result": value,
        "tool_name": open_calls[call_id].name,
        "execution_time_ms": 0.0,
    }
    return ToolFinished(call_id=call_id, outcome="succeeded", result=result, notes=(FORK_NOTE,))


def find_tool_result(store: Store, conversation: str, call_id: str) -> dict[str, Any] | None:
    """The whole result of an earlier tool call, from the log or from the log that a fork shares."""
    # Records are compact JSON, so the key and its value stand there in exactly these bytes.
    needle = f'"call_id":{encode_canonical_text(call_id)}'.encode()
    for seq, line in enumerate(store.read_lines(conversation)):
        event = parse_record(line, seq, conversation).event if needle in line or seq == 0 else {}
        if event.get("type") == ToolFinished.TYPE and event["call_id"] == call_id:
            return dict(event["result"])
        if event.get("type") == Forked.TYPE:
            inherited_result = find_tool_result(store, event["parent"], call_id)
            if inherited_result is not None:
                return inherited_result
    return None
