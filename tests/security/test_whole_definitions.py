"""Pins, approvals and signatures hold the whole definition of a tool, and each single change is named."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tool_calls import build_snapshot, make_call

from toolchart.engine.runtime.clock import SystemClock
from toolchart.engine.runtime.people import DecisionDesk
from toolchart.specs.models import ToolsConfig
from toolchart.states.effects import AskApproval
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.states.snapshot import Configuration, OpenCall, Snapshot
from toolchart.tools.approval import Policy, parse_policy
from toolchart.tools.approvers import DecisionSubject, Signer
from toolchart.tools.definition import Tool
from toolchart.tools.execution.context import NO_CONVERSATION
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.execution.result_cache import ResultCache
from toolchart.tools.manager import ToolManager
from toolchart.tools.signing_keys import create_key_file, read_private_key
from toolchart.tools.sources import mcp
from toolchart.tools.sources.table import TOOL_SOURCES
from toolchart.tools.whole_definition import (
    MAX_PLAIN,
    describe_changes,
    describe_definition,
    describe_run,
    digest_definition,
)

Change = tuple[str, Any, str]
"""Where in the configuration, joined by points; the new value; the words that name the change."""

SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}, "note": {"type": "string"}}}

HTTP: dict[str, Any] = {
    "name": "work",
    "description": "Work.",
    "parameters": SCHEMA,
    "environment": ["HOME"],
    "trust": "trusted",
    "needs": ["help"],
    "implementation": {
        "type": "http",
        "method": "POST",
        "url": "http://a.example:8080/orders/{id}",
        "headers": {"X-Action": "read", "X-Key": "${SHOP_KEY}"},
        "params_mapping": {"note": "header:X-Note"},
        "idempotency_header": "Idempotency-Key",
        "body": {"note": "{{note}}"},
        "body_type": "json",
        "response_path": "$.total",
        "retry": {"attempts": 2},
        "max_bytes": 1000,
        "content_types": ["application/json"],
        "allow_hosts": ["127.0.0.1"],
        "max_redirects": 5,
    },
}
ENTRY: list[Change] = [
    ("description", "Play.", "its description changed"),
    ("parameters.properties.note.type", "integer", "its schema changed"),
    ("risk", "high", "its risk changed: low, now high"),
    ("requires_approval", True, "its requires_approval changed: false, now true"),
    ("idempotent", True, "its idempotent changed: false, now true"),
    ("environment", ["HOME", "LD_PRELOAD"], 'its environment changed: ["HOME"], now ["HOME","LD_PRELOAD"]'),
    ("trust", "untrusted", "its trust changed: trusted, now untrusted"),
    ("needs", None, 'its needs is gone: ["help"]'),
    ("not_after", ["help"], 'its not_after is new: ["help"]'),
    ("max_calls", 1, "its max_calls is new: 1"),
]
HTTP_CHANGES: list[Change] = [
    *ENTRY,
    ("implementation.method", "DELETE", "its method changed: POST, now DELETE"),
    ("implementation.url", "http://b.example:8080/orders/{id}", "now http://b.example:8080/orders/{id}"),
    ("implementation.url", "http://a.example:8081/orders/{id}", "now http://a.example:8081/orders/{id}"),
    ("implementation.url", "https://a.example:8080/orders/{id}", "now https://a.example:8080/orders/{id}"),
    ("implementation.url", "http://a.example:8080/admin/{id}", "now http://a.example:8080/admin/{id}"),
    ("implementation.params_mapping.id", "query:id", "its place of 'id' changed: path: id, now query: id"),
    ("implementation.params_mapping.note", "body:note", "its place of 'note' changed: header: X-Note, now"),
    ("implementation.params_mapping.more", "query:q", "its place of 'more' is new: query: q"),
    ("implementation.headers.X-Action", "delete", "its header 'X-Action' changed"),
    ("implementation.headers.X-Key", "${OTHER_KEY}", "its header 'X-Key' changed"),
    ("implementation.headers.X-New", "1", "its header 'X-New' is new"),
    ("implementation.idempotency_header", "X-Once", "its idempotency header changed: Idempotency-Key, now"),
    ("implementation.body.all", True, "its body changed:"),
    ("implementation.body_type", "form", "its body form changed: json, now form"),
    ("implementation.response_path", "$.secret", "its response path changed: $.total, now $.secret"),
    ("implementation.retry.attempts", 5, "its attempts changed: 2, now 5"),
    ("implementation.max_bytes", 9000, "its size limit changed: 1000, now 9000"),
    ("implementation.content_types", ["*/*"], "its content types changed:"),
    ("implementation.allow_hosts", ["*"], 'its allowed hosts changed: ["127.0.0.1"], now ["*"]'),
    ("implementation.max_redirects", 9, "its redirects changed: 5, now 9"),
]

OPERATION = {
    "operationId": "work",
    "summary": "Work.",
    "parameters": [
        {"name": "id", "in": "path", "schema": {"type": "string"}},
        {"name": "note", "in": "query", "schema": {"type": "string"}},
    ],
    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
}
OPENAPI: dict[str, Any] = {
    "document": {
        "openapi": "3.1.0",
        "servers": [{"url": "http://a.example:8080"}],
        "paths": {"/orders/{id}": {"get": OPERATION}},
    },
    "headers": {"X-Action": "read"},
    "allow_hosts": ["a.example"],
    "risk": "low",
}
OPERATION_PLACE = "document.paths./orders/{id}.get"
OPENAPI_CHANGES: list[Change] = [
    ("document.servers.0.url", "http://b.example:8080", "now http://b.example:8080/orders/{id}"),
    ("document.servers.0.url", "http://a.example:8081", "now http://a.example:8081/orders/{id}"),
    ("document.servers.0.url", "https://a.example:8080", "now https://a.example:8080/orders/{id}"),
    ("base_url", "http://b.example", "now http://b.example/orders/{id}"),
    ("document.paths", {"/admin/{id}": {"get": OPERATION}}, "now http://a.example:8080/admin/{id}"),
    ("document.paths", {"/orders/{id}": {"delete": OPERATION}}, "its method changed: GET, now DELETE"),
    (
        f"{OPERATION_PLACE}.parameters.1.in",
        "header",
        "its place of 'note' changed: query: note, now header: note",
    ),
    (f"{OPERATION_PLACE}.parameters.0.in", "query", "its place of 'id' changed: path: id, now query: id"),
    (f"{OPERATION_PLACE}.requestBody", None, "its body is gone"),
    (f"{OPERATION_PLACE}.summary", "Play.", "its description changed"),
    (f"{OPERATION_PLACE}.parameters.1.schema.type", "integer", "its schema changed"),
    ("headers.X-Action", "delete", "its header 'X-Action' changed"),
    ("allow_hosts", ["*"], 'its allowed hosts changed: ["a.example"], now ["*"]'),
    ("risk", "medium", "its risk changed: low, now medium"),
    ("trust", "trusted", "its trust changed: untrusted, now trusted"),
]


def offer_work(id: str = "", note: str = "") -> str:
    """Work."""
    return id + note


def play_work(id: str = "", note: str = "") -> str:
    """Work."""
    return note + id


PYTHON = {**HTTP, "implementation": {"type": "python", "handler": f"{__name__}:offer_work"}}
PYTHON_CHANGES: list[Change] = [
    *ENTRY,
    ("implementation.handler", f"{__name__}:play_work", f"now {__name__}:play_work"),
    ("isolation", "inline", "its isolation changed: thread, now inline"),
]
MOCK = {**HTTP, "implementation": {"type": "mock", "mock_response": "a"}}
MOCK_CHANGES: list[Change] = [
    *ENTRY,
    ("implementation.mock_response", "b", "its fixed answer changed: a, now b"),
]
BUILTIN = {**HTTP, "implementation": {"type": "builtin", "handler": "read_file", "root": "here"}}
BUILTIN_CHANGES: list[Change] = [
    *(change for change in ENTRY if change[0] != "idempotent"),
    ("implementation.root", "there", "its root changed: here, now there"),
    ("implementation.handler", "list_directory", "its handler changed: read_file, now list_directory"),
]
INTERNAL = {
    **HTTP,
    "implementation": {"type": "internal", "handler": "search_documents", "folder": "here", "limit": 3},
}
INTERNAL_CHANGES: list[Change] = [
    *(change for change in ENTRY if change[0] != "idempotent"),
    ("implementation.folder", "there", "its folder changed: here, now there"),
    ("implementation.limit", 9, "its limit changed: 3, now 9"),
    ("implementation.index", "other.db", "its index is new: other.db"),
    ("implementation.handler", "own", "its handler changed: search_documents, now own"),
]
AGENT = {
    **{key: value for key, value in HTTP.items() if key != "parameters"},
    "implementation": {"type": "agent", "handler": "clerk"},
}
AGENT_CHANGES: list[Change] = [
    *(change for change in ENTRY if change[0] not in ("idempotent", "parameters.properties.note.type")),
    ("implementation.handler", "chief", "its agent changed:"),
    ("implementation.chart", "resilient", "its agent changed:"),
]

SERVER = """
import json, sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

