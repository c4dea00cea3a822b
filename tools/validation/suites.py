"""Loads suites of test cases: the shipped `basic` suite, and a user's own YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolchart.specs.document_files import read_regular_file
from toolchart.states.chart.yaml_document import SPEC_LIMITS, read_yaml
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.messages import ToolDefinition
from toolchart.tools.schemas.checks import check_schema
from toolchart.tools.validation.cases import Case, ExpectedCall

_BASIC_SUITE = Path(__file__).with_name("basic_suite.yaml")


def load_suite(name: str) -> list[Case]:
    """Load the cases of a suite.

    Args:
        name: `basic`, or the path of a suite file.

    Raises:
        SpecError: there is no such suite, or a file cannot be used.
    """
    if name == "basic":
        return _load_suite_file(_BASIC_SUITE)
    path = Path(name)
    if not path.exists():
        raise SpecError(
            f"there is no suite {name!r}", hint=f"{suggest_name(name, ['basic'])}; or the path of a file"
        )
    return _load_suite_file(path)


# -- suite files ---------------------------------------------------------------------------------

_CASE_KEYS = ("id", "category", "message", "messages", "tools", "calls", "any_call", "failing", "comment")


def _load_suite_file(path: Path) -> list[Case]:
    """Load a YAML or JSON file: `{tools: [...], cases: [{id, category, message, calls: [...]}]}`.

    A call is `{name, arguments}`. An argument is one value, or a list of accepted values under `any_of`.

    Raises:
        SpecError: the file cannot be read, or a part of it is wrong; names the part.
    """
    try:
        text = read_regular_file(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise SpecError(f"cannot be read: {reason}", file=str(path)) from None
    data = read_yaml(text, str(path), limits=SPEC_LIMITS).data
    if not isinstance(data, Mapping) or not isinstance(data.get("cases"), list):
        raise SpecError("expected a mapping with `tools` and `cases`", file=str(path))
    shared_tools = tuple(_parse_tool(item, path) for item in data.get("tools") or ())
    return [
        _parse_case(item, f"cases[{index}]", shared_tools, path) for index, item in enumerate(data["cases"])
    ]


def _parse_tool(data: Any, path: Path) -> ToolDefinition:
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise SpecError("a tool has a name, a description and parameters", file=str(path))
    parameters = data.get("parameters") or {"type": "object", "properties": {}}
    check_schema(parameters, data["name"])
    return ToolDefinition(
        name=data["name"], description=str(data.get("description") or ""), parameters=parameters
    )


def _parse_case(data: Any, case_path: str, shared_tools: tuple[ToolDefinition, ...], path: Path) -> Case:
    if not isinstance(data, Mapping):
        raise SpecError("expected a case", file=str(path), path=case_path)
    for key in data:
        if key not in _CASE_KEYS:
            hint = suggest_name(str(key), _CASE_KEYS)
            raise SpecError(f"unknown key {key!r}", file=str(path), path=case_path, hint=hint)
    any_call = data.get("any_call", False)
    if not isinstance(any_call, bool):
        raise SpecError(f"`any_call` is true or false, not {any_call!r}", file=str(path), path=case_path)
    tools = tuple(_parse_tool(item, path) for item in data.get("tools") or ()) or shared_tools
    tool_names = {tool.name for tool in tools}
    calls = tuple(
        _parse_expected_call(item, tool_names, f"{case_path}.calls", path) for item in data.get("calls") or ()
    )
    messages = data.get("messages") or [{"role": "user", "content": data.get("message", "")}]
    return Case(
        id=str(data.get("id", case_path)),
        category=str(data.get("category", "own")),
        messages=tuple((str(item["role"]), str(item["content"])) for item in messages),
        tools=tools,
        calls=calls,
        any_call=any_call,
        failing={str(name): str(text) for name, text in (data.get("failing") or {}).items()},
    )


def _parse_expected_call(data: Any, tool_names: set[str], case_path: str, path: Path) -> ExpectedCall:
    name = data.get("name") if isinstance(data, Mapping) else None
    if name not in tool_names:
        hint = suggest_name(str(name), tool_names) if tool_names else "name the tools of the case"
        raise SpecError(f"no tool {name!r} is offered", file=str(path), path=case_path, hint=hint)
    arguments = {
        str(key): value["any_of"] if isinstance(value, Mapping) and value.keys() == {"any_of"} else [value]
        for key, value in (data.get("arguments") or {}).items()
    }
    return ExpectedCall(name=str(name), arguments=arguments)
