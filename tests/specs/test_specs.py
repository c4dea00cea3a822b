"""The agent spec: what loads, what is refused and where, and what a turn runs with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from recorded import RECORDED, needs_recorded

from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.handler_selection import matches, select_handler
from toolchart.specs.history import load_history
from toolchart.specs.loader import load_spec, shipped_agents
from toolchart.specs.prompts import render
from toolchart.specs.schema import spec_schema
from toolchart.specs.secrets import resolve
from toolchart.specs.turn_plan import plan_turn
from toolchart.states.errors import SpecError

GOOD = """\
name: good
llms:
  a: {provider: openai, model: m, api_key: "${KEY}"}
tools:
  registry:
    - {name: calculator}
responses:
  - llm: a
    match: {intent: support}
    tools: {enabled: true}
"""


def write(folder: Path, text: str, name: str = "agent.yaml") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def problem(path: Path | str) -> SpecError:
    """The one error that loading raises."""
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return caught.value


@pytest.mark.parametrize(
    ("before", "after", "line", "told"),
    [
        ("responses:", "responces:", 7, "did you mean 'responses'"),
        ("provider: openai", "providr: openai", 3, "did you mean 'provider'"),
        ("llm: a", "llm: b", 8, "there is no llm 'b'"),
        ("enabled: true", "enabled: perhaps", 10, "tools.enabled"),
        ("enabled: true", "max_iteration: 3", 10, "did you mean 'max_iterations'"),
        ("enabled: true", "max_iterations: 0", 10, "greater than or equal to 1"),
        ("enabled: true", "max_iterations: three", 10, "found 'three'"),
        ("{intent: support}", "{intent_regexp: '('}", 9, "not a regular expression"),
        (
            "    - {name: calculator}",
            "    - {name: calculator}\n    - {name: calculator}",
            7,
            "twice",
        ),
        ("    match:", "\tmatch:", 9, "never with tabs"),
        ("name: good", "name: good\nname: again", 2, "stands twice, first in line 1"),
        ("    - {name: calculator}", "    5", 5, "list"),
    ],
)
def test_errors_point_at_the_place(
    tmp_path: Path, before: str, after: str, line: int, told: str
) -> None:
    """Issue 2: a mistake is told with file, line, key path, and the nearest known key."""
    path = write(tmp_path, GOOD.replace(before, after))
    error = problem(path)
    assert str(error).startswith(f"{path}:{line}")
    assert told in str(error)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "", "empty"),
        ("a.yaml", "- 1", "found a list"),
        ("a.json", "{", "not valid JSON"),
        (
            "a.json",
            '{"llms": {"a": {"provider": "openai"}},\n\t"responses": [{"llm": "z"}]}',
            "'z'",
        ),
        ("a.yaml", "[" * 5000, "nested too deeply"),
        ("a.yaml", "llms: {}\nresponses: []", "at least 1"),
    ],
)
def test_unusable_documents(tmp_path: Path, name: str, text: str, told: str) -> None:
    """An empty, broken or foreign document is one readable error."""
    assert told in str(problem(write(tmp_path, text, name)))


def test_missing_things(tmp_path: Path) -> None:
    """A missing file, a folder, bad bytes and a misspelt shipped name are told apart."""
    assert "no such file" in str(problem(tmp_path / "none.yaml"))
    assert "folder" in str(problem(tmp_path))
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "UTF-8" in str(problem(tmp_path / "b.yaml"))
    assert "did you mean 'quickstart'" in str(problem("quickstrat"))


def test_several_problems_are_told_together(tmp_path: Path) -> None:
    """Two mistakes in one file are told in one error, each with its line."""
    text = GOOD.replace("llm: a", "llm: b").replace("enabled: true", "enabeld: true")
    error = str(problem(write(tmp_path, text)))
    assert ":8" in error
    assert ":10" in error


@needs_recorded
@pytest.mark.parametrize("name", ["04-multi-rag-multi-llm.json", "08-tool-calling.json"])
def test_existing_files_load_unchanged(name: str) -> None:
    """S2.11: an existing server's configurations load, foreign sections named once, and fit the schema."""
    path = RECORDED / "configs" / name
    spec = load_spec(path)
    assert len(spec.warnings) <= 1
    Draft202012Validator(spec_schema()).validate(json.loads(path.read_text("utf-8")))


@needs_recorded
def test_an_existing_file_answers_by_match() -> None:
    """A handler of an existing file is chosen by the variables, its prompt filled, and it runs."""
    spec = load_spec(RECORDED / "configs" / "04-multi-rag-multi-llm.json")
    model = ScriptedProvider(["Use oc login."])
    run = Engine(spec, log="memory", providers={"local": model})
    result = run.run(
        "How?",
        variables={
            "rag_results": "match",
            "service": "red_hat_products",
            "collection": "openshift-ai-2",
            "rag_context": "DOCS",
        },
    )
    assert result.content == "Use oc login."
    assert (result.service, result.model) == ("local", "qwen2.5:7b-instruct")
    assert "OpenShift support engineer" in (model.requests[0].messages[0].content or "")
    assert "DOCS" in (model.requests[0].messages[0].content or "")
    fallback = select_handler(spec, {"intent": "other"})
    assert fallback.model == "qwen2.5:3b-instruct"


