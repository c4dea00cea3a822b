"""The MCP server of a site: each handler is a tool, each turn a call of it.

    tools/call -> a turn -> its answer
                         -> it waits: a request for input; the client repeats the call with the answers
                         -> it takes long: a task, for clients that know tasks

Source: `mcp.server.lowlevel` and `mcp_types` 2.3. The server keeps no sessions: a request for input names
what waits, and the log has the rest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import mcp_types as types
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolchart import __version__
from toolchart.app.server.access.tokens import Access
from toolchart.app.server.answers import Refusal, describe_for_client, find_status
from toolchart.app.server.endpoints import require_role
from toolchart.app.server.mcp_server.forms import build_input_requests
from toolchart.app.server.mcp_server.results import OUTPUT_SCHEMA, build_call_result, build_failure
from toolchart.app.server.mcp_server.running_turns import TASKS, RunningTurns, TaskParams, UpdateParams
from toolchart.app.server.protocols.served_models import ServedModel, list_models
from toolchart.app.server.protocols.turns import Pieces, start_turn
from toolchart.app.server.protocols.waiting import list_waiting_items
from toolchart.app.server.site import Site
from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.engine.runtime.clock import generate_conversation_id
from toolchart.engine.runtime.result import Turn
from toolchart.engine.runtime.streaming import StepTaken
from toolchart.specs.chat_messages import require_words
from toolchart.specs.secrets import strike_secret_bytes
from toolchart.states.diagram import draw
from toolchart.states.errors import LogUnavailable, ToolchartError
from toolchart.states.ports import Store

# -- resources ------------------------------------------------------------------------------------------

CHART = "toolchart://chart"

_CONVERSATION = re.compile(r"toolchart://conversations/([^/]+)/(records|diagram)")

MERMAID = "text/vnd.mermaid"
JSON_LINES = "application/jsonl"


def list_resources() -> types.ListResourcesResult:
    """The resources that exist without a conversation."""
    chart = types.Resource(
        uri=CHART, name="chart", description="The agent's chart, as Mermaid.", mime_type=MERMAID
    )
    return types.ListResourcesResult(resources=[chart])


def list_templates() -> types.ListResourceTemplatesResult:
    """What can be read of each conversation."""
    return types.ListResourceTemplatesResult(
        resource_templates=[
            types.ResourceTemplate(
                uri_template="toolchart://conversations/{conversation}/records",
                name="records",
                description="The records of a conversation, one JSON object a line.",
                mime_type=JSON_LINES,
            ),
            types.ResourceTemplate(
                uri_template="toolchart://conversations/{conversation}/diagram",
                name="diagram",
                description="The chart with the path of a conversation, as Mermaid.",
                mime_type=MERMAID,
            ),
        ]
    )


def list_conversation_uris(conversation: str) -> tuple[str, ...]:
    """The resources of a conversation; they change with each record."""
    return tuple(f"toolchart://conversations/{conversation}/{name}" for name in ("records", "diagram"))


def read_resource(site: Site, access: Access, uri: str) -> types.ReadResourceResult:
    """The text of a resource, as an access sees it, without known secrets.

    Raises:
        MCPError: there is none.
    """
    match, log = _CONVERSATION.fullmatch(uri), site.get_log(access)
    if uri == CHART:
        data, kind = _encode(draw(site.engine.chart, "mermaid")), MERMAID
    elif match and log.read_last_line(match[1]) is not None:
        if match[2] == "records":
            data, kind = _join_records(log, match[1], site.limits.records_bytes), JSON_LINES
        else:
            chart, overlay = draw_conversation_path(log, match[1])
            data, kind = _encode(draw(chart, "mermaid", overlay)), MERMAID
    else:
        raise MCPError(code=types.INVALID_PARAMS, message=f"there is no resource {uri!r}")
    text = strike_secret_bytes(data).decode()
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=kind, text=text)])


def _encode(diagram: str | bytes) -> bytes:
    return diagram.encode() if isinstance(diagram, str) else diagram


def _join_records(log: Store, conversation: str, most_bytes: int) -> bytes:
    lines, size = [], 0
    for line in log.read_lines(conversation):
        size += len(line) + 1
        if size > most_bytes:
            lines.append(b'{"cut": "toolchart export has all records"}')
            break
        lines.append(line.rstrip(b"\n"))
    return b"\n".join(lines) + b"\n"


# -- who hears of changes -------------------------------------------------------------------------------
#
# Source: `subscriptions/listen` of 2026-07-28 (SEP-2575), `mcp.server.subscriptions` 2.3. A client names the
# resources that it wants to hear of; what it missed while it was away it reads anew.

Listener = Callable[[ServerEvent], None]


class ChangedResources:
    """The resources of a site that change, for any number of listeners."""

    def __init__(self, site: Site) -> None:
        self._listeners: dict[object, Listener] = {}
        site.engine.watch_records(self._note_records)
        site.client_tools.watch_records(self._note_records)

    def _note_records(self, conversation: str) -> None:
        if self._listeners:
            for uri in list_conversation_uris(conversation):
                self._tell(ResourceUpdated(uri=uri))

    def _tell(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener."""
        self._tell(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener from now on, until the function that is returned is called."""
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

        return unsubscribe


class _VisibleChanges:
    """The changes that one request to listen may hear of: those of conversations that exist for its access.

    Args:
        uris: what it asks for.
    """

    def __init__(self, changes: ChangedResources, site: Site, access: Access, uris: frozenset[str]) -> None:
        self._changes = changes
        self._site = site
        self._access = access
        self._uris = uris

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener."""
        await self._changes.publish(event)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """As `ChangedResources.subscribe`."""

        def tell(event: ServerEvent) -> None:
            # Looked at with each change: what is asked for may begin later, as somebody else's.
            if isinstance(event, ResourceUpdated) and event.uri in self._uris:
                match = _CONVERSATION.fullmatch(event.uri)
                if match and self._site.get_log(self._access).read_last_line(match[1]) is not None:
                    listener(event)

        return self._changes.subscribe(tell)


class Subscriptions:
    """Serves requests to listen; each holds one place of a reader of the site, and ends with the server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._changes = ChangedResources(site)

    async def listen(
        self,
        context: ServerRequestContext[Any, Any],
        params: types.SubscriptionsListenRequestParams,
        access: Access,
    ) -> types.SubscriptionsListenResult:
        """Tell a client of changes until it goes, or the server stops.

        Raises:
            Refusal: 429; too many streams are open.
        """
        uris = frozenset(map(str, params.notifications.resource_subscriptions or ()))
        handler = ListenHandler(_VisibleChanges(self._changes, self._site, access, uris), max_subscriptions=1)
        with self._site.readers.hold():
            closing = asyncio.ensure_future(self._close_with_site(handler))
            try:
                return await handler(context, params)
            finally:
                closing.cancel()

    async def _close_with_site(self, handler: ListenHandler) -> None:
        await self._site.closing.wait()
        handler.close()


# -- the server -----------------------------------------------------------------------------------------

INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say to the agent."},
        "conversation": {
            "type": "string",
            "description": "An earlier conversation to go on with, as a result named it.",
        },
    },
    "required": ["message"],
}

_Context = ServerRequestContext[Any, Any]
_GetAccess = Callable[[_Context], Access]


def build_mcp_server(site: Site, get_access: _GetAccess) -> tuple[Server[Any], RunningTurns]:
    """The server, and the turns that it runs; stop these at the end.

    Args:
        get_access: says who sends a request.
    """
    turns = RunningTurns(site)
    calls = _Calls(site, get_access, turns)
    server = Server[Any](
        f"toolchart {list_models(site.engine.spec)[0].name}",
        version=__version__,
        on_list_tools=calls.list_tools,
        on_call_tool=calls.call_tool,  # type: ignore[arg-type]  # a task is a result of an extension
        on_list_resources=calls.list_resources,
        on_list_resource_templates=calls.list_templates,
        on_read_resource=calls.read_resource,
        on_subscriptions_listen=calls.listen,
    )
    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, calls.get_task)
    server.add_request_handler("tasks/update", UpdateParams, calls.update_task)
    server.add_request_handler("tasks/cancel", TaskParams, calls.cancel_task)
    return server, turns


def name_tool(model: ServedModel) -> str:
    """The name of the tool of a model: letters, digits, `-`, `_` and `.`."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", model.name)[:128]


