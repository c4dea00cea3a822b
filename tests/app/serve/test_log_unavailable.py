"""A log that cannot be used any more: every door of the server says 503, and goes on when the log is back."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from endpoint_requests import BODIES, ask
from served import make_site, open_client

from toolchart.app.server.application import list_endpoints
from toolchart.app.server.endpoints import Endpoint
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.errors import LogUnavailable

REASON = "the PostgreSQL log cannot be used"

PRIVATE = "planted-host"
"""A part of what the database says that no client may read."""


class ReplacedStore(MemoryStore):
    """A store that notices at some time that its file is another one."""

    is_replaced = False

    def __getattribute__(self, name: str) -> Any:
        is_act = not name.startswith("_") and name not in ("is_replaced", "close")
        if is_act and object.__getattribute__(self, "is_replaced"):
            return refuse
        return object.__getattribute__(self, name)


def refuse(*arguments: Any, **options: Any) -> Any:
    """Every act on the log."""
    raise LogUnavailable(
        f'{REASON}: connection to server at "{PRIVATE}" failed\n  do: something at {PRIVATE}'
    )


WITHOUT_LOG = (
    "/openapi.json",
    "/",
    "/static",
    "/sign-in",
    "/sign-out",
    "/api/charts",
    "/charts",
    "/api/tools/",
    "/tools",
    "/api/models",
    "/api/collections",
    "/api/config",
    "/api/connections",
    "/api/ui-config",
    "/v1/models",
    "/approvals",
    "/chat",
    "/mcp",
    "/livez",
    "/metrics",
)
"""Beginnings of the paths of endpoints that read nothing of the log, or say by a figure that it is gone;
`/mcp` and `/metrics` have tests of their own."""


def needs_log(endpoint: Endpoint) -> bool:
    """Whether an endpoint reads or writes the log."""
    path = endpoint.path
    is_without = any(path == start or (start != "/" and path.startswith(start)) for start in WITHOUT_LOG)
    return not is_without or path in ("/chat/api", "/api/tools/test")


def form_fields(endpoint: Endpoint) -> tuple[str, ...]:
    """The keys of the body that an endpoint takes."""
    return endpoint.body.__struct_fields__ if endpoint.body is not None else ()


@pytest.mark.parametrize("stream", [False, True])
async def test_every_endpoint_says_503(stream: bool) -> None:
    """Issue 25: when the store says that its file was replaced, `/health`, `/readyz`, every endpoint of turns
    and log, in each protocol and as a stream, and every page of conversations answers 503 with the reason,
    and without what the database says of itself; nothing is acknowledged. When the log is there again, so is
    the server."""
    store = ReplacedStore()
    engine = make_engine(["one", "two", "three"], log=store, name="agent")
    site = make_site(engine)
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi", "conversation": "c"})
        before, others = list(store.read_lines("c")), []
        store.is_replaced = True
        try:
            for endpoint in filter(needs_log, list_endpoints()):
                body = BODIES.get(endpoint.path, {})
                if stream and endpoint.path.startswith("/v1/") and "stream" in form_fields(endpoint):
                    answer = await client.post(endpoint.path, json={**body, "stream": True})
                else:
                    answer = await ask(client, endpoint)
                # Anybody may ask for `/health` and `/readyz`, so they do not say which file it is.
                reason = "see the server's messages" if endpoint.role is None else REASON
                is_told = reason in answer.text and PRIVATE not in answer.text
                if answer.status_code != 503 or not is_told:
                    others.append((endpoint.method, endpoint.path, answer.status_code, answer.text[:200]))
        finally:
            store.is_replaced = False
        assert others == []
        assert list(store.read_lines("c")) == before
        assert (await client.get("/health")).status_code == 200
        again = await client.post("/api/conversations/c/messages", json={"message": "on"})
    assert (again.status_code, again.json()["content"]) == (200, "two")


async def test_other_endpoints_go_on() -> None:
    """What needs no log answers as before, so that the operator can look."""
    store = ReplacedStore()
    async with open_client(make_site(make_engine([], log=store, name="agent"))) as client:
        store.is_replaced = True
        try:
            for path in ("/openapi.json", "/api/tools/list", "/v1/models", "/api/config/export", "/tools"):
                assert (await client.get(path)).status_code == 200, path
        finally:
            store.is_replaced = False


async def test_followers_read_on() -> None:
    """A look for new records that fails ends no feed: the next one gives what was missed."""
    store = ReplacedStore()
    engine = make_engine(["one", "two"], log=store)
    site = make_site(engine)
    async with open_client(site):
        await engine.arun("hi", conversation="c")
        events = site.feeds.follow("c", 0)
        seen = [(await anext(events)).id for _ in range(3)]
        store.is_replaced = True
        site.feeds.note_records("c")
        store.is_replaced = False
        await engine.arun("on", conversation="c")
        seen.append((await anext(events)).id)
        await events.aclose()
    assert seen == ["0", "1", "2", "3"]


async def test_mcp_says_that_the_log_is_at_fault() -> None:
    """A call over MCP gets an error of the server with the status, and no result that a model would read."""
    pytest.importorskip("mcp", reason="the MCP server needs the extra `mcp`")
    import mcp_types as types
    from mcp import Client
    from mcp.shared.exceptions import MCPError

    from toolchart.app.server.access.tokens import ROLES, Access
    from toolchart.app.server.mcp_server.server import build_mcp_server

    store = ReplacedStore()
    engine = make_engine(["one"], log=store, name="agent")
    access = Access(name="anna", roles=frozenset(ROLES))
    server, turns = build_mcp_server(make_site(engine), lambda _: access)
    try:
        async with Client(server) as client:
            store.is_replaced = True
            with pytest.raises(MCPError, match=REASON) as refused:
                await client.call_tool("agent", {"message": "hi"})
            assert PRIVATE not in str(refused.value)
            with pytest.raises(MCPError, match=REASON):
                await client.read_resource("toolchart://conversations/c/records")
    finally:
        store.is_replaced = False
        await turns.stop()
        await engine.aclose()
    assert (refused.value.error.code, refused.value.error.data) == (types.INTERNAL_ERROR, {"status": 503})
