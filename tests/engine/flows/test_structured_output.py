"""Structured output: a reply is checked whatever the host promises, and the chart decides what follows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, field_validator
from web import WebAnswer, serve_web

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.runtime.result import Turn
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.effects import CallModel
from toolchart.states.errors import SpecError
from toolchart.states.messages import Reply, Request, Usage

SCHEMA = {
    "type": "object",
    "required": ["score", "word"],
    "properties": {
        "score": {"type": "integer", "minimum": 0, "maximum": 10},
        "word": {"enum": ["good", "bad"]},
    },
}
CHART = {
    "states": {
        "judging": {
            "initial": True,
            "enter": "judge",
            "transitions": [
                {"event": "replied", "target": "praised", "cond": "verdict.score >= 8"},
                {"event": "replied", "target": "scolded"},
                {
                    "event": "failed",
                    "target": "judging",
                    "cond": "verdict.error_kind == 'bad_output' and verdict.failures < 2",
                },
                {"event": "failed", "target": "gave_up"},
                {"event": "cancelled", "target": "gave_up"},
            ],
        },
        "praised": {"final": True, "enter": "praise"},
        "scolded": {"final": True, "enter": "scold"},
        "gave_up": {"final": True, "enter": "answer_with_error"},
    }
}
EFFECTS = {
    "judge": {"call_model": {"as": "verdict", "prompt": "Judge {{user_message}}", "schema": SCHEMA}},
    "praise": {"answer": "{{verdict.word}}: {{verdict.score}}"},
    "scold": {"answer": "only {{verdict.score}}"},
}
VALID = '{"score": 9, "word": "good"}'
REFUSAL = Reply(refusal="I will not judge.", finish_reason="stop")
CUT = Reply(content='{"score": 9, "wo', finish_reason="length", usage=Usage(total=5))


def make_spec(**changes: Any) -> dict[str, Any]:
    """A spec of one judged call; changes replace its keys."""
    return {
        "chart": CHART,
        "effects": EFFECTS,
        "llms": {"m": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
        "responses": [{"llm": "m", "temperature": 0.5}],
        **changes,
    }


def judge(replies: Sequence[str | Reply], **changes: Any) -> tuple[Turn, list[Request]]:
    """The result of one turn on scripted replies, and every request that was made; the log replays."""
    provider = ScriptedProvider(replies)
    with Engine(make_spec(**changes), log="memory", providers={"m": provider}) as engine:
        result = engine.run("a poem", conversation="c")
        records = list(engine.store.read_lines("c"))
        assert len(list(replay_conversation(engine.store, "c"))) == len(records)
    return result, provider.requests


@pytest.mark.parametrize(
    ("replies", "state", "content"),
    [
        ([VALID], "praised", "good: 9"),
        (['```json\n{"score": 1, "word": "bad"}\n```'], "scolded", "only 1"),
        (['{"score": 11, "word": "good"}', VALID], "praised", "good: 9"),
        (["Nine out of ten!", VALID], "praised", "good: 9"),
    ],
    ids=["valid", "fenced", "repaired number", "repaired prose"],
)
def test_a_value_that_fits_decides(replies: list[str], state: str, content: str) -> None:
    """A reply under the schema is the value of the result; one that breaks it can be repaired once."""
    result, _ = judge(replies)
    assert (result.state, result.content, result.error) == (state, content, None)
    assert not result.result_errors


@pytest.mark.parametrize(
    ("replies", "kind", "words"),
    [
        (["Nine!", '{"score": 9}'], "bad_output", "word"),
        (["[1]", "NaN"], "bad_output", "JSON"),
        ([REFUSAL], "content_filter", "I will not judge."),
        ([CUT, CUT], "bad_output", "cut off"),
    ],
    ids=["invalid twice", "other JSON twice", "refused", "cut twice"],
)
def test_without_a_value_the_reason_is_in_the_result(
    replies: list[str | Reply], kind: str, words: str
) -> None:
    """Where no reply fits, the chart ends where its rows say, and the result names kind and reason."""
    result, _ = judge(replies)
    assert result.state == "gave_up"
    error = result.result_errors["verdict"]
    assert error.kind == kind
    assert words in error.message
    assert "verdict" not in result.results
    assert result.to_dict()["result_errors"]["verdict"]["kind"] == kind


def test_a_repair_request_says_what_was_wrong() -> None:
    """The second request holds the rejected reply and the reason; a third one after a value would not."""
    _, requests = judge(["Nine!", VALID])
    first, second = requests
    assert [message.role for message in first.messages] == ["user"]
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1].content == "Nine!"
    assert "not JSON" in (second.messages[2].content or "")


def test_a_call_with_a_result_leaves_the_conversation_alone() -> None:
    """It asks the host for the schema, has no options of the handler, and adds no message."""
    provider = ScriptedProvider([VALID])
    with Engine(make_spec(), log="memory", providers={"m": provider}) as engine:
        engine.run("a poem", conversation="c")
        steps = list(replay_conversation(engine.store, "c"))
    options = provider.requests[0].options
    assert options["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "temperature" not in options
    messages = [(message.role, message.content) for message in steps[-1].step.snapshot.messages]
    assert messages == [("user", "a poem"), ("assistant", "good: 9")]
    asks = [effect for step in steps for effect in step.step.effects if isinstance(effect, CallModel)]
    assert [(ask.result, ask.own_messages) for ask in asks] == [("verdict", 1)]


def test_the_usage_of_rejected_replies_counts() -> None:
    """A reply that breaks its schema was paid for."""
    rejected = Reply(content="Nine!", finish_reason="stop", usage=Usage(total=5))
    accepted = Reply(content=VALID, finish_reason="stop", usage=Usage(total=7))
    result, _ = judge([rejected, accepted])
    assert result.usage.total == 12


class Verdict(BaseModel):
    """What a critic says."""

    score: int
    word: str

    @field_validator("word")
    @classmethod
    def _check_word(cls, word: str) -> str:
        if word != word.lower():
            raise ValueError("write it in small letters")
        return word


def test_a_pydantic_class_is_schema_check_and_value() -> None:
    """A class gives the schema, its validators count, and the result of the turn has an instance."""
    effects = {**EFFECTS, "judge": {"call_model": {"as": "verdict", "prompt": "Judge"}}}
    provider = ScriptedProvider(['{"score": 9, "word": "GOOD"}', VALID])
    spec = make_spec(effects=effects)
    with Engine(spec, log="memory", providers={"m": provider}, outputs={"verdict": Verdict}) as engine:
        result = engine.run("a poem")
    assert result.outputs == {"verdict": Verdict(score=9, word="good")}
    assert "small letters" in (provider.requests[1].messages[-1].content or "")


def test_a_class_can_be_named_in_the_spec() -> None:
    """`schema: module:Class` stands for the schema of a pydantic class; a wrong one is a located error."""
    reference = "toolchart.specs.sections.limits:RetryConfig"
    effects = {**EFFECTS, "judge": {"call_model": {"as": "verdict", "prompt": "x", "schema": reference}}}
    chart = {"states": {**CHART["states"]}}
    chart["states"]["judging"] = {
        "initial": True,
        "enter": "judge",
        "transitions": [
            {"event": "replied", "target": "praised"},
            {"event": "failed", "target": "gave_up"},
            {"event": "cancelled", "target": "gave_up"},
        ],
    }
    del chart["states"]["scolded"]
    result, _ = judge(['{"first_wait_s": 2}'], effects=effects, chart=chart)
    assert result.outputs["verdict"].first_wait_s == 2
    effects["judge"]["call_model"]["schema"] = "toolchart.specs.models:NoClass"
    with pytest.raises(SpecError, match=r"NoClass.*\n?.*") as caught:
        judge([VALID], effects=effects, chart=chart)
    assert caught.value.path == "effects.judge.call_model.schema"


def test_a_chart_file_can_name_a_class(tmp_path: Path) -> None:
    """A chart in a file declares effects with a class as their schema, where the spec declares none."""
    reference = "toolchart.specs.sections.limits:RetryConfig"
    judging = {
        "initial": True,
        "enter": "judge",
        "transitions": [{"event": event, "target": "over"} for event in ("replied", "failed", "cancelled")],
    }
    chart = {
        "states": {"judging": judging, "over": {"final": True, "enter": "publish"}},
        "effects": {
            "judge": {"call_model": {"as": "verdict", "prompt": "x", "schema": reference}},
            "publish": {"answer": "waits {{verdict.first_wait_s}} s"},
        },
    }
    file = tmp_path / "chart.yaml"
    file.write_text(yaml.safe_dump(chart, sort_keys=False), "utf-8")
    spec = make_spec(chart=str(file), effects=None)
    provider = ScriptedProvider(['{"first_wait_s": 2}'])
    with Engine(spec, log="memory", providers={"m": provider}) as engine:
        assert engine.run("go").content == "waits 2 s"


def test_over_a_real_adapter_the_host_is_asked_in_its_own_mode() -> None:
    """Through the adapter of chat completions: the schema goes out, a broken reply is repaired."""
    answers = ["nine", VALID]
    bodies: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> WebAnswer:
        bodies.append(json.loads(request["body"]))
        message = {"role": "assistant", "content": answers[len(bodies) - 1]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        data = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return 200, {"Content-Type": "application/json"}, json.dumps(data).encode()

    with serve_web(answer) as server:
        llm = {"provider": "openai", "model": "m", "base_url": server.url, "api_key": "test"}
        with Engine(make_spec(llms={"m": llm}), log="memory") as engine:
            result = engine.run("a poem")
    assert result.content == "good: 9"
    assert [body["response_format"]["json_schema"]["schema"] for body in bodies] == [SCHEMA, SCHEMA]
    assert [len(body["messages"]) for body in bodies] == [1, 3]


RECORDED_ANSWERS: dict[str, list[dict[str, Any]]] = {
    "valid": [{"content": VALID}],
    "invalid, then repaired": [{"content": "nine"}, {"content": VALID}],
    "invalid twice": [{"content": "nine"}, {"content": "ten"}],
    "refused": [{"content": None, "refusal": "I will not judge."}],
    "cut": [{"content": '{"score": 9, "wo'}, {"content": '{"score"'}],
}
"""Messages of a host, by what they show."""


@pytest.mark.parametrize("case", RECORDED_ANSWERS)
def test_over_recorded_traffic_each_case_ends_where_the_chart_says(case: str) -> None:
    """Traffic of a host, valid, refused or cut, ends where the chart says."""
    messages = iter(RECORDED_ANSWERS[case])

    def answer(request: dict[str, Any]) -> WebAnswer:
        reason = "length" if case == "cut" else "stop"
        choice = {"index": 0, "message": {"role": "assistant", **next(messages)}, "finish_reason": reason}
        data = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return 200, {"Content-Type": "application/json"}, json.dumps(data).encode()

    with serve_web(answer) as server:
        host = {"provider": "openai", "model": "m", "base_url": server.url, "api_key": "test"}
        with Engine(make_spec(llms={"m": host}), log="memory") as engine:
            result = engine.run("a poem")
    is_good = case in ("valid", "invalid, then repaired")
    assert result.state == ("praised" if is_good else "gave_up")
    assert bool(result.result_errors) is not is_good
