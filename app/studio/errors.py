"""Errors as pages: what happened and what to do, for whoever opens an address in a browser.

Programs get JSON. The browser says by its `Accept` header that it wants a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import Refusal, describe_error, make_error_answer
from toolchart.app.server.conversations.approvals import get_known_count
from toolchart.app.server.endpoints import SIGN_IN_PATH, find_access
from toolchart.app.server.site import describe_target, get_request_id, get_site
from toolchart.app.studio.rendering import PAGES, render_page
from toolchart.states.errors import LogDamaged, LogUnavailable, NotFound


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """One page for errors of one kind."""

    name: str
    statuses: tuple[int, ...] = ()
    """The HTTP statuses that it is for."""
    errors: tuple[type[Exception], ...] = ()
    """The classes of errors that it is for; they come before statuses."""
    title: str
    advice: str
    """What to do next: one or two sentences."""
    link: tuple[str, str] = (PAGES[0].path, PAGES[0].title)
    """Address and text of the link that leads on."""


ERROR_VIEWS: tuple[ErrorView, ...] = (
    ErrorView(
        name="damage",
        errors=(LogDamaged,),
        title="A record is damaged",
        advice="The list of conversations marks what is damaged, and the page of a run shows every record up "
        "to the damage. `toolchart verify` checks the whole log; restore what it names from a backup, or "
        "keep the rest: `toolchart export --format jsonl` writes every intact conversation.",
    ),
    ErrorView(
        name="no log",
        errors=(LogUnavailable,),
        statuses=(503,),
        title="The log cannot be used",
        advice="Load the page again in a moment. If it stays so, look at the messages of the server: the "
        "disk may be full, or the file may be locked or gone.",
    ),
    ErrorView(
        name="no conversation",
        errors=(NotFound,),
        title="There is no such conversation",
        advice="It may have been removed, or its id was cut when it was copied. The list shows every "
        "conversation of this log, and finds one by its text.",
    ),
    ErrorView(
        name="sign in",
        statuses=(401,),
        title="Sign in first",
        advice="The server printed a link and its tokens when it was started.",
        link=(SIGN_IN_PATH, "Sign in"),
    ),
    ErrorView(
        name="not allowed",
        statuses=(403,),
        title="This is not allowed",
        advice="Ask whoever runs the server for a token with the role, or open the page from the server's "
        "own address.",
    ),
    ErrorView(
        name="not found",
        statuses=(404, 405),
        title="There is no such page",
        advice="Look at the address. The pages of this server are linked here.",
    ),
    ErrorView(
        name="wrong name",
        statuses=(421,),
        title="This server has another name",
        advice="Open it by the address that it printed at its start, or start it with `--name` and the name "
        "of the address bar.",
        link=("", ""),
    ),
    ErrorView(
        name="too much",
        statuses=(408, 413, 429),
        title="Too much at once",
        advice="Wait a few seconds, then load the page again. A file that was sent may be too large.",
    ),
    ErrorView(
        name="refused",
        statuses=(400, 409, 415, 422),
        title="The server cannot do that",
        advice="Change what the message names, and try again.",
    ),
    ErrorView(
        name="failure",
        statuses=(500, 502),
        title="The server has failed",
        advice="Nothing of what was recorded is lost. Load the page again. If it fails again, give the "
        "number of the request to whoever runs the server: its messages name the cause beside it.",
    ),
)
"""Every page of errors. The last one is for what no other one is for."""


def find_view(error: Exception, status: int, views: Sequence[ErrorView] = ERROR_VIEWS) -> ErrorView:
    """The page of an error: the one that it names, else that of its class, else that of its status."""
    name = error.view if isinstance(error, Refusal) else ""
    by_name = (view for view in views if name and view.name == name)
    by_class = (view for view in views if isinstance(error, view.errors))
    by_status = (view for view in views if status in view.statuses)
    return next((view for group in (by_name, by_class, by_status) for view in group), views[-1])


def answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error: a page for a browser that asks for one, JSON for anybody else."""
    request_id = get_request_id(request)
    if "text/html" not in request.headers.get("accept", ""):
        return make_error_answer(error, request_id)
    status, headers, content = describe_error(error)
    values = _describe_page(request, find_view(error, status))
    # The framework's own text repeats the title; the address says more.
    is_plain = isinstance(error, HTTPException)
    message = f"nothing answers {request.method} {request.url.path}" if is_plain else str(content["error"])
    response = render_page("error.html", status, code=status, message=message.rstrip("."), **values)
    response.headers.update(headers)
    return response


def _describe_page(request: Request, view: ErrorView) -> dict[str, Any]:
    """What the template needs; who is signed in also gets the navigation of every page."""
    path, text = view.link
    if path == SIGN_IN_PATH:
        path = f"{path}?next={quote(describe_target(request))}"
    access = _find_reader(request)
    site = get_site(request)
    return {
        "view": view,
        "link": (path, text),
        "request_id": get_request_id(request),
        "pages": PAGES,
        "here": "",
        "agent": site.engine.spec.name or site.settings.source or "agent",
        "access": access,
        "waiting": (get_known_count(site, access) or 0) if access is not None else 0,
    }


def _find_reader(request: Request) -> Access | None:
    """Who is signed in, if anybody is."""
    try:
        return find_access(request)
    except Refusal:  # the token is unknown, which is perhaps the error itself
        return None
