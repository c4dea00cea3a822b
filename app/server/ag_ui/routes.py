"""`/ag-ui`: runs of the agent, and of one handler."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.ag_ui.run_events import RunEvents
from toolchart.app.server.answers import Refusal, describe_for_client
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup, require_role
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.protocols.client_tools import CallOutcome
from toolchart.app.server.protocols.contents import FunctionForm, make_definition, read_user_message
from toolchart.app.server.protocols.served_models import ServedModel, find_model, list_models
from toolchart.app.server.protocols.turns import Pieces, continue_turn, read_answers, start_turn
from toolchart.app.server.protocols.waiting import APPROVAL, read_wire_id
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.states.errors import SpecError, ToolchartError
from toolchart.states.messages import ToolDefinition

# -- requests ------------------------------------------------------------------------------------
# Requests of AG-UI, as turns.
#
# Source: `RunAgentInput` of `ag-ui-protocol` 1.0. A thread is a conversation of the log, so of the messages
# of a request only the newest counts, unless the thread is new.


_THREAD = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ResumeForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: str
    status: str
    payload: Any = None


class RunForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of a run."""

    thread_id: str
    run_id: str
    messages: list[dict[str, Any]] = []
    tools: list[FunctionForm] | None = None
    resume: list[ResumeForm] | None = None
    parent_run_id: str | None = None
    protocol_version: str | None = None
    state: Any = None
    """Has no effect, like `context` and `forwardedProps`: they are the front end's own."""
    context: Any = None
    forwarded_props: Any = None


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
    messages = [
        (f"messages[{index}]", _convert_message(entry, f"messages[{index}]"))
        for index, entry in enumerate(form.messages)
        if entry.get("role") not in _SCREEN_ROLES
    ]
    message, options = read_user_message(messages, has_history=is_new)
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


_SCREEN_ROLES = ("system", "developer", "activity", "reasoning")
"""Roles that do not count. The operator has written the prompt; activities and reasoning are for the
screen."""


def _convert_message(entry: dict[str, Any], place: str) -> dict[str, Any]:
    """The message in the form of chat completions."""
    content = entry.get("content")
    if isinstance(content, list):
        content = [_convert_part(part, place) for part in content]
    message: dict[str, Any] = {"role": entry.get("role"), "content": content}
    if entry.get("toolCalls"):
        message["tool_calls"] = entry["toolCalls"]
    if message["role"] == "tool":
        message["tool_call_id"] = entry.get("toolCallId")
        message["content"] = entry.get("error") or content
    return message


def _convert_part(part: Any, place: str) -> dict[str, Any]:
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
    raise Refusal(400, f"{place}: a part is a text, or an image, audio or document with its data")


ROUTES = RouteGroup()


@ROUTES.endpoint("POST", "/ag-ui", "chat", body=RunForm)
async def run_agent(request: Request) -> Response:
    """Run a turn of a thread, as events of AG-UI."""
    return await _run_model(request, list_models(get_site(request).engine.spec)[0])


@ROUTES.endpoint("POST", "/ag-ui/{model}", "chat", body=RunForm)
async def run_handler(request: Request) -> Response:
    """Run a turn of a thread with one handler, as events of AG-UI."""
    return await _run_model(request, find_model(get_site(request).engine.spec, request.path_params["model"]))


async def _run_model(request: Request, model: ServedModel) -> Response:
    form, site = await read_form(request, RunForm), get_site(request)
    access = get_access(request)
    site.claim(access, form.thread_id)
    loaded_conversation = load_conversation(site.engine.store, form.thread_id)
    run = read_run(form, is_new=loaded_conversation is None)
    pieces = await _open_run(site, access, run, model.handler)
    snapshot = loaded_conversation.snapshot if loaded_conversation is not None else None
    is_client_tool = site.client_tools.is_client_tool
    events = RunEvents(form.thread_id, form.run_id, snapshot, is_client_tool, form.messages)
    begins_turn = not (run.answers or run.is_abandoned)
    return stream_answer(request, _stream_run(pieces, events), begins_turn=begins_turn)


async def _open_run(site: Site, access: Access, run: RunRequest, handler: str | None) -> Pieces:
    if run.is_abandoned:
        return _cancel_turn(site, access, run.conversation)
    if run.answers:
        answers = read_answers(site, run.answers, access)
        if answers[0].item.root != run.conversation:
            raise Refusal(400, "the answers belong to another thread")
        engine = site.client_tools.find_engine(run.conversation)
        return await continue_turn(site, engine, answers, access.name)
    engine = site.client_tools.choose_engine(run.conversation, run.tools)
    options: StreamOptions = {**run.options, "handler": handler, "conversation": run.conversation}
    return await start_turn(site, engine, access, run.message, **options)


async def _cancel_turn(site: Site, access: Access, conversation: str) -> Pieces:
    """End a turn whose question nobody answers."""
    require_role(access, "approve")
    result = await site.engine.conversation(conversation).acancel(
        f"given up by {access.name}", author=access.name
    )
    if result is None:
        raise SpecError("the turn runs elsewhere, and is told to stop")
    yield result


async def _stream_run(pieces: Pieces, events: RunEvents) -> AsyncGenerator[ServerEvent, None]:
    for event in events.begin():
        yield ServerEvent(data=event, is_failure=event["type"] == "RUN_ERROR")
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                for event in events.take(piece):
                    yield ServerEvent(data=event, is_failure=event["type"] == "RUN_ERROR")
    except (Refusal, ToolchartError) as error:
        code = error.details.get("code") if isinstance(error, Refusal) else None
        for event in events.fail(describe_for_client(error), code or "error"):
            yield ServerEvent(data=event, is_failure=event["type"] == "RUN_ERROR")
