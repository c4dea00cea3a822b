"""The leaderboard's questions and answers: converted, checked, mutated, scored."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from recorded import RECORDED, needs_recorded
from tool_calls import call, executor, made, ran

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.execution.arguments import ArgumentCheck, check_schema
from toolchart.tools.formats import NAME, convert
from toolchart.tools.validation.bfcl import accepted_arguments, load_bfcl, schema_of
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.scoring import problem_of

BFCL = RECORDED / "bfcl"

# Answers that contradict their own question. An accepted value is outside the listed ones:
OUTSIDE = {
    "live_multiple_190-84-0",
    "live_multiple_302-131-1",
    "live_multiple_304-131-3",
    "live_multiple_306-131-5",
    "live_multiple_308-131-7",
    "live_multiple_414-141-3",
    "live_multiple_416-141-5",
    "live_multiple_424-141-13",
    "live_multiple_552-153-1",
    "live_multiple_596-158-2",
    "live_multiple_732-167-3",
    "live_multiple_734-167-5",
    "live_multiple_736-167-7",
    "live_multiple_750-169-5",
    "live_multiple_756-169-11",
    "live_multiple_848-179-2",
    "live_multiple_870-182-7",
    "live_multiple_956-203-0",
    "live_parallel_multiple_2-2-0",
    "multiple_76",
    "parallel_multiple_194",
    "simple_python_358",
    *(
        f"live_simple_{142 + 2 * n}-{94 if n == 0 else 95}-{1 if n < 2 else 2 * n - 1}"
        for n in range(10)
    ),
}
# A required parameter may be left out:
MISSING = {
    "live_multiple_68-29-0",
    "live_multiple_114-44-1",
    "live_multiple_144-56-0",
    "live_multiple_834-178-9",
    "live_multiple_906-186-3",
    "live_multiple_964-207-0",
    "live_simple_106-63-0",
    "live_simple_112-68-0",
    "parallel_88",
    "simple_python_200",
}
# The value is of another type than the parameter (`dontcare` for a year, null for a number):
OTHER_TYPE = {
    "live_multiple_338-133-2",
    "live_multiple_342-133-6",
    "live_multiple_344-133-8",
    "live_multiple_350-133-14",
    "live_multiple_352-133-16",
    "live_multiple_354-133-18",
    "parallel_152",
    "parallel_multiple_94",
}
# The value is the name of a variable or constant of a Java or JavaScript program:
VARIABLE = {
    "simple_java_26",
    "simple_java_38",
    "simple_java_58",
    "simple_java_72",
    "simple_java_82",
    "simple_java_88",
    "simple_javascript_32",
}
# A parameter that the tool does not have is given (the schemas do not forbid it):
UNKNOWN = {
    "live_multiple_862-181-3",
    "live_multiple_964-207-0",
    "parallel_multiple_12",
    "parallel_multiple_26",
}
# No call can be right by the benchmark's own rules: it may leave out what is required.
UNSCORABLE = UNKNOWN | {"live_simple_106-63-0", "live_simple_112-68-0"}
EXCEPTIONS = OUTSIDE | MISSING | OTHER_TYPE | VARIABLE


@cache
def cases() -> list[Case]:
    """Every single-turn case."""
    files = sorted(BFCL.glob("BFCL_*.jsonl"))
    return [case for file in files if "multi_turn" not in file.name for case in load_bfcl(file)]


def definitions() -> Iterator[ToolDefinition]:
    """Every function definition, those of the multi-turn worlds included."""
    for case in cases():
        yield from case.tools
    for file in sorted((BFCL / "multi_turn_func_doc").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            data = json.loads(line)
            yield ToolDefinition(
                name=data["name"],
                description=data["description"],
                parameters=schema_of(data["parameters"]),
            )


def answers() -> Iterator[tuple[Case, ToolDefinition, dict[str, Any]]]:
    """Every accepted argument object with its tool."""
    for case in cases():
        tools = {tool.name: tool for tool in case.tools}
        for expected in case.calls:
            for arguments in accepted_arguments(expected):
                yield case, tools[expected.name], arguments


KEYS = ("parameters", "parameters_json_schema", "input_schema")
"""Where each form has the schema."""


@needs_recorded
def test_every_definition_converts_to_every_form() -> None:
    """S2.2, issue 6: all definitions are good schemas with portable names in every form."""
    count = 0
    for tool in definitions():
        count += 1
        check_schema(tool.parameters, tool.name)
        for provider in ("openai", "anthropic", "ollama", "gemini"):
            (entry,) = convert([tool], provider).tools
            inner = entry.get("function") or entry.get("function_declarations", [entry])[0]
            told = next(inner[key] for key in KEYS if key in inner)
            assert NAME.fullmatch(inner["name"])
            assert set(told["properties"]) == set(tool.parameters["properties"])
    assert count > 4000


@needs_recorded
def test_every_accepted_answer_fits_its_schema() -> None:
    """S2.6, issue 6: each accepted answer validates, but for those that contradict themselves."""
    unfit = set()
    count = 0
    for case, tool, arguments in answers():
        count += 1
        problem = ArgumentCheck(tool.parameters, tool.name, trusted=True).problem(arguments)
        if problem is not None:
            unfit.add(case.id)
    assert count > 2500
    assert unfit == EXCEPTIONS


@needs_recorded
def test_the_compiled_check_agrees_on_real_schemas() -> None:
    """Issue 6: on the benchmark's schemas the quick check says what jsonschema says."""
    for number, (_, tool, arguments) in enumerate(answers()):
        check = ArgumentCheck(tool.parameters, tool.name, trusted=True)
        reference = Draft202012Validator(tool.parameters)
        tried = [arguments, *(bad for _, bad in mutations(tool, arguments))]
        for one in tried[: None if number % 10 == 0 else 2]:
            assert check.valid(one) == reference.is_valid(one), (tool.name, one)


