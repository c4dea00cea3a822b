"""Twins of golden logs, which must be refused, and the known gaps: what nothing guards today.

In a twin one value differs and all hashes fit, so that only derivation can notice. A gap that closes fails a
test here until its row is removed: the table stays true.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from golden_logs import list_golden_logs, read_golden_log, split_conversations
from golden_twins import (
    Conversations,
    Place,
    find_refusal,
    iterate_places,
    make_program,
    make_twins,
    rechain,
    write_log_of,
)
from msgspec.structs import replace

from toolchart.states.effects import AskApproval, CallFunction, CallModel, Effect, ReviewCalls, RunTools
from toolchart.states.messages import ToolCall

_CHILD = "a child is another log; `check_family` and `verify` compare the two, `replay` reads one"
_TOLD = "what a person, a host or a tool said: nothing that a record derives depends on it"
_RAW = "`replay` decodes it again where the log keeps the raw answer (`log_answers`)"
_VERSIONS = "it says who wrote the log; `replay --against` an agent compares it"
_SHOWN = "it is shown to people, and no request or guard has it"

_JOB = "where a call waits at its host: only who goes on with an open turn reads it"

KNOWN_GAPS = {
    "asks/*/sent": "a keyed digest: the key is not in the log",
    "event/agent_failed/conversation": _CHILD,
    "event/agent_failed/head": _CHILD,
    "event/agent_finished/conversation": _CHILD,
    "event/agent_finished/head": _CHILD,
    "event/agent_finished/usage/input": _CHILD,
    "event/agent_finished/usage/output": _CHILD,
    "event/agent_rested/content": _CHILD,
    "event/agent_rested/conversation": _CHILD,
    "event/agent_rested/head": _CHILD,
    "event/configured/parent/conversation": _CHILD,
    "event/configured/parent/effect": _CHILD,
    "event/configured/parent/head": _CHILD,
    "event/configured/parent/item": _CHILD,
    "event/answered/by": _TOLD,
    "event/cancelled/reason": _TOLD,
    "event/decided/by": _TOLD,
    "event/tool_finished/raised": _TOLD,
    "event/counted/source": _TOLD,
    "event/turn_started/handler": _TOLD,
    "event/reviewed/verdicts/*/definition": "an approval has the one that was shown",
    "event/reviewed/verdicts/order": "verdicts name their calls",
    "event/reviewed/verdicts/*/idempotent": "it says whose start is marked; only what is resumed reads it",
    "event/calls_started/calls/order": "each call is named",
    "event/call_submitted/calls": _JOB,
    "event/call_submitted/job": _JOB,
    "event/call_submitted/key": _JOB,
    "event/failed/reply/native_reason": _RAW,
    "event/failed/reply/wire_digest": "`replay` compares it with the adapter",
    "event/failed/wire_digest": "`replay` compares it with the adapter",
    "event/replied/answer_digest": "`replay` compares it with the raw answer, where the log keeps that",
    "event/replied/reply/native_reason": _RAW,
    "event/replied/reply/wire_digest": "`replay` compares it with the adapter",
    "event/replied/deltas/*/kind": _RAW,
    "event/replied/deltas/*/text": _RAW,
    "event/replied/deltas/order": _RAW,
    "event/configured/spec": "the chart, the tools and the settings of turns are recorded beside it",
    "event/migrated/spec": "the chart, the tools and the settings of turns are recorded beside it",
    "event/configured/versions/sources": _VERSIONS,
    "event/configured/versions/toolchart": _VERSIONS,
    "event/configured/versions/tools": _VERSIONS,
    "event/continued/versions/toolchart": _VERSIONS,
    "event/continued/versions/tools": _VERSIONS,
    "event/migrated/versions/toolchart": _VERSIONS,
    "event/migrated/versions/tools": _VERSIONS,
    "event/migrated/format": "the format that record 0 has is read, and no later one",
    "event/migrated/texts": "no text of the core is written after it",
    "event/forked/semantics": "whatever it says, this release derives by its own",
    "event/forked/settings/context_limit": "no guard of the fork reads it",
    "event/forked/settings/provider": "requests have the model; `replay` of the command knows the host",
    "event/forked/settings/service": "requests have the model; `replay` of the command knows the host",
    "event/turn_started/settings/provider": "requests have the model; `replay` of the command knows the host",
    "event/turn_started/settings/service": "requests have the model; `replay` of the command knows the host",
    "event/turn_started/warnings/*": _SHOWN,
    "event/reviewed/verdicts/*/notes/*": _SHOWN,
    "event/tool_finished/notes/*": _SHOWN,
    "event/tool_finished/notes/order": _SHOWN,
}
"""Why nothing notices another value: by path of the value."""

MOST_PLACES = 60
"""In how many places of a path, in different logs first, a twin is tried before the path counts as a gap."""


@cache
def read_conversations(log: str) -> Conversations:
    """The conversations of a golden log."""
    return split_conversations(read_golden_log(log))


@cache
def group_places() -> dict[str, list[Place]]:
    """The places of each path: one of each log first, then the second ones, and so on."""
    by_path: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for path, place in iterate_places():
        by_path[path][place.log].append(place)
    return {
        path: [
            places[index] for index in range(MOST_PLACES) for places in logs.values() if index < len(places)
        ]
        for path, logs in by_path.items()
    }


def list_refusals(place: Place) -> Iterator[str | None]:
    """Why each twin of a place is refused; None for one that is not."""
    for twin in make_twins(read_conversations(place.log), place):
        yield find_refusal(twin, place.conversation)


def is_derived(path: str) -> bool:
    """Whether a value follows from what happened, and is not itself what happened."""
    return not path.startswith("event/")


def test_rechaining_changes_nothing_but_hashes() -> None:
    """A golden log that is chained again without a change is the same, byte for byte, and is derived."""
    for log in list_golden_logs()[::9]:
        conversations = read_conversations(log)
        if any(place.log == log for places in group_places().values() for place in places):
            copy = {name: list(lines) for name, lines in conversations.items()}
            assert rechain(copy) == conversations
            assert [find_refusal(conversations, name) for name in conversations] == [None] * len(
                conversations
            )


def test_every_derived_value_is_guarded() -> None:
    """Another state, guard, ask, digest, message or order is refused, wherever it stands."""
    accepted = [
        place
        for path, places in group_places().items()
        for place in places[:8]
        if is_derived(path) and path not in KNOWN_GAPS and None in list_refusals(place)
    ]
    assert accepted == []


def test_the_known_gaps_are_all_there_are() -> None:
    """Each field of each event changes something that is derived, or it is a known gap with its reason."""
    gaps = {
        path
        for path, places in group_places().items()
        if not any(refusal for place in places[:MOST_PLACES] for refusal in list_refusals(place))
    }
    assert sorted(gaps - set(KNOWN_GAPS)) == [], "nothing guards these any more"
    assert sorted(set(KNOWN_GAPS) - gaps) == [], "these gaps have closed: remove their rows"


def test_each_golden_log_has_twins_that_are_refused() -> None:
    """In every log another guard, digest, order or state is refused, and something else that happened."""
    by_log: dict[str, list[tuple[str, Place]]] = defaultdict(list)
    for path, places in group_places().items():
        if path not in KNOWN_GAPS:
            for place in places:
                by_log[place.log].append((path, place))
    for log, rows in by_log.items():
        random.Random(log).shuffle(rows)
        derived = [place for path, place in rows if is_derived(path)][:4]
        assert all(None not in list_refusals(place) for place in derived), log
        happened = (place for path, place in rows if not is_derived(path))
        assert any(refusal for place in happened for refusal in list_refusals(place)), log


# -- programs that ask for something else ------------------------------------------------------------


def _change_arguments(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, arguments={**(call.arguments or {}), "word": "other"}) for call in calls)


def _change_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if schema else {"type": "object"}


def _rename(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    return tuple(replace(call, name="list_words") for call in calls)


def _edit(kind: type[Effect], field: str, edit: Callable[[Any], Any]) -> Callable[[Effect], Effect | None]:
    def edit_effect(effect: Effect) -> Effect | None:
        return replace(effect, **{field: edit(getattr(effect, field))}) if isinstance(effect, kind) else None

    return edit_effect


_WIDER = ("look_up", "pay", "fail", "crash", "hang", "list_words", "draw", "more")

PROGRAMS: dict[str, tuple[str, Callable[[Effect], Effect | None]]] = {
    "other arguments for run_tools": ("tool_loop-limit", _edit(RunTools, "calls", _change_arguments)),
    "another tool name for run_tools": ("tool_loop-limit", _edit(RunTools, "calls", _rename)),
    "a wider allow-list for run_tools": ("tool_loop-limit", _edit(RunTools, "allowed", lambda _: _WIDER)),
    "other arguments for review_calls": ("tool_loop-limit", _edit(ReviewCalls, "calls", _change_arguments)),
    "a wider allow-list for review_calls": (
        "tool_loop-limit",
        _edit(ReviewCalls, "allowed", lambda _: _WIDER),
    ),
    "other arguments shown to an approver": (
        "approver-and-policy",
        _edit(AskApproval, "calls", _change_arguments),
    ),
    "other approvers": ("approver-and-policy", _edit(AskApproval, "to", lambda names: (*names, "mallory"))),
    "a call without its schema": ("flow-judge", _edit(CallModel, "schema", lambda _: None)),
    "a function without its schema": ("functions", _edit(CallFunction, "schema", _change_schema)),
    "a function with other arguments": (
        "functions",
        _edit(CallFunction, "arguments", lambda arguments: {**arguments, "more": 1}),
    ),
    "a request with another model": (
        "tool_loop-limit",
        _edit(CallModel, "request", lambda request: replace(request, model="other")),
    ),
}
"""Programs that do something else than the log says: by name a scenario, and what they ask for."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_asks_for_something_else_is_noticed(name: str) -> None:
    """The log of a changed core is refused by the core as it is, and that of the core by the changed one."""
    scenario, edit = PROGRAMS[name]
    program = make_program(edit)
    written = write_log_of(program, scenario)
    assert any(find_refusal(written, conversation) for conversation in written)
    conversations = read_conversations(scenario)
    assert any(find_refusal(conversations, conversation, program) for conversation in conversations)
