"""Files for finding faults: what the spec's section `debug` asks for, in a folder for each day."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchart.specs.secrets import strike_secrets
from toolchart.specs.sections.debug import DebugConfig, read_debug_switches
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.core.encoding import encode
from toolchart.states.effects import CallModel
from toolchart.states.errors import SpecError
from toolchart.states.events import Event, Replied, ToolFinished

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec
    from toolchart.states.core.step import Step
    from toolchart.states.messages import Message, Request, ToolCall

log = logging.getLogger("toolchart.engine")

_TRACED_KEYS = ("at", "effect", "call_id", "outcome", "kind", "status", "approved", "handler", "turn")
"""What a trace takes from an event: nothing that people, models or tools said."""

_TRACED_RESULT_KEYS = ("tool_name", "execution_time_ms", "success")


class DebugFiles:
    """Writes traces and message parts.

    Args:
        folder: the folder of the spec; that of the files is relative to it.
    """

    def __init__(self, switches: DebugConfig, folder: Path) -> None:
        self._switches = switches
        self._folder = folder / switches.folder

    def record_step(self, conversation: str, event: Event, step: Step) -> None:
        """Write what the switches ask for. A full disk is a warning: it must not end the turn."""
        try:
            self._write_step(conversation, event, step)
        except OSError as error:
            log.warning("a debug file was not written: %s", error)

    def _write_step(self, conversation: str, event: Event, step: Step) -> None:
        is_quiet = isinstance(event, ToolFinished) and self._switches.tools == "quiet"
        if self._switches.traces and not is_quiet:
            line = {"conversation": conversation, **self._describe_step(event, step)}
            self._append(event.at, "trace.jsonl", line)
        if self._switches.message_parts:
            for effect in step.effects:
                if isinstance(effect, CallModel):
                    line = {"at": event.at, "conversation": conversation, **_describe_request(effect.request)}
                    self._append(event.at, "messages.jsonl", line)

    def _describe_step(self, event: Event, step: Step) -> dict[str, Any]:
        data = encode(event)
        traced = {"type": event.TYPE, **{key: data[key] for key in _TRACED_KEYS if key in data}}
        if isinstance(event, ToolFinished):
            names = event.result if self._switches.tools == "verbose" else _TRACED_RESULT_KEYS
            traced["result"] = {name: event.result.get(name) for name in names}
        if isinstance(event, Replied):
            traced["finish_reason"] = event.reply.finish_reason
            if self._switches.tools != "quiet":
                traced["calls"] = [self._describe_call(call) for call in event.reply.tool_calls]
        effects = [effect.name for effect in step.effects]
        return {"event": traced, "source": step.source, "target": step.target, "effects": effects}

    def _describe_call(self, call: ToolCall) -> dict[str, Any]:
        arguments = {"arguments": call.arguments} if self._switches.tools == "verbose" else {}
        return {"id": call.id, "tool": call.name, **arguments}

    def _append(self, at: str, file: str, line: dict[str, Any]) -> None:
        data = strike_secrets(encode_canonical_text(line)).encode() + b"\n"
        folder = self._folder / at[:10]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def open_debug_files(spec: AgentSpec, folder: Path) -> DebugFiles | None:
    """The files of an agent; None where no switch asks for any.

    Raises:
        SpecError: they, or the raw responses in the log, would hold what the log must not, or a variable is
            wrong.
    """
    switches = read_debug_switches(spec.debug)
    writes = switches.traces or switches.message_parts
    holds_words = switches.message_parts or switches.raw_responses or switches.tools == "verbose"
    if (writes or switches.raw_responses) and spec.redact is not None and holds_words:
        raise SpecError(
            "the switches of `debug` would keep in plain what `redact` keeps out of the log",
            path="debug",
            hint="`traces` alone, without `tools: verbose`, hold no words of people and models",
        )
    return DebugFiles(switches, folder) if writes else None


def apply_strict_switch(spec: AgentSpec) -> AgentSpec:
    """The spec with `policy: strict` where the switch `strict` is on."""
    is_strict = read_debug_switches(spec.debug).strict and spec.policy != "strict"
    return spec.model_copy(update={"policy": "strict"}) if is_strict else spec


def _describe_request(request: Request) -> dict[str, Any]:
    messages = [
        {"role": message.role, "parts": list(_describe_parts(message))} for message in request.messages
    ]
    return {"model": request.model, "turn": request.turn, "messages": messages}


def _describe_parts(message: Message) -> Iterator[dict[str, Any]]:
    for part in message.list_parts():
        data = encode(part)
        text = data.get("text")
        size = len(text) if isinstance(text, str) else getattr(part, "size", 0)
        yield {"type": data.get("type", "text"), "size": size, **({"text": text} if text else {})}
    for call in message.tool_calls:
        yield {"type": "tool_call", "name": call.name, "arguments": call.arguments}
