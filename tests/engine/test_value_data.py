"""Every public value is JSON data by `to_dict`, as its JSON Schema says."""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import toolchart
from toolchart.engine.runtime import result
from toolchart.engine.runtime.result import FinishedCall
from toolchart.states.content import Value
from toolchart.states.core.step import Step
from toolchart.states.errors import SpecError
from toolchart.testing import ScriptedModel, call_tool

NO_DATA = {
    **dict.fromkeys(["Tool", "ForkChanges", "RerunChanges"], "hold functions"),
    **dict.fromkeys(["CallContext", "ToolContext", "PromptContext"], "hold what a program gave"),
    "Signer": "holds a private key",
    **dict.fromkeys(["Snapshot", "Step"], "the core's own; what they say stands in the log"),
    "ReadRecord": "its `line` is the JSON of the log",
    **dict.fromkeys(["RunView", "Judgement"], "what judges get and give; the report has them as data"),
    "ConversationFilter": "conditions of a program, which are written nowhere",
}
"""Exported structs without a JSON form, and why."""

STRUCTS = {
    name: value
    for name in sorted(toolchart.__all__)
    if inspect.isclass(value := getattr(toolchart, name)) and issubclass(value, msgspec.Struct)
}
VALUES = {name: kind for name, kind in STRUCTS.items() if issubclass(kind, Value)}

TEXTS = st.text(st.sampled_from("ab é\n"), max_size=3)
ANY = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS | st.lists(TEXTS, max_size=2)
OBJECTS = st.dictionaries(TEXTS, ANY, max_size=2)


class Answer(BaseModel):
    """What a program made of an answer."""

    text: str


@pytest.fixture(autouse=True)
def name_late_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a module the name that it has for type checkers only."""
    monkeypatch.setattr(result, "BaseModel", BaseModel, raising=False)


@cache
def make_steps() -> list[Step]:
    """The steps of a turn: nobody makes one but the core."""
    with toolchart.Engine("quickstart", log="memory") as engine:
        pieces = list(engine.stream_blocking("What is 17 * (23 + 4)?"))
    return [piece.step for piece in pieces if isinstance(piece, toolchart.StepTaken)]


def draw_value(hint: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of a type of a field."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or hint is object:
        return ANY
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not msgspec.UnsetType]
        return st.one_of([draw_value(part, depth) for part in kinds])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (tuple, list, Sequence):
        items = st.lists(draw_value(parts[0], depth + 1), max_size=0 if depth > 2 else 2)
        return items.map(tuple) if origin is tuple else items
    if hint in (dict, Mapping) or origin in (dict, Mapping):
        keys, values = parts or (str, Any)
        size = 0 if depth > 2 else 2
        return st.dictionaries(draw_value(keys, depth + 1), draw_value(values, depth + 1), max_size=size)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return st.just(Answer(text="yes"))
    if hint is Step:
        return st.sampled_from(make_steps())
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return draw_struct(hint, depth + 1)
    simple = {
        str: TEXTS, int: st.integers(0, 9), bool: st.booleans(), type(None): st.none(),
        float: st.floats(0, 9).map(lambda number: math.floor(number * 8) / 8),
    }  # fmt: skip
    return simple[hint]


def draw_struct(kind: type[msgspec.Struct], depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of a struct: each field, or its default."""
    hints = get_type_hints(kind)
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.required or depth < 3:
            fields[field.name] = draw_value(hints[field.name], depth)
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    optional = {name: fields[name] for name in fields.keys() - required}
    return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional).map(
        lambda given: kind(**given)
    )


def test_every_exported_struct_is_a_value_or_says_why_not() -> None:
    """A new public struct has `to_dict` and a schema, or a reason in this file."""
    assert STRUCTS.keys() - VALUES.keys() == NO_DATA.keys()


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_the_json_data_that_its_schema_says(name: str) -> None:
    """`to_dict` of any value is JSON as it stands, valid by `schema_of` its class, which is valid too."""
    kind = VALUES[name]
    schema = toolchart.schema_of(kind)
    assert schema.get("$ref", f"#/$defs/{name}") == f"#/$defs/{name}"
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(value=draw_struct(kind))
    def check(value: Any) -> None:
        data = value.to_dict()
        assert json.loads(json.dumps(data)) == data
        validator.validate(data)

    check()


def test_the_form_of_a_value_is_exact() -> None:
    """A key that is missing, or of another type, is no valid form of it."""
    call = FinishedCall(
        tool="add",
        params={},
        result={"success": True},
        iteration=0,
        execution_time_ms=1.0,
        outcome="succeeded",
    )
    validator = jsonschema.Draft202012Validator(toolchart.schema_of(FinishedCall))
    data = call.to_dict()
    assert validator.is_valid(data)
    assert not validator.is_valid({**data, "iteration": "0"})
    assert not validator.is_valid({name: data[name] for name in data.keys() - {"tool"}})


def test_what_is_no_value_has_no_schema() -> None:
    """A class without a JSON form is refused with what to give."""
    with pytest.raises(SpecError, match="Signer has no JSON form"):
        toolchart.schema_of(toolchart.Signer)  # type: ignore[arg-type]


@pytest.mark.parametrize("output_type", [None, Answer])
def test_every_piece_of_a_stream_is_json_data(output_type: Any) -> None:
    """A program sends the pieces of a turn on as they come: each is JSON data whose `type` says what it is;
    only the result, which is the last, has none."""
    model = ScriptedModel(call_tool("calculator", expression="1+1"), '{"text": "yes"}')
    agent = toolchart.Agent(model, tools=[{"name": "calculator"}], output_type=output_type or str)
    pieces = list(agent.stream_blocking("Go.", log="memory"))
    kinds = [json.loads(json.dumps(piece.to_dict())).get("type") for piece in pieces]
    assert (kinds[-1], None in kinds[:-1]) == (None, False)
    assert set(kinds) >= {"step_taken", "text_delta"} | ({"partial_output"} if output_type else set())
