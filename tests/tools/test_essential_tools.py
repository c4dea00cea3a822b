"""The essential tools, tools that need others, helpers for other loops, and messages with calls."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import agents
import pytest

from toolchart import Engine, SpecError, ToolCall, encode_tools, make_call_message, make_result_message
from toolchart.engine.exchange.exports import export_call_messages
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.specs.chat_messages import encode_chat_message, read_history
from toolchart.tools.builtin import make_builtin
from toolchart.tools.builtin.workspace.shell import Shell


def test_search_finds_lines_and_stays_inside(tmp_path: Path) -> None:
    """Words are found in text files of the folder, and not in binary or hidden ones or behind links."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep").mkdir(parents=True)
    (inside / ".hidden").mkdir()
    outside.mkdir()
    (inside / "a.md").write_text("one\nThe Tide rises\n")
    (inside / "deep" / "b.txt").write_text("no\n" * 3 + "tide\n")
    (inside / "c.bin").write_bytes(b"tide\0tide")
    (inside / ".hidden" / "d.md").write_text("tide")
    (outside / "e.md").write_text("tide")
    (inside / "link.md").symlink_to(outside / "e.md")
    tool = make_builtin("search_files", {"root": str(inside)}, "search_files")
    assert tool is not None
    found = tool.run({"text": "TIDE"})
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("a.md", 2), ("deep/b.txt", 4)]
    assert tool.run({"text": "tide", "pattern": "*.md"})["matches"] == found["matches"][:1]


def test_a_shell_always_asks_and_gets_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an approval no command runs; with one it runs in the folder, and sees no key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-this-test")
    with Engine("handy", log="memory") as engine:
        result = engine.run("run touch made", conversation="c")
        assert [call.tool for call in result.pending_approvals] == ["run_shell"]
    assert not (tmp_path / "made").exists()
    done = asyncio.run(
        Shell(tmp_path).run({"command": "pwd; echo key=$OPENAI_API_KEY; echo bad >&2; exit 3"})
    )
    assert (done["exit_code"], done["errors"], done["cut"]) == (3, "bad\n", False)
    assert done["output"] == f"{tmp_path.resolve()}\nkey=\n"


