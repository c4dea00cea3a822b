"""Loads questions and answers of the Berkeley Function-Calling Leaderboard (BFCL) as cases of a suite.

The benchmark's tool definitions use type names of their own (`dict`, `float`, `tuple`, `any`, names of
Java and JavaScript), which become JSON Schema here. Its answers list every accepted value of each
argument. `""` among the values means that the argument may be left out.

Source: github.com/ShishirPatil/gorilla, berkeley-function-call-leaderboard, version 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolchart.states.messages import ToolDefinition
from toolchart.tools.formats import make_portable_name
from toolchart.tools.validation.cases import Case, ExpectedCall

_TYPES: dict[str, str | None] = {
    "dict": "object",
    "object": "object",
    "hashmap": "object",
    "float": "number",
    "double": "number",
    "number": "number",
    "integer": "integer",
    "long": "integer",
    "short": "integer",
    "byte": "integer",
    "string": "string",
    "char": "string",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "list": "array",
    "arraylist": "array",
    "any": None,
}
"""JSON Schema type of each type name of the benchmark, in lower case; None means any value."""

_COPIED_KEYWORDS = ("description", "enum", "default", "minItems", "maxItems", "format")

_OPTIONAL_MARK = ""
"""This among the accepted values of an argument means that it may be left out."""


def convert_schema(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a parameter, or a whole parameter object, to JSON Schema (2020-12).

    A parameter whose default is null also accepts null. An `enum` of an array applies to its items.
    """
    schema: dict[str, Any] = {}
    json_type = _TYPES.get(str(data.get("type", "any")).lower())
    is_nullable = "default" in data and data["default"] is None
    if json_type is not None:
        schema["type"] = [json_type, "null"] if is_nullable else json_type
    schema |= {key: data[key] for key in _COPIED_KEYWORDS if key in data}
    if (
        "enum" in schema
        and json_type == "array"
        and not any(isinstance(option, list) for option in schema["enum"])
    ):
        data = {**data, "items": {**data.get("items", {}), "enum": schema.pop("enum")}}
    if "enum" in schema and is_nullable and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(data.get("properties"), Mapping):
        schema["properties"] = {
            name: convert_schema(property_data) for name, property_data in data["properties"].items()
        }
        required = [name for name in data.get("required", ()) if name in schema["properties"]]
        if required:
            schema["required"] = required
    if isinstance(data.get("items"), Mapping):
        schema["items"] = convert_schema(data["items"])
    if isinstance(data.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = convert_schema(data["additionalProperties"])
    return schema


def _convert_definitions(
    functions: Sequence[Mapping[str, Any]],
) -> tuple[tuple[ToolDefinition, ...], dict[str, str]]:
    """Convert the benchmark's functions to tool definitions with names that every provider accepts.

    Returns:
        The definitions, and the new name of each original name.
    """
    definitions: list[ToolDefinition] = []
    names: dict[str, str] = {}
    for function in functions:
        name = make_portable_name(function["name"], names.values())
        names[function["name"]] = name
        parameters = {"type": "object", "properties": {}, **convert_schema(function["parameters"])}
        definitions.append(
            ToolDefinition(name=name, description=function["description"], parameters=parameters)
        )
    return tuple(definitions), names


def _parse_category(question_id: str) -> str:
    """The category in the id of a question: `live_simple` for `live_simple_3-2-0`."""
    head, _, tail = question_id.rpartition("_")
    return head if tail[:1].isdigit() else question_id


def load_bfcl(questions: Path) -> list[Case]:
    """The cases of one file of single-turn questions.

    The accepted answers are those of the file of the same name in `possible_answer`, beside the questions.
    """
    answers = questions.parent / "possible_answer" / questions.name
    accepted = {row["id"]: row["ground_truth"] for row in _read_rows(answers)} if answers.exists() else {}
    return [_make_case(question, accepted.get(question["id"], ())) for question in _read_rows(questions)]


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _make_case(question: Mapping[str, Any], accepted: Sequence[Mapping[str, Any]]) -> Case:
    definitions, names = _convert_definitions(question["function"])
    category = _parse_category(question["id"])
    calls = [
        ExpectedCall(name=names[name], arguments=dict(arguments))
        for call in accepted
        for name, arguments in call.items()
    ]
    return Case(
        id=question["id"],
        category=category,
        messages=tuple((message["role"], message["content"]) for message in question["question"][0]),
        tools=definitions,
        calls=tuple(calls),
        any_call="relevance" in category and "irrelevance" not in category,
    )


def iterate_accepted_arguments(expected: ExpectedCall) -> Iterator[dict[str, Any]]:
    """Argument objects that the answer accepts; each accepted value occurs in at least one."""
    names = list(expected.arguments)
    choices = [expected.arguments[name] for name in names]
    longest = max((len(values) for values in choices), default=1)
    for index in range(max(1, longest)):
        picked_values = {
            name: values[index % len(values)] for name, values in zip(names, choices, strict=True) if values
        }
        yield {
            name: _pick_plain_value(value)
            for name, value in picked_values.items()
            if not (isinstance(value, str) and value == _OPTIONAL_MARK)
        }


def _pick_plain_value(value: Any) -> Any:
    """One plain value of an accepted value, whose objects hold a list of alternatives for each key."""
    if isinstance(value, Mapping):
        plain_fields: dict[str, Any] = {}
        for key, options in value.items():
            if not isinstance(options, list):
                plain_fields[key] = options
                continue
            present_options = [item for item in options if item != _OPTIONAL_MARK]
            if present_options:
                plain_fields[key] = _pick_plain_value(present_options[0])
        return plain_fields
    if isinstance(value, list):
        return [_pick_plain_value(item) for item in value]
    return value
