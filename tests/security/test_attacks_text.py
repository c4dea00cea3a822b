"""Attacks by text: patterns that run for ever, templates that nest, arguments that swell."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from bounded import bounded
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import call, executor, made, ran

from toolchart.specs.models import ToolsConfig
from toolchart.states.messages import ToolCall
from toolchart.tools.builtin import BUILTINS
from toolchart.tools.execution.argument_repair import repaired_text
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.foreign_schemas import is_calm, tamed
from toolchart.tools.sources.http.settings import fill

RUNAWAY = (
    r"(a+)+$",
    r"(a*)*$",
    r"(a|a)*$",
    r"(a|aa)+$",
    r"(.*a){20}$",
    r"([a-zA-Z]+)*$",
    r"^(([a-z])+.)+[A-Z]",
    r"(a?){40}a{40}",
    r"(?:a+){2,}b",
    r"((a+)b?)+c",
    r"(a+)(\1)+$",
    r"(?=(a+))a*b\1",
    r"(x+x+)+y",
    r".*.*.*.*.*=.*",
    r"(\d+|\w+)*!",
    r"a{1,99999}{1,99999}",
)


@pytest.mark.parametrize("pattern", RUNAWAY)
def test_a_pattern_without_end_is_ended(pattern: str) -> None:
    """Issue 6: a regex that runs away is stopped by the kernel, and the model hears why."""
    (event,) = ran(
        executor(BUILTINS["text"]),
        call("text", {"operation": "regex", "text": "a" * 200 + "!", "find": pattern}),
    )
    assert event.outcome in ("failed", "succeeded")
    if event.outcome == "failed":
        assert "too much time" in event.result["error"] or "not a regular" in event.result["error"]


def test_a_replacement_that_swells_is_ended() -> None:
    """Issue 6: a replacement that would fill the memory is stopped."""
    given_ = {
        "operation": "regex",
        "text": "a" * 60_000,
        "find": "a",
        "replacement": r"\g<0>" * 20_000,
    }
    (event,) = ran(executor(BUILTINS["text"]), call("text", given_))
    assert event.outcome == "failed"
    long = {"operation": "replace", "text": "a" * 9000, "find": "a", "replacement": "b" * 9000}
    (event,) = ran(executor(BUILTINS["text"]), call("text", long))
    assert "the result would have" in event.result["error"]


@pytest.mark.parametrize("pattern", RUNAWAY)
def test_a_foreign_schema_cannot_bring_such_a_pattern(pattern: str) -> None:
    """Issue 6: patterns of foreign schemas run in this process, so only calm ones are kept."""
    assert not is_calm(pattern)
    schema, changes = tamed({"properties": {"x": {"type": "string", "pattern": pattern}}})
    assert "pattern" not in schema["properties"]["x"]
    assert changes


@pytest.mark.parametrize(
    "pattern",
    [r"^[a-z]+$", r"^\d{4}-\d{2}-\d{2}$", r"^(red|green)$", r"^[^@\s]+@[^@\s]+$", r"^#?\w{1,9}$"],
)
def test_ordinary_patterns_are_kept(pattern: str) -> None:
    """Issue 6: the patterns that schemas really have are not lost."""
    assert is_calm(pattern)


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.lists(
        st.sampled_from(
            ["a", "b", ".", "(", ")", "*", "+", "?", "|", "[ab]", "{2}", "{2,}", "^", "$"]
        ),
        max_size=10,
    ).map("".join)
)
def test_calm_patterns_really_end(pattern: str) -> None:
    """Issue 6: whatever is judged calm ends on long texts that almost match."""
    if not is_calm(pattern):
        return
    for text in ("a" * 2000 + "!", "ab" * 1000 + "!", "b" * 2000 + "!"):
        bounded(_searched, pattern, text)


def _searched(pattern: str, text: str) -> bool:
    return re.search(pattern + "$", text) is not None


def test_what_an_argument_says_is_never_a_template() -> None:
    """DESIGN 8: a value with braces in it is not substituted again, nor read as a format."""
    config = {
        "registry": [
            {
                "name": "m",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "implementation": {
                    "type": "mock",
                    "mock_response": "{{a}} {{a.__class__}} {a} %s ${HOME}",
                },
            }
        ]
    }
    manager = ToolManager.from_config(ToolsConfig.model_validate(config))
    (event,) = ran(manager, call("m", {"a": "{{b}} {0.__class__}", "b": "SECRET"}))
    assert event.result["result"] == "{{b}} {0.__class__} {{a.__class__}} {a} %s ${HOME}"
    assert fill({"x": "{{a}}-{{b}}"}, {"a": "{{b}}", "b": "S"}) == {"x": "{{b}}-S"}


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
def test_broken_text_costs_no_more_than_reading_it(raw: str) -> None:
    """Issue 6: repair of broken arguments is bounded in time and memory."""
    found = bounded(_repaired, raw)
    assert found in ("refused", "repaired")


def _repaired(raw: str) -> str:
    return "refused" if repaired_text(raw) is None else "repaired"


def test_deep_and_large_arguments_are_data() -> None:
    """Issue 6: nesting and size beyond reason end as results, not as crashes."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    ex = executor(made("note", lambda given: "ran", {"type": "object", "properties": {"a": {}}}))
    calls = [
        ToolCall(id="1", name="note", arguments=deep),
        ToolCall(id="2", name="note", arguments={"a": "x" * 3_000_000}),
        ToolCall(id="3", name="note" * 100_000, arguments={}),
        ToolCall(id="4", name="note", arguments={"b" * 100_000: 1}),
    ]
    events = ran(ex, *calls)
    assert len(events) == 4
    for event in events:
        assert len(json.dumps(event.result)) < 700_000


def test_a_result_without_end_is_refused() -> None:
    """Issue 6: a result beyond a million characters is an error, not a log entry."""
    ring: list[Any] = []
    ring.append(ring)
    ex = executor(
        made("huge", lambda given: "x" * 2_000_000),
        made("wide", lambda given: [0] * 2_000_000),
        made("ring", lambda given: ring),
    )
    huge, wide, rings = ran(ex, call("huge"), call("wide"), call("ring"))
    assert "at most 1000000" in huge.result["error"]
    assert "at most 1000000" in wide.result["error"]
    assert len(json.dumps(rings.result)) < 10_000
    assert asyncio.iscoroutinefunction(ex.run)
