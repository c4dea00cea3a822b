"""Agent specs: which load, which are refused with what position, and how a turn is planned from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from recorded_traffic import find_recording, needs_recorded

from toolchart.engine import Engine
from toolchart.engine.exchange.message_files import load_history
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import list_shipped_agents, load_spec, parse_spec
from toolchart.specs.models import build_spec_schema
from toolchart.specs.secrets import resolve_environment
from toolchart.specs.turn_plan import conditions_hold, plan_turn, select_handler
from toolchart.states.chart.loading import parse_recorded_chart
from toolchart.states.chart.yaml_document import (
    CHART_LIMITS,
    SPEC_LIMITS,
    parse_document,
    read_yaml,
    write_yaml,
)
from toolchart.states.errors import SpecError
from toolchart.states.flows.templates import render_template

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


def write_file(folder: Path, text: str, name: str = "agent.yaml") -> Path:
    """Write a file with this text."""
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def load_error(path: Path | str) -> SpecError:
    """Return the error that loading a spec raises."""
    with pytest.raises(SpecError) as error_info:
        load_spec(path)
    return error_info.value


@pytest.mark.parametrize(
    ("before", "after", "line", "expected"),
    [
        ("responses:", "responces:", 7, "did you mean 'responses'"),
        ("provider: openai", "providr: openai", 3, "did you mean 'provider'"),
        ("llm: a", "llm: b", 8, "there is no llm 'b'"),
        ("enabled: true", "enabled: perhaps", 10, "tools.enabled"),
        ("enabled: true", "max_iteration: 3", 10, "did you mean 'max_iterations'"),
        ("enabled: true", "max_iterations: 0", 10, "greater than or equal to 1"),
        ("enabled: true", "max_iterations: three", 10, "found 'three'"),
        ("{intent: support}", "{intent_regexp: '('}", 9, "not a regular expression"),
        ("    - {name: calculator}", "    - {name: calculator}\n    - {name: calculator}", 7, "twice"),
        ("    match:", "\tmatch:", 9, "never with tabs"),
        ("name: good", "name: good\nname: again", 2, "occurs twice, first in line 1"),
        ("    - {name: calculator}", "    5", 5, "list"),
    ],
)
def test_errors_point_at_the_place(tmp_path: Path, before: str, after: str, line: int, expected: str) -> None:
    """Issue 2: a mistake is reported with file, line, key path, and the nearest known key."""
    path = write_file(tmp_path, GOOD.replace(before, after))
    error = load_error(path)
    assert str(error).startswith(f"{path}:{line}")
    assert expected in str(error)


UNKNOWN_NAMES: list[tuple[str, dict[str, Any], str, str]] = [
    ("llms.a.provider", {"llms": {"a": {"provider": "openia", "model": "m"}}}, "'openia'", "'openai'"),
    (
        "llms.a.tool_format",
        {"llms": {"a": {"provider": "openai", "model": "m", "tool_format": "hermess"}}},
        "'hermess'",
        "'hermes'",
    ),
    ("tools.registry[0].type", {"tools": {"registry": [{"name": "x", "type": "htpp"}]}}, "'htpp'", "'http'"),
    ("chart", {"chart": "tool_lop"}, "'tool_lop'", "'tool_loop'"),
    (
        "effects.ask.call_modl",
        {"effects": {"ask": {"call_modl": {"llm": "a"}}}},
        "'call_modl'",
        "'call_model'",
    ),
    ("responses[0].llm", {"responses": [{"llm": "aa"}]}, "'aa'", "'a'"),
    ("durability", {"durability": "fulll"}, "'fulll'", "'full'"),
]
"""A place of a spec that names something, a section that misspells it, that word, and the nearest name."""


@pytest.mark.parametrize("door", ["mapping", "YAML", "JSON"])
@pytest.mark.parametrize(
    ("place", "section", "name", "nearest"), UNKNOWN_NAMES, ids=[row[0] for row in UNKNOWN_NAMES]
)
def test_no_engine_is_made_of_an_unknown_name(
    tmp_path: Path, door: str, place: str, section: dict[str, Any], name: str, nearest: str
) -> None:
    """Whatever a spec names is there when the engine is made: a misspelt name is refused with the nearest."""
    spec = {"llms": {"a": {"provider": "openai", "model": "m"}}, "responses": [{"llm": "a"}], **section}
    source = {
        "mapping": lambda: spec,
        "YAML": lambda: write_file(tmp_path, yaml.safe_dump(spec)),
        "JSON": lambda: write_file(tmp_path, json.dumps(spec), "agent.json"),
    }[door]()
    with pytest.raises(SpecError) as error_info:
        Engine(source, log="memory")
    assert error_info.value.path == place
    assert name in error_info.value.message
    assert error_info.value.hint == f"did you mean {nearest}?"


def test_a_ready_provider_does_not_hide_an_unknown_one() -> None:
    """The `provider` of an entry is looked up where a ready provider replaces the entry, too."""
    spec = {"llms": {"a": {"provider": "openia"}}, "responses": [{"llm": "a"}]}
    with pytest.raises(SpecError, match="unknown provider"):
        Engine(spec, log="memory", providers={"a": ScriptedProvider([])})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.yaml", "", "empty"),
        ("a.yaml", "- 1", "found a list"),
        ("a.json", "{", "not valid JSON"),
        ("a.json", '{"llms": {"a": {"provider": "openai"}},\n\t"responses": [{"llm": "z"}]}', "'z'"),
        ("a.yaml", "[" * 5000, "nested too deeply"),
    ],
)
def test_unusable_documents(tmp_path: Path, name: str, text: str, expected: str) -> None:
    """An empty, broken or unrelated document is one readable error."""
    assert expected in str(load_error(write_file(tmp_path, text, name)))


def test_unreadable_sources(tmp_path: Path) -> None:
    """A missing file, a folder, invalid UTF-8 and a misspelt shipped name each have their own error."""
    assert "no such file" in str(load_error(tmp_path / "none.yaml"))
    assert "folder" in str(load_error(tmp_path))
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "UTF-8" in str(load_error(tmp_path / "b.yaml"))
    assert "did you mean 'quickstart'" in str(load_error("quickstrat"))


def test_one_error_reports_several_problems(tmp_path: Path) -> None:
    """Two mistakes in one file are reported in one error, each with its line."""
    text = GOOD.replace("llm: a", "llm: b").replace("enabled: true", "enabeld: true")
    error = str(load_error(write_file(tmp_path, text)))
    assert ":8" in error
    assert ":10" in error


@pytest.mark.parametrize(
    "name",
    [
        "own__desk.json",
        "own__tools.json",
        pytest.param("04-multi-rag-multi-llm.json", marks=needs_recorded),
        pytest.param("08-tool-calling.json", marks=needs_recorded),
    ],
)
def test_existing_files_load_unchanged(name: str) -> None:
    """S2.11: configurations of an existing server load with at most one warning, and fit the schema."""
    path = find_recording(f"configs/{name}")
    spec = load_spec(path)
    assert len(spec.warnings) <= 1
    Draft202012Validator(build_spec_schema()).validate(json.loads(path.read_text("utf-8")))


def test_our_file_answers_by_match() -> None:
    """S1.1, S1.3, S2.11: the variables select a handler of our own example and fill its prompt; the last
    handler answers everything else."""
    spec = load_spec(find_recording("configs/own__desk.json"))
    model = ScriptedProvider(["High water at six."])
    variables = {
        "rag_results": "partial",
        "service": "almanac",
        "collection": "tides-2026",
        "rag_context": "PAGE 12",
    }
    with Engine(spec, log="memory", providers={"quay": model}) as engine:
        result = engine.run("When?", variables=variables)
    assert (result.content, result.service) == ("High water at six.", "quay")
    assert result.model == "harbour:4b"
    assert (model.requests[0].messages[0].content or "").endswith("Pages:\nPAGE 12")
    assert model.requests[0].options["max_tokens"] == 300
    berths = {"intent": "berths", "rag_results": "partial"}
    assert select_handler(spec, berths).model == "harbour-4"
    assert select_handler(spec, {"intent": "other"}).model == "harbour:1b"


def test_our_file_offers_its_allowed_tools() -> None:
    """S2.3, S2.9, S2.11: the tools section of our own example loads; its handler's list and limit hold."""
    spec = load_spec(find_recording("configs/own__tools.json"))
    call = {"name": "calculator", "arguments": {"expression": "6*7"}}
    model = ScriptedProvider([{"tool_calls": [call]}, "42"])
    with Engine(spec, log="memory", providers={"cloud": model}) as engine:
        result = engine.run("What is 6*7?")
    assert (result.state, result.content, result.iterations) == ("finished", "42", 1)
    assert [call["tool"] for call in result.tool_calls] == ["calculator"]
    offered_names = {tool.name for tool in model.requests[0].tools}
    assert offered_names == {"calculator", "get_current_datetime"}
    plan = plan_turn(spec, spec.responses[0], {}, sorted(offered_names))
    assert plan.settings.limits.max_iterations == 2


