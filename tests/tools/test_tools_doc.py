"""docs/tools.md is correct: its examples load and run, and its lists match the code."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from toolchart.app.cli import cli
from toolchart.engine.runtime.model_hosts import build_embedder_factory
from toolchart.specs.loader import parse_spec
from toolchart.specs.turn_plan import plan_turn
from toolchart.states.chart.yaml_document import parse_document
from toolchart.states.errors import SpecError
from toolchart.tools.approval import OPERATORS
from toolchart.tools.builtin import BUILTIN_FACTORIES, BUILTINS
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.documents import SEARCH_SETTINGS as DOCUMENT_SETTINGS
from toolchart.tools.sources.entry_settings import RunSettings
from toolchart.tools.sources.http.settings import HttpSettings
from toolchart.tools.sources.mcp import McpSettings
from toolchart.tools.sources.openapi import OpenApiSettings
from toolchart.tools.sources.registry_entries import INTERNAL_SERVICES
from toolchart.tools.validation.suites import load_suite

DOC = (Path(__file__).resolve().parents[2] / "docs" / "tools.md").read_text("utf-8")
REST = {
    "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["x"]}},
    "responses": [{"llm": "m", "tools": {"enabled": True}}],
}


def find_examples(kind: str) -> list[str]:
    """The code blocks of one language."""
    examples = re.findall(rf"```{kind}\n(.*?)```", DOC, re.DOTALL)
    assert examples
    return examples


@pytest.mark.parametrize("block", find_examples("yaml"))
def test_every_spec_loads_without_a_warning(block: str, tmp_path: Path) -> None:
    """Each YAML example loads as part of an agent without a warning, and a turn can be planned."""
    data: dict[str, Any] = {**REST, **yaml.safe_load(block)}
    spec = parse_spec(parse_document(yaml.safe_dump(data), "tools.md"))
    assert spec.warnings == ()
    assert spec.tools is not None
    for settings in spec.tools.mcp.values():
        McpSettings.model_validate(settings)
    for settings in spec.tools.openapi:
        OpenApiSettings.model_validate(settings)
    config = spec.tools.model_copy(update={"mcp": {}, "openapi": []})
    manager = ToolManager.from_config(
        config,
        base_folder=tmp_path,
        approval=spec.approval,
        output=spec.output,
        make_embedder=build_embedder_factory(spec),
    )
    assert manager.warnings == ()
    assert len(manager.names()) == len(config.registry)
    variables = {"user_message": "x", "rag_context": "y"}
    assert plan_turn(spec, spec.responses[0], variables, manager.names()).warnings == ()


@pytest.mark.parametrize("block", find_examples("python"))
def test_every_program_runs(block: str, tmp_path: Path) -> None:
    """Each Python example runs; it asserts its own claims."""
    program = tmp_path / "program.py"
    program.write_text(block, "utf-8")
    runpy.run_path(str(program))


@pytest.mark.parametrize("line", "".join(find_examples("console")).splitlines())
def test_every_command_line_parses(line: str) -> None:
    """Each command line parses, with its options."""
    words = shlex.split(line.removeprefix("$ toolchart "))
    group = cli.get_command(click.Context(cli), words[0])
    assert isinstance(group, click.Group)
    command = group.commands[words[1]]
    assert command.make_context(
        words[1], words[2:], parent=click.Context(cli, **cli.context_settings)
    ).params["spec"]


def test_the_suite_loads(tmp_path: Path) -> None:
    """The example of a suite loads."""
    (block,) = find_examples("yaml suite")
    (tmp_path / "cases.yaml").write_text(block, "utf-8")
    assert [case.id for case in load_suite(str(tmp_path / "cases.yaml"))] == ["one_city", "no_call"]


def test_the_lists_match_the_code() -> None:
    """The lists of builtins, condition operators and entry keys are those of the code."""
    table = re.findall(r"^\| `(\w+)` \| ", DOC.split("## Builtins")[1].split("##")[0], re.MULTILINE)
    assert set(table) == {*BUILTINS, *BUILTIN_FACTORIES, *INTERNAL_SERVICES}
    (operators,) = re.findall(r"a mapping the operators (.*?); all", DOC, re.DOTALL)
    assert set(re.findall(r"\w+", operators)) - {"and"} == set(OPERATORS)
    for key in RunSettings.model_fields:
        assert f"`{key}" in DOC or key == "memory_mb", key


OWN_KEYS = sorted({*HttpSettings.model_fields, *RunSettings.model_fields, *DOCUMENT_SETTINGS, "root"})


@pytest.mark.parametrize("key", OWN_KEYS)
@pytest.mark.parametrize("inside", [True, False])
def test_no_setting_of_a_tool_counts_as_a_misspelling(key: str, inside: bool) -> None:
    """S2.5: every setting of a tool type is accepted; `headers` is no misspelt `handler`."""
    implementation: dict[str, Any] = {"type": "mock", **({key: None} if inside else {})}
    entry = {"name": "one", "implementation": implementation, **({} if inside else {key: None})}
    data = {**REST, "tools": {"registry": [entry]}}
    assert parse_spec(parse_document(yaml.safe_dump(data), "x.yaml")).warnings == ()


def test_a_misspelt_setting_is_an_error() -> None:
    """S2.5: a key that is similar to a known one is an error that suggests it."""
    entry = {"name": "one", "implementation": {"type": "mock", "mock_respnse": 1}}
    data = {**REST, "tools": {"registry": [entry]}}
    with pytest.raises(SpecError, match="did you mean 'mock_response'"):
        parse_spec(parse_document(yaml.safe_dump(data), "x.yaml"))
