"""Fork: a new conversation that goes on from a record of another one, with something changed.

What came before is shared by reference: record 0 of the fork names its parent, the record and that
record's hash. What nothing had answered there is asked for again, so a fork at the start of a turn runs
the whole turn anew, and one before a tool's result goes on from another result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolchart.engine.log.record import FORMAT, parse
from toolchart.engine.log.replay import Standing, read_chain, standing
from toolchart.states.canonical_json import canonical_text
from toolchart.states.encoding import decode, encode
from toolchart.states.errors import SpecError
from toolchart.states.events import Forked, Limits, Settings, ToolFinished, TurnStarted
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot
from toolchart.states.suggestions import nearest

OPTIONS = (
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "stop",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
)

_LIMITS = tuple(Limits.__dataclass_fields__)

SETTABLE = ("model", "llm", "tools", *OPTIONS, *(f"limits.{name}" for name in _LIMITS))
"""What a fork may set."""

_ALSO = {
    "tools.max_iterations": "limits.max_iterations",
    "max_iterations": "limits.max_iterations",
    "tools.allowed_tools": "tools",
}
"""The same under the names that an agent spec has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What is to be otherwise in a fork."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values by name, one of `SETTABLE`."""
    system: str | None = None
    """Another system prompt."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """Other results of calls, by call id."""

    @property
    def of_turn(self) -> bool:
        """Whether something changes that a turn is set up with."""
        return bool(self.settings) or self.system is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork that can begin."""

    base: Standing
    """Where the parent stood."""
    event: Forked
    given: tuple[ToolFinished, ...]
    """Outcomes that take the place of what happened."""


def plan_fork(store: Store, parent: str, name: str, at: int | None, changes: Changes) -> Fork:
    """The fork of a conversation at a record; nothing is written.

    Args:
        at: the newest record that is shared. Without it: the one before the first result that is
            changed; the start of the newest turn where its set-up is changed; else the newest record.

    Raises:
        SpecError: no such record, setting or call, or a change that nothing there depends on.
    """
    if store.last(name) is not None:
        raise SpecError(f"there is a conversation {name!r} already", hint="choose another name")
    place = _place(store, parent, at, changes)
    base = standing(store, parent, place)
    if base is None or base.next_seq != place + 1:
        raise SpecError(
            f"conversation {parent!r} has no record {place}", hint=_numbers(store, parent)
        )
    settings = _changed(base.snapshot, changes, place)
    event = Forked(
        format=FORMAT,
        conversation=name,
        parent=parent,
        seq=place,
        head=base.head,
        asks=tuple(effect.name for effect in base.outstanding),
        settings=settings,
        system=changes.system,
    )
    given = tuple(_given(base.snapshot, call, value) for call, value in changes.results.items())
    return Fork(base=base, event=event, given=given)


def _numbers(store: Store, parent: str) -> str:
    last = store.last(parent)
    return f"its records are 0 to {last[0]}" if last else "there is no such conversation"


# -- where ---------------------------------------------------------------------------------------


def _place(store: Store, parent: str, at: int | None, changes: Changes) -> int:
    if at is not None:
        return at
    newest = store.last(parent)
    if newest is None:
        raise SpecError(f"there is no conversation {parent!r} in this log")
    if not (changes.results or changes.of_turn):
        return newest[0]
    turn, result = None, None
    for record in read_chain(store.read(parent), parent):
        if record.event["type"] == TurnStarted.TYPE:
            turn = record.seq
        changed = record.event.get("call_id") in changes.results
        if record.event["type"] == ToolFinished.TYPE and changed and result is None:
            result = record.seq - 1
    found = result if changes.results else turn
    if found is None:
        missing = f"no result of {', '.join(changes.results)}" if changes.results else "no turn"
        raise SpecError(
            f"conversation {parent!r} itself has {missing}",
            hint="say where with --at; a fork holds only what came after it began",
        )
    return found


# -- what ----------------------------------------------------------------------------------------


def _changed(snapshot: Snapshot, changes: Changes, at: int) -> Settings | None:
    """The settings of the open turn with the changes; None where nothing is to change."""
    if not changes.of_turn:
        return None
    if snapshot.settings is None or snapshot.over:
        raise SpecError(
            f"no turn is open after record {at}, so there is nothing to set up anew",
            hint="fork at the record that starts the turn, or change the agent for the next one",
        )
    settings = snapshot.settings
    for name, value in changes.settings.items():
        settings = _set(settings, _ALSO.get(name, name), value)
    return settings


def _set(settings: Settings, name: str, value: Any) -> Settings:
    data = encode(settings)
    if name not in SETTABLE:
        raise SpecError(f"a fork cannot set {name!r}", hint=nearest(name, SETTABLE))
    if name in OPTIONS:
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


def _given(snapshot: Snapshot, call_id: str, value: Any) -> ToolFinished:
    waiting = {opened.call.id: opened.call for opened in snapshot.calls if opened.outcome is None}
    if call_id not in waiting:
        raise SpecError(
            f"no call {call_id!r} waits for a result there",
            hint=nearest(call_id, waiting) if waiting else "no call waits there at all",
        )
    result = {
        "success": True,
        "result": value,
        "tool_name": waiting[call_id].name,
        "execution_time_ms": 0.0,
    }
    return ToolFinished(
        call_id=call_id, outcome="succeeded", result=result, notes=("given by a fork",)
    )


def result_of(store: Store, conversation: str, call_id: str) -> dict[str, Any] | None:
    """The whole result of an earlier call, from the log or from what a fork shares."""
    wanted = f'"call_id":{canonical_text(call_id)}'.encode()
    for seq, line in enumerate(store.read(conversation)):
        event = parse(line, seq, conversation).event if wanted in line or seq == 0 else {}
        if event.get("type") == ToolFinished.TYPE and event["call_id"] == call_id:
            return dict(event["result"])
        if event.get("type") == Forked.TYPE:
            shared = result_of(store, event["parent"], call_id)
            if shared is not None:
                return shared
    return None