@needs_recorded
def test_an_existing_file_answers_by_match() -> None:
    """In an existing file the variables select a handler and fill its prompt, and the turn runs."""
    spec = load_spec(find_recording("configs/04-multi-rag-multi-llm.json"))
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


@pytest.mark.parametrize("name", list_shipped_agents())
def test_shipped_agents_load_and_fit_the_schema(name: str) -> None:
    """Every example agent loads without a warning and fits the published schema."""
    spec = load_spec(name)
    assert spec.warnings == ()
    Draft202012Validator(build_spec_schema()).validate(spec.to_public_dict())
    assert load_spec(spec.to_public_dict()).to_public_dict() == spec.to_public_dict()


@pytest.mark.parametrize(
    ("conditions", "variables", "expected"),
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
def test_match(conditions: Any, variables: Any, expected: bool) -> None:
    """Each kind of condition in `match` works: equality, contains, regexp, rag_results; all must hold."""
    assert conditions_hold(conditions, variables) is expected


def test_no_handler_is_a_clear_error() -> None:
    """If no handler matches, or a handler's name is misspelt, the error lists what exists."""
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


def test_prompts_fill_once_and_report_missing_names() -> None:
    """S1.1: prompts fill nested names, write values as JSON, report missing names, and fill only once."""
    text, missing = render_template(
        "{{a}} {{ b.c }} {{list}} {{gone}} {{b.gone}}|", {"a": "{{gone}}", "b": {"c": 1}, "list": [1]}
    )
    assert text == "{{gone}} 1 [1]  |"
    assert missing == ("gone", "b.gone")


@given(st.text())
def test_prompts_without_slots_are_unchanged(text: str) -> None:
    """A template without `{{` is its own result."""
    if "{{" not in text:
        assert render_template(text, {}) == (text, ())


def test_missing_variables_are_a_warning() -> None:
    """A prompt with a variable that has no value gives a warning that names it."""
    spec = load_spec(
        {
            "llms": {"a": {"provider": "openai", "model": "m"}},
            "responses": [{"llm": "a", "prompt": "{{rag_context}}"}],
        }
    )
    plan = plan_turn(spec, spec.responses[0], {}, ())
    assert plan.warnings == ("the prompt names variables that were not given: rag_context",)


def test_secrets_resolve_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${VAR}` resolves when a client is made; an unset one is an error with variable and key path."""
    spec = load_spec(
        {
            "llms": {"a": {"provider": "openai", "model": "m", "api_key": "${NOT_SET}"}},
            "responses": [{"llm": "a"}],
        }
    )
    with pytest.raises(SpecError, match=r"llms\.a: the environment variable NOT_SET is not set"):
        Engine(spec, log="memory").run("x")
    monkeypatch.setenv("NOT_SET", "now")
    assert resolve_environment("${NOT_SET}/${OTHER:-d}", "x") == "now/d"


def test_an_unknown_provider_is_a_clear_error() -> None:
    """The error for a misspelt provider names the nearest known one."""
    spec = {"llms": {"a": {"provider": "opnai", "model": "m"}}, "responses": [{"llm": "a"}]}
    with pytest.raises(SpecError, match="did you mean 'openai'"):
        Engine(spec, log="memory").run("x")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "usr", "content": "x"}], r"\[0\].role: unknown role"),
        ([{"role": "tool", "content": "x"}], r"\[0\]: a result that answers no call before it"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"content\[0\]: a part of a content is"),
        ([{"role": "user", "content": "x"}, {"role": "system", "content": "y"}], "only at the beginning"),
    ],
)
def test_a_bad_history_names_the_message(tmp_path: Path, messages: Any, expected: str) -> None:
    """A history with a broken message is refused; the error names the message's position."""
    path = write_file(tmp_path, json.dumps(messages), "h.json")
    with pytest.raises(SpecError, match=expected):
        load_history(path)


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"enabled": False}, ()),
        ({"allowed_tools": ["calculator"]}, ()),
        ({"enabled": True}, ("calculator",)),
    ],
)
def test_only_an_enabled_section_offers_tools(tools: Any, names: tuple[str, ...]) -> None:
    """Issue 15.8: a handler offers tools if its section says `enabled: true`; a list alone is warned of."""
    handler = {"llm": "a", **({"tools": tools} if tools is not None else {})}
    spec = load_spec(
        {
            "llms": {"a": {"provider": "scripted", "model": "m"}},
            "tools": {"registry": [{"name": "calculator"}]},
            "responses": [handler],
        }
    )
    plan = plan_turn(spec, spec.responses[0], {}, ["calculator"])
    assert plan.settings.tools == names
    has_unused_list = bool(tools) and "enabled" not in tools
    assert any("`enabled: true`" in warning for warning in plan.warnings) is has_unused_list


# -- words without quotes ------------------------------------------------------------------------------

WORDS: dict[str, Any] = {
    **dict.fromkeys(("on", "off", "yes", "no", "On", "OFF", "Yes", "NO", "y", "n", "Y", "N"), str),
    **dict.fromkeys(("007", "08", "-007", "00", "0.10.1", "1_000", "1_0.5", "0b101", "00.5"), str),
    **dict.fromkeys(("12:30", "1:30:00", "1:30.5", "2026-01-02", "2026-01-02T10:00:00Z", "1.2.3"), str),
    **{"true": True, "True": True, "TRUE": True, "false": False, "False": False},
    **{"null": None, "Null": None, "~": None},
    **{"0": 0, "12": 12, "-5": -5, "+7": 7, "0x1F": 31, "0o17": 15},
    **{"1.10": 1.1, "0.5": 0.5, ".5": 0.5, "5.": 5.0, "1e3": 1000.0, "1.5E-3": 0.0015, "-2e+2": -200.0},
}
"""A word without quotes, and what it is: `str` for itself as a text."""

_AGENT = "llms: {a: {provider: scripted, model: m, replies: [x]}}\nresponses: [{llm: a}]\n"

_DOORS = {
    "list": lambda word: parse_document(f"a: {{b: [{word}]}}", None).data["a"]["b"][0],
    "block": lambda word: parse_document(f"a:\n  b:\n    - {word}\n", None).data["a"]["b"][0],
    "chart": lambda word: read_yaml(f"a: {word}", None, limits=CHART_LIMITS).data["a"],
    "agent": lambda word: parse_spec(
        parse_document(f"{_AGENT}variables: {{word: {word}}}\n", None), source=None
    ).variables["word"],
}


@pytest.mark.parametrize("door", _DOORS)
@pytest.mark.parametrize("word", WORDS)
def test_a_word_without_quotes_means_what_it_says(door: str, word: str) -> None:
    """Specs and charts are read by the words of YAML 1.2: only true and false are booleans, and dates, times,
    codes with zeros in front and numbers with `_` are texts."""
    value = _DOORS[door](word)
    wanted = word if WORDS[word] is str else WORDS[word]
    assert (type(value), value) == (type(wanted), wanted)


@pytest.mark.parametrize("is_code", [True, False])
def test_what_is_written_is_read_back(is_code: bool) -> None:
    """YAML that Toolchart writes gives the same data to its own reader and to one of YAML 1.1."""
    words = list(WORDS) if is_code else [value for value in WORDS.values() if value is not str]
    document = {"words": words, "keys": {str(word): word for word in words}}
    text = write_yaml(document)
    assert read_yaml(text, None, limits=SPEC_LIMITS).data == document
    assert yaml.safe_load(text) == document


_TOOL = """llms: {a: {provider: scripted, model: m, replies: [x]}}
responses: [{llm: a}]
tools:
  registry:
    - name: set_light
      parameters:
        type: object
        properties:
          state: SCHEMA
      implementation: {type: mock, mock_response: {type: string, default: 5}}
"""


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ("{type: string, enum: [on, 1.10]}", "1.10"),
        ("{type: string, enum: [true, false]}", "true"),
        ("{type: string, default: 12}", "12"),
        ("{type: string, const: 0x10}", "0x10"),
        ("{type: string, examples: [a, 1e3]}", "1e3"),
        ("{type: [string, 'null'], default: 1.0}", "1.0"),
        ("{type: array, items: {type: string, enum: [1]}}", "1"),
        ("{anyOf: [{type: string, const: 3}, {type: integer}]}", "3"),
    ],
)
def test_a_number_among_the_texts_of_a_schema_is_an_error(schema: str, word: str) -> None:
    """A value without quotes that can never fit `type: string` is an error with its line, its path, and the
    word in quotes as it was written."""
    with pytest.raises(SpecError) as caught:
        parse_document(_TOOL.replace("SCHEMA", schema), "agent.yaml")
    assert "agent.yaml:9: tools.registry[0].parameters.properties.state" in str(caught.value)
    assert f'write it in quotes: "{word}"' in str(caught.value)


def test_documents_of_others_and_logs_have_no_quotes_to_ask_for() -> None:
    """In an OpenAPI document a number among texts is the text as it was written, and a chart in a log stays
    as it was recorded: nobody could put quotes there."""
    switch = "{type: boolean, default: no, enum: [yes, Off, 'no']}"
    read = read_yaml(switch, None, limits=SPEC_LIMITS, misread_words="convert").data
    assert read == {"type": "boolean", "default": False, "enum": [True, False, "no"]}
    text = "a: {type: string, example: 1.10, enum: [on, 1e3, true], default: x}"
    foreign = read_yaml(text, None, limits=SPEC_LIMITS, misread_words="convert").data["a"]
    assert foreign == {"type": "string", "example": "1.10", "enum": ["on", "1e3", "true"], "default": "x"}
    schema = {"type": "string", "enum": [1, True], "default": 1.5}
    chart = {"states": {"a": {"initial": True}}, "note": schema}
    assert parse_recorded_chart(write_yaml(chart)).document["note"] == schema


@pytest.mark.parametrize(
    "schema",
    [
        "{type: string, enum: [on, off, NO, 007, '1.10'], default: on}",
        "{type: [string, 'null'], default: null}",
        "{type: [string, integer], default: 5}",
        "{enum: [1, true]}",
        "{type: object, properties: {type: {type: string}, default: {type: integer, default: 3}}}",
    ],
)
def test_texts_and_values_of_other_types_stay(schema: str) -> None:
    """Texts need no quotes where YAML 1.2 reads them as texts; values of other types stand where they fit."""
    document = parse_document(_TOOL.replace("SCHEMA", schema), "agent.yaml")
    assert parse_spec(document, source="agent.yaml").tools is not None


@pytest.mark.parametrize(
    "schema", ["{type: boolean, default: no}", "{type: [boolean, 'null'], enum: [OFF, On]}"]
)
def test_an_old_boolean_in_a_schema_of_booleans_is_an_error(schema: str) -> None:
    """`no` is a text, so it never fits `type: boolean`: the error says to write true or false."""
    with pytest.raises(SpecError, match="write true or false") as caught:
        parse_document(_TOOL.replace("SCHEMA", schema), "agent.yaml")
    assert "agent.yaml:9" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("name: 1.10", "name"),
        ("name: true", "name"),
        ("llms: {a: {provider: scripted, model: 4.1}}", "llms.a.model"),
    ],
)
def test_a_number_where_a_text_belongs_asks_for_quotes(line: str, path: str) -> None:
    """A field of the spec that is a text takes no number, and the error says to write it in quotes."""
    with pytest.raises(SpecError, match="in quotes") as caught:
        parse_spec(parse_document(f"{line}\nresponses: [{{llm: a}}]\n", "agent.yaml"), source="agent.yaml")
    assert path in str(caught.value)
