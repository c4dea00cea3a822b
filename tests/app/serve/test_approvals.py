"""Approvals over all conversations: what waits, what led there, deadlines, escalation, and who decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from child_agents import make_parent_chart
from served import bearer, make_site, open_client

from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading import approvals
from toolchart.states.errors import AlreadyDecided, IllegalEvent
from toolchart.states.events import Decided
from toolchart.testing.clock import TurnableClock

APPROVAL: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}
ESCALATING: dict[str, Any] = {
    "approval": {"default": "ask"},
    "chart": {
        "name": "escalating",
        "extends": "approval",
        "states": {
            "awaiting_approval": {"enter": "ask_clerk", "after": {"10m": "escalated"}},
            "escalated": {
                "enter": "ask_manager",
                "after": {"24h": "executing"},
                "transitions": [
                    {"event": "decided", "target": "executing", "cond": "undecided_calls == 0"},
                    {"event": "decided"},
                    {"event": "cancelled", "target": "error"},
                    {"event": "user_said"},
                ],
            },
        },
    },
    "effects": {
        "ask_clerk": {"ask_approval": {"to": ["clerk"]}},
        "ask_manager": {"ask_approval": {"to": ["manager", "deputy"]}},
    },
}


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


async def open_waiting(
    store: MemoryStore, name: str, replies: Sequence[Any] = (), **changes: Any
) -> tuple[Engine, dict[str, Any]]:
    """An engine whose conversation waits for a decision, and the row that the list has of it."""
    engine = make_engine(replies or [ask_for("a"), "done"], log=store, **{**APPROVAL, **changes})
    await engine.arun(f"hi from {name}", conversation=name)
    (row,) = [row for row in approvals.list_waiting(store)["waiting"] if row["conversation"] == name]
    return engine, row


async def test_calls_of_all_conversations_are_listed_with_what_led_there() -> None:
    """Each conversation that waits has a row: its calls with their arguments, and the last messages; one that
    is over has none. A token that may only read sees the same."""
    store = MemoryStore()
    await make_engine(["done"], log=store).arun("hi", conversation="over")
    await open_waiting(store, "first")
    engine, _ = await open_waiting(store, "second", [ask_for("b", "c"), "done"])
    async with open_client(make_site(engine), "viewer") as client:
        answer = (await client.get("/api/approvals")).json()
    first, second = answer["waiting"]
    assert (answer["is_complete"], answer["unreadable"]) == (True, [])
    assert [first["conversation"], second["conversation"]] == ["first", "second"]
    assert [call["arguments"]["text"] for call in second["calls"]] == ["b", "c"]
    assert [call["id"] for call in second["calls"]] == ["call_1_0_0", "call_1_0_1"]
    assert [(item["role"], item["content"]) for item in first["messages"]] == [
        *(("user", "hi from first"), ("assistant", ""))
    ]
    assert second["messages"][1]["tools"] == ["echo", "echo"]
    assert (first["due"], first["approvers"], first["root"]) == (None, [], "first")


async def test_the_number_of_what_waits() -> None:
    """With `count=true` the answer has the number of calls and questions, and the conversations to which they
    belong, and no more; pages show that number when they are loaded, once somebody has looked."""
    store = MemoryStore()
    await open_waiting(store, "first")
    engine, _ = await open_waiting(store, "second", [ask_for("b", "c"), "done"])
    await make_engine([], log=store, **INTERVIEW).arun("hi", conversation="third")
    async with open_client(make_site(engine)) as client:
        before = (await client.get("/tools")).text
        answer = (await client.get("/api/approvals", params={"count": "true"})).json()
        after = (await client.get("/tools")).text
        title = (await client.get("/approvals")).text
        (await client.get("/api/approvals", params={"count": "true"}, headers=bearer("anna"))).json()
        others = (await client.get("/tools", headers=bearer("anna"))).text
    assert answer == {"count": 4, "conversations": ["first", "second", "third"]}
    assert 'id="nav-waiting"></span>' in before
    assert 'id="nav-waiting">4</span>' in after
    assert "<title>(4) Approvals" in title
    assert 'id="nav-waiting"></span>' in others


async def test_deadline_and_escalation_are_those_of_the_chart() -> None:
    """A row says who may decide, until when, and to which state the timer leads; after it the row says that
    somebody else was asked, and still since when the call waits."""
    store, clock = MemoryStore(), TurnableClock()
    engine, row = await open_waiting(store, "c", **ESCALATING, clock=clock)
    begin = datetime.fromisoformat(clock.now())
    assert (row["approvers"], row["then"]) == (["clerk"], "escalated")
    assert datetime.fromisoformat(row["due"]) == begin + timedelta(minutes=10)
    clock.advance("11m")
    await engine.conversation("c").aresume()
    (row,) = approvals.list_waiting(store)["waiting"]
    assert (row["approvers"], row["then"], row["state"]) == (["manager", "deputy"], "executing", "escalated")
    assert [item["to"] for item in row["asked"]] == [["clerk"], ["manager", "deputy"]]
    assert datetime.fromisoformat(row["since"]) == begin
    assert datetime.fromisoformat(row["asked"][1]["at"]) > begin
    clock.advance("25h")
    await engine.conversation("c").aresume()
    assert approvals.list_waiting(store)["waiting"] == []


async def test_the_earliest_deadline_comes_first() -> None:
    """Calls with a deadline stand before those without one, whichever began first."""
    store = MemoryStore()
    await open_waiting(store, "calm")
    await open_waiting(store, "urgent", **ESCALATING)
    rows = approvals.list_waiting(store)["waiting"]
    assert [row["conversation"] for row in rows] == ["urgent", "calm"]


async def test_a_decided_call_leaves_the_list_and_says_who_decided() -> None:
    """A decision moves its call from the waiting ones to the decided ones, with name, reason, and whether the
    arguments were changed; a second decision about it is stale and is refused."""
    store = MemoryStore()
    engine, row = await open_waiting(store, "c", [ask_for("a", "b"), "done"])
    path = "/api/conversations/c/decisions"
    first, second = (call["id"] for call in row["calls"])
    async with open_client(make_site(engine), "decider") as client:
        body = {"call_id": first, "approved": False, "reason": "not on a Friday"}
        assert (await client.post(path, json=body)).status_code == 200
        (left,) = (await client.get("/api/approvals")).json()["waiting"]
        assert [call["id"] for call in left["calls"]] == [second]
        assert (await client.post(path, json={"call_id": first, "approved": True})).status_code == 409
        body = {"call_id": second, "approved": True, "arguments": {"text": "B"}}
        assert (await client.post(path, json=body)).status_code == 200
        assert (await client.get("/api/approvals")).json()["waiting"] == []
        rows = (await client.get("/api/approvals/decisions")).json()["decisions"]
    assert {(row["call_id"], row["approved"], row["reason"], row["is_changed"]) for row in rows} == {
        *((first, False, "not on a Friday", False), (second, True, None, True))
    }
    assert {(row["by"], row["is_signed"], row["tool"], row["conversation"]) for row in rows} == {
        ("decider", False, "echo", "c")
    }


async def test_a_call_of_a_chart_without_a_state_for_approvals_is_listed() -> None:
    """A chart that stays in its review while somebody decides has the call in the list, since its review."""
    _, row = await open_waiting(MemoryStore(), "c", chart="tool_loop")
    assert (row["state"], row["calls"][0]["tool"]) == ("awaiting_tools", "echo")
    assert row["since"] == row["asked"][0]["at"]


async def test_calls_of_sub_agents_are_listed_and_decided() -> None:
    """The call of a child stands under the child, with the conversation that it works for; a decision about
    it, made there, lets both go on."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    engine = make_engine(
        [ask_for("a"), "the child is done"],
        chart=make_parent_chart(),
        effects=effects,
        approval={"default": "ask"},
    )
    async with open_client(make_site(engine)) as client:
        await engine.arun("hi", conversation="parent")
        (row,) = (await client.get("/api/approvals")).json()["waiting"]
        assert (row["root"], row["conversation"].startswith("parent.")) == ("parent", True)
        body = {"call_id": row["calls"][0]["id"], "approved": True}
        answer = await client.post(f"/api/conversations/{row['conversation']}/decisions", json=body)
        assert (answer.status_code, answer.json()["content"]) == (200, "the child is done")
        assert (await client.get("/api/approvals")).json()["waiting"] == []