setting = json.loads(Path(__file__).with_name("tool.json").read_text())
server = MCPServer("test")


hints = ToolAnnotations(**setting["hints"])


@server.tool(name=setting["name"], description=setting["description"], annotations=hints)
def work(id: str) -> str:
    return id


server.run("stdio")
"""
MCP: dict[str, Any] = {
    "tool": {
        "name": "work",
        "description": "Work.",
        "hints": {"destructive_hint": True, "idempotent_hint": False, "open_world_hint": True},
    },
    "server": "shop",
    "settings": {"args": ["SERVER", "--safe"], "env": {"MODE": "read", "KEY": "${SHOP_KEY}"}, "cwd": "here"},
}
MCP_CHANGES: list[Change] = [
    ("tool.description", "Play.", "its description changed"),
    ("tool.hints.read_only_hint", True, "its hint 'readOnlyHint' is new: true"),
    ("tool.hints.destructive_hint", False, "its hint 'destructiveHint' changed: true, now false"),
    ("tool.hints.idempotent_hint", True, "its hint 'idempotentHint' changed: false, now true"),
    ("tool.hints.open_world_hint", None, "its hint 'openWorldHint' is gone: true"),
    ("settings.args", ["SERVER", "--unsafe"], "its command changed:"),
    ("settings.env.MODE", "write", "its variable 'MODE' changed"),
    ("settings.env.KEY", "${OTHER_KEY}", "its variable 'KEY' changed"),
    ("settings.env.LD_PRELOAD", "", "its variable 'LD_PRELOAD' is new"),
    ("settings.cwd", "there", "its folder changed: here, now there"),
    ("settings.risk", "low", "its risk changed: high, now low"),
    ("settings.trust", "trusted", "its trust changed: untrusted, now trusted"),
    ("server", "other", "its server changed: shop, now other"),
]


def load_entry_tools(entry: dict[str, Any], folder: Path, pins: Any = None) -> ToolManager:
    """The tools of a registry with this entry."""
    for name in ("here", "there"):
        (folder / name).mkdir(exist_ok=True)
    registry = [entry, {"name": "help", "implementation": {"type": "mock", "mock_response": ""}}]
    config = ToolsConfig.model_validate({"registry": registry, "pins": pins})
    return ToolManager.from_config(config, base_folder=folder, services={"own": play_work})


def load_document_tools(section: dict[str, Any], folder: Path, pins: Any = None) -> ToolManager:
    """The tools of an OpenAPI document."""
    return ToolManager.from_config(ToolsConfig.model_validate({"openapi": [section], "pins": pins}))


def load_server_tools(data: dict[str, Any], folder: Path, pins: Any = None) -> ToolManager:
    """The tools of an MCP server that runs as a process."""
    pytest.importorskip("mcp")
    for name in ("here", "there"):
        (folder / name).mkdir(exist_ok=True)
    script = folder / "server.py"
    script.write_text(SERVER, "utf-8")
    (folder / "tool.json").write_text(json.dumps(data["tool"]), "utf-8")
    settings = {"command": sys.executable, "prefix": "", "start_timeout_ms": 300_000, **data["settings"]}
    settings["args"] = [str(script) if word == "SERVER" else word for word in settings["args"]]
    config = {"mcp": {data["server"]: settings}, "pins": pins}
    return ToolManager.from_config(ToolsConfig.model_validate(config), base_folder=folder)


Loader = Callable[[dict[str, Any], Path, Any], ToolManager]
SOURCES: dict[str, tuple[Loader, dict[str, Any], list[Change]]] = {
    "mock": (load_entry_tools, MOCK, MOCK_CHANGES),
    "builtin": (load_entry_tools, BUILTIN, BUILTIN_CHANGES),
    "internal": (load_entry_tools, INTERNAL, INTERNAL_CHANGES),
    "http": (load_entry_tools, HTTP, HTTP_CHANGES),
    "python": (load_entry_tools, PYTHON, PYTHON_CHANGES),
    "openapi": (load_document_tools, OPENAPI, OPENAPI_CHANGES),
    "mcp": (load_server_tools, MCP, MCP_CHANGES),
    "agent": (load_entry_tools, AGENT, AGENT_CHANGES),
}
"""By source of tools: how it is loaded, a configuration, and single changes of it."""

FIXED = ("name", "alias", "kind", "isolation", "search", "tool")
"""Parts that no setting changes alone: with another name it is another tool."""


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the configurations, and patience with servers on a busy machine."""
    monkeypatch.setenv("SHOP_KEY", "shop-key-1234")
    monkeypatch.setenv("OTHER_KEY", "other-key-1234")
    monkeypatch.setattr(mcp, "CLOSE_TIMEOUT_S", 300.0)


