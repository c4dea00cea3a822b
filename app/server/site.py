"""A site: everything that one `toolchart serve` process serves, and the limits that it holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import msgspec
from starlette.requests import Request

from toolchart.app.server.access.rates import RequestRates, Slots
from toolchart.app.server.access.sessions import Sessions
from toolchart.app.server.access.tokens import Access, NewToken, TokenTable
from toolchart.app.server.answers import Refusal, make_not_found
from toolchart.app.server.conversations.feeds import Feeds
from toolchart.app.server.conversations.live_turns import LiveTurns
from toolchart.app.server.figures import ServerFigures
from toolchart.app.server.protocols.client_tools import ClientTools
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.runtime.parts import StreamOptions
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.ports import Store

if TYPE_CHECKING:
    from toolchart.engine.durable.fleet.metrics import QueueFigures
    from toolchart.engine.durable.stretches import Workers


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one server takes on."""

    # -- requests
    headers_s: float = 20.0
    """Seconds within which the headers of a request must have arrived; beyond it the connection is closed."""
    body_bytes: int = 10 * 1024 * 1024
    """Size of a request's body; a larger one is refused (413)."""
    body_s: float = 30.0
    """Seconds within which the whole body must have arrived; beyond it 408."""
    json_values: int = 1_000_000
    """JSON values in a body, an object counted as three; one with more is refused (413)."""
    json_depth: int = 64
    """How deep lists and objects in a body may nest; a deeper one is refused (400)."""
    requests_per_s: float = 50.0
    """Requests a second of one token, or of one address without a token; beyond it 429 with `Retry-After`."""
    burst: int = 200
    """Requests of one client at once; beyond it 429 with `Retry-After`."""
    clients: int = 10_000
    """Clients whose rates are remembered; the one that was seen longest ago is forgotten first."""
    connections: int = 2000
    """Connections at the same time; a further one is answered with 503."""
    reading_s: float = 30.0
    """Seconds that an answer or a stream waits to be read; then the connection is closed."""
    kept_answers: int = 1000
    """Answers to requests with an `Idempotency-Key` that are kept; the oldest is forgotten first."""
    kept_answer_bytes: int = 64 * 1024 * 1024
    """Size of all these answers."""
    key_characters: int = 255
    """Length of such a key; a longer one is refused (400)."""

    # -- turns and streams
    turns: int = 64
    """Turns that run at the same time; a further one gets 429 with `Retry-After`, and nothing was begun."""
    readers: int = 256
    """Event streams that are open at the same time; beyond it 429 with `Retry-After`. A streamed answer is
    none: its turn counts."""
    reader_queue: int = 1000
    """Events that wait for one slow reader; beyond it the reader is closed and may come back."""
    heartbeat_s: float = 15.0
    """Seconds between two signs of life on an idle event stream."""
    poll_s: float = 1.0
    """Seconds within which a stream shows records that another process has written."""
    recovery_s: float = 5.0
    """Seconds between two looks for turns that nobody goes on with: of dead workers, or whose timers ran
    out."""
    cancel_s: float = 5.0
    """Seconds that the turn of a response has to stop; then the answer to its cancellation says that it is
    still in progress."""
    task_after_s: float = 5.0
    """Seconds after which the turn of an MCP client that knows tasks becomes one."""
    tools: int = 128
    """Tools that one request may declare; more are refused (400)."""
    tool_sets: int = 64
    """Different sets of such tools that are kept ready."""
    schema_nodes: int = 2000
    """Nodes of the schema of an answer, references expanded; a larger one is refused (400)."""

    # -- reading
    page: int = 200
    """Conversations in one page of a list."""
    record_page: int = 10_000
    """Records in one answer."""
    records_bytes: int = 8 * 1024 * 1024
    """Size of the records that an MCP client reads at once; a longer log ends in a line that says so."""
    approvals_in: int = 2000
    """The newest conversations, among which calls and questions that wait are looked for; `/approvals` says
    where there are more."""
    hosts_in: int = 50
    """The newest conversations, among which `/models` looks for limits that hosts have named."""
    compared_rows: int = 500
    """Rows that the comparison of two conversations shows; the page says how many there are."""
    models: int = 200
    """Models with figures of their own in `/metrics`; further ones count as `other`."""
    log_s: float = 5.0
    """Seconds within which the log must answer, or `/readyz` says 503."""

    # -- people
    sessions: int = 1000
    """Browsers that are signed in; beyond it the oldest session ends."""
    session_s: float = 12 * 3600.0
    """Seconds until a browser has to sign in again."""
    code_s: float = 3600.0
    """Seconds for which a link to sign in works, once."""
    form_bytes: int = 4096
    """Size of the form to sign in; a larger one is refused (413)."""

    # -- charts and tests
    checks: int = 4
    """Charts of the browser that are checked at the same time; a further one gets 429 with `Retry-After`."""
    check_s: float = 10.0
    """Seconds within which a chart of the browser must be checked; a check without an answer says so."""
    chart_files: int = 500
    """Files of the folder of `--edit` that are looked at, by name; the list says where there are more."""
    test_tokens: int = 1000
    """Tokens of a reply in a test of a model."""
    test_messages: int = 20
    """Messages of the user in a test of topics, each a call of the model; more are refused (400)."""
    top_k: int = 100
    """Passages that a test of a search may ask for; more are refused (400)."""

    # -- stopping
    errors_s: float = 2.0
    """Seconds that the errors of stopped turns have to reach their clients."""
    closing_s: int = 5
    """Seconds after that in which what was sent must have been read. With `--grace` and `errors_s` a stop
    takes less than the 30 s after which orchestrators kill."""


