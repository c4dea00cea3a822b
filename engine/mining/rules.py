"""Rules about the order and the number of calls: found in one half of the conversations, tested on the other.

Three kinds, each of which the review of a call enforces (`needs`, `not_after`, `max_calls` of a tool):

- *precedence*: a tool is called only after another one has succeeded earlier in the conversation;
- *absence*: a tool is never called after another one has succeeded in the conversation;
- *count*: a tool is called at most so often in a turn.

A rule is looked for in one half. It is a candidate where enough conversations support it and none contradicts
it. Then the other half, in which nothing was looked for, tests it. A graph of which call follows which is not
proposed: such graphs fit unseen conversations badly, and rules say why a call is refused.

What counts is what the review of a call would say: results of calls of the same reply are not there yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from toolchart.engine.mining.traces import DID_NOT_RUN, Trace

RuleKind = Literal["precedence", "absence", "count"]

RuleStatus = Literal["kept", "contradicted", "untested"]
"""`contradicted`: by a conversation of the held-out half; `untested`: too few of them are about it."""

MOST_CALLS = 3
"""The largest number of calls of a turn that is proposed as a rule: more is no habit of the agent."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A rule about the calls of a tool."""

    tool: str
    kind: RuleKind
    other: str = ""
    """The tool that must have succeeded (`precedence`), or must not (`absence`)."""
    count: int = 0
    """The most calls of a turn (`count`)."""

    def describe(self) -> str:
        """The rule in words."""
        if self.kind == "precedence":
            return f"{self.tool} is called only after {self.other} has succeeded in the conversation"
        if self.kind == "absence":
            return f"{self.tool} is not called after {self.other} has succeeded in the conversation"
        return f"{self.tool} is called at most {_count_times(self.count)} in a turn"


def _count_times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


class TestedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule with what both halves say about it."""

    __test__ = False  # for pytest: this is no test

    rule: Rule
    support: int
    """Conversations of the first half that are about it, all of which keep it."""
    held_out_support: int
    """Conversations of the held-out half that are about it and keep it."""
    counterexamples: tuple[str, ...]
    """Ids of the conversations of the held-out half that break it."""
    status: RuleStatus


class Halves(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations by what they are used for."""

    searched: tuple[Trace, ...]
    """Rules are looked for in these."""
    held_out: tuple[Trace, ...]
    """These test the rules."""


def split_traces(traces: Iterable[Trace]) -> Halves:
    """Split conversations into two halves by a hash of their ids; the first one has one more where they are
    an odd number. The same conversations give the same halves, in whichever order they come."""
    by_hash = sorted(traces, key=lambda trace: hashlib.sha256(trace.conversation.encode()).digest())
    middle = (len(by_hash) + 1) // 2
    return Halves(searched=tuple(by_hash[:middle]), held_out=tuple(by_hash[middle:]))