def change_setting(data: Any, place: str, value: Any) -> Any:
    """A copy of a configuration with another value at a place; None takes it out."""
    copy = deepcopy(data)
    *outer, last = place.replace("127.0.0.1", "127_0_0_1").split(".")
    target = reduce(
        lambda node, key: node[int(key)] if isinstance(node, list) else node.setdefault(key, {}), outer, copy
    )
    if value is None:
        del target[last]
    else:
        target[last] = value
    return copy


def get_work(manager: ToolManager) -> Tool:
    """The tool that is called `work`."""
    tool = manager.registry.get("work")
    assert tool is not None, manager.warnings
    return tool


def make_work_call(tool: Tool) -> ToolCall:
    """A call of a tool with arguments that it takes."""
    return make_call("work", {"message": "7"} if tool.kind == "agent" else {"id": "7"})


def make_snapshot(
    definition: dict[str, str], needs: bool, call: ToolCall | None = None, **fields: Any
) -> Snapshot:
    """A conversation whose call of `work` was decided, or waits, in this definition."""
    call = call or make_call("work", {"id": "7"})
    decided: dict[str, Any] = {"ruling": "needs_approval"} if needs else {"ruling": "run", "decided_at": AT}
    open_call = OpenCall(call=call, definition=definition, **decided, **fields)
    question = AskApproval(id=3, name="ask_approval", state="asking", calls=(call,))
    running = build_snapshot(call, now=AT, configuration=Configuration(states=("asking",), label="asking"))
    return replace(running, calls=(open_call,), open_effects=(question,), next_effect=4)


