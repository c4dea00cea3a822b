"""The endpoints below `/v1`."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal, describe_for_client
from toolchart.app.server.bodies import read_form_with_others
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.event_stream import stream_answer
from toolchart.app.server.openai_api.chat_requests import ChatTurn, CompletionForm, read_chat
from toolchart.app.server.openai_api.errors import (
    refuse_failed_turn,
    shape_contradiction,
    shape_error,
    shape_refusal,
    shape_turn_error,
)
from toolchart.app.server.openai_api.options import list_ignored
from toolchart.app.server.protocols.contents import describe_turn, describe_usage
from toolchart.app.server.protocols.served_models import find_model, list_models
from toolchart.app.server.protocols.turns import (
    AnswerText,
    Pieces,
    begin_once,
    continue_turn,
    count_seconds,
    finish_turn,
    read_answers,
    read_times,
    start_turn,
)
from toolchart.app.server.protocols.waiting import APPROVAL, WaitingItem, list_waiting_items
from toolchart.app.server.repeated_requests import name_by_key
from toolchart.app.server.server_events import ServerEvent
from toolchart.app.server.site import get_access, get_site
from toolchart.engine.reading.steps import read_turn_start
from toolchart.engine.runtime.agent import INSTRUCTIONS
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import Piece
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.content import AudioPart, CitationPart, ImagePart, encode_chat_part, encode_chat_source
from toolchart.states.errors import ToolchartError

ROUTES = RouteGroup(shape_error=shape_error)


@ROUTES.endpoint("GET", "/v1/models", "read")
async def list_served_models(request: Request) -> Response:
    """List the agent and its handlers as models."""
    models = [_describe_model(model.name) for model in list_models(get_site(request).engine.spec)]
    return JsonAnswer({"object": "list", "data": models})


@ROUTES.endpoint("GET", "/v1/models/{model}", "read")
async def show_model(request: Request) -> Response:
    """Show one model."""
    model = find_model(get_site(request).engine.spec, request.path_params["model"])
    return JsonAnswer(_describe_model(model.name))


def _describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolchart"}


@ROUTES.endpoint("POST", "/v1/chat/completions", "chat", body=CompletionForm)
async def complete_chat(request: Request) -> Response:
    """Run a turn, in the form of OpenAI's chat completions."""
    form, others = await read_form_with_others(request, CompletionForm)
    site = get_site(request)
    engine, turn, ignored = site.engine, read_chat(form, site.limits.schema_nodes), list_ignored(others)
    pieces = await _open_chat(request, form, turn)
    describe = partial(_describe_turn, engine, ignored, has_instructions=bool(turn.options.get("variables")))
    if not form.stream:
        result = await finish_turn(pieces)
        return JsonAnswer(build_completion(result, form.model, _read_newest_second(engine, result), describe))
    include_usage = form.stream_options is not None and form.stream_options.include_usage
    events = stream_completion(engine, pieces, form.model, describe, include_usage=include_usage)
    return stream_answer(request, events, begins_turn=not turn.answers)


Describe = Callable[[Turn], dict[str, Any]]
"""What an answer has under the key `toolchart`."""


def _describe_turn(
    engine: Engine, ignored: list[str], result: Turn, *, has_instructions: bool
) -> dict[str, Any]:
    if has_instructions:
        started = read_turn_start(engine.store, result.conversation)
        is_used = started is not None and INSTRUCTIONS in started.event.get("variables", ())
        ignored = ignored if is_used else [*ignored, INSTRUCTIONS]
    described = describe_turn(result, shown=_SHOWN_PARTS)
    return {**described, "ignored": ignored} if ignored else described


def _read_newest_second(engine: Engine, result: Turn) -> int:
    """When the newest record of a turn's conversation was written."""
    return count_seconds(read_times(engine, result.conversation)[1])


async def _open_chat(request: Request, form: CompletionForm, turn: ChatTurn) -> Pieces:
    site, access = get_site(request), get_access(request)
    model = find_model(site.engine.spec, form.model)
    if turn.answers:
        answers = read_answers(site, turn.answers, access)
        engine = site.client_tools.find_engine(answers[0].item.root)
        return await continue_turn(site, engine, answers, access.name, turn.output_type)
    options: StreamOptions = {**turn.options, "handler": model.handler}
    if turn.conversation is not None:
        site.require_conversation(access, turn.conversation)
        engine = site.client_tools.find_engine(turn.conversation)
        options["conversation"] = turn.conversation
        return await start_turn(site, engine, access, turn.message, **options)
    engine = site.client_tools.get_engine(turn.tools)
    if (keyed := name_by_key(request)) is not None:
        return await begin_once(site, engine, access, keyed, turn.message, options)
    return await start_turn(site, engine, access, turn.message, **options)


# -- answers -------------------------------------------------------------------------------------
# Results of turns as chat completions, whole and in chunks.
#
# Source: `openai/types/chat/` of the SDK 3.54.


_FINISH_REASONS = {"length": "length", "content_filter": "content_filter"}
"""By finish reason of the last reply: the API's word; `stop` for any other."""


