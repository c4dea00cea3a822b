"""MCP servers, real ones: over standard input and output and over streamable HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_calls import call, ran

from toolchart.specs.models import ToolsConfig
from toolchart.states.errors import SpecError
from toolchart.tools.manager import ToolManager

pytest.importorskip("mcp")

SERVER = Path(__file__).resolve().parents[1] / "support" / "mcp_stdio_server.py"
STDIO = {"command": sys.executable, "args": [str(SERVER)]}


def manager(**servers: Any) -> ToolManager:
    """A manager with these servers."""
    return ToolManager.from_config(ToolsConfig.model_validate({"mcp": servers}))


@pytest.fixture(scope="module")
def stdio() -> Iterator[ToolManager]:
    """A server over standard input and output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_FOR_TEST", "t0ken")
        made = manager(local={**STDIO, "env": {"TEST_TOKEN": "${TOKEN_FOR_TEST}"}})
    yield made
    made.close()


def test_tools_appear_under_a_prefix_with_portable_names(stdio: ToolManager) -> None:
    """Issue 6: a server's tools carry its name; a name that providers refuse is mapped."""
    assert stdio.warnings == ()
    assert set(stdio.names()) == {
        "local__add",
        "local__geo_find",
        "local__erase",
        "local__leave",
        "local__sleep",
    }
    tool = stdio.registry.get("local__geo.find")
    assert tool is not None
    assert tool.kind == "mcp"
    assert tool.definition.parameters["required"] == ["city"]


def test_calls_reach_the_server_and_failures_are_data(stdio: ToolManager) -> None:
    """Issue 6: results come structured; the server's error and bad arguments are tool failures."""
    added, found, erased, bad = ran(
        stdio,
        call("local__add", {"a": 1, "b": "2"}),
        call("local__geo_find", {"city": "brno"}),
        call("local__erase"),
        call("local__add", {"a": 1}),
    )
    assert added.result["result"] == 3
    assert found.result["result"] == {"city": "BRNO", "token": "t0ken"}
    assert "not today" in erased.result["error"]
    assert "missing required parameter 'b'" in bad.result["error"]


def test_a_servers_word_makes_it_more_careful_never_less(stdio: ToolManager) -> None:
    """Issue 6: `destructive` raises the risk; `read only` beside it does not lower it."""
    erase, add = stdio.registry.get("local__erase"), stdio.registry.get("local__add")
    assert erase is not None
    assert add is not None
    assert (erase.risk, add.risk) == ("high", "medium")


def test_calls_work_from_any_loop_and_end_in_time(stdio: ToolManager) -> None:
    """Issue 6: the session outlives the caller's loop; cancellation and time-out reach it."""
    for _ in range(2):
        (event,) = ran(stdio, call("local__add", {"a": 2, "b": 2}))
        assert event.result["result"] == 4

    async def cancelled() -> None:
        task = asyncio.ensure_future(
            stdio.run(call("local__sleep", {"seconds": 60}), ("local__sleep",))
        )
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    (event,) = ran(stdio, call("local__add", {"a": 1, "b": 1}))
    assert event.result["result"] == 2


def test_a_server_that_died_is_started_again() -> None:
    """Issue 6: a lost session fails its call in words, and the next call has a new one."""
    made = manager(local={**STDIO, "timeout_ms": 5000})
    try:
        (gone,) = ran(made, call("local__leave"))
        assert gone.outcome == "failed"
        assert "'local'" in gone.result["error"]
        for _ in range(3):
            (event,) = ran(made, call("local__add", {"a": 1, "b": 1}))
            if event.outcome == "succeeded":
                break
        assert event.result["result"] == 2
    finally:
        made.close()


def test_a_server_that_cannot_be_reached_is_a_warning() -> None:
    """Issue 6: one missing server leaves the others and the spec's own tools working."""
    config = {"mcp": {"gone": {"command": "/no/such/program"}}, "registry": [{"name": "echo"}]}
    made = ToolManager.from_config(ToolsConfig.model_validate(config))
    assert made.names() == ("echo",)
    assert "MCP server 'gone' left out" in made.warnings[0]
    made.close()


def test_settings_that_cannot_be_are_named() -> None:
    """Issue 6: a misspelt key, and a server with two ways to reach it, are errors of the spec."""
    with pytest.raises(SpecError, match="did you mean 'command'"):
        manager(x={"comand": "y"})
    with pytest.raises(SpecError, match="either a command or a url"):
        manager(x={"command": "y", "url": "http://z"})


def test_streamable_http_works_too() -> None:
    """Issue 6: a server at an address offers the same tools."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        made = manager(web={"url": f"http://127.0.0.1:{port}/mcp", "prefix": "w_"})
        assert made.warnings == ()
        (event,) = ran(made, call("w_add", {"a": 20, "b": 22}))
        assert event.result["result"] == 42
        made.close()
    finally:
        process.kill()
        process.wait()