AT = "2026-06-01T12:00:00.000Z"


@pytest.mark.parametrize("name", SOURCES)
def test_every_part_of_a_definition_is_changed_here(name: str, tmp_path: Path) -> None:
    """The changes below touch every part that a tool of the source has, and every source is there."""
    assert set(SOURCES) == {row.name for row in TOOL_SOURCES.builtin_rows}
    load, base, changes = SOURCES[name]
    manager = load(base, tmp_path, None)
    parts = describe_definition(get_work(manager))
    manager.close()
    texts = " ".join(words for _, _, words in changes)
    # Words that only show the new value of an address name it.
    texts += " its address " if "now http" in texts else ""
    unchanged = [part for part in parts if f"its {part} " not in f"{texts} " and part not in FIXED]
    if name == "openapi":  # what an entry of `openapi` cannot set
        own = (
            "idempotent",
            "requires_approval",
            "body form",
            "content types",
            "size limit",
            "attempts",
            "redirects",
        )
        unchanged = [part for part in unchanged if part not in (*own, "place of 'body'")]
    if name in ("builtin", "internal", "agent"):
        unchanged.remove("idempotent")
    if name == "agent":  # every agent takes one message
        unchanged.remove("schema")
    if name == "mcp":
        unchanged = [part for part in unchanged if part not in ("schema", "requires_approval", "idempotent")]
    if name == "python":
        unchanged = [part for part in unchanged if part != "handler"]
    assert unchanged == []


