"""Deleting a conversation: the one way, for the API of conversations and for that of responses."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.conversations.reading import find_named_conversation
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.repeated_requests import get_kept_answers
from toolchart.app.server.site import Site, get_site
from toolchart.states.errors import SpecError

ROUTES = RouteGroup()


@ROUTES.endpoint("DELETE", "/api/conversations/{conversation}", "delete")
async def delete_conversation(request: Request) -> JsonAnswer:
    """Delete a conversation from the log, with the agents that it runs."""
    name = find_named_conversation(request)
    deleted = await delete_family(get_site(request), name)
    return JsonAnswer({"conversation": name, "deleted": deleted})


async def delete_family(site: Site, conversation: str) -> list[str]:
    """Delete a conversation with all that exists for it alone; the ids of what is gone.

    Raises:
        Refusal: 409; its turn is open, a worker has it, or something else needs it. Nothing was deleted.
    """
    engine = site.engine
    if site.live_turns.is_running(conversation) or engine.conversation(conversation).has_open_turn:
        raise Refusal(
            409,
            f"a turn of conversation {conversation!r} is open, so it cannot be deleted now: let the turn "
            f"end, or end it with POST /api/conversations/{conversation}/cancel; nothing was deleted",
        )
    try:
        deleted = await asyncio.to_thread(engine.conversation(conversation).delete)
    except SpecError as error:
        # What it names may be somebody else's.
        raise Refusal(
            409,
            f"conversation {conversation!r} cannot be deleted now: a worker has it, a fork shares its "
            "records, or another conversation runs it. Delete that one first; nothing was deleted",
        ) from error
    get_kept_answers(site).forget(deleted)
    return deleted
