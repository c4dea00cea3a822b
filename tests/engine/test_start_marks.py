"""Start marks: the log knows which calls began before a crash, and calls begin in the order of the reply."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agents import make_engine, reply_with_calls
from effort import choose_count
from killed_payments import FLOWS, Flow, Place, check_resume, run_and_die
from killed_payments import make_engine as make_paying_engine

from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges, plan_fork
from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores import open_store
from toolchart.specs.models import ToolEntry, ToolsConfig
from toolchart.states.errors import SpecError
from toolchart.states.events import Resumed
from toolchart.states.messages import ToolDefinition
from toolchart.tools.definition import CallStatus, Tool
from toolchart.tools.manager import ToolManager
from toolchart.tools.sources.effect_functions import effect
from toolchart.tools.sources.python import make_tool, tool
from toolchart.tools.sources.registry_entries import list_entry_starts
from toolchart.tools.tool_context import ToolContext

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

THREADS, INLINE, TWO_AT_ONCE, FUNCTION = FLOWS


def list_events(engine: Engine, kind: str) -> list[dict[str, Any]]:
    """The events of a kind in conversation `c`."""
    events = [json.loads(line)["event"] for line in engine.store.read_lines("c")]
    return [event for event in events if event["type"] == kind]


# -- after a kill ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [THREADS, INLINE, FUNCTION], ids=lambda flow: flow.name)
def test_payments_that_never_began_are_made(flow: Flow, tmp_path: Path) -> None:
    """Issue 28: killed before the mark of the first payment is durable, none is `interrupted`; each is made
    once, under its key."""
    log, ledger = str(tmp_path / "log.db"), tmp_path / "ledger"
    before_mark = 0 if flow.name == "function" else 2
    assert run_and_die(flow, log, ledger, Place(commit=before_mark))
    assert not ledger.exists()
    counts = check_resume(flow, log, ledger)
    assert counts["interrupted"] == 0
    assert counts["succeeded"] == (3 if flow.name == "function" else 8)


@pytest.mark.parametrize("flow", [THREADS, INLINE, FUNCTION], ids=lambda flow: flow.name)
def test_payments_with_a_mark_are_interrupted(flow: Flow, tmp_path: Path) -> None:
    """Killed between the mark and the first payment, those with a mark are `interrupted`: they were about to
    begin, and nobody can know whether they did."""
    log, ledger = str(tmp_path / "log.db"), tmp_path / "ledger"
    after_mark = 1 if flow.name == "function" else 3
    assert run_and_die(flow, log, ledger, Place(commit=after_mark))
    assert not ledger.exists()
    counts = check_resume(flow, log, ledger)
    assert counts["interrupted"] == counts["not begun"] == (1 if flow.name == "function" else 3)


def test_a_queued_payment_is_not_marked(tmp_path: Path) -> None:
    """With two calls at once, the third payment has no mark when the first two begin; a kill then interrupts
    no more than two. The second one may have ended before the kill in the first."""
    log, ledger = str(tmp_path / "log.db"), tmp_path / "ledger"
    assert run_and_die(TWO_AT_ONCE, log, ledger, Place(payment="pay00"))
    engine = make_paying_engine(TWO_AT_ONCE, log, ledger)
    assert list_events(engine, "calls_started")[0]["calls"] == ["pay00", "pay01"]
    engine.close()
    counts = check_resume(TWO_AT_ONCE, log, ledger)
    assert counts["interrupted"] in (1, 2)
    assert counts["succeeded"] == 8 - counts["interrupted"]


def test_kill_and_resume_payments(tmp_path: Path) -> None:
    """Invariant 5: killed at any commit or in any payment, none is lost or doubled, and none without a mark
    is `interrupted`."""
    chance, counts = random.Random(20261123), Counter[str]()
    for turn in range(choose_count(short=24, long=600)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        log = str(folder / "log.db")
        flow = chance.choice(FLOWS)
        payment = f"{chance.choice(('pay', 'pay', 'look'))}{chance.randrange(2)}{chance.randrange(4)}"
        place = chance.choice((Place(commit=chance.randrange(24)), Place(payment=payment)))
        counts["killed"] += run_and_die(flow, log, folder / "ledger", place)
        counts += check_resume(flow, log, folder / "ledger")
    assert counts["killed"] > 8
    assert counts["interrupted"] > counts["not begun"] > 0


# -- asking for the outcome --------------------------------------------------------------------------

STATUSES = {
    "done": ("succeeded", "receipt", 1),
    "not_begun": ("succeeded", "paid", 2),
    "unknown": ("interrupted", None, 1),
    "raises": ("interrupted", None, 1),
    "no status": ("interrupted", None, 1),
}
"""By what the status says: the outcome of a payment that was killed, its result, and how often it ran."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", STATUSES)
def test_an_interrupted_call_is_asked_for(answer: str, is_async: bool, tmp_path: Path) -> None:
    """A tool with `status` is asked by the key of the call that a kill has interrupted, and `tool_finished`
    says so; where nobody knows, the call stays interrupted. It is asked when the resumption is durable."""
    log, ledger = str(tmp_path / "log.db"), tmp_path / "ledger"
    asked_keys: list[str] = []

    def find_payment(context: ToolContext[Any]) -> Any:
        asked_keys.append(context.idempotency_key)
        assert list_events(engine, "resumed")
        if answer == "raises":
            raise RuntimeError("the bank is closed")
        return "gone" if answer == "no status" else CallStatus(state=answer, result="receipt")  # type: ignore[arg-type]

    async def find_payment_later(context: ToolContext[Any]) -> Any:
        return find_payment(context)

    assert run_and_die(THREADS, log, ledger, Place(payment="pay00"))
    (first_line,) = [line for line in ledger.read_text().splitlines() if line.startswith("pay00 ")]
    status = find_payment_later if is_async else find_payment
    engine = make_paying_engine(THREADS, log, ledger, status=status)
    assert engine.conversation("c").resume().content == "all done"
    ends = {event["call_id"]: event for event in list_events(engine, "tool_finished")}
    list(replay(engine.store.read_lines("c"), "c"))
    engine.close()
    outcome, result, runs = STATUSES[answer]
    assert first_line.split()[1] in asked_keys
    assert ends["pay00"]["outcome"] == outcome
    assert ends["pay00"]["result"].get("result") == result
    assert any("idempotency key" in note for note in ends["pay00"].get("notes", ())) == (result is not None)
    paid = [line for line in ledger.read_text().splitlines() if line.startswith("pay00 ")]
    assert paid == [first_line] * runs


