"""Tests of OpenAPI tools: operations become tools, and calls reach the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tool_calls import make_call, run_calls
from web import serve_web

from toolchart.specs.models import ToolsConfig
from toolchart.states.errors import SpecError
from toolchart.tools.manager import ToolManager
from toolchart.tools.schemas.checks import check_schema

DOCUMENT: dict[str, Any] = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://api.example.com/v1"}],
    "paths": {
        "/pets/{pet-id}": {
            "parameters": [{"name": "pet-id", "in": "path", "schema": {"type": "integer"}}],
            "get": {
                "operationId": "pets.show",
                "summary": "Show a pet",
                "description": "With all it has.",
                "parameters": [
                    {
                        "name": "fields[]",
                        "in": "query",
                        "schema": {"type": "array", "items": {"type": "string"}},
                    },
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                ],
            },
            "put": {
                "operationId": "putPet",
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
                },
            },
            "delete": {"operationId": "deletePet"},
        },
        "/upload": {
            "post": {"operationId": "upload", "requestBody": {"required": True, "content": {"image/png": {}}}}
        },
    },
    "components": {
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "pattern": "^("},
                    "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "nullable": True},
                    "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
                },
            },
            "Unused": {"type": "string"},
        }
    },
}


def make_manager(tmp_path: Path | None = None, document: Any = DOCUMENT, **settings: Any) -> ToolManager:
    """A manager with the document's operations."""
    config = {"openapi": [{"document": document, **settings}]}
    return ToolManager.from_config(ToolsConfig.model_validate(config), base_folder=tmp_path)


def test_operations_become_tools() -> None:
    """Issue 6: each operation is a tool with one schema of all its parameters."""
    manager = make_manager()
    assert manager.names() == ("pets_show", "putPet", "deletePet")
    show, put = manager.registry.get("pets.show"), manager.registry.get("putPet")
    assert show is not None
    assert put is not None
    assert show.definition.description == "Show a pet\n\nWith all it has."
    assert set(show.definition.parameters["properties"]) == {"pet-id", "fields[]", "X-Trace"}
    assert show.definition.parameters["required"] == ["pet-id"]
    assert set(put.definition.parameters["$defs"]) == {"Pet"}
    check_schema(put.definition.parameters, "putPet")
    assert [tool.risk for tool in manager.registry] == ["low", "medium", "high"]
    assert "not JSON" in manager.warnings[0]


def test_removed_parts_of_a_schema_are_listed() -> None:
    """Issue 6: what is no pattern is removed, and the tool lists the change."""
    put = make_manager().registry.get("putPet")
    assert put is not None
    pet = put.definition.parameters["$defs"]["Pet"]["properties"]
    assert "pattern" not in pet["name"]
    assert pet["age"] == {"type": ["integer", "null"], "minimum": 0, "exclusiveMinimum": 0}
    assert any("pattern left out" in change for change in put.rewrites)


def test_calls_reach_the_service() -> None:
    """Issue 6: path, query, header and body go where the document puts them."""

    def answer(request: dict[str, Any]) -> Any:
        return 200, {"Content-Type": "application/json"}, b'{"ok": true}'

    with serve_web(answer) as server:
        manager = make_manager(base_url=server.url, allow_hosts=["127.0.0.1"])
        show = make_call("pets.show", {"pet-id": 7, "fields[]": ["a", "b"], "X-Trace": "t"})
        put = make_call("putPet", {"pet-id": 7, "body": {"name": "Rex", "friends": [{"name": "X"}]}})
        bad = make_call("putPet", {"pet-id": 7, "body": {"age": 3}})
        events = run_calls(manager, show, put, bad, allowed=("*",))
    assert [event.outcome for event in events] == ["succeeded", "succeeded", "failed"]
    assert "'body.name'" in events[2].result["error"]
    by_method = {request["method"]: request for request in server.requests}
    assert by_method["GET"]["path"] == "/pets/7?fields%5B%5D=a&fields%5B%5D=b"
    assert by_method["GET"]["headers"]["X-Trace"] == "t"
    assert json.loads(by_method["PUT"]["body"])["name"] == "Rex"


def test_operations_can_be_chosen_and_documents_read_from_files(tmp_path: Path) -> None:
    """Issue 6: globs choose operations; a document may be a file beside the spec."""
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    manager = make_manager(
        tmp_path, "api.json", include=["*Pet", "upload"], exclude=["delete*"], prefix="zoo_"
    )
    assert manager.names() == ("zoo_putPet",)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("gone.yaml", "cannot be read"),
        ({"swagger": "2.0"}, "not an OpenAPI 3"),
        ({"openapi": "3.1.0", "paths": {}}, "add base_url"),
    ],
)
def test_unusable_documents_are_explained(tmp_path: Path, document: Any, words: str) -> None:
    """Issue 6: a document that is unreadable, not OpenAPI 3 or without an address is a `SpecError`."""
    with pytest.raises(SpecError) as caught:
        make_manager(tmp_path, document)
    assert words in str(caught.value)
    assert "tools.openapi[0]" in str(caught.value)
