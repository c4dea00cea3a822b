"""The questions of a public benchmark: schemas for every provider, answers against schemas, and scoring."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from bfcl import iterate_accepted_arguments, load_bfcl
from jsonschema import Draft202012Validator
from recorded_traffic import CORPORA, get_root
from tool_calls import build_tool, make_call, make_executor, run_calls

from toolchart.states.messages import ToolCall, ToolDefinition
from toolchart.tools.formats import PORTABLE_NAME, convert_tools
from toolchart.tools.schemas.checks import ArgumentCheck, check_schema
from toolchart.tools.validation.cases import Case
from toolchart.tools.validation.scoring import find_problem

# Answers that contradict their own question. An accepted value is outside the listed ones:
OUTSIDE = {
    *("live_multiple_190-84-0", "live_multiple_302-131-1", "live_multiple_304-131-3"),
    *("live_multiple_306-131-5", "live_multiple_308-131-7", "live_multiple_414-141-3"),
    *("live_multiple_416-141-5", "live_multiple_424-141-13", "live_multiple_552-153-1"),
    *("live_multiple_596-158-2", "live_multiple_732-167-3", "live_multiple_734-167-5"),
    *("live_multiple_736-167-7", "live_multiple_750-169-5", "live_multiple_756-169-11"),
    *("live_multiple_848-179-2", "live_multiple_870-182-7", "live_multiple_956-203-0"),
    *("live_parallel_multiple_2-2-0", "multiple_76", "parallel_multiple_194", "simple_python_358"),
    *(f"live_simple_{142 + 2 * n}-{94 if n == 0 else 95}-{1 if n < 2 else 2 * n - 1}" for n in range(10)),
}
# A required parameter may be left out:
MISSING = {
    *("live_multiple_68-29-0", "live_multiple_114-44-1", "live_multiple_144-56-0"),
    *("live_multiple_834-178-9", "live_multiple_906-186-3", "live_multiple_964-207-0"),
    *("live_simple_106-63-0", "live_simple_112-68-0", "parallel_88", "simple_python_200"),
}
# The value is of another type than the parameter (`dontcare` for a year, null for a number):
OTHER_TYPE = {
    *("live_multiple_338-133-2", "live_multiple_342-133-6", "live_multiple_344-133-8"),
    *("live_multiple_350-133-14", "live_multiple_352-133-16", "live_multiple_354-133-18", "parallel_152"),
    "parallel_multiple_94",
}
# The value is the name of a variable or constant of a Java or JavaScript program:
VARIABLE = {
    *("simple_java_26", "simple_java_38", "simple_java_58", "simple_java_72", "simple_java_82"),
    *("simple_java_88", "simple_javascript_32"),
}
# A parameter that the tool does not have is given (the schemas do not forbid it):
UNKNOWN = {
    *("live_multiple_862-181-3", "live_multiple_964-207-0", "parallel_multiple_12", "parallel_multiple_26")
}
# No call can be right by the benchmark's own rules: it may leave out what is required.
UNSCORABLE = UNKNOWN | {"live_simple_106-63-0", "live_simple_112-68-0"}
EXCEPTIONS = OUTSIDE | MISSING | OTHER_TYPE | VARIABLE


@cache
def load_cases(corpus: str) -> list[Case]:
    """Every single-turn case of a corpus."""
    files = sorted((get_root(corpus) / "bfcl").glob("BFCL_*.jsonl"))
    return [case for file in files if "multi_turn" not in file.name for case in load_bfcl(file)]


def iterate_definitions(corpus: str) -> Iterator[ToolDefinition]:
    """Every function definition."""
    for case in load_cases(corpus):
        yield from case.tools


def iterate_answers(corpus: str) -> Iterator[tuple[Case, ToolDefinition, dict[str, Any]]]:
    """Every accepted argument object with its tool."""
    for case in load_cases(corpus):
        tools = {tool.name: tool for tool in case.tools}
        for expected in case.calls:
            for arguments in iterate_accepted_arguments(expected):
                yield case, tools[expected.name], arguments


KEYS = ("parameters", "parameters_json_schema", "input_schema")
"""The key of the schema in each provider's tool format."""


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_every_definition_converts_to_every_form(corpus: str) -> None:
    """S2.2, issue 6: all definitions convert to valid schemas with portable names for every provider."""
    count = 0
    for tool in iterate_definitions(corpus):
        count += 1
        check_schema(tool.parameters, tool.name)
        for provider in ("openai", "anthropic", "ollama", "gemini"):
            (entry,) = convert_tools([tool], provider).tools
            inner = entry.get("function") or entry.get("function_declarations", [entry])[0]
            schema = next(inner[key] for key in KEYS if key in inner)
            assert PORTABLE_NAME.fullmatch(inner["name"])
            assert set(schema["properties"]) == set(tool.parameters["properties"])
    assert count >= {"own": 14, "recorded": 4001}[corpus]


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_accepted_answer_fits_its_schema(corpus: str) -> None:
    """S2.6, issue 6: each accepted answer fits its schema, except the listed ones that contradict it."""
    unfit_cases = set()
    count = 0
    for case, tool, arguments in iterate_answers(corpus):
        count += 1
        problem = ArgumentCheck(tool.parameters, tool.name, is_trusted=True).describe_problem(arguments)
        if problem is not None:
            unfit_cases.add(case.id)
    assert count >= {"own": 16, "recorded": 2501}[corpus]
    assert unfit_cases == (EXCEPTIONS if corpus == "recorded" else set())


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_compiled_check_agrees_on_real_schemas(corpus: str) -> None:
    """Issue 6: on the benchmark's schemas the compiled check agrees with jsonschema."""
    for number, (_, tool, arguments) in enumerate(iterate_answers(corpus)):
        check = ArgumentCheck(tool.parameters, tool.name, is_trusted=True)
        reference = Draft202012Validator(tool.parameters)
        candidates = [arguments, *(bad for _, bad in iterate_mutations(tool, arguments))]
        for candidate in candidates[: None if number % 10 == 0 else 2]:
            assert check.is_valid(candidate) == reference.is_valid(candidate), (tool.name, candidate)