async def test_a_second_decision_hears_of_the_first() -> None:
    """A call that is decided is not decided again: the refusal says how, by whom and when, at the parent and
    at the sub-agent that asked, in Python and over HTTP; nothing is written. An unknown call is none."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    engine = make_engine(
        [ask_for("a"), "the child is done"],
        chart=make_parent_chart(),
        effects=effects,
        approval={"default": "ask"},
    )
    async with open_client(make_site(engine)) as client:
        await engine.arun("hi", conversation="parent")
        (row,) = (await client.get("/api/approvals")).json()["waiting"]
        call = row["calls"][0]["id"]
        await engine.conversation(row["conversation"]).aapprove(call, approved=False, by="anna")
        before = {name: list(engine.store.read_lines(name)) for name in engine.store.list_conversations()}
        for name in (row["conversation"], "parent"):
            with pytest.raises(AlreadyDecided) as caught:
                await engine.conversation(name).aapprove(call)
            error = caught.value
            assert (error.call_id, error.approved, error.by) == (call, False, "anna")
            assert f"is decided already: rejected by 'anna' at {error.at}" in str(error)
            with pytest.raises(IllegalEvent) as unknown:
                await engine.conversation(name).aapprove("nobody")
            assert not isinstance(unknown.value, AlreadyDecided)
            assert str(unknown.value).startswith("no call 'nobody' waits for a decision in conversation ")
            body = {"call_id": call, "approved": True}
            answer = await client.post(f"/api/conversations/{name}/decisions", json=body)
            assert (answer.status_code, "rejected by 'anna'" in answer.text) == (409, True), answer.text
    after = {name: list(engine.store.read_lines(name)) for name in engine.store.list_conversations()}
    assert after == before


async def test_a_fork_waits_since_it_was_made() -> None:
    """A fork of a conversation that waits asks anew, since its own first record."""
    store, clock = MemoryStore(), TurnableClock()
    engine, row = await open_waiting(store, "c", clock=clock)
    clock.advance("1h")
    await engine.conversation("c").afork(name="copy")
    rows = {row["conversation"]: row for row in approvals.list_waiting(store)["waiting"]}
    assert set(rows) == {"c", "copy"}
    assert rows["c"] == row
    waited = datetime.fromisoformat(rows["copy"]["since"]) - datetime.fromisoformat(row["since"])
    assert waited == timedelta(hours=1)


async def test_a_damaged_conversation_is_named_and_hides_no_other() -> None:
    """One that cannot be derived stands under `unreadable` with its problem; the others are listed."""
    store = MemoryStore()
    await open_waiting(store, "broken")
    line = list(store.read_lines("broken"))[1]
    store._lines["broken"][1] = line.replace(b"hi from broken", b"hi from a thief")
    engine, _ = await open_waiting(store, "whole")
    async with open_client(make_site(engine)) as client:
        answer = (await client.get("/api/approvals")).json()
        page = await client.get("/approvals")
    assert [row["conversation"] for row in answer["waiting"]] == ["whole"]
    (row,) = answer["unreadable"]
    assert (row["conversation"], "record 1" in row["problem"]) == ("broken", True)
    assert page.status_code == 200


async def test_the_list_says_when_it_has_not_looked_at_everything() -> None:
    """Beyond the newest conversations nothing is looked at, and the answer says so."""
    store = MemoryStore()
    await open_waiting(store, "old")
    await open_waiting(store, "new")
    answer = approvals.list_waiting(store, most=1)
    assert [row["conversation"] for row in answer["waiting"]] == ["new"]
    assert answer["is_complete"] is False


INTERVIEW: dict[str, Any] = {
    "chart": {
        "name": "interview",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_name",
                "after": {"2h": "error"},
                "transitions": [
                    {"event": "answered", "target": "finished"},
                    {"event": "failed", "target": "error"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "finished": {"final": True, "enter": "greet"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
    },
    "effects": {
        "ask_name": {
            "ask_person": {
                "question": "Who are you?",
                "as": "person",
                "form": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string", "minLength": 2}},
                },
            }
        },
        "greet": {"answer": "Hello {{person.name}}"},
    },
}


async def test_questions_of_charts_are_listed_and_answered() -> None:
    """A question stands beside the calls that wait: its form, since when, until when and what then. The
    answer takes it away and stands among what was decided, with its author; a wrong one changes nothing."""
    store = MemoryStore()
    engine = make_engine([], log=store, **INTERVIEW)
    await engine.arun("hi", conversation="c")
    path = "/api/conversations/c/answers"
    async with open_client(make_site(engine), "decider") as client:
        (row,) = (await client.get("/api/approvals")).json()["waiting"]
        (question,) = row["questions"]
        wrong = await client.post(path, json={"content": {"name": "A"}, "question": "ask_name"})
        assert len((await client.get("/api/approvals")).json()["waiting"]) == 1
        right = await client.post(path, json={"content": {"name": "Ada"}, "question": "ask_name"})
        assert (await client.get("/api/approvals")).json()["waiting"] == []
        (answer,) = (await client.get("/api/approvals/decisions")).json()["decisions"]
    assert (answer["by"], answer["is_signed"]) == ("decider", None)
    assert (row["calls"], row["state"], question["question"]) == ([], "asking", "Who are you?")
    assert (question["effect"], question["then"], row["then"]) == ("ask_name", "error", "error")
    waited = datetime.fromisoformat(row["due"]) - datetime.fromisoformat(row["since"])
    assert waited == timedelta(hours=2)
    assert question["form"]["properties"]["name"]["minLength"] == 2
    assert (wrong.status_code, right.status_code, right.json()["content"]) == (400, 200, "Hello Ada")
    assert (answer["tool"], answer["by"], answer["answer"]) == ("ask_name", "decider", {"name": "Ada"})
    assert answer["effect"] == question["id"]


async def test_a_fork_asks_its_question_since_it_was_made() -> None:
    """A fork of a conversation that waits for an answer has the question in the list too."""
    store, clock = MemoryStore(), TurnableClock()
    engine = make_engine([], log=store, clock=clock, **INTERVIEW)
    await engine.arun("hi", conversation="c")
    clock.advance("1h")
    await engine.conversation("c").afork(name="copy")
    rows = {row["conversation"]: row for row in approvals.list_waiting(store)["waiting"]}
    waited = datetime.fromisoformat(rows["copy"]["since"]) - datetime.fromisoformat(rows["c"]["since"])
    assert (set(rows), waited) == ({"c", "copy"}, timedelta(hours=1))
    assert rows["copy"]["questions"][0]["question"] == "Who are you?"


async def test_long_messages_are_cut() -> None:
    """A message has at most 1,000 characters in the list, and says that it was cut."""
    store = MemoryStore()
    engine = make_engine([ask_for("a")], log=store, **APPROVAL)
    await engine.arun("x" * 5000, conversation="c")
    (row,) = approvals.list_waiting(store)["waiting"]
    assert [(len(item["content"]), item["is_cut"]) for item in row["messages"]] == [(1000, True), (0, False)]


# -- reading no more than is new -------------------------------------------------------------------


class CountingStore(MemoryStore):
    """A store that counts what is read of it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        """The conversation of each read of records or checkpoints; the newest record alone does not count."""

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        self.reads.append(conversation)
        return super().read_lines(conversation, start)

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        self.reads.append(conversation)
        return super().read_checkpoints(conversation, newest)


