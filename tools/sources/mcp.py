"""Connects to MCP servers and offers their tools under a prefix, beside the tools of the spec.

The MCP library ties a session to the task that opened it. So all sessions of an agent live on one event
loop in a thread of their own, and calls reach them from any other loop or thread. All servers start and end
at the same time, each within its own time. A tool without annotations asks before each call; `tools.pins`
makes a tool ask whose definition has changed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.specs.secrets import strike_secrets
from toolchart.states.content import ContentPart, Media, TextPart, decode_media, describe_part
from toolchart.states.errors import SpecError, format_install, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.states.reading_limits import READING, name_limit
from toolchart.states.starts import Start
from toolchart.tools.definition import Risk, Tool, ToolFailure, Trust
from toolchart.tools.execution.context import NO_CONVERSATION, CallContext
from toolchart.tools.formats import make_portable_name
from toolchart.tools.schemas.checks import check_schema
from toolchart.tools.sources.foreign_schemas import sanitize_schema
from toolchart.tools.sources.mcp_messages import ENCODING, guard_answer, refuse_messages_with
from toolchart.tools.sources.registry_entries import LoadingContext
from toolchart.tools.whole_definition import digest_text
from toolchart.workers.error_text import MAX_CAUSES, describe_error, list_first_causes

Value = TypeVar("Value")

CLOSE_TIMEOUT_S = 10.0
"""How long a session may take to end. The library kills a process that does not end within some 4 s."""
CANCEL_TIMEOUT_S = 5.0
"""How long it may take to end when it is cancelled after that."""
MAX_LAST_LINES = 8
MAX_LAST_BYTES = 2_000
"""What an error quotes at most of a server's standard error."""
_HINTS = {
    "readOnlyHint": "read_only_hint",
    "destructiveHint": "destructive_hint",
    "idempotentHint": "idempotent_hint",
    "openWorldHint": "open_world_hint",
}
"""What a server may say about a tool, by its names in the protocol and in the library."""
IDEMPOTENCY_META = "toolchart/idempotency-key"
"""Key of `_meta` under which a server gets the idempotency key of a call."""


class McpSettings(BaseModel):
    """One entry of `tools.mcp`."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    command: str | None = None
    """Program of a server that speaks over standard input and output."""
    args: list[str] = Field(default_factory=list)
    """Its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment beyond the bare one, with `${VARIABLE}`."""
    cwd: str | None = None
    """Its folder, relative to the spec's."""
    url: str | None = None
    """Address of a server that speaks streamable HTTP."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of every request, with `${VARIABLE}`."""
    prefix: str | None = None
    """Put before every tool's name; without it the server's name and two underscores."""
    timeout_ms: int | None = Field(default=None, gt=0)
    """For one call."""
    start_timeout_ms: int = Field(default=30_000, gt=0)
    """For starting or reaching it and for its list of tools; a server that takes longer is left out."""
    handshake: Literal["auto", "initialize"] = "auto"
    """How a session begins. `auto` asks first for the versions that the server speaks (`server/discover`);
    `initialize` leaves that out, for an old server that answers no question that it does not know."""
    risk: Risk | None = None
    """Of all its tools; without it `high`, or `medium` where the server says that a tool is harmless."""
    trust: Trust = "untrusted"
    """Of what its tools return, and of what the server says about them; only `check` reads it."""


def load_mcp_section(
    section: dict[str, dict[str, Any]], context: LoadingContext
) -> tuple[list[Tool], list[str]]:
    """Make the tools of all servers of `tools.mcp`; see `connect_servers`."""
    return connect_servers(section, context, context.connections, context.default_timeout_s)


def list_mcp_starts(section: dict[str, dict[str, Any]], base_folder: Path) -> Iterator[Start]:
    """The command line of each server with its environment and folder, or its address. Nothing is started.

    The environment stands before the command, since some of its variables choose what runs (`LD_PRELOAD`).

    Raises:
        SpecError: settings are not allowed.
    """
    for name, data in section.items():
        settings = _parse_settings(data, name)
        if settings.url is not None:
            yield Start(kind="address", subject=settings.url, purpose=f"MCP server {name}: is asked at once")
            continue
        environment = [f"{key}={value}" for key, value in settings.env.items()]
        words = (*environment, str(settings.command), *settings.args)
        place = f", in the folder {base_folder / settings.cwd}" if settings.cwd else ""
        purpose = f"MCP server {name}: is started at once{place}"
        yield Start(kind="command", subject=" ".join(words), words=words, purpose=purpose)


