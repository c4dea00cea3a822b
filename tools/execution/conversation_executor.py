"""The executor of one conversation: the same executor, told where each call stands.

It derives everything from the conversation's snapshot, so nothing is kept here that a resumed turn
would miss; the running sum of shown characters is only remembered so that it is not counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from toolchart.states.events import ToolFinished, Verdict
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.tools.approval import Grant, grant_of
from toolchart.tools.execution.context import CallContext, FindResult
from toolchart.tools.execution.executor import ToolExecutor


class BoundExecutor:
    """Implements the `Executor` port for one conversation."""

    def __init__(
        self,
        executor: ToolExecutor,
        conversation: str,
        view: Callable[[], Snapshot],
        find_result: FindResult | None = None,
    ) -> None:
        self._executor = executor
        self._conversation = conversation
        self._view = view
        self._find_result = find_result
        self._spent = (0, 0, 0)
        """Turn, messages counted, characters shown."""
        self._used: tuple[tuple[int, int], frozenset[str]] = ((0, 0), frozenset())
        """Turn and reply, and the grants used up since."""

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool, in order."""
        return self._executor.definitions()

    def review(self, call: ToolCall, allowed: Sequence[str]) -> Verdict:
        """As `ToolExecutor.review`."""
        return self._executor.review(call, allowed)

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """As `ToolExecutor.refuse`."""
        return self._executor.refuse(call, outcome, reason)

    async def run(self, call: ToolCall, allowed: Sequence[str]) -> ToolFinished:
        """As `ToolExecutor.run`, with the call's place in the conversation."""
        return await self._executor.run(call, allowed, self.context(call))

    def context(self, call: ToolCall) -> CallContext:
        """Where a call of the latest reply stands."""
        snapshot = self._view()
        place, opened = _opened(snapshot, call)
        limits = snapshot.settings.limits if snapshot.settings else None
        return CallContext(
            conversation=self._conversation,
            turn=snapshot.turn,
            iteration=snapshot.iteration,
            call_id=call.id,
            repeat=opened.repeat if opened else 1,
            max_repeats=limits.max_repeats if limits else None,
            spent=self._shown(snapshot),
            batch=max(1, len(snapshot.calls)),
            calls_before=len(snapshot.tracked) + place,
            max_tool_calls=limits.max_tool_calls if limits else None,
            granted=partial(self._granted, snapshot, call, opened),
            messages=snapshot.messages,
            siblings=_siblings(snapshot),
            find_result=self._find_result,
        )

    def _shown(self, snapshot: Snapshot) -> int:
        """Characters of tool output in this turn's messages; each message is counted once."""
        turn, counted, spent = self._spent
        if turn != snapshot.turn or counted > len(snapshot.messages):
            counted, spent = _turn_start(snapshot), 0
        fresh = snapshot.messages[counted:]
        for message in fresh:
            if message.role == "tool":
                spent += len(message.content or "")
        self._spent = (snapshot.turn, counted + len(fresh), spent)
        return spent

    def _granted(self, snapshot: Snapshot, call: ToolCall, opened: OpenCall | None) -> bool:
        """Whether a grant covers this very call; a grant is good for one run."""
        if opened is None or opened.ruling != "run" or opened.outcome is not None:
            return False
        batch, used = self._used
        if batch != (snapshot.turn, snapshot.replies):
            batch, used = (snapshot.turn, snapshot.replies), frozenset()
        grant = self._grant(opened)
        now = _moment(snapshot.now)
        if grant.digest in used or not grant.covers(self._conversation, call, now):
            return False
        self._used = batch, used | {grant.digest}
        return True

    def _grant(self, opened: OpenCall) -> Grant:
        """What the decision about a call gave leave for."""
        tool = self._executor.registry.get(opened.call.name)
        rule = self._executor.policy.rule(tool, opened.call.arguments or {}) if tool else None
        return grant_of(
            self._conversation,
            opened.call,
            decided_at=_moment(opened.decided_at),
            expires_s=rule.expires_s if rule else None,
        )


def _moment(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _opened(snapshot: Snapshot, call: ToolCall) -> tuple[int, OpenCall | None]:
    for place, opened in enumerate(snapshot.calls):
        if opened.call.id == call.id:
            return place, opened
    return len(snapshot.calls), None


def _turn_start(snapshot: Snapshot) -> int:
    """Place of the message that opened the turn."""
    for place in range(len(snapshot.messages) - 1, -1, -1):
        if snapshot.messages[place].role == "user":
            return place
    return 0


def _siblings(snapshot: Snapshot) -> tuple[tuple[str, dict[str, Any]], ...]:
    if len(snapshot.calls) == 1:
        return ()
    return tuple(
        (opened.call.name, opened.result) for opened in snapshot.calls if opened.result is not None
    )
