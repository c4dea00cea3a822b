"""Agents behind tools: a call of the model runs another handler of the spec as a child conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from child_agents import FunctionModel
from paying_agent import wait_until

from toolchart.engine import Engine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_store
from toolchart.specs.loader import load_spec
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import Reply, ToolCall, Usage
from toolchart.states.ports import Store
from toolchart.states.proofs.check import check
from toolchart.testing import ScriptedModel, call_tool
from toolchart.tools.data_flow import describe_agent_chart

ASK = call_tool("research", message="what?")
USAGE = {"input": 30, "output": 12}
CALL_OTHER = Reply(
    tool_calls=(ToolCall(id="1", name="other", arguments={}),),
    finish_reason="tool_calls",
    usage=Usage(input=30, output=12),
)


def make_hanging(*replies: Reply) -> FunctionModel:
    """A model that gives these replies and then none."""
    rest = iter(replies)
    return FunctionModel(lambda said, request: next(rest, None) or asyncio.Event())


def build_spec(entry: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A spec of two handlers: `boss` may call `researcher` as the tool `research`."""
    implementation = {"type": "agent", "handler": "researcher"}
    registry = [{"name": "research", "implementation": implementation, **(entry or {})}]
    return {
        "llms": {name: {"provider": "scripted", "model": "m"} for name in ("boss", "researcher")},
        "tools": {"registry": registry},
        "responses": [
            {"name": "boss", "llm": "boss", "tools": {"enabled": True, "allowed_tools": ["research"]}},
            {"name": "researcher", "llm": "researcher", "prompt": "Look it up."},
        ],
        **changes,
    }


def open_engine(
    boss: ScriptedModel,
    researcher: ScriptedModel | FunctionModel,
    spec: dict[str, Any] | None = None,
    **options: Any,
) -> Engine:
    """An engine of the spec on a log in memory, or on a given one."""
    providers = {"boss": boss, "researcher": researcher}
    return Engine(spec or build_spec(), providers=providers, **{"log": "memory", **options})


def list_events(store: Store, name: str, type_: str) -> list[dict[str, Any]]:
    """The events of a type in a conversation."""
    events = [orjson.loads(line)["event"] for line in store.read_lines(name)]
    return [event for event in events if event["type"] == type_]


def require_whole(store: Store) -> None:
    """Every conversation verifies and replays."""
    assert not [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)]
    assert all(list(replay_conversation(store, name)) for name in store.list_conversations())


def test_a_call_runs_an_agent_as_a_child() -> None:
    """Issue 52: the child is a conversation of the parent; its answer is the result of the call, and what it
    used counts in the parent. A change of its log is found from the log of the parent."""
    boss = ScriptedModel({**ASK, "usage": USAGE}, "done")
    researcher = ScriptedModel({"content": "found", "usage": USAGE})
    with open_engine(boss, researcher) as engine:
        turn = engine.run("go", conversation="c")
        store = engine.store
        assert (turn.content, turn.tool_calls[0].value) == ("done", "found")
        assert [child.id for child in engine.conversation("c").children] == ["c.3.0"]
        assert [message.content for message in researcher.requests[0].messages] == ["Look it up.", "what?"]
        assert turn.usage.input == 60
        (finished,) = list_events(store, "c", "tool_finished")
        assert (finished["conversation"], finished["usage"]["input"]) == ("c.3.0", 30)
        require_whole(store)
        alone = MemoryStore()
        alone.append("c", 0, list(store.read_lines("c")))
        problems = [str(outcome) for outcome in verify_store(alone) if isinstance(outcome, LogDamaged)]
    assert any("its child 'c.3.0' is missing" in problem for problem in problems)


def test_several_calls_run_agents_beside_other_tools() -> None:
    """Issue 52: each call has its own child, named by its place in the reply; a tool has none."""

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    calls = [("research", {"message": "one"}), ("add", {"a": 1, "b": 2}), ("research", {"message": "two"})]
    reply = {"tool_calls": [{"name": name, "arguments": values} for name, values in calls]}
    boss = ScriptedModel(reply, "done")
    spec = build_spec()
    spec["responses"][0]["tools"]["allowed_tools"] = []
    with open_engine(boss, ScriptedModel("first", "second"), spec, functions=[add]) as engine:
        turn = engine.run("go", conversation="c")
        children = [child.id for child in engine.conversation("c").children]
        require_whole(engine.store)
    assert sorted(str(call.value) for call in turn.tool_calls) == ["3", "first", "second"]
    assert children == ["c.3.0", "c.3.2"]


