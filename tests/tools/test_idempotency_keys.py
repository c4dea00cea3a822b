"""Idempotency keys: the same for each run of the same call, sent by HTTP and MCP tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from web import WebAnswer, serve_web

from toolchart.engine.log.stores import open_store
from toolchart.specs.models import ToolsConfig
from toolchart.specs.secrets import resolve_environment
from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.execution.context import CallContext
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.http.settings import parse_http_settings
from toolchart.tools.sources.http.tool import make_http_tool
from toolchart.tools.tool_context import compute_idempotency_key

SERVER = Path(__file__).resolve().parents[1] / "support" / "mcp_test_server.py"


def fail_once(request: dict[str, Any], seen: list[int]) -> WebAnswer:
    """A service that fails the first time."""
    seen.append(1)
    return (503 if len(seen) == 1 else 200), {"Content-Type": "application/json"}, b'{"ok":true}'


def test_an_http_tool_sends_the_key_of_its_call_with_each_try() -> None:
    """Issue 13: the header that the settings name has the key of conversation and call, in every try."""
    seen: list[int] = []
    with serve_web(lambda request: fail_once(request, seen)) as server:
        raw = {"url": server.url, "method": "PUT", "allow_hosts": ["127.0.0.1"], "retry": {"attempts": 2}}
        raw["retry"]["backoff_s"] = 0
        settings = parse_http_settings({**raw, "idempotency_header": "Idempotency-Key"}, "pay")
        definition = ToolDefinition(name="pay", description="Pay.")
        tool = make_http_tool(definition, settings, resolve=resolve_environment)
        store = open_store("memory")
        engine = make_engine([reply_with_calls(("pay", {})), "done"], log=store, functions=[tool])
        result = engine.run("go", conversation="c")
        engine.close()
    (record,) = [json.loads(line) for line in store.read_lines("c") if b'"type":"tool_finished"' in line]
    key = compute_idempotency_key("c", record["event"]["effect"], record["event"]["call_id"])
    assert result.tool_calls[0].outcome == "succeeded"
    assert [request["headers"]["Idempotency-Key"] for request in server.requests] == [key, key]


def test_a_header_is_a_name() -> None:
    """A header that HTTP does not allow is refused when the agent is loaded."""
    with pytest.raises(SpecError):
        parse_http_settings({"url": "http://127.0.0.1", "idempotency_header": "no name\r\nX: y"}, "pay")


async def test_an_mcp_server_gets_the_key_in_meta() -> None:
    """Issue 13: `_meta` of a call has its key; a call outside any conversation has none."""
    pytest.importorskip("mcp")
    servers = {"local": {"command": sys.executable, "args": [str(SERVER)]}}
    manager = ToolManager.from_config(ToolsConfig.model_validate({"mcp": servers}))
    tool = manager.registry.get("local__read_meta")
    assert tool is not None
    context = CallContext(conversation="c", effect=3, call_id="call_1", tool="local__read_meta")
    runner: Any = tool.run
    expected = {"toolchart/idempotency-key": compute_idempotency_key("c", 3, "call_1")}
    assert expected.items() <= (await runner({}, context)).items()
    assert "toolchart/idempotency-key" not in await runner({})
    manager.close()
