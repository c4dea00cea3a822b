"""Forks: share records by reference, apply the requested changes, verify and replay."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import agents
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolchart.engine import Engine
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.replay import read_chain, replay, replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.log.verify import verify_store
from toolchart.engine.reading.diff import compare_conversations
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LogDamaged, NoRecordedAnswer, NotFound, SpecError
from toolchart.states.events import Replied
from toolchart.states.messages import Reply, Request, ToolCall, Usage

SCRIPT = [
    agents.reply_with_calls(("echo", {"text": "one"}), ("echo", {"text": "two"})),
    agents.reply_with_calls(("calculator", {"expression": "1+1"})),
    "It is two.",
    agents.reply_with_calls(("echo", {"text": "again"})),
    "Again.",
]


def run_two_turns(store: Any = None) -> Engine:
    """Run a conversation of two turns, with seventeen records."""
    engine = agents.make_engine(SCRIPT, log=store if store is not None else MemoryStore(), chart="tool_loop")
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    return engine


def list_transitions(engine: Engine, conversation: str) -> list[tuple[str, str]]:
    """Event and target of every record after the first."""
    records = read_chain(engine.store.read_lines(conversation), conversation)
    return [(result.event["type"], result.target) for result in records][1:]


def test_a_fork_before_the_first_turn_takes_another_message() -> None:
    """A fork at record 0 has no turn and no result; the message that follows begins its first turn."""
    engine = agents.make_engine(["one", "two"])
    engine.run("first", conversation="c")
    fork = engine.conversation("c").fork(at=0, name="f")
    assert (fork.at, fork.result, fork.stopped) == (0, None, None)
    assert engine.run("another", conversation="f").content == "two"
    assert [
        message["content"]
        for message in export_messages(engine.store.read_lines("f"), "f", parents=engine.store.read_lines)
        if message["role"] == "user"
    ] == ["another"]


LENGTH = len(list(run_two_turns().store.read_lines("c")))


@settings(max_examples=40, deadline=None)
@given(at=st.integers(0, LENGTH - 1))
def test_a_fork_without_changes_ends_the_same(at: int) -> None:
    """A fork at any record with recorded answers ends as the recorded turn did, verifies and replays."""
    engine = run_two_turns()
    fork = engine.conversation("c").fork(at=at, name="f", from_log=True)
    assert fork.stopped is None
    parent = [(r.event["type"], r.target) for r in read_chain(engine.store.read_lines("c"), "c")]
    transitions = list_transitions(engine, "f")
    assert parent[at + 1 : at + 1 + len(transitions)] == transitions
    assert fork.result is None or fork.result.is_over
    assert not [result for result in verify_store(engine.store) if isinstance(result, LogDamaged)]
    assert len(list(replay_conversation(engine.store, "f"))) == len(transitions) + 1
    assert (
        len(list(replay_conversation(engine.store, "f", include_shared=True)))
        == at + 1 + len(transitions) + 1
    )


def test_a_fork_replaces_a_tool_result() -> None:
    """A fork with another tool result shares the records before it, and the model sees the new result."""
    engine = agents.make_engine([*SCRIPT[:3], lambda request: repeat_tool_result(request)], log=MemoryStore())
    engine.run("first", conversation="c")
    fork = engine.conversation("c").fork(changes=ForkChanges(results={"call_1_1_0": 22}), name="f")
    assert fork.result is not None
    assert fork.result.tool_calls[-1]["result"]["result"] == 22
    assert "22" in fork.result.content
    messages = export_messages(engine.store.read_lines("f"), "f", parents=engine.store.read_lines)
    assert [m["role"] for m in messages][-3:] == ["assistant", "tool", "assistant"]
    assert len(list(engine.store.read_lines("f"))) == 3


def repeat_tool_result(request: Request) -> Any:
    """A reply that repeats the tool's result."""
    return Reply(content=f"heard {request.messages[-1].content}", finish_reason="stop")


