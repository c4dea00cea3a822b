"""Compares a rerun with the recording: what was said and done, and not what was changed on purpose.

The comparison is that of `toolchart diff` without the inputs of a rerun: the agent, the prompt, the settings
and the guards that were asked may differ. Compared are, step by step: the user's messages, the replies (text,
calls, why they ended), the verdicts, decisions, results, timers and answers, the states, and what was asked
for. What came too late is left out, because it changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import msgspec

from toolchart.engine.log.read_records import ReadRecord
from toolchart.engine.reading.diff import normalize_ask, normalize_value
from toolchart.states.canonical_json import find_first_difference
from toolchart.states.events import (
    CONFIGURATION_TYPES,
    CallsStarted,
    CallSubmitted,
    Continued,
    Forked,
    Replied,
    Resumed,
    TurnStarted,
)

_INPUTS = (
    *CONFIGURATION_TYPES,
    Continued.TYPE,
    Forked.TYPE,
    Resumed.TYPE,
    CallsStarted.TYPE,
    CallSubmitted.TYPE,
)
"""Records that a rerun makes anew."""


class FirstDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rerun first differs from its recording."""

    recorded_seq: int | None
    """Number of the record in the recording; None where it has no more."""
    rerun_seq: int | None
    """Number of the record in the rerun; None where it has no more."""
    event: str
    """The event of the step: that of the recording, or of the rerun where the recording has no more."""
    pointer: str
    """JSON pointer into the compared step: `/event/content`, `/target`, ..."""
    recorded: Any
    rerun: Any


_Step = tuple[ReadRecord, dict[str, Any]]


def find_run_difference(
    recorded: Iterable[ReadRecord], rerun: Iterable[ReadRecord]
) -> FirstDifference | None:
    """The first difference of two runs of a conversation; None where there is none."""
    for recorded_step, new_step in zip_longest(_list_steps(recorded), _list_steps(rerun)):
        recorded_data, new_data = (
            recorded_step[1] if recorded_step else None,
            new_step[1] if new_step else None,
        )
        if recorded_data == new_data:
            continue
        pointer, recorded_value, new_value = find_first_difference("", recorded_data, new_data)
        step = recorded_step or new_step
        assert step is not None, "one of them has a step"
        return FirstDifference(
            recorded_seq=recorded_step[0].seq if recorded_step else None,
            rerun_seq=new_step[0].seq if new_step else None,
            event=step[0].event_type,
            pointer=pointer,
            recorded=recorded_value if recorded_step else None,
            rerun=new_value if new_step else None,
        )
    return None


def _list_steps(records: Iterable[ReadRecord]) -> list[_Step]:
    names: dict[str, str] = {}
    return [
        (record, _describe_step(record, names))
        for record in records
        if record.event_type not in _INPUTS and not record.is_late
    ]


def _describe_step(record: ReadRecord, names: dict[str, str]) -> dict[str, Any]:
    """What is compared of a record, the most telling part first."""
    event = record.event
    if record.event_type == Replied.TYPE:
        event = _describe_reply(event)
    elif record.event_type == TurnStarted.TYPE:
        event = {"type": event["type"], "message": event["message"]}
    return {
        "event": normalize_value(event, names),
        "source": record.source,
        "target": record.target,
        "effects": [normalize_ask(ask, names) for ask in record.asks],
    }


def _describe_reply(event: dict[str, Any]) -> dict[str, Any]:
    """What a model said: its words and calls, without the model's name and the host's own data."""
    reply = event["reply"]
    calls = [
        {
            **({"id": call["id"]} if call.get("id") else {}),
            "name": call.get("name"),
            **(
                {"arguments": call["arguments"]}
                if call.get("arguments") is not None
                else {"raw": call.get("raw")}
            ),
        }
        for call in reply.get("tool_calls", ())
    ]
    return {
        "type": event["type"],
        "finish_reason": reply.get("finish_reason"),
        "calls": calls,
        "content": reply.get("content") or "",
        "refusal": reply.get("refusal") or "",
        "output": event.get("output"),
    }
