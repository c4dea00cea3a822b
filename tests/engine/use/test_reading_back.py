"""Reading conversations back: lists, owners and tags, and what a page shows after a restart."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import agents
import child_agents
import pytest
from golden_logs import list_golden_logs, load_golden_store, read_golden_log, split_conversations

from toolchart import Engine, NotFound, SpecError
from toolchart.engine.log import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.overview import read_view
from toolchart.engine.reading.results import read_results
from toolchart.engine.reading.waiting import NOTHING_WAITS, read_waiting
from toolchart.engine.runtime.result import describe_waiting
from toolchart.states.core.encoding import decode
from toolchart.states.messages import Message, Reply, Request, ToolCall
from toolchart.states.ports import Store

APPROVAL: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}

QUESTION_CHART = {
    "name": "ask",
    "states": {
        "drafting": {
            "initial": True,
            "enter": "write_draft",
            "transitions": [{"event": "replied", "target": "asking"}, {"event": "failed", "target": "error"}],
        },
        "asking": {
            "enter": "ask_editor",
            "transitions": [
                {"event": "answered", "target": "finished"},
                {"event": "cancelled", "target": "error"},
            ],
            "after": {"2h": "finished"},
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}

QUESTION_EFFECTS = {
    "write_draft": {"call_model": {"prompt": "draft it", "as": "draft"}},
    "ask_editor": {
        "ask_person": {
            "question": "Publish {{draft}}?",
            "form": {
                "type": "object",
                "properties": {"publish": {"type": "boolean"}},
                "required": ["publish"],
            },
            "as": "verdict",
        }
    },
}


def forbid_deriving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything fail that derives a step or compiles a recorded chart."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("reading derives nothing")

    for name in ("derive_step", "compile_recorded_chart"):
        monkeypatch.setattr(replay, name, refuse)


def ask_to_pay(*recipients: str) -> dict[str, Any]:
    """A reply that calls `echo` for each of these."""
    return agents.reply_with_calls(*[("echo", {"text": name}) for name in recipients])


# -- after a restart ---------------------------------------------------------------------------------


def test_what_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    """A new process that knows only the id of a conversation shows what waits in it, and approves it."""
    path = tmp_path / "log.db"
    with agents.make_engine([ask_to_pay("Ann")], log=path, **APPROVAL) as engine:
        result = engine.run("pay", conversation="c")
        assert [call.conversation for call in result.pending_approvals] == ["c"]
    with agents.make_engine(["Paid."], log=path, **APPROVAL) as engine:
        conversation = engine.conversation("c")
        assert conversation.pending_approvals == result.pending_approvals
        assert list(conversation.waiting.approvals) == result.pending_approvals
        assert conversation.approve().content == "Paid."
        assert not conversation.waiting.needs_person


def test_a_child_that_waits_stands_in_its_parent() -> None:
    """What waits in the child of a conversation is found in the conversation, with the child's id, as the
    result of the turn has it."""

    def answer(said: str, request: Request) -> Reply:
        if request.messages[-1].role == "tool":
            return Reply(content=f"{said}: done", finish_reason="stop")
        call = ToolCall(id=f"call {said}", name="note", arguments={"text": said})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")

    def note(text: str) -> str:
        """Write a note."""
        return text

    effects = {"work": {"run_agent": {"chart": "full", "message": "do it", "as": "outcome"}}}
    effects["publish"] = {"answer": "{{outcome}}"}  # type: ignore[dict-item]
    spec = child_agents.make_spec(
        child_agents.make_parent_chart(),
        effects,
        tools={"enabled": True, "apply_globally": True},
        approval={"default": "ask"},
    )
    with child_agents.make_engine(spec, child_agents.FunctionModel(answer), functions=[note]) as engine:
        result = engine.run("go", conversation="c")
        conversation = engine.conversation("c")
        (child,) = conversation.children
        assert list(conversation.waiting.approvals) == result.pending_approvals
        assert [call.conversation for call in conversation.waiting.approvals] == [child.id]
        assert child.waiting.approvals == conversation.waiting.approvals
        assert conversation.approve().is_over
        assert (
            conversation.results
            == engine.conversation("c").read_turn().results
            == {"outcome": {"content": "do it: done"}}
        )


def test_views_say_what_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each point of a turn with decisions, a view that derives nothing has the waiting calls that the
    derived result has."""
    store = MemoryStore()
    replies = [ask_to_pay("Ann", "Ben", "Cem"), "Done."]
    with agents.make_engine(replies, log=store, **APPROVAL) as engine:
        result = engine.run("pay", conversation="c")
        for number, approved in enumerate((True, False, True)):
            expected = engine.conversation("c").read_turn()
            with monkeypatch.context() as patched:
                forbid_deriving(patched)
                waiting = read_waiting(store, "c")
            assert list(waiting.approvals) == expected.pending_approvals
            assert len(waiting.approvals) == 3 - number
            result = engine.conversation("c").approve(waiting.approvals[0].id, approved=approved)
        assert result.is_over
        with monkeypatch.context() as patched:
            forbid_deriving(patched)
            view = read_view(store, "c")
    assert (view.waiting.approvals, view.waiting.calls) == ((), ())
    assert (view.state, view.turns, view.message) == (result.state, 1, "pay")
    assert [message.role for message in engine.conversation("c").messages] == ["user", "assistant"] + [
        "tool"
    ] * 3 + ["assistant"]


