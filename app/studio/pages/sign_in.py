"""The page on which a browser signs in, with the link that the server prints or with a token."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import SIGN_IN_PATH, RouteGroup
from toolchart.app.server.site import get_site
from toolchart.app.studio.rendering import render_page

ROUTES = RouteGroup()


@ROUTES.endpoint("GET", SIGN_IN_PATH, None, in_openapi=False)
async def show_sign_in(request: Request) -> Response:
    """The form; a one-time code in the address signs in at once."""
    next_path = clean_path(request.query_params.get("next", "/"))
    code = request.query_params.get("code")
    if code is None:
        return render_page("sign_in.html", next_path=next_path, problem="")
    access = get_site(request).sessions.take_code(code)
    if access is None:
        problem = "This link has been used, or is too old. Sign in with your token."
        return render_page("sign_in.html", 403, next_path=next_path, problem=problem)
    return _begin_session(request, access, next_path)


@ROUTES.endpoint("POST", SIGN_IN_PATH, None, in_openapi=False)
async def sign_in(request: Request) -> Response:
    """Take the token of the form."""
    body = await request.body()
    if len(body) > get_site(request).limits.form_bytes:
        raise Refusal(413, "the form is too large")
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    next_path = clean_path(fields.get("next", ["/"])[0])
    access = get_site(request).tokens.find(fields.get("token", [""])[0].strip())
    if access is None:
        problem = "This token is unknown. The server printed it when it was started."
        return render_page("sign_in.html", 403, next_path=next_path, problem=problem)
    return _begin_session(request, access, next_path)


@ROUTES.endpoint("POST", "/sign-out", "read", in_openapi=False)
async def sign_out(request: Request) -> Response:
    """End the session of the browser."""
    response = RedirectResponse(SIGN_IN_PATH, status_code=303)
    get_site(request).sessions.end(request, response)
    return response


def _begin_session(request: Request, access: Access, next_path: str) -> Response:
    """A page of our own that leads on: after a redirect from another site, a browser would withhold the
    cookie from the next page."""
    response = render_page("signed_in.html", name=access.name, next_path=next_path)
    get_site(request).sessions.begin(response, access)
    return response


def clean_path(path: str) -> str:
    """The path if it is one of this server, else `/`; a link must not lead to another site.

    >>> clean_path("/tools"), clean_path("//evil.example"), clean_path("https://evil.example")
    ('/tools', '/', '/')
    """
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"