def read_limits(words: Sequence[str]) -> Limits:
    """The limits with changes, each written `NAME=VALUE`.

    Raises:
        SpecError: there is no such limit, or its value is no positive number of its kind.
    """
    kinds = {field.name: field.type for field in msgspec.structs.fields(Limits)}
    changes: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in kinds:
            raise SpecError(f"--limit {word}: there is no limit {name!r}", hint=suggest_name(name, kinds))
        try:
            value = kinds[name](text)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            kind = "whole number" if kinds[name] is int else "number"
            raise SpecError(f"--limit {word}: the value is a {kind} above 0", hint=f"as in {name}=100")
        changes[name] = value
    return Limits(**changes)


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
    allow_inline: bool = False
    """Whether the testing API takes configurations of mock and builtin tools from requests."""
    edit_folder: str | None = None
    """The folder in which tokens with the role edit save charts; None where nothing is saved."""


MESSAGE_KEY: ContextVar[str] = ContextVar("message_key", default="")
"""The key of the message that the request of this context sends; empty where the request has none."""

NAMED: ContextVar[set[str] | None] = ContextVar("named_conversations", default=None)
"""The conversations that the guard was asked about for the request which is answered now; None where its
answer is not kept. A kept answer goes with them."""


def _note_named(conversation: str) -> None:
    if (names := NAMED.get()) is not None:
        names.add(conversation)


