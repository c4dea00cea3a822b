"""`/v1/responses`: turns of conversations that the server keeps."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import JsonAnswer, Refusal, describe_for_client
from toolchart.app.server.bodies import read_form_with_others
from toolchart.app.server.conversations.deletion import delete_family
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.openai_api.chat_requests import (
    ChatTurn,
    CompletionForm,
    FormatForm,
    ToolForm,
    read_chat,
    read_output,
    require_free_choice,
)
from toolchart.app.server.openai_api.errors import shape_error
from toolchart.app.server.openai_api.input_items import cut_page, list_input_items, read_page_query
from toolchart.app.server.openai_api.options import list_ignored
from toolchart.app.server.openai_api.response_ids import ResponseName, read_response_id
from toolchart.app.server.openai_api.response_items import ResponseBuilder
from toolchart.app.server.protocols.contents import FunctionForm, join_texts, make_output_type
from toolchart.app.server.protocols.served_models import find_model, list_models
from toolchart.app.server.protocols.turns import (
    Pieces,
    begin_once,
    compare_with_begun,
    continue_turn,
    find_said,
    finish_turn,
    put_before,
    read_answers,
    read_times,
    start_turn,
)
from toolchart.app.server.repeated_requests import name_by_key, read_key
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.site import Site, get_access, get_log, get_site
from toolchart.engine.log.replay import ReplayedStep, load_conversation, replay_from
from toolchart.engine.reading.listing import summarize_conversation
from toolchart.engine.reading.steps import read_from, read_kinds
from toolchart.engine.runtime.answer_stream import AnswerStream
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.engine.runtime.result import Turn, build_turn, describe_waiting
from toolchart.engine.runtime.streaming import Piece, StepTaken
from toolchart.specs.secrets import strike_secrets
from toolchart.states.effects import RunAgent
from toolchart.states.errors import LogConflict, ToolchartError
from toolchart.states.events import Configured, TurnStarted
from toolchart.states.ports import Store
from toolchart.states.snapshot import Snapshot

log = logging.getLogger("toolchart.server")

# -- requests ------------------------------------------------------------------------------------
# Requests of the Responses API, as turns.
#
# Source: `openai/types/responses/response_create_params.py` of the SDK 3.54.


class TextForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Any = None


class ResponseForm(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /v1/responses`. `options.py` says what becomes of others."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    tools: list[dict[str, Any]] = []
    tool_choice: Any = None
    text: TextForm | None = None
    background: bool | None = None


_ECHOES = ("reasoning", "mcp_approval_request", "mcp_approval_response", "mcp_list_tools")
"""Items of earlier answers that a client sends back, and that no model needs again: what came of them stands
in other items."""

_ANSWERS = ("function_call_output", "mcp_approval_response")


def read_response(form: ResponseForm, schema_nodes: int) -> ChatTurn:
    """What a request asks for.

    Args:
        schema_nodes: most nodes of the schema of an answer.

    Raises:
        Refusal: 400; names the place in the request.
    """
    if form.background and form.stream:
        raise Refusal(
            400,
            "background: a response in the background is not streamed: leave out `stream` and poll it with "
            "GET /v1/responses/{id}, or leave out `background`",
        )
    require_free_choice(form.tool_choice)
    tools = [_read_tool(tool) for tool in form.tools]
    entries = [{"role": "user", "content": form.input}] if isinstance(form.input, str) else form.input
    answers = _read_answers(entries)
    if form.previous_response_id:
        _require_new_items(entries)
        entries = [entry for entry in entries if entry.get("type") != "item_reference"]
    if answers:
        output_type = make_output_type(form.text.format if form.text is not None else None, schema_nodes)
        return ChatTurn(answers=answers, output_type=output_type)
    placed = _convert_items(entries)
    if form.instructions:
        placed.insert(0, ("instructions", {"role": "system", "content": form.instructions}))
    messages = [message for _, message in placed]
    format_ = _read_format(form.text)
    return read_chat(
        CompletionForm(model=form.model, messages=messages, tools=tools, response_format=format_),
        schema_nodes,
        [place for place, _ in placed],
    )


def _require_new_items(entries: Sequence[dict[str, Any]]) -> None:
    """Refuse more than one message, or answers beside one: a turn has one message, and the log has what came
    before.

    Raises:
        Refusal: 400.
    """
    kinds = [entry.get("type", "message") for entry in entries]
    is_system = [entry.get("role") in ("system", "developer") for entry in entries]
    others = [
        f"input[{index}]"
        for index, kind in enumerate(kinds)
        if not (kind in (*_ECHOES, "item_reference") or is_system[index] or kind in _ANSWERS)
    ]
    has_answers = any(kind == "function_call_output" for kind in kinds)
    if len(others) > 1 or (others and has_answers):
        raise Refusal(
            400,
            f"{others[0]}: with `previous_response_id` the input is one new message or outputs of calls; "
            "the log has what came before. Send each in a request of its own, or the whole list without "
            "`previous_response_id`",
        )


def _read_tool(tool: dict[str, Any]) -> ToolForm:
    if tool.get("type") != "function":
        raise Refusal(400, f"tools: only functions are offered to the model, not {tool.get('type')!r}")
    try:
        return ToolForm(type="function", function=msgspec.convert(tool, FunctionForm))
    except msgspec.ValidationError as error:
        raise Refusal(400, f"tools: {error}") from None


def _read_format(text: TextForm | None) -> FormatForm | None:
    if text is None or text.format is None:
        return None
    return FormatForm(type=str(text.format.get("type")), json_schema=text.format)


def _read_answers(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The outputs and decisions at the end of the input, by the wire ids of what they answer."""
    answers: dict[str, Any] = {}
    for entry in reversed(entries):
        match entry.get("type"):
            case "function_call_output":
                answers[str(entry.get("call_id"))] = read_output(_join_output(entry.get("output")))
            case "mcp_approval_response":
                reason = {"reason": entry["reason"]} if entry.get("reason") else {}
                decision = {"approved": bool(entry.get("approve")), **reason}
                answers[str(entry.get("approval_request_id"))] = decision
            case _:
                break
    return dict(reversed(answers.items()))


