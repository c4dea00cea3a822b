"""The nearest events to messages that do not follow each other as a chat API would have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from toolchart.engine.exchange.recorded_messages import NO_RESULT
from toolchart.states.events import Event, Replied, Reviewed, ToolFinished, TurnStarted, UserSaid, Verdict
from toolchart.states.messages import Message, Reply


def build_recorded_events(
    messages: Sequence[Message], start_turn: Callable[[Message], TurnStarted]
) -> Iterator[Event]:
    """The events of messages in their order, after `configured`; at least one turn.

    - What is said before a turn, or between turns by others than the user, is history of the next turn.
    - A user message that the next message does not answer is history too.
    - A user message within a turn, after results of calls, is `user_said`.
    - A call without a result is interrupted. What is left at the end is a turn with an empty user message.
    """
    builder = _EventBuilder(start_turn)
    for index, message in enumerate(messages):
        follower = messages[index + 1].role if index + 1 < len(messages) else None
        yield from builder.add_message(message, follower)
    yield from builder.add_end()


class _EventBuilder:
    """Knows whether a turn is open, which calls have no result, and what waits for the next turn."""

    def __init__(self, start_turn: Callable[[Message], TurnStarted]) -> None:
        self._start_turn = start_turn
        self._is_open = False
        self._has_turn = False
        self._open_calls: dict[str, str] = {}
        self._history: list[Message] = []

    def add_message(self, message: Message, follower: str | None) -> Iterator[Event]:
        """The events of the next message.

        Args:
            follower: role of the message after it.
        """
        if message.role == "tool" and self._is_open:
            self._open_calls.pop(message.tool_call_id or "", None)
            yield _build_outcome(message)
            return
        yield from self._interrupt_calls()
        if self._is_open and message.role == "assistant":
            yield from self._build_reply(message)
        elif self._is_open:
            yield UserSaid(message=message.content or "", parts=message.parts)
        elif message.role == "user" and follower in ("assistant", None):
            yield from self._open_turn(message)
        else:
            self._keep_for_next_turn(message)

    def add_end(self) -> Iterator[Event]:
        """The events of what is left after the last message."""
        last = self._history[-1] if self._history else None
        if last is not None and last.role == "assistant" and not last.tool_calls:
            self._history.pop()
            yield from self._open_turn(Message(role="user", content=""))
            yield from self._build_reply(last)
        elif self._history or not self._has_turn:
            yield from self._open_turn(Message(role="user", content=""))

    def _keep_for_next_turn(self, message: Message) -> None:
        """History must answer every call before the next message."""
        if message.role == "assistant" and message.tool_calls:
            self._open_calls = {call.id: call.name for call in message.tool_calls}
        elif message.role == "tool":
            self._open_calls.pop(message.tool_call_id or "", None)
        self._history.append(message)

    def _open_turn(self, message: Message) -> Iterator[Event]:
        history, self._history = tuple(self._history), []
        self._is_open = self._has_turn = True
        yield replace(self._start_turn(message), history=history)

    def _build_reply(self, message: Message) -> Iterator[Event]:
        calls = message.tool_calls
        yield Replied(
            reply=Reply(
                content=message.content, tool_calls=calls, finish_reason="tool_calls" if calls else "stop"
            )
        )
        self._is_open = bool(calls)
        self._open_calls = {call.id: call.name for call in calls}
        if calls:
            yield Reviewed(
                verdicts=tuple(
                    Verdict(call_id=call.id, ruling="run")
                    if call.arguments is not None
                    else Verdict(call_id=call.id, ruling="invalid", reason=call.problem)
                    for call in calls
                )
            )

    def _interrupt_calls(self) -> Iterator[Event]:
        """Close the calls that have no result."""
        for call_id, name in self._open_calls.items():
            result = Message(role="tool", content=NO_RESULT, tool_call_id=call_id, name=name)
            if self._is_open:
                yield replace(_build_outcome(result), outcome="interrupted")
            else:
                self._history.append(result)
        self._open_calls = {}


def _build_outcome(message: Message) -> ToolFinished:
    """The `tool_finished` event of a tool message."""
    result = {"success": True, "result": message.content, "tool_name": message.name, "execution_time_ms": 0.0}
    return ToolFinished(
        call_id=message.tool_call_id or "", outcome="succeeded", result=result, shown=message.content or ""
    )