def count_reads(store: CountingStore, act: Callable[[], Any]) -> int:
    """How often something reads."""
    store.reads.clear()
    act()
    return len(store.reads)


async def test_a_list_reads_what_is_new() -> None:
    """Issue 25: the first list reads as much of each conversation, however many there are; twenty requests at
    once read no more than one, and a later one reads only conversations with a new record. What is listed is
    always what a list without a memory says."""
    store = CountingStore()
    engines: dict[str, Engine] = {}
    for count in range(6):
        engines[f"c{count}"], _ = await open_waiting(store, f"c{count}")
    one = count_reads(store, lambda: approvals.list_waiting(store)) / 6
    cache = approvals.RowCache()
    with ThreadPoolExecutor(20) as pool:
        first = count_reads(
            store, lambda: list(pool.map(lambda _: approvals.list_waiting(store, cache), range(20)))
        )
    again = count_reads(store, lambda: approvals.list_waiting(store, cache))
    assert (first, again) == (6 * one, 0)
    await engines["c2"].conversation("c2").aresume(Decided(call_id="call_1_0_0", approved=True))
    await engines["c3"].conversation("c3").afork(name="copy")
    store.delete("c4")
    store.reads.clear()
    listed = approvals.list_waiting(store, cache)
    assert set(store.reads) <= {"c2", "copy", "c3"}  # a fork is derived from its parent
    assert listed == approvals.list_waiting(store)
    assert {row["conversation"] for row in listed["waiting"]} == {"c0", "c1", "c3", "c5", "copy"}