LIST = [
    pytest.param(
        name, change, id=f"{name}: {change[2][:60]}", marks=[pytest.mark.slow] if name == "mcp" else []
    )
    for name, (_, _, changes) in SOURCES.items()
    for change in changes
]


@pytest.fixture(scope="module")
def anna(tmp_path_factory: pytest.TempPathFactory) -> tuple[Signer, str]:
    """An approver with a key."""
    path = tmp_path_factory.mktemp("keys") / "anna.pem"
    public = create_key_file(path)
    return Signer(name="anna", key=read_private_key(path)), public


@pytest.mark.parametrize(("name", "change"), LIST)
def test_each_single_change_is_refused_by_name(
    name: str, change: Change, tmp_path: Path, anna: tuple[Signer, str]
) -> None:
    """One change of anything that a tool is or does: with pins it asks, an approval given before lets nothing
    run, a question asked before cannot be approved, and a signature made before is for something else."""
    load, base, _ = SOURCES[name]
    place, value, words = change
    before_manager = load(base, tmp_path, None)
    before = describe_definition(get_work(before_manager))
    before_manager.close()
    manager = load(change_setting(base, place, value), tmp_path, {"work": before, "help": {}})
    manager.registry.change(replace(get_work(manager), needs=()))  # nothing else shall stop the call
    try:
        tool = get_work(manager)
        check_pin(manager, tool, words)
        check_approval(manager, before, words)
        check_signature(manager, tool, before, words, *anna)
    finally:
        manager.close()


def check_pin(manager: ToolManager, tool: Tool, words: str) -> None:
    """With the pin of before the tool asks, whatever a rule allows, and says why."""
    call = make_work_call(tool)
    assert "has changed since it was pinned" in (tool.pin_problem or "")
    assert words in (tool.pin_problem or "")
    assert any(words in warning for warning in manager.warnings)
    for rules in (None, [{"tools": "*", "decision": "always"}]):
        ruling, reason = parse_policy(rules).find_ruling(tool, {"id": "7"})
        assert ruling == "needs_approval"
        assert words in (reason or "")
    verdict = manager.review(call, ("work",))
    assert (verdict.ruling, words in (verdict.reason or "")) == ("needs_approval", True)
    assert parse_policy({"default": "never"}).find_ruling(tool, {})[0] == "denied"


def check_approval(manager: ToolManager, before: dict[str, str], words: str) -> None:
    """An approval of before lets nothing run, also where the tool would not ask now; nor can the question of
    before be approved."""
    tool = get_work(manager)
    call = make_work_call(tool)
    for changed_tool in (tool, replace(tool, pin_problem=None, requires_approval=False, risk="low")):
        if describe_definition(changed_tool) == before:
            continue  # it has been changed back
        manager.registry.change(changed_tool)
        executor = manager.bind("c", lambda: make_snapshot(before, needs=False, call=call))
        event = asyncio.run(executor.run(call, ("work",)))
        assert event.outcome == "denied"
        assert "the tool has changed since it was approved" in event.result["error"]
        assert changed_tool is not tool or words in event.result["error"]
    manager.registry.change(tool)
    desk = make_desk(manager, parse_policy(None))
    waiting = make_snapshot(before, needs=True)
    with pytest.raises(SpecError) as caught:
        desk.complete_decision(Decided(call_id="call_1", approved=True), "c", waiting)
    assert words in str(caught.value)
    assert desk.complete_decision(Decided(call_id="call_1", approved=False), "c", waiting).approved is False
    # Whoever has read what changed names the new definition, and that one alone.
    digest = digest_definition(describe_definition(tool))
    named = Decided(call_id="call_1", approved=True, definition={"digest": digest})
    assert desk.complete_decision(named, "c", waiting).definition == describe_definition(tool)
    with pytest.raises(SpecError):
        desk.complete_decision(replace(named, definition={"digest": "0" * 32}), "c", waiting)