@pytest.mark.parametrize("name", list_golden_logs())
def test_what_waits_is_read_as_it_is_derived(name: str) -> None:
    """At each record of each golden log the records of the open turn say what its snapshot says: calls to
    decide, questions, calls that have begun, and when the next timer runs out."""
    conversations = split_conversations(read_golden_log(name))
    whole = load_golden_store(conversations)
    for conversation, lines in conversations.items():
        relatives = {
            other: theirs
            for other, theirs in conversations.items()
            if other != conversation and not other.startswith(f"{conversation}.")
        }
        for count, replayed in enumerate(replay.replay_conversation(whole, conversation), 1):
            snapshot = replayed.step.snapshot
            store = load_golden_store({**relatives, conversation: lines[:count]})
            expected = NOTHING_WAITS if snapshot.is_over else describe_waiting(snapshot, conversation)
            assert read_waiting(store, conversation) == expected, f"{conversation}, record {count - 1}"


def test_a_question_waits_with_its_form_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question of the chart stands in the view as in the result: form, deadline, and results so far."""
    spec = agents.make_spec(chart=QUESTION_CHART, effects=QUESTION_EFFECTS)
    spec["llms"]["model"]["replies"] = ["a draft"]
    store = MemoryStore()
    with Engine(spec, log=store) as engine:
        result = engine.run("write", conversation="c")
        with monkeypatch.context() as patched:
            forbid_deriving(patched)
            waiting, results = read_waiting(store, "c"), read_results(store, "c")
        assert [{**question, "conversation": "c"} for question in result.questions] == list(waiting.questions)
        assert (waiting.due, results) == (result.due, result.results)
        assert result.due is not None
        ended = engine.conversation("c").answer({"publish": True})
        assert ended.is_over
        assert (
            read_results(store, "c")
            == ended.results
            == {"draft": {"content": "a draft"}, "verdict": {"publish": True}}
        )
        assert not read_waiting(store, "c").needs_person


def test_steps_are_followed_as_they_are_written(tmp_path: Path) -> None:
    """Who follows a conversation gets every record once, those of another engine too, and may begin before it
    exists."""

    async def follow(conversation: Any) -> list[int]:
        seqs = []
        async for record in conversation.follow(every_s=0.01):
            seqs.append(record.seq)
            if record.ends_turn and record.turn == 2:
                return seqs
        raise AssertionError("it goes on until it is closed")

    async def run() -> None:
        async with (
            agents.make_engine(["one", "two"], log=tmp_path / "log.db") as writer,
            agents.make_engine([], log=tmp_path / "log.db") as reader,
        ):
            task = asyncio.create_task(follow(reader.conversation("c")))
            await writer.arun("first", conversation="c")
            await writer.arun("second", conversation="c")
            seqs = await asyncio.wait_for(task, 30)
            assert seqs == [record.seq for record in writer.conversation("c").steps]

    asyncio.run(run())


# -- owners and tags -----------------------------------------------------------------------------------


def test_owner_and_tags_are_recorded_when_a_conversation_begins() -> None:
    """Owner and tags stand in the first record, and stay when the agent changes."""
    store = MemoryStore()
    with agents.make_engine(["a", "b"], log=store) as engine:
        engine.run("hi", conversation="c", owner="anna", tags={"ticket": "4711"})
    with agents.make_engine(["c"], log=store, name="another") as engine:
        engine.run("again", conversation="c")
        conversation = engine.conversation("c")
        configured = [step.event for step in conversation.steps if step.event_type == "configured"]
        assert [(event["owner"], event["tags"]) for event in configured] == [("anna", {"ticket": "4711"})] * 2
        assert (conversation.read().owner, conversation.read().tags) == ("anna", {"ticket": "4711"})


@pytest.mark.parametrize(
    ("begun", "asked", "error", "problem"),
    [
        (
            {"owner": "anna"},
            {"owner": "ben"},
            NotFound,
            "there is no conversation 'c' in this log\n  an owner",
        ),
        ({}, {"owner": "ben"}, NotFound, "no conversation 'c' in this log\n  an owner"),
        ({"tags": {"a": "1"}}, {"tags": {"a": "2"}}, SpecError, "was begun with other tags"),
    ],
)
def test_a_message_of_somebody_else_is_refused(
    begun: Any, asked: Any, error: type[Exception], problem: str
) -> None:
    """For another owner than a conversation was begun with it does not exist, and other tags are refused;
    nothing is written, also where a turn of it is open. The same ones pass."""
    with agents.make_engine(["a", "b", ask_to_pay("Ann")], **APPROVAL) as engine:
        engine.run("hi", conversation="c", **begun)
        engine.run("again", conversation="c", **begun)
        for _ in range(2):
            count = len(engine.conversation("c").steps)
            with pytest.raises(error, match=problem) as caught:
                engine.run("mine", conversation="c", **asked)
            assert "anna" not in str(caught.value)
            with pytest.raises(error, match=problem):
                engine.run_once("mine", conversation="c", **asked)
            assert len(engine.conversation("c").steps) == count
            engine.run("pay", conversation="c", **begun)  # from now on a turn is open


@pytest.mark.parametrize(
    "options", [{"owner": " "}, {"owner": 1}, {"owner": "x" * 201}, {"tags": {"a": 1}}, {"tags": ["a"]}]
)
def test_owners_and_tags_of_wrong_form_are_refused(options: Any) -> None:
    """An owner that is empty, long or no text, and tags that are no texts, are refused before anything is
    recorded."""
    with agents.make_engine(["a"]) as engine:
        with pytest.raises((SpecError, AttributeError)):
            engine.run("hi", conversation="c", **options)
        assert list(engine.store.list_conversations()) == []


def test_children_and_forks_have_the_owner_of_their_parent() -> None:
    """A fork, and an agent that a conversation runs, belong to its owner and have its tags."""
    effects = {"work": {"run_agent": {"chart": "tool_loop", "message": "do it", "as": "outcome"}}}
    effects["publish"] = {"answer": "{{outcome}}"}  # type: ignore[dict-item]
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    model = child_agents.FunctionModel(lambda said, request: said)
    with child_agents.make_engine(spec, model) as engine:
        engine.run("go", conversation="c", owner="anna", tags={"t": "1"})
        engine.conversation("c").fork(0, name="f")
        rows = engine.conversations(owner="anna", with_children=True).conversations
        assert {row.conversation for row in rows} == {"c", "f", engine.conversation("c").children[0].id}
        assert engine.conversations(owner="ben").conversations == ()


# -- lists ---------------------------------------------------------------------------------------------


@pytest.fixture
def listed() -> Any:
    """An engine with three conversations: of Anna, of Ben, who has to decide, and of nobody."""
    replies = ["The sky is blue.", ask_to_pay("Cem"), "Fine."]
    with agents.make_engine(replies, **APPROVAL) as engine:
        engine.run("Weather?", conversation="a", owner="anna", tags={"kind": "chat", "ticket": "1"})
        engine.run("Pay!", conversation="b", owner="ben", tags={"kind": "chat"})
        engine.run("How are you?", conversation="n")
        yield engine


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, ["n", "b", "a"]),
        ({"owner": "anna"}, ["a"]),
        ({"tags": {"kind": "chat"}}, ["b", "a"]),
        ({"tags": {"kind": "chat", "ticket": "1"}}, ["a"]),
        ({"waiting": True}, ["b"]),
        ({"tool": "echo"}, ["b"]),
        ({"text": "BLUE"}, ["a"]),
        ({"state": "finished", "owner": "ben"}, []),
        ({"since": datetime(2999, 1, 1, tzinfo=UTC)}, []),
        ({"until": datetime(2999, 1, 1, tzinfo=UTC), "model": "m", "limit": 2}, ["n", "b"]),
    ],
)
def test_conversations_are_found(
    listed: Engine, where: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list has the conversations that meet all conditions, the newest first, and derives none."""
    forbid_deriving(monkeypatch)
    rows = listed.conversations(**where).conversations
    assert [row.conversation for row in rows] == expected


