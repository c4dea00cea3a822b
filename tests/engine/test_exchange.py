"""Conversations in other forms: in and out without loss, and refused with a reason."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from agents import calls, engine
from recorded import RECORDED, needs_recorded

from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.engine.exchange.otel import export_spans
from toolchart.engine.exchange.xes import export_xes
from toolchart.engine.log.replay import replay
from toolchart.engine.log.verify import verify_lines
from toolchart.states.errors import SpecError

AT = "2026-01-01T00:00:00.000Z"
GOOD = (
    ("tau-bench.airline.gpt-4o.json", 100),
    ("tau-bench-fork.retail.tool-calling.json", 50),
    ("tau-bench-fork.retail.tool-calling-preconditions.json", 20),
)
"""Files and their well-formed lists; the other 30 of the last one have arguments that are not JSON."""
BAD = ("tau-bench-fork.retail.offformat-a.json", "tau-bench-fork.retail.offformat-b.json")


def trajectories(name: str) -> list[Any]:
    """The message lists of a transcript file."""
    data = json.loads((RECORDED / "transcripts" / name).read_text("utf-8"))
    return [one["traj"] for one in data]


@needs_recorded
@pytest.mark.parametrize(("name", "count"), GOOD)
def test_trajectories_come_and_go(name: str, count: int) -> None:
    """Done when: every well-formed trajectory imports, verifies, replays, and exports equal to its source."""
    found = [messages for messages in trajectories(name) if readable(messages)]
    assert len(found) == count
    for messages in found:
        lines = import_messages(messages, "c", AT)
        assert verify_lines(lines, "c").records == len(lines)
        assert sum(1 for _ in replay(lines, "c")) == len(lines)
        assert export_messages(lines, "c") == messages


def readable(messages: Any) -> bool:
    """Whether all argument texts are JSON objects; the others are refused."""
    for call in (call for m in messages for call in m.get("tool_calls") or ()):
        try:
            json.loads(call["function"]["arguments"])
        except ValueError:
            with pytest.raises(SpecError, match="not JSON"):
                import_messages(messages, "c", AT)
            return False
    return True


@needs_recorded
@pytest.mark.parametrize("name", BAD)
def test_off_format_lists_are_refused_with_a_reason(name: str) -> None:
    """Done when: lists without call ids, or with nothing in them, are refused, and the message is named."""
    for messages in trajectories(name):
        if not any(m.get("tool_calls") for m in messages) and messages:
            continue  # talk without calls is well-formed
        with pytest.raises(SpecError) as caught:
            import_messages(messages, "c", AT, "file.json")
        assert "file.json" in str(caught.value)
        assert "[" in str(caught.value) or "at least one" in str(caught.value)


def one_call(**changes: Any) -> dict[str, Any]:
    """An assistant message with one call."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [{**call, **changes}]}


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([], "at least one"),
        ({}, "a list"),
        ([USER, USER], "before the assistant has answered"),
        ([{"role": "assistant", "content": "x"}], "answers nobody"),
        ([USER, one_call(), USER], "has no answer"),
        ([USER, one_call(id=None)], "needs `id`"),
        ([USER, one_call(function={"name": "f", "arguments": "{'a': 1}"})], "not JSON"),
        ([USER, one_call(), {"role": "tool", "tool_call_id": "2", "content": "x"}], "nobody made"),
        ([{"role": "user", "content": "x", "name": "n"}], "cannot keep the key 'name'"),
        ([{"role": "oracle", "content": "x"}], "unknown role"),
    ],
)
def test_import_is_strict(messages: Any, told: str) -> None:
    """A list that could not have happened is refused, with the place."""
    with pytest.raises(SpecError, match=told):
        import_messages(messages, "c", AT)


def conversation() -> list[bytes]:
    """A log with a call that worked, one that did not, and an answer."""
    run = engine([calls(("calculator", {"expression": "6*7"}), ("weather", {})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read("c"))


def test_our_own_conversations_go_round() -> None:
    """What is exported imports again and exports the same."""
    messages = export_messages(conversation(), "c")
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
    assert export_messages(import_messages(messages, "d", AT), "d") == messages


def test_spans_tell_the_run() -> None:
    """S4.8: invoke_agent holds chat and execute_tool spans with gen_ai attributes, content off by default."""
    lines = conversation()
    spans = export_spans(lines, "c")["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == [
        "invoke_agent tool_loop",
        "chat m",
        "execute_tool weather",
        "execute_tool calculator",
        "chat m",
    ]
    root = spans[0]
    assert all(span["parentSpanId"] == root["spanId"] for span in spans[1:])
    assert len({span["spanId"] for span in spans}) == 5
    assert all(int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]) for s in spans)
    attributes = {a["key"]: a["value"] for a in spans[3]["attributes"]}
    assert attributes["gen_ai.tool.name"] == {"stringValue": "calculator"}
    assert spans[2]["status"] == {"code": 2}
    assert "6*7" not in json.dumps(spans)
    assert "42" in json.dumps(export_spans(lines, "c", content=True))
    assert export_spans(lines, "c") == export_spans(lines, "c")


def test_xes_is_one_trace_of_every_step() -> None:
    """Process mining: well-formed XML, one event per record, with name, time and state."""
    lines = conversation()
    root = ElementTree.fromstring(export_xes(lines, "c"))
    events = root.findall("{*}trace/{*}event")
    assert len(events) == len(lines)
    values = [{a.get("key"): a.get("value") for a in event} for event in events]
    assert values[2]["toolchart:target"] == "awaiting_tools"
    assert values[5]["concept:name"] == "tool_finished calculator succeeded"
