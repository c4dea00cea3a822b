"""docs/tools.md says what is so: its examples load and run, and its lists are the code's."""

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
from toolchart.engine.runtime.model_hosts import embedder_of
from toolchart.specs.loader import spec_of
from toolchart.specs.turn_plan import plan_turn
from toolchart.specs.yaml_document import parse_document
from toolchart.states.errors import SpecError
from toolchart.tools.approval import OPERATORS
from toolchart.tools.builtin import BUILTINS, WITH_SETTINGS
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.documents import SETTINGS as DOCUMENT_SETTINGS
from toolchart.tools.sources.entry_settings import RunSettings
from toolchart.tools.sources.http.settings import HttpSettings
from toolchart.tools.sources.mcp import McpSettings
from toolchart.tools.sources.openapi import OpenApiSettings
from toolchart.tools.sources.registry_entries import INTERNAL
from toolchart.tools.validation.suites import load_suite

DOC = (Path(__file__).resolve().parents[2] / "docs" / "tools.md").read_text("utf-8")
REST = {
    "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["x"]}},
    "responses": [{"llm": "m", "tools": {}}],
}


def blocks(kind: str) -> list[str]:
    """The examples of a kind."""
    found = re.findall(rf"```{kind}\n(.*?)```", DOC, re.DOTALL)
    assert found
    return found


@pytest.mark.parametrize("block", blocks("yaml"))
def test_every_spec_loads_without_a_warning(block: str, tmp_path: Path) -> None:
    """Each example is a part of an agent: its keys are known, its tools are there, a turn is planned."""
    data: dict[str, Any] = {**REST, **yaml.safe_load(block)}
    spec = spec_of(parse_document(yaml.safe_dump(data), "tools.md"))
    assert spec.warnings == ()
    assert spec.tools is not None
    for settings in spec.tools.mcp.values():
        McpSettings.model_validate(settings)
    for settings in spec.tools.openapi:
        OpenApiSettings.model_validate(settings)
    config = spec.tools.model_copy(update={"mcp": {}, "openapi": []})
    made = ToolManager.from_config(
        config,
        beside=tmp_path,
        approval=spec.approval,
        output=spec.output,
        embedder=embedder_of(spec),
    )
    assert made.warnings == ()
    assert len(made.names()) == len(config.registry)
    given = {"user_message": "x", "rag_context": "y"}
    assert plan_turn(spec, spec.responses[0], given, made.names()).warnings == ()


@pytest.mark.parametrize("block", blocks("python"))
def test_every_program_runs(block: str, tmp_path: Path) -> None:
    """Each program runs; what it claims is asserted in it."""
    program = tmp_path / "program.py"
    program.write_text(block, "utf-8")
    runpy.run_path(str(program))


@pytest.mark.parametrize("line", "".join(blocks("console")).splitlines())
def test_every_command_is_one(line: str) -> None:
    """Each command line is understood, its options too."""
    words = shlex.split(line.removeprefix("$ toolchart "))
    group = cli.get_command(click.Context(cli), words[0])
    assert isinstance(group, click.Group)
    command = group.commands[words[1]]
    assert command.make_context(words[1], words[2:], parent=click.Context(cli)).params["spec"]


def test_the_suite_loads(tmp_path: Path) -> None:
    """The example of an own suite is one."""
    (block,) = blocks("yaml suite")
    (tmp_path / "cases.yaml").write_text(block, "utf-8")
    assert [case.id for case in load_suite(str(tmp_path / "cases.yaml"))] == ["one_city", "no_call"]


def test_the_lists_are_the_code_s() -> None:
    """Builtins, the operators of conditions and the keys of an entry are those that there are."""
    table = re.findall(r"^\| `(\w+)` \| ", DOC.split("## Builtins")[1].split("##")[0], re.MULTILINE)
    assert set(table) == {*BUILTINS, *WITH_SETTINGS, *INTERNAL}
    (operators,) = re.findall(r"a mapping the operators (.*?); all", DOC, re.DOTALL)
    assert set(re.findall(r"\w+", operators)) - {"and"} == set(OPERATORS)
    for key in RunSettings.model_fields:
        assert f"`{key}" in DOC or key == "memory_mb", key


OWN_KEYS = sorted(
    {*HttpSettings.model_fields, *RunSettings.model_fields, *DOCUMENT_SETTINGS, "root"}
)


@pytest.mark.parametrize("key", OWN_KEYS)
@pytest.mark.parametrize("inside", [True, False])
def test_no_setting_of_a_tool_is_taken_for_a_slip(key: str, inside: bool) -> None:
    """S2.5: what a type of tool takes may stand in a spec; `headers` is no misspelt `handler`."""
    does: dict[str, Any] = {"type": "mock", **({key: None} if inside else {})}
    entry = {"name": "one", "implementation": does, **({} if inside else {key: None})}
    data = {**REST, "tools": {"registry": [entry]}}
    assert spec_of(parse_document(yaml.safe_dump(data), "x.yaml")).warnings == ()


def test_a_slip_is_still_one() -> None:
    """S2.5: a key that is hardly different from a known one is an error that names it."""
    entry = {"name": "one", "implementation": {"type": "mock", "mock_respnse": 1}}
    data = {**REST, "tools": {"registry": [entry]}}
    with pytest.raises(SpecError, match="did you mean 'mock_response'"):
        spec_of(parse_document(yaml.safe_dump(data), "x.yaml"))