def connect_servers(
    servers: Mapping[str, Mapping[str, Any]], context: LoadingContext, closing: ExitStack, timeout_s: float
) -> tuple[list[Tool], list[str]]:
    """Start or reach all servers, at the same time, and return their tools, in the order of the servers.

    A server that cannot be reached within its `start_timeout_ms` is left out with a warning.

    Args:
        servers: the settings of each server, by name.
        closing: receives callbacks that end the sessions.
        timeout_s: seconds for one call, unless the server has its own `timeout_ms`.

    Raises:
        SpecError: settings are not allowed, or the `mcp` extra is not installed.
    """
    require_library()
    settings = {name: _parse_settings(data, name) for name, data in servers.items()}
    session_loop = _SessionLoop()
    started = [_Server(name, settings[name], context, session_loop) for name in servers]
    closing.callback(_close_servers, started, session_loop)
    listings = [session_loop.submit(server.list_server_tools()) for server in started]
    tools: list[Tool] = []
    warnings: list[str] = []
    for server, listing in zip(started, listings, strict=True):
        try:
            server_tools = listing.result()
        except Exception as error:  # a server that fails in any way must not stop the other tools
            warnings.append(f"MCP server {server.name!r} left out: {server.describe_error(error)}")
            continue
        made_tools, notes = _make_tools(server, server_tools, timeout_s)
        tools += made_tools
        warnings += server.warnings + notes
    return tools, warnings


def require_library() -> None:
    """Check that the MCP library is installed.

    Raises:
        SpecError: it is not.
    """
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise SpecError(
            "MCP servers need the `mcp` library", path="tools.mcp", hint=format_install("mcp")
        ) from None


