"""The page to chat with the agent."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.conversations.reading import require_conversation
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.studio.pages.layout import show_page

ROUTES = RouteGroup()


@ROUTES.page("/chat")
@ROUTES.page("/chat/{conversation}")
async def show_chat(request: Request) -> Response:
    """Show a chat: a new one, or the one of the path."""
    conversation = str(request.path_params.get("conversation", ""))
    if conversation:
        require_conversation(get_site(request).engine.store, conversation)
    return show_page(request, "chat.html", "/chat", conversation=conversation)
