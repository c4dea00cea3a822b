"""Sites for tests: an engine with a scripted model behind the real application, in process or on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from agents import make_engine, make_spec
from asgi_server import serve_application

from toolchart.app.server.access.tokens import ROLES, Access, NewToken
from toolchart.app.server.application import build_application
from toolchart.app.server.site import Limits, Site, SiteSettings
from toolchart.engine import Engine
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.durable.performing import LocalHost
from toolchart.providers.scripted.provider import ScriptedProvider

PEOPLE: dict[str, tuple[str, ...]] = {
    "owner": ROLES,
    "viewer": ("read", "all"),
    "talker": ("read", "chat", "all"),
    "decider": ("read", "approve", "all"),
    "tester": ("read", "debug", "all"),
    "anna": ("read", "chat", "approve", "debug", "delete"),
    "ben": ("read", "chat", "approve", "debug", "delete"),
}
"""The tokens of a site in tests, and their roles. Those without `all` see their own conversations alone."""


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


class SiteMaker:
    """Makes sites that run turns themselves, or hand them to a worker on the same log.

    Args:
        folder: for the log that server and worker share; None where the server runs the turns.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.has_workers = folder is not None
        self._workers: list[Engine] = []

    def make(
        self,
        replies: Sequence[Any] = ("hello",),
        *,
        provider: Any = None,
        limits: Limits | None = None,
        **changes: Any,
    ) -> Site:
        """A site whose model is `provider`, or gives these replies; `changes` are of the spec."""
        spec, providers = make_spec(**changes), {"model": provider or ScriptedProvider(replies)}
        if self._folder is None:
            return make_site(Engine(spec, log="memory", providers=providers), limits=limits)
        log = str(self._folder / "log.db")
        worker = Engine(spec, log=log, providers=providers, longest_wait_s=0.05)
        self._workers.append(worker)
        return make_site(FleetEngine(spec, LocalHost(worker), log=log), limits=limits)

    def close(self) -> None:
        """Close the workers."""
        for worker in self._workers:
            worker.close()


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
