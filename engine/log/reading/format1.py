"""Format 1: reads the records that release 0.1 wrote.

Records of format 1 have no effect ids, no rows that fired and no references to messages. What a reader needs
of these follows from the rules of format 1. The rules stand here and never change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from toolchart.states.core.encoding import decode, decode_event
from toolchart.states.events import Elapsed, Event, Forked

RELEASE = "0.1"
"""The release that wrote format 1, and that replays it."""

TEXTS = {
    "at_limit": "I reached the maximum number of tool calls ({limit}) before I had a final answer.",
    "at_budget": "I reached the limit of this turn ({budget}) before I had a final answer.",
    "failed": "I encountered an issue while answering: {reason}.",
    "skipped": "This call was not executed: {reason}",
    "interrupted": "The outcome of this call is unknown: {reason}. It may or may not have taken effect. "
    "Check before doing it again.",
    "expired": "This call was not executed: nobody decided about it in time.",
}
"""The texts of the core of release 0.1. Format 1 does not record them. The last two it did not have."""

LIMITS: dict[str, Any] = {
    "max_iterations": 5,
    "max_tool_only_streak": 3,
    "max_repeats": 2,
    "max_attempts": 3,
    "first_wait_s": 0.5,
    "max_wait_s": 60.0,
    "max_tokens": None,
    "max_cost": None,
    "max_seconds": None,
    "max_tool_calls": None,
}
"""The limits that hold where a record of format 1 has none."""


class Format1Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of one line of format 1."""

    seq: int
    at: str
    turn: int
    iteration: int
    event: dict[str, Any]
    source: str
    target: str
    guards: dict[str, bool]
    effects: list[dict[str, Any]]
    prev: str
    hash: str


class _Waited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="waited"):
    """`elapsed`, as format 1 called it."""

    at: str = ""
    seconds: float = 0.0


_line_decoder = msgspec.json.Decoder(Format1Line)


def parse_format1_line(line: bytes) -> Format1Line | None:
    """The keys of a line of format 1; None where it is not one."""
    try:
        return _line_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_format1_event(data: dict[str, Any], at: str) -> Event:
    """The event of a record of format 1 as a value of this release; it answers no effect yet.

    Raises:
        ValueError: not an event of format 1, with the place.
    """
    if "effect" in data or data.get("type") in _list_new_events():
        raise ValueError(f"/event: {data.get('type')!r} is not an event of format 1")
    if data.get("type") == "waited":
        decode(_Waited, {**data, "at": at}, "/event")
        return Elapsed(at=at)
    if data.get("type") == Forked.TYPE:
        data = {key: value for key, value in data.items() if key != "asks"}
    return decode_event(data, at)


@cache
def _list_new_events() -> frozenset[str]:
    """Events that format 1 does not have."""
    return frozenset(("elapsed", "continued", "erased", "resumed", "user_said"))


# -- messages ------------------------------------------------------------------------------------


class Format1Messages:
    """Finds the messages that each record of format 1 added, by the rules of release 0.1.

    Give it the records of a conversation in order, those shared with a parent first.
    """

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        """Tool names of the open calls by id, in the order of the reply."""
        self._finished: set[str] = set()
        """Ids of the open calls that have an outcome."""
        self._answered: set[str] = set()
        """Ids of all calls that have a tool message."""
        self._is_closed = True
        """Whether the open calls have their tool messages."""
        self._words: list[str] = []
        """What the model said since the newest message that is not its own."""
        self._reply: dict[str, Any] | None = None

    def list_references(
        self, event: dict[str, Any], effects: list[dict[str, Any]], turn: int, iteration: int
    ) -> tuple[list[Any], list[str]]:
        """References to the messages that a record added, and the ids of the calls of its reply."""
        references: list[Any] = []
        call_ids: list[str] = []
        match event["type"]:
            case "turn_started":
                self._reply, self._words = None, []
                references += (["history"] if event.get("history") else []) + ["message"]
            case "replied":
                call_ids = self._assign_call_ids(event["reply"].get("tool_calls", ()), turn, iteration)
                references += self._close_calls("the model was asked again before it ran")
                references.append("reply")
                self._keep_reply(event["reply"], call_ids)
            case "tool_finished":
                self._finished.add(event["call_id"])
                if self._finished >= self._calls.keys():
                    references += self._list_results("")
        for effect in effects:
            references += self._list_effect_messages(effect)
        return references, call_ids

    def _list_effect_messages(self, effect: dict[str, Any]) -> Iterator[Any]:
        name = str(effect["type"])
        if name.startswith("call_model"):
            yield from self._close_calls("the reply was not carried out")
        if name.startswith("answer"):
            reply_text = str((self._reply or {}).get("content") or "")
            content = str(effect.get("content", reply_text))
            said = self._find_answer_text()
            yield from self._close_calls("the turn ended")
            if not self._words or said != content:
                self._words.append(content)
                yield {"role": "assistant", "content": content}

    def _find_answer_text(self) -> str:
        """The model's text since the newest message that is not its own; without text, its refusal."""
        if self._reply is None:
            return ""
        text = "".join(self._words) or self._reply.get("content") or ""
        return text if text.strip() else self._reply.get("refusal") or ""

    def _keep_reply(self, reply: dict[str, Any], call_ids: list[str]) -> None:
        names = [call["name"] for call in reply.get("tool_calls", ())]
        self._reply = reply
        self._words.append(reply.get("content") or "")
        self._calls = dict(zip(call_ids, names, strict=True))
        self._finished, self._is_closed = set(), not names

    def _assign_call_ids(self, calls: list[dict[str, Any]], turn: int, iteration: int) -> list[str]:
        used_ids: list[str] = []
        for index, call in enumerate(calls):
            call_id = call.get("id", "")
            if not call_id or call_id in used_ids or call_id in self._answered:
                call_id = f"call_{turn}_{iteration}_{index}"
                while call_id in used_ids or call_id in self._answered:
                    call_id += "x"
            used_ids.append(call_id)
        return used_ids

    def _close_calls(self, reason: str) -> list[Any]:
        """The tool messages of calls that nobody will run any more; after it no call is open."""
        references = [] if self._is_closed else self._list_results(reason)
        self._calls = {}
        return references

    def _list_results(self, reason: str) -> list[Any]:
        """A tool message for each open call, in the order of the reply."""
        if self._is_closed:
            return []
        self._is_closed, self._words = True, []
        self._answered.update(self._calls)
        return [
            {"result": call_id}
            if call_id in self._finished
            else {"call": call_id, "name": name, "skipped": TEXTS["skipped"].format(reason=reason)}
            for call_id, name in self._calls.items()
        ]