def find_asked(conversation: str, effect: int) -> str:
    """The hash of the record that asked."""
    return f"{effect:064x}"


def make_desk(manager: ToolManager, policy: Policy) -> DecisionDesk:
    """The desk that completes decisions about the tools."""
    tools = ToolExecutor(manager.registry, policy=policy)
    return DecisionDesk(tools=tools, clock=SystemClock(), find_asking_record=find_asked)


def check_signature(
    manager: ToolManager, tool: Tool, before: dict[str, str], words: str, signer: Signer, public: str
) -> None:
    """A signature of before is refused by name, and cannot be moved to the new definition."""
    call = make_work_call(tool)
    subject = DecisionSubject(conversation="c", asked=find_asked("c", 3), effect=3, call=call)
    decision = signer.sign_decision(Decided(call_id="call_1", approved=True, definition=before), subject, AT)
    policy = parse_policy({"require_signatures": True, "default": "ask"}, approvers={"anna": public})
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert policy.approvers.check_decision(decision, subject, now) == "valid"
    desk = make_desk(manager, policy)
    with pytest.raises(SpecError) as caught:
        desk.complete_decision(decision, "c", make_snapshot(before, needs=True, call=call))
    assert words in str(caught.value)
    after = describe_definition(tool)
    moved = replace(decision, definition=after)
    assert policy.approvers.check_decision(moved, subject, now) == "wrong"
    manager.policy = policy
    for definition in (before, after, None):  # as in a log that somebody has written
        snapshot = make_snapshot(
            definition or {},
            needs=False,
            call=call,
            decided_by="anna",
            decided_effect=3,
            signature=decision.signature,
        )
        if definition is None:
            snapshot = replace(snapshot, calls=(replace(snapshot.calls[0], definition=None),))
        executor = manager.bind("c", lambda: snapshot, None, partial(find_asked, "c"))  # noqa: B023
        event = asyncio.run(executor.run(subject.call, ("work",)))
        assert event.outcome == "denied"
        assert "not been approved" in event.result["error"]
    assert "DELETE" not in words or "its method changed" in describe_changes(before, after)


def test_what_has_not_changed_runs_and_asks_nothing_more(tmp_path: Path) -> None:
    """With its own pins no tool asks, and an approval holds for the tool that it was given for."""
    for name, (load, base, _) in SOURCES.items():
        if name == "mcp":
            continue
        tool = get_work(load(base, tmp_path, None))
        manager = load(base, tmp_path, {"work": describe_definition(tool)})
        assert get_work(manager).pin_problem is None
        assert not [warning for warning in manager.warnings if "pinned" in warning]
    definition = describe_definition(get_work(load_entry_tools(MOCK, tmp_path)))
    manager = load_entry_tools({**MOCK, "needs": []}, tmp_path)
    own = describe_definition(get_work(manager))
    call = make_call("work", {"id": "7"})
    event = asyncio.run(manager.bind("c", lambda: make_snapshot(own, needs=False)).run(call, ("work",)))
    assert (event.outcome, definition == own) == ("succeeded", False)


def test_no_part_holds_the_value_of_a_variable(tmp_path: Path) -> None:
    """A key of the environment, or one that the operator wrote into a header, stands in no definition."""
    entry = change_setting(HTTP, "implementation.headers.X-Plain", "plain-key-5678")
    for load, data in ((load_entry_tools, entry), (load_server_tools, MCP)):
        manager = load(data, tmp_path, None)
        text = json.dumps(describe_definition(get_work(manager)))
        manager.close()
        assert "shop-key-1234" not in text
        assert "plain-key-5678" not in text


