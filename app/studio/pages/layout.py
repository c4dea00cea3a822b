"""What all pages have: the navigation, and who looks at them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolchart.app.server.conversations.approvals import get_known_count
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_access, get_site
from toolchart.app.studio.rendering import PAGES, render_page

ROUTES = RouteGroup()


def show_page(request: Request, template: str, here: str, **values: Any) -> Response:
    """A page with its navigation."""
    site, access = get_site(request), get_access(request)
    return render_page(
        template,
        pages=PAGES,
        here=here,
        access=access,
        agent=site.engine.spec.name or site.settings.source or "agent",
        may_chat=access.may("chat"),
        may_approve=access.may("approve"),
        may_debug=access.may("debug"),
        waiting=get_known_count(site, access) or 0,
        **values,
    )


@ROUTES.page("/")
async def show_first_page(request: Request) -> Response:
    """Lead to the first page."""
    return RedirectResponse(PAGES[0].path, status_code=303)