@pytest.mark.parametrize("name", shipped_agents())
def test_shipped_agents_load_and_fit_the_schema(name: str) -> None:
    """Every example agent loads without a warning and fits the published schema."""
    spec = load_spec(name)
    assert spec.warnings == ()
    Draft202012Validator(spec_schema()).validate(spec.public())
    assert load_spec(spec.public()).public() == spec.public()


@pytest.mark.parametrize(
    ("conditions", "variables", "holds"),
    [
        (None, {}, True),
        ({"intent": "a"}, {"intent": "a"}, True),
        ({"intent": "a"}, {}, False),
        ({"intent": "a", "service": "b"}, {"intent": "a"}, False),
        ({"name_contains": "Shift"}, {"name": "openshift-ai"}, True),
        ({"tags_contains": "x"}, {"tags": ["x", "y"]}, True),
        ({"name_regexp": "/^OPEN/i"}, {"name": "openshift"}, True),
        ({"name_regexp": "^OPEN"}, {"name": "openshift"}, False),
        ({"rag_results": "any"}, {"rag_results": "partial"}, True),
        ({"rag_results": "any"}, {}, False),
        ({"rag_results": "match"}, {"rag_results": "partial"}, False),
        ({"a.b": 1}, {"a": {"b": 1}}, True),
        ({"comment": "words"}, {}, True),
    ],
)
def test_match(conditions: Any, variables: Any, holds: bool) -> None:
    """Each field of `match`: equality, contains, regexp, rag_results; all must hold."""
    assert matches(conditions, variables) is holds


def test_no_handler_is_a_clear_error() -> None:
    """When nothing matches, or a handler is misnamed, the error lists what there is."""
    spec = load_spec(
        {
            "llms": {"a": {"provider": "openai"}},
            "responses": [{"name": "first", "llm": "a", "match": {"intent": "x"}}],
        }
    )
    with pytest.raises(SpecError, match="intent"):
        select_handler(spec, {})
    with pytest.raises(SpecError, match="did you mean 'first'"):
        select_handler(spec, {}, "frist")


def test_prompts_fill_once_and_name_what_is_missing() -> None:
    """S1.1: nested names, JSON for values that are no text, missing ones empty and named, no second pass."""
    text, missing = render(
        "{{a}} {{ b.c }} {{list}} {{gone}} {{b.gone}}|",
        {"a": "{{gone}}", "b": {"c": 1}, "list": [1]},
    )
    assert text == "{{gone}} 1 [1]  |"
    assert missing == ("gone", "b.gone")


@given(st.text())
def test_prompts_without_slots_are_unchanged(text: str) -> None:
    """A template without `{{` is its own result."""
    if "{{" not in text:
        assert render(text, {}) == (text, ())


def test_missing_variables_are_warned_of() -> None:
    """A prompt that names what was not given warns, by name."""
    spec = load_spec(
        {
            "llms": {"a": {"provider": "openai", "model": "m"}},
            "responses": [{"llm": "a", "prompt": "{{rag_context}}"}],
        }
    )
    plan = plan_turn(spec, spec.responses[0], {}, ())
    assert plan.warnings == ("the prompt names variables that were not given: rag_context",)


def test_secrets_resolve_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${VAR}` resolves when asked for; unset is an error that names variable and place."""
    spec = load_spec(
        {
            "llms": {"a": {"provider": "openai", "model": "m", "api_key": "${NOT_SET}"}},
            "responses": [{"llm": "a"}],
        }
    )
    with pytest.raises(SpecError, match=r"llms\.a: the environment variable NOT_SET is not set"):
        Engine(spec, log="memory").run("x")
    monkeypatch.setenv("NOT_SET", "now")
    assert resolve("${NOT_SET}/${OTHER:-d}", "x") == "now/d"


def test_an_unknown_provider_is_a_clear_error() -> None:
    """A misspelt provider names the nearest."""
    spec = {"llms": {"a": {"provider": "opnai", "model": "m"}}, "responses": [{"llm": "a"}]}
    with pytest.raises(SpecError, match="did you mean 'openai'"):
        Engine(spec, log="memory").run("x")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "usr", "content": "x"}], r"\[0\].role: unknown role"),
        ([{"role": "tool", "content": "x"}], r"\[0\]: a tool message needs"),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
                }
            ],
            "not JSON",
        ),
        (
            [
                {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
                {"role": "user", "content": "x"},
            ],
            r"\[1\]: the call '1' before it has no answer",
        ),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "text parts"),
        (
            [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}],
            "only at the beginning",
        ),
    ],
)
def test_a_bad_history_names_the_message(tmp_path: Path, messages: Any, told: str) -> None:
    """A history that no provider would take is refused, with the message's place."""
    path = write(tmp_path, json.dumps(messages), "h.json")
    with pytest.raises(SpecError, match=told):
        load_history(path)
