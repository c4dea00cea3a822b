"""Requests of chat completions, as turns: which message, which history, which tools, or which answers.

A request holds the whole conversation. Where it ends with messages of the role `tool`, these answer what an
open turn waits for, and the turn goes on. Otherwise its last message begins a conversation of its own, with
the messages before it as history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from toolchart.app.server.answers import Refusal
from toolchart.app.server.protocols.contents import (
    FunctionForm,
    join_texts,
    make_definition,
    make_output_type,
    read_spec_error,
    read_user_message,
)
from toolchart.app.server.protocols.waiting import read_wire_id
from toolchart.engine.runtime.agent import INSTRUCTIONS
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.specs.chat_messages import read_content
from toolchart.states.errors import SpecError
from toolchart.states.json_bounds import parse_foreign_json
from toolchart.states.messages import ToolDefinition


class ToolForm(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the client."""

    type: str
    function: FunctionForm | None = None


class FormatForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer."""

    type: str
    json_schema: dict[str, Any] | None = None


class StreamForm(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream."""

    include_usage: bool = False


class CompletionForm(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/chat/completions`. `options.py` says what becomes of others."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    stream_options: StreamForm | None = None
    tools: list[ToolForm] = []
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: FormatForm | None = None
    n: int | None = None


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for."""

    message: str = ""
    """The user's message; empty where the request goes on with a turn."""
    options: StreamOptions = {}
    answers: dict[str, Any] = {}
    """By wire id: what the client answers; empty for a new conversation."""
    conversation: str | None = None
    """The conversation that a message goes on with; None for one of its own."""
    tools: tuple[ToolDefinition, ...] = ()
    """The client's tools."""
    output_type: Any = None
    """The type of the answer; None for free text."""


def read_chat(form: CompletionForm, schema_nodes: int, places: Sequence[str] | None = None) -> ChatTurn:
    """What a request asks for.

    Args:
        schema_nodes: most nodes of the schema of an answer.
        places: where each message stands in the request; without them `messages[0]` and so on.

    Raises:
        Refusal: 400; names the place in the request.
    """
    if form.n not in (None, 1):
        raise Refusal(400, "n: a turn has one answer")
    if form.functions or form.function_call not in (None, "auto"):
        raise Refusal(400, "functions, function_call: the old form of tools; write tools")
    require_free_choice(form.tool_choice)
    if not form.messages:
        raise Refusal(400, "messages: there is none")
    tools = tuple(make_definition(_get_function(tool)) for tool in form.tools)
    answers = _read_tool_messages(form.messages)
    output_type = make_output_type(_flatten_format(form), schema_nodes)
    if answers:
        return ChatTurn(answers=answers, tools=tools, output_type=output_type)
    places = places or [f"messages[{index}]" for index in range(len(form.messages))]
    placed = list(zip(places, form.messages, strict=True))
    system = join_texts([_read_text(entry, place) for place, entry in placed if _is_system(entry)])
    entries = [(place, entry) for place, entry in placed if not _is_system(entry)]
    conversation = _find_conversation([entry for _, entry in entries])
    message, options = read_user_message(entries, has_history=conversation is None)
    if system:
        options["variables"] = {INSTRUCTIONS: system}
    if output_type is not None:
        options["output_type"] = output_type
    return ChatTurn(message=message, options=options, tools=tools, conversation=conversation)


def require_free_choice(tool_choice: Any) -> None:
    """Refuse to let a client say which tools run: the agent's chart and handlers do.

    Without this a request that forbids tools would run them.

    Raises:
        Refusal: 400.
    """
    if tool_choice not in (None, "auto"):
        raise Refusal(400, "tool_choice: the agent decides which tools run; leave it out, or write auto")


def _get_function(tool: ToolForm) -> FunctionForm:
    if tool.type != "function" or tool.function is None:
        raise Refusal(400, f"tools: only functions are offered to the model, not {tool.type!r}")
    return tool.function


def _is_system(entry: dict[str, Any]) -> bool:
    return entry.get("role") in ("system", "developer")


def _read_text(entry: dict[str, Any], place: str = "messages") -> str | None:
    try:
        return read_content(entry.get("content"), None, place)[0]
    except SpecError as error:
        raise read_spec_error(error) from None


def _read_tool_messages(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The contents of the messages of tools at the end, by their call ids."""
    answers: dict[str, Any] = {}
    for entry in reversed(messages):
        if entry.get("role") != "tool":
            break
        answers[str(entry.get("tool_call_id"))] = read_output(_read_text(entry) or "")
    return dict(reversed(answers.items()))


def _find_conversation(entries: Sequence[dict[str, Any]]) -> str | None:
    """The conversation that asked for what the newest message leaves unanswered; None where nothing did.

    The log has what was said in it before, so the message alone counts.
    """
    calls = (entries[-2].get("tool_calls") or ()) if len(entries) > 1 else ()
    names = [read_wire_id(str(call.get("id"))) for call in calls if isinstance(call, dict)]
    return next((name.root for name in names if name is not None), None)


def read_output(text: str) -> Any:
    """What a client says about a call: JSON data where the text is an object, else the text."""
    if text.lstrip().startswith("{"):
        try:
            return parse_foreign_json(text)
        except ValueError:
            return text
    return text


def _flatten_format(form: CompletionForm) -> dict[str, Any] | None:
    format_ = form.response_format
    return None if format_ is None else {**(format_.json_schema or {}), "type": format_.type}
