"""Loads the multi-turn questions of the Berkeley leaderboard (BFCL), one test case per turn.

The benchmark runs the calls in simulated worlds (a file system, a trading bot, ...) and compares the final
state of the world. Those worlds are programs and not part of its questions. So each turn is judged alone
here: earlier turns are given with the accepted calls, each with the result "done", and the model's calls
must contain the accepted calls of this turn in their order. Other calls (`ls`, a status) do no harm, as in
the benchmark. Success rates are therefore comparable with each other, but not with the leaderboard. A model
cannot solve a turn whose arguments depend on earlier results, because these are only "done".

Turns without accepted calls are skipped, as in the benchmark. Source:
`bfcl_eval/eval_checker/multi_turn_eval` of the Gorilla repository, version 4. The message that announces
new functions is the benchmark's own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.tools.validation.bfcl import (
    OPTIONAL_MARK,
    convert_definitions,
    make_cases_of_questions,
    parse_category,
    read_json_lines,
)
from toolchart.tools.validation.cases import Case, ExpectedCall

WORLDS = {
    "GorillaFileSystem": "gorilla_file_system",
    "VehicleControlAPI": "vehicle_control",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
}
"""The file in `multi_turn_func_doc` that describes the functions of each world, by class name."""

NEW_FUNCTIONS_MESSAGE = "I have updated some more functions you can choose from. What about now?"
"""The user message of a turn in which functions that were withheld before become available."""


def load_turns(questions: Path, answers: Path | None = None) -> list[Case]:
    """Load one file of multi-turn questions: a case for every turn with accepted calls.

    Args:
        answers: file of the accepted answers; by default the file of the same name in
            `possible_answer`, beside the questions.

    Raises:
        SpecError: a file cannot be read, or it is not a file of multi-turn questions.
    """
    answers = answers or questions.parent / "possible_answer" / questions.name
    accepted_calls = {question["id"]: question["ground_truth"] for question in read_json_lines(answers)}
    docs = questions.parent / "multi_turn_func_doc"

    def make_cases(question: Mapping[str, Any]) -> list[Case]:
        return _make_cases(question, accepted_calls[question["id"]], docs)

    return make_cases_of_questions(questions, make_cases, "multi-turn questions")


def _make_cases(
    question: Mapping[str, Any], accepted_calls: Sequence[Sequence[str]], docs: Path
) -> list[Case]:
    functions = [
        row
        for world in question["involved_classes"]
        for row in read_json_lines(docs / f"{WORLDS[world]}.jsonl")
        if row["name"] not in question.get("excluded_function", ())
    ]
    later_functions = {
        name: int(turn) for turn, names in question.get("missed_function", {}).items() for name in names
    }
    earlier_messages: list[Message] = []
    cases = []
    for turn, user_messages in enumerate(question["question"]):
        available_functions = [row for row in functions if later_functions.get(row["name"], 0) <= turn]
        tools, _ = convert_definitions(available_functions)
        calls = tuple(parse_expected_call(text, tools) for text in accepted_calls[turn])
        turn_messages: list[dict[str, Any]] = user_messages or [
            {"role": "user", "content": NEW_FUNCTIONS_MESSAGE}
        ]
        messages = tuple((row["role"], row["content"]) for row in turn_messages)
        name, case_id = question["id"], f"{question['id']}:{turn}"
        if calls:
            cases.append(
                Case(
                    id=case_id,
                    category=parse_category(name),
                    messages=messages,
                    tools=tools,
                    calls=calls,
                    earlier_messages=tuple(earlier_messages),
                    in_steps=True,
                )
            )
        earlier_messages += [Message(role=role, content=content) for role, content in messages]
        earlier_messages += _make_earlier_messages(calls, case_id)
    return cases


def parse_expected_call(text: str, tools: Sequence[ToolDefinition]) -> ExpectedCall:
    """Read an accepted call in the benchmark's notation: `grep(file_name='a.txt', pattern='b')`.

    Nothing is executed: the name and the literals are read from the syntax tree.

    Raises:
        KeyError: no tool has this name.
        ValueError: the text is not a call, or an argument is not a literal.
    """
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{text!r} is not a call")
    tool = {item.name: item for item in tools}[tree.func.id]
    properties = tool.parameters["properties"]
    if len(tree.args) > len(properties) or any(item.arg is None for item in tree.keywords):
        raise ValueError(f"{text!r} has arguments without a name")
    values = {name: ast.literal_eval(value) for name, value in zip(properties, tree.args, strict=False)}
    values |= {str(item.arg): ast.literal_eval(item.value) for item in tree.keywords}
    arguments = {name: [_wrap_alternatives(value)] for name, value in values.items()}
    for name, schema in properties.items():
        if name not in values and "default" in schema:
            arguments[name] = [_wrap_alternatives(schema["default"]), OPTIONAL_MARK]
    return ExpectedCall(name=tool.name, arguments=arguments)


def _wrap_alternatives(value: Any) -> Any:
    """A value in the form of accepted answers: in an object each key has a list of alternatives."""
    if isinstance(value, Mapping):
        return {key: [_wrap_alternatives(item)] for key, item in value.items()}
    return [_wrap_alternatives(item) for item in value] if isinstance(value, (list, tuple)) else value


def _make_earlier_messages(calls: Sequence[ExpectedCall], case_id: str) -> list[Message]:
    """The messages of an earlier turn: the accepted calls in one reply, their results, and an answer."""
    tool_calls = tuple(
        ToolCall(
            id=f"{case_id}:{number}",
            name=call.name,
            arguments={
                name: _pick_first_alternative(options[0])
                for name, options in call.arguments.items()
                if OPTIONAL_MARK not in options[1:]
            },
        )
        for number, call in enumerate(calls)
    )
    if not tool_calls:
        return [Message(role="assistant", content="I cannot do that with the tools that I have.")]
    request = Message(role="assistant", tool_calls=tool_calls)
    return [request, *map(make_done_message, tool_calls), Message(role="assistant", content="Done.")]


def _pick_first_alternative(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _pick_first_alternative(options[0]) for key, options in value.items()}
    return [_pick_first_alternative(item) for item in value] if isinstance(value, list) else value


def make_done_message(call: ToolCall) -> Message:
    """The tool message "done" that answers a call whose world is not simulated."""
    result = {"success": True, "result": "done", "tool_name": call.name, "execution_time_ms": 1.0}
    return Message(role="tool", content=encode_canonical_text(result), tool_call_id=call.id, name=call.name)
