"""Faults 3, 5 and 9: foreign documents resolve no variable, choose no host for a secret, and hang nothing."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import make_function_tool
from resource_limits import ends_in_time
from tool_calls import make_call, run_calls
from web import serve_web

from toolchart.engine.runtime.parts import Dependencies, NoModel
from toolchart.engine.runtime.performers import EffectPerformer
from toolchart.specs.loader import load_spec
from toolchart.specs.models import ToolsConfig
from toolchart.states.effects import ReviewCalls
from toolchart.states.errors import SpecError
from toolchart.states.events import Verdict
from toolchart.states.messages import ToolCall
from toolchart.states.snapshot import Snapshot
from toolchart.tools.execution.executor import ToolExecutor
from toolchart.tools.manager import ToolManager
from toolchart.tools.registry import Registry
from toolchart.tools.schemas.examination import ArgumentExaminer
from toolchart.tools.sources.foreign_schemas import sanitize_schema


def make_document(path: str = "/", **changes: Any) -> dict[str, Any]:
    """A small OpenAPI document with one operation."""
    return {"openapi": "3.1.0", "paths": {path: {"get": {"operationId": "look"}}}, **changes}


def make_manager(document: Any, folder: Path | None = None, **settings: Any) -> ToolManager:
    """A manager with the operations of a document."""
    config = {"openapi": [{"document": document, **settings}]}
    return ToolManager.from_config(ToolsConfig.model_validate(config), base_folder=folder)


@pytest.mark.parametrize("place", ["server", "path", "variable"])
def test_a_document_resolves_no_variable(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """`${VARIABLE}` in a server, a path or a server variable of a document is plain text."""
    monkeypatch.setenv("PLANTED_KEY", "planted-value")
    with serve_web(lambda request: (200, {}, b"{}")) as web:
        name = "${PLANTED_KEY}"
        servers: list[dict[str, Any]] = [{"url": web.url + (f"/{name}" if place == "server" else "")}]
        if place == "variable":
            servers = [{"url": web.url + "/{v}", "variables": {"v": {"default": name}}}]
        document = make_document(f"/x/{name}/y" if place == "path" else "/", servers=servers)
        manager = make_manager(document, allow_hosts=["127.0.0.1"])
        slots = manager.registry.definitions()[0].parameters["properties"]
        run_calls(manager, make_call("look", dict.fromkeys(slots, "z")))
        assert "planted-value" not in str(web.requests)


def test_a_document_chooses_no_host_for_a_secret() -> None:
    """Headers with variables need an address that the operator wrote."""
    document = make_document(servers=[{"url": "https://evil.example"}])
    headers = {"authorization": "Bearer ${KEY}"}
    with pytest.raises(SpecError, match="document chooses the host"):
        make_manager(document, headers=headers)
    assert make_manager(document, headers=headers, base_url="https://own.example").names() == ("look",)


# -- schemas -------------------------------------------------------------------------------------


def nest(depth: int, innermost: Any) -> Any:
    """A value in a list in a list, and so on."""
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def make_doubling(keyword: str, levels: int) -> dict[str, Any]:
    """A schema whose definitions each name the next one twice."""
    links = {str(n): {keyword: [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**links, str(levels): {"type": "integer"}}, "$ref": "#/$defs/0"}


def make_recursive(keyword: str) -> dict[str, Any]:
    """A schema that refers to itself twice at each level of a list."""
    item = {"type": "array", "items": {"$ref": "#/$defs/node"}}
    return {"$defs": {"node": {keyword: [item, item, {"type": "integer"}]}}, "$ref": "#/$defs/node"}


TEXT = "a" * 30_000 + "!"
PATTERNS = (
    *("^(a+)+$", "^(a|aa)+$", "^(a*)*$", "(a+)+b", "^([a-z]+)*$", "^(a|a?)+$", "(x+x+)+y"),
    "^(?=(a+)+$)a*b",
)
COMBINATORS = ("anyOf", "oneOf", "allOf")
HOSTILE_SCHEMAS: dict[str, tuple[dict[str, Any], Any]] = {
    **{pattern: ({"type": "string", "pattern": pattern}, TEXT) for pattern in PATTERNS},
    **{f"doubling {word}": (make_doubling(word, 40), "x") for word in COMBINATORS},
    **{f"recursive {word}": (make_recursive(word), nest(30, "x")) for word in COMBINATORS},
    "unique": ({"type": "array", "uniqueItems": True}, [{"a": n} for n in range(9_000)]),
    "patterns": ({"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}}, {TEXT: 1}),
    "contains": ({"type": "array", "contains": {"type": "string", "pattern": "^(?=(a+)+$)b"}}, [TEXT] * 99),
    "nothing": ({"$ref": "#/$defs/missing"}, 1),
    "circle": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, 1),
    "elsewhere": ({"$ref": "https://evil.example/schema.json"}, 1),
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_a_foreign_schema_hangs_nothing(name: str) -> None:
    """Every examination ends with an answer, in a limited time and without an exception."""
    schema, value = HOSTILE_SCHEMAS[name]
    definitions = schema.get("$defs", {})
    own = {key: part for key, part in schema.items() if key != "$defs"}
    whole, _ = sanitize_schema({"type": "object", "properties": {"x": own}, "$defs": definitions})
    examiner = ArgumentExaminer(whole, "t")
    examiner.examine({"x": 1})
    with ends_in_time():
        examination = examiner.examine({"x": value})
    assert examination.problem is None or examination.problem


def test_a_large_foreign_schema_is_left_out() -> None:
    """An operation whose schema is beyond the budget is left out with a warning; the others stay."""
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(6_000)}}
    document = make_document(servers=[{"url": "https://x.example"}])
    body = {"content": {"application/json": {"schema": schema}}}
    document["paths"]["/big"] = {"post": {"operationId": "big", "requestBody": body}}
    manager = make_manager(document)
    assert manager.names() == ("look",)
    assert "more than 10000 parts" in manager.warnings[0]


# -- aliases -------------------------------------------------------------------------------------


def make_alias_bomb(levels: int) -> str:
    """A YAML text in which each entry repeats the one before nine times."""
    lines = ["a0: &a0 [" + ", ".join(["x"] * 9) + "]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("levels", [4, 5, 6, 9, 20])
def test_an_alias_bomb_is_refused_or_read(tmp_path: Path, levels: int) -> None:
    """A document of some hundred bytes is counted with its aliases written out before it is built."""
    bomb = make_alias_bomb(levels)
    text = f"openapi: 3.1.0\nservers: [{{url: 'https://x.example'}}]\npaths: {{/: {{get: {{}}}}}}\n{bomb}"
    (tmp_path / "api.yaml").write_text(text, "utf-8")
    try:
        with ends_in_time():
            names = make_manager("api.yaml", tmp_path).names()
    except SpecError as error:
        names = ("refused",) if "aliases" in str(error) else ()
    assert len(names) == 1


@pytest.mark.parametrize("levels", [4, 5, 9])
def test_an_alias_bomb_in_a_spec_is_refused_or_read(tmp_path: Path, levels: int) -> None:
    """The same holds for a spec."""
    text = "llms: {m: {provider: scripted, replies: [x]}}\nresponses: [{llm: m}]\n" + make_alias_bomb(levels)
    (tmp_path / "agent.yaml").write_text(text, "utf-8")
    with ends_in_time(), contextlib.suppress(SpecError):
        load_spec(tmp_path / "agent.yaml")


@pytest.mark.parametrize(
    "changes",
    [
        {"paths": []},
        {"paths": {"/": []}},
        {"paths": {"/": {"get": {"parameters": 7}}}},
        {"paths": {"/": {"get": {"requestBody": {"content": []}}}}},
        {"servers": 7},
        {"components": [], "paths": {"/": {"get": {"parameters": [{"$ref": "#/components/parameters/x"}]}}}},
        {"paths": {"/": {"get": {"parameters": [{"name": "a", "in": "query", "schema": {"type": 7}}]}}}},
    ],
)
def test_a_malformed_document_is_no_traceback(changes: dict[str, Any]) -> None:
    """A document of another form is an error or a warning."""
    with contextlib.suppress(SpecError):
        make_manager(make_document(**{"servers": [{"url": "https://x.example"}], **changes}))


async def test_a_slow_review_does_not_hold_up_the_event_loop() -> None:
    """What may wait for a worker is reviewed in a thread, and everything else at once."""
    threads: dict[str, bool] = {}

    class Reviewer(ToolExecutor):
        """An executor that notes whether it reviews in the thread of the event loop."""

        def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
            threads[call.name] = threading.current_thread() is threading.main_thread()
            return super().review(call, allowed_tools)

        def review_at_once(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict | None:
            threads[call.name] = threading.current_thread() is threading.main_thread()
            return super().review_at_once(call, allowed_tools)

    slow: dict[str, Any] = {"type": "object", "properties": {"x": {"contains": {"type": "integer"}}}}
    tools = [
        make_function_tool("slow", slow, lambda arguments: "ok"),
        make_function_tool("quick", {"type": "object"}, lambda arguments: "ok"),
    ]
    executor = Reviewer(Registry(tools))
    calls = tuple(ToolCall(id=tool.name, name=tool.name, arguments={"x": 1}) for tool in tools)
    effect = ReviewCalls(id=1, name="review_calls", state="s", calls=calls, allowed=("slow", "quick"))
    driver: Any = SimpleNamespace(
        dependencies=Dependencies(provider=NoModel(), executor=executor),
        apply_event=lambda event: None,
        snapshot=Snapshot(),
        is_open=lambda effect: False,
    )
    await EffectPerformer(driver).perform(effect)
    assert threads == {"slow": False, "quick": True}
