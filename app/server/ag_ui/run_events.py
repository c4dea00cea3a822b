"""A turn as events of AG-UI.

Source: the events of `ag-ui-protocol` 1.0, and the order in which its client accepts them.

    RUN_STARTED, STATE_SNAPSHOT
    a step of the chart:  STEP_FINISHED, STEP_STARTED, STATE_DELTA
    what the model says:  TEXT_MESSAGE_START, _CONTENT ..., _END
    where it is no answer: CUSTOM `withdrawn`, and MESSAGES_SNAPSHOT without it
    what else it says:    CUSTOM `part`: pictures, sounds, files, sources, calls that its host ran
    each of its calls:    TOOL_CALL_START, _ARGS, _END, and TOOL_CALL_RESULT where it ran inside
    RUN_FINISHED: success, interrupt (approvals, questions) or cancelled; or RUN_ERROR
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.app.server.protocols.turns import HELD, AnswerText
from toolchart.app.server.protocols.waiting import (
    APPROVAL,
    CLIENT_CALL,
    WaitingItem,
    list_waiting_items,
    make_wire_id,
)
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece, StepTaken
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.core.fact_rows import FactView
from toolchart.states.events import Replied, ToolFinished
from toolchart.states.messages import PartDelta, encode_arguments
from toolchart.states.snapshot import Snapshot

_END_NAMES = ("content", "state", "is_over", "parts", "host_calls", "warnings")
"""What of a turn's result stands at the end of a run."""

# -- the state of a run ---------------------------------------------------------------------------------


def describe_state(snapshot: Snapshot | None) -> dict[str, Any]:
    """The configuration and the facts of a snapshot; no configuration before the chart has started."""
    if snapshot is None or snapshot.settings is None:
        return {"configuration": [], "is_over": False, "facts": {}}
    configuration = snapshot.configuration
    return {
        "configuration": list(configuration.states) if configuration is not None else [],
        "is_over": snapshot.is_over,
        "facts": dict(FactView(snapshot)),
    }


def compare_states(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str = ""
) -> Iterator[dict[str, Any]]:
    """The operations that make one state of the other.

    >>> list(compare_states({"facts": {"a": 1, "b": 2}}, {"facts": {"a": 3, "c": 4}}))
    [{'op': 'replace', 'path': '/facts/a', 'value': 3}, \
{'op': 'remove', 'path': '/facts/b'}, {'op': 'add', 'path': '/facts/c', 'value': 4}]
    """
    for name, value in before.items():
        place = f"{path}/{_escape(name)}"
        if name not in after:
            yield {"op": "remove", "path": place}
        elif isinstance(value, Mapping) and isinstance(after[name], Mapping):
            yield from compare_states(value, after[name], place)
        elif after[name] != value:
            yield {"op": "replace", "path": place, "value": after[name]}
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": f"{path}/{_escape(name)}", "value": value}


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# -- events ---------------------------------------------------------------------------------------------


