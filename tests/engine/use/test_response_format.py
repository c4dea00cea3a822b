"""A handler's `response_format` is checked like `output_type`: by every door, and after going on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import make_engine, make_spec, reply_with_calls
from typing_extensions import TypedDict

from toolchart import Decided, Engine, SpecError, Turn, rerun
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Reply
from toolchart.testing import ScriptedModel


class Count(TypedDict):
    """How many."""

    a: int


COUNT = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}
COUNTED = {"type": "json_schema", "json_schema": {"name": "count", "schema": COUNT}}
FLAT = {"type": "json_schema", "name": "count", "schema": COUNT}
LIST = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "minItems": 2}}}
OBJECT = {"type": "json_object"}

ASKING: dict[str, Any] = {"approval": [{"tools": "echo", "decision": "ask"}]}


def make_handlers(form: Any = COUNTED) -> list[dict[str, Any]]:
    """One handler that demands a form."""
    handler = {"llm": "model", "prompt": "p", "response_format": form, "tools": {"enabled": True}}
    return [{name: value for name, value in handler.items() if value is not None}]


def expect_bad_output(result: Turn) -> None:
    """A turn whose answers broke the form ended in that error, and says what is wrong."""
    assert (result.ok, result.data) == (False, None)
    assert result.error is not None
    assert (result.error.kind, result.is_retryable) == ("bad_output", True)


@pytest.mark.parametrize(
    ("form", "answer", "problem"),
    [
        (COUNTED, "no json here", "not JSON"),
        (COUNTED, '{"a": "x"}', "'a' must be an integer"),
        (COUNTED, "{}", "'a'"),
        (COUNTED, '{"a": 1', "not JSON"),
        (COUNTED, '{"a": 1} and more', "not JSON"),
        (COUNTED, "[1]", "the answer"),
        (FLAT, '{"a": "x"}', "'a' must be an integer"),
        ({"json_schema": {"schema": COUNT}}, '{"a": "x"}', "'a' must be an integer"),
        (COUNT, '{"a": "x"}', "'a' must be an integer"),
        (LIST, "[1]", "the answer"),
        (LIST, '{"a": 1}', "the answer must be"),
        (OBJECT, "[1]", "a list"),
        (OBJECT, "hello", "not JSON"),
        (OBJECT, "NaN", "not JSON"),
        (OBJECT, '{"a": 1e999}', "not JSON"),
    ],
)
@pytest.mark.parametrize("chart", ["tool_loop", None])
def test_a_broken_answer_never_ends_well(form: Any, answer: str, problem: str, chart: str | None) -> None:
    """Row 63: an answer that breaks the handler's form is `bad_output` in the simplest chart and in the
    default one, its usage counts, and the log replays."""
    replies = [{"content": answer, "usage": {"input": 5}}] * 3
    with make_engine(replies, chart=chart, responses=make_handlers(form)) as engine:
        result = engine.run("go", conversation="c")
        assert list(replay_conversation(engine.store, "c"))
        assert engine.conversation("c").read_turn().ok is False
    expect_bad_output(result)
    assert result.error is not None
    assert problem in result.error.message
    assert result.usage.input == (5 if chart else 15)


@pytest.mark.parametrize(
    ("form", "answer", "data"),
    [
        (COUNTED, '{"a": 1}', {"a": 1}),
        (COUNTED, '```json\n{"a": 1}\n```', {"a": 1}),
        (FLAT, '{"a": 1}', {"a": 1}),
        (LIST, "[1, 2]", [1, 2]),
        (OBJECT, '{"b": null}', {"b": None}),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "5", 5),
        ({"type": "text"}, "no json here", None),
        ({"type": "grammar", "definition": "..."}, "yes", None),
        (None, "no json here", None),
    ],
)
def test_an_answer_in_its_form_is_data(form: Any, answer: str, data: Any) -> None:
    """Row 63: an answer that fits is data and has no warning; text and forms that only the host knows are not
    checked."""
    with make_engine([answer], responses=make_handlers(form)) as engine:
        result = engine.run("go")
    assert (result.ok, result.content, result.data, result.warnings) == (True, answer, data, ())


@pytest.mark.parametrize("way", ["handler", "output_type", "declared"])
def test_the_model_hears_what_was_wrong(way: str) -> None:
    """Issue 30: whoever demands the form, the second request ends with the broken answer and what was wrong
    with it. The conversation has neither: the next turn does not send them."""
    model = ScriptedModel('{"a": "x"}', '{"a": 1}', '{"a": 2}')
    declared = {
        "chart": {"extends": "full", "states": {"prompting": {"enter": "ask"}}},
        "effects": {"ask": {"call_model": {"options": {"response_format": COUNTED}}}},
    }
    sections = declared if way == "declared" else {"chart": "full"}
    handlers = make_handlers(COUNTED if way == "handler" else None)
    options: dict[str, Any] = {"output_type": Count} if way == "output_type" else {}
    with Engine(
        make_spec(responses=handlers, **sections), log="memory", providers={"model": model}
    ) as engine:
        assert engine.run("go", conversation="c", **options).ok
        assert engine.run("again", conversation="c", **options).ok
        assert list(replay_conversation(engine.store, "c"))
    _, second, third = ([(m.role, m.content) for m in request.messages] for request in model.requests)
    assert second[:-2] == [("system", "p"), ("user", "go")]
    assert second[-2] == ("assistant", '{"a": "x"}')
    assert second[-1][0] == "user"
    assert "'a' must be an integer" in str(second[-1][1])
    assert third == [("system", "p"), ("user", "go"), ("assistant", '{"a": 1}'), ("user", "again")]


def test_the_repair_is_the_same_in_another_process() -> None:
    """Issue 30: a worker that goes on between the broken answer and the second request asks alike."""
    store, spec = MemoryStore(), make_spec(chart="full", responses=make_handlers())

    class Killed(BaseException):
        """The end of the process."""

    def end(event: Any, step: Any) -> None:
        if event.TYPE == "elapsed":  # the record of `failed` is durable
            raise Killed

    whole = ScriptedModel('{"a": "x"}', '{"a": 1}')
    with Engine(spec, log=store, providers={"model": whole}) as engine:
        engine.run("go", conversation="whole")
    first = Engine(spec, log=store, providers={"model": ScriptedModel('{"a": "x"}')}, observer=end)
    with pytest.raises(Killed), first:
        first.run("go", conversation="cut")
    second = ScriptedModel('{"a": 1}')
    with Engine(spec, log=store, providers={"model": second}) as engine:
        assert engine.conversation("cut").resume().data == {"a": 1}
    assert [*second.requests[0].messages] == [*whole.requests[1].messages]


def test_a_streamed_turn_is_checked() -> None:
    """Row 63: `stream` ends with the same result."""

    async def stream(engine: Engine) -> list[Any]:
        return [piece async for piece in engine.stream("go")]

    with make_engine(["no json here"], responses=make_handlers()) as engine:
        result = asyncio.run(stream(engine))[-1]
    expect_bad_output(result)


def test_only_the_last_answer_is_checked_also_after_an_approval() -> None:
    """Row 63: what a model says before a call is no answer; the turn that goes on is checked."""
    call = {**reply_with_calls(("echo", {"text": "a"})), "content": "I look."}
    with make_engine([call, "done"], responses=make_handlers(), **ASKING) as engine:
        waiting = engine.run("go", conversation="c")
        assert waiting.data is None
        decision = Decided(call_id=waiting.pending_approvals[0].id, approved=True)
        expect_bad_output(engine.conversation("c").resume(decision))


def test_a_type_stays_demanded_where_going_on_does_not_name_it() -> None:
    """Row 63: `output_type` of the first message holds after an approval in another process too."""
    store, call = MemoryStore(), reply_with_calls(("echo", {"text": "a"}))
    with make_engine([call], log=store, **ASKING) as engine:
        waiting = engine.run("go", conversation="c", output_type=list[int])
    with make_engine(["[1]"], log=store, **ASKING) as engine:
        decision = Decided(call_id=waiting.pending_approvals[0].id, approved=True)
        expect_bad_output(engine.conversation("c").resume(decision))


def test_a_rerun_is_checked() -> None:
    """Row 63: a recorded conversation that another model answers badly does not pass."""
    spec = make_spec(responses=make_handlers())
    with make_engine(['{"a": 1}'], responses=make_handlers()) as engine:
        engine.run("go", conversation="c")
        models = {"model": ScriptedProvider(["no json here"])}
        report = rerun(engine.store, spec, providers=models, parallel=1)
    first = report.results[0].first
    assert first is not None
    assert (first.recorded, first.rerun) == ("replied", "failed")


def test_a_sub_agent_is_checked() -> None:
    """Row 63: a child agent whose handler demands a form fails with it, and its parent knows."""
    chart = {
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask",
                "transitions": [
                    {"event": "agent_finished", "target": "done"},
                    {"event": "agent_failed cancelled", "target": "error"},
                ],
            },
            "done": {"final": True, "enter": "answer"},
            "error": {"final": True, "enter": "answer_with_error"},
        }
    }
    counter = {**make_handlers()[0], "name": "counter", "match": {"never": "there"}}
    responses = [counter, {"llm": "model", "prompt": "p"}]
    asked = {"handler": "counter", "chart": "tool_loop", "message": "count", "as": "count"}
    effects = {"ask": {"run_agent": asked}}
    with make_engine(["no json here"], chart=chart, effects=effects, responses=responses) as engine:
        result = engine.run("go", conversation="c")
    assert result.ok is False
    assert result.result_errors


def test_a_refusal_is_no_data_and_says_so() -> None:
    """Row 63: a model that refuses has answered, but not in the form: a warning says it."""
    with make_engine(
        [Reply(content="", refusal="I will not.", finish_reason="stop")], responses=make_handlers()
    ) as engine:
        result = engine.run("go")
    assert (result.content, result.data) == ("I will not.", None)
    assert [warning for warning in result.warnings if "response_format" in warning]


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"type": "json_schma", "json_schema": {"schema": COUNT}}, "did you mean 'json_schema'"),
        ({"type": "json-object"}, "did you mean 'json_object'"),
        ({"type": "json_schema", "json_schema": COUNT}, "where no host reads it"),
    ],
)
def test_a_form_that_would_not_be_checked_is_refused_when_the_agent_is_loaded(form: Any, says: str) -> None:
    """Row 63: a slip of the pen in a form does not switch its check off."""
    with pytest.raises(SpecError, match=says):
        Engine(make_spec(responses=make_handlers(form)), log="memory")


@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"type": "object", "required": True}])
def test_a_schema_that_is_none_is_refused_when_the_agent_is_loaded(schema: Any) -> None:
    """Row 63: a model is not asked for a form that no answer could have; the error names the key."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(SpecError, match="no JSON Schema") as caught:
        Engine(make_spec(responses=make_handlers(form)), log="memory")
    assert caught.value.path == "responses[0].response_format"
    assert json.dumps("json_schema")[1:-1] in str(caught.value)
