"""`append` and `add`: the values of a result over several rounds become one, within a bound."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from agents import make_spec
from hypothesis import given
from hypothesis import strategies as st

from toolchart import effect
from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.chart.document import Chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.flows.reducers import Reducers
from toolchart.states.messages import Reply, Request
from toolchart.states.proofs.bounds.costs import count_most_items
from toolchart.states.proofs.check import check

SCHEMA = {
    "type": "object",
    "required": ["sources", "cents", "topic"],
    "properties": {
        "sources": {"type": "array", "items": {"type": "string"}},
        "cents": {"type": "integer", "minimum": 0, "maximum": 40},
        "topic": {"type": "string"},
    },
}


def make_research(
    guard: str = "found.count < 4", schema: Any = SCHEMA, **parameters: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A chart that looks again and again, and its effects."""
    chart = {
        "name": "research",
        "states": {
            "looking": {
                "initial": True,
                "enter": "look",
                "transitions": [
                    {"event": "replied", "target": "looking", "cond": guard},
                    {"event": "replied", "target": "told"},
                    {"event": "failed cancelled", "target": "error"},
                ],
            },
            "told": {"final": True, "enter": "tell"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
    }
    look = {"prompt": "Look. So far: {{found}}", "as": "found", **parameters}
    if schema is not None:
        look["schema"] = schema
    effects = {"look": {"call_model": look}, "tell": {"answer": "{{found.sources}} {{found.cents}}"}}
    return chart, effects


def answer(*sources: str, cents: int = 10, topic: str = "t") -> str:
    """A reply that fits the schema."""
    return orjson.dumps({"sources": sources, "cents": cents, "topic": topic}).decode()


def load(**options: Any) -> Chart:
    """The chart of a research."""
    chart, effects = make_research(**options)
    return make_chart({**chart, "effects": effects})


def test_lists_grow_and_numbers_add_up() -> None:
    """Over four rounds the list has the entries of all, in their order, and the number is their sum; a field
    without a reducer is that of the newest round. The next prompt and the answer read it; it replays, and is
    there after a restart from a checkpoint."""
    chart, effects = make_research(append={"sources": 20}, add={"cents": 500})
    replies = [answer("a", "b", topic="one"), answer("c"), answer(), answer("d", cents=7, topic="four")]
    model = ScriptedProvider(replies)
    with Engine(make_spec(chart=chart, effects=effects), providers={"model": model}, log="memory") as engine:
        result = engine.run("go", conversation="c")
        assert result.content == '["a","b","c","d"] 37'
        steps = list(replay_conversation(engine.store, "c"))
        loaded = load_conversation(engine.store, "c")
    found = steps[-1].step.snapshot.results["found"]
    assert found.value == {"sources": ["a", "b", "c", "d"], "cents": 37, "topic": "four"}
    assert (found.count, found.left_out) == (4, 0)
    assert loaded is not None
    assert loaded.snapshot.results["found"] == found
    prompts = [request.messages[-1].content for request in model.requests]
    assert prompts[2] == 'Look. So far: {"cents":20,"sources":["a","b","c"],"topic":"t"}'


def test_what_is_beyond_the_bound_is_counted() -> None:
    """A list keeps its first entries and a sum stays at its bound; `left_out` says how much was cut, and a
    guard can end the rounds by it. The log has every reply whole."""
    chart, effects = make_research("found.left_out == 0", append={"sources": 3}, add={"cents": 500})
    model = ScriptedProvider([answer("a", "b"), answer("c", "d", "e"), answer("never asked")])
    with Engine(make_spec(chart=chart, effects=effects), providers={"model": model}, log="memory") as engine:
        assert engine.run("go", conversation="c").content == '["a","b","c"] 20'
        steps = list(replay_conversation(engine.store, "c"))
    assert steps[-1].step.snapshot.results["found"].left_out == 2
    assert '"d"' in steps[-1].record.event["reply"]["content"]


def test_a_text_without_a_schema_becomes_a_list_of_texts() -> None:
    """`append: {content: 3}` keeps the texts of several rounds."""
    chart, effects = make_research("found.count < 3", schema=None, append={"content": 3})
    effects["tell"] = {"answer": "{{found}}"}
    model = ScriptedProvider(["one", "two", "three"])
    with Engine(make_spec(chart=chart, effects=effects), providers={"model": model}, log="memory") as engine:
        assert engine.run("go").content == '["one","two","three"]'


@given(
    st.lists(st.tuples(st.lists(st.integers(), max_size=5), st.integers(0, 50)), max_size=8),
    st.integers(1, 12),
    st.integers(1, 200),
)
def test_a_value_never_leaves_its_bound(rounds: list[tuple[list[int], int]], most: int, sum_: int) -> None:
    """For any values: the list is the first entries of all, the sum the true one or the bound, and what was
    cut of the list is counted exactly."""
    reducers = Reducers(append={"items": most}, add={"n": sum_})
    value, left_out = None, 0
    for items, number in rounds:
        value, cut = reducers.join(value, {"items": items, "n": number})
        left_out += cut
    every = [entry for items, _ in rounds for entry in items]
    if value is not None:
        assert value["items"] == every[:most]
        assert value["n"] == min(sum(number for _, number in rounds), sum_)
        assert left_out >= len(every) - len(value["items"])


def test_the_sum_of_a_result_has_its_bound_in_proofs() -> None:
    """A guard about a sum is proved with the range of the sum, and not with that of one value: 41 to 500 can
    be reached, 501 cannot. A round without another bound is unbounded, because a sum may stay."""
    chart = load(guard="found.cents > 40 and found.count < 9", append={"sources": 9}, add={"cents": 500})
    assert check(chart).findings == ()
    plain = load(guard="found.cents > 40 and found.count < 9")
    assert [finding.kind for finding in check(plain).findings] == ["dead row"]
    beyond = load(guard="found.cents > 500 and found.count < 9", add={"cents": 500})
    assert [finding.kind for finding in check(beyond).findings] == ["dead row"]
    endless = load(guard="found.cents < 500", add={"cents": 500})
    assert [finding.kind for finding in check(endless).findings] == ["unbounded"]


def test_a_list_that_grows_bounds_the_children_by_its_bound() -> None:
    """A `for_each` over a list that grows over rounds may have as many children as the list may have entries,
    whatever `maxItems` one value has."""
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "sources": {"type": "array", "maxItems": 3}}}
    for parameters, most in (({}, 3), ({"append": {"sources": 12}}, 12)):
        chart, effects = make_research(schema=schema, **parameters)
        effects["read"] = {"run_agent": {"handler": "model", "for_each": "found.sources", "as": "notes"}}
        chart["states"]["looking"]["transitions"][1]["target"] = "reading"
        chart["states"]["reading"] = {
            "enter": "read",
            "transitions": [
                {"event": "agent_finished agent_failed", "target": "told", "cond": "notes.pending == 0"},
                {"event": "agent_finished agent_failed"},
                {"event": "cancelled", "target": "error"},
            ],
        }
        loaded = make_chart({**chart, "effects": effects})
        assert count_most_items(loaded.vocabulary, loaded.vocabulary.find_effect("read")) == most


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"append": {"nothing": 3}}, "the schema has no field 'nothing'"),
        ({"append": {"topic": 3}}, "the field 'topic' is no list"),
        ({"add": {"topic": 3}}, "the field 'topic' is no number that only grows a sum"),
        ({"add": {"sources": 3}}, "the field 'sources' is no number that only grows a sum"),
        ({"append": {"cents": 3}, "add": {"cents": 3}}, "the field 'cents' is appended and added"),
        ({"append": {"sources": 0}}, "append"),
        ({"append": {"topic": 3}, "schema": None}, "there is no field 'topic' that `append` could join"),
        ({"add": {"content": 3}, "schema": None}, "there is no field 'content' that `add` could join"),
        ({"append": {"sources": 3}, "as": ""}, "needs a result"),
    ],
)
def test_reducers_that_do_not_fit_are_refused(parameters: dict[str, Any], message: str) -> None:
    """A field that is not there, is no list or no number, and a bound that is none are errors at load, with
    the place."""
    with pytest.raises(SpecError) as caught:
        load(**parameters)
    assert message in str(caught.value)
    assert "effects.look.call_model" in str(caught.value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"required": [["sources"]]},
            "the schema of the answer is no JSON Schema: ['sources'] is not of type",
        ),
        ({"required": 5}, "the schema of the answer is no JSON Schema: 5 is not of type 'array'"),
        ({"required": "sources"}, "the schema of the answer is no JSON Schema: 'sources' is not of type"),
        (
            {"properties": ["sources"]},
            "the schema of the answer is no JSON Schema: ['sources'] is not of type",
        ),
        ({"properties": {"a": {"enum": 5}}}, "5 is not of type 'array'"),
        ({"properties": {"a": {"pattern": "("}}}, "'(' is not a 'regex'"),
        ({"type": "array"}, "the schema of a result describes an object"),
    ],
)
@pytest.mark.parametrize("reducers", [{}, {"append": {"sources": 3}}, {"add": {"cents": 3}}])
def test_a_schema_of_another_shape_is_refused(
    reducers: dict[str, Any], part: dict[str, Any], message: str
) -> None:
    """Required fields that are no list of names, and fields that are no mapping, are errors at load."""
    _, effects = make_research()
    with pytest.raises(SpecError) as caught:
        load(**reducers, schema={**effects["look"]["call_model"]["schema"], **part})
    assert message in str(caught.value)
    assert "effects.look.call_model.schema" in str(caught.value)


