"""Imports and exports: message lists without loss, spans, XES, and refusals with a reason."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from agents import make_engine, reply_with_calls
from recorded_traffic import OWN, find_recording, needs_recorded

from toolchart.engine.exchange.exports import export_xes
from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.engine.exchange.otel import export_spans
from toolchart.engine.log.replay import replay
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.errors import SpecError

AT = "2026-01-01T00:00:00.000Z"
GOOD = (
    ("tau-bench.airline.gpt-4o.json", 100),
    ("tau-bench-fork.retail.tool-calling.json", 50),
    ("tau-bench-fork.retail.tool-calling-preconditions.json", 50),
)
"""Files and the number of their lists; 30 of the last file have arguments that are not JSON."""


def read_trajectories(name: str) -> list[Any]:
    """The message lists of a transcript file."""
    data = json.loads(find_recording(f"transcripts/{name}").read_text("utf-8"))
    return [entry["traj"] for entry in data]


@pytest.mark.parametrize(
    ("name", "count"),
    [("own__accepted.json", 8), *(pytest.param(*row, marks=needs_recorded) for row in GOOD)],
)
def test_trajectories_are_imported_and_exported(name: str, count: int) -> None:
    """Every trajectory imports, verifies, replays, and exports equal to its source.

    Only a tool message without a `name` gets the name of its tool, unless the list is kept as it came.
    """
    trajectories = read_trajectories(name)
    assert len(trajectories) == count
    for messages in trajectories:
        lines = import_messages(messages, "c", AT)
        assert verify_conversation(lines, "c").records == len(lines)
        assert sum(1 for _ in replay(lines, "c")) == len(lines)
        assert export_messages(lines, "c") in (messages, add_tool_names(messages))


def test_an_open_end_with_one_of_two_results_is_exported_completely() -> None:
    """A list that ends after one of two results imports, and exports equal to its source."""
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("tide", "lamp")
    ]
    messages = [
        {"role": "user", "content": "Look at both."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "tide", "content": "3.4 m", "name": "tide"},
    ]
    assert export_messages(import_messages(messages, "c", AT), "c") == messages


def add_tool_names(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the `name` of the tool on every tool message."""
    names: dict[str, str] = {}
    named_messages = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        own_name = {"name": names[message["tool_call_id"]]} if message["role"] == "tool" else {}
        named_messages.append({**own_name, **message})
    return named_messages


REFUSED = json.loads((OWN / "transcripts" / "own__refused.json").read_text("utf-8"))


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: str(entry["problem"]))
def test_lists_that_no_host_accepts_are_refused_or_kept(entry: dict[str, Any]) -> None:
    """Each refused list of our own corpus is refused by its file, or comes back as it was."""
    refusal, exported = "", None
    try:
        exported = export_messages(import_messages(entry["traj"], "c", AT, "file.json"), "c")
    except SpecError as error:
        refusal = str(error)
    assert "file.json" in refusal or exported == entry["traj"]


def write_log() -> list[bytes]:
    """Run a turn with one successful and one failed call; return its record lines."""
    run = make_engine([reply_with_calls(("calculator", {"expression": "6*7"}), ("weather", {})), "42"])
    run.run("What is 6*7?", conversation="c")
    return list(run.store.read_lines("c"))


def test_an_exported_list_imports_again() -> None:
    """An exported list imports again and exports equal."""
    messages = export_messages(write_log(), "c")
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert export_messages(import_messages(messages, "d", AT), "d") == messages


def test_spans_describe_the_run() -> None:
    """S4.8: invoke_agent holds chat and execute_tool spans with gen_ai attributes, content off by default."""
    lines = write_log()
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
    """The export is well-formed XML with one event per record, with its name and state."""
    lines = write_log()
    root = ElementTree.fromstring(export_xes({"c": lines}))
    events = root.findall("{*}trace/{*}event")
    assert len(events) == len(lines)
    values = [{a.get("key"): a.get("value") for a in event} for event in events]
    assert values[2]["toolchart:target"] == "awaiting_tools"
    assert values[5]["concept:name"] == "tool_finished calculator succeeded"
