"""What all pages have: the list of pages, and who looks at them."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_access, get_site
from toolchart.app.studio.rendering import render_page

ROUTES = RouteGroup()


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """One page in the navigation."""

    path: str
    title: str


PAGES = (
    PageLink(path="/conversations", title="Conversations"),
    PageLink(path="/chat", title="Chat"),
    PageLink(path="/approvals", title="Approvals"),
    PageLink(path="/tools", title="Tools"),
    PageLink(path="/charts", title="Charts"),
    PageLink(path="/models", title="Models"),
)
"""The pages, in the order of the navigation. The first one is where `/` leads."""


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
        **values,
    )


@ROUTES.page("/")
async def show_first_page(request: Request) -> Response:
    """Lead to the first page."""
    return RedirectResponse(PAGES[0].path, status_code=303)