def iterate_mutations(tool: ToolDefinition, arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Wrong variants of valid arguments, each with the name of the wrong parameter."""
    for name, schema in tool.parameters["properties"].items():
        if name not in arguments:
            continue
        wrong_arguments = copy.deepcopy(arguments)
        if name in tool.parameters.get("required", ()):
            yield name, {key: value for key, value in arguments.items() if key != name}
        if "type" in schema:
            wrong_arguments[name] = {"wrong": "type"} if schema["type"] != "object" else [None]
            yield name, wrong_arguments
        if "enum" in schema and schema.get("type") == "string":
            yield name, {**arguments, name: "no such value at all"}


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_mutated_answers_are_rejected_by_name(corpus: str) -> None:
    """S2.6, issue 6: a wrong type, a missing and an unlisted value are refused by the parameter's name."""
    count = 0
    for case, tool, arguments in iterate_answers(corpus):
        if case.id in EXCEPTIONS:
            continue
        runner = make_executor(build_tool(tool.name, lambda arguments_: arguments_, tool.parameters))
        for name, wrong in list(iterate_mutations(tool, arguments))[:3]:
            verdict = runner.review(make_call(tool.name, wrong), (tool.name,))
            count += 1
            assert verdict.ruling == "invalid", (case.id, name, wrong)
            assert repr(name)[1:-1] in str(verdict.reason)
    assert count >= {"own": 30, "recorded": 3001}[corpus]


@pytest.mark.parametrize("corpus", CORPORA)
def test_good_answers_run_unchanged(corpus: str) -> None:
    """S3.5: arguments that fit are neither repaired nor dropped."""
    for number, (case, tool, arguments) in enumerate(iterate_answers(corpus)):
        if case.id in EXCEPTIONS | UNKNOWN or (corpus == "recorded" and number % 20):
            continue
        runs: list[Any] = []
        (event,) = run_calls(
            make_executor(build_tool(tool.name, runs.append, tool.parameters)),
            make_call(tool.name, arguments),
        )
        assert (event.notes, runs) == ((), [arguments])


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_accepted_answers_score_as_right_and_others_do_not(corpus: str) -> None:
    """Issue 6: scoring accepts every accepted answer, and refuses it once a call is missing."""
    for case in load_cases(corpus):
        calls = [
            ToolCall(name=expected.name, arguments=next(iterate_accepted_arguments(expected)))
            for expected in case.calls
        ]
        if case.any_call:
            assert find_problem(case, []) is not None
            continue
        if case.id in UNSCORABLE:
            continue
        assert find_problem(case, list(reversed(calls))) is None, case.id
        if calls:
            assert find_problem(case, calls[1:]) is not None
        else:
            assert find_problem(case, [ToolCall(name="anything", arguments={})]) is not None


def replace_value(value: Any) -> Any:
    """Another value of the same type, which no answer of our own questions accepts."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1000
        case str():
            return f"not {value}"
        case list():
            return [*value, *(value[:1] or ["red"])]
    return {**value, "no_such_key": 1}


def test_wrong_calls_of_our_questions_score_as_wrong() -> None:
    """Issue 6: another value, an unknown or a missing parameter, another tool or a call too many is refused,
    and the reason names the parameter."""
    refused_count = 0
    for case in load_cases("own"):
        calls = [
            ToolCall(name=expected.name, arguments=next(iterate_accepted_arguments(expected)))
            for expected in case.calls
        ]
        for index, call in enumerate(calls):
            arguments: dict[str, Any] = dict(call.arguments or {})
            required = next(t for t in case.tools if t.name == call.name).parameters["required"]
            variants = [(name, {**arguments, name: replace_value(arguments[name])}) for name in arguments]
            variants += [(name, {k: v for k, v in arguments.items() if k != name}) for name in required]
            variants.append(("no_such_parameter", {**arguments, "no_such_parameter": 1}))
            for name, wrong_arguments in variants:
                wrong_call = ToolCall(name=call.name, arguments=wrong_arguments)
                reason = find_problem(case, [*calls[:index], wrong_call, *calls[index + 1 :]])
                assert reason is not None, (case.id, name)
                assert len(calls) > 1 or repr(name) in reason
                refused_count += 1
            other_call = ToolCall(name="other", arguments=arguments)
            assert find_problem(case, [*calls[:index], other_call, *calls[index + 1 :]])
            assert find_problem(case, [*calls, call])
    assert refused_count > 40
