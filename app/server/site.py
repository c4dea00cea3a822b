"""A site: everything that one `toolchart serve` process serves, and the limits that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from starlette.requests import Request

from toolchart.app.server.access.rates import RequestRates, Slots
from toolchart.app.server.access.sessions import Sessions
from toolchart.app.server.access.tokens import Access, NewToken, TokenTable
from toolchart.app.server.conversations.feeds import Feeds
from toolchart.app.server.conversations.live_turns import LiveTurns
from toolchart.app.server.protocols.client_tools import ClientTools
from toolchart.engine.log.sealing.keys import SealVerifier
from toolchart.engine.runtime.engine import Engine


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one server takes on."""

    body_bytes: int = 10 * 1024 * 1024
    """Size of a request's body."""
    body_s: float = 30.0
    """Seconds within which the whole body must have arrived."""
    json_depth: int = 64
    """How deep lists and objects in a body may nest."""
    requests_per_s: float = 50.0
    """Requests a second of one token, or of one address without a token."""
    burst: int = 200
    """Requests of one client at once."""
    turns: int = 64
    """Turns that run at the same time."""
    readers: int = 256
    """Event streams that are open at the same time."""
    reader_queue: int = 1000
    """Events that wait for one slow reader; beyond it the reader is closed and may come back."""
    checks: int = 4
    """Charts of the browser that are checked at the same time."""
    check_s: float = 10.0
    """Seconds within which a chart of the browser must be checked."""
    heartbeat_s: float = 15.0
    """Seconds between two signs of life on an idle event stream."""


class SiteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator has allowed on the command line."""

    source: str = ""
    """The spec, as the operator named it."""
    port: int = 8765
    host_names: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """The names under which the server may be addressed, without ports."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may use the server: `https://chat.example`."""
    is_tls: bool = False
    results: str = ".toolchart/models.json"
    """The file with the scores of models."""
    seals: str = ""
    """The seal journal that pages check conversations against; empty for none."""
    seal_verifier: SealVerifier | None = None
    """Knows the keys that may have signed the seals."""
    allow_inline: bool = False
    """Whether the testing API takes configurations of mock and builtin tools from requests."""
    edit_folder: str | None = None
    """The folder in which tokens with the role edit save charts; None where nothing is saved."""


class Site:
    """One engine with its tokens and limits; the application of `build_application` serves it."""

    def __init__(
        self,
        engine: Engine,
        tokens: Sequence[NewToken],
        *,
        settings: SiteSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.engine = engine
        self.client_tools = ClientTools(engine)
        self.settings = settings or SiteSettings()
        self.limits = limits or Limits()
        self.tokens = TokenTable(tokens)
        self.sessions = Sessions(f"toolchart-{self.settings.port}", is_secure=self.settings.is_tls)
        self.rates = RequestRates(self.limits.requests_per_s, self.limits.burst)
        self.turns = Slots("turns", self.limits.turns)
        self.readers = Slots("event streams", self.limits.readers)
        self.feeds = Feeds(engine.store, self.limits.reader_queue)
        self.live_turns = LiveTurns(engine, self.feeds, self.turns, self.client_tools.find_engine)
        engine.watch_records(self._note_records)
        self.client_tools.watch_records(self._note_records)
        self.running: dict[str, Any] = {}
        """What groups of routes keep while the server runs, by their names."""
        self.closing = asyncio.Event()
        """Set when the server begins to stop; open streams end then."""

    def _note_records(self, conversation: str) -> None:
        self.feeds.note_records(conversation)
        self.live_turns.note_records(conversation)

    async def stop(self, grace_s: float) -> None:
        """End open streams, and begin no more turns; what runs may end within the grace time."""
        self.closing.set()
        await asyncio.gather(self.engine.astop(grace_s), self.client_tools.stop(grace_s))


def get_site(request: Request) -> Site:
    """The site that serves a request."""
    return cast("Site", request.app.state.site)


def get_access(request: Request) -> Access:
    """Who sends a request; only for endpoints with a role."""
    return cast("Access", request.state.access)


def describe_target(request: Request) -> str:
    """Path and query of a request: where a person goes on after signing in."""
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def get_request_id(request: Request) -> str:
    """The id of a request, which stands in errors and in the server's log."""
    return cast("str", request.state.request_id)
