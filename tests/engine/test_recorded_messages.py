"""The import keeps what was recorded, whatever is unusual in it, and the export gives it back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from recorded_traffic import RECORDED, needs_recorded

from toolchart.engine.exchange.message_files import find_message_lists
from toolchart.engine.exchange.messages import export_messages, import_messages
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.specs.chat_messages import join_call_messages, read_history
from toolchart.specs.message_pairs import NO_RESULT
from toolchart.states.errors import SpecError

AT = "2026-01-01T00:00:00.000Z"
ANSWERS = ("replied", "reviewed", "tool_finished")
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
    "no ids": [USER, ask(call(None)), result(None), ANSWER],
    "a call without a result": [USER, ask(call("a"), call("b")), result("a"), ANSWER],
    "further keys": [{**USER, "annotations": [1]}, {**ANSWER, "refusal": None}],
    "function call": [USER, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, ANSWER],
    "calls in a greeting": [ask(call("a")), result("a"), ANSWER, USER, ANSWER],
    "developer within a turn": [
        USER,
        ask(call("a")),
        result("a"),
        {"role": "developer", "content": "now"},
        ANSWER,
        USER,
        ANSWER,
    ],
    "the same result twice": [USER, ask(call("a")), result("a"), result("a"), ANSWER],
    "a question before a result": [USER, ask(call("a")), USER, result("a"), ANSWER],
    "a result before its call": [USER, result("a"), ask(call("a")), ANSWER],
    "two messages with calls": [USER, ask(call("a")), ask(call("b")), result("a"), result("b"), ANSWER],
}

BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": "3"}
ITEM = {"type": "function_call_output", "call_id": "a", "output": "3"}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "unknown part": ([USER, {**ANSWER, "content": [{"type": "hologram", "x": 1}]}], "[1].content[0]"),
    "unknown role": ([{"role": "narrator", "content": "once"}, USER, ANSWER], "[0]"),
    "result of no call": ([USER, result("x"), ANSWER], "[1]"),
    "second result": ([USER, ask(call("a")), result("a"), result("a", "4"), ANSWER], "[3]"),
    "no role": ([USER, {"content": "hi"}], "[1]"),
    "no content": ([USER, {"role": "model", "parts": [{"text": "hi"}]}], "[1]"),
    "an item of the Responses API": ([USER, ITEM], "[1]"),
    "a message of the Responses API with calls of chat completions": (
        [{**USER, "content": [{"type": "input_text", "text": "x"}]}, ask(call("a"))],
        "[1].tool_calls",
    ),
    "a block of the Anthropic API behind calls of chat completions": (
        [USER, ask(call("a")), {"role": "user", "content": [BLOCK]}],
        "[1].tool_calls",
    ),
    "a call without a name": ([USER, ask({"id": "a", "type": "function"})], "[1].tool_calls[0]"),
    "calls in an object": ([USER, {**ANSWER, "tool_calls": {"a": 1}}], "[1].tool_calls"),
    "only a system prompt": ([{"role": "system", "content": "be brief"}], "nobody says anything"),
    "only an empty question": ([{"role": "user", "content": ""}], "nobody says anything"),
}


def check_import(messages: list[Any]) -> list[bytes]:
    """Import messages, verify, replay and export the log; its records."""
    lines = import_messages(messages, "c", AT)
    verify_conversation(lines, "c")
    store = MemoryStore()
    store.append("c", 0, lines)
    assert list(replay_conversation(store, "c"))
    assert export_messages(lines, "c") == messages
    answers = [e for line in lines if (e := json.loads(line)["event"])["type"] in ANSWERS]
    assert all(answer["effect"] for answer in answers), "each answer names its effect"
    return lines


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_lists_are_kept(name: str) -> None:
    """Each list is imported, its log verifies and replays, and the export is the list.

    The export with a call and its result in one message keeps each name and each result too.
    """
    check_import(UNUSUAL[name])
    joined = json.dumps(join_call_messages(UNUSUAL[name]))
    for message in UNUSUAL[name]:
        names = [call["function"]["name"] for call in message.get("tool_calls") or ()]
        results = [message["content"]] if message["role"] == "tool" else []
        assert all(json.dumps(word) in joined for word in (*names, *results))


def test_a_call_joins_its_own_result() -> None:
    """Where two calls have one id, each has the result that answers it; a result of no open call stays."""
    twice = [
        *(USER, ask(call("a")), result("a", "1"), ask(call("a"), call("a"), call("b"))),
        *(result("b", "2"), result("a", "3"), result("a", "4"), result("a", "5"), ANSWER),
    ]
    joined = join_call_messages(twice)
    assert [one["toolCall"]["result"] for one in joined if "toolCall" in one] == ["1", "3", "4", "2"]
    assert [one["content"] for one in joined if one["role"] == "tool" and "toolCall" not in one] == ["5"]
    assert join_call_messages([ask(call("a")), USER]) == [
        {"role": "tool", "toolCall": {"id": "a", "name": "add", "arguments": {}}},
        USER,
    ]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_with_its_place(name: str) -> None:
    """An entry that no event can stand for is not left out in silence: its list is refused, by its place."""
    messages, place = REFUSED[name]
    with pytest.raises(SpecError, match=re.escape(place)):
        import_messages(messages, "c", AT, "file.json")


@pytest.mark.parametrize(
    ("entry", "api"), [(ITEM, "Responses"), ({"role": "user", "content": [BLOCK]}, "Anthropic")]
)
def test_a_list_of_another_api_is_named(entry: dict[str, Any], api: str) -> None:
    """Who gives a list of another API as a history reads which one it looks like, and what reads it."""
    with pytest.raises(SpecError, match=f"role, content and tool_calls.*{api} API, which `toolchart.read_"):
        read_history([entry])


def test_an_id_may_come_twice() -> None:
    """Calls of different replies may have one id: each has its own result."""
    check_import([USER, ask(call("a")), result("a"), ask(call("a")), result("a", "4"), ANSWER])


def test_bad_arguments_are_recorded_text() -> None:
    """Arguments that are not JSON stand in the reply as they came, with the problem, and are never run."""
    line = check_import(UNUSUAL["bad arguments"])[2]
    (recorded_call,) = json.loads(line)["event"]["reply"]["tool_calls"]
    assert recorded_call["raw"] == "{'x': 1}"
    assert "not valid JSON" in recorded_call["problem"]
    assert "arguments" not in recorded_call


entries = st.sampled_from([entry for messages in UNUSUAL.values() for entry in messages])


@settings(max_examples=120)
@given(st.lists(entries, min_size=1, max_size=8))
def test_any_order_of_messages_is_kept(messages: list[Any]) -> None:
    """Messages in any order are refused, because a result answers no call or one of two, or nobody speaks;
    or they are imported, verify and come back, but for tool names that the export adds, and every text and
    call of theirs stands in an event; a result that is there twice once."""
    try:
        lines = import_messages(messages, "c", AT)
    except SpecError as error:
        event("refused")
        words = ("result that answers", "before it have no result", "nobody says anything")
        if not any(word in str(error) for word in words):
            raise
        return
    verify_conversation(lines, "c")
    exported = export_messages(lines, "c")
    assert [
        m if "name" in o else without_name(m) for m, o in zip(exported, messages, strict=True)
    ] == messages
    said, twice = list_said(lines), any(b"there twice" in line for line in lines)
    assert (set(said) if twice else said) == (set if twice else sorted)(
        [text for m in messages if (text := m["content"] if isinstance(m.get("content"), str) else "")]
        + ["what?" for m in messages if isinstance(m.get("content"), list)]
        + [c["function"]["name"] for m in messages for c in m.get("tool_calls") or ()]
        + [m["function_call"]["name"] for m in messages if "function_call" in m]
    )


def list_said(lines: list[bytes]) -> list[str]:
    """The texts of people, models and tools in the events of a log, and the names of the called tools."""
    found: list[str] = []
    for line in lines:
        data = json.loads(line)["event"]
        if data["type"] == "turn_started":
            found += [data["message"], data.get("system") or ""]
            for message in data.get("history", ()):
                found += [message.get("content") or "", *(c["name"] for c in message.get("tool_calls", ()))]
        elif data["type"] == "user_said":
            found.append(data["message"])
        elif data["type"] == "replied":
            reply = data["reply"]
            found += [reply.get("content") or "", *(c["name"] for c in reply.get("tool_calls", ()))]
        elif data["type"] == "tool_finished":
            found.append(data["result"].get("result") or "")
    system = json.loads(lines[1])["event"].get("system") or ""
    turns = sum(json.loads(line)["event"]["type"] == "turn_started" for line in lines)
    for _ in range(turns - 1 if system else 0):
        found.remove(system)  # each turn has it
    return sorted(text for text in found if text and text != NO_RESULT)


def without_name(message: dict[str, Any]) -> dict[str, Any]:
    """The message without the name of its tool."""
    return {key: value for key, value in message.items() if key != "name"}


@pytest.mark.parametrize("data", [[], {}, None, "x", [1], [[USER]], [USER, None]])
def test_what_is_no_list_of_messages_is_refused(data: Any) -> None:
    """Anything but a list of objects is one clear error."""
    with pytest.raises(SpecError):
        import_messages(data, "c", AT)


TRANSCRIPTS = sorted((RECORDED / "transcripts").glob("*.json")) or [RECORDED]


@needs_recorded
@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_recorded_transcripts_of_other_programs_are_kept(path: Path) -> None:
    """tau-bench, SWE-agent and ToolTalk: all conversations that have messages are imported and come back."""
    for messages in find_message_lists(json.loads(path.read_text("utf-8"))):
        if messages:
            lines = import_messages(messages, "c", AT)
            exported = export_messages(lines, "c")
            pairs = zip(exported, messages, strict=True)
            assert [m if "name" in o else without_name(m) for m, o in pairs] == messages


@pytest.mark.parametrize(
    ("data", "count"),
    [
        ([USER, ANSWER], 1),
        ([[USER, ANSWER], [USER]], 2),
        ([{"messages": [USER]}, [USER], {"traj": [USER]}, {"history": [USER]}], 4),
        ({"conversation": [USER, ANSWER]}, 1),
        ([{"messages": [USER]}, {"other": 1}], 2),
    ],
)
def test_the_lists_of_a_file_are_found(data: Any, count: int) -> None:
    """Lists, and objects with one, are conversations; what is none stands among them, to be refused."""
    lists = find_message_lists(data)
    assert len(lists) == count
    assert all(isinstance(item, list) or item == {"other": 1} for item in lists)


@pytest.mark.parametrize("turn", ["x", {"role": "user"}, {"role": "user", "text": "x", "apis": ["y"]}])
def test_a_turn_of_tooltalk_that_is_none_is_refused(turn: Any) -> None:
    """A broken turn is not left out: its conversation is refused."""
    (messages,) = find_message_lists([{"conversation": [{"role": "user", "text": "1?"}, turn]}])
    with pytest.raises(SpecError, match=re.escape("[1]")):
        import_messages(messages, "c", AT)


def test_tooltalk_turns_are_calls_results_and_a_text() -> None:
    """A turn of ToolTalk with `apis` is a message with calls, their results, and the text."""
    api = {"request": {"api_name": "Add", "parameters": {"x": 1}}, "response": 2, "exception": None}
    turns = [{"role": "user", "text": "1?"}, {"role": "assistant", "text": "2", "apis": [api]}]
    ((question, calls, outcome, answer),) = find_message_lists([{"conversation": turns}])
    assert (question["content"], answer["content"]) == ("1?", "2")
    assert calls["tool_calls"][0]["function"] == {"name": "Add", "arguments": '{"x": 1}'}
    assert json.loads(outcome["content"]) == {"response": 2, "exception": None}