def mutations(tool: ToolDefinition, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Wrong variants of good arguments, each with the parameter that is wrong."""
    for name, schema in tool.parameters["properties"].items():
        if name not in arguments:
            continue
        changed = copy.deepcopy(arguments)
        if name in tool.parameters.get("required", ()):
            yield name, {key: value for key, value in arguments.items() if key != name}
        if "type" in schema:
            changed[name] = {"wrong": "type"} if schema["type"] != "object" else [None]
            yield name, changed
        if "enum" in schema and schema.get("type") == "string":
            yield name, {**arguments, name: "no such value at all"}


@needs_recorded
def test_mutated_answers_are_rejected_by_name() -> None:
    """S2.6, issue 6: a wrong type, a missing and an unlisted value are refused, naming it."""
    count = 0
    for case, tool, arguments in answers():
        if case.id in EXCEPTIONS:
            continue
        runner = executor(made(tool.name, lambda given: given, tool.parameters))
        for name, wrong in list(mutations(tool, arguments))[:3]:
            verdict = runner.review(call(tool.name, wrong), (tool.name,))
            count += 1
            assert verdict.ruling == "invalid", (case.id, name, wrong)
            assert repr(name)[1:-1] in str(verdict.reason)
    assert count > 3000


@needs_recorded
def test_good_answers_run_unchanged() -> None:
    """S3.5: arguments that fit are neither repaired nor dropped."""
    for number, (case, tool, arguments) in enumerate(answers()):
        if case.id in EXCEPTIONS | UNKNOWN or number % 20:
            continue
        seen: list[Any] = []
        (event,) = ran(
            executor(made(tool.name, seen.append, tool.parameters)), call(tool.name, arguments)
        )
        assert (event.notes, seen) == ((), [arguments])


@needs_recorded
def test_the_accepted_answers_score_as_right_and_others_do_not() -> None:
    """Issue 6: scoring accepts every accepted answer, and refuses it once a call is missing."""
    for case in cases():
        calls = [
            ToolCall(name=expected.name, arguments=next(accepted_arguments(expected)))
            for expected in case.calls
        ]
        if case.any_call:
            assert problem_of(case, []) is not None
            continue
        if case.id in UNSCORABLE:
            continue
        assert problem_of(case, list(reversed(calls))) is None, case.id
        if calls:
            assert problem_of(case, calls[1:]) is not None
        else:
            assert problem_of(case, [ToolCall(name="anything", arguments={})]) is not None


def test_type_words_of_every_language_are_known() -> None:
    """Issue 6: the benchmark's own type words become JSON Schema's."""
    schema = schema_of(
        {
            "type": "dict",
            "properties": {
                "a": {"type": "float"},
                "b": {"type": "tuple", "items": {"type": "String"}},
                "c": {"type": "any"},
                "d": {"type": "HashMap"},
                "e": {"type": "string", "default": None},
                "f": {"type": "array", "enum": ["x"], "items": {"type": "string"}},
            },
            "required": ["a", "gone"],
        }
    )
    assert schema["required"] == ["a"]
    assert schema["properties"] == {
        "a": {"type": "number"},
        "b": {"type": "array", "items": {"type": "string"}},
        "c": {},
        "d": {"type": "object"},
        "e": {"type": ["string", "null"], "default": None},
        "f": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
    }


def test_a_file_that_is_none_of_theirs_is_named(tmp_path: Path) -> None:
    """Issue 6: a damaged or foreign file is an error with its place."""
    file = tmp_path / "questions.jsonl"
    for content, words in (('{"id": "x"}', "no file of BFCL"), ("{", "no JSON")):
        file.write_text(content)
        with pytest.raises(SpecError, match=words):
            load_bfcl(file)