def build_completion(result: Turn, model: str, created: int, describe: Describe) -> dict[str, Any]:
    """The whole answer to a request.

    Args:
        created: when it was made, in seconds since 1970.

    Raises:
        Refusal: 502; the turn ended in error.
    """
    if result.error is not None:
        raise refuse_failed_turn(result.error)
    items = list_waiting_items(result.waiting, result.conversation)
    message: dict[str, Any] = {"role": "assistant", "content": result.content or None, "refusal": None}
    if items:
        message["tool_calls"] = [build_tool_call(item) for item in items]
    else:
        message["content"] = result.content
    message |= build_parts(result)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": find_finish_reason(result, items),
    }
    return {
        "id": f"chatcmpl-{result.conversation}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": build_usage(result),
        "toolchart": describe(result),
    }


_SHOWN_PARTS = (ImagePart, AudioPart, CitationPart)


def build_parts(result: Turn) -> dict[str, Any]:
    """The keys of a message for what an answer has beside text; only those that it needs.

    Source: `chat_completion_message.py` (`annotations`, `audio`); `images` is OpenRouter's.
    """
    message: dict[str, Any] = {}
    pictures = [encode_chat_part(part) for part in result.parts if isinstance(part, ImagePart)]
    sounds = [part for part in result.parts if isinstance(part, AudioPart)]
    if result.citations:
        message["annotations"] = list(map(encode_chat_source, result.citations))
    if pictures:
        message["images"] = [{"index": index, **picture} for index, picture in enumerate(pictures)]
    if sounds:
        audio_id = sounds[0].file_id or f"audio-{result.conversation}"
        message["audio"] = {
            "id": audio_id,
            "data": sounds[0].data,
            "transcript": result.content,
            "expires_at": 0,
        }
    return message


def build_tool_call(item: WaitingItem) -> dict[str, Any]:
    """The call that asks the client for what a turn waits for."""
    return {
        "id": item.wire_id,
        "type": "function",
        "function": {"name": item.call_name, "arguments": encode_canonical_text(_list_arguments(item))},
    }


def _list_arguments(item: WaitingItem) -> dict[str, Any]:
    if item.kind is not APPROVAL:
        return item.arguments
    return {"tool": item.tool, "arguments": item.arguments, **({"runs": item.runs} if item.runs else {})}


def find_finish_reason(result: Turn, items: list[WaitingItem]) -> str:
    """Why the answer ends: the API's word."""
    if items:
        return "tool_calls"
    if result.limit_reached and not result.ok:
        return "length"
    return _FINISH_REASONS.get(result.finish_reason, "stop")


def build_usage(result: Turn) -> dict[str, Any]:
    """Tokens of the turn."""
    usage = result.usage
    prompt, answer, total = describe_usage(usage)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": usage.cached or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }


# -- chunks ----------------------------------------------------------------------------------------
#
# Nothing that a chunk has said can be taken back. So a text waits until its reply is whole wherever it may be
# no part of the answer. A failure of the host can come at any time: where the model is asked again and begins
# with the text that was sent, only what follows is sent; else the stream ends with an error.


_HELD = ("form", "calls", "chart", "agent")
"""Doubts under which a text waits."""


async def stream_completion(
    engine: Engine, pieces: Pieces, model: str, describe: Describe, *, include_usage: bool
) -> AsyncGenerator[ServerEvent, None]:
    """The answer in chunks; an error of the turn is the last event before the end."""
    head: dict[str, Any] = {}
    text = AnswerText(_HELD, can_withdraw=False)
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                words = text.take(piece).text
                if not head and (text.steps.first_at or isinstance(piece, Turn)):
                    head = _make_head(engine, piece, text.steps.first_at, model)
                    yield _make_chunk(head, {"role": "assistant", "content": ""})
                if words:
                    yield _make_chunk(head, {"content": words})
                if isinstance(piece, Turn):
                    if text.is_contradicted:
                        yield ServerEvent(data=shape_contradiction(piece.conversation), is_failure=True)
                        break
                    for event in _list_last_events(head, piece, describe, include_usage=include_usage):
                        yield event
    except Refusal as refusal:
        yield ServerEvent(data=shape_refusal(refusal), is_failure=True)
    except ToolchartError as error:
        content = {"message": describe_for_client(error), "type": "server_error", "param": None, "code": None}
        yield ServerEvent(data={"error": content}, is_failure=True)
    yield ServerEvent(data="[DONE]")


def _make_head(engine: Engine, piece: Piece, first_at: str, model: str) -> dict[str, Any]:
    """What all chunks have, made with the first piece: the time is that of its record."""
    is_whole = isinstance(piece, Turn)
    return {
        "id": f"chatcmpl-{secrets.token_hex(8)}",
        "object": "chat.completion.chunk",
        "created": _read_newest_second(engine, piece) if is_whole else count_seconds(first_at),
        "model": model,
    }


def _list_last_events(
    head: dict[str, Any], result: Turn, describe: Describe, *, include_usage: bool
) -> list[ServerEvent]:
    if result.error is not None:
        return [ServerEvent(data=shape_turn_error(result.error), is_failure=True)]
    items = list_waiting_items(result.waiting, result.conversation)
    calls = [{"index": index, **build_tool_call(item)} for index, item in enumerate(items)]
    parts = build_parts(result)
    events = [_make_chunk(head, parts)] if parts else []
    events += [_make_chunk(head, {"tool_calls": calls})] if calls else []
    end = {**head, "toolchart": describe(result)}
    events.append(_make_chunk(end, {}, find_finish_reason(result, items)))
    if include_usage:
        events.append(ServerEvent(data={**head, "choices": [], "usage": build_usage(result)}))
    return events


def _make_chunk(head: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None) -> ServerEvent:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return ServerEvent(data={**head, "choices": [choice]})
