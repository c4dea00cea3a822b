"""Tests of MCP tools with real servers, over standard input and output and streamable HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from asgi_server import serve_application
from tool_calls import make_call, run_calls

from toolchart import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.models import ToolsConfig
from toolchart.states.content import ImagePart
from toolchart.states.errors import SpecError
from toolchart.states.reading_limits import READING
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources import mcp
from toolchart.tools.sources.registry_entries import LoadingContext

pytest.importorskip("mcp")

import mcp_test_server

SERVER = Path(__file__).resolve().parents[1] / "support" / "mcp_test_server.py"
STDIO = {"command": sys.executable, "args": [str(SERVER)]}


def make_manager(**servers: Any) -> ToolManager:
    """A manager with these servers."""
    patient_servers = {name: {"start_timeout_ms": 300_000, **server} for name, server in servers.items()}
    return ToolManager.from_config(ToolsConfig.model_validate({"mcp": patient_servers}))


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Servers may be slow to start and to end on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcp, "CLOSE_TIMEOUT_S", 300.0)
        yield


@pytest.fixture(scope="module")
def stdio() -> Iterator[ToolManager]:
    """A server over standard input and output."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKEN_FOR_TEST", "t0ken")
        manager = make_manager(local={**STDIO, "env": {"TEST_TOKEN": "${TOKEN_FOR_TEST}"}})
    yield manager
    manager.close()


def test_tools_appear_under_a_prefix_with_portable_names(stdio: ToolManager) -> None:
    """Issue 6: a server's tools carry its name; a name that providers refuse is mapped."""
    assert stdio.warnings == ()
    assert set(stdio.names()) == {
        "local__add",
        "local__delete_all",
        "local__draw",
        "local__geo_find",
        "local__erase",
        "local__leave",
        "local__read_meta",
        "local__sleep",
    }
    tool = stdio.registry.get("local__geo.find")
    assert tool is not None
    assert tool.kind == "mcp"
    assert tool.definition.parameters["required"] == ["city"]


def test_calls_reach_the_server_and_failures_are_data(stdio: ToolManager) -> None:
    """Issue 6: results are structured; errors of the server and bad arguments are failed calls."""
    sum_event, city_event, erase_event, bad_event = run_calls(
        stdio,
        make_call("local__add", {"a": 1, "b": "2"}),
        make_call("local__geo_find", {"city": "brno"}),
        make_call("local__erase"),
        make_call("local__add", {"a": 1}),
    )
    assert sum_event.result["result"] == 3
    assert city_event.result["result"] == {"city": "BRNO", "token": "t0ken"}
    assert "not today" in erase_event.result["error"]
    assert "missing required parameter 'b'" in bad_event.result["error"]


def test_a_picture_of_a_server_is_a_part_of_the_result(stdio: ToolManager) -> None:
    """Issue 15, to build 1: the result describes the picture, and the event carries its bytes."""
    (event,) = run_calls(stdio, make_call("local__draw", {"title": "Plan"}))
    assert event.result["result"] == ["Plan", "[image/png, 8 bytes]"]
    (part,) = event.parts
    assert isinstance(part, ImagePart)
    assert part.read_bytes() == b"\x89PNG\r\n\x1a\n"


def test_a_tool_that_is_not_called_harmless_has_a_high_risk(stdio: ToolManager) -> None:
    """A tool without annotations asks; `destructive` counts, whatever stands beside it."""
    erase, add = stdio.registry.get("local__erase"), stdio.registry.get("local__add")
    assert erase is not None
    assert add is not None
    assert (erase.risk, add.risk) == ("high", "high")