def test_a_cancelled_command_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """Cancelling a command ends its children too: nobody holds the pipe any more that they had open."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def cancel() -> bytes:
        command = "exec 3>pipe; echo up >&3; sleep 60 & wait"
        task = asyncio.ensure_future(Shell(tmp_path).run({"command": command}))
        reader = await asyncio.to_thread(os.open, pipe, os.O_RDONLY)
        assert await asyncio.to_thread(os.read, reader, 100) == b"up\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        rest = await asyncio.to_thread(os.read, reader, 100)
        os.close(reader)
        return rest

    assert asyncio.run(cancel()) == b""


def make_needing_spec(needs: list[str]) -> dict[str, Any]:
    """A spec in which `weather` needs other tools first."""
    spec = agents.make_spec()
    spec["tools"]["registry"][2]["needs"] = needs
    return spec


def test_a_tool_that_needs_another_is_denied_until_that_has_succeeded() -> None:
    """The first call is denied with the reason, the second one runs after the tool that it needs."""
    weather, echo = ("weather", {"city": "Rome"}), ("echo", {"text": "a"})
    replies = [agents.reply_with_calls(call) for call in (weather, echo, weather)]
    tools = make_needing_spec(["echo"])["tools"]
    with agents.make_engine([*replies, "Done."], tools=tools) as engine:
        result = engine.run("weather?", conversation="c")
    first, _, third = result.tool_calls
    assert "weather needs echo to have succeeded first" in json.dumps(first.result)
    assert first.result["success"] is False
    assert third.result["success"] is True
    with pytest.raises(SpecError, match="needs 'ecko', which is no other tool"):
        Engine(make_needing_spec(["ecko"]), log="memory")


def run_turns(turns: list[list[str]], **weather: Any) -> list[list[tuple[str, bool, str]]]:
    """What became of the calls of each turn, one reply for each call: tool, success, and error."""
    spec = agents.make_spec()
    spec["tools"]["registry"][2] |= weather
    arguments = {"weather": {"city": "Rome"}, "echo": {"text": "a"}, "missing": {}}
    replies: list[Any] = []
    for turn in turns:
        replies += [
            agents.reply_with_calls(*((name, arguments[name]) for name in reply.split())) for reply in turn
        ]
        replies.append("Done.")
    with agents.make_engine(replies, tools={**spec["tools"], "max_iterations": 20}) as engine:
        results = [engine.run("go", conversation="c") for _ in turns]
    return [
        [(call.tool, call.result["success"], str(call.result.get("error", ""))) for call in result.tool_calls]
        for result in results
    ]


def test_a_need_may_have_succeeded_earlier_in_the_conversation() -> None:
    """`needs_in: conversation` counts the success of an earlier turn, which `turn` does not; a call of the
    same reply counts for neither."""
    turns = [["weather echo", "weather"], ["weather"]]
    first, second = run_turns(turns, needs=["echo"], needs_in="conversation")
    assert [done for _, done, _ in first] == [False, True, True]
    assert [done for _, done, _ in second] == [True]
    _, second = run_turns(turns, needs=["echo"])
    assert second == [("weather", False, "not executed: weather needs echo to have succeeded first")]


def test_a_failed_call_of_an_earlier_turn_meets_no_need() -> None:
    """Only a success counts: a call that was denied in an earlier turn leaves the need open."""
    turns = [["weather"], ["weather"]]
    assert [
        [done for _, done, _ in turn] for turn in run_turns(turns, needs=["echo"], needs_in="conversation")
    ] == [[False], [False]]


def test_a_tool_does_not_run_after_one_that_it_must_not_follow() -> None:
    """`not_after` denies a call once that tool has succeeded, in this turn or an earlier one."""
    first, second = run_turns([["weather", "echo", "weather"], ["weather"]], not_after=["echo"])
    assert [done for _, done, _ in first] == [True, True, False]
    assert second == [
        ("weather", False, "not executed: weather must not run after echo has succeeded in this conversation")
    ]
    spec = agents.make_spec()
    spec["tools"]["registry"][2]["not_after"] = ["ecko"]
    with pytest.raises(SpecError, match="must not run after 'ecko', which is no tool"):
        Engine(spec, log="memory")


def test_a_tool_runs_at_most_so_often_in_a_turn() -> None:
    """`max_calls` denies the calls beyond it, in one reply and in several; the next turn counts anew."""
    first, second = run_turns([["weather weather weather", "weather"], ["weather"]], max_calls=2)
    assert [done for _, done, _ in first] == [True, True, False, False]
    assert first[-1][2] == "not executed: weather may run at most 2 times in a turn"
    assert [done for _, done, _ in second] == [True]


def test_helpers_make_tools_calls_and_results_for_other_loops() -> None:
    """Tools get each host's form; a call and its result become messages."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    assert encode_tools([add], "openai")[0]["function"]["name"] == "add"
    assert encode_tools([add], "anthropic")[0]["input_schema"]["required"] == ["a", "b"]
    assert encode_tools([add], "gemini")[0]["function_declarations"][0]["name"] == "add"
    call = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2})
    messages = [make_call_message([call]), make_result_message(call, {"sum": 3})]
    assert [encode_chat_message(message)["role"] for message in messages] == ["assistant", "tool"]
    assert (messages[1].content, messages[1].tool_call_id) == ('{"sum":3}', "c1")


CALL_MESSAGES = [
    {"role": "user", "content": "6*7?"},
    {"role": "assistant", "content": "I compute it."},
    {
        "role": "tool",
        "toolCall": {"id": "a", "name": "calculator", "arguments": {"expression": "6*7"}, "result": "42"},
    },
    {"role": "tool", "toolCall": {"id": "b", "name": "echo", "arguments": {"text": "x"}, "result": "x"}},
    {"role": "assistant", "content": "It is 42."},
]


def test_messages_with_their_calls_are_imported_and_exported_without_loss() -> None:
    """`{role: tool, toolCall}` lists become a conversation that exports as the same list, and a history."""
    store = MemoryStore()
    store.append("c", 0, import_messages(CALL_MESSAGES, "c", "2026-01-01T00:00:00.000Z"))
    assert export_call_messages(store, "c") == CALL_MESSAGES
    roles = [message.role for message in read_history(CALL_MESSAGES)]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("informed", "weather in Rome", "clear"),
        ("informed", "17 * 27", "459"),
        ("handy", "read note.txt", "hello"),
        ("handy", "search hello", "note.txt"),
    ],
)
def test_the_shipped_agents_use_their_tools(
    name: str, message: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped agents answer from their tools, offline."""
    (tmp_path / "note.txt").write_text("hello there\n")
    monkeypatch.chdir(tmp_path)
    with Engine(name, log="memory") as engine:
        assert expected in engine.run(message).content


def test_twelve_iterations_are_twelve() -> None:
    """The thorough agent stops at twelve replies with tool calls, and answers then."""
    from toolchart import load_spec
    from toolchart.specs.turn_plan import build_limits

    spec = load_spec("thorough")
    assert build_limits(spec, spec.responses[0]).max_iterations == 12
