"""Sub-agents: children with logs of their own, run once, in the order of the items."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from child_agents import (
    ONE_CALL,
    FunctionModel,
    make_engine,
    make_parent_chart,
    make_spec,
    refuse,
    repeat_words,
)
from hostile_logs import chain_conversations

from toolchart.engine import Engine
from toolchart.engine.log.family import iterate_family
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_store
from toolchart.states.errors import IllegalEvent, LogDamaged, LogUnavailable, SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import InboxEntry, RecordBatch, Store
from toolchart.testing.clock import TurnableClock

PUBLISH = {"answer": "{{outcome}}"}


def check_family(store: Store, root: str) -> list[str]:
    """Verify and replay a conversation and its children; their names."""
    assert not [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)]
    names = [name for _, name in iterate_family(store, root)]
    for name in names:
        assert list(replay_conversation(store, name))
    return names


def make_fan_out(items: list[str] | None, parallel: int = 2, **changes: Any) -> dict[str, Any]:
    """A spec that plans a list and has one child for each item."""
    effects = {
        "work": {
            "run_agent": {
                "chart": ONE_CALL,
                "for_each": "items",
                "at_most": 10,
                "parallel": parallel,
                "message": "do {{item}}",
                "as": "outcome",
            }
        },
        "publish": PUBLISH,
    }
    return make_spec(make_parent_chart(), effects, **changes)


def test_one_child_answers() -> None:
    """A child is a conversation of its own; its answer is the result, and its usage counts once."""
    effects = {"work": {"run_agent": {"chart": ONE_CALL, "as": "outcome"}}, "publish": PUBLISH}
    model = FunctionModel(repeat_words)
    with make_engine(make_spec(make_parent_chart(), effects), model) as engine:
        result = engine.run("hello", conversation="c")
        assert result.content == "HELLO"
        assert result.usage.total == 10
        assert list(engine.store.list_conversations()) == ["c", "c.1"]
        child = load_conversation(engine.store, "c.1")
        assert child is not None
        assert child.snapshot.answer == "HELLO"
        assert child.configured.parent is not None
        assert child.configured.parent.conversation == "c"
        check_family(engine.store, "c")


def test_results_come_in_the_order_of_the_items() -> None:
    """At most `parallel` children run at once, and one that fails is data."""
    model = FunctionModel(lambda said, request: refuse() if said == "do b" else said.upper())
    with make_engine(make_fan_out(None), model) as engine:
        result = engine.run("go", conversation="c", variables={"items": ["a", "b", "c", "d"]})
        entries = result.results["outcome"]["items"]
        assert [entry.get("content") for entry in entries] == ["DO A", None, "DO C", "DO D"]
        assert entries[1]["error_kind"] == "not_found"
        assert model.most == 2
        check_family(engine.store, "c")


def test_an_empty_list_is_answered_at_once() -> None:
    """Without items no child is begun, and one event answers."""
    model = FunctionModel(repeat_words)
    with make_engine(make_fan_out(None), model) as engine:
        result = engine.run("go", conversation="c", variables={"items": []})
        assert result.results["outcome"] == {"items": []}
        assert list(engine.store.list_conversations()) == ["c"]


# -- handoff ---------------------------------------------------------------------------------------

INTERVIEW = {
    "name": "interview",
    "states": {
        "asking": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "leaving", "cond": "finish_reason == 'length'"},
                {"event": "replied", "target": "listening"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "listening": {
            "enter": "await_user",
            "transitions": [
                {"event": "user_said", "target": "asking"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "leaving": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A specialist that talks with the user until a reply is cut at its limit."""

