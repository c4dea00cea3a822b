"""Mines an agent from the conversations of a store: reads them, finds and tests rules, proposes, and replays.

result = mine(read_traces(store, names).traces)
print(result.text, result.report.shares["all"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.mining.proposal import FEW, Proposal, propose_agent
from toolchart.engine.mining.replaying import Mismatch, Replayer
from toolchart.engine.mining.rules import TestedRule, find_rules, split_traces
from toolchart.engine.mining.spec_text import format_comments
from toolchart.engine.mining.traces import Trace, build_trace
from toolchart.engine.reading.listing import ConversationFilter, is_root, is_selected
from toolchart.specs.loader import load_spec, parse_spec
from toolchart.states.chart.yaml_document import parse_document
from toolchart.states.content import Value
from toolchart.states.errors import LogDamaged, SpecError
from toolchart.states.ports import Store

SUPPORT = 5
"""Conversations that a rule must have in the first half."""


class Share(Value, frozen=True, kw_only=True):
    """How many of some conversations replay."""

    replayed: int
    of: int


class SkippedConversation(Value, frozen=True, kw_only=True):
    """A conversation that was not mined."""

    conversation: str
    reason: str
    is_damaged: bool = False
    """Whether it cannot be read; else there is nothing in it."""


class ReadTraces(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    traces: tuple[Trace, ...]
    skipped: tuple[SkippedConversation, ...]


class MiningReport(Value, frozen=True, kw_only=True):
    """What was mined, and how well it fits."""

    conversations: int
    turns: int
    calls: int
    is_few: bool
    """Whether the conversations are so few that little follows from them."""
    tools: tuple[dict[str, Any], ...]
    """Each with `name`, `calls`, and whether its schema is `inferred`."""
    prompts: int
    limits: dict[str, int]
    """The most that a turn had."""
    rules: tuple[dict[str, Any], ...]
    """Each with `tool`, `kind`, `other`, `count`, `support`, `held_out_support`, `counterexamples` and
    `status`: `kept`, `contradicted` or `untested`."""
    shares: dict[str, Share]
    """Of `all` conversations, of those that were `searched` for rules, of the `held_out` ones; and `unseen`:
    held-out ones under an agent that was mined from the searched ones alone, with all rules found there."""
    mismatches: tuple[Mismatch, ...]
    """Why conversations do not replay, each once."""
    skipped: tuple[SkippedConversation, ...] = ()


class MiningResult(msgspec.Struct, frozen=True, kw_only=True):
    """The proposed agent and the report."""

    text: str
    """The spec: YAML with comments."""
    report: MiningReport
    proposal: Proposal


class SelectedConversations(msgspec.Struct, frozen=True, kw_only=True):
    """Which conversations of a store are mined."""

    names: tuple[str, ...]
    left_out: int
    """Children and forks, which repeat or belong to others."""
    skipped: tuple[SkippedConversation, ...]


def select_traced(store: Store, tags: Mapping[str, str]) -> SelectedConversations:
    """The conversations that have all these tags, the oldest first, without children and forks."""
    names, skipped, left_out = [], [], 0
    where = ConversationFilter(tags=tags) if tags else None
    for name in store.list_conversations():
        try:
            if not is_root(store, name):
                left_out += 1
            elif where is None or is_selected(store, name, where):
                names.append(name)
        except LogDamaged as damage:
            skipped.append(SkippedConversation(conversation=name, reason=str(damage), is_damaged=True))
    return SelectedConversations(names=tuple(names), left_out=left_out, skipped=tuple(skipped))


def read_traces(store: Store, conversations: Iterable[str]) -> ReadTraces:
    """Read conversations; one that cannot be read, or has no turn, is skipped with the reason."""
    traces, skipped = [], []
    for name in conversations:
        try:
            trace = build_trace(name, read_conversation(store, name, include_shared=True))
        except LogDamaged as damage:
            skipped.append(SkippedConversation(conversation=name, reason=str(damage), is_damaged=True))
            continue
        if trace.turns:
            traces.append(trace)
        else:
            skipped.append(SkippedConversation(conversation=name, reason="it has no turn"))
    return ReadTraces(traces=tuple(traces), skipped=tuple(skipped))


def mine(
    traces: Sequence[Trace], *, support: int = SUPPORT, skipped: tuple[SkippedConversation, ...] = ()
) -> MiningResult:
    """Propose an agent. The same conversations give the same result, in whichever order they come.

    Raises:
        SpecError: there is no conversation.
    """
    if not traces:
        raise SpecError(
            "there is no conversation to mine", hint="record some: toolchart watch, run or import"
        )
    halves = split_traces(traces)
    ordered = sorted(traces, key=lambda trace: trace.conversation)
    rules = find_rules(halves, support)
    sizes = {"searched": len(halves.searched), "held_out": len(halves.held_out)}
    proposal = propose_agent(ordered, rules, **sizes)
    mismatches = _replay_all(proposal, ordered)
    broken = {each.conversation for each in mismatches}
    shares = {
        name: Share(replayed=sum(trace.conversation not in broken for trace in part), of=len(part))
        for name, part in (("all", ordered), ("searched", halves.searched), ("held_out", halves.held_out))
    }
    unseen = _replay_unseen(rules, halves.searched, halves.held_out)
    shares["unseen"] = Share(replayed=len(halves.held_out) - len(unseen), of=len(halves.held_out))
    report = MiningReport(
        conversations=len(ordered),
        turns=sum(len(trace.turns) for trace in ordered),
        calls=sum(sum(map(len, turn.replies)) for trace in ordered for turn in trace.turns),
        is_few=len(ordered) < FEW,
        tools=tuple(
            {"name": tool.entry["name"], "calls": tool.calls, "inferred": tool.is_inferred}
            for tool in proposal.tools
        ),
        prompts=proposal.prompts,
        limits=msgspec.to_builtins(proposal.limits),
        rules=tuple(map(_encode_rule, rules)),
        shares=shares,
        mismatches=tuple(mismatches),
        skipped=skipped,
    )
    text = "\n".join([*format_comments(_describe_shares(report)), "", proposal.text])
    return MiningResult(text=text, report=report, proposal=proposal)


def _describe_shares(report: MiningReport) -> list[str]:
    everything, held_out, unseen = (report.shares[name] for name in ("all", "held_out", "unseen"))
    texts = [
        f"It replays {everything.replayed} of the {everything.of} conversations that it comes from, and "
        f"{held_out.replayed} of the {held_out.of} held-out ones among them."
    ]
    if unseen.of:
        texts.append(
            f"How well it fits others: an agent that was mined from the other half alone replays "
            f"{unseen.replayed} of these {unseen.of}."
        )
    return texts


def _replay_all(proposal: Proposal, traces: Iterable[Trace]) -> list[Mismatch]:
    """What does not replay. The text is what is tried, so that what is proposed loads.

    Raises:
        SpecError: it does not load, which is a fault of the miner.
    """
    replayer = Replayer(parse_spec(parse_document(proposal.text, "the mined agent")))
    return [mismatch for trace in traces if (mismatch := replayer.replay(trace)) is not None]


def _replay_unseen(
    rules: Sequence[TestedRule], searched: Sequence[Trace], held_out: Sequence[Trace]
) -> list[Mismatch]:
    """What does not replay of the held-out half where nothing of it was seen: limits, schemas and all rules
    come from the other half."""
    if not held_out:
        return []
    believed = [msgspec.structs.replace(each, status="kept") for each in rules]
    ordered = sorted(searched, key=lambda trace: trace.conversation)
    proposal = propose_agent(ordered, believed, searched=len(searched), held_out=0)
    replayer = Replayer(load_spec(proposal.spec))
    return [mismatch for trace in held_out if (mismatch := replayer.replay(trace)) is not None]


def _encode_rule(each: TestedRule) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(each.rule),
        "support": each.support,
        "held_out_support": each.held_out_support,
        "counterexamples": list(each.counterexamples),
        "status": each.status,
    }