class _Findings(msgspec.Struct, kw_only=True):
    """What some conversations say about all rules at once."""

    users: Counter[str] = msgspec.field(default_factory=Counter)
    """By tool: conversations that call it."""
    preceded: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By tool and other: conversations in which every call of the tool has a success of the other before."""
    both: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By tool and other: conversations that call the tool, and in which the other succeeds."""
    followed: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By tool and other: conversations with a call of the tool after a success of the other."""
    most_calls: Counter[str] = msgspec.field(default_factory=Counter)
    """By tool: the most calls of a turn."""


class _CallOrder(msgspec.Struct, kw_only=True):
    """What one conversation says about all rules at once."""

    called: set[str] = msgspec.field(default_factory=set)
    succeeded: set[str] = msgspec.field(default_factory=set)
    always_before: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """By tool: those that had succeeded before each of its calls."""
    ever_before: dict[str, set[str]] = msgspec.field(default_factory=dict)
    """By tool: those that had succeeded before one of its calls."""
    most_calls: Counter[str] = msgspec.field(default_factory=Counter)

    def keeps(self, rule: Rule) -> bool | None:
        """Whether it keeps the rule; None where it is not about the rule."""
        if rule.tool not in self.called:
            return None
        if rule.kind == "precedence":
            return rule.other in self.always_before[rule.tool]
        if rule.kind == "count":
            return self.most_calls[rule.tool] <= rule.count
        if rule.other not in self.succeeded:
            return None
        return rule.other not in self.ever_before[rule.tool]


def _read_order(trace: Trace) -> _CallOrder:
    order = _CallOrder()
    for turn in trace.turns:
        in_turn = Counter[str]()
        for reply in turn.replies:
            before = frozenset(order.succeeded)
            earlier = Counter(in_turn)
            for call in reply:
                earlier[call.name] += 1
                if call.has_run:
                    name = call.name
                    order.called.add(name)
                    order.always_before[name] = order.always_before.get(name, set(before)) & before
                    order.ever_before.setdefault(name, set()).update(before)
                    order.most_calls[name] = max(order.most_calls[name], earlier[name])
            in_turn.update(call.name for call in reply if call.outcome not in DID_NOT_RUN)
            order.succeeded.update(call.name for call in reply if call.outcome == "succeeded")
    return order


def find_rules(halves: Halves, support: int) -> list[TestedRule]:
    """The rules that the first half suggests, each tested on the held-out half, in a fixed order.

    A precedence that follows from two others is left out: where A needs B and B needs C, A needs C.

    Args:
        support: conversations of the first half that a rule must have. At least half as many of the held-out
            half must be about it, else it is not tested.
    """
    searched = [_read_order(trace) for trace in halves.searched]
    candidates = _find_candidates(searched, support)
    held_out = [(trace.conversation, _read_order(trace)) for trace in halves.held_out]
    tested = [_test_rule(rule, found, held_out, (support + 1) // 2) for rule, found in candidates]
    kept = {each.rule for each in tested if each.status == "kept"}
    return [each for each in tested if not _follows(each.rule, kept)]


def _find_candidates(orders: Sequence[_CallOrder], support: int) -> list[tuple[Rule, int]]:
    """The rules that enough conversations support and none breaks, with the number of those."""
    findings = _Findings()
    for order in orders:
        findings.users.update(order.called)
        for name in order.called:
            findings.preceded.update((name, other) for other in order.always_before[name] if other != name)
            findings.both.update((name, other) for other in order.succeeded if other != name)
            findings.followed.update((name, other) for other in order.ever_before[name])
            findings.most_calls[name] = max(findings.most_calls[name], order.most_calls[name])
    candidates = [
        (Rule(tool=tool, kind="precedence", other=other), count)
        for (tool, other), count in findings.preceded.items()
        if count == findings.users[tool]
    ]
    candidates += [
        (Rule(tool=tool, kind="absence", other=other), count)
        for (tool, other), count in findings.both.items()
        if not findings.followed[tool, other]
    ]
    candidates += [
        (Rule(tool=tool, kind="count", count=findings.most_calls[tool]), count)
        for tool, count in findings.users.items()
        if findings.most_calls[tool] <= MOST_CALLS
    ]
    return sorted((rule, count) for rule, count in candidates if count >= support)


def _test_rule(
    rule: Rule, support: int, held_out: Iterable[tuple[str, _CallOrder]], least: int
) -> TestedRule:
    answers = [(name, order.keeps(rule)) for name, order in held_out]
    counterexamples = tuple(sorted(name for name, answer in answers if answer is False))
    held_out_support = sum(answer is True for _, answer in answers)
    status: RuleStatus = "kept" if held_out_support >= least else "untested"
    return TestedRule(
        rule=rule,
        support=support,
        held_out_support=held_out_support,
        counterexamples=counterexamples,
        status="contradicted" if counterexamples else status,
    )


def _follows(rule: Rule, kept: set[Rule]) -> bool:
    """Whether a precedence follows from two that are kept. They have no cycle: the first call of one in a
    conversation would have to come before itself."""
    return rule.kind == "precedence" and any(
        Rule(tool=between.other, kind="precedence", other=rule.other) in kept
        for between in kept
        if between.kind == "precedence" and between.tool == rule.tool and between.other != rule.other
    )