def test_a_list_has_pages(listed: Engine) -> None:
    """The pages of a list, one after the other, are the whole list."""
    names, before, pages = [], None, 0
    while True:
        page = listed.conversations(limit=1, before=before)
        names += [row.conversation for row in page.conversations]
        pages, before = pages + 1, page.next
        if before is None:
            break
    assert (names, pages) == (["n", "b", "a"], 3)


def test_a_list_reads_no_more_of_a_long_conversation() -> None:
    """A row costs the same few lines of the log however long the conversation is; for an owner, each reading
    looks at the first line to see whose it is."""

    class CountingStore(MemoryStore):
        lines = 0

        def read_lines(self, conversation: str, start: int = 0) -> Any:
            for line in super().read_lines(conversation, start):
                CountingStore.lines += 1
                yield line

    counts: dict[str | None, list[int]] = {None: [], "anna": []}
    with agents.make_engine(["a"] * 12, log=CountingStore()) as engine:
        for turns in (1, 11):
            for _ in range(turns):
                engine.run("hi", conversation="c", owner="anna")
            for owner, lines in counts.items():
                CountingStore.lines = 0
                assert len(engine.conversations(owner=owner, state="finished").conversations) == 1
                lines.append(CountingStore.lines)
    assert counts[None][0] == counts[None][1] <= 3
    assert counts["anna"][1] <= counts["anna"][0] <= 7