HANDOFF = {
    "name": "triage",
    "states": {
        "choosing": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "handing_over", "cond": "finish_reason == 'tool_calls'"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "handing_over": {
            "enter": "hand_over",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
}
"""A chart that hands the conversation over to a specialist where its model calls a tool."""

TRANSFER = ToolCall(id="t", name="transfer", arguments={})


def make_handoff() -> dict[str, Any]:
    """A spec of a front desk that hands over to a specialist."""
    return make_spec(HANDOFF, {"hand_over": {"run_agent": {"chart": INTERVIEW, "history": "all"}}})


def talk(said: str, request: Request) -> str | Reply:
    """The front desk hands over what names a problem; the specialist leaves where it is thanked."""
    is_specialist = any("(specialist)" in (message.content or "") for message in request.messages)
    if "problem" in said and not is_specialist and request.messages[-1].role == "user":
        if said in talk.__dict__.setdefault("transferred", set()):
            return f"(specialist) {said}?"
        talk.__dict__["transferred"].add(said)
        return Reply(content="One moment.", finish_reason="tool_calls", tool_calls=(TRANSFER,))
    if "thanks" in said:
        return Reply(content=f"(specialist) bye {said}", finish_reason="length")
    return f"(specialist) {said}!" if is_specialist else f"(desk) {said}"


def list_texts(store: Store, name: str) -> list[tuple[str, str]]:
    """Role and text of the messages of users and agents."""
    loaded = load_conversation(store, name)
    assert loaded is not None
    texts = [(message.role, message.content or "") for message in loaded.snapshot.messages]
    return [(role, text) for role, text in texts if role in ("user", "assistant")]


def test_a_handoff_spans_turns_and_loses_and_repeats_nothing() -> None:
    """The specialist has the conversation until it leaves; both logs together say what was said, once."""
    talk.__dict__.clear()
    said = ["problem 1", "more", "and more", "thanks", "hello again"]
    model = FunctionModel(talk)
    with make_engine(make_handoff(), model) as engine:
        answers = [engine.run(text, conversation="c").content for text in said]
        assert answers == [
            "(specialist) problem 1?",
            "(specialist) more!",
            "(specialist) and more!",
            "(specialist) bye thanks",
            "(specialist) hello again!",
        ]
        check_family(engine.store, "c")
        spoken = [("user", said[0]), ("assistant", "One moment."), ("assistant", answers[0])]
        for text, answer in zip(said[1:], answers[1:], strict=True):
            spoken += [("user", text), ("assistant", answer)]
        assert list_texts(engine.store, "c") == spoken
        assert list_texts(engine.store, "c.2") == [part for part in spoken[:9] if part[1] != "One moment."]


def test_a_handoff_goes_on_in_another_process(tmp_path: Path) -> None:
    """Every turn may run in another engine, from the log alone."""
    talk.__dict__.clear()
    log = str(tmp_path / "log.db")
    answers = []
    for text in ["problem 1", "more", "thanks"]:
        with make_engine(make_handoff(), FunctionModel(talk), log) as engine:
            answers.append(engine.run(text, conversation="c").content)
            check_family(engine.store, "c")
    assert answers == ["(specialist) problem 1?", "(specialist) more!", "(specialist) bye thanks"]


def test_a_child_is_spoken_to_through_its_parent() -> None:
    """A turn or a resumption of a child itself is refused, or goes to its root."""
    talk.__dict__.clear()
    with make_engine(make_handoff(), FunctionModel(talk)) as engine:
        engine.run("problem", conversation="c")
        with pytest.raises(SpecError, match="child of 'c'"):
            engine.run("more", conversation="c.2")
        assert engine.conversation("c.2").resume().conversation == "c"


# -- budgets and depth -----------------------------------------------------------------------------


def test_budgets_are_shared_and_narrowed() -> None:
    """A child gets its share of what is left of the parent's budgets, where its own limit is not smaller."""
    spec = make_fan_out(None, parallel=1, limits={"max_tokens": 1000, "max_seconds": 60})
    spec["chart"]["states"]["working"]["transitions"].insert(
        0, {"event": "agent_finished", "target": "error", "cond": "budget_spent"}
    )
    with make_engine(spec, FunctionModel(repeat_words)) as engine:
        result = engine.run("go", conversation="c", variables={"items": ["a", "b", "c", "d"]})
        assert result.usage.total == 40
        child = load_conversation(engine.store, "c.1.2")
        assert child is not None
        assert child.snapshot.settings is not None
        assert child.snapshot.settings.limits.max_tokens == 250
        assert child.snapshot.settings.limits.max_seconds == pytest.approx(60, abs=5)


def nest_agents(depth: int) -> dict[str, Any]:
    """A spec whose agents run each other so deep; each says `outcome` of the one below."""
    chart: dict[str, Any] = ONE_CALL
    for _ in range(depth):
        effects = {"work": {"run_agent": {"chart": chart, "as": "outcome"}}, "publish": PUBLISH}
        chart = {**make_parent_chart(), "effects": effects}
    return make_spec(chart, {})


def test_children_nest() -> None:
    """Depth 3: every level has a log of its own, and usage counts once on each."""
    with make_engine(nest_agents(3), FunctionModel(repeat_words)) as engine:
        result = engine.run("deep", conversation="c")
        assert result.content == "DEEP"
        assert result.usage.total == 10
        assert check_family(engine.store, "c") == ["c", "c.1", "c.1.1", "c.1.1.1"]


def test_agents_that_nest_too_deep_are_refused(tmp_path: Path) -> None:
    """More than eight levels, or an agent that runs itself, are an error at load."""
    for level in range(10):
        effects = {"work": {"run_agent": {"spec": f"{level - 1}.yaml", "as": "outcome"}}, "publish": PUBLISH}
        spec = make_spec(make_parent_chart(), effects) if level else make_spec(ONE_CALL, {})
        (tmp_path / f"{level}.yaml").write_text(json.dumps(spec))
    Engine(tmp_path / "8.yaml", log=MemoryStore()).close()
    with pytest.raises(SpecError, match="more than 8 deep") as caught:
        Engine(tmp_path / "9.yaml", log=MemoryStore())
    assert caught.value.file == str(tmp_path / "1.yaml")
    effects = {"work": {"run_agent": {"spec": "self.yaml", "as": "outcome"}}, "publish": PUBLISH}
    (tmp_path / "self.yaml").write_text(json.dumps(make_spec(make_parent_chart(), effects)))
    with pytest.raises(SpecError, match="more than 8 deep"):
        Engine(tmp_path / "self.yaml", log=MemoryStore())


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ({"handler": "nobody"}, "no handler 'nobody'"),
        ({"spec": "no_such_agent.yaml"}, "no such file"),
        ({"chart": "no_such_chart"}, "no chart 'no_such_chart'"),
        ({"chart": {"name": "x", "states": {"a": {"initial": True, "enter": "call_modle"}}}}, "call_modle"),
    ],
)
def test_agents_that_do_not_exist_are_refused(agent: dict[str, Any], text: str, tmp_path: Path) -> None:
    """An unknown handler, spec or chart is an error at load, with the place of the effect."""
    effects = {"work": {"run_agent": {**agent, "as": "outcome"}}, "publish": PUBLISH}
    path = tmp_path / "agent.yaml"
    path.write_text(json.dumps(make_spec(make_parent_chart(), effects), indent=1))
    with pytest.raises(SpecError, match=text) as caught:
        Engine(path, log=MemoryStore())
    assert caught.value.file == str(path)
    assert caught.value.line is not None
    assert caught.value.path == f"effects.work.run_agent.{next(iter(agent))}"