def test_a_call_of_a_fork_is_not_asked_for_by_the_key_of_its_parent(tmp_path: Path) -> None:
    """A retry in a fork has other keys: a call that began in the parent stays interrupted, and is not made
    a second time because nobody knows the fork's key."""
    log = str(tmp_path / "log.db")
    runs: list[str] = []

    def pay(n: int, context: ToolContext[Any]) -> str:
        """Pay."""
        runs.append(context.idempotency_key)
        return "paid"

    def find_payment(context: ToolContext[Any]) -> CallStatus:
        return CallStatus(state="not_begun")

    payment = tool(status=find_payment)(pay)
    script = [reply_with_calls(("pay", {"n": 1})), "done"]
    engine = make_engine(script, log=log, functions=[payment])
    engine.run("go", conversation="c")
    seq = [json.loads(line)["event"]["type"] for line in engine.store.read_lines("c")].index("calls_started")
    plan = plan_fork(engine.store, "c", "d", seq, ForkChanges())
    driver = engine._agent.conversations.fork_driver("d", plan)
    driver.apply_event(Resumed())
    snapshot = asyncio.run(driver.run_turn())
    engine.close()
    assert len(runs) == 1
    assert [call.outcome for call in snapshot.tracked_calls] == ["interrupted"]


def test_a_status_of_a_spec_is_a_function(tmp_path: Path) -> None:
    """`status` names a function, which is part of the tool's definition and of what an agent starts; a wrong
    name is refused when the spec is loaded."""
    entry = {"name": "calculator", "status": "json:dumps"}
    manager = ToolManager.from_config(ToolsConfig.model_validate({"registry": [entry]}))
    assert manager.describe_tool("calculator")["status"] == "json:dumps"  # type: ignore[index]
    manager.close()
    starts = list_entry_starts(ToolEntry.model_validate(entry), tmp_path)
    assert ("function", "json:dumps") in [(start.kind, start.subject) for start in starts]
    for wrong in ("json:no_such_name", "json", "json:__doc__"):
        with pytest.raises(SpecError, match="status"):
            ToolManager.from_config(ToolsConfig.model_validate({"registry": [{**entry, "status": wrong}]}))
    with pytest.raises(SpecError, match="status"):
        make_tool(lambda: None, {"name": "pay", "status": "json:dumps"})  # type: ignore[call-overload]