class _Calls:
    """Answers the requests of one server."""

    def __init__(self, site: Site, get_access: _GetAccess, turns: RunningTurns) -> None:
        self._site = site
        self._get_access = get_access
        self._turns = turns
        self._subscriptions = Subscriptions(site)
        self._models = {name_tool(model): model for model in list_models(site.engine.spec)}

    # -- tools -----------------------------------------------------------------------------------

    async def list_tools(self, context: _Context, params: Any) -> types.ListToolsResult:
        """Each handler as a tool."""
        tools = [
            types.Tool(
                name=name,
                description=f"{model.description} It answers a message.",
                input_schema=INPUT_SCHEMA,
                output_schema=OUTPUT_SCHEMA,
            )
            for name, model in self._models.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: _Context, params: types.CallToolRequestParams) -> HandlerResult:
        """Run a turn, or go on with one."""
        access = self._require(context, "chat")
        if context.request is not None:  # over HTTP: the library that sends the answer ends with the server
            context.request.state.until_sent.enter_context(self._site.hold_answer())
        model = self._models.get(params.name)
        if model is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no tool {params.name!r}")
        try:
            return await self._run_handler(context, params, model, access)
        except LogUnavailable as error:
            raise _make_log_error(error) from None
        except (Refusal, ToolchartError) as error:
            return build_failure(describe_for_client(error))

    async def _run_handler(
        self, context: _Context, params: types.CallToolRequestParams, model: ServedModel, access: Access
    ) -> HandlerResult:
        if params.input_responses is not None:
            conversation = params.request_state or ""
            self._site.require_conversation(access, conversation)
            pieces = await self._turns.continue_turn(conversation, params.input_responses, access)
            if pieces is None:
                return build_call_result(self._site.engine.conversation(conversation).read_turn())
        else:
            message, conversation = _read_arguments(params.arguments or {})
            self._site.claim(access, conversation)
            engine = self._site.client_tools.choose_engine(conversation)
            pieces = await start_turn(
                self._site, engine, access, message, conversation=conversation, handler=model.handler
            )
        turn = _watch_turn(context, pieces)
        result = await self._turns.wait_for(conversation, turn, may_be_task=_knows_tasks(context))
        return result if isinstance(result, dict) else self._answer_call(context, result, access)

    def _answer_call(self, context: _Context, result: Turn, access: Access) -> HandlerResult:
        """The result; where the turn waits for something that the client can ask its user, that request."""
        items = list_waiting_items(result.waiting, result.conversation) if _can_ask(context) else []
        requests = build_input_requests(items, access)
        if requests:
            return types.InputRequiredResult(input_requests=requests, request_state=result.conversation)
        return build_call_result(result)

    # -- tasks -----------------------------------------------------------------------------------

    async def get_task(self, context: _Context, params: TaskParams) -> HandlerResult:
        """The state of a task."""
        access = self._require(context, "read")
        with _Errors():
            return await self._turns.describe(params.task_id, access)

    async def update_task(self, context: _Context, params: UpdateParams) -> HandlerResult:
        """Take the answers to what a task waits for."""
        access = self._require(context, "chat")
        with _Errors():
            await self._turns.update(params, access)
        return {"resultType": "complete"}

    async def cancel_task(self, context: _Context, params: TaskParams) -> HandlerResult:
        """Stop a task."""
        access = self._require(context, "chat")
        with _Errors():
            await self._turns.cancel(params.task_id, access)
        return {"resultType": "complete"}

    # -- resources -------------------------------------------------------------------------------

    async def list_resources(self, context: _Context, params: Any) -> types.ListResourcesResult:
        """The chart."""
        return list_resources()

    async def list_templates(self, context: _Context, params: Any) -> types.ListResourceTemplatesResult:
        """Records and diagram of a conversation."""
        return list_templates()

    async def read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The text of a resource."""
        access = self._require(context, "read")
        with _Errors():
            return await asyncio.to_thread(read_resource, self._site, access, str(params.uri))

    async def listen(
        self, context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell the client of resources that change."""
        access = self._require(context, "read")
        with _Errors():
            return await self._subscriptions.listen(context, params, access)

    def _require(self, context: _Context, role: Any) -> Access:
        """Who sends the request.

        Raises:
            MCPError: the role is missing.
        """
        with _Errors():
            return require_role(self._get_access(context), role)