@pytest.mark.parametrize(
    "where", [{"ownr": "anna"}, {"since": "yesterday"}, {"since": datetime(2026, 1, 1)}, {"limit": 0}]
)
def test_conditions_of_wrong_form_are_refused(listed: Engine, where: Any) -> None:
    """A misspelt condition, a time without a zone and a page without rows are refused."""
    with pytest.raises((SpecError, TypeError, AttributeError)):
        listed.conversations(**where)


def test_messages_and_calls_are_json_data() -> None:
    """`to_dict` of a message is what the wires of the server show, and of a call what its result shows."""
    with Engine("quickstart", log="memory") as engine:
        result = engine.run("What is 2 + 3?", conversation="c")
        messages = engine.conversation("c").messages
    assert [call.to_dict() for call in result.tool_calls] == result.to_dict()["tool_calls"]
    data = json.loads(json.dumps([message.to_dict() for message in messages]))
    assert [decode(Message, row) for row in data] == list(messages)
    assert data[0] == {"role": "user", "content": "What is 2 + 3?"}


def test_a_waiting_call_is_json_data() -> None:
    """`to_dict` of a call that waits for a decision is what the view of its conversation shows."""
    with agents.make_engine([agents.reply_with_calls(("echo", {"text": "x"}))], **APPROVAL) as engine:
        (pending,) = engine.run("go", conversation="c").pending_approvals
        assert [pending.to_dict()] == engine.conversation("c").waiting.to_dict()["approvals"]
    assert (pending.to_dict()["tool"], pending.to_dict()["params"]) == ("echo", {"text": "x"})


def test_nothing_waits_in_an_unknown_conversation(listed: Engine) -> None:
    """Nobody waits for a conversation that does not exist: a list that asks so leaves it out."""
    store: Store = listed.store
    assert not read_waiting(store, "x").needs_person