# -- what a mark costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("calls", [1, 3])
def test_a_mark_shares_the_commit_of_its_ask(calls: int, idempotent: bool, tmp_path: Path) -> None:
    """Calls that begin together cost no commit of their own: their mark shares that of the records before it.
    Those that ask for idempotent calls are durable before these begin, too."""
    commits: list[list[str]] = []
    seen: list[list[list[str]]] = []
    tools = [make_payment(idempotent, run=lambda arguments: seen.append(commits.copy()))]
    script = [reply_with_calls(*[("pay", {"n": n}) for n in range(calls)]), "done"]
    engine = make_engine(script, log=str(tmp_path / "log.db"), functions=tools)
    store: Any = engine.store
    append_many = store.append_many

    def note_commit(batches: Any, **options: Any) -> Any:
        faults = append_many(batches, **options)
        commits.append([json.loads(line)["event"]["type"] for batch in batches for line in batch.lines])
        return faults

    store.append_many = note_commit
    engine.run("go", conversation="c")
    engine.close()
    marks = [] if idempotent else ["calls_started"]
    assert commits[1] == ["replied", "reviewed", *marks]
    assert [commits_before[:2] for commits_before in seen] == [commits[:2]] * calls
    assert not any("calls_started" in kinds for kinds in commits[2:])


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_function_begins_when_its_ask_is_durable(idempotent: bool) -> None:
    """So does a function of `call_function`: what it can read of the log has the record that asks for it, and
    its mark unless it is idempotent."""
    seen: list[str] = []

    @effect
    def book(conversation: str) -> str:
        """Book."""
        seen.extend(json.loads(line)["event"]["type"] for line in engine.store.read_lines(conversation))
        return "booked"

    call = {"function": "book", "arguments": {"conversation": "c"}, "idempotent": idempotent, "as": "receipt"}
    states = {
        "booking": {
            "initial": True,
            "enter": "order",
            "transitions": [{"event": event, "target": "end"} for event in ("returned", "failed")],
        },
        "end": {"final": True, "enter": "tell"},
    }
    effects = {"order": {"call_function": call}, "tell": {"answer": "{{receipt.content}}"}}
    chart = {"chart": {"name": "booking", "states": states}, "effects": effects}
    engine = make_engine([], log=open_store("memory"), functions=[book], **chart)
    assert engine.run("go", conversation="c").content == "booked"
    engine.close()
    assert seen == ["configured", "turn_started", *([] if idempotent else ["calls_started"])]


def make_payment(idempotent: bool, run: Any = lambda arguments: "paid", **options: Any) -> Tool:
    """A tool that takes a number."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    definition = ToolDefinition(name="pay", description="Pay.", parameters=schema)
    return Tool(definition=definition, run=run, idempotent=idempotent, **options)


def test_a_cached_answer_and_a_refusal_begin_nothing() -> None:
    """A call that is answered without running has no start mark."""
    payment = make_payment(False, cacheable=True)
    script = [
        reply_with_calls(("pay", {"n": 1}), ("pay", {"n": "one"})),
        reply_with_calls(("pay", {"n": 1}), ("no_such_tool", {})),
        "done",
    ]
    engine = make_engine(script, log=open_store("memory"), functions=[payment])
    engine.run("go", conversation="c")
    ids = [event["call_id"] for event in list_events(engine, "tool_finished")]
    started = [event["calls"] for event in list_events(engine, "calls_started")]
    engine.close()
    assert len(ids) == 4
    assert len(started) == 1
    assert started[0][0] in ids


# -- order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["thread", "inline", "mixed"])
def test_parallel_calls_begin_in_the_order_of_the_reply(isolation: str) -> None:
    """Issue 28: calls of synchronous functions that run side by side begin in the order of the reply."""
    began: list[int] = []

    def make(name: str, place: str) -> Any:
        def note(n: int) -> str:
            """Note the number."""
            began.append(n)
            return "noted"

        return tool(name=name, isolation=place)(note)  # type: ignore[call-overload]

    places = {"mixed": ("thread", "inline")}.get(isolation, (isolation, isolation))
    functions = [make("first", places[0]), make("second", places[1])]
    script = reply_with_calls(*[(("first", "second")[n % 2], {"n": n}) for n in range(6)])
    for _ in range(40):
        began.clear()
        engine = make_engine([script, "done"], log=open_store("memory"), functions=functions)
        engine.run("go", conversation="c")
        engine.close()
        assert began == [0, 1, 2, 3, 4, 5]


def test_a_slow_check_of_arguments_keeps_the_order() -> None:
    """A call whose arguments are checked in a worker begins before the calls after it."""
    began: list[str] = []
    slow = {"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a|b)*$"}}}
    tools = [
        Tool(
            definition=ToolDefinition(name=name, description=name, parameters=schema),
            run=lambda arguments, name=name: began.append(name),
        )
        for name, schema in (("slow", slow), ("quick", {"type": "object"}))
    ]
    script = reply_with_calls(("slow", {"text": "ab" * 5000}), ("quick", {}), ("slow", {"text": "a"}))
    engine = make_engine([script, "done"], log=open_store("memory"), functions=tools)
    engine.run("go", conversation="c")
    engine.close()
    assert began == ["slow", "quick", "slow"]


def test_a_call_that_hangs_holds_up_no_other_start() -> None:
    """Calls begin one after the other, and run side by side: the second one releases the first."""
    release = threading.Event()

    @tool(timeout_s=20)
    def wait() -> str:
        """Wait."""
        return str(release.wait(10))

    @tool
    def let_go() -> str:
        """Let the other one go."""
        release.set()
        return "gone"

    script = reply_with_calls(("wait", {}), ("let_go", {}))
    engine = make_engine([script, "done"], log=open_store("memory"), functions=[wait, let_go])
    result = engine.run("go", conversation="c")
    engine.close()
    assert [call.outcome for call in result.tool_calls] == ["succeeded", "succeeded"]
    assert result.tool_calls[0].result["result"] == "True"
