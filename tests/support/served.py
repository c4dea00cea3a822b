"""Sites for tests: an engine with a scripted model behind the real application, in process or on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import httpx
from agents import make_engine
from asgi_server import serve_application

from toolchart.app.server.access.tokens import ROLES, Access, NewToken
from toolchart.app.server.application import build_application
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.engine import Engine

PEOPLE: dict[str, tuple[str, ...]] = {
    "owner": ROLES,
    "viewer": ("read",),
    "talker": ("read", "chat"),
    "decider": ("read", "approve"),
}
"""The tokens of a site in tests, and their roles."""


def make_value(name: str) -> str:
    """The token of somebody in tests."""
    return f"token-of-{name}-for-tests-only"


def make_site(
    engine: Engine | None = None, *, limits: Limits | None = None, settings: SiteSettings | None = None
) -> Site:
    """A site with the tokens of `PEOPLE`."""
    tokens = [
        NewToken(
            access=Access(name=name, roles=frozenset(roles)),  # type: ignore[arg-type]
            value=make_value(name),
            is_generated=False,
        )
        for name, roles in PEOPLE.items()
    ]
    return Site(engine or make_engine(["hello"]), tokens, limits=limits, settings=settings)


def bearer(name: str = "owner") -> dict[str, str]:
    """The header that shows somebody's token."""
    return {"Authorization": f"Bearer {make_value(name)}"}


@asynccontextmanager
async def open_client(
    site: Site, name: str | None = "owner", **options: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application in this process, with somebody's token; the engine is closed at the end.

    Such a client gets an answer when it is complete, so streams need `serve`.
    """
    application = build_application(site)
    headers = bearer(name) if name else {}
    transport = httpx.ASGITransport(app=application)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8765", headers=headers, **options
        ) as client,
    ):
        yield client


def serve(site: Site) -> AbstractContextManager[str]:
    """Serve a site on loopback, in a thread; its address."""
    return serve_application(build_application(site))
