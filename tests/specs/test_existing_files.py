"""Configuration files that existing chat servers use load as they are: comments, flat tools, histories."""

from __future__ import annotations

from typing import Any

import pytest
from agents import make_spec

from toolchart import Engine, SpecError, load_spec
from toolchart.specs.chat_messages import read_history
from toolchart.specs.models import build_spec_schema
from toolchart.specs.turn_plan import conditions_hold


def test_keys_of_comments_are_silent() -> None:
    """Issue 16: keys that begin with `_` or `$` are comments, in every section and among hosts."""
    data = make_spec(_comment="an agent", _description="of a file", **{"$schema": "https://example.org"})
    data["llms"]["_comment"] = "the hosts"
    data["llms"]["model"]["_model"] = "a spare one"
    data["responses"][0]["_prompts"] = ["old"]
    data["tools"]["_registri"] = []
    data["tools"]["registry"][0]["_description"] = "exact"
    spec = load_spec(data)
    assert spec.warnings == ()
    assert list(spec.llms) == ["model"]
    assert spec.llms["model"].extra_options().keys() == {"replies"}
    assert spec.to_public_dict()["_comment"] == "an agent"  # the log holds the file as it was written


def test_names_of_tools_and_data_keep_their_marks() -> None:
    """A JSON Schema keeps its `$defs`, and a mock its `_id`: only keys of sections are comments."""
    data = make_spec()
    entry = data["tools"]["registry"][2]
    entry["parameters"]["$defs"] = {"city": {"type": "string"}}
    entry["implementation"]["mock_response"] = {"_id": 1}
    loaded = load_spec(data).tools
    assert loaded is not None
    assert "$defs" in (loaded.registry[2].parameters or {})
    implementation = loaded.registry[2].implementation
    assert implementation is not None
    assert implementation.mock_response == {"_id": 1}


def test_unknown_keys_warn_and_misspelt_ones_are_refused() -> None:
    """Issue 16: a key that Toolchart does not know is a warning; one that is nearly a known key an error."""
    assert "voices" in load_spec(make_spec(voices=["a"])).warnings[0]
    with pytest.raises(SpecError, match="'polcy'"):
        load_spec(make_spec(polcy="strict"))


FLAT_TOOLS: list[dict[str, Any]] = [
    {"name": "sky", "description": "The sky.", "type": "mock", "mock_response": "blue"},
    {"name": "page", "type": "http", "url": "http://127.0.0.1:9/{{id}}", "method": "GET"},
    {"name": "sums", "type": "builtin", "handler": "math_eval"},
]


def test_flat_tool_entries_load() -> None:
    """Issue 16, S2.5: `type: mock`, `http` or `builtin` may stand beside `name`."""
    data = make_spec()
    data["tools"]["registry"] = FLAT_TOOLS
    with Engine(data, log="memory") as engine:
        kinds = {tool.name: tool.kind for tool in engine.tools.registry}
        warnings = engine.tools.warnings
    assert kinds == {"sky": "mock", "page": "http", "sums": "builtin"}
    assert warnings == ()
    allowed = build_spec_schema()["$defs"]["ToolEntry"]["properties"]["type"]["enum"]
    assert {"function", "mock", "http", "builtin"} <= set(allowed)


def test_a_flat_entry_of_an_unknown_type_names_the_known_ones() -> None:
    """A type that does not exist is refused at its line with the nearest name."""
    data = make_spec()
    data["tools"]["registry"] = [{"name": "sky", "type": "mok", "mock_response": 1}]
    with pytest.raises(SpecError, match="mock"):
        load_spec(data)


def test_the_handler_math_eval_is_the_calculator() -> None:
    """Issue 16: `math_eval` computes, by the name that the entry gives it."""
    data = make_spec()
    data["tools"]["registry"] = [FLAT_TOOLS[2]]
    data["llms"]["model"]["replies"] = [
        {"tool_calls": [{"name": "sums", "arguments": {"expression": "6*7"}}]},
        "42",
    ]
    with Engine(data, log="memory") as engine:
        (call,) = engine.run("6*7?").tool_calls
    assert call["tool"] == "sums"
    assert call["result"]["result"] == 42


def test_histories_of_chat_pages_are_read() -> None:
    """Issue 16: `{type, text}` is a message; everything that is not the user's is the assistant's."""
    messages = read_history([{"type": "user", "text": "hi"}, {"type": "bot", "text": "hello", "topic": "t"}])
    assert [(message.role, message.content) for message in messages] == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]
    with pytest.raises(SpecError, match="role"):
        read_history([{"typ": "user", "text": "hi"}])


@pytest.mark.parametrize(
    ("pattern", "text", "holds"),
    [
        ("/ab/y", "abc", True),
        ("/ab/y", "cab", False),
        ("/a|b/y", "cb", False),
        ("/^b/my", "a\nb", False),
        ("/AB/gimuy", "abc", True),
    ],
)
def test_the_flag_y_matches_at_the_beginning(pattern: str, text: str, holds: bool) -> None:
    """Issue 16: `_regexp` takes the flags `gimuy`; `y` matches only at the beginning, as it does there."""
    assert conditions_hold({"name_regexp": pattern}, {"name": text}) is holds