class _Errors:
    """Turns the errors of a block into errors of the protocol."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, LogUnavailable):
            raise _make_log_error(error) from None
        if isinstance(error, Refusal | ToolchartError):
            raise MCPError(code=types.INVALID_PARAMS, message=describe_for_client(error)) from None


def _make_log_error(error: LogUnavailable) -> MCPError:
    """The error of a log that cannot be used: neither the request nor the model is at fault. Its data has the
    status that other endpoints answer with."""
    return MCPError(
        code=types.INTERNAL_ERROR, message=describe_for_client(error), data={"status": find_status(error)}
    )


def _read_arguments(arguments: dict[str, Any]) -> tuple[str, str]:
    """The message, and the conversation; a new one where none is named.

    Raises:
        Refusal: they do not have the form.
    """
    message, conversation = arguments.get("message"), arguments.get("conversation")
    if not isinstance(message, str):
        raise Refusal(400, "`message` is a text")
    require_words(message)
    if conversation is not None and not isinstance(conversation, str):
        raise Refusal(400, "`conversation` is the id that an earlier result named")
    return message, conversation or generate_conversation_id()


async def _watch_turn(context: _Context, pieces: Pieces) -> Turn:
    """Run a turn to its end; each step is reported to a client that wants to know of progress."""
    steps = 0
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Turn):
                return piece
            if isinstance(piece, StepTaken):
                steps += 1
                await context.session.report_progress(float(steps), None, piece.step.target)
    raise AssertionError("a turn yields its result last")


def _can_ask(context: _Context) -> bool:
    """Whether the client shows forms to its user, and repeats a call with the answers."""
    capabilities = context.session.client_capabilities
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_modern and capabilities is not None and capabilities.elicitation is not None


def _knows_tasks(context: _Context) -> bool:
    capabilities = context.session.client_capabilities
    return TASKS in ((capabilities.extensions or {}) if capabilities is not None else {})