# -- cancellation ----------------------------------------------------------------------------------


def test_leaving_the_state_cancels_the_children() -> None:
    """Children that run and children that rest are cancelled in their own logs; what they used counts."""
    asyncio.run(_leave_the_state())


async def _leave_the_state() -> None:
    stuck = asyncio.Event()
    spec = make_fan_out(None, parallel=3)
    spec["chart"]["states"]["working"]["transitions"].insert(
        0, {"event": "agent_finished", "target": "finished", "cond": "outcome.count >= 1"}
    )
    model = FunctionModel(lambda said, request: "fast" if said == "do b" else stuck)
    engine = make_engine(spec, model)
    async with engine:
        result = await engine.arun("go", conversation="c", variables={"items": ["a", "b", "c", "d"]})
        assert result.is_over
        assert result.usage.total == 10
        assert model.running == 0
        for name, state in (("c.1.0", "error"), ("c.1.1", "finished"), ("c.1.2", "error")):
            child = load_conversation(engine.store, name)
            assert child is not None
            assert child.snapshot.state == state
        check_family(engine.store, "c")
        records = list(read_conversation(engine.store, "c"))
        late = [record.event["conversation"] for record in records if record.is_late]
        assert "c.1.0" in late
        assert "c.1.2" in late


def test_a_cancelled_turn_cancels_its_children() -> None:
    """Where the parent's chart takes `cancelled`, its children get it; else they are suspended with it."""
    asyncio.run(_cancel_turns())