def test_another_model_runs_the_newest_turn_again() -> None:
    """A fork with another model or prompt runs the newest turn again, and its requests have the change."""
    engine = agents.make_engine([*SCRIPT, "other"], log=MemoryStore())
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    fork = engine.conversation("c").fork(
        changes=ForkChanges(settings={"model": "new"}, system="Be long."), name="f"
    )
    assert fork.result is not None
    assert (fork.result.model, fork.result.content) == ("new", "other")
    request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    assert request.model == "new"
    assert request.messages[0].content == "Be long."
    assert [m.content for m in request.messages if m.role == "user"] == ["first", "second"]


def test_a_request_without_a_recorded_answer_ends_the_run() -> None:
    """A fork that runs from the log stops at the first request without a recorded answer. Issue 16: where
    that is its very first one, nothing stays of the fork."""
    engine = run_two_turns()
    with pytest.raises(NoRecordedAnswer, match="did not make this request"):
        engine.conversation("c").fork(
            changes=ForkChanges(settings={"temperature": 1}), name="f", from_log=True
        )
    assert list(engine.store.list_conversations()) == ["c"]
    tighter = ForkChanges(settings={"tools.max_iterations": 1})
    fork = engine.conversation("c").fork(at=1, changes=tighter, name="g", from_log=True)
    assert fork.stopped is None
    assert fork.result is not None
    assert fork.result.state == "max_iterations"


def test_a_fork_continues_like_any_conversation() -> None:
    """Later turns, a fork of a fork and a resumed fork all see the shared records."""
    engine = agents.make_engine([*SCRIPT, "third", "fourth"], log=MemoryStore())
    engine.run("first", conversation="c")
    engine.conversation("c").fork(name="f")
    engine.run("second", conversation="f")
    assert engine.conversation("f").fork(name="g").result is not None
    result = engine.run("third?", conversation="g")
    assert result.content == "third"
    users = [m for m in export_list(engine, "g") if m["role"] == "user"]
    assert [m["content"] for m in users] == ["first", "second", "third?"]
    lines = list(engine.store.read_lines("g"))
    copied_store = MemoryStore()
    for name in ("c", "f"):
        copied_store.append(name, 0, list(engine.store.read_lines(name)))
    copied_store.append("g", 0, lines[:2])  # the process stopped after the turn had begun
    other = agents.make_engine(["resumed"], log=copied_store)
    assert other.conversation("g").resume().content == "resumed"


def export_list(engine: Engine, conversation: str) -> list[dict[str, Any]]:
    """The messages of a conversation, including those that it shares with its parent."""
    store = engine.store
    return export_messages(store.read_lines(conversation), conversation, parents=store.read_lines)


