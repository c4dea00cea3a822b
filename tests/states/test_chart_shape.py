"""Charts of the wrong shape, one by one: each is refused with file, line, key path and what is allowed."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from command_line import run_toolchart
from effort import choose_count
from jsonschema import Draft202012Validator
from malformed_charts import list_seed_documents, mutate_document
from statemachine.io.validation import load_schema

from toolchart.specs.charts import load_chart, load_spec_chart
from toolchart.specs.loader import load_spec
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.chart.shape import check_shape
from toolchart.states.chart.yaml_document import Document, copy_plain_data
from toolchart.states.errors import SpecError

SPEC = """
llms: {main: {provider: scripted, model: m, replies: []}}
responses: [{match: {all: true}, llm: main}]
chart:
"""

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)
)

SHAPES: list[tuple[str, int, str]] = [
    ("states: [a, b]", 1, "`states` is a mapping of names to states, not a list"),
    ("states: a", 1, "not the text 'a'"),
    ("states:", 1, "`states` is a mapping of names to states, not empty"),
    ("states: {}", 1, "at least one state"),
    ("name: x", 1, "the key `states`"),
    ("name: 5\nstates: {a: {}}", 1, "`name` is a text, not 5"),
    ("states:\n  a: final", 2, "`a` is a mapping with the keys of a state, not the text 'final'"),
    ("states:\n  a:", 2, "not empty"),
    ("states:\n  a: []", 2, "not a list"),
    ("states:\n  a:\n    final: 1", 3, "`final` is true or false, not 1"),
    ("states:\n  a:\n    transitions: {event: replied}", 3, "a list of transitions"),
    ("states:\n  a:\n    transitions: replied", 3, "a list of transitions"),
    ("states:\n  a:\n    transitions:\n      - replied", 4, "an entry of `transitions` is a mapping"),
    ("states:\n  a:\n    transitions:", 3, "leave the key out"),
    ("states:\n  a:\n    transitions: [null]", 3, "not empty"),
    ("states:\n  a:\n    enter: {call_model: {}}", 3, "unknown key 'call_model' in an action"),
    ("states:\n  a:\n    enter: 5", 3, "the name of an effect or a list of names, not 5"),
    ("states:\n  a:\n    enter: [5]", 3, "the name of an effect, not 5"),
    ("states:\n  a:\n    enter: [[call_model]]", 3, "not a list"),
    ("states:\n  a:\n    enter: {if: {cond: retryable, then: call_model}}", 3, "stands inside `if`"),
    ("states:\n  a:\n    enter: {if: {then: []}}", 3, "the key `cond` is missing"),
    ("states:\n  a:\n    enter: {raise: {}}", 3, "the key `event` is missing"),
    ("states:\n  a:\n    enter: {raise: 'a b'}", 3, "cannot be raised"),
    ("states:\n  a:\n    enter: {raise: x, if: {cond: retryable}}", 3, "exactly one key"),
    ("states:\n  a:\n    transitions:\n      - {event: replied, cond: 5}", 4, "a guard in quotes"),
    ("states:\n  a:\n    transitions:\n      - {event: replied, cond: [true]}", 4, "not True"),
    ("states:\n  a:\n    transitions:\n      - {event: replied, cond: {a: b}}", 4, "not a mapping"),
    ("states:\n  a:\n    transitions:\n      - {event: 5}", 4, "`event` is a text, not 5"),
    ("states:\n  a:\n    transitions:\n      - {event: replied, target: [a]}", 4, "not a list"),
    ("extends: [tool_loop]\nstates: {}", 1, "the name or path of one chart"),
    ("extends: tool_lop\nstates: {}", 1, "did you mean 'tool_loop'"),
    ("states:\n  1: {}", 2, "the key 1 is not a text"),
    ("states:\n  true: {}", 2, "the key True is not a text"),
    ("states:\n  null: {}", 2, "the key None is not a text"),
    ("states:\n  !!timestamp 2026-01-01: {}", 2, "is not a text"),
    ("states:\n  '': {}", 2, "is not a name for a state"),
    ("states:\n  two words: {}", 2, "is not a name for a state"),
    ("states:\n  a.b: {}", 2, "is not a name for a state"),
    (f"states:\n  {'x' * 120}: {{}}", 2, "is not a name for a state"),
    ("states:\n  a:\n    history: [h]", 3, "a mapping of names to history states"),
    (
        "states:\n  a:\n    states: {b: {}}\n    history: {h: deep}",
        4,
        "a mapping with the keys of a history state",
    ),
    ("states:\n  a:\n    states: {b: {}}\n    history: {h: {type: long}}", 4, "shallow or deep"),
    ("states:\n  a:\n    states: {b: {}}\n    history: {h: {}}", 4, "one default transition"),
    ("states:\n  a:\n    parallel: true", 3, "has regions"),
    ("states:\n  a:\n    states:\n      b: {states: [c]}", 4, "not a list"),
    ("states:\n  a:\n    parallel: true\n    states: {b: {transitions: 5}}", 4, "not 5"),
    ("states:\n  a:\n    final: true\n    transitions: [{event: replied}]", 4, "a final state has no"),
    ("states: &s\n  a: *s", 1, "an alias names an entry that contains it"),
    (BOMB + "states: *i", 5, "more than 50,000 entries"),
    ("states: " + "{a: {states: " * 30 + "{}" + "}}" * 30, 1, "nested too deeply"),
    ("states: " + "[" * 5000, 1, "nested too deeply"),
    ("states:\n  a: {}\n  a: {}", 3, "occurs twice, first in line 2"),
    ("states:\n\ta: {}", 2, "with spaces, never with tabs"),
    ("states: !!python/object/apply:os.system [ls]", 1, "not valid YAML"),
    ("states:\n  a: {enter: 123456789012345678901234567890}", 2, "an integer of more than 64 bits"),
    ("states:\n  a: {enter: " + "9" * 5000 + "}", 2, "not a valid value of the type int"),
    ("states:\n  a: {enter: .nan}", 2, "not a number that a chart can hold"),
    ("states:\n  a: {enter: !!timestamp 2026-01-01}", 2, "a chart holds no date"),
    ("states:\n  a: {enter: !!timestamp 2026-13-41}", 2, "not a valid value of the type timestamp"),
    ("states:\n  a: {enter: !!binary aGk=}", 2, "a chart holds no bytes"),
    ("states:\n  a: {enter: !!set {b}}", 2, "a chart holds no set"),
    ('states:\n  a: {enter: "\\ud800"}', 2, "not Unicode text"),
    ("states:\n  ? [a]\n  : {}", 2, "a key is a word"),
    ("states:\n  a: {}\n---\nstates: {}", 3, "not valid YAML"),
    ("states:\n  a: {enter: \x07}", 2, "U+0007"),
    ("states: {a: {}}\nextend: tool_loop", 2, "did you mean 'extends'?"),
    ("# nothing", 1, "a chart is a mapping"),
    ("[]", 1, "a chart is a mapping"),
    ("plain words", 1, "a chart is a mapping"),
]


@pytest.mark.parametrize(("text", "line", "message"), SHAPES)
def test_a_wrong_shape_is_located(text: str, line: int, message: str, tmp_path: Path) -> None:
    """The error names the file, the line and what is allowed, and comes without endless work."""
    path = tmp_path / "chart.yaml"
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(SpecError) as caught:
        load_chart(str(path))
    assert time.process_time() - start < 60
    assert message in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        ("states: [a]", 5, "chart.states"),
        ("states:\n  a:\n    enter: 5", 7, "chart.states.a.enter"),
        (
            "states:\n  a:\n    transitions:\n      - {event: replied, target: on}",
            8,
            "chart.states.a.transitions[0].target",
        ),
        ("states:\n  a: {}\n  2: {}", 7, "chart.states.2"),
    ],
)
def test_a_wrong_shape_inline_is_located_in_the_spec(text: str, line: int, path: str, tmp_path: Path) -> None:
    """An inline chart's error names the spec's file, the line in it, and the key path from `chart` on."""
    spec_path = tmp_path / "agent.yaml"
    spec_path.write_text(SPEC + textwrap.indent(text, "  "))
    with pytest.raises(SpecError) as caught:
        load_spec_chart(load_spec(spec_path))
    assert (caught.value.file, caught.value.line, caught.value.path) == (str(spec_path), line, path)


def test_an_inline_chart_may_use_the_key_on(tmp_path: Path) -> None:
    """`on:` is a key in an inline chart as it is in a chart file; YAML 1.1 alone would read it as true."""
    row = "{event: replied, target: b, on: answer}"
    text = f"states:\n  a: {{initial: yes, transitions: [{row}]}}\n  b: {{final: true}}"
    spec_path = tmp_path / "agent.yaml"
    spec_path.write_text(SPEC + textwrap.indent(text, "  "))
    chart = load_spec_chart(load_spec(spec_path))
    assert chart.digest == parse_chart(text).digest
    assert chart.document["states"]["a"]["initial"] is True


def test_a_file_that_is_not_text_is_located(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are an error with their line."""
    path = tmp_path / "chart.yaml"
    path.write_bytes(b"states:\n  a: {}\n  \xff: {}\n")
    with pytest.raises(SpecError, match="not UTF-8") as caught:
        load_chart(str(path))
    assert caught.value.line == 3


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\x00b", "no/such/chart.yaml", ".", "\ud800"])
def test_a_name_that_is_no_chart_is_an_error(name: str) -> None:
    """A name that no file can have is refused like one that no file has."""
    with pytest.raises(SpecError, match="no chart"):
        load_chart(name)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("check",), "states: [a]"),
        (("draw",), "states: &s\n  a: *s"),
        (("check",), "states:\n  a: final"),
        (("run",), "states:\n  a: {initial: true, enter: 5}"),
    ],
)
def test_the_command_line_exits_with_2(command: tuple[str, ...], text: str, tmp_path: Path) -> None:
    """`check`, `draw` and `run` print file and line and exit with 2; the chart stands inline in a spec."""
    spec = tmp_path / "agent.yaml"
    spec.write_text(SPEC + textwrap.indent(text, "  "))
    words = (*command, str(spec), *(("hello",) if command == ("run",) else ()))
    result = run_toolchart(*words, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert f"{spec}:" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_shape_is_the_librarys_schema() -> None:
    """What the shape check accepts fits the library's JSON Schema; what the schema refuses, it refuses."""
    validator = Draft202012Validator(load_schema())
    documents = list_seed_documents()
    accepted = 0
    for seed in range(choose_count(short=133, long=10_000)):
        random = Random(seed)
        mutant: Any = mutate_document(random, random.choice(documents))
        located = Document()
        try:
            document = copy_plain_data(mutant, located)
            check_shape(document, located)
        except SpecError:
            continue
        accepted += 1
        assert validator.is_valid(document), f"seed {seed}"
    assert accepted > 20


def test_flags_in_words_are_booleans() -> None:
    """`initial: no` is false, as the library reads it, for every rule and diagram."""
    text = "states:\n  a: {initial: 'no', transitions: [{event: replied, target: b}]}\n  b: {initial: 'on'}"
    document = parse_chart(text).document
    assert document["states"]["a"]["initial"] is False
    assert document["states"]["b"]["initial"] is True
    assert make_chart(yaml.safe_load(text)).document == document