async def test_decisions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 25: the list of decisions reads a conversation again only when it has a new record. Of two
    decisions in the same millisecond, the one whose record came later is the newer one."""
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)
    store = CountingStore()
    engine, _ = await open_waiting(store, "c", [ask_for("a", "b"), "done"])
    await engine.conversation("c").aresume(Decided(call_id="call_1_0_0", approved=True, by="anna"))
    cache = approvals.RowCache()
    first = approvals.list_decisions(store, cache)
    assert count_reads(store, lambda: approvals.list_decisions(store, cache)) == 0
    await engine.conversation("c").aresume(Decided(call_id="call_1_0_1", approved=False, by="bob"))
    second = approvals.list_decisions(store, cache)
    assert [[row["by"] for row in rows] for rows in (first, second)] == [["anna"], ["bob", "anna"]]


async def test_a_request_uses_what_earlier_ones_read() -> None:
    """The lists of the server keep what they have read from one request to the next."""
    store = CountingStore()
    engine, _ = await open_waiting(store, "c")
    async with open_client(make_site(engine), "viewer") as client:
        first = (await client.get("/api/approvals")).json()
        (await client.get("/api/approvals/decisions")).json()
        store.reads.clear()
        second = (await client.get("/api/approvals")).json()
        await client.get("/api/approvals/decisions")
    assert first == second
    assert store.reads == []
