"""MCP servers: their tools beside the spec's own, under a prefix.

A server's session belongs to the task that opened it, so all sessions of an agent live on one event
loop in a thread of their own; calls from any loop, or from none, reach them there. What a server says
of its tools (that one only reads, say) can make Toolchart more careful with it, never less.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import Risk, Tool, ToolFailure
from toolchart.tools.execution.tool_runs import words_of
from toolchart.tools.formats import portable_name
from toolchart.tools.sources.foreign_schemas import tamed
from toolchart.tools.sources.registry_entries import Surroundings

Value = TypeVar("Value")

START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
MOST_TOOLS = 500


class McpSettings(BaseModel):
    """One entry of `tools.mcp`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

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
    risk: Risk | None = None
    """Of all its tools; without it `medium`, or `high` where the server says destructive."""


def connect(
    servers: Mapping[str, Mapping[str, Any]],
    around: Surroundings,
    closing: ExitStack,
    timeout_s: float,
) -> tuple[list[Tool], list[str]]:
    """The tools of all servers, and a warning for each server that cannot be reached.

    Args:
        closing: is told how to end the sessions.

    Raises:
        SpecError: settings that cannot be, or the `mcp` extra is not installed.
    """
    _installed()
    home = _Home()
    closing.callback(home.close)
    tools: list[Tool] = []
    warnings: list[str] = []
    for name, data in servers.items():
        server = _Server(name, _settings(data, name), around, home)
        try:
            offered = home.submit(server.started()).result(START_TIMEOUT_S)
        except Exception as error:  # whatever a foreign program does, the other tools still work
            warnings.append(f"MCP server {name!r} left out: {_reason(error)}")
            continue
        closing.callback(server.close)
        tools += _tools(server, offered[:MOST_TOOLS], timeout_s)
    return tools, warnings


def _installed() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise SpecError(
            "MCP servers need the `mcp` library",
            path="tools.mcp",
            hint="pip install 'toolchart[mcp]'",
        ) from None


def _settings(data: Mapping[str, Any], name: str) -> McpSettings:
    place = f"tools.mcp.{name}"
    try:
        made = McpSettings.model_validate({k: v for k, v in data.items() if k != "comment"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        hint = nearest(str(first["loc"][-1]), McpSettings.model_fields)
        where = ".".join(map(str, first["loc"]))
        raise SpecError(first["msg"], path=f"{place}.{where}", hint=hint) from None
    if (made.command is None) == (made.url is None):
        raise SpecError("a server has either a command or a url", path=place)
    return made


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_TIMEOUT_S:g} s"
    if isinstance(getattr(error, "message", None), str):
        return str(error.message)  # type: ignore[attr-defined]
    return words_of(error)


class _Home:
    """An event loop in a thread, on which all sessions live."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="toolchart mcp", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def submit(self, work: Coroutine[Any, Any, Value]) -> Future[Value]:
        """Run a coroutine there; the future is a thread's, not a loop's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and wait for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)