def test_an_agent_behind_a_tool_may_wait_for_a_person(tmp_path: Path) -> None:
    """Issue 52: an approval of a call of the child is asked for with the parent, and decided there, by
    another process too; then both go on, and the child does nothing twice."""
    runs: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        runs.append(amount)
        return "paid"

    spec = build_spec(approval=[{"tools": "pay", "decision": "ask"}])
    spec["responses"][1]["tools"] = {"enabled": True, "allowed_tools": ["pay"]}
    log = str(tmp_path / "log.db")
    researcher = ScriptedModel(call_tool("pay", amount=3), "found")
    with open_engine(ScriptedModel(ASK), researcher, spec, functions=[pay], log=log) as engine:
        turn = engine.run("go", conversation="c")
        assert [(call.tool, call.conversation) for call in turn.pending_approvals] == [("pay", "c.3.0")]
        assert [call.tool for call in turn.waiting_calls] == ["research"]
        assert not turn.is_over
    boss = ScriptedModel("done")
    with open_engine(boss, ScriptedModel("found"), spec, functions=[pay], log=log) as engine:
        turn = engine.conversation("c").approve(by="ada")
        assert (turn.content, turn.tool_calls[0].value, runs) == ("done", "found", [3])
        require_whole(engine.store)
        events = [event["by"] for event in list_events(engine.store, "c.3.0", "decided")]
    assert events == ["ada"]


async def test_a_turn_that_is_given_up_goes_on_with_the_same_child() -> None:
    """Issue 52: whoever goes on finds the child that the call has begun, and does not begin another."""
    store = open_store("memory")
    researcher = make_hanging()
    engine = open_engine(ScriptedModel(ASK), researcher, log=store)
    turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
    await wait_until(lambda: bool(researcher.requests))
    await engine.astop(0)
    assert not (await turn).is_over
    await engine.aclose()
    async with open_engine(ScriptedModel("done"), ScriptedModel("found"), log=store) as other:
        result = await other.conversation("c").aresume()
    assert (result.content, result.tool_calls[0].value) == ("done", "found")
    assert sorted(store.list_conversations()) == ["c", "c.3.0"]
    assert len(list_events(store, "c.3.0", "turn_started")) == 1
    require_whole(store)


async def test_a_cancelled_turn_cancels_the_agents_behind_its_tools() -> None:
    """Issue 52: the log of the child says that it was cancelled, and that of the parent what it used."""
    researcher = make_hanging(CALL_OTHER)
    async with open_engine(ScriptedModel(ASK), researcher) as engine:
        turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
        await wait_until(lambda: len(researcher.requests) == 2)
        await engine.conversation("c").acancel("enough")
        assert (await turn).error is not None
        assert len(list_events(engine.store, "c.3.0", "cancelled")) == 1
        (late,) = list_events(engine.store, "c", "agent_failed")
        assert (late["kind"], late["usage"]["input"]) == ("cancelled", 30)
        assert engine.conversation("c").read_turn().usage.input == 30
        require_whole(engine.store)


def test_an_agent_that_takes_too_long_is_cancelled() -> None:
    """Issue 52: the call fails at its time, the model hears so, and the child does not run on."""
    spec = build_spec({"timeout_ms": 300})
    with open_engine(ScriptedModel(ASK, "done"), make_hanging(CALL_OTHER), spec) as engine:
        turn = engine.run("go", conversation="c")
        assert (turn.content, turn.tool_calls[0].outcome) == ("done", "timed_out")
        assert len(list_events(engine.store, "c.3.0", "cancelled")) == 1
        (finished,) = list_events(engine.store, "c", "tool_finished")
        assert (finished["conversation"], finished["usage"]["input"]) == ("c.3.0", 30)
        require_whole(engine.store)


