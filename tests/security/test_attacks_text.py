"""Attacks by text: regular expressions without end, nested templates, huge arguments and results."""

from __future__ import annotations

import contextlib
import inspect
import json
from typing import Any

import pytest
from resource_limits import run_bounded
from tool_calls import build_tool, make_call, make_executor, run_calls

from toolchart.specs.models import ToolsConfig
from toolchart.states.messages import ToolCall
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.manager import ToolManager
from toolchart.tools.schemas.repair import repair_json_text
from toolchart.tools.sources.foreign_schemas import sanitize_schema
from toolchart.tools.sources.http.settings import fill_template
from toolchart.workers.patterns import PatternTimeout, get_pattern

RUNAWAY = (
    *(r"(a+)+$", r"(a*)*$", r"(a|a)*$", r"(a|aa)+$", r"(.*a){20}$", r"([a-zA-Z]+)*$", r"^(([a-z])+.)+[A-Z]"),
    *(r"(a?){40}a{40}", r"(?:a+){2,}b", r"((a+)b?)+c", r"(a+)(\1)+$", r"(?=(a+))a*b\1", r"(x+x+)+y"),
    *(r".*.*.*.*.*=.*", r"(\d+|\w+)*!", r"a{1,99999}{1,99999}"),
)


@pytest.mark.parametrize("pattern", RUNAWAY)
def test_a_runaway_pattern_is_stopped(pattern: str) -> None:
    """Issue 6: a regular expression that backtracks without end is stopped, and the model gets the reason."""
    (event,) = run_calls(
        make_executor(BUILTINS["text"]),
        make_call("text", {"operation": "regex", "text": "a" * 200 + "!", "find": pattern}),
    )
    assert event.outcome in ("failed", "succeeded")
    if event.outcome == "failed":
        assert "too much time" in event.result["error"] or "not a regular" in event.result["error"]


def test_a_huge_replacement_is_stopped() -> None:
    """Issue 6: a replacement that would fill the memory is stopped."""
    arguments = {"operation": "regex", "text": "a" * 60_000, "find": "a", "replacement": r"\g<0>" * 20_000}
    (event,) = run_calls(make_executor(BUILTINS["text"]), make_call("text", arguments))
    assert event.outcome == "failed"
    long = {"operation": "replace", "text": "a" * 9000, "find": "a", "replacement": "b" * 9000}
    (event,) = run_calls(make_executor(BUILTINS["text"]), make_call("text", long))
    assert "the result would have" in event.result["error"]


@pytest.mark.parametrize("pattern", RUNAWAY)
def test_runaway_patterns_are_linear(pattern: str) -> None:
    """Issue 6: a runaway pattern of a foreign schema is kept, and ends in time on every text."""
    schema, _ = sanitize_schema({"properties": {"x": {"type": "string", "pattern": pattern}}})
    assert schema["properties"]["x"].get("pattern") in (pattern, None)  # None: no engine can build it
    for text in ("a" * 2000 + "!", "ab" * 1000 + "!"):
        with contextlib.suppress(PatternTimeout, ValueError):
            get_pattern(pattern).occurs_in(text)


def test_an_argument_is_never_a_template() -> None:
    """An argument with braces in it is not filled again and not used as a format string."""
    config = {
        "registry": [
            {
                "name": "m",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "implementation": {"type": "mock", "mock_response": "{{a}} {{a.__class__}} {a} %s ${HOME}"},
            }
        ]
    }
    manager = ToolManager.from_config(ToolsConfig.model_validate(config))
    (event,) = run_calls(manager, make_call("m", {"a": "{{b}} {0.__class__}", "b": "SECRET"}))
    assert event.result["result"] == "{{b}} {0.__class__} {{a.__class__}} {a} %s ${HOME}"
    assert fill_template({"x": "{{a}}-{{b}}"}, {"a": "{{b}}", "b": "S"}) == {"x": "{{b}}-S"}


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        "{" * 19_000 + "}",
        '{"a": ' + "9" * 18_000 + ",}",
        '{"' + "a" * 19_000,
        "{'a':'" + "\\" * 18_000 + "'}",
        "{" + "'a':1," * 3000 + "}",
    ],
)
def test_repair_of_arguments_is_bounded(raw: str) -> None:
    """Issue 6: repair of broken arguments is bounded in time and memory."""
    outcome = run_bounded(_repair_arguments, raw)
    assert outcome in ("refused", "repaired")


def _repair_arguments(raw: str) -> str:
    return "refused" if repair_json_text(raw) is None else "repaired"


def test_deep_and_large_arguments_are_data() -> None:
    """Issue 6: very deep or very large arguments end in results, not in crashes."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    ex = make_executor(
        build_tool("note", lambda arguments: "ran", {"type": "object", "properties": {"a": {}}})
    )
    calls = [
        ToolCall(id="1", name="note", arguments=deep),
        ToolCall(id="2", name="note", arguments={"a": "x" * 3_000_000}),
        ToolCall(id="3", name="note" * 100_000, arguments={}),
        ToolCall(id="4", name="note", arguments={"b" * 100_000: 1}),
    ]
    events = run_calls(ex, *calls)
    assert len(events) == 4
    for event in events:
        assert len(json.dumps(event.result)) < 700_000


def test_a_huge_result_is_refused() -> None:
    """Issue 6: a result of more than 16 million characters becomes an error and is not logged."""
    ring: list[Any] = []
    ring.append(ring)
    ex = make_executor(
        build_tool("huge", lambda arguments: "x" * 16_000_001),
        build_tool("wide", lambda arguments: ["x" * 4_000_000] * 4),
        build_tool("ring", lambda arguments: ring),
    )
    huge, wide, rings = run_calls(ex, make_call("huge"), make_call("wide"), make_call("ring"))
    assert "16000000" in huge.result["error"]
    assert "16000000" in wide.result["error"]
    assert len(json.dumps(rings.result)) < 10_000
    assert inspect.iscoroutinefunction(ex.run)
