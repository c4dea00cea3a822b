"""What waits for a person in any conversation, and what was decided and answered lately; read in threads."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from toolchart.engine.log.decisions import DECISION
from toolchart.engine.log.family import find_asking_record, find_root
from toolchart.engine.log.read_records import ReadRecord, parse_line
from toolchart.engine.reading.messages import read_transcript
from toolchart.engine.reading.visited_path import read_chart
from toolchart.engine.reading.waiting import NOTHING_WAITS, OpenTurn, PendingApproval, read_open_turn
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.errors import LogUnavailable, ToolchartError
from toolchart.states.events import Answered, Decided
from toolchart.states.messages import Message
from toolchart.states.ports import Store

MAX_LOOKED_AT = 2000
"""The newest conversations, among which waiting calls are looked for."""
MAX_DECIDED_IN = 100
"""The newest conversations, among which decisions are looked for."""
MAX_DECISIONS = 20

_MAX_MESSAGES = 5
_MAX_CHARACTERS = 1000
_ANSWER = b'{"type":"%s"' % Answered.TYPE.encode()


ReadRow = Callable[[Store, str, tuple[int, bytes]], Any]
"""Reads what a listing shows of a conversation, by the store, its id, and its newest record."""


class RowCache:
    """What was read of conversations, each for as long as its newest record stays the same.

    Records are never changed, and every record has the hash of the one before it. So while the newest record
    is the same, everything that was read of a conversation still holds.
    Nothing is kept of conversations that the last listing did not look at.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, tuple[tuple[int, bytes], Any]] | None = None
        self._read_at = 0.0

    def read_rows(self, store: Store, names: Iterable[str], read: ReadRow) -> list[tuple[str, Any]]:
        """What `read` gives for each conversation, or the error that it raises.

        Requests that come at the same time wait for the first one, and find what it has read.

        Raises:
            LogUnavailable: the whole log cannot be read.
        """
        with self._lock:
            fresh: dict[str, tuple[tuple[int, bytes], Any]] = {}
            answer = [(name, self._read_row(store, name, read, fresh)) for name in names]
            self._rows, self._read_at = fresh, time.monotonic()
            return answer

    def get_rows(self, newest_s: float = math.inf) -> list[Any] | None:
        """What the last listing has read, without a look at the log; None where it is older than so many
        seconds, or there was none yet."""
        rows = self._rows
        if rows is None or time.monotonic() - self._read_at > newest_s:
            return None
        return [row for _, row in rows.values()]

    def _read_row(self, store: Store, name: str, read: ReadRow, fresh: dict[str, Any]) -> Any:
        try:
            newest = store.read_last_line(name)
            if newest is None:
                return None
            entry = (self._rows or {}).get(name)
            row = entry[1] if entry is not None and entry[0] == newest else read(store, name, newest)
        except LogUnavailable:
            raise
        except ToolchartError as error:
            return error
        fresh[name] = (newest, row)
        return row


def list_waiting(store: Store, cache: RowCache | None = None, *, most: int = MAX_LOOKED_AT) -> dict[str, Any]:
    """Every call that waits for a decision, and every question of a chart, by conversation: the earliest
    deadline first, then the oldest.

    Args:
        cache: has what earlier listings read; of a conversation that has no new record only the newest one is
            read then.
        most: the newest conversations, among which is looked.

    Returns:
        `waiting`: for each conversation what led there, its calls and questions, who was asked when, and the
        deadline;
        `unreadable`: conversations that may wait, but cannot be read, each with its `problem`;
        `is_complete`: false where the log has more conversations than that.
    """
    rows, unreadable = [], []
    newest_first = store.iterate_newest_first()
    names = islice(newest_first, most)
    for name, row in (cache or RowCache()).read_rows(store, names, _read_waiting):
        if isinstance(row, ToolchartError):
            unreadable.append({"conversation": name, "problem": str(row)})
        elif row is not None:
            rows.append(row)
    rows.sort(key=lambda row: (row["due"] is None, _read_time(row["due"] or row["since"])))
    is_complete = next(newest_first, None) is None
    return {"waiting": rows, "unreadable": unreadable, "is_complete": is_complete}