WAITING_CHART = {
    "name": "asking",
    "states": {
        "asking": {
            "initial": True,
            "enter": "await_user",
            "transitions": [
                {"event": "user_said", "target": "finished"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "say_bye"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {"say_bye": {"answer": "bye"}},
}


@pytest.mark.parametrize(
    ("reply", "chart", "says"),
    [
        ({"fail": {"kind": "bad_request", "message": "no such model"}}, None, "the agent failed"),
        ("found", WAITING_CHART, "waits for the user's next message"),
    ],
)
def test_an_agent_that_gives_no_answer_fails_its_call(reply: Any, chart: Any, says: str) -> None:
    """Issue 52: the model reads why, and its turn goes on; nothing of the child stays open."""
    implementation = {"type": "agent", "handler": "researcher", **({"chart": chart} if chart else {})}
    spec = build_spec({"implementation": implementation})
    with open_engine(ScriptedModel(ASK, "done"), ScriptedModel(reply), spec) as engine:
        turn = engine.run("go", conversation="c")
        assert (turn.content, turn.tool_calls[0].outcome) == ("done", "failed")
        assert says in str(turn.tool_calls[0].result)
        require_whole(engine.store)
        assert engine.conversation("c").children[0].read_turn().is_over


def test_budgets_reach_the_agents_behind_tools() -> None:
    """Issue 52: a child gets what is left of the parent's budget, so that all together keep to it."""
    spec = build_spec(limits={"max_tokens": 100})
    researcher = ScriptedModel({**call_tool("other"), "usage": USAGE}, {"content": "x", "usage": USAGE})
    with open_engine(ScriptedModel({**ASK, "usage": USAGE}), researcher, spec) as engine:
        turn = engine.run("go", conversation="c")
        (started,) = list_events(engine.store, "c.3.0", "turn_started")
    assert started["settings"]["limits"]["max_tokens"] == 58
    assert turn.limit_reached == "max_tokens"


def test_a_fork_takes_the_answer_of_the_agent() -> None:
    """Issue 52: the recorded outcome of the same call counts; no agent is run again."""
    researcher = ScriptedModel("found")
    with open_engine(ScriptedModel(ASK, "done", ASK, "again"), researcher) as engine:
        engine.run("go", conversation="c")
        result = engine.conversation("c").fork(at=1).result
        assert result is not None
        assert (result.content, result.tool_calls[0].value) == ("again", "found")
        require_whole(engine.store)
    assert len(researcher.requests) == 1


# -- mistakes, and what is proved -----------------------------------------------------------------


def offer(spec: dict[str, Any], handler: int, *names: str) -> dict[str, Any]:
    """The spec in which a handler offers these tools."""
    spec["responses"][handler]["tools"] = {"enabled": True, "allowed_tools": list(names)}
    return spec


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: build_spec({"implementation": {"type": "agent", "handler": "reseacher"}}),
            "runs the handler 'reseacher', which is none of the spec\n  did you mean 'researcher'",
        ),
        (lambda: build_spec({"implementation": {"type": "agent"}}), "needs handler"),
        (lambda: offer(build_spec(), 1, "research"), "the agent 'researcher' can call itself by its tools"),
        (lambda: build_spec({"parameters": {"type": "object"}}), "an agent takes one `message`"),
    ],
)
def test_a_wrong_entry_is_refused(make: Callable[[], dict[str, Any]], says: str) -> None:
    """Issue 52: when the agent is loaded, with the place and what to do."""
    with pytest.raises(SpecError) as raised:
        open_engine(ScriptedModel(), ScriptedModel(), make())
    assert says in str(raised.value) or (says == "needs handler" and "handler" in str(raised.value))


def test_agents_run_each_other_only_so_deep() -> None:
    """Issue 52: a circle that goes through a chart is stopped by the depth, and `check` refuses it."""
    running = {
        "name": "running",
        "states": {
            "running": {
                "initial": True,
                "enter": "run_it",
                "transitions": [
                    {"event": "agent_finished", "target": "finished"},
                    {"event": "agent_failed cancelled", "target": "error"},
                ],
            },
            "finished": {"final": True, "enter": "answer"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
        "effects": {"run_it": {"run_agent": {"handler": "boss"}}},
    }
    implementation = {"type": "agent", "handler": "researcher", "chart": running}
    spec = build_spec({"implementation": implementation})
    with open_engine(ScriptedModel(*[ASK] * 8, *["done"] * 8), ScriptedModel(), spec) as engine:
        assert engine.run("go", conversation="c").content == "done"
        names = list(engine.store.list_conversations())
    assert max(name.count(".") for name in names) <= 16
    with pytest.raises(SpecError, match="more than 8 deep"):
        check_spec(spec)


def check_spec(spec: dict[str, Any]) -> Any:
    """The report of `check`."""
    chart, options = describe_agent_chart(load_spec(spec), (), None)
    return check(chart, **options)


def test_the_bound_of_a_turn_has_the_agents_behind_its_tools() -> None:
    """Issue 52: as many runs as calls of a reply are carried out, in every round, each at its worst."""
    limits = {"max_iterations": 2, "max_calls_per_reply": 3, "max_attempts": 1}
    alone = build_spec(limits=limits)
    alone["tools"]["registry"] = []
    with_agents, without = check_spec(build_spec(limits=limits)).worst, check_spec(alone).worst
    assert with_agents.agent_runs == 2 * 3
    assert with_agents.model_calls == without.model_calls + 2 * 3 * without.model_calls


@pytest.mark.parametrize(
    ("tool", "own", "finds"),
    [
        (None, {}, False),
        ({"trust": "untrusted", "risk": "high"}, {}, True),
        ({"trust": "untrusted", "risk": "high"}, {"trust": "trusted", "risk": "low"}, False),
    ],
)
def test_an_agent_is_as_risky_as_the_tools_of_its_spec(tool: Any, own: dict[str, Any], finds: bool) -> None:
    """Issue 52: words of strangers that one agent reads reach what the next one does, unless the entry says
    otherwise."""
    spec = build_spec(own)
    if tool is not None:
        spec["tools"]["registry"].append({"name": "calculator", **tool})
        offer(spec, 1, "calculator")
    assert bool(check_spec(spec).findings) == finds


async def test_no_agent_is_run_outside_of_a_conversation() -> None:
    """Issue 52: whoever tries a tool alone reads why."""
    async with open_engine(ScriptedModel(), ScriptedModel()) as engine:
        call = ToolCall(id="1", name="research", arguments={"message": "x"})
        outcome = await engine.tools.run(call, ("research",))
    assert outcome.result["error"] == "an agent is run in a conversation only"


def test_an_agent_has_more_time_than_another_tool() -> None:
    """Issue 52: ten minutes, whatever the default of the spec; the entry may say less."""
    for entry, seconds in (({}, 600), ({"timeout_ms": 5000}, 5)):
        spec = build_spec(entry)
        spec["tools"]["default_timeout_ms"] = 1000
        with open_engine(ScriptedModel(), ScriptedModel(), spec) as engine:
            assert [tool.timeout_s for tool in engine.tools.registry] == [seconds]


def build_paying_spec() -> dict[str, Any]:
    """A spec whose `researcher` pays by a tool that asks."""
    spec = build_spec(approval=[{"tools": "pay", "decision": "ask"}])
    spec["responses"][0]["tools"]["allowed_tools"] = ["research", "wait"]
    return offer(spec, 1, "pay")


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def test_nobody_goes_on_while_the_agent_waits_for_a_person() -> None:
    """Issue 52: there is nothing to do but to decide, so recovery writes no record."""
    researcher = ScriptedModel(call_tool("pay", amount=3), "found")
    with open_engine(ScriptedModel(ASK, "done"), researcher, build_paying_spec(), functions=[pay]) as engine:
        engine.run("go", conversation="c")
        before = {name: list(engine.store.read_lines(name)) for name in engine.store.list_conversations()}
        engine.recover()
        assert {name: list(engine.store.read_lines(name)) for name in before} == before
        assert engine.conversation("c").approve(by="ada").content == "done"


async def test_a_decision_reaches_the_agent_while_another_call_runs() -> None:
    """Issue 52: a person decides for the child while a call beside it still runs; nothing is lost."""
    go_on = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "waited"

    calls = [{"name": "research", "arguments": {"message": "x"}}, {"name": "wait", "arguments": {}}]
    boss = ScriptedModel({"tool_calls": calls}, "done")
    researcher = ScriptedModel(call_tool("pay", amount=3), "found")
    functions = [pay, wait]
    async with open_engine(boss, researcher, build_paying_spec(), functions=functions) as engine:
        turn = asyncio.ensure_future(engine.arun("go", conversation="c"))
        await wait_until(lambda: "c.3.0" in engine.store.list_conversations())
        await wait_until(lambda: bool(engine.conversation("c").read_turn().pending_approvals))
        (pending,) = engine.conversation("c").read_turn().pending_approvals
        decision = Decided(call_id=pending.id, approved=True, by="ada")
        await engine.adecide(pending.conversation, decision)
        go_on.set()
        result = await turn
        assert sorted(str(call.value) for call in result.tool_calls) == ["found", "waited"]
        require_whole(engine.store)


def test_where_there_is_nothing_to_run_the_outcome_names_its_effect() -> None:
    """The record of an empty `run_tools` says which effect it answers, like that of any call."""
    chart = {
        "states": {
            "executing": {
                "initial": True,
                "enter": "run_tools",
                "transitions": [
                    {"event": "tool_finished", "target": "done"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "done": {"final": True, "enter": "say_ok"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
        "effects": {"say_ok": {"answer": "ok"}},
    }
    spec = build_spec(chart=chart)
    spec.pop("tools")
    with open_engine(ScriptedModel(), ScriptedModel(), spec) as engine:
        assert engine.run("go", conversation="c").content == "ok"
        (finished,) = list_events(engine.store, "c", "tool_finished")
    assert (finished["effect"], finished["call_id"]) == (1, "")


def test_a_person_speaks_only_for_an_agent_that_is_still_called() -> None:
    """Issue 52: where the tool runs no agent any more, an answer for its child is refused."""
    researcher = ScriptedModel(call_tool("pay", amount=3), "found")
    store = open_store("memory")
    with open_engine(
        ScriptedModel(ASK), researcher, build_paying_spec(), functions=[pay], log=store
    ) as engine:
        engine.run("go", conversation="c")
    spec = build_paying_spec()
    spec["tools"]["registry"] = [{"name": "research", "implementation": {"type": "mock", "mock_response": 1}}]
    with open_engine(ScriptedModel(), ScriptedModel(), spec, functions=[pay], log=store) as engine:
        decision = Decided(call_id="call_1_0_0", approved=True, by="ada")
        with pytest.raises(SpecError, match=r"does not run 'c\.3\.0' any more"):
            engine.resume("c.3.0", decision)
