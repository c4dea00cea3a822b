"""Questions and answers of the Berkeley Function-Calling Leaderboard, loaded as they are published.

Its definitions spell types of their own (`dict`, `float`, `tuple`, `any`, Java's and JavaScript's
names); here they become JSON Schema. Its answers list, per argument, every accepted value, where `""`
among them means that the argument may be left out.

Source: github.com/ShishirPatil/gorilla, berkeley-function-call-leaderboard, version 4.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.formats import portable_name
from toolchart.tools.validation.cases import Case, ExpectedCall

TYPES: dict[str, str | None] = {
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
"""Their type words, in lower case, as JSON Schema types; None: any value."""

_KEPT = ("description", "enum", "default", "minItems", "maxItems", "format")

MAY_BE_LEFT_OUT = ""
"""Among the accepted values of an argument: it may be left out."""


def schema_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter or a whole parameter object as JSON Schema (2020-12).

    A default of null says that null may be given; an `enum` beside an array lists its items.
    """
    schema: dict[str, Any] = {}
    kind = TYPES.get(str(data.get("type", "any")).lower())
    nullable = "default" in data and data["default"] is None
    if kind is not None:
        schema["type"] = [kind, "null"] if nullable else kind
    schema |= {key: data[key] for key in _KEPT if key in data}
    if (
        "enum" in schema
        and kind == "array"
        and not any(isinstance(e, list) for e in schema["enum"])
    ):
        data = {**data, "items": {**data.get("items", {}), "enum": schema.pop("enum")}}
    if "enum" in schema and nullable and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if isinstance(data.get("properties"), Mapping):
        schema["properties"] = {name: schema_of(one) for name, one in data["properties"].items()}
        required = [name for name in data.get("required", ()) if name in schema["properties"]]
        if required:
            schema["required"] = required
    if isinstance(data.get("items"), Mapping):
        schema["items"] = schema_of(data["items"])
    if isinstance(data.get("additionalProperties"), Mapping):
        schema["additionalProperties"] = schema_of(data["additionalProperties"])
    return schema


def definitions_of(
    functions: Sequence[Mapping[str, Any]],
) -> tuple[tuple[ToolDefinition, ...], dict[str, str]]:
    """The functions as definitions under portable names, and the portable name of each of theirs."""
    definitions: list[ToolDefinition] = []
    names: dict[str, str] = {}
    for function in functions:
        name = portable_name(function["name"], names.values())
        names[function["name"]] = name
        parameters = {"type": "object", "properties": {}, **schema_of(function["parameters"])}
        definitions.append(
            ToolDefinition(name=name, description=function["description"], parameters=parameters)
        )
    return tuple(definitions), names


def category_of(question_id: str) -> str:
    """`live_parallel_multiple` for `live_parallel_multiple_3-2-0`."""
    head, _, tail = question_id.rpartition("_")
    return head if tail[:1].isdigit() else question_id


def load_bfcl(questions: Path, answers: Path | None = None) -> list[Case]:
    """The cases of one file of questions, single turns with their answers.

    Args:
        answers: the file of accepted answers; without it, the one in `possible_answer` beside it.

    Raises:
        SpecError: a file that cannot be read, or is none of theirs.
    """
    if answers is None:
        answers = questions.parent / "possible_answer" / questions.name
    accepted = (
        {one["id"]: one["ground_truth"] for one in read_lines(answers)} if answers.exists() else {}
    )
    try:
        return [_case(one, accepted.get(one["id"])) for one in read_lines(questions)]
    except (KeyError, TypeError, IndexError) as error:
        raise SpecError(
            f"this is no file of BFCL questions: {type(error).__name__} {error}",
            file=str(questions),
        ) from None


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", file=str(path)) from None
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError:
                raise SpecError("is no JSON", file=str(path), line=number) from None


def _case(question: Mapping[str, Any], accepted: Any) -> Case:
    definitions, names = definitions_of(question["function"])
    category = category_of(question["id"])
    turns = question["question"]
    calls = None
    if accepted is not None:
        calls = tuple(
            ExpectedCall(name=names[name], arguments=dict(arguments))
            for call in accepted
            for name, arguments in call.items()
        )
    return Case(
        id=question["id"],
        category=category,
        messages=tuple((one["role"], one["content"]) for one in turns[0]),
        tools=definitions,
        calls=calls if calls is not None else (),
        any_call="relevance" in category and "irrelevance" not in category,
    )


def accepted_arguments(expected: ExpectedCall) -> Iterator[dict[str, Any]]:
    """Argument objects that the answer accepts: each accepted value at least once."""
    names = list(expected.arguments)
    choices = [expected.arguments[name] for name in names]
    longest = max((len(one) for one in choices), default=1)
    for place in range(max(1, longest)):
        picked = {
            name: one[place % len(one)] for name, one in zip(names, choices, strict=True) if one
        }
        yield {
            name: plain_answer(value)
            for name, value in picked.items()
            if not (isinstance(value, str) and value == MAY_BE_LEFT_OUT)
        }


def plain_answer(value: Any) -> Any:
    """An accepted value without the lists of alternatives inside it."""
    if isinstance(value, Mapping):
        filled: dict[str, Any] = {}
        for key, options in value.items():
            if not isinstance(options, list):
                filled[key] = options
                continue
            wanted = [one for one in options if one != MAY_BE_LEFT_OUT]
            if wanted:
                filled[key] = plain_answer(wanted[0])
        return filled
    if isinstance(value, list):
        return [plain_answer(one) for one in value]
    return value