async def _cancel_turns() -> None:
    for takes_it in (True, False):
        stuck = asyncio.Event()
        spec = make_fan_out(None, parallel=2)
        if not takes_it:
            spec["chart"]["states"]["working"]["transitions"].pop()
        model = FunctionModel(lambda said, request, stuck=stuck: stuck)
        engine = make_engine(spec, model)
        async with engine:
            turn = asyncio.ensure_future(
                engine.arun("go", conversation="c", variables={"items": ["a", "b", "c"]})
            )
            await model.wait_for_requests(2)
            await engine.conversation("c").acancel("enough")
            result = await turn
            assert result.is_over is takes_it
            child = load_conversation(engine.store, "c.1.0")
            assert child is not None
            assert child.snapshot.is_over is takes_it
            check_family(engine.store, "c")
            if not takes_it:
                stuck.set()
                result = await engine.conversation("c").aresume()
                entries = result.results["outcome"]["items"]
                assert [entry["content"] for entry in entries] == ["done", "done", "done"]
                assert list(engine.store.list_conversations()) == ["c", "c.1.0", "c.1.1", "c.1.2"]
                check_family(engine.store, "c")


def test_interrupting_the_program_cancels_children() -> None:
    """Ctrl-C: the task of the turn is cancelled, and the chart of the parent takes it."""
    asyncio.run(_interrupt_turn())


async def _interrupt_turn() -> None:
    stuck = asyncio.Event()
    model = FunctionModel(lambda said, request: stuck)
    async with make_engine(make_fan_out(None), model) as engine:
        turn = asyncio.ensure_future(
            engine.arun("go", conversation="c", variables={"items": ["a", "b", "c"]})
        )
        await model.wait_for_requests(2)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        for name in ("c", "c.1.0", "c.1.1"):
            loaded = load_conversation(engine.store, name)
            assert loaded is not None
            assert loaded.snapshot.is_over
        assert check_family(engine.store, "c") == ["c", "c.1.0", "c.1.1"]


# -- tampering -------------------------------------------------------------------------------------


def run_family(items: list[str]) -> MemoryStore:
    """A log with a parent `c` and one child for each item."""
    store = MemoryStore()
    with make_engine(make_fan_out(None), FunctionModel(repeat_words), store) as engine:
        engine.run("go", conversation="c", variables={"items": items})
        engine.run("go", conversation="d", variables={"items": items})
    return store


def copy_store(store: MemoryStore, **changes: list[bytes] | None) -> MemoryStore:
    """A copy of a log; None leaves a conversation out. Points in names are written `_`."""
    copy = MemoryStore()
    for name in store.list_conversations():
        lines = changes.get(name.replace(".", "_"), list(store.read_lines(name)))
        if lines:
            copy.append(name, 0, lines)
    return copy


