"""Tests of loading tools from `tools.registry`: every type, both spellings, warnings, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tool_calls import make_call, run_calls
from web import serve_web

from toolchart.specs.models import ToolsConfig
from toolchart.states.errors import SpecError
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.documents import Hit


def make_manager(*entries: dict[str, Any], beside: Path | None = None, **options: Any) -> ToolManager:
    """A manager of these entries."""
    section = {"registry": list(entries), **options.pop("section", {})}
    return ToolManager.from_config(ToolsConfig.model_validate(section), base_folder=beside, **options)


def test_both_spellings_activate_a_builtin() -> None:
    """S2.5: a name alone and a nested implementation both work; the description may be replaced."""
    manager = make_manager(
        {"name": "calculator"},
        {
            "name": "sum",
            "description": "Sums.",
            "implementation": {"type": "builtin", "handler": "calculator"},
        },
    )
    assert manager.names() == ("calculator", "sum")
    tool = manager.registry.get("sum")
    assert tool is not None
    assert tool.definition.description == "Sums."
    assert tool.definition.parameters == BUILTINS["calculator"].definition.parameters
    (event,) = run_calls(manager, make_call("sum", {"expression": "17 * (23 + 4)"}))
    assert event.result["result"] == 459


def test_unknown_builtins_are_left_out_with_the_nearest_name() -> None:
    """Issue 6: an entry with an unknown handler is a warning, and the other entries load."""
    manager = make_manager({"name": "calculater"}, {"name": "echo"})
    assert manager.names() == ("echo",)
    assert manager.warnings == (
        "tool 'calculater' left out: there is no builtin 'calculater'; did you mean 'calculator'?",
    )


def test_a_duplicate_is_an_error() -> None:
    """Issue 6: the same name twice is an error of the spec."""
    with pytest.raises(SpecError, match="two tools 'echo'"):
        make_manager({"name": "echo"}, {"name": "echo"})


@pytest.mark.parametrize("answer", [None, 0, False, "text", [1, {"a": None}], {"deep": {"x": 1.5}}])
def test_a_mock_returns_its_response(answer: Any) -> None:
    """S2.5: any JSON value is a mock's answer, unchanged."""
    entry = {"name": "m", "implementation": {"type": "mock", "mock_response": answer}}
    (event,) = run_calls(make_manager(entry), make_call("m", {"anything": 1}))
    assert event.result["result"] == answer


def test_a_mock_may_use_its_arguments() -> None:
    """S2.5: `{{name}}` in a mock's answer stands for an argument; other braces stay."""
    answer = {"text": "{{city}}: {{days}} of {{rain}}", "n": ["{{city}}"], "other": "{{unknown}}"}
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "rain": {}},
    }
    entry = {
        "name": "m",
        "parameters": parameters,
        "implementation": {"type": "mock", "mock_response": answer},
    }
    (event,) = run_calls(make_manager(entry), make_call("m", {"city": "{{days}}", "days": 3}))
    assert event.result["result"] == {"text": "{{days}}: 3 of ", "n": ["{{days}}"], "other": "{{unknown}}"}