@pytest.mark.parametrize(
    ("entry", "waiting"), [({}, ["local__delete_all"]), ({"trust": "trusted"}, []), ({"risk": "low"}, [])]
)
def test_a_server_does_not_decide_whether_it_asks(entry: dict[str, Any], waiting: list[str]) -> None:
    """A tool whose server says that it only reads waits for a person, unless the operator trusts the server
    or has said what the risk is."""
    spec = {
        "chart": "approval",
        "llms": {"model": {"provider": "scripted", "replies": ["x"], "model": "m"}},
        "tools": {"mcp": {"local": {**STDIO, **entry}}},
        "responses": [{"llm": "model", "prompt": "x", "tools": {"enabled": True}}],
    }
    replies = [reply_with_calls(("local__delete_all", {})), "done"]
    with Engine(spec, log="memory", providers={"model": ScriptedProvider(replies)}) as engine:
        result = engine.run("go")
    assert [call["tool"] for call in result.pending_approvals] == waiting


def test_calls_work_from_any_loop_and_end_in_time(stdio: ToolManager) -> None:
    """Issue 6: the session outlives the caller's loop; cancellation and time-out reach it."""
    for _ in range(2):
        (event,) = run_calls(stdio, make_call("local__add", {"a": 2, "b": 2}))
        assert event.result["result"] == 4

    async def run_and_cancel() -> None:
        task = asyncio.ensure_future(stdio.run(make_call("local__sleep", {"seconds": 60}), ("local__sleep",)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run_and_cancel())
    (event,) = run_calls(stdio, make_call("local__add", {"a": 1, "b": 1}))
    assert event.result["result"] == 2


def test_a_server_that_died_is_started_again() -> None:
    """Issue 6: a lost session fails its call with a reason, and the next call opens a new one."""
    manager = make_manager(local={**STDIO, "timeout_ms": 60_000})
    try:
        (lost_event,) = run_calls(manager, make_call("local__leave"))
        assert lost_event.outcome == "failed"
        assert "'local'" in lost_event.result["error"]
        for _ in range(3):
            (event,) = run_calls(manager, make_call("local__add", {"a": 1, "b": 1}))
            if event.outcome == "succeeded":
                break
        assert event.result["result"] == 2
    finally:
        manager.close()


def test_calls_that_come_together_open_one_session() -> None:
    """Calls that find no session open one, and each of them waits until it is there."""
    loop = mcp._SessionLoop()
    settings = mcp.McpSettings(**STDIO, start_timeout_ms=300_000)
    server = mcp._Server("local", settings, LoadingContext(resolve_secrets=lambda text, _: text), loop)

    async def call_together() -> list[Any]:
        calls = (server.run_tool("add", {"a": 1, "b": number}, 300.0) for number in range(4))
        return await asyncio.gather(*calls)

    try:
        assert asyncio.run(call_together()) == [1, 2, 3, 4]
    finally:
        mcp._close_servers([server], loop)


def test_a_server_that_cannot_be_reached_is_a_warning() -> None:
    """Issue 6: one missing server leaves the others and the spec's own tools working."""
    config = {"mcp": {"gone": {"command": "/no/such/program"}}, "registry": [{"name": "echo"}]}
    manager = ToolManager.from_config(ToolsConfig.model_validate(config))
    assert manager.names() == ("echo",)
    assert "MCP server 'gone' left out" in manager.warnings[0]
    manager.close()


_MEETING_SERVER = """
import pathlib, sys, time
folder, own, other = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
(folder / own).touch()
while not (folder / other).exists():
    time.sleep(0.01)
from mcp.server.mcpserver import MCPServer
server = MCPServer(own)
@server.tool()
def work() -> str:
    "Work."
    return "done"
server.run()
"""


def test_servers_start_at_the_same_time(tmp_path: Path) -> None:
    """Two servers, each of which answers only when the other has been started, are both there; tools stand in
    the order of the spec."""
    names = ("one", "two")
    manager = make_manager(
        **{
            own: {"command": sys.executable, "args": ["-c", _MEETING_SERVER, str(tmp_path), own, other]}
            for own, other in zip(names, reversed(names), strict=True)
        }
    )
    try:
        assert manager.warnings == ()
        assert manager.names() == ("one__work", "two__work")
    finally:
        manager.close()


def make_silent_server(process: Path, *, is_stubborn: bool) -> dict[str, Any]:
    """A server that never answers, notes its process id, and may not end when it is asked to."""
    trap = "trap '' TERM; " if is_stubborn else ""
    script = f'{trap}echo $$ > "$0"; echo still here >&2; exec sleep 600'
    return {"command": "sh", "args": ["-c", script, str(process)], "start_timeout_ms": 1_000}


def is_gone(process: Path) -> bool:
    """Whether the process of a silent server has ended."""
    try:
        os.kill(int(process.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_silent_server_is_left_out_and_ended(is_stubborn: bool, tmp_path: Path) -> None:
    """A server that never answers is a warning with its time, the setting and its last words; others work;
    its process ends at the latest when the tools are closed, which raises nothing."""
    process = tmp_path / "process"
    manager = make_manager(silent=make_silent_server(process, is_stubborn=is_stubborn), local=STDIO)
    assert "local__add" in manager.names()
    (warning,) = manager.warnings
    assert "'silent' left out: no answer within 1 s (`start_timeout_ms`)" in warning
    assert "still here" in warning
    manager.close()
    manager.close()
    assert is_gone(process)


def test_an_engine_with_silent_servers_is_left_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving an engine beside servers that do not answer ends it quietly, and each of their processes. While
    a process is being ended, nothing cancels that a second time, however short the time to close is."""
    monkeypatch.setattr(mcp, "CLOSE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(mcp, "CANCEL_TIMEOUT_S", 300.0)
    processes = [tmp_path / f"process-{number}" for number in range(4)]
    servers = {
        process.name: make_silent_server(process, is_stubborn=number % 2 == 0)
        for number, process in enumerate(processes)
    }
    with make_engine([], tools={"mcp": servers}) as engine:
        assert [("no answer within 1 s" in warning) for warning in engine.tools.warnings] == [True] * 4
    assert all(map(is_gone, processes))


_OLD_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]},
    }
    if message.get("method") in results:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        print(json.dumps(answer), flush=True)
"""


@pytest.mark.parametrize("handshake", ["auto", "initialize"])
def test_an_old_server_may_be_spared_the_question_for_its_versions(
    handshake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lets an unknown question wait is reached in the end, with a warning that names the
    setting; with the setting it is not asked, and nothing is waited for."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 0.5 if handshake == "auto" else 10**6)
    server = {"command": sys.executable, "args": ["-c", _OLD_SERVER]}
    manager = make_manager(old={**server, "handshake": handshake})
    try:
        assert manager.names() == ("old__work",)
        assert [("`handshake: initialize`" in warning) for warning in manager.warnings] == [True] * (
            handshake == "auto"
        )
    finally:
        manager.close()


_DYING_SERVER = """
import os, sys
if {is_late}:
    from mcp.server.mcpserver import MCPServer
    server = MCPServer("dying")
    @server.tool()
    def leave() -> str:
        "End the server."
        die()
def die():
    print("noise " * 100_000, file=sys.stderr)
    print("Error: no database at", os.environ["DATABASE"], "\\n", file=sys.stderr, flush=True)
    os._exit(3)
server.run() if {is_late} else die()
"""


@pytest.mark.parametrize("is_late", [False, True])
def test_what_a_dying_server_says_is_in_the_error(is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last lines that a server wrote to standard error stand in the warning that leaves it out, or in the
    error of the call at which it died; they are bounded, and no secret of the spec is in them."""
    monkeypatch.setenv("DATABASE_PASSWORD", "postgres://secret-host")
    settings = {
        "command": sys.executable,
        "args": ["-c", _DYING_SERVER.replace("{is_late}", str(is_late))],
        "env": {"DATABASE": "${DATABASE_PASSWORD}"},
    }
    manager = make_manager(dying=settings)
    try:
        if is_late:
            (event,) = run_calls(manager, make_call("dying__leave"))
            text = event.result["error"]
        else:
            (text,) = manager.warnings
    finally:
        manager.close()
    assert "it wrote to standard error: " in text
    assert "Error: no database at" in text
    assert "secret-host" not in text
    assert len(text) < 3_000


def test_invalid_settings_are_named() -> None:
    """Issue 6: a misspelt key, and a server with two ways to reach it, are errors of the spec."""
    with pytest.raises(SpecError, match="did you mean 'command'"):
        make_manager(x={"comand": "y"})
    with pytest.raises(SpecError, match="either a command or a url"):
        make_manager(x={"command": "y", "url": "http://z"})


def test_streamable_http_works_too() -> None:
    """Issue 6: a server at an address offers the same tools."""
    with serve_application(mcp_test_server.server.streamable_http_app()) as address:
        manager = make_manager(web={"url": f"{address}/mcp", "prefix": "w_"})
        assert manager.warnings == ()
        (event,) = run_calls(manager, make_call("w_add", {"a": 20, "b": 22}))
        assert event.result["result"] == 42
        manager.close()


def test_a_large_result_is_kept(stdio: ToolManager) -> None:
    """Issue 13: a result above a million characters is kept whole and is no failure."""
    title = "word " * 300_000
    (event,) = run_calls(stdio, make_call("local__draw", {"title": title}))
    assert event.outcome == "succeeded"
    assert title in str(event.result["result"])


# -- hostile servers ---------------------------------------------------------------------------------


@contextmanager
def connect_hostile(way: str, **settings: Any) -> Iterator[ToolManager]:
    """A manager with the tools of a hostile server."""
    server = SERVER.with_name("mcp_hostile_server.py")
    manager = make_manager(hostile={"command": sys.executable, "args": [str(server), way], **settings})
    try:
        yield manager
    finally:
        manager.close()


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            "endless",
            "its list of tools has more than 100 pages (limit `mcp_pages`; "
            "TOOLCHART_LIMITS=mcp_pages=NUMBER raises it)",
        ),
        ("circle", "its list of tools comes again"),
    ],
)
def test_a_list_without_an_end_is_given_up(way: str, words: str) -> None:
    """Issue 32: a server that names one more page for ever is left out, long before the time is over."""
    with connect_hostile(way) as manager:
        assert manager.names() == ()
        assert manager.warnings == (f"MCP server 'hostile' left out: {words}",)


def test_a_server_that_is_late_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked of a server that is left out ends: nothing of it runs on in the background."""
    asked: list[Any] = []
    monkeypatch.setattr(READING, "mcp_pages", 10**9)
    submit = mcp._SessionLoop.submit

    def note_work(loop: Any, work: Any) -> Any:
        asked.append(submit(loop, work))
        return asked[-1]

    monkeypatch.setattr(mcp._SessionLoop, "submit", note_work)
    with connect_hostile("endless", start_timeout_ms=5_000) as manager:
        assert "no answer within 5 s" in manager.warnings[0]
        assert asked[0].done()


@pytest.mark.parametrize(
    ("way", "words"), [("parts", "5000 parts; at most 1000 are read"), ("large", "larger than 1 MiB")]
)
def test_a_result_without_measure_fails(way: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 32: a result of very many parts, or a very large one, is a failure of its call with the limit."""
    monkeypatch.setattr(READING, "mcp_bytes", 2**20)
    with connect_hostile(way) as manager:
        (event,) = run_calls(manager, make_call("hostile__work"))
        assert event.outcome == "failed"
        assert words in event.result["error"]


def test_a_deep_schema_leaves_its_tool_out() -> None:
    """A schema of 2,000 levels is a warning, or the tool of a server that is left out."""
    with connect_hostile("deep") as manager:
        assert manager.names() == ()
        (warning,) = manager.warnings
        assert "left out" in warning
        assert len(warning) < 300