@pytest.mark.parametrize("from_log", [False, True])
def test_a_fork_whose_parent_is_deleted_meanwhile_is_given_up(
    from_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the parent was deleted just before the first record of a fork, nothing of it stays and nothing is
    sent."""
    engine = run_two_turns()
    commit = engine.store.commit

    def delete_parent_first(changes: Any, **options: Any) -> Any:
        if any(change.conversation == "d" and change.lines for change in changes):
            monkeypatch.undo()
            engine.store.delete("c")
        return commit(changes, **options)

    monkeypatch.setattr(engine.store, "commit", delete_parent_first)
    with pytest.raises(SpecError, match="'c' was deleted while it was forked"):
        engine.conversation("c").fork(name="d", from_log=from_log)
    assert list(engine.store.list_conversations()) == []


def test_a_fork_finds_damage_in_its_parent(tmp_path: Path) -> None:
    """Verify and replay of a fork find a shared record that is missing or changed."""
    store = SqliteStore(tmp_path / "log.db")
    engine = run_two_turns(store)
    engine.conversation("c").fork(at=6, name="f")
    with sqlite3.connect(tmp_path / "log.db") as database:
        database.execute("DELETE FROM records WHERE id >= (1 << 32) + 6 AND id < 2 << 32")
    damages = [result for result in verify_store(store) if isinstance(result, LogDamaged)]
    # The parent has a checkpoint of a record that is gone.
    assert [result.conversation for result in damages] == ["c", "f"]
    with pytest.raises(LogDamaged, match="record 6 of conversation 'c'"):
        list(replay_conversation(store, "f"))
    with pytest.raises(LogDamaged, match="read it from a store"):
        list(replay(store.read_lines("f"), "f"))


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        (99, ForkChanges(), "no record 99"),
        (None, ForkChanges(settings={"modle": "x"}), "did you mean 'model'"),
        (None, ForkChanges(settings={"limits.max_iterations": "x"}), "expected `int`"),
        (None, ForkChanges(settings={"llm": "nobody"}), "no llms entry"),
        (None, ForkChanges(results={"nobody": 1}), "no result of nobody"),
        (4, ForkChanges(results={"nobody": 1}), "no call 'nobody' waits"),
        (LENGTH - 1, ForkChanges(settings={"model": "x"}), "no turn is open"),
    ],
)
def test_an_impossible_fork_is_refused(at: int | None, changes: ForkChanges, words: str) -> None:
    """A fork with an unknown record, setting or call gives a clear error and writes nothing."""
    engine = run_two_turns()
    with pytest.raises(SpecError, match=words):
        engine.conversation("c").fork(at=at, changes=changes, name="f")
    assert list(engine.store.list_conversations()) == ["c"]


# -- other arguments of a call ---------------------------------------------------------------------


def read_replies(engine: Engine, conversation: str) -> list[Replied]:
    """The replies in the records of a conversation itself."""
    events = (
        record.decode_event() for record in read_chain(engine.store.read_lines(conversation), conversation)
    )
    return [event for event in events if isinstance(event, Replied)]


def test_a_fork_changes_the_arguments_of_a_call() -> None:
    """The reply that asked for the call is heard again with the new arguments: its other calls get their
    recorded results, the changed one runs, and the model sees both. The log says which call was changed, and
    nothing is paid, sent or claimed for the reply a second time."""
    first = Reply(
        content="Let me see.",
        tool_calls=(
            ToolCall(id="a", name="weather", arguments={"city": "Oslo"}, raw='{"city": "Oslo"}'),
            ToolCall(id="b", name="weather", arguments={"city": "Rome"}),
        ),
        finish_reason="tool_calls",
        native_reason="tool_calls",
        usage=Usage(input=7, output=5),
        response_id="r1",
        details={"tier": "x"},
        rate_limits={"requests": {"limit": 9.0}},
    )
    engine = agents.make_engine([first, "blue", lambda request: repeat_tool_result(request)])
    engine.run("first", conversation="c")
    changes = ForkChanges(arguments={"a": {"city": "Bergen"}})
    fork = engine.conversation("c").fork(changes=changes, name="f")
    assert fork.at == 1
    assert fork.result is not None
    [waiting] = fork.result.pending_approvals
    assert (waiting.id, waiting.params) == ("a", {"city": "Bergen"})
    result = engine.conversation("f").approve("a")
    assert "heard" in result.content
    outcomes = {
        record.event["call_id"]: record.event.get("notes", [])
        for record in read_chain(engine.store.read_lines("f"), "f")
        if record.event["type"] == "tool_finished"
    }
    assert outcomes == {"a": [], "b": ["the recorded result of the parent's call"]}
    replied = read_replies(engine, "f")[0]
    assert replied.changed_calls == ("a",)
    assert replied.reply.content == "Let me see."
    assert [(call.id, call.arguments, call.raw) for call in replied.reply.tool_calls] == [
        ("a", {"city": "Bergen"}, None),
        ("b", {"city": "Rome"}, None),
    ]
    claims = (replied.answer_digest, replied.raw_answer, replied.deltas, replied.reply.usage)
    assert not any(claims)
    assert not any((replied.reply.response_id, replied.reply.details, replied.reply.rate_limits))
    assert (engine.conversation("c").usage.input, engine.conversation("f").usage.input) == (7, None)
    request = engine.hosts.providers["model"].requests[-1]  # type: ignore[attr-defined]
    sent = {call.id: call.arguments for message in request.messages for call in message.tool_calls}
    assert sent == {"a": {"city": "Bergen"}, "b": {"city": "Rome"}}
    assert not [found for found in verify_store(engine.store) if isinstance(found, LogDamaged)]
    assert list(replay_conversation(engine.store, "f"))
    difference = compare_conversations(engine.store, "c", "f").first
    assert difference is not None
    assert difference.pointer == "/event/reply/tool_calls/0/arguments/city"
    assert (difference.left_seq, difference.left, difference.right) == (2, "Oslo", "Bergen")


@settings(max_examples=30, deadline=None)
@given(
    calls=st.sampled_from([["call_1_0_0"], ["call_1_0_1", "call_1_0_0"], ["call_1_1_0"], ["call_2_0_0"]]),
    words=st.text(max_size=5),
    is_same=st.booleans(),
    is_offline=st.booleans(),
)
def test_changed_arguments_verify_replay_and_show(
    calls: list[str], words: str, is_same: bool, is_offline: bool
) -> None:
    """With the recorded arguments a fork ends as its parent did, also from the log alone. With others the
    calls have them. Such a fork verifies, replays exactly and goes on."""
    engine = agents.make_engine(
        [*SCRIPT, *["more"] * 3], log=MemoryStore(), chart="tool_loop", approver=lambda question: True
    )
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    old = {
        call.id: call.arguments or {}
        for record in read_chain(engine.store.read_lines("c"), "c")
        if isinstance(event := record.decode_event(), Replied)
        for call in [replace(c, id=i) for c, i in zip(event.reply.tool_calls, record.calls, strict=False)]
    }
    new = {name: old[name] if is_same else dict.fromkeys(old[name], words) for name in calls}
    if "call_1_1_0" in calls and not is_same:
        new = {"call_1_1_0": {"expression": "2+2"}}
    handle = engine.conversation("c")
    try:
        fork = handle.fork(changes=ForkChanges(arguments=new), name="f", from_log=is_offline)
    except NoRecordedAnswer:
        assert is_offline
        assert not is_same
        assert list(engine.store.list_conversations()) == ["c"]
        return
    assert fork.stopped is None or (is_offline and not is_same)
    replied = read_replies(engine, "f")[0]
    ids = set(replied.changed_calls)
    assert ids == set(calls)
    assert not [found for found in verify_store(engine.store) if isinstance(found, LogDamaged)]
    assert list(replay_conversation(engine.store, "f", include_shared=True))
    if is_same and is_offline:
        assert compare_conversations(engine.store, "c", "f").first is None or "call_2_0_0" not in calls
    if not fork.stopped:
        assert fork.result is not None
        assert fork.result.is_over


@pytest.mark.parametrize(
    ("at", "changes", "words"),
    [
        (None, {"arguments": {"call_1_0_9": {}}}, "did you mean 'call_1_0_"),
        (None, {"arguments": {"call_1_0_0": {}, "call_2_0_0": {}}}, "different replies.*record 2.*record 1"),
        (3, {"arguments": {"call_1_0_0": {"text": "x"}}}, "shares the records up to 1.*not up to 3"),
        (None, {"arguments": {"call_1_1_0": {"expression": 7}}}, "refused.*nothing was written"),
        (None, {"arguments": {"call_1_1_0": {"expresion": "1"}}}, "nothing was written"),
        (None, {"arguments": {"call_1_0_0": {}}, "results": {"call_1_0_1": 1}}, "or results"),
    ],
)
def test_arguments_that_cannot_be_changed_are_refused(
    at: int | None, changes: dict[str, Any], words: str
) -> None:
    """An unknown call, calls of several replies, another record and arguments that do not fit: the error says
    what would do, and nothing is written."""
    engine = run_two_turns()
    for is_offline in (False, True):
        with pytest.raises(SpecError) as caught:
            engine.conversation("c").fork(
                at=at, changes=ForkChanges(**changes), name="f", from_log=is_offline
            )
        assert re.search(words, str(caught.value), re.DOTALL), caught.value
    assert list(engine.store.list_conversations()) == ["c"]


def test_a_shared_call_is_changed_in_the_parent() -> None:
    """A fork of a fork changes calls of its own records only; the error names where the others are."""
    engine = run_two_turns()
    engine.conversation("c").fork(name="f")
    with pytest.raises(SpecError, match=r"itself has no call 'call_1_0_0'.*\s.*a fork of its parent"):
        engine.conversation("f").fork(changes=ForkChanges(arguments={"call_1_0_0": {"text": "x"}}))


def test_a_changed_reply_answers_its_own_region() -> None:
    """Where model calls of two regions are open at the record, the changed reply answers the call that it
    answered in the parent, and the other one is made again."""
    regions = {
        "main": {
            "states": {
                "asking": {
                    "initial": True,
                    "enter": "call_model",
                    "transitions": [
                        {
                            "event": "replied.call_model",
                            "target": "reviewing",
                            "cond": "finish_reason == 'tool_calls'",
                        },
                        {"event": "replied.call_model", "target": "main_done"},
                        {"event": "failed.call_model", "target": "main_done"},
                    ],
                },
                "reviewing": {
                    "enter": "review_calls",
                    "transitions": [
                        {"event": "reviewed", "target": "running", "cond": "undecided_calls == 0"},
                        {"event": "reviewed"},
                        {"event": "decided", "target": "running", "cond": "undecided_calls == 0"},
                        {"event": "decided"},
                    ],
                },
                "running": {
                    "enter": "run_tools",
                    "transitions": [
                        {"event": "tool_finished", "cond": "pending_calls > 0"},
                        {"event": "tool_finished", "target": "asking", "cond": "iteration < 3"},
                        {"event": "tool_finished", "target": "main_done"},
                    ],
                },
                "main_done": {"final": True},
            }
        },
        "side": {
            "states": {
                "thinking": {
                    "initial": True,
                    "enter": "think",
                    "transitions": [
                        {"event": "replied.think", "target": "side_done"},
                        {"event": "failed.think", "target": "side_done"},
                    ],
                },
                "side_done": {"final": True},
            }
        },
    }
    chart = {
        "states": {
            "working": {
                "initial": True,
                "parallel": True,
                "states": regions,
                "transitions": [
                    {"event": "done.state.working", "target": "finished"},
                    {"event": "cancelled", "target": "lost"},
                ],
            },
            "finished": {"final": True, "enter": "report"},
            "lost": {"final": True, "enter": "answer_with_error"},
        }
    }
    slow = {"content": "thought", "latency_s": 0.2}
    spec = agents.make_spec(
        chart=chart,
        effects={
            "think": {"call_model": {"as": "thought", "llm": "side", "prompt": "Think."}},
            "report": {"answer": "{{thought.content}}"},
        },
    )
    spec["llms"]["side"] = {"provider": "scripted", "model": "s", "replies": [slow, slow]}
    replies = [agents.reply_with_calls(("echo", {"text": "one"})), "done", "done again"]
    providers = {"model": ScriptedProvider(replies)}
    with Engine(spec, log="memory", providers=providers) as engine:
        assert engine.run("go", conversation="c").content == "thought"
        changes = ForkChanges(arguments={"call_1_0_0": {"text": "two"}})
        fork = engine.conversation("c").fork(changes=changes, name="f")
        replies_of_fork = read_replies(engine, "f")
        damages = [found for found in verify_store(engine.store) if isinstance(found, LogDamaged)]
    assert fork.at == 1
    assert fork.result is not None
    assert replies_of_fork[0].changed_calls == ("call_1_0_0",)
    assert not damages
    assert fork.result.tool_calls[0]["params"] == {"text": "two"}
    assert sorted(reply.reply.content or "" for reply in replies_of_fork) == ["", "done again", "thought"]


# -- the tree of forks -----------------------------------------------------------------------------


def describe_tree(engine: Engine, conversation: str) -> tuple[str, list[tuple[str, str, int]]]:
    """Root, and each fork with its parent and its newest shared record."""
    tree = engine.conversation(conversation).read_forks()
    return tree.root, [(fork.conversation, fork.parent, fork.at) for fork in tree.forks]


def test_the_forks_of_a_conversation_are_a_tree() -> None:
    """From each conversation of it the same tree is read: its root, all forks with parents before children,
    and what each of them changed. Others are no part of it, and a deleted fork goes from it."""
    engine = agents.make_engine([*SCRIPT, "new", "heard", "more", "more", "more"], log=MemoryStore())
    engine.run("first", conversation="c")
    engine.run("second", conversation="c")
    engine.conversation("c").fork(name="model", changes=ForkChanges(settings={"model": "x"}, system="S"))
    engine.conversation("c").fork(name="result", changes=ForkChanges(results={"call_2_0_0": "r"}))
    engine.conversation("result").fork(
        name="deeper",
        at=0,
        changes=ForkChanges(settings={"temperature": 0.5, "limits.max_iterations": 2}),
        author="anna",
        from_log=False,
    )
    assert describe_tree(engine, "deeper") == (
        "c",
        [("model", "c", 10), ("result", "c", 12), ("deeper", "result", 0)],
    )
    engine.conversation("c").fork(
        name="arguments", changes=ForkChanges(arguments={"call_2_0_0": {"text": "b"}})
    )
    engine.run("another", conversation="other")
    engine.conversation("other").fork(name="foreign")
    assert describe_tree(engine, "foreign") == ("other", [("foreign", "other", 2)])
    for name in ("c", "model", "result", "deeper", "arguments"):
        assert describe_tree(engine, name) == describe_tree(engine, "c")
    tree = engine.conversation("c").read_forks()
    changes = {fork.conversation: fork.changes for fork in tree.forks}
    assert changes["model"].settings == {"model": "x"}
    assert changes["model"].system == "S"
    assert (changes["result"].results, changes["result"].arguments) == (("call_2_0_0",), ())
    assert changes["deeper"].settings == {"temperature": 0.5, "limits.max_iterations": 2}
    assert changes["arguments"] == type(changes["arguments"])(arguments=("call_2_0_0",))
    [deeper] = [fork for fork in tree.forks if fork.conversation == "deeper"]
    last = list(read_chain(engine.store.read_lines("deeper"), "deeper"))
    assert (deeper.author, deeper.records, deeper.newest_at) == ("anna", len(last), last[-1].at)
    assert deeper.state == last[-1].target
    engine.store.delete("deeper")
    assert [name for name, _, _ in describe_tree(engine, "c")[1]] == ["model", "result", "arguments"]
    with pytest.raises(NotFound):
        engine.conversation("deeper").read_forks()


def test_a_tree_of_forks_costs_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log of many conversations one look reads each first record once; the next one reads only what is
    new and the forks themselves. A conversation that cannot be read hides no fork."""
    engine = agents.make_engine(SCRIPT, log=MemoryStore())
    engine.run("first", conversation="c")
    lines = list(engine.store.read_lines("c"))
    for number in range(300):
        engine.store.append(f"n{number}", 0, lines)
    engine.store.append("odd", 0, [b"{"])
    engine.conversation("c").fork(name="f")
    assert describe_tree(engine, "f") == ("c", [("f", "c", len(lines) - 1)])
    reads: list[str] = []
    read_lines = engine.store.read_lines

    def count(conversation: str, start: int = 0) -> Any:
        reads.append(conversation)
        return read_lines(conversation, start)

    monkeypatch.setattr(engine.store, "read_lines", count)
    monkeypatch.setattr(engine.store, "read_ends", lambda: pytest.fail("the whole log was read again"))
    engine.conversation("f").fork(name="g")
    reads.clear()
    assert [name for name, _, _ in describe_tree(engine, "c")[1]] == ["f", "g"]
    assert set(reads) == {"c", "f", "g"}
    assert len(reads) < 20