def list_damages(store: MemoryStore) -> dict[str, str]:
    """What `verify` finds, by conversation."""
    damages = [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)]
    return {str(damage.conversation): str(damage) for damage in damages}


def test_a_missing_changed_or_foreign_child_is_found() -> None:
    """Parent and child hold each other's hashes: neither can be removed, rewritten or exchanged alone."""
    store = run_family(["a", "b"])
    assert not list_damages(store)
    assert "is missing" in list_damages(copy_store(store, c_1_0=None))["c"]
    lines = list(store.read_lines("c.1.0"))
    cut = list_damages(copy_store(store, c_1_0=lines[:-1]))
    assert "was changed" in cut["c"]
    rewritten = rewrite_lines(lines, b'"DO A"', b'"DO Z"')
    assert list(list_damages(copy_store(store, c_1_0=rewritten))) == ["c"]
    foreign = rewrite_lines(
        list(store.read_lines("d.1.0")), b'"conversation":"d.1.0"', b'"conversation":"c.1.0"'
    )
    found = list_damages(copy_store(store, c_1_0=foreign))
    assert "belongs to another conversation" in found["c"]
    parent = rewrite_lines(list(store.read_lines("c")), b'"do a"', b'"do z"')
    assert "asked for it is missing or changed" in list_damages(copy_store(store, c=parent))["c.1.0"]


def rewrite_lines(lines: list[bytes], old: bytes, new: bytes) -> list[bytes]:
    """The lines with a text replaced and the whole chain computed again, as a forger would."""
    assert any(old in line for line in lines)
    rows = [json.loads(line.replace(old, new)) for line in lines]
    return chain_conversations({"c": rows}, is_strict=False)["c"]


# -- approvals -------------------------------------------------------------------------------------


def make_approval() -> dict[str, Any]:
    """A spec whose children call a tool that needs an approval."""
    spec = make_fan_out(
        None, parallel=1, tools={"enabled": True, "apply_globally": True}, approval={"default": "ask"}
    )
    spec["effects"]["work"]["run_agent"]["chart"] = "tool_loop"
    return spec


def call_once(said: str, request: Request) -> str | Reply:
    """A reply that calls the tool with the user's words; then the words of its result."""
    if request.messages[-1].role == "tool":
        return str(request.messages[-1].content)
    call = ToolCall(id="call", name="note", arguments={"text": said})
    return Reply(finish_reason="tool_calls", tool_calls=(call,))


def test_approvals_of_children_are_shown_and_decided_through_the_parent() -> None:
    """A waiting child holds nobody up; its call is named with it and decided from the parent."""
    notes: list[str] = []

    def note(text: str) -> str:
        """Write a note."""
        notes.append(text)
        return f"noted {text}"

    spec = make_approval()
    with make_engine(spec, FunctionModel(call_once), functions=[note]) as engine:
        result = engine.run("go", conversation="c", variables={"items": ["a", "b"]})
        assert not result.is_over
        assert [call["conversation"] for call in result.pending_approvals] == ["c.1.0", "c.1.1"]
        decision = Decided(call_id="call", approved=True)
        with pytest.raises(SpecError, match="2 children"):
            engine.conversation("c").resume(decision)
        with pytest.raises(IllegalEvent):
            engine.conversation("c").resume(Decided(call_id="other", approved=True))
        result = engine.conversation("c.1.1").resume(decision)
        assert result.conversation == "c"
        assert [call["conversation"] for call in result.pending_approvals] == ["c.1.0"]
        result = engine.conversation("c").resume(decision)
        assert result.is_over
        assert notes == ["do b", "do a"]
        assert not result.pending_approvals
        assert check_family(engine.store, "c") == ["c", "c.1.0", "c.1.1"]