def _join_output(output: Any) -> str:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        raise Refusal(400, "input: the output of a call is a text, or a list of texts")
    return join_texts([_read_text_part(part) for part in output])


def _read_text_part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    raise Refusal(400, "input: the output of a call holds texts only")


# -- items as messages -----------------------------------------------------------------------------


def _convert_items(entries: Sequence[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The items as messages of chat completions, each after its place."""
    messages: list[tuple[str, dict[str, Any]]] = []
    for index, entry in enumerate(entries):
        kind, place = entry.get("type", "message"), f"input[{index}]"
        match kind:
            case "message" if entry.get("role") == "assistant" and entry.get("content") == []:
                pass  # an item of an earlier answer that is no part of it
            case "message":
                content = _convert_content(entry.get("content"), place)
                messages.append((place, {"role": entry.get("role"), "content": content}))
            case "function_call":
                _add_call(messages, entry, entry.get("call_id"), place)
            case "function_call_output":
                messages.append((place, _build_output(entry.get("call_id"), entry.get("output"), place)))
            case "mcp_call":  # a tool that ran inside, here or at another server
                _add_call(messages, entry, entry.get("id"), place)
                output = entry.get("output") if entry.get("output") is not None else entry.get("error")
                if output is not None:
                    messages.append((place, _build_output(entry.get("id"), output, place)))
            case "image_generation_call":
                url = f"data:image/{entry.get('output_format') or 'png'};base64,{entry.get('result') or ''}"
                part = {"type": "image_url", "image_url": {"url": url}}
                messages.append((place, {"role": "assistant", "content": [part]}))
            case "item_reference":
                raise Refusal(400, f"{place}: nothing is kept under the ids of items; send the item itself")
            case _ if kind not in _ECHOES:
                raise Refusal(400, f"{place}: items of the type {kind!r} are not known")
    return messages


def _build_output(call_id: Any, output: Any, place: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": _convert_content(output, place)}


def _add_call(
    messages: list[tuple[str, dict[str, Any]]], entry: dict[str, Any], call_id: Any, place: str
) -> None:
    """Calls in a row belong to one message of the assistant."""
    function = {"name": entry.get("name"), "arguments": entry.get("arguments")}
    if not messages or messages[-1][1]["role"] != "assistant":
        messages.append((place, {"role": "assistant", "content": None}))
    calls = messages[-1][1].setdefault("tool_calls", [])
    calls.append({"id": call_id, "type": "function", "function": function})


def _convert_content(content: Any, place: str) -> Any:
    if not isinstance(content, list):
        return content
    return [_convert_part(part, place) for part in content]


def _convert_part(part: Any, place: str) -> dict[str, Any]:
    match part:
        case {"type": "input_text" | "output_text" | "refusal", **others}:
            return {"type": "text", "text": others.get("text") or others.get("refusal") or ""}
        case {"type": "input_image", "image_url": str(url)}:
            return {"type": "image_url", "image_url": {"url": url}}
        case {"type": "input_file", "file_data": str(data), **others}:
            return {"type": "file", "file": {"file_data": data, "filename": others.get("filename")}}
        case {"type": "input_audio", "input_audio": {**audio}}:
            return {"type": "input_audio", "input_audio": audio}
    raise Refusal(
        400, f"{place}: a part is an input_text, input_image, input_file or input_audio with its data"
    )


ROUTES = RouteGroup(shape_error=shape_error)


class _OpenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose turn has begun."""

    name: ResponseName
    pieces: Pieces | None
    """None where somebody else runs the turn: another server, or the watch of this one."""


@ROUTES.endpoint("POST", "/v1/responses", "chat", body=ResponseForm)
async def create_response(request: Request) -> Response:
    """Run a turn of a conversation that the server keeps, in the form of OpenAI's responses."""
    form, others = await read_form_with_others(request, ResponseForm)
    site = get_site(request)
    turn, ignored = read_response(form, site.limits.schema_nodes), list_ignored(others)
    if form.text is not None and form.text.verbosity is not None:
        ignored.append("text.verbosity")
    opened = await _open_response(request, form, turn)
    previous = form.previous_response_id or find_previous(site.engine, opened.name)
    head = {"id": opened.name.id, "model": form.model, "previous_response_id": previous}
    builder = _make_builder(site, opened.name, head)
    builder.ignored, builder.asks_instructions = ignored, bool(turn.options.get("variables"))
    if form.background:
        return JsonAnswer(await _leave_running(site, opened, builder))
    assert opened.pieces is not None, "only one in the background may be left to somebody else"
    if form.stream:
        events = _stream_response(opened.pieces, builder)
        return stream_answer(request, events, begins_turn=not turn.answers)
    async with aclosing(opened.pieces) as pieces:
        async for piece in pieces:
            for _ in builder.take(piece):
                pass
    answer = JsonAnswer(builder.response)
    answer.is_failure = builder.response["status"] == "failed" and not turn.answers
    return answer


async def _leave_running(site: Site, opened: _OpenResponse, builder: ResponseBuilder) -> dict[str, Any]:
    """The response as it is when its first record is durable; its turn goes on by itself."""

    async def run_on(pieces: Pieces) -> None:
        try:
            await finish_turn(pieces)
        except (Refusal, ToolchartError) as error:  # the log has how far the turn came
            log.warning("response %s: %s", opened.name.id, strike_secrets(str(error)))

    if opened.pieces is not None:
        running = _list_running(site)
        task = running[opened.name.id] = asyncio.create_task(run_on(opened.pieces))
        task.add_done_callback(lambda _: running.pop(opened.name.id, None))
        while not (task.done() or _has_begun(site.engine.store, opened.name)):
            await asyncio.wait((task,), timeout=0.01)
    stored = await asyncio.to_thread(read_stored_response, site, opened.name)
    described = stored.get("toolchart") or {}
    ignored = {"ignored": builder.ignored} if builder.ignored else {}
    return {**stored, "background": True, "toolchart": {**described, **ignored}}


def _list_running(site: Site) -> dict[str, asyncio.Task[None]]:
    """The tasks of responses in the background, by the ids of these."""
    running: dict[str, asyncio.Task[None]] = site.running.setdefault("responses", {})
    return running


def _has_begun(store: Store, name: ResponseName) -> bool:
    newest = store.read_last_line(name.conversation)
    return newest is not None and newest[0] >= name.seq


@ROUTES.endpoint("POST", "/v1/responses/{response}/cancel", "chat")
async def cancel_response(request: Request) -> Response:
    """Stop the turn of a response, and show the response."""
    site, access = get_site(request), get_access(request)
    name = read_response_id(request.path_params["response"])
    if not site.has_conversation(access, name.conversation):
        raise Refusal(404, f"there is no response {name.id!r}")
    stored = await asyncio.to_thread(read_stored_response, site, name)
    if stored["status"] == "cancelled":
        return JsonAnswer(stored)
    conversation = site.engine.conversation(name.conversation)
    require_newest(get_log(request), name)
    if not conversation.has_open_turn:
        raise Refusal(409, f"the response is {stored['status']}: there is nothing to cancel any more")
    await conversation.acancel(f"cancelled by {access.name}", author=access.name)
    # Whoever runs the turn hears of it; the answer need not wait for another process.
    if (task := _list_running(site).get(name.id)) is not None:
        await asyncio.wait((task,), timeout=site.limits.cancel_s)
    return JsonAnswer(await asyncio.to_thread(read_stored_response, site, name))


def _make_builder(site: Site, name: ResponseName, head: dict[str, Any]) -> ResponseBuilder:
    read_own_times = partial(read_times, site.engine, name.conversation, name.seq)
    return ResponseBuilder(
        head, site.client_tools.is_client_tool, read_own_times, lambda: _read_snapshot(site.engine, name)
    )


def _read_snapshot(engine: Engine, name: ResponseName) -> Snapshot:
    loaded_conversation = load_conversation(engine.store, name.conversation)
    if loaded_conversation is None:
        raise Refusal(404, f"there is no response {name.id!r}")
    return loaded_conversation.snapshot


async def _stream_response(pieces: Pieces, builder: ResponseBuilder) -> AsyncGenerator[ServerEvent, None]:
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                for event in builder.take(piece):
                    yield _make_event(event)
    except (Refusal, ToolchartError) as error:
        for event in builder.fail(describe_for_client(error)):
            yield _make_event(event)
    yield ServerEvent(data="[DONE]")


def _make_event(event: dict[str, Any]) -> ServerEvent:
    return ServerEvent(event=event["type"], data=event, is_failure=event["type"] == "response.failed")


async def _open_response(request: Request, form: ResponseForm, turn: ChatTurn) -> _OpenResponse:
    site, access = get_site(request), get_access(request)
    model = find_model(site.engine.spec, form.model)
    previous = read_response_id(form.previous_response_id) if form.previous_response_id else None
    options: StreamOptions = {**turn.options, "handler": model.handler}
    if previous is not None:
        options.pop("history", None)
        if not turn.answers:
            opened = await _find_said(request, form, turn, previous, options)
            if opened is not None:
                return opened
        require_newest(site.get_log(access), previous)
    if turn.answers:
        answers = read_answers(site, turn.answers, access)
        root = answers[0].item.root
        if previous is not None and previous.conversation != root:
            raise Refusal(400, "the answers belong to another conversation than previous_response_id")
        engine = site.client_tools.find_engine(root)
        name = _name_response(site, root, is_new_turn=False)
        pieces = await continue_turn(site, engine, answers, access.name, turn.output_type)
        return _OpenResponse(name=name, pieces=pieces)
    if previous is None and (keyed := name_by_key(request)) is not None:
        return await _open_keyed(site, access, keyed, turn, options, is_background=bool(form.background))
    conversation = previous.conversation if previous is not None else generate_conversation_id()
    # Where a turn is open, the message is for that one.
    is_new_turn = not site.engine.conversation(conversation).has_open_turn
    name = _name_response(site, conversation, is_new_turn=is_new_turn)
    if previous is not None and name.turn != previous.turn + is_new_turn:
        raise Refusal(409, _NOT_NEWEST)
    options["conversation"] = conversation
    engine = site.client_tools.choose_engine(conversation, turn.tools)
    # Two clients may have seen the same newest response, also at two servers: the log lets one of them go on.
    follows = name.seq - 1 if previous is not None and is_new_turn else None
    try:
        pieces = await start_turn(site, engine, access, turn.message, follows=follows, **options)
    except LogConflict:
        if previous is None or follows is None:
            raise
        # Another server may have begun the turn of the same request meanwhile.
        if (opened := await _find_said(request, form, turn, previous, options)) is not None:
            return opened
        raise Refusal(409, _NOT_NEWEST) from None
    return _OpenResponse(name=name, pieces=pieces)


async def _find_said(
    request: Request, form: ResponseForm, turn: ChatTurn, previous: ResponseName, options: StreamOptions
) -> _OpenResponse | None:
    """The response of a request with a key that goes on after another response, where the same request has
    begun it before; given as the log has it when its turn rests, in the background as it is now.

    None where nothing was begun, where its turn ended in an error, and where the conversation does not exist
    for this access.

    Raises:
        Refusal: 422; another request had the key.
    """
    site, access, conversation = get_site(request), get_access(request), previous.conversation
    if not read_key(request) or not site.has_conversation(access, conversation):
        return None
    engine = site.client_tools.choose_engine(conversation, turn.tools)
    claimed: StreamOptions = {**options, **site.claim(access, conversation)}
    said = await find_said(engine, conversation, turn.message, claimed)
    if said is None:
        return None
    names = await asyncio.to_thread(lambda: list(iterate_responses(site.engine, conversation)))
    name = next(name for name in reversed(names) if name.seq <= said.seq)
    if form.background and await asyncio.to_thread(_is_in_progress, site, name):
        return _OpenResponse(name=name, pieces=None)
    if not said.turn.is_over:
        await finish_turn(await start_turn(site, engine, access, turn.message, **claimed))
    return await _read_opened(site, name)


async def _read_opened(site: Site, name: ResponseName) -> _OpenResponse:
    """A response as the log has it."""
    steps, _ = await asyncio.to_thread(_read_steps, site.engine, name)
    return _OpenResponse(name=name, pieces=_iterate_pieces(_list_pieces(site.engine, name, steps)))


async def _open_keyed(
    site: Site,
    access: Access,
    conversation: str,
    turn: ChatTurn,
    options: StreamOptions,
    *,
    is_background: bool,
) -> _OpenResponse:
    """The response of a request with a key: begun now, or by the same request before.

    What was begun before, also by another server on the log, is given as the log has it when its turn rests;
    in the background as it is now.
    """
    engine = site.client_tools.choose_engine(conversation, turn.tools)
    name = ResponseName(conversation=conversation, turn=1, seq=0)
    if is_background and await asyncio.to_thread(_is_in_progress, site, name):
        claimed: StreamOptions = {**options, **site.claim(access, conversation)}
        await compare_with_begun(engine, conversation, turn.message, claimed)
        return _OpenResponse(name=name, pieces=None)
    pieces = await begin_once(site, engine, access, conversation, turn.message, options)
    first = await anext(pieces)
    pieces = put_before(first, pieces)
    # Only the stream of whoever begins the turn has all of it: the log has it for the others.
    if isinstance(first, StepTaken) and isinstance(first.event, (Configured, TurnStarted)):
        return _OpenResponse(name=name, pieces=pieces)
    result = await finish_turn(pieces)
    # A turn that failed was tried again in a fork, which has the answer.
    return await _read_opened(site, ResponseName(conversation=result.conversation, turn=1, seq=0))


def _is_in_progress(site: Site, name: ResponseName) -> bool:
    """Whether a response has begun, and has not come to rest."""
    if site.engine.store.read_last_line(name.conversation) is None:
        return False
    try:
        return bool(read_stored_response(site, name)["status"] == "in_progress")
    except Refusal:  # its turn has no record yet
        return False


async def _iterate_pieces(pieces: Sequence[Piece]) -> Pieces:
    for piece in pieces:
        yield piece


def _name_response(site: Site, conversation: str, *, is_new_turn: bool) -> ResponseName:
    """The response that begins with the next record of a conversation."""
    store = site.engine.store
    turns, records = 0, 0
    if store.read_last_line(conversation) is not None:
        row = summarize_conversation(store, conversation)
        turns, records = row.turns, row.records
    return ResponseName(conversation=conversation, turn=turns + is_new_turn, seq=records)


@ROUTES.endpoint("GET", "/v1/responses/{response}", "read")
async def show_response(request: Request) -> Response:
    """Show a response."""
    name = read_response_id(request.path_params["response"])
    if get_log(request).read_last_line(name.conversation) is None:
        raise Refusal(404, f"there is no response {name.id!r}")
    return JsonAnswer(await asyncio.to_thread(read_stored_response, get_site(request), name))


@ROUTES.endpoint("DELETE", "/v1/responses/{response}", "delete")
async def delete_response(request: Request) -> Response:
    """Delete a response that is alone in its conversation: the log has whole conversations."""
    site, name = get_site(request), read_response_id(request.path_params["response"])
    exists = site.has_conversation(get_access(request), name.conversation)
    names = await asyncio.to_thread(lambda: list(iterate_responses(site.engine, name.conversation)))
    if not exists or name not in names:
        raise Refusal(404, f"there is no response {name.id!r}")
    if len(names) > 1:
        raise Refusal(
            409,
            f"the response is one of {len(names)} of its conversation, and the log keeps or deletes a whole "
            f"conversation: delete all of them with DELETE /api/conversations/{name.conversation}; nothing "
            "was deleted",
        )
    await delete_family(site, name.conversation)
    return JsonAnswer({"id": name.id, "object": "response", "deleted": True})


@ROUTES.endpoint("GET", "/v1/responses/{response}/input_items", "read")
async def show_input_items(request: Request) -> Response:
    """List what a response was made of, in pages: `limit`, `after`, `order`."""
    name, query = read_response_id(request.path_params["response"]), read_page_query(request.query_params)
    is_client_tool = get_site(request).client_tools.is_client_tool
    items = await asyncio.to_thread(list_input_items, get_log(request), name, is_client_tool)
    return JsonAnswer(cut_page(items, query))


# -- responses read again from the log -----------------------------------------------------------


def read_stored_response(site: Site, name: ResponseName) -> dict[str, Any]:
    """The response as the log has it.

    Raises:
        Refusal: 404; there is none.
        LogDamaged, ReplayMismatch: the log is not the one that was written.
    """
    steps, is_followed = _read_steps(site.engine, name)
    builder = _make_builder(site, name, _build_head(site, name, steps))
    builder.is_followed = is_followed
    for piece in _list_pieces(site.engine, name, steps):
        for _ in builder.take(piece):
            pass
    return builder.response


def _read_steps(engine: Engine, name: ResponseName) -> tuple[list[ReplayedStep], bool]:
    """The steps of a response, at least one: from its first record to where its turn ended, or rested until a
    later response took it up; and whether a later response follows.

    Both from one look into the log: its turn may go on while it is read.

    Raises:
        Refusal: 404; there is none.
    """
    steps: list[ReplayedStep] = []
    has_rested, is_followed = False, False
    for entry in replay_from(engine.store, name.conversation, name.seq):
        kind = entry.record.event["type"]
        is_taken_up = (
            kind == "resumed" and has_rested and steps and waits_for_client(engine, steps[-1].step.snapshot)
        )
        if entry.step.snapshot.turn > name.turn or is_taken_up:
            is_followed = True
            break
        # After a reply, or a message that waits for a person, whoever goes on does so by another response.
        has_rested = has_rested or kind in ("replied", "user_said")
        steps.append(entry)
    if not steps or steps[-1].step.snapshot.turn != name.turn:
        raise Refusal(404, f"there is no response {name.id!r}")
    return steps, is_followed


def _list_pieces(engine: Engine, name: ResponseName, steps: Sequence[ReplayedStep]) -> list[Piece]:
    """What a stream of the response has yielded."""
    pieces: list[Piece] = []
    stream = AnswerStream(pieces.append)
    for entry in steps:
        event = entry.step.event
        if event is not None:
            stream.take_step(event, entry.step)
            pieces.append(StepTaken(event=event, step=entry.step))
    pieces.append(_find_result_at(engine, name.conversation, steps[-1]))
    return pieces


def _find_result_at(engine: Engine, conversation: str, last: ReplayedStep) -> Turn:
    """The result at a record; of the newest one with what waits in the children."""
    turn = engine.conversation(conversation).read_turn()
    # Asked afterwards: a log only grows, so the turn was read at this record where it is still the newest.
    newest = engine.store.read_last_line(conversation)
    if newest is not None and newest[0] == last.record.seq:
        return turn
    return build_turn(last.step.snapshot, conversation)


def waits_for_client(engine: Engine, snapshot: Snapshot) -> bool:
    """Whether an open turn rests until a client answers: else its process was stopped, and it goes on as part
    of the same response."""
    waiting = describe_waiting(snapshot, "")
    has_client_calls = any(engine.tools.registry.get(call.tool) is None for call in waiting.calls)
    has_agents = any(isinstance(effect, RunAgent) for effect in snapshot.open_effects)
    return bool(waiting.approvals or waiting.questions) or has_client_calls or has_agents


def _build_head(site: Site, name: ResponseName, steps: list[ReplayedStep]) -> dict[str, Any]:
    own, *_ = list_models(site.engine.spec)
    handler = next(
        (e.record.event.get("handler") for e in steps if e.record.event["type"] == "turn_started"), ""
    )
    return {
        "id": name.id,
        "model": handler or own.name,
        "previous_response_id": find_previous(site.engine, name),
    }


def find_previous(engine: Engine, name: ResponseName) -> str | None:
    """The id of the response that one goes on with: the one whose turn ended, or rested, right before it."""
    earlier = takewhile(lambda other: other.seq < name.seq, iterate_responses(engine, name.conversation))
    newest = deque(earlier, maxlen=1)
    return newest[0].id if newest else None


def iterate_responses(engine: Engine, conversation: str) -> Iterator[ResponseName]:
    """The responses of a conversation, the oldest first, as far as it has begun them."""
    store = engine.store
    kinds = read_kinds(store, conversation)
    begun, is_over, has_rested = ResponseName(conversation=conversation, turn=1, seq=0), False, False
    turn = 0
    for record in read_from(store, conversation, 0):
        if record.seq == 0:
            yield begun
        # Records of a changed agent may stand between two turns: they belong to the next one.
        is_next = is_over and begun.turn <= turn
        if is_next or (
            record.event_type == "resumed"
            and has_rested
            and waits_for_client(engine, _read_snapshot_at(store, conversation, record.seq - 1))
        ):
            begun = ResponseName(conversation=conversation, turn=turn + is_next, seq=record.seq)
            has_rested = False
            yield begun
        has_rested = has_rested or record.event_type in ("replied", "user_said")
        # A fork at rest says so by what it asks for.
        is_resting_fork = record.event_type == "forked" and not any(ask.is_work(kinds) for ask in record.asks)
        turn, is_over = record.turn, record.ends_turn or is_resting_fork


def _read_snapshot_at(store: Store, conversation: str, seq: int) -> Snapshot:
    return next(replay_from(store, conversation, seq)).step.snapshot


_NOT_NEWEST = "only the newest response of a conversation can be continued"


def require_newest(log: Store, name: ResponseName) -> None:
    """Refuse to go on with a response that a later turn has followed.

    Raises:
        Refusal: 404 where there is no such response, 409 where a later one exists.
    """
    exists = log.read_last_line(name.conversation) is not None
    turns = summarize_conversation(log, name.conversation).turns if exists else 0
    if not exists or turns < name.turn:
        raise Refusal(404, f"there is no response {name.id!r}")
    if turns > name.turn:
        raise Refusal(409, _NOT_NEWEST)