def test_a_mock_becomes_http_by_config_alone() -> None:
    """S2.5: the same call, the same definition; only `implementation` changes."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    entry = {"name": "weather", "description": "The weather.", "parameters": parameters}
    mock = {"type": "mock", "mock_response": {"sky": "blue"}}

    def answer(request: dict[str, Any]) -> Any:
        body = json.dumps({"data": {"sky": "blue"}, "q": request["path"]}).encode()
        return 200, {"Content-Type": "application/json"}, body

    with serve_web(answer) as server:
        http = {
            "type": "http",
            "url": f"{server.url}/w",
            "params_mapping": {"city": "q"},
            "response_path": "$.data",
            "allow_hosts": ["127.0.0.1"],
        }
        before, after = (
            make_manager({**entry, "implementation": implementation}) for implementation in (mock, http)
        )
        results = [run_calls(m, make_call("weather", {"city": "Brno"}))[0].result for m in (before, after)]
    assert before.definitions() == after.definitions()
    assert results[0]["result"] == results[1]["result"] == {"sky": "blue"}
    assert server.requests[0]["path"] == "/w?q=Brno"


def test_run_settings_reach_the_tool() -> None:
    """Issue 6: time-out, idempotence, approval, risk, cache and the rest come from the entry."""
    manager = make_manager(
        {
            "name": "echo",
            "timeout_ms": 1500,
            "requires_approval": True,
            "risk": "medium",
            "parallel": False,
            "repeatable": True,
            "cache_ttl_s": 5,
            "max_result_size": 10,
        },
        {"name": "calculator"},
        section={"default_timeout_ms": 700, "parallel": 2},
    )
    echo, calculator = manager.registry
    assert (echo.timeout_s, echo.requires_approval, echo.risk) == (1.5, True, "medium")
    assert (echo.parallel, echo.repeatable, echo.cacheable, echo.cache_ttl_s) == (False, True, True, 5)
    assert (echo.max_result_size, calculator.timeout_s) == (10, 0.7)
    assert manager.warnings == ()


def test_a_setting_that_a_tool_does_not_have_is_named() -> None:
    """Issue 6: a misspelt setting is a warning that names the most similar setting."""
    manager = make_manager({"name": "echo", "cacheble": True})
    assert "'cacheble' is not used; did you mean 'cacheable'" in manager.warnings[0]


def test_python_functions_by_name_and_in_a_process() -> None:
    """Issue 6: an entry may name a function of a module, and have it run in a process."""
    entry = {
        "name": "base",
        "isolation": "process",
        "implementation": {"type": "python", "handler": "posixpath:basename"},
    }
    schema = {"type": "object", "properties": {"p": {"type": "string"}}, "required": ["p"]}
    (event,) = run_calls(make_manager({**entry, "parameters": schema}), make_call("base", {"p": "/a/b.txt"}))
    assert event.result["result"] == "b.txt"
    for handler in ("posixpath:nothing", "no_such_module:f", "posixpath", None):
        broken = {"name": "x", "implementation": {"type": "python", "handler": handler}}
        with pytest.raises(SpecError, match="'x'"):
            make_manager(broken)
    with pytest.raises(SpecError, match="only Python tools"):
        make_manager({"name": "echo", "isolation": "process"})


def test_an_own_search_plugs_in_by_one_line() -> None:
    """Issue 6: a program's own search or function serves as an internal service."""

    class OwnSearch:
        def search(self, query: str, *, collection: str | None, limit: int) -> list[Hit]:
            hit = Hit(file="a", line=1, title="", snippet=query, text=query, score=1.0)
            return [hit] * limit

    def lookup(word: str) -> str:
        """Look a word up."""
        return word[::-1]

    manager = make_manager(
        {"name": "search_documents", "implementation": {"type": "internal"}},
        {"name": "dictionary", "implementation": {"type": "internal", "handler": "lookup"}},
        {"name": "nothing", "implementation": {"type": "internal", "handler": "lokup"}},
        services={"search_documents": OwnSearch(), "lookup": lookup},
    )
    search_event, word_event = run_calls(
        manager,
        make_call("search_documents", {"query": "x", "limit": 2}),
        make_call("dictionary", {"word": "ab"}),
    )
    assert [hit["snippet"] for hit in search_event.result["result"]["hits"]] == ["x", "x"]
    assert word_event.result["result"] == "ba"
    assert "no internal service 'lokup'; did you mean 'lookup'" in manager.warnings[0]


def test_output_and_approval_sections_are_read() -> None:
    """S3.6: the numbers of the output budget come from the spec; approval rules too."""
    manager = make_manager(
        {"name": "echo"},
        output={"per_tool": 30, "least": 10},
        approval=[{"tools": "echo", "when": {"text": {"contains": "secret"}}, "decision": "never"}],
    )
    assert manager.output.per_tool == 30
    assert manager.review(make_call("echo", {"text": "a secret"}), ("echo",)).ruling == "denied"
    assert manager.review(make_call("echo", {"text": "fine"}), ("echo",)).ruling == "run"
    with pytest.raises(SpecError, match=r"output\.totl"):
        make_manager(output={"totl": 1})


def test_files_and_documents_need_their_folder(tmp_path: Path) -> None:
    """Issue 6: a tool that reads files is an error without a folder."""
    for name in ("list_directory", "read_file", "search_documents"):
        with pytest.raises(SpecError, match=name):
            make_manager({"name": name}, beside=tmp_path)
    (tmp_path / "docs").mkdir()
    manager = make_manager({"name": "read_file", "root": "docs"}, beside=tmp_path)
    assert manager.warnings == ()


def test_loading_tools_stays_light() -> None:
    """DESIGN 12: making the builtin tools loads neither SymPy nor an HTTP library nor MCP."""
    code = (
        "import sys; from toolchart.specs.models import ToolsConfig;"
        "from toolchart.tools.manager import ToolManager;"
        "ToolManager.from_config(ToolsConfig.model_validate({'registry': [{'name': 'calculator'}]}));"
        "heavy = {'sympy', 'httpx', 'httpx2', 'mcp', 'jsonpath_ng', 'pypdf', 'jsonschema', 'sqlite3'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert run.stdout.strip() == "[]"
