"""What the path and the query of a request say about a conversation."""

from __future__ import annotations

from starlette.requests import Request

from toolchart.app.server.conversations.reading import require_conversation
from toolchart.app.server.site import get_site


def find_named_conversation(request: Request) -> str:
    """The conversation of the path.

    Raises:
        Refusal: 404; there is none.
    """
    name = str(request.path_params["conversation"])
    require_conversation(get_site(request).engine.store, name)
    return name


def must_wait(request: Request) -> bool:
    """Whether the answer comes when the turn rests; with `?wait=false` as soon as its first record is
    durable."""
    return request.query_params.get("wait") != "false"