async def test_a_decision_reaches_a_child_in_another_worker() -> None:
    """A decision on a child's call, given to another worker than the one that runs the parent, becomes one
    event of the child there."""
    store, notes, asked = MemoryStore(), [], asyncio.Event()

    def note(text: str) -> str:
        """Write a note."""
        notes.append(text)
        return f"noted {text}"

    async def wait_for_ever(call: ToolCall) -> Decided | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    spec = make_approval()
    holder = make_engine(spec, FunctionModel(call_once), store, functions=[note], approver=wait_for_ever)
    other = make_engine(spec, FunctionModel(call_once), store, functions=[note])
    turn = asyncio.ensure_future(holder.arun("go", conversation="c", variables={"items": ["a"]}))
    await asked.wait()
    await other.conversation("c.1.0").aresume(Decided(call_id="call", approved=True))
    assert (await turn).is_over
    assert notes == ["do a"]
    assert sum(b'"type":"decided"' in line for line in store.read_lines("c.1.0")) == 1
    assert check_family(store, "c") == ["c", "c.1.0"]
    await holder.aclose()
    await other.aclose()


class AwayStore(MemoryStore):
    """Refuses appends from the moment in which somebody has read entries of an inbox, until it is mended."""

    is_mended = is_away = False

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries."""
        entries = super().read_inbox(conversations)
        self.is_away = self.is_away or bool(entries)
        return entries

    def append_many(self, batches: Sequence[RecordBatch], *, wait: bool = True) -> Any:
        """Append, or refuse."""
        if self.is_away and not self.is_mended:
            raise LogUnavailable("the server is being started")
        return super().append_many(batches, wait=wait)


async def test_a_decision_for_a_child_outlives_a_log_that_fails() -> None:
    """Where the log fails while a decision from the inbox is taken for a child, the decision stays there, and
    is taken when the conversation goes on; nothing else of the child is recorded in its place."""
    store, notes = AwayStore(), list[str]()

    def note(text: str) -> str:
        """Write a note."""
        notes.append(text)
        return f"noted {text}"

    async def leave_open(call: ToolCall) -> Decided | None:
        return None

    model = FunctionModel(call_once)
    async with make_engine(make_approval(), model, store, functions=[note], approver=leave_open) as engine:
        await engine.arun("go", conversation="c", variables={"items": ["a"]})
        await engine.conversation("c.1.0").apost(Decided(call_id="call", approved=True))
        with pytest.raises(LogUnavailable):
            await engine.conversation("c").acontinue()
        store.is_mended = True
        await engine.conversation("c").acontinue()
        assert (engine.conversation("c").read_turn().is_over, notes) == (True, ["do a"])
        assert not store.read_inbox(["c"])
        assert check_family(store, "c") == ["c", "c.1.0"]


# -- forks -----------------------------------------------------------------------------------------


def test_a_fork_takes_the_recorded_answers_of_children() -> None:
    """A fork before the children runs none again; offline it needs nothing; the fork verifies."""
    model = FunctionModel(repeat_words)
    with make_engine(make_fan_out(None), model) as engine:
        engine.run("go", conversation="c", variables={"items": ["a", "b"]})
        asked = len(model.asked)
        for name, from_log in (("f", False), ("g", True)):
            fork = engine.conversation("c").fork(at=1, name=name, from_log=from_log)
            assert fork.stopped is None
            assert fork.result is not None
            assert [entry["content"] for entry in fork.result.results["outcome"]["items"]] == ["DO A", "DO B"]
        assert len(model.asked) == asked
        assert list(engine.store.list_conversations()) == ["c", "c.1.0", "c.1.1", "f", "g"]
        check_family(engine.store, "f")
        again = engine.conversation("c").fork(at=1, name="h", run_tools=True)
        assert again.result is not None
        assert len(model.asked) == asked + 2
        assert len(check_family(engine.store, "h")) == 3


def test_a_fork_while_a_child_talks_with_the_user_is_refused() -> None:
    """Children cannot be forked: the error says at which records a fork is possible."""
    talk.__dict__.clear()
    with make_engine(make_handoff(), FunctionModel(talk)) as engine:
        engine.run("problem", conversation="c")
        with pytest.raises(SpecError, match="children cannot be forked"):
            engine.conversation("c").fork(name="f")


# -- questions and deadlines -----------------------------------------------------------------------

ASKING = {
    "name": "asking",
    "states": {
        "asking": {
            "initial": True,
            "enter": "ask_size",
            "transitions": [
                {"event": "answered", "target": "finished"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "report"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {
        "ask_size": {"ask_person": {"question": "How big is {{user_message}}?", "as": "size"}},
        "report": {"answer": "{{user_message}}: {{size.content}}"},
    },
}
"""A child that asks a person."""


def test_questions_of_children_are_answered_through_the_parent() -> None:
    """The result names the child that asks; the answer of a person reaches it from the parent."""
    spec = make_fan_out(None)
    spec["effects"]["work"]["run_agent"]["chart"] = ASKING
    with make_engine(spec, FunctionModel(repeat_words)) as engine:
        result = engine.run("go", conversation="c", variables={"items": ["a", "b"]})
        assert [question["conversation"] for question in result.questions] == ["c.1.0", "c.1.1"]
        with pytest.raises(SpecError, match="2 children"):
            engine.conversation("c").answer({"content": "small"})
        answered = engine.conversation("c.1.1").answer({"content": "big"})
        assert answered is not None
        assert [question["conversation"] for question in answered.questions] == ["c.1.0"]
        answered = engine.conversation("c").answer({"content": "small"})
        assert answered is not None
        entries = answered.results["outcome"]["items"]
        assert [entry["content"] for entry in entries] == ["do a: small", "do b: big"]
        assert len(check_family(engine.store, "c")) == 3


def test_a_deadline_of_a_resting_child_comes_before_a_later_message() -> None:
    """A specialist whose time is up has left: the front desk goes on, and the message is not lost."""
    talk.__dict__.clear()
    interview = json.loads(json.dumps(INTERVIEW))
    interview["states"]["listening"]["after"] = {"1h": "leaving"}
    clock = TurnableClock()
    spec = make_spec(HANDOFF, {"hand_over": {"run_agent": {"chart": interview, "history": "all"}}})
    with make_engine(spec, FunctionModel(talk), clock=clock) as engine:
        engine.run("problem", conversation="c")
        clock.advance(1800)
        assert engine.run("more", conversation="c").content == "(specialist) more!"
        clock.advance(7200)
        result = engine.run("too late", conversation="c")
        assert result.is_over
        assert not result.awaits_user
        assert ("user", "too late") in list_texts(engine.store, "c")
        assert ("user", "too late") not in list_texts(engine.store, "c.2")
        check_family(engine.store, "c")


def test_a_decision_reaches_a_grandchild() -> None:
    """A call that waits two levels down is shown at the top, and decided from there."""
    notes: list[str] = []

    def note(text: str) -> str:
        """Write a note."""
        notes.append(text)
        return f"noted {text}"

    spec = make_approval()
    grandchild = {"work": {"run_agent": {"chart": "tool_loop", "as": "outcome"}}, "publish": PUBLISH}
    spec["effects"]["work"]["run_agent"]["chart"] = {**make_parent_chart(), "effects": grandchild}
    with make_engine(spec, FunctionModel(call_once), functions=[note]) as engine:
        result = engine.run("go", conversation="c", variables={"items": ["a", "b"]})
        assert [call["conversation"] for call in result.pending_approvals] == ["c.1.0.1", "c.1.1.1"]
        result = engine.conversation("c.1.1.1").resume(Decided(call_id="call", approved=True))
        assert [call["conversation"] for call in result.pending_approvals] == ["c.1.0.1"]
        assert engine.conversation("c").resume(Decided(call_id="call", approved=True)).is_over
        assert notes == ["do b", "do a"]
        assert len(check_family(engine.store, "c")) == 5