@pytest.mark.parametrize("pins", [{"work": "0" * 32}, {"help": {}, "work": "a pin"}])
def test_pins_of_the_earlier_form_are_refused(pins: Any) -> None:
    """A digest of what a model reads is no pin: the error says how to pin anew."""
    with pytest.raises(ValueError, match=r"read the tools and pin them anew: toolchart tools pin SPEC"):
        ToolsConfig.model_validate({"pins": pins})


def test_a_source_whose_tools_do_not_say_what_they_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `action` neither a pin nor an approval could hold a tool; the error names the source."""
    from toolchart.tools.sources import registry_entries

    make = registry_entries.load_mock_tool
    monkeypatch.setattr(registry_entries, "load_mock_tool", lambda *given: replace(make(*given), action=None))
    entry = {"name": "work", "implementation": {"type": "mock", "mock_response": ""}}
    with pytest.raises(SpecError, match="the tool source 'mock' does not say what running 'work' does"):
        ToolManager.from_config(ToolsConfig.model_validate({"registry": [entry]}))


def test_a_function_is_the_same_tool_in_the_program_and_where_it_is_imported(tmp_path: Path) -> None:
    """A worker that runs a module as its program, and a server that imports it, describe one tool."""
    (tmp_path / "shop.py").write_text(
        "from toolchart.tools.whole_definition import describe_function\n\n\n"
        "def pay():\n    pass\n\n\nprint(describe_function(pay))\n",
        "utf-8",
    )
    words = (["shop.py"], ["-m", "shop"], ["-c", "import shop"])
    runs = [
        subprocess.run([sys.executable, *word], cwd=tmp_path, capture_output=True, text=True)
        for word in words
    ]
    assert [run.stdout for run in runs] == ["{'function': 'shop:pay'}\n"] * 3


def test_an_answer_of_another_definition_is_not_cached(tmp_path: Path) -> None:
    """A tool of the same name that does something else does not answer from the cache of the first."""
    first, second = (get_work(load_entry_tools(data, tmp_path)) for data in (MOCK, {**MOCK, "risk": "high"}))
    cache = ResultCache()
    digests = [digest_definition(describe_definition(tool)) for tool in (first, second)]
    keys = [cache.make_key(first, digest, {"id": "7"}, NO_CONVERSATION) for digest in digests]
    cache.store_result(keys[0], "answer", 6, "call_1")
    assert cache.find_result(keys[1], second) is None


def test_the_question_shows_method_address_and_arguments_in_place() -> None:
    """A person sees the request that would be sent, with deceptive characters written as numbers."""
    definition = {
        "method": "GET",
        "address": "https://a.example/orders/{order_id}\u202e",
        "place of 'id'": "path: order_id",
        "place of 'note'": "header: X-Note",
        "schema": "sha256:0",
    }
    shown = describe_run(definition, {"id": "7/../8", "note": "x\ny", "more": 1})
    assert shown == "GET https://a.example/orders/7%2F..%2F8\\u202e, header X-Note=x\\ny, argument more=1"
    server = {"name": "work", "server": "shop", "tool": "work", "command": '["shop","--safe"]', "risk": "low"}
    assert describe_run(server, {}) == 'server: shop; tool: work; command: ["shop","--safe"]'


PARTS = st.dictionaries(st.text(max_size=8), st.text(max_size=MAX_PLAIN + 5), max_size=4)


@given(PARTS, PARTS)
def test_changes_are_named_exactly_where_definitions_differ(before: Any, now: Any) -> None:
    """Two tools have one definition, one digest and no named change, or two, two and some, on one line."""
    tools = [
        replace(TOOL, action={f"part {name}": text for name, text in parts.items()})
        for parts in (before, now)
    ]
    first, second = map(describe_definition, tools)
    changes = describe_changes(first, second)
    assert (first == second) == (digest_definition(first) == digest_definition(second)) == (changes == "")
    assert (before == now) == (first == second)
    assert "\n" not in changes


TOOL = get_work(ToolManager.from_config(ToolsConfig.model_validate({"registry": [{**MOCK, "needs": []}]})))
