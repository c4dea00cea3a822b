"""The import keeps what was recorded, whatever is unusual in it, and the export gives it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_traffic import RECORDED, needs_recorded

from toolchart.engine.exchange.messages import export_messages, import_recording
from toolchart.engine.exchange.recorded_messages import find_message_lists
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.states.errors import SpecError

AT = "2026-01-01T00:00:00.000Z"
USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}


def call(call_id: str | None, arguments: Any = "{}", name: str = "add") -> dict[str, Any]:
    """A tool call of a recorded message."""
    function = {"name": name, "arguments": arguments}
    return {**({"id": call_id} if call_id else {}), "type": "function", "function": function}


def ask(*calls: dict[str, Any]) -> dict[str, Any]:
    """An assistant message with calls."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: str | None, content: Any = "3", name: str = "add") -> dict[str, Any]:
    """A tool message."""
    return {
        "role": "tool",
        **({"tool_call_id": call_id} if call_id else {}),
        "name": name,
        "content": content,
    }


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
UNUSUAL = {
    "bad arguments": [USER, ask(call("a", "{'x': 1}")), result("a", "error"), ANSWER],
    "arguments of another type": [USER, ask(call("a", [1])), result("a"), ANSWER],
    "order of results": [USER, ask(call("a"), call("b")), result("b", "2"), result("a", "1"), ANSWER],
    "developer first": [{"role": "developer", "content": "be brief"}, USER, ANSWER],
    "developer in the middle": [USER, ANSWER, {"role": "developer", "content": "now"}, USER, ANSWER],
    "greeting first": [ANSWER, USER, ANSWER],
    "two questions": [USER, {"role": "user", "content": "and?"}, ANSWER],
    "two answers": [USER, ANSWER, {"role": "assistant", "content": "also"}],
    "greeting alone": [ANSWER],
    "question after a result": [USER, ask(call("a")), result("a"), USER, ANSWER],
    "picture": [{"role": "user", "content": [{"type": "text", "text": "what?"}, PICTURE]}, ANSWER],
    "unknown part": [{"role": "user", "content": [{"type": "hologram", "x": 1}]}, ANSWER],
    "no ids": [USER, ask(call(None)), result(None), ANSWER],
    "a call without a result": [USER, ask(call("a"), call("b")), result("a"), ANSWER],
    "further keys": [{**USER, "annotations": [1]}, {**ANSWER, "refusal": None}],
    "unknown role": [{"role": "narrator", "content": "once"}, USER, ANSWER],
    "result of no call": [USER, result("x"), ANSWER],
    "function call": [USER, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, ANSWER],
    "calls in a greeting": [ask(call("a")), result("a"), ANSWER, USER, ANSWER],
}


def check_import(messages: list[Any]) -> list[bytes]:
    """Import messages, verify, replay and export the log; its records."""
    lines = import_recording(messages, "c", AT)
    verify_conversation(lines, "c")
    store = MemoryStore()
    store.append("c", 0, lines)
    assert list(replay_conversation(store, "c"))
    assert export_messages(lines, "c") == messages
    return lines


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_lists_are_kept(name: str) -> None:
    """Each list is imported, its log verifies and replays, and the export is the list."""
    check_import(UNUSUAL[name])


def test_bad_arguments_are_recorded_text() -> None:
    """Arguments that are not JSON stand in the reply as they came, with the problem, and are never run."""
    line = check_import(UNUSUAL["bad arguments"])[2]
    (recorded_call,) = json.loads(line)["event"]["reply"]["tool_calls"]
    assert recorded_call["raw"] == "{'x': 1}"
    assert "not JSON" in recorded_call["problem"]
    assert "arguments" not in recorded_call


entries = st.sampled_from([entry for messages in UNUSUAL.values() for entry in messages])


@settings(max_examples=120)
@given(st.lists(entries, min_size=1, max_size=8))
def test_any_order_of_messages_is_kept(messages: list[Any]) -> None:
    """Messages in any order are imported, verify and come back, but for tool names that the export adds."""
    lines = import_recording(messages, "c", AT)
    verify_conversation(lines, "c")
    exported = export_messages(lines, "c")
    assert [
        m if "name" in o else without_name(m) for m, o in zip(exported, messages, strict=True)
    ] == messages


def without_name(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the name of its tool."""
    return {key: value for key, value in message.items() if key != "name"}


@pytest.mark.parametrize("data", [[], {}, None, "x", [1], [[USER]], [USER, None]])
def test_what_is_no_list_of_messages_is_refused(data: Any) -> None:
    """Anything but a list of objects is one clear error."""
    with pytest.raises(SpecError):
        import_recording(data, "c", AT)


TRANSCRIPTS = sorted((RECORDED / "transcripts").glob("*.json")) or [RECORDED]


@needs_recorded
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_recorded_transcripts_of_other_programs_are_kept(path: Path) -> None:
    """tau-bench, SWE-agent and ToolTalk: all conversations that have messages are imported and come back."""
    for messages in find_message_lists(json.loads(path.read_text("utf-8"))):
        if messages:
            lines = import_recording(messages, "c", AT)
            exported = export_messages(lines, "c")
            pairs = zip(exported, messages, strict=True)
            assert [m if "name" in o else without_name(m) for m, o in pairs] == messages


def test_tooltalk_turns_are_calls_results_and_a_text() -> None:
    """A turn of ToolTalk with `apis` is a message with calls, their results, and the text."""
    api = {"request": {"api_name": "Add", "parameters": {"x": 1}}, "response": 2, "exception": None}
    turns = [{"role": "user", "text": "1?"}, {"role": "assistant", "text": "2", "apis": [api]}]
    ((question, calls, outcome, answer),) = find_message_lists([{"conversation": turns}])
    assert (question["content"], answer["content"]) == ("1?", "2")
    assert calls["tool_calls"][0]["function"] == {"name": "Add", "arguments": '{"x": 1}'}
    assert json.loads(outcome["content"]) == {"response": 2, "exception": None}
