"""The multi-turn questions of the Berkeley leaderboard, each turn judged by its calls.

The benchmark runs the calls in worlds of its own (a file system, a trading bot, ...) and compares what
became of the world. Those worlds are programs, and no part of its questions; so here a turn stands alone:
what went before it is told with the accepted calls, each answered by a bare "done", and the model's calls
must hold the accepted ones of this turn, in their order. Looking around besides (`ls`, a status) is no
fault, as it is none there. The rates are therefore not those of the leaderboard, only comparable among
themselves: a turn whose arguments follow from earlier answers cannot be told from "done".

Turns without accepted calls are not judged, as there. Source: `bfcl_eval/eval_checker/multi_turn_eval` of
the Gorilla repository, version 4; the words that announce held-out functions are its own.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolchart.states.canonical_json import canonical_text
from toolchart.states.errors import SpecError
from toolchart.states.messages import Message, ToolCall, ToolDefinition
from toolchart.tools.validation.bfcl import MAY_BE_LEFT_OUT, category_of, definitions_of, read_lines
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
"""File of each world's functions in `multi_turn_func_doc`."""

ANNOUNCED = "I have updated some more functions you can choose from. What about now?"
"""What the user says where functions that were held out become known."""


def load_turns(questions: Path, answers: Path | None = None) -> list[Case]:
    """A case for every turn with accepted calls, of one file of multi-turn questions.

    Args:
        answers: the file of accepted answers; without it, the one in `possible_answer` beside it.

    Raises:
        SpecError: a file that cannot be read, or is none of theirs.
    """
    answers = answers or questions.parent / "possible_answer" / questions.name
    accepted = {one["id"]: one["ground_truth"] for one in read_lines(answers)}
    docs = questions.parent / "multi_turn_func_doc"
    try:
        return [
            case for one in read_lines(questions) for case in _cases(one, accepted[one["id"]], docs)
        ]
    except (KeyError, TypeError, IndexError, ValueError, SyntaxError) as error:
        raise SpecError(
            f"this is no file of multi-turn questions: {type(error).__name__} {error}",
            file=str(questions),
        ) from None


def _cases(
    question: Mapping[str, Any], accepted: Sequence[Sequence[str]], docs: Path
) -> list[Case]:
    functions = [
        one
        for world in question["involved_classes"]
        for one in read_lines(docs / f"{WORLDS[world]}.jsonl")
        if one["name"] not in question.get("excluded_function", ())
    ]
    held = {
        name: int(turn)
        for turn, names in question.get("missed_function", {}).items()
        for name in names
    }
    before: list[Message] = []
    cases = []
    for turn, said in enumerate(question["question"]):
        known = [one for one in functions if held.get(one["name"], 0) <= turn]
        tools, _ = definitions_of(known)
        calls = tuple(expected_call(text, tools) for text in accepted[turn])
        asked = said or [{"role": "user", "content": ANNOUNCED}]
        messages = tuple((one["role"], one["content"]) for one in asked)
        name, place = question["id"], f"{question['id']}:{turn}"
        if calls:
            cases.append(
                Case(
                    id=place,
                    category=category_of(name),
                    messages=messages,
                    tools=tools,
                    calls=calls,
                    before=tuple(before),
                    in_steps=True,
                )
            )
        before += [Message(role=role, content=content) for role, content in messages]
        before += _done(calls, place)
    return cases


def expected_call(text: str, tools: Sequence[ToolDefinition]) -> ExpectedCall:
    """An accepted call as it is written there: `grep(file_name='a.txt', pattern='b')`.

    Nothing is run: names and literals are read from the syntax tree.

    Raises:
        KeyError: no tool has this name.
        ValueError: no call, or an argument that is no literal.
    """
    tree = ast.parse(text.strip(), mode="eval").body
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{text!r} is no call")
    tool = {one.name: one for one in tools}[tree.func.id]
    properties = tool.parameters["properties"]
    if len(tree.args) > len(properties) or any(one.arg is None for one in tree.keywords):
        raise ValueError(f"{text!r} has arguments without a name")
    given = {
        name: ast.literal_eval(value) for name, value in zip(properties, tree.args, strict=False)
    }
    given |= {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
    arguments = {name: [_alternatives(value)] for name, value in given.items()}
    for name, schema in properties.items():
        if name not in given and "default" in schema:
            arguments[name] = [_alternatives(schema["default"]), MAY_BE_LEFT_OUT]
    return ExpectedCall(name=tool.name, arguments=arguments)


def _alternatives(value: Any) -> Any:
    """A value as accepted answers spell it: inside an object each key has a list of alternatives."""
    if isinstance(value, Mapping):
        return {key: [_alternatives(one)] for key, one in value.items()}
    return [_alternatives(one) for one in value] if isinstance(value, (list, tuple)) else value


def _done(calls: Sequence[ExpectedCall], place: str) -> list[Message]:
    """The accepted calls as a turn that has been: asked for together, done, and said so."""
    made = tuple(
        ToolCall(
            id=f"{place}:{number}",
            name=call.name,
            arguments={
                name: _plain(options[0])
                for name, options in call.arguments.items()
                if MAY_BE_LEFT_OUT not in options[1:]
            },
        )
        for number, call in enumerate(calls)
    )
    if not made:
        return [Message(role="assistant", content="I cannot do that with the tools that I have.")]
    asked = Message(role="assistant", tool_calls=made)
    return [asked, *map(done, made), Message(role="assistant", content="Done.")]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(options[0]) for key, options in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def done(call: ToolCall) -> Message:
    """The bare answer to a call whose world is not here."""
    result = {"success": True, "result": "done", "tool_name": call.name, "execution_time_ms": 1.0}
    return Message(
        role="tool", content=canonical_text(result), tool_call_id=call.id, name=call.name
    )