class Site:
    """One engine with its tokens and limits; the application of `build_application` serves it.

    Args:
        read_queue: reads what the queue of the workers holds, where workers run the turns; blocking.
        find_workers: whether workers live that run the turns; blocking.
    """

    def __init__(
        self,
        engine: Engine,
        tokens: Sequence[NewToken],
        *,
        settings: SiteSettings | None = None,
        limits: Limits | None = None,
        read_queue: Callable[[], Sequence[QueueFigures]] | None = None,
        find_workers: Callable[[], Workers] | None = None,
    ) -> None:
        self.engine = engine
        self.read_queue = read_queue
        self.find_workers = find_workers
        self.settings = settings or SiteSettings()
        self.limits = limits or Limits()
        self.client_tools = ClientTools(engine, self.limits.tools, self.limits.tool_sets)
        self.tokens = TokenTable(tokens)
        self.sessions = Sessions(
            f"toolchart-{self.settings.port}",
            most=self.limits.sessions,
            session_s=self.limits.session_s,
            code_s=self.limits.code_s,
            is_secure=self.settings.is_tls,
        )
        self.rates = RequestRates(self.limits.requests_per_s, self.limits.burst, self.limits.clients)
        self.turns = Slots("turns", self.limits.turns)
        self.readers = Slots("event streams", self.limits.readers)
        self.feeds = Feeds(engine.store, self.limits.reader_queue, self.limits.poll_s)
        self.live_turns = LiveTurns(engine, self.feeds, self.turns, self.client_tools.find_engine)
        self.figures = ServerFigures(self.limits.models)
        engine.watch_turns(self.figures)
        engine.watch_records(self._note_records)
        self.client_tools.watch_records(self._note_records)
        self.running: dict[str, Any] = {}
        """What groups of routes keep while the server runs, by their names."""
        self.closing = asyncio.Event()
        """Set when the turns have ended or were stopped; streams that only watch end then."""
        self._answers = 0
        """Answers that are being sent, of those who must be waited for until the last byte."""
        self._hurry = asyncio.Event()
        """Set when whoever stops the server does not want to wait."""

    def _note_records(self, conversation: str) -> None:
        self.feeds.note_records(conversation)
        self.live_turns.note_records(conversation)

    # -- whose conversation it is ----------------------------------------------------------------
    #
    # The one guard. What a request names or lists is read from the log of its access, in which conversations
    # of others do not exist: so whoever names one hears 404, as for any id that nobody has. What begins or
    # continues a conversation asks `claim`.

    def get_log(self, access: Access) -> Store:
        """The log as an access sees it: whole with the role `all`, else its own conversations."""
        return self.engine.get_log(None if access.may("all") else access.name)

    def has_conversation(self, access: Access, conversation: str) -> bool:
        """Whether a conversation exists for an access."""
        _note_named(conversation)
        return self.get_log(access).read_last_line(conversation) is not None

    def require_conversation(self, access: Access, conversation: str) -> None:
        """Refuse what concerns a conversation that does not exist for an access.

        Raises:
            Refusal: 404.
        """
        if not self.has_conversation(access, conversation):
            raise make_not_found(conversation)

    def claim(self, access: Access, conversation: str, owner: str | None = None) -> StreamOptions:
        """The options of a message by an access: conversation, author, its key where the request has one, and
        the owner of a conversation that it begins.

        Args:
            owner: whose it is to be, as the request says; None is the access itself. Only with the role `all`
                it may be somebody else.

        Raises:
            Refusal: 403; it may not be that owner's. 404; it exists, and not for this access.
        """
        sees_all = access.may("all")
        if owner is not None and owner != access.name and not sees_all:
            raise Refusal(
                403,
                f"owner: a conversation that the token {access.name!r} begins is its own; it lacks the role "
                "'all'",
                details={"field": "owner"},
            )
        _note_named(conversation)
        exists = self.engine.store.read_last_line(conversation) is not None
        if exists:
            self.require_conversation(access, conversation)
        options = StreamOptions(conversation=conversation, author=access.name)
        if key := MESSAGE_KEY.get():
            options["key"] = key
        # The engine compares it once more under the lease. Of one that exists it is the owner's own already,
        # and an operator goes on with anybody's.
        if owner is not None or not (exists and sees_all):
            options["owner"] = owner or access.name
        return options

    @property
    def is_stopping(self) -> bool:
        """Whether no more turns begin."""
        return self.turns.is_closed

    async def stop(self, grace_s: float) -> None:
        """Begin no more turns; those that run may come to their end within the grace time.

        What is left then is stopped, stays open in the log, and its clients read the error of their protocol.
        Streams that only watch end last. A second call waits for nothing.
        """
        is_first = not self.is_stopping
        self.turns.close()
        if is_first:
            engines = (self.engine, *self.client_tools.list_engines())
            for engine in engines:
                engine.recovery.stop()
            await self._wait_for_turns(grace_s)
        await asyncio.gather(self.engine.astop(0.0), self.client_tools.stop(0.0))
        if is_first:
            self._hurry.clear()
            await self._wait_for_turns(self.limits.errors_s)
        self.closing.set()

    @contextmanager
    def hold_answer(self) -> Iterator[None]:
        """Within the block an answer is sent for which a stopping server waits, as for a turn."""
        self._answers += 1
        try:
            yield
        finally:
            self._answers -= 1

    def hurry(self) -> None:
        """Cut the grace time short."""
        self._hurry.set()

    async def _wait_for_turns(self, seconds: float) -> None:
        """Wait until no turn runs and no answer is sent, at most so long, or until `hurry`."""
        until = time.monotonic() + seconds
        # Turns end in many ways, and stopping is rare: looking again is simplest.
        while self._has_turns() and time.monotonic() < until:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), 0.02)
                return

    def _has_turns(self) -> bool:
        engines = (self.engine, *self.client_tools.list_engines())
        return self._answers > 0 or not self.turns.is_idle or any(engine.is_busy for engine in engines)


def get_site(request: Request) -> Site:
    """The site that serves a request."""
    return cast("Site", request.app.state.site)


def get_access(request: Request) -> Access:
    """Who sends a request; only for endpoints with a role."""
    return cast("Access", request.state.access)


def get_log(request: Request) -> Store:
    """The log as whoever sends a request sees it; see `Site.get_log`."""
    return get_site(request).get_log(get_access(request))


def describe_target(request: Request) -> str:
    """Path and query of a request: where a person goes on after signing in."""
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def get_request_id(request: Request) -> str:
    """The id of a request, which stands in errors and in the server's log."""
    return cast("str", request.state.request_id)