def _parse_settings(data: Mapping[str, Any], name: str) -> McpSettings:
    spec_path = f"tools.mcp.{name}"
    try:
        settings = McpSettings.model_validate({key: value for key, value in data.items() if key != "comment"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        hint = suggest_name(str(first["loc"][-1]), McpSettings.model_fields)
        key_path = ".".join(map(str, first["loc"]))
        raise SpecError(first["msg"], path=f"{spec_path}.{key_path}", hint=hint) from None
    if (settings.command is None) == (settings.url is None):
        raise SpecError("a server has either a command or a url", path=spec_path)
    return settings


def _describe_error(error: BaseException) -> str:
    return "; ".join(_describe_cause(cause) for cause in list_first_causes(error)[:MAX_CAUSES])


def _describe_cause(error: BaseException) -> str:
    if isinstance(error, _NoAnswer):
        return str(error)
    if isinstance(getattr(error, "message", None), str):
        return str(error.message)  # type: ignore[attr-defined]
    return describe_error(error)


class _NoAnswer(Exception):
    """A server has not started, or not given its tools, within its time."""


class _LastWords:
    """What a server's process writes to standard error: the last of it, which says why the process has ended.

    The pipe is read on the event loop, so that a server that writes much never waits for a reader. What the
    process wrote before it ended is in the pipe then, so one more read has all of it.
    """

    def __init__(self, stack: ExitStack | AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.stream = open(writer, "w", encoding="utf-8")  # noqa: SIM115  closed by the stack
        self._kept = b""
        self._lock = threading.Lock()
        loop.add_reader(self._reader, self._read)
        stack.callback(self._close, loop)

    def read_lines(self) -> list[str]:
        """The last lines, without those that are empty; may be called from any thread."""
        self._read()
        lines = self._kept.decode("utf-8", "replace").splitlines()
        return [line.strip() for line in lines if line.strip()][-MAX_LAST_LINES:]

    def _read(self) -> None:
        with self._lock:
            while self._reader >= 0:
                try:
                    piece = os.read(self._reader, 1 << 16)
                except BlockingIOError:
                    return
                if not piece:
                    return
                self._kept = (self._kept + piece)[-MAX_LAST_BYTES:]

    def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        self._read()
        self.stream.close()
        with self._lock:
            loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1


class _SessionLoop:
    """An event loop in a thread of its own, on which all sessions live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="toolchart mcp", daemon=True)
        self._thread.start()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Run a coroutine on this loop from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Stop the loop and wait at most `CLOSE_TIMEOUT_S` for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)


def _close_servers(servers: Sequence[_Server], session_loop: _SessionLoop) -> None:
    """End all sessions at the same time, then the loop; a server that does not end raises nothing."""
    closings = [session_loop.submit(server.close()) for server in servers]
    wait(closings, CLOSE_TIMEOUT_S + CANCEL_TIMEOUT_S)
    session_loop.close()


class _Server:
    """One server and its session; a lost session is opened again by the next call."""

    def __init__(
        self, name: str, settings: McpSettings, context: LoadingContext, session_loop: _SessionLoop
    ) -> None:
        self.name = name
        self.settings = settings
        self._context = context
        self._session_loop = session_loop
        self._client: Any = None
        self._session: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._stop: asyncio.Event | None = None
        self._is_cancelled = False
        self.warnings: list[str] = []
        self._last_words: _LastWords | None = None
        self._excess = ""
        """What was too large in the session that was ended for it."""

    def describe_error(self, error: BaseException) -> str:
        """What an error says; where it is no answer, also what the server wrote last to standard error."""
        if self._excess:
            return self._excess
        text = _describe_error(error)
        if self._last_words is None or _is_answer(error):
            return text
        lines = self._last_words.read_lines()
        return f"{text}; it wrote to standard error: {strike_secrets(' / '.join(lines))}" if lines else text

    async def list_server_tools(self) -> list[Any]:
        """Open the session and list the server's tools. Where that fails, the session ends.

        Raises:
            SpecError: the list has too many pages, or comes again.
            _NoAnswer: that took longer than `start_timeout_ms`.
        """
        try:
            async with self._limit_start():
                await self._ensure_session()
                return await self._read_list()
        except BaseException:
            self._cancel_session()
            raise

    async def _read_list(self) -> list[Any]:
        """The list, page by page up to `mcp_tools`."""
        tools, cursor = [], None
        seen_cursors: set[str] = set()
        for _ in range(READING.mcp_pages):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if len(tools) > READING.mcp_tools or (cursor and len(tools) == READING.mcp_tools):
                problem = f"has more than {READING.mcp_tools} tools; the others are left out"
                self.warnings.append(f"MCP server {self.name!r} {problem} {name_limit('mcp_tools')}")
                return tools[: READING.mcp_tools]
            if not cursor:
                return tools
            if cursor in seen_cursors:
                raise SpecError("its list of tools comes again")
            seen_cursors.add(cursor)
        problem = f"its list of tools has more than {READING.mcp_pages} pages"
        raise SpecError(f"{problem} {name_limit('mcp_pages')}")

    @asynccontextmanager
    async def _limit_start(self) -> AsyncIterator[None]:
        """Give a start its time. After that the session ends, with its process, and it is `_NoAnswer`."""
        seconds = self.settings.start_timeout_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            self._cancel_session()
            raise _NoAnswer(f"no answer within {seconds:g} s (`start_timeout_ms`)") from None

    def _refuse_message(self, problem: str) -> None:
        """End the session because of a message that is too large; the call that waits for it says so."""
        self._excess = problem
        self._cancel_session()

    def _cancel_session(self) -> None:
        """Cancel the session, and never twice: the library then ends the process, and a second cancellation
        would stop it in the middle of that."""
        if self._session is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._session.cancel()

    async def _ensure_session(self) -> None:
        """Open a session where there is none; calls that come meanwhile wait for the same one."""
        if self._session is None or self._session.done():
            self._excess = ""
            self._ready = asyncio.get_running_loop().create_future()
            self._stop = asyncio.Event()
            self._session = asyncio.ensure_future(self._hold_session(self._ready, self._stop))
            self._is_cancelled = False
        assert self._ready is not None, "made with the session"
        if not self._ready.done():
            async with self._limit_start():
                await asyncio.shield(self._ready)
        await self._ready

    async def _hold_session(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        """Open the session, hold it until `stop` is set, and close it, all in one task.

        The MCP library demands that the task that opens a session also closes it.
        """
        from mcp import Client

        mode: Literal["auto", "legacy"] = "auto" if self.settings.handshake == "auto" else "legacy"
        try:
            async with AsyncExitStack() as stack:
                stack.enter_context(refuse_messages_with(self._refuse_message))
                transport = await self._open_transport(stack)
                begin = time.monotonic()
                self._client = await stack.enter_async_context(Client(transport, mode=mode))
                self._note_discovery(time.monotonic() - begin)
                ready.set_result(None)
                await stop.wait()
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if not ready.done():
                ready.set_exception(_NoAnswer("its session was closed") if is_cancelled else error)
                ready.exception()  # read here, since nobody may be waiting for it
            if is_cancelled:
                raise
        finally:
            self._client = None

    def _note_discovery(self, elapsed_s: float) -> None:
        """Note where a server let the question for its versions wait until the library gave it up."""
        from mcp.client.session import DISCOVER_TIMEOUT_SECONDS

        if elapsed_s >= DISCOVER_TIMEOUT_SECONDS and self._client.session.discover_result is None:
            self.warnings.append(
                f"MCP server {self.name!r} did not answer `server/discover` "
                f"within {DISCOVER_TIMEOUT_SECONDS:g} s; `handshake: initialize` leaves that question out"
            )

    async def _open_transport(self, stack: AsyncExitStack) -> Any:
        """The transport of the session: streamable HTTP, or a process on standard input and output."""
        settings, spec_path = self.settings, f"tools.mcp.{self.name}"
        resolve = self._context.resolve_secrets
        if settings.url is not None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            headers = {key: resolve(value, spec_path) for key, value in settings.headers.items()}
            client = httpx2.AsyncClient(
                headers={"accept-encoding": "identity", **headers},
                timeout=httpx2.Timeout(30, read=300),
                event_hooks={"response": [guard_answer]},
            )
            return streamable_http_client(
                resolve(settings.url, spec_path),
                http_client=await stack.enter_async_context(client),
                max_sse_event_size=READING.mcp_bytes,
            )
        from mcp.client.stdio import StdioServerParameters, stdio_client

        assert settings.command is not None, "checked with the settings"
        parameters = StdioServerParameters(
            command=settings.command,
            args=[resolve(argument, spec_path) for argument in settings.args],
            env={key: resolve(value, spec_path) for key, value in settings.env.items()},
            cwd=str(self._context.base_folder / settings.cwd) if settings.cwd else None,
            encoding=ENCODING,
        )
        self._last_words = _LastWords(stack)
        return stdio_client(parameters, errlog=self._last_words.stream)

    async def run_tool(self, tool: str, arguments: dict[str, Any], timeout_s: float, key: str = "") -> Any:
        """Call a tool of the server; may be awaited on any event loop.

        Args:
            key: idempotency key of the call, which goes into `_meta`; empty for none.

        Raises:
            ToolFailure: the server reports an error, or it cannot be reached.
        """
        work = self._session_loop.submit(self._call_in_session(tool, arguments, timeout_s, key))
        try:
            return await asyncio.wrap_future(work)
        except (ToolFailure, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ToolFailure(f"MCP server {self.name!r}: {self.describe_error(error)}") from None

    async def _call_in_session(self, tool: str, arguments: dict[str, Any], timeout_s: float, key: str) -> Any:
        meta: Any = {IDEMPOTENCY_META: key} if key else None
        await self._ensure_session()
        try:
            result = await self._client.call_tool(tool, arguments, read_timeout_seconds=timeout_s, meta=meta)
        except Exception as error:
            if any(map(_is_connection_lost, list_first_causes(error))):
                await self.close()  # the next call opens a new one
            raise
        value = _extract_result(result)
        if result.is_error:
            raise ToolFailure(value if isinstance(value, str) else str(value))
        return value

    async def close(self) -> None:
        """End the session; the MCP library kills a server process that does not end by itself."""
        if self._session is None or self._stop is None or self._ready is None:
            return
        self._stop.set()
        if not self._ready.done():
            self._cancel_session()
        _, late = await asyncio.wait({self._session}, timeout=CLOSE_TIMEOUT_S)
        if late:
            self._cancel_session()
            await asyncio.wait(late, timeout=CANCEL_TIMEOUT_S)


def _is_answer(error: BaseException) -> bool:
    """Whether the error comes from an answer of the server; what it wrote beside that is no reason."""
    from mcp import MCPError

    return all(
        isinstance(cause, (SpecError, MCPError)) and not _is_connection_lost(cause)
        for cause in list_first_causes(error)
    )


def _is_connection_lost(error: BaseException) -> bool:
    """Whether the error means that the connection to the server is gone."""
    import anyio
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return error.error.code == CONNECTION_CLOSED
    return isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError))


def _extract_result(result: Any) -> Any:
    """The structured content of a result; without it the texts, or a list of texts and other parts.

    Raises:
        ToolFailure: it is larger than a result may be.
    """
    if len(result.content) > READING.mcp_parts:
        problem = f"the result has {len(result.content)} parts; at most {READING.mcp_parts} are read"
        raise ToolFailure(f"{problem} {name_limit('mcp_parts')}")
    structured_content = result.structured_content
    if structured_content is not None and not result.is_error:
        is_wrapped = isinstance(structured_content, dict) and structured_content.keys() == {"result"}
        return structured_content["result"] if is_wrapped else structured_content
    parts = [_read_content(content) for content in result.content]
    if result.is_error or not any(isinstance(part, Media) for part in parts):
        return "\n".join(describe_part(part) for part in parts)
    return parts


def _read_content(content: Any) -> ContentPart:
    """A text, a picture, a sound or a file of a result; a link stays a text, since nobody fetches it."""
    if content.type == "text":
        return TextPart(text=str(content.text))
    resource = getattr(content, "resource", content)
    media_type = getattr(resource, "mime_type", None) or ""
    data = getattr(resource, "data", None) or getattr(resource, "blob", None)
    address = str(getattr(resource, "uri", ""))
    if data:
        return decode_media(data, media_type or "application/octet-stream", address.rpartition("/")[2])
    text = getattr(resource, "text", None)
    if text is not None:
        return TextPart(text=str(text))
    return TextPart(text=f"({' '.join(filter(None, (media_type or content.type, address)))})")


def _make_tools(server: _Server, server_tools: list[Any], timeout_s: float) -> tuple[list[Tool], list[str]]:
    """Make the tools of one server, under prefixed names that every provider accepts; also warnings."""
    prefix = server.settings.prefix
    prefix = f"{server.name}__" if prefix is None else prefix
    seconds = (server.settings.timeout_ms or timeout_s * 1000) / 1000
    tools: list[Tool] = []
    warnings: list[str] = []
    for server_tool in server_tools:
        full_name = prefix + server_tool.name
        name = make_portable_name(full_name, [tool.name for tool in tools])
        try:
            schema, changes = sanitize_schema({"type": "object", **(server_tool.input_schema or {})})
            check_schema(schema, full_name)
        except SpecError as error:
            warnings.append(f"MCP tool {full_name!r} left out: {error.message}")
            continue
        tool = Tool(
            definition=ToolDefinition(
                name=name,
                description=(server_tool.description or server_tool.title or server_tool.name)[:2000],
                parameters=schema,
            ),
            run=_make_runner(server, server_tool.name, seconds),
            needs_context=True,
            execution_mode="async",
            kind="mcp",
            timeout_s=seconds,
            risk=server.settings.risk or _rate_risk(server_tool.annotations, server.settings.trust),
            rewrites=changes,
            action=_describe_action(server, server_tool),
        )
        tools.append(replace(tool, alias=full_name) if full_name != name else tool)
    return tools, warnings


def _describe_action(server: _Server, server_tool: Any) -> dict[str, Any]:
    """What a call does, as `Tool.action` holds it, with the hints that the server gives about the tool.

    Variables and headers are digests of what the spec says: an operator may have written a key there.
    """
    settings = server.settings
    hints = {name: getattr(server_tool.annotations, field, None) for name, field in _HINTS.items()}
    return {
        "server": server.name,
        "tool": server_tool.name,
        "command": None if settings.command is None else [settings.command, *settings.args],
        **{f"variable {name!r}": digest_text(value) for name, value in settings.env.items()},
        "folder": settings.cwd,
        "url": settings.url,
        **{f"header {name!r}": digest_text(value) for name, value in settings.headers.items()},
        **{f"hint {name!r}": value for name, value in hints.items()},
        "trust": settings.trust,
    }


def _make_runner(server: _Server, tool: str, timeout_s: float) -> Any:
    async def call_server(arguments: Mapping[str, Any], context: CallContext = NO_CONVERSATION) -> Any:
        """Send one call to the server, with its idempotency key."""
        key = context.idempotency_key if context.call_id else ""
        return await server.run_tool(tool, dict(arguments), timeout_s, key)

    return call_server


def _rate_risk(annotations: Any, trust: Trust) -> Risk:
    """The risk of a tool of which the spec says none: `high`, so that each call asks.

    A server's hints about its tools count only where the spec says `trust: trusted`: then a tool that only
    reads, or destroys nothing, has the risk `medium`. Otherwise a server would decide itself whether it asks.

    Source: mcp-types 2.3.0, `ToolAnnotations`: hints of servers that are not trusted decide nothing.
    """
    if trust != "trusted" or annotations is None or annotations.destructive_hint is True:
        return "high"
    is_mild = annotations.read_only_hint is True or annotations.destructive_hint is False
    return "medium" if is_mild else "high"
