"""Endpoints: a path, the role that a request needs, and the function that answers it.

Each module of routes has one `RouteGroup`, whose decorators stand over its functions; `application.py` lists
the groups. An endpoint cannot be written without saying which role it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from toolchart.app.server.access.tokens import Access, Role
from toolchart.app.server.answers import Refusal, make_error_answer
from toolchart.app.server.repeated_requests import answer_once, refuse_key
from toolchart.app.server.site import Site, describe_target, get_request_id, get_site
from toolchart.states.errors import ToolchartError

SIGN_IN_PATH = "/sign-in"

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

_Answer = TypeVar("_Answer", bound=Callable[[Request], Awaitable[ASGIApp]])


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    path: str
    """A path of Starlette: `/api/conversations/{conversation}`."""
    role: Role | None
    """What the token of a request must be allowed; None answers everybody, without a token."""
    answer: Callable[[Request], Awaitable[ASGIApp]]
    """Answers a request with a response, or with any other ASGI application."""
    summary: str
    """One sentence for the OpenAPI document: what the docstring of `answer` begins with, if nothing else."""
    body: type[msgspec.Struct] | None = None
    """The form of its JSON body."""
    shape_error: Callable[[int, str], Any] | None = None
    """The JSON of an error, from its status and text, for a protocol with a form of its own."""
    is_page: bool = False
    """Whether it is a page for people: without a session they are asked to sign in."""
    in_openapi: bool = True
    takes_key: bool = True
    """Whether a request with an `Idempotency-Key` is carried out once, where its method changes something.
    Only a protocol that has no place for a key takes none: there it is refused."""

    @property
    def answers_once(self) -> bool:
        """Whether the key of a request has an effect."""
        return self.takes_key and self.role is not None and self.method not in SAFE_METHODS


class RouteGroup:
    """The endpoints of one protocol or page, in the order in which their functions stand.

    Args:
        run: what runs as long as the server does; entered with a running event loop.
        shape_error: that of all its endpoints.
    """

    def __init__(
        self,
        run: Callable[[Site], AbstractAsyncContextManager[Any]] | None = None,
        shape_error: Callable[[int, str], Any] | None = None,
    ) -> None:
        self.run = run
        self.endpoints: list[Endpoint] = []
        self._shape_error = shape_error

    def endpoint(
        self, method: str, path: str, role: Role | None, *, summary: str = "", **more: Any
    ) -> Callable[[_Answer], _Answer]:
        """A decorator: the function answers this method of this path.

        Args:
            more: further fields of `Endpoint`.
        """

        def add_endpoint(answer: _Answer) -> _Answer:
            sentence = summary or " ".join((answer.__doc__ or "").split("\n\n")[0].split())
            self.endpoints.append(
                Endpoint(
                    method=method,
                    path=path,
                    role=role,
                    answer=answer,
                    summary=sentence,
                    shape_error=self._shape_error,
                    **more,
                )
            )
            return answer

        return add_endpoint

    def page(self, path: str) -> Callable[[_Answer], _Answer]:
        """A decorator: the function shows a page to people who may read."""
        return self.endpoint("GET", path, "read", is_page=True, in_openapi=False)


def make_route(endpoint: Endpoint) -> Route:
    """The route of an endpoint, behind the check of its role; a request with a key is carried out once."""
    carry_out = answer_once(endpoint.answer) if endpoint.answers_once else endpoint.answer

    async def answer_request(request: Request) -> Any:
        request.state.route = endpoint.path
        request.state.access = access = find_access(request)
        if endpoint.role is not None:
            if access is None and endpoint.is_page:
                target = quote(describe_target(request))
                return RedirectResponse(f"{SIGN_IN_PATH}?next={target}", status_code=303)
            require_role(access, endpoint.role)
        if not endpoint.takes_key:
            refuse_key(request)
        return await carry_out(request)

    async def answer_in_shape(request: Request) -> Any:
        try:
            return await answer_request(request)
        except (Refusal, ToolchartError) as error:
            return make_error_answer(error, get_request_id(request), endpoint.shape_error)

    answer = answer_request if endpoint.shape_error is None else answer_in_shape
    return Route(endpoint.path, answer, methods=[endpoint.method])


def find_access(request: Request) -> Access | None:
    """Who sends a request: the owner of the bearer token, or of the session; None for nobody known.

    Raises:
        Refusal: 401; the token is unknown.
    """
    site = get_site(request)
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        access = site.tokens.find(value.strip())
        if access is None:
            raise Refusal(
                401,
                "unknown token: `toolchart serve` prints its tokens when it starts (--token NAME:ROLES makes "
                "one); they are made up at each start, unless TOOLCHART_TOKEN_NAME holds the value",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return access
    return site.sessions.find(request)


def require_role(access: Access | None, role: Role) -> Access:
    """The access, if it has the role.

    Raises:
        Refusal: 401 without a token, 403 without the role.
    """
    if access is None:
        raise Refusal(
            401,
            f"a token is needed: send it as `Authorization: Bearer ...`, or sign in at {SIGN_IN_PATH}",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if not access.may(role):
        raise Refusal(403, f"the token {access.name!r} lacks the role {role!r}")
    return access
