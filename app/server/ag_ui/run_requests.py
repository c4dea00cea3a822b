"""Requests of AG-UI, as turns.

Source: `RunAgentInput` of `ag-ui-protocol` 1.0. A thread is a conversation of the log, so of the messages of
a request only the newest counts, unless the thread is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.app.server.protocols.client_tools import CallOutcome
from toolchart.app.server.protocols.contents import (
    FunctionForm,
    make_definition,
    read_spec_error,
    require_own_data,
)
from toolchart.app.server.protocols.waiting import APPROVAL, read_wire_id
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.specs.history import parse_content, parse_messages
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition

_THREAD = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ResumeForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: str
    status: str
    payload: Any = None


class RunForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of a run. State, context and properties of the front end have no effect."""

    thread_id: str
    run_id: str
    messages: list[dict[str, Any]] = []
    tools: list[FunctionForm] | None = None
    resume: list[ResumeForm] | None = None
    parent_run_id: str | None = None
    protocol_version: str | None = None


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for."""

    conversation: str
    message: str = ""
    """The user's message; empty where the request goes on with a turn."""
    options: StreamOptions = {}
    answers: dict[str, Any] = {}
    """By wire id."""
    tools: tuple[ToolDefinition, ...] = ()
    is_abandoned: bool = False
    """Whether the user has given a question up, so that the turn ends."""


def read_run(form: RunForm, *, is_new: bool) -> RunRequest:
    """What a request asks for.

    Args:
        is_new: whether the thread has no conversation yet, so that earlier messages are its history.

    Raises:
        Refusal: 400; names the place in the request.
    """
    if not _THREAD.fullmatch(form.thread_id):
        raise Refusal(400, "threadId: letters, digits, - and _, at most 64")
    tools = tuple(make_definition(tool) for tool in form.tools or ())
    if form.resume:
        return _read_resume(form, tools)
    answers = _read_tool_messages(form.messages)
    if answers:
        return RunRequest(conversation=form.thread_id, answers=answers, tools=tools)
    message, options = _read_message(form.messages, is_new=is_new)
    return RunRequest(conversation=form.thread_id, message=message, options=options, tools=tools)


def _read_resume(form: RunForm, tools: tuple[ToolDefinition, ...]) -> RunRequest:
    """The answers to interrupts. A cancelled approval is rejected; a cancelled question ends the turn."""
    answers: dict[str, Any] = {}
    for entry in form.resume or ():
        item = read_wire_id(entry.interrupt_id)
        is_approval = item is not None and item.kind is APPROVAL
        if entry.status == "resolved":
            is_plain = is_approval and isinstance(entry.payload, bool)
            answers[entry.interrupt_id] = {"approved": entry.payload} if is_plain else entry.payload
        elif is_approval:
            answers[entry.interrupt_id] = {"approved": False, "reason": "cancelled"}
        else:
            return RunRequest(conversation=form.thread_id, is_abandoned=True)
    return RunRequest(conversation=form.thread_id, answers=answers, tools=tools)


def _read_tool_messages(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results of the front end's tools at the end of the messages, by the ids of their calls."""
    answers: dict[str, Any] = {}
    for entry in reversed(messages):
        if entry.get("role") != "tool":
            break
        error, content = entry.get("error"), entry.get("content")
        value = error if error else _read_text(content)
        answers[str(entry.get("toolCallId"))] = CallOutcome(value=value, is_error=bool(error))
    return dict(reversed(answers.items()))


def _read_text(content: Any) -> Any:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise Refusal(400, "messages: the content of a tool message is a text")


# -- messages --------------------------------------------------------------------------------------


def _read_message(entries: Sequence[dict[str, Any]], *, is_new: bool) -> tuple[str, StreamOptions]:
    messages = [_convert_message(entry) for entry in entries if entry.get("role") in _ROLES]
    if not messages or messages[-1]["role"] != "user":
        raise Refusal(400, "messages: the last one must be of the role user or tool")
    try:
        text, parts = parse_content(messages[-1]["content"], None, f"[{len(messages) - 1}]")
        history = parse_messages(messages[:-1]) if is_new else ()
    except SpecError as error:
        raise read_spec_error(error, "messages") from None
    for message in history:
        require_own_data(message.parts)
    require_own_data(parts)
    if not text and not parts:
        raise Refusal(400, "messages: the last one is empty")
    return text or "", {"history": history, "attachments": parts}


_ROLES = ("user", "assistant", "tool")
"""Roles that count. The operator has written the prompt; activities and reasoning are for the screen."""


def _convert_message(entry: dict[str, Any]) -> dict[str, Any]:
    """The message in the form of chat completions."""
    content = entry.get("content")
    if isinstance(content, list):
        content = [_convert_part(part) for part in content]
    message: dict[str, Any] = {"role": entry["role"], "content": content}
    if entry.get("toolCalls"):
        message["tool_calls"] = entry["toolCalls"]
    if entry["role"] == "tool":
        message["tool_call_id"] = entry.get("toolCallId")
        message["content"] = content if isinstance(content, str) else json.dumps(content)
    return message


def _convert_part(part: Any) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {
            "type": "image" | "audio" | "document" as kind,
            "source": {"type": "data", "value": str(value), "mimeType": str(media_type)},
        }:
            url = f"data:{media_type};base64,{value}"
            if kind == "image":
                return {"type": "image_url", "image_url": {"url": url}}
            if kind == "audio":
                form = media_type.removeprefix("audio/")
                return {"type": "input_audio", "input_audio": {"data": value, "format": form}}
            return {"type": "file", "file": {"file_data": url}}
    raise Refusal(400, "messages: a part is a text, or an image, audio or document with its data")