class RunEvents:
    """Makes the events of one run from the pieces of its turn.

    Args:
        snapshot: where the conversation stands before the run; None for a new one.
        is_client_tool: whether a tool runs at the front end.
        messages: those of the front end; it has sent none where it does not keep them.
    """

    def __init__(
        self,
        thread: str,
        run: str,
        snapshot: Snapshot | None,
        is_client_tool: Callable[[str], bool],
        messages: Sequence[dict[str, Any]] = (),
    ) -> None:
        self._thread = thread
        self._run = run
        self._is_client_tool = is_client_tool
        self._text = AnswerText(HELD, can_withdraw=True)
        self._state = describe_state(snapshot)
        self._step = ""
        """Name of the step that is open: the label of the chart's state."""
        self._message = ""
        """Id of the message that is being written."""
        self._words: list[str] = []
        """The text of that message."""
        self._messages = [*messages]
        """The messages as the front end has them now."""
        self._has_messages = bool(messages)
        self._count = 0

    def begin(self) -> Iterator[dict[str, Any]]:
        """The events before all others."""
        yield {"type": "RUN_STARTED", "threadId": self._thread, "runId": self._run}
        yield {"type": "STATE_SNAPSHOT", "snapshot": self._state}

    def take(self, piece: Piece) -> Iterator[dict[str, Any]]:
        """The events of a piece; the result ends the run."""
        before = self._text.steps.snapshot
        change = self._text.take(piece)
        if change.is_withdrawn:
            yield from self._end_message(change.reason)
        if change.text:
            yield from self._write(change.text)
        if isinstance(piece, PartDelta) and self._text.steps.is_own_reply():
            yield {"type": "CUSTOM", "name": "part", "value": msgspec.to_builtins(piece)}
        if isinstance(piece, StepTaken) and self._text.steps.snapshot is not before:
            yield from self._take_step(piece)
        if isinstance(piece, Turn):
            yield from self._finish(piece)

    def fail(self, message: str, code: str = "error") -> Iterator[dict[str, Any]]:
        """The events of a run that could not be carried to its end."""
        yield from self._end_message()
        yield from self._end_step()
        yield {"type": "RUN_ERROR", "message": message, "code": code}

    # -- messages --------------------------------------------------------------------------------

    def _write(self, words: str) -> Iterator[dict[str, Any]]:
        if not self._message:
            self._message = self._make_message_id()
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}
        self._words.append(words)
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": words}

    def _end_message(self, withdrawal: str = "") -> Iterator[dict[str, Any]]:
        """End the message that is being written.

        Args:
            withdrawal: why it is no part of the answer; empty where it may be one.
        """
        if not self._message:
            return
        yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
        message = {"id": self._message, "role": "assistant", "content": "".join(self._words)}
        self._message, self._words = "", []
        if withdrawal:
            value = {"messageId": message["id"], "reason": withdrawal}
            yield {"type": "CUSTOM", "name": "withdrawn", "value": value}
        if withdrawal in ("", "calls"):  # what was said before a call was said
            self._messages.append(message)
        elif self._has_messages:
            yield {"type": "MESSAGES_SNAPSHOT", "messages": [*self._messages]}

    def _make_message_id(self) -> str:
        self._count += 1
        return f"{self._run}-{self._count}"

    # -- steps -----------------------------------------------------------------------------------

    def _take_step(self, piece: StepTaken) -> Iterator[dict[str, Any]]:
        if isinstance(piece.event, Replied) and piece.event.reply.tool_calls:
            yield from self._end_message()
            yield from self._list_calls(piece.step.snapshot)
        if isinstance(piece.event, ToolFinished):
            yield from self._add_result(piece, piece.event)
        yield from self._move(piece.step.snapshot)

    def _move(self, snapshot: Snapshot) -> Iterator[dict[str, Any]]:
        """The chart's new state, where it has one."""
        step = snapshot.state if snapshot.configuration is not None else ""
        if step != self._step:
            yield from self._end_step()
            self._step = step
            if step:
                yield {"type": "STEP_STARTED", "stepName": step}
        state = describe_state(snapshot)
        delta = list(compare_states(self._state, state))
        if delta:
            self._state = state
            yield {"type": "STATE_DELTA", "delta": delta}

    def _end_step(self) -> Iterator[dict[str, Any]]:
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
            self._step = ""

    # -- calls -----------------------------------------------------------------------------------

    def _list_calls(self, snapshot: Snapshot) -> Iterator[dict[str, Any]]:
        for open_call in snapshot.calls:
            call = open_call.call
            name, arguments = self._name_call(call.name, call.id), encode_arguments(call)
            yield {"type": "TOOL_CALL_START", "toolCallId": name, "toolCallName": call.name}
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": arguments}
            yield {"type": "TOOL_CALL_END", "toolCallId": name}
            function = {"name": call.name, "arguments": arguments}
            calls = [{"id": name, "type": "function", "function": function}]
            # A front end keeps each call as a message under the id of the call.
            self._messages.append({"id": name, "role": "assistant", "toolCalls": calls})

    def _add_result(self, piece: StepTaken, event: ToolFinished) -> Iterator[dict[str, Any]]:
        before = piece.step.before
        for open_call in before.calls if before is not None else ():
            call = open_call.call
            if call.id == event.call_id and not self._is_client_tool(call.name):
                value = event.result.get("result" if event.outcome == "succeeded" else "error")
                message = {
                    "toolCallId": self._name_call(call.name, call.id),
                    "content": value if isinstance(value, str) else encode_canonical_text(value),
                    "role": "tool",
                }
                id_ = self._make_message_id()
                yield {"type": "TOOL_CALL_RESULT", "messageId": id_, **message}
                self._messages.append({"id": id_, **message})

    def _name_call(self, tool: str, id_: str) -> str:
        """The id that a front end knows a call by: that of a call for itself says what its result answers."""
        is_own = self._is_client_tool(tool)
        return make_wire_id(CLIENT_CALL, self._thread, self._thread, id_) if is_own else id_

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self, result: Turn) -> Iterator[dict[str, Any]]:
        yield from self._end_message()
        yield from self._end_step()
        if result.error is not None and result.error.kind != "cancelled":
            yield from self.fail(result.error.message, result.error.kind)
            return
        yield {
            "type": "RUN_FINISHED",
            "threadId": self._thread,
            "runId": self._run,
            "result": _describe_end(result),
            "outcome": self._describe_outcome(result),
            "usage": [_describe_usage(result)],
        }

    def _describe_outcome(self, result: Turn) -> dict[str, Any]:
        if result.error is not None:
            return {"type": "cancelled"}
        items = list_waiting_items(result.waiting, result.conversation)
        interrupts = [_describe_interrupt(item) for item in items if item.kind is not CLIENT_CALL]
        if interrupts:
            return {"type": "interrupt", "interrupts": interrupts}
        calls = [item.wire_id for item in items]
        return {"type": "success", **({"pendingToolCallIds": calls} if calls else {})}


def _describe_end(result: Turn) -> dict[str, Any]:
    data = result.to_dict()
    return {name: data[name] for name in _END_NAMES if name in data}


def _describe_interrupt(item: WaitingItem) -> dict[str, Any]:
    call = {"toolCallId": item.id} if item.kind is APPROVAL else {}
    expiry = {"expiresAt": item.due} if item.due else {}
    return {
        "id": item.wire_id,
        "reason": item.kind.reason,
        "message": item.message,
        "responseSchema": item.form,
        "metadata": {
            "tool": item.tool,
            "arguments": item.arguments,
            **({"runs": item.runs} if item.runs else {}),
        },
        **call,
        **expiry,
    }


def _describe_usage(result: Turn) -> dict[str, Any]:
    usage = result.usage
    counts = {
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "totalTokens": usage.total,
        "reasoningTokens": usage.reasoning,
        "cachedInputTokens": usage.cached,
    }
    known_counts = {name: count for name, count in counts.items() if count is not None}
    return {"provider": result.service, "model": result.model, **known_counts}