class _Server:
    """One server and its session, which is opened again when it was lost."""

    def __init__(self, name: str, settings: McpSettings, around: Surroundings, home: _Home) -> None:
        self.name = name
        self.settings = settings
        self._around = around
        self._home = home
        self._client: Any = None
        self._session: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None

    async def started(self) -> list[Any]:
        """Open the session and list the tools."""
        await self._open()
        tools, cursor = [], None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) >= MOST_TOOLS:
                return tools

    async def _open(self) -> None:
        if self._session is not None and not self._session.done():
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._session = asyncio.ensure_future(self._live(ready, self._stop))
        await ready

    async def _live(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        """The session's whole life in one task, as its library demands."""
        from mcp import Client

        try:
            async with AsyncExitStack() as stack:
                client = Client(await self._target(stack))
                self._client = await stack.enter_async_context(client)
                ready.set_result(None)
                await stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            elif isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._client = None

    async def _target(self, stack: AsyncExitStack) -> Any:
        """What the library connects to."""
        settings, where = self.settings, f"tools.mcp.{self.name}"
        filled = self._around.resolve
        if settings.url is not None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            headers = {key: filled(value, where) for key, value in settings.headers.items()}
            client = await stack.enter_async_context(
                httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=300))
            )
            return streamable_http_client(filled(settings.url, where), http_client=client)
        from mcp.client.stdio import StdioServerParameters, stdio_client

        assert settings.command is not None, "checked with the settings"
        parameters = StdioServerParameters(
            command=settings.command,
            args=[filled(one, where) for one in settings.args],
            env={key: filled(value, where) for key, value in settings.env.items()},
            cwd=str(self._around.beside / settings.cwd) if settings.cwd else None,
        )
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: ASYNC230, SIM115
        return stdio_client(parameters, errlog=nowhere)

    async def call(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        """The tool's answer, from whatever loop this is awaited on.

        Raises:
            ToolFailure: the server says so, or it cannot be reached.
        """
        work = self._home.submit(self._called(tool, arguments, timeout_s))
        try:
            return await asyncio.wrap_future(work)
        except (ToolFailure, asyncio.CancelledError):
            raise
        except Exception as error:
            raise ToolFailure(f"MCP server {self.name!r}: {_reason(error)}") from None

    async def _called(self, tool: str, arguments: dict[str, Any], timeout_s: float) -> Any:
        await self._open()
        try:
            result = await self._client.call_tool(tool, arguments, read_timeout_seconds=timeout_s)
        except Exception as error:
            if _is_lost(error):
                await self._closed()  # the next call opens it again
            raise
        value = _value(result)
        if result.is_error:
            raise ToolFailure(value if isinstance(value, str) else str(value))
        return value

    def close(self) -> None:
        """End the session; a server that does not end by itself is left to the library's own kill."""
        self._home.submit(self._closed()).result(CLOSE_TIMEOUT_S)

    async def _closed(self) -> None:
        if self._session is not None and self._stop is not None:
            self._stop.set()
            await asyncio.wait({self._session}, timeout=CLOSE_TIMEOUT_S)


def _is_lost(error: Exception) -> bool:
    """Whether the session has no other side any more."""
    import anyio
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return error.error.code == CONNECTION_CLOSED
    return isinstance(error, (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError))


def _value(result: Any) -> Any:
    """Structured content as it is; else the texts, with a remark for what is no text."""
    structured = result.structured_content
    if structured is not None and not result.is_error:
        alone = isinstance(structured, dict) and structured.keys() == {"result"}
        return structured["result"] if alone else structured
    return "\n".join(_part(one) for one in result.content)


def _part(content: Any) -> str:
    if content.type == "text":
        return str(content.text)
    kind = getattr(content, "mime_type", None) or content.type
    data = getattr(content, "data", None)
    return f"({kind}, {len(data)} characters of base64)" if data else f"({kind})"


def _tools(server: _Server, offered: list[Any], timeout_s: float) -> list[Tool]:
    """The server's tools under portable names."""
    prefix = server.settings.prefix
    prefix = f"{server.name}__" if prefix is None else prefix
    seconds = (server.settings.timeout_ms or timeout_s * 1000) / 1000
    made: list[Tool] = []
    for one in offered:
        full = prefix + one.name
        name = portable_name(full, [tool.name for tool in made])
        schema, changes = tamed({"type": "object", **one.input_schema})
        tool = Tool(
            definition=ToolDefinition(
                name=name,
                description=(one.description or one.title or one.name)[:2000],
                parameters=schema,
            ),
            run=_runner(server, one.name, seconds),
            way="async",
            kind="mcp",
            timeout_s=seconds,
            risk=server.settings.risk or _risk(one.annotations),
            rewrites=changes,
        )
        made.append(replace(tool, alias=full) if full != name else tool)
    return made


def _runner(server: _Server, tool: str, timeout_s: float) -> Any:
    async def run(arguments: Mapping[str, Any]) -> Any:
        return await server.call(tool, dict(arguments), timeout_s)

    return run


def _risk(annotations: Any) -> Risk:
    """What the server's own word can make of it: more careful, never less."""
    destructive = annotations is not None and annotations.destructive_hint is True
    return "high" if destructive else "medium"