def count_waiting(rows: Iterable[Mapping[str, Any] | None]) -> int:
    """How many calls and questions wait in these rows of `waiting`; a None among them counts nothing."""
    return sum(len(row["calls"]) + len(row["questions"]) for row in rows if row is not None)


def _read_time(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _read_waiting(store: Store, name: str, newest: tuple[int, bytes]) -> dict[str, Any] | None:
    """What waits in one conversation; None where nothing does."""
    turn = read_open_turn(store, name)
    waiting = turn.build(name) if turn is not None else NOTHING_WAITS
    if turn is None or not waiting.needs_person:
        return None
    calls, questions = waiting.approvals, list(turn.questions.values())
    asked_in = {turn.asked[call.id][1] for call in calls if call.id in turn.asked}
    askings = _list_askings(store, name, calls[0].id) if calls else []
    askings = askings or [_find_asking(store, name, questions[0].id)]
    messages, root = read_transcript(store, name).messages, find_root(store, name)
    asker = turn if root == name else read_open_turn(store, root)
    return {
        "conversation": name,
        "root": root,
        "author": asker.author if asker is not None else "",
        "state": parse_line(newest[1], newest[0], name).target,
        "since": askings[0]["at"],
        "asked": askings,
        "approvers": list(calls[0].approvers) if calls else [],
        **_describe_deadline(store, name, turn, {*asked_in, *(question.state for question in questions)}),
        "messages": [_describe_message(message) for message in messages[-_MAX_MESSAGES:]],
        "calls": [_describe_call(call) for call in calls],
        # `id` tells two askings by the same effect apart.
        "questions": [
            {
                "id": question.id,
                "effect": question.effect,
                "question": row["question"],
                "form": row["form"],
                **_describe_deadline(store, name, turn, {question.state}),
            }
            for question, row in zip(questions, waiting.questions, strict=True)
        ],
    }


def _describe_call(call: PendingApproval) -> dict[str, Any]:
    """A call with what running it does, and the definition of its tool that people are asked about."""
    return {
        "id": call.id,
        "tool": call.tool,
        "arguments": call.params,
        "runs": call.runs,
        "reason": call.reason,
        "definition": call.definition,
    }


def _describe_message(message: Message) -> dict[str, Any]:
    text = message.content or ""
    return {
        "role": message.role,
        "name": message.name,
        "content": text[:_MAX_CHARACTERS],
        "is_cut": len(text) > _MAX_CHARACTERS,
        "tools": [call.name for call in message.tool_calls],
    }


def _describe_deadline(store: Store, name: str, turn: OpenTurn, states: Collection[str]) -> dict[str, Any]:
    """When the first timer of these states runs out (`due`), and the state to which it leads (`then`)."""
    timer = turn.find_first_timer(states)
    if timer is None:
        return {"due": None, "then": None}
    return {"due": timer.due, "then": _find_timer_target(read_chart(store, name), timer.name)}


def _find_timer_target(chart: Chart, timer: str) -> str | None:
    """The state to which the end of a timer leads; None where its row stays or has no name."""
    rows = (row for _, state, _ in walk_states(chart) for row in state.get("transitions") or ())
    target = next((row.get("target") for row in rows if row.get("event") == f"elapsed.{timer}"), None)
    return target if isinstance(target, str) else None


def _find_asking(store: Store, name: str, question: int) -> dict[str, Any]:
    """When the question was asked. A fork asks anew, in its own first record."""
    record = find_asking_record(store, name, question)
    assert record is not None, "what waits was asked"
    return {"at": record.at, "state": record.target, "to": []}


def _list_askings(store: Store, name: str, call_id: str) -> list[dict[str, Any]]:
    """Each time somebody was asked about a call, the first one first: `at`, `state`, and `to` whom.

    A fork begins with its own first record: it asks anew.
    """
    mark = json.dumps(call_id)[1:-1].encode()
    askings, first = [], None
    for seq, line in enumerate(store.read_lines(name)):
        if first is not None and mark not in line:
            continue
        record = parse_line(line, seq, name)
        first = first or record
        askings += _describe_askings(record, call_id)
    assert first is not None, "the conversation has a newest record"
    return askings or [{"at": first.at, "state": first.target, "to": []}]


def _describe_askings(record: ReadRecord, call_id: str) -> list[dict[str, Any]]:
    asks = [ask for ask in record.asks if call_id in (ask.data.get("calls") or ())]
    rows = [
        {"at": record.at, "state": record.target, "to": (ask.data.get("arguments") or {}).get("to", [])}
        for ask in asks
    ]
    verdicts = record.event.get("verdicts") or () if record.event_type == "reviewed" else ()
    is_reviewed = any(verdict.get("call_id") == call_id for verdict in verdicts)
    return rows or ([{"at": record.at, "state": record.target, "to": []}] if is_reviewed else [])


# -- decisions -----------------------------------------------------------------------------------


def list_decisions(store: Store, cache: RowCache | None = None) -> list[dict[str, Any]]:
    """The newest decisions of the newest conversations, the newest first; unreadable ones are left out.

    Args:
        cache: as for `list_waiting`; one of its own.
    """
    rows: list[dict[str, Any]] = []
    names = islice(store.iterate_newest_first(), MAX_DECIDED_IN)
    for _, decided in (cache or RowCache()).read_rows(store, names, _read_decisions):
        rows += decided if isinstance(decided, list) else ()
    # Turned round after sorting, not by `reverse=True`: that would keep decisions of the same millisecond in
    # the order of their records, the older one first.
    return sorted(rows, key=lambda row: _read_time(row["at"]))[::-1][:MAX_DECISIONS]


def _read_decisions(store: Store, name: str, newest: tuple[int, bytes]) -> list[dict[str, Any]]:
    return list(_iterate_decisions(store, name))


def _iterate_decisions(store: Store, name: str) -> Iterator[dict[str, Any]]:
    tools: dict[str, str] = {}
    for seq, line in enumerate(store.read_lines(name)):
        if b'"tool_calls"' in line:
            tools.update(_read_tools(parse_line(line, seq, name)))
        elif DECISION in line:
            record = parse_line(line, seq, name)
            if record.event_type == Decided.TYPE and record.event.get("call_id"):
                yield _describe_decision(name, record, tools)
        elif _ANSWER in line:
            record = parse_line(line, seq, name)
            if record.event_type == Answered.TYPE:
                yield _describe_answer(store, name, record)


def _read_tools(record: ReadRecord) -> Iterator[tuple[str, str]]:
    """The ids of the calls of a reply, each with its tool."""
    reply = record.event.get("reply") if record.event_type == "replied" else None
    calls = (reply or {}).get("tool_calls") or ()
    for index, call in enumerate(calls):
        id_ = record.calls[index] if index < len(record.calls) else call.get("id", "")
        yield id_, call.get("name", "")


def _describe_decision(name: str, record: ReadRecord, tools: dict[str, str]) -> dict[str, Any]:
    event = record.event
    return {
        "conversation": name,
        "seq": record.seq,
        "at": record.at,
        "call_id": event["call_id"],
        "tool": tools.get(event["call_id"], ""),
        "approved": bool(event.get("approved")),
        "by": event.get("by"),
        "is_signed": event.get("signature") is not None,
        "reason": event.get("reason"),
        "is_changed": event.get("arguments") is not None,
        "is_late": record.is_late,
        "effect": None,
        "answer": None,
    }


def _describe_answer(store: Store, name: str, record: ReadRecord) -> dict[str, Any]:
    """The answer to a question, in the form of a decision without a call."""
    event = record.event
    asking = find_asking_record(store, name, event["effect"])
    names = [ask.name for ask in asking.asks if ask.id == event["effect"]] if asking is not None else []
    return {
        "conversation": name,
        "seq": record.seq,
        "at": record.at,
        "call_id": None,
        "tool": names[0] if names else "",
        "approved": True,
        "by": event.get("by"),
        "is_signed": None,  # nothing signs an answer
        "reason": None,
        "is_changed": False,
        "is_late": record.is_late,
        "effect": event["effect"],
        "answer": event.get("content"),
    }