def test_effects_with_one_result_have_the_same_reducers() -> None:
    """Two effects that bring one result join its values alike, or are refused."""
    chart, effects = make_research(append={"sources": 3})
    other = {key: value for key, value in effects["look"]["call_model"].items() if key != "append"}
    effects["look_again"] = {"call_model": other}
    with pytest.raises(SpecError, match="in different forms"):
        make_chart({**chart, "effects": effects})


# -- an interruption -----------------------------------------------------------------------------


class SlowReader:
    """A model that answers for some parts at once, and for the others never."""

    name = "scripted"

    def __init__(self, *slow: str) -> None:
        self.slow = slow
        self.asked = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """The answer to a part."""
        text = str(request.messages[-1].content)
        if text in self.slow:
            self.asked.set()
            await asyncio.sleep(60)
        return Reply(content=f"read {text}", finish_reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


@dataclass
class Outline:
    """What is to be read."""

    parts: list[str]


READING: dict[str, Any] = {
    "name": "reading",
    "states": {
        "listing": {
            "initial": True,
            "enter": "list_parts",
            "transitions": [
                {"event": "returned", "target": "reading"},
                {"event": "failed cancelled", "target": "told"},
            ],
        },
        "reading": {
            "enter": "read",
            "transitions": [
                {"event": "agent_finished agent_failed", "target": "told", "cond": "notes.pending == 0"},
                {"event": "agent_finished agent_failed"},
                {"event": "cancelled", "target": "told"},
            ],
        },
        "told": {"final": True, "enter": "tell"},
    },
}


def test_an_interruption_keeps_the_children_that_have_finished() -> None:
    """A list of children that is cancelled has the answers of those that were done, each in its place, and
    says of the others that they were interrupted; the answer of the turn can read them, and it replays."""

    @effect(isolation="inline")
    def list_parts() -> Outline:
        return Outline(parts=["one", "two", "three"])

    effects = {
        "list_parts": {"call_function": {"function": "list_parts", "as": "outline"}},
        "read": {
            "run_agent": {
                "chart": "tool_loop",
                "for_each": "outline.parts",
                "at_most": 3,
                "parallel": 3,
                "message": "{{item}}",
                "as": "notes",
            }
        },
        "tell": {"answer": "{{notes.items}}"},
    }

    async def interrupt() -> tuple[str, Any]:
        model = SlowReader("two")
        spec = make_spec(chart=READING, effects=effects)
        engine = Engine(spec, providers={"model": model}, log="memory", functions=[list_parts])
        turn = asyncio.create_task(engine.arun("go", conversation="c"))
        await asyncio.wait_for(model.asked.wait(), 10)
        for _ in range(200):
            loaded = load_conversation(engine.store, "c")
            if loaded is not None and len(loaded.snapshot.results.get("notes", _EMPTY).items) == 2:
                break
            await asyncio.sleep(0.01)
        await engine.conversation("c").acancel()
        result = await asyncio.wait_for(turn, 10)
        steps = list(replay_conversation(engine.store, "c"))
        await engine.aclose()
        return result.content or "", steps[-1].step.snapshot.results["notes"]

    content, notes = asyncio.run(interrupt())
    first, second, third = orjson.loads(content)
    assert (first["content"], third["content"]) == ("read one", "read three")
    assert second == {"error_kind": "interrupted", "error": "it was interrupted before it had an answer"}
    assert (notes.count, notes.failures, notes.items) == (2, 0, {})


_EMPTY = type("Empty", (), {"items": {}})()


def test_what_a_bound_cuts_is_counted() -> None:
    """`left_out` is the number of entries that found no place, and one for each sum that was cut."""
    reducers = Reducers(append={"list": 3}, add={"sum": 10, "other": 10})
    old, new = {"list": [1, 2], "sum": 4, "other": 4}, {"list": [3, 4, 5], "sum": 7, "other": 6}
    assert reducers.join(old, new) == ({"list": [1, 2, 3], "sum": 10, "other": 10}, 2 + 1)
    assert reducers.join(None, {"list": [1], "sum": 11, "other": 10}) == (
        {"list": [1], "sum": 10, "other": 10},
        1,
    )


@pytest.mark.parametrize(
    ("effect", "path"),
    [
        ({"call_model": {"prompt": "p", "as": "r", "schema": "BAD"}}, "call_model.schema"),
        ({"call_function": {"function": "f", "as": "r", "schema": "BAD"}}, "call_function.schema"),
        ({"run_agent": {"chart": "tool_loop", "as": "r", "schema": "BAD"}}, "run_agent.schema"),
        (
            {"run_agent": {"chart": "tool_loop", "as": "r", "for_each": "a.b", "schema": "BAD"}},
            "run_agent.schema",
        ),
        ({"ask_person": {"question": "q", "as": "r", "form": "BAD"}}, "ask_person.form"),
    ],
)
def test_what_is_no_schema_is_refused_wherever_it_stands(effect: dict[str, Any], path: str) -> None:
    """Each kind of effect that declares a schema refuses at load what is none, with the place inside it."""
    bad = {"type": "object", "properties": {"n": {"minimum": True}}}
    kind, parameters = next(iter(effect.items()))
    body = {key: bad if value == "BAD" else value for key, value in parameters.items()}
    chart, effects = make_research()
    with pytest.raises(SpecError) as caught:
        make_chart({**chart, "effects": {**effects, "look": {kind: body}}})
    assert caught.value.path == f"effects.look.{path}.properties.n.minimum"
    assert "True is not of type 'number'" in caught.value.message
