"""The chat API of existing front ends: one message in, one JSON answer out, the history comes with it.

Their page takes the next message only after a text in `response`, or after 429. So every answer has a
sentence there: also an error, a turn that waits for a person, and a reply without text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal, describe_error
from toolchart.app.server.bodies import read_form
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.protocols.turns import find_begun_turn
from toolchart.app.server.repeated_requests import name_by_key
from toolchart.app.server.site import get_access, get_request_id, get_site
from toolchart.app.server.testing_api.forms import ChatForm
from toolchart.engine.log.family import name_context
from toolchart.engine.reading.results import read_results
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.result import Turn
from toolchart.states.errors import ToolchartError

ROUTES = RouteGroup()

log = logging.getLogger("toolchart.server")

_FAILED = "No answer could be given: "


@ROUTES.endpoint("POST", "/chat/api", "chat", body=ChatForm)
async def chat(request: Request) -> Response:
    """Answer a message that brings its history; each answer is a conversation."""
    try:
        return await _answer_message(request)
    except (Refusal, HTTPException, ToolchartError) as error:
        status, headers, details = describe_error(error)
        text = str(details.pop("error"))
        sentence = _FAILED + str(details.get("message") or text)
        details = {"response": sentence, "status": "error", **details}
        raise Refusal(status, text, headers=headers, details=details) from None
    except Exception as error:
        log.error("POST /chat/api [%s]: %s", get_request_id(request), type(error).__name__, exc_info=error)
        details = {"response": f"{_FAILED}the server has failed", "status": "error"}
        raise Refusal(500, "internal error", details=details) from None


async def _answer_message(request: Request) -> Response:
    """The answer to a message.

    Raises:
        Refusal: the request is wrong, or the turn ended in error.
        ToolchartError: the turn could not begin or go on.
    """
    form, site = await read_form(request, ChatForm), get_site(request)
    if not isinstance(form.prompt, str) or not form.prompt.strip():
        raise Refusal(400, "Invalid request: prompt is required and must be a string")
    keyed, prompt = name_by_key(request), form.prompt
    name = keyed or generate_conversation_id()
    variables: dict[str, Any] = {"current_topic": form.topic} if form.topic else {}
    if form.selectedCollections:
        variables["collections"] = _list_collections(form)
    history = [_convert_message(message) for message in form.previousMessages]
    engine, options = site.engine, site.claim(get_access(request), name)
    options.update({"history": history, "variables": variables})
    run_turn: Callable[..., Coroutine[Any, Any, Turn]] = partial(engine.arun, prompt, **options)
    if keyed is not None:
        run_turn = await find_begun_turn(site, engine, name, prompt, options)
    task = site.live_turns.begin(name, lambda on_delta: run_turn(on_delta=on_delta))
    result: Turn = await site.live_turns.wait(name, task, until_rest=True)
    if result.error is not None:
        details = {"message": result.error.message, "conversation": name}
        raise Refusal(500, "Internal server error", details=details)
    return JsonAnswer(
        {
            "response": _write_response(result),
            "status": "success" if result.is_over else "waiting",
            "topic": _find_topic(engine, name) or form.topic or prompt,
            "service": result.service,
            "model": result.model,
            "conversation": name,
        }
    )


def _write_response(result: Turn) -> str:
    """What the page shows: the answer, and a sentence where there is none yet."""
    if result.is_over or result.awaits_user:
        return result.content if result.content.strip() else "The model has answered without any text."
    return f"{result.content}\n\n{_describe_waiting(result)}".strip()


def _describe_waiting(result: Turn) -> str:
    """What a turn waits for, and where a person can go on with it."""
    place = f"The answer will stand at /chat/{result.conversation}."
    if result.pending_approvals:
        tools = ", ".join(dict.fromkeys(call.tool for call in result.pending_approvals))
        return f"A person must approve a tool call first ({tools}): decide at /approvals. {place}"
    if result.questions:
        return f"A question must be answered first: answer it at /approvals. {place}"
    return f"This message is still being worked on. {place}"


def _convert_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the front end; everything that is not the user's is the assistant's."""
    kind = "user" if message.get("type") == "user" else "bot"
    return {"type": kind, "text": str(message.get("text") or "")}


def _list_collections(form: ChatForm) -> list[str]:
    return [f"{row.get('service', '')}/{row.get('name', '')}" for row in form.selectedCollections]


def _find_topic(engine: Engine, conversation: str) -> str:
    """The topic that was found before the handler was chosen; empty where none was looked for."""
    topic = read_results(engine.store, name_context(conversation)).get("topic", {})
    return str(topic.get("topic_summary") or "")
