"""Mining proposes what conversations show: rules that hold, schemas, limits, and an agent that keeps them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import agents
import pytest
from foreign_loops import ENCODERS, World
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine import Engine
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.mining.miner import MiningResult, mine, read_traces, select_traced
from toolchart.engine.mining.rules import Rule, TestedRule, find_rules, split_traces
from toolchart.engine.mining.schemas import infer_parameters
from toolchart.engine.mining.spec_text import format_comments, format_entry
from toolchart.engine.mining.traces import Trace
from toolchart.engine.watching.recorder import Recorder
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.states.chart.yaml_document import parse_document
from toolchart.states.diagram import draw
from toolchart.states.errors import SpecError
from toolchart.states.events import Decided
from toolchart.states.messages import ToolCall
from toolchart.states.proofs.check import check
from toolchart.tools.data_flow import describe_agent_chart

AT = "2026-01-01T00:00:00.000Z"

Turns = Sequence[Sequence[Any]]
"""Turns of a conversation: each is its replies, a reply the names of its tools or calls with arguments."""


def write_messages(turns: Turns) -> list[dict[str, Any]]:
    """The messages of a conversation in which every call succeeds and every turn is answered."""
    numbers, messages = count(), list[dict[str, Any]]()
    for turn in turns:
        messages.append({"role": "user", "content": "go"})
        for reply in turn:
            calls = [reply] if isinstance(reply, str | tuple) else reply
            named = [(call, {}) if isinstance(call, str) else call for call in calls]
            ids = [f"call_{next(numbers)}" for _ in named]
            messages.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": call_id,
                            "type": "function",
                            "function": {"name": name, "arguments": json.dumps(arguments)},
                        }
                        for call_id, (name, arguments) in zip(ids, named, strict=True)
                    ],
                }
            )
            messages += [{"role": "tool", "tool_call_id": call_id, "content": "ok"} for call_id in ids]
        messages.append({"role": "assistant", "content": "Done."})
    return messages


def store_conversations(conversations: dict[str, Turns]) -> MemoryStore:
    """A log with these conversations."""
    store = MemoryStore()
    for name, turns in conversations.items():
        store.append(name, 0, import_messages(write_messages(turns), name, AT))
    return store


def read(store: MemoryStore) -> tuple[Trace, ...]:
    """The traces of all conversations of a log."""
    return read_traces(store, select_traced(store, {}).names).traces


def mine_all(conversations: dict[str, Turns], support: int = 1) -> MiningResult:
    """Mine these conversations."""
    return mine(read(store_conversations(conversations)), support=support)


def name_halves(number: int) -> tuple[list[str], list[str]]:
    """Ids of conversations of which each half gets as many."""
    names = sorted(
        (f"c{i}" for i in range(2 * number)), key=lambda name: hashlib.sha256(name.encode()).digest()
    )
    return names[:number], names[number:]


def spread(patterns: Sequence[Turns], held_out: Sequence[Turns] | None = None) -> dict[str, Turns]:
    """Conversations so that each pattern is in both halves, or the held-out half has its own."""
    searched_names, held_out_names = name_halves(len(patterns))
    return {
        **dict(zip(searched_names, patterns, strict=True)),
        **dict(zip(held_out_names, held_out or patterns, strict=True)),
    }


def list_kept(result: MiningResult) -> set[tuple[str, str, str, int]]:
    """The rules that are enforced: tool, kind, other tool and count."""
    return {
        (rule["tool"], rule["kind"], rule["other"], rule["count"])
        for rule in result.report.rules
        if rule["status"] == "kept"
    }


# -- planted rules -------------------------------------------------------------------------------


def close_needs(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """All tools that each one needs, also by way of others."""
    closed: dict[str, set[str]] = {}
    for tool in needs:  # in topological order
        closed[tool] = needs[tool] | {far for near in needs[tool] for far in closed[near]}
    return closed


def write_world(needs: dict[str, set[str]], once: str, early: str, last: str) -> list[Turns]:
    """Conversations of an agent that keeps these rules and no other.

    Each tool is called with nothing before it but what it needs. Then there is one conversation in which
    every tool follows every other and is called often, but for the planted exceptions.

    Args:
        once: is called at most once in a turn.
        early: is not called after `last` has succeeded; nothing needs `last`.
    """
    tools, closed = list(needs), close_needs(needs)
    patterns: list[Turns] = [[[*(t for t in tools if t in closed[tool]), tool]] for tool in tools]
    before = [tool for tool in tools if tool != last]
    often = [tool for tool in before if tool != once]
    after = [tool for tool in tools if tool not in (once, early)]
    first = [*before, *often * 3, *after * 4]
    return [*patterns, [first, [tool for tool in tools if tool != early]]]


@st.composite
def draw_worlds(draw: st.DrawFn) -> tuple[dict[str, set[str]], str, str, str]:
    tools = draw(st.permutations(["ask", "book", "cancel", "find", "pay", "verify"]))[
        : draw(st.integers(4, 6))
    ]
    needs: dict[str, set[str]] = {}
    for index, tool in enumerate(tools):
        earlier = tools[:index]
        needs[tool] = (
            set(draw(st.lists(st.sampled_from(earlier), unique=True, max_size=2))) if earlier else set()
        )
    once, early = draw(st.permutations(tools[:-1]))[:2]
    return needs, once, early, tools[-1]


@given(draw_worlds(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_planted_rules_are_found_and_no_others(
    world: tuple[dict[str, set[str]], str, str, str], random_order: random.Random
) -> None:
    """Of conversations that keep known rules, exactly these are proposed; what follows from others is not."""
    needs, once, early, last = world
    closed = close_needs(needs)
    direct = {
        (tool, other)
        for tool, others in closed.items()
        for other in others
        if not any(other in closed[between] for between in others)
    }
    names = list(conversations := spread(write_world(needs, once, early, last)))
    random_order.shuffle(names)
    result = mine_all({name: conversations[name] for name in names})
    expected = {(tool, "precedence", other, 0) for tool, other in direct}
    assert list_kept(result) == {*expected, (early, "absence", last, 0), (once, "count", "", 1)}
    assert result.report.shares["all"].replayed == len(names)


def test_a_held_out_counterexample_drops_a_rule() -> None:
    """A rule that holds in the searched half only is a comment with the conversation, and is not enforced."""
    good: Turns = [["verify", "pay"]]
    kept = mine_all(spread([good] * 3))
    assert ("pay", "precedence", "verify", 0) in list_kept(kept)
    conversations = spread([good] * 3, [good, good, [["pay", "verify"]]])
    bad = name_halves(3)[1][2]
    result = mine_all(conversations)
    rule = next(
        each for each in result.report.rules if each["kind"] == "precedence" and each["tool"] == "pay"
    )
    assert (rule["status"], rule["support"], rule["held_out_support"]) == ("contradicted", 3, 2)
    assert rule["counterexamples"] == [bad]
    assert "needs" not in find_entry(result, "pay")
    line = "- pay is called only after verify has succeeded in the conversation: in 3 of 3, and in 2 of 3"
    assert f"{line} held out; not in {bad}" in " ".join(result.text.replace("#", "").split())


def find_entry(result: MiningResult, name: str) -> dict[str, Any]:
    """The entry of a tool in the text."""
    data = parse_document(result.text, "text").data
    return next(entry for entry in data["tools"]["registry"] if entry["name"] == name)


def test_a_rule_needs_support_in_both_halves() -> None:
    """Below the support there is no rule; one that few held-out conversations are about is not enforced."""
    good: Turns = [["verify", "pay"]]
    other: Turns = [["look"]]
    assert not mine_all(spread([good] * 3), support=4).report.rules
    result = mine_all(spread([good] * 4, [good, other, other, other]), support=4)
    assert {rule["status"] for rule in result.report.rules} == {"untested"}
    assert "too few held-out conversations test them" in result.text


def test_calls_of_one_reply_do_not_precede_each_other() -> None:
    """A success counts from the next reply on, as in the review that enforces the rule."""
    result = mine_all(spread([[[["verify", "pay"]]]] * 2))
    assert not [rule for rule in result.report.rules if rule["kind"] == "precedence"]


def test_a_success_of_an_earlier_turn_counts() -> None:
    """A precedence holds over the turns of a conversation, and the agent keeps it over them too."""
    result = mine_all(spread([[["verify"], ["pay"]]] * 2))
    assert ("pay", "precedence", "verify", 0) in list_kept(result)
    entry = find_entry(result, "pay")
    assert (entry["needs"], entry["needs_in"]) == (["verify"], "conversation")
    assert result.report.shares["all"].replayed == 4


def test_halves_do_not_depend_on_the_order() -> None:
    """The same conversations give the same halves; an odd one is in the first."""
    traces = [Trace(conversation=name) for name in "abcde"]
    halves, again = split_traces(traces), split_traces(reversed(traces))
    assert halves == again
    assert (len(halves.searched), len(halves.held_out)) == (3, 2)
    assert find_rules(split_traces(()), 1) == []


# -- schemas ---------------------------------------------------------------------------------------

SCHEMAS: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("none", [], {"type": "object", "properties": {}}),
    ("no arguments", [{}, {}], {"type": "object", "properties": {}}),
    (
        "required is what every call has",
        [{"a": 1, "b": "x"}, {"a": 2}],
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "required": ["a"],
        },
    ),
    (
        "whole and broken numbers",
        [{"a": 1}, {"a": 1.5}],
        {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
    ),
    (
        "a truth is no number",
        [{"a": True}, {"a": 1}],
        {"type": "object", "properties": {"a": {"type": ["boolean", "integer"]}}, "required": ["a"]},
    ),
    (
        "null beside text",
        [{"a": None}, {"a": "x"}],
        {"type": "object", "properties": {"a": {"type": ["null", "string"]}}, "required": ["a"]},
    ),
    (
        "an enum where few texts repeat",
        [{"a": text} for text in ["on", "off"] * 6],
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["off", "on"]}}, "required": ["a"]},
    ),
    (
        "no enum where a text came once",
        [{"a": text} for text in [*["on", "off"] * 6, "dim"]],
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    ),
    (
        "lists and objects",
        [{"a": [{"b": 1}, {"b": 2, "c": "x"}]}, {"a": []}],
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"b": {"type": "integer"}, "c": {"type": "string"}},
                        "required": ["b"],
                    },
                }
            },
            "required": ["a"],
        },
    ),
    (
        "a table is not spelt out",
        [{"a": {f"k{i}": i for i in range(50)}}],
        {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
    ),
]


@pytest.mark.parametrize(("calls", "schema"), [row[1:] for row in SCHEMAS], ids=[row[0] for row in SCHEMAS])
def test_a_schema_is_inferred_from_calls(calls: list[dict[str, Any]], schema: dict[str, Any]) -> None:
    """The inferred schema has the types, the required names and the enums that were seen."""
    assert infer_parameters(calls) == schema


# -- the agent -------------------------------------------------------------------------------------

SHOP: list[Turns] = [
    [[("find_order", {"id": 7}), ("refund", {"id": 7, "amount": 2.5})]],
    [[("find_order", {"id": 8})], [("refund", {"id": 8, "amount": 3, "note": "late"})]],
]


def mine_shop() -> MiningResult:
    """Mine an agent that refunds an order only after it has found it."""
    return mine_all(spread(SHOP * 2), support=3)


def test_the_agent_loads_is_checked_and_is_drawn(tmp_path: Path) -> None:
    """The text is a spec without a warning, whose chart has no finding and can be drawn."""
    path = tmp_path / "mined.yaml"
    path.write_text(mine_shop().text, "utf-8")
    spec = load_spec(path)
    chart, options = describe_agent_chart(spec)
    assert spec.warnings == ()
    assert check(chart, **options).findings == ()
    assert "prompting" in str(draw(chart, "mermaid"))


def test_the_agent_refuses_a_call_that_breaks_a_rule(tmp_path: Path) -> None:
    """A model that refunds before it has found the order is refused, reads why, and may then do it."""
    path = tmp_path / "mined.yaml"
    path.write_text(mine_shop().text, "utf-8")
    refund, find = ("refund", {"id": 7, "amount": 2}), ("find_order", {"id": 7})
    replies = [*(agents.reply_with_calls(call) for call in (refund, find)), "Found."]
    replies += [agents.reply_with_calls(("refund", {"id": 7, "amount": 3})), "Done."]
    with Engine(path, log="memory", providers={"model": ScriptedProvider(replies)}) as engine:
        first, second = (engine.run("refund it", conversation="c") for _ in range(2))
    assert [call.result["success"] for call in first.tool_calls] == [False, True]
    assert "refund needs find_order to have succeeded first" in first.tool_calls[0].result["error"]
    assert [call.result["success"] for call in second.tool_calls] == [True]


def test_the_same_log_gives_the_same_text() -> None:
    """Neither the order of the conversations nor a second run changes a letter."""
    traces = read(store_conversations(spread(SHOP * 2)))
    result = mine(traces, support=3)
    assert mine(tuple(reversed(traces)), support=3).text == result.text
    assert mine_shop().text == result.text
    assert mine(tuple(reversed(traces)), support=3).report == result.report


def test_limits_are_those_seen_with_a_margin() -> None:
    """The limits allow half as much again as a turn had, and repeats as many as were seen."""
    result = mine_all({"a": [["look"] * 4], "b": [[["look", "look"]]]})
    seen = {"iterations": 4, "tool_calls": 4, "calls_per_reply": 2, "repeats": 4, "failures": 0, "tokens": 0}
    assert result.report.limits == seen
    limits = parse_document(result.text, "text").data["limits"]
    assert limits == {"max_iterations": 6, "max_repeats": 4, "max_tool_calls": 6, "max_calls_per_reply": 3}


def test_prompts_become_handlers() -> None:
    """The prompt of most conversations answers by default; another common one is a handler of its own."""
    store = MemoryStore()
    for number, prompt in enumerate(
        ["You help.", "You help.", "You help.", "You sell.", "You sell.", "Odd."]
    ):
        messages = [{"role": "system", "content": prompt}, *write_messages([["look"]])]
        store.append(f"c{number}", 0, import_messages(messages, f"c{number}", AT))
    result = mine(read(store))
    handlers = parse_document(result.text, "text").data["responses"]
    assert [(handler["name"], handler["prompt"]) for handler in handlers] == [
        ("prompt_2", "You sell."),
        ("main", "You help."),
    ]
    assert result.report.prompts == 3
    assert "1 further prompt left out, of 1 conversation" in " ".join(result.text.replace("#", "").split())


def test_few_conversations_are_called_few() -> None:
    """The text and the report say where there is too little to learn from; nothing is an error."""
    result = mine_all({"a": [["look"]]})
    assert result.report.is_few
    assert "1 conversation: that is few" in result.text
    with pytest.raises(SpecError, match="there is no conversation to mine"):
        mine(())


# -- shares ----------------------------------------------------------------------------------------


def record_own_log() -> MemoryStore:
    """A log of an agent of ours: two plain conversations, one at a limit, one with a denial."""
    store = MemoryStore()
    call = agents.reply_with_calls(("echo", {"text": "a"}))
    other = agents.reply_with_calls(("echo", {"text": "b"}))
    three = agents.reply_with_calls(("echo", {"text": "c"}))

    async def deny(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=False, reason="no", by="test")

    with agents.make_engine([call, "One.", "Two."], log=store) as engine:
        engine.run("go", conversation="plain")
        engine.run("go", conversation="short")
    limit = {"tools": {**agents.make_spec()["tools"], "max_iterations": 3}}
    with agents.make_engine([call, other, three], log=store, **limit) as engine:
        engine.run("go", conversation="limit")
    asking = {"chart": "approval", "approval": [{"tools": "echo", "decision": "ask"}]}
    with agents.make_engine([call, "Denied."], log=store, approver=deny, **asking) as engine:
        engine.run("go", conversation="denied")
    return store


def test_shares_are_exact() -> None:
    """What replays is counted by conversation, and each of the others says where and why it does not."""
    report = mine(read(record_own_log())).report
    assert (report.shares["all"].replayed, report.shares["all"].of) == (2, 4)
    assert {each.conversation: (each.turn, each.reason) for each in report.mismatches} == {
        "limit": (1, "the turn ended at a limit, and here it does not: the agent is in prompting"),
        "denied": (1, "a person denied a call, and the agent runs it without asking"),
    }
    parts = report.shares["searched"], report.shares["held_out"]
    assert sum(part.replayed for part in parts) == 2
    assert sum(part.of for part in parts) == 4


@pytest.mark.parametrize("wire", ENCODERS)
def test_watched_programs_replay(wire: str) -> None:
    """What programs of others did, with retries, children and repeated calls, replays through the agent that
    is mined from it; children are left out and counted."""
    store = open_store("memory")
    recorder = Recorder(store, {"watch": "test"})
    for each in World(1, [wire], loops=6).iterate_exchanges():
        recorder.note(each.exchange)
    figures = recorder.close()
    selected = select_traced(store, {"watch": "test"})
    assert selected.left_out == figures.children
    assert select_traced(store, {"watch": "other"}).names == ()
    result = mine(read_traces(store, selected.names).traces)
    assert result.report.mismatches == ()
    host = parse_document(result.text, "text").data["llms"]["model"]
    assert (host["model"], host["base_url"].endswith(".invalid")) == ("m", True)


def test_a_refused_call_names_the_rule() -> None:
    """A conversation that the mined agent would stop says which rule refuses which call."""
    from toolchart.engine.mining.proposal import propose_agent
    from toolchart.engine.mining.replaying import Replayer

    traces = read(store_conversations({"a": [["pay", "verify"]]}))
    rule = TestedRule(
        rule=Rule(tool="pay", kind="precedence", other="verify"),
        support=1,
        held_out_support=1,
        counterexamples=(),
        status="kept",
    )
    proposal = propose_agent(traces, [rule], searched=1, held_out=0)
    mismatch = Replayer(load_spec(proposal.spec)).replay(traces[0])
    assert mismatch is not None
    assert (mismatch.state, mismatch.reason) == (
        "awaiting_tools",
        "pay is refused: pay needs verify to have succeeded first",
    )


def test_a_tool_that_always_asked_still_asks() -> None:
    """Where a person decided about each call of a tool, the mined agent asks too; decisions replay."""
    store = MemoryStore()

    async def approve(call: ToolCall) -> bool:
        return True

    asking = {"chart": "approval", "approval": [{"tools": "echo", "decision": "ask"}]}
    replies = [agents.reply_with_calls(("echo", {"text": "a"})), "Done."]
    with agents.make_engine(replies, log=store, approver=approve, **asking) as engine:
        engine.run("go", conversation="c")
    result = mine(read(store))
    assert find_entry(result, "echo")["requires_approval"] is True
    assert result.report.shares["all"].replayed == 1


# -- the text --------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.lists(
    st.sampled_from(["", " ", "a: b", "- x", "# y", "{{z}}", "yes", "1.10", "\t", "é", "…", "007"]),
    max_size=6,
).map("\n".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS.filter(bool), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_any_value_is_written_so_that_it_is_read_again(value: Any) -> None:
    """The YAML of the text means exactly the value, whatever prompts and schemas hold."""
    lines = ["top:", *format_entry("key", value, 2), *format_entry("end", 1, 2)]
    assert parse_document("\n".join(lines) + "\n", "text").data == {"top": {"key": value, "end": 1}}


@given(st.lists(st.text(max_size=200), max_size=3))
def test_a_comment_is_only_a_comment(texts: Iterable[str]) -> None:
    """No text of a log can leave the comment that names it."""
    lines = [*format_comments(texts), "a: 1"]
    assert parse_document("\n".join(lines) + "\n", "text").data == {"a": 1}


def test_tools_and_texts_of_any_name_give_an_agent_that_loads() -> None:
    """Names and prompts that mean something in YAML stay what they are."""
    names = ["yes", "007", "a.b", "null", "x-y"]
    store = MemoryStore()
    for index, name in enumerate(names):
        messages = [
            {"role": "system", "content": f" - {name}: #\n\n"},
            *write_messages([[(name, {"on": "no"})]]),
        ]
        store.append(str(index), 0, import_messages(messages, str(index), AT))
    result = mine(read(store))
    assert sorted(tool["name"] for tool in result.report.tools) == sorted(names)


def test_engines_of_the_text_run_in_a_loop() -> None:
    """The mined agent is an agent like any other, also in an async program."""

    async def run() -> str:
        spec = parse_document(mine_shop().text, "text").data
        async with Engine(spec, log="memory", providers={"model": ScriptedProvider(["Hello."])}) as engine:
            return (await engine.arun("hi")).content

    assert asyncio.run(run()) == "Hello."
