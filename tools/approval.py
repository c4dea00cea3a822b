"""Approval: a small policy language, and grants that are good for one call.

    approval:
      - {tools: "read_*", decision: always}
      - {tools: [send_mail], when: {to: {glob: "*@example.com"}}, decision: always}
      - {tools: transfer, when: {amount: {gt: 1000}}, decision: never, reason: "over the limit"}
      - {tools: "*", decision: ask}

The first rule that matches decides. Without one, a tool with `risk: high` or `requires_approval`
asks and every other runs. Everything here is pure; who is asked, and how, is the engine's business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

from toolchart.states.canonical_json import canonical
from toolchart.states.errors import SpecError
from toolchart.states.events import Ruling
from toolchart.states.messages import ToolCall
from toolchart.states.suggestions import nearest
from toolchart.tools.definition import Tool
from toolchart.tools.execution.compiled_schema import is_number, same

Decision = Literal["always", "never", "ask"]

DECISIONS: dict[str, Ruling] = {"always": "run", "never": "denied", "ask": "needs_approval"}
"""What each decision means for the call."""

_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One comparison over one argument."""

    path: str
    """Name of the argument, dotted for what lies inside it."""
    operator: str
    operand: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of a policy."""

    tools: tuple[str, ...]
    """Globs over tool names."""
    conditions: tuple[Condition, ...] = ()
    """All of them must hold."""
    decision: Decision
    reason: str | None = None
    """Words for the model where the decision is `never`."""
    expires_s: float | None = None
    """How long an approval is good."""

    def matches(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Whether this rule decides about the call."""
        names = (tool.name, tool.alias) if tool.alias else (tool.name,)
        if not any(fnmatchcase(name, glob) for glob in self.tools for name in names):
            return False
        return all(holds(condition, arguments) for condition in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules in their order."""

    rules: tuple[Rule, ...] = ()

    def rule(self, tool: Tool, arguments: Mapping[str, Any]) -> Rule | None:
        """The rule that decides about a call, or None."""
        return next((rule for rule in self.rules if rule.matches(tool, arguments)), None)

    def ruling(self, tool: Tool, arguments: Mapping[str, Any]) -> tuple[Ruling, str | None]:
        """What happens to a good call: run, denied, needs_approval; and why."""
        rule = self.rule(tool, arguments) if self.rules else None
        if rule is None:
            asks = tool.requires_approval or tool.risk == "high"
            return ("needs_approval" if asks else "run"), None
        if rule.decision == "never":
            return "denied", rule.reason or f"the policy never lets {tool.name!r} run like this"
        return DECISIONS[rule.decision], None

    def may_ask(self, tool: Tool) -> bool:
        """Whether some rule asks about this tool, whatever its arguments."""
        names = (tool.name, tool.alias) if tool.alias else (tool.name,)
        return any(
            rule.decision == "ask" and fnmatchcase(name, glob)
            for rule in self.rules
            for glob in rule.tools
            for name in names
        )


def holds(condition: Condition, arguments: Mapping[str, Any]) -> bool:
    """Whether a condition holds; a missing argument fails every comparison but `exists: false`."""
    given: Any = arguments
    for part in condition.path.split("."):
        given = given.get(part, _MISSING) if isinstance(given, Mapping) else _MISSING
    if condition.operator == "exists":
        return (given is not _MISSING) is bool(condition.operand)
    return given is not _MISSING and _COMPARE[condition.operator](given, condition.operand)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison of numbers with numbers or texts with texts; anything else does not hold."""

    def check(given: Any, operand: Any) -> bool:
        alike = (is_number(given) and is_number(operand)) or (
            isinstance(given, str) and isinstance(operand, str)
        )
        return alike and compare(given, operand)

    return check


def _contains(given: Any, operand: Any) -> bool:
    if isinstance(given, str):
        return isinstance(operand, str) and operand in given
    return isinstance(given, list) and any(same(item, operand) for item in given)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": same,
    "ne": lambda given, operand: not same(given, operand),
    "gt": _ordered(lambda given, operand: given > operand),
    "ge": _ordered(lambda given, operand: given >= operand),
    "lt": _ordered(lambda given, operand: given < operand),
    "le": _ordered(lambda given, operand: given <= operand),
    "in": lambda given, operand: any(same(given, one) for one in operand),
    "not_in": lambda given, operand: not any(same(given, one) for one in operand),
    "glob": lambda given, operand: isinstance(given, str) and fnmatchcase(given, operand),
    "regex": lambda given, operand: (
        isinstance(given, str) and re.fullmatch(operand, given[:10_000]) is not None
    ),
    "contains": _contains,
}

OPERATORS = (*_COMPARE, "exists")
"""What a condition may compare by."""


# -- reading -------------------------------------------------------------------------------------

_KEYS = ("tools", "when", "decision", "reason", "expires_s", "comment")


def parse_policy(data: Any, place: str = "approval") -> Policy:
    """The policy of a spec's `approval` section: a list of rules, or `{rules: [...]}`.

    Raises:
        SpecError: not a policy, with the key path, what is allowed and the nearest key.
    """
    if data is None:
        return Policy()
    if isinstance(data, Mapping):
        _known(data, ("rules", "comment"), place)
        data, place = data.get("rules", []), f"{place}.rules"
    if not isinstance(data, list):
        raise SpecError("expected a list of rules", path=place, hint=_EXAMPLE)
    return Policy(rules=tuple(_rule(one, f"{place}[{i}]") for i, one in enumerate(data)))


_EXAMPLE = 'for instance: - {tools: "delete_*", when: {path: {glob: "/tmp/*"}}, decision: ask}'


def _rule(data: Any, place: str) -> Rule:
    if not isinstance(data, Mapping):
        raise SpecError("expected a rule", path=place, hint=_EXAMPLE)
    _known(data, _KEYS, place)
    decision = data.get("decision")
    if decision not in DECISIONS:
        hint = nearest(str(decision), DECISIONS)
        raise SpecError(f"{decision!r} is no decision", path=f"{place}.decision", hint=hint)
    expires_s = data.get("expires_s")
    if expires_s is not None and not (is_number(expires_s) and expires_s > 0):
        raise SpecError(f"{expires_s!r} is no number of seconds", path=f"{place}.expires_s")
    return Rule(
        tools=_globs(data.get("tools", "*"), f"{place}.tools"),
        conditions=_conditions(data.get("when") or {}, f"{place}.when"),
        decision=decision,
        reason=data.get("reason"),
        expires_s=expires_s,
    )


def _globs(data: Any, place: str) -> tuple[str, ...]:
    globs = [data] if isinstance(data, str) else data
    if not isinstance(globs, list) or not globs or not all(isinstance(one, str) for one in globs):
        raise SpecError("expected a glob or a list of globs over tool names", path=place)
    return tuple(globs)


def _conditions(data: Any, place: str) -> tuple[Condition, ...]:
    if not isinstance(data, Mapping):
        raise SpecError(
            "expected a mapping from arguments to conditions", path=place, hint=_EXAMPLE
        )
    return tuple(
        condition
        for path, said in data.items()
        for condition in _of_argument(str(path), said, place)
    )


def _of_argument(path: str, said: Any, place: str) -> Sequence[Condition]:
    """A plain value means equality, a list means one of them, a mapping names operators."""
    if isinstance(said, list):
        return [Condition(path=path, operator="in", operand=said)]
    if not isinstance(said, Mapping):
        return [Condition(path=path, operator="eq", operand=said)]
    _known(said, OPERATORS, f"{place}.{path}")
    for operator, operand in said.items():
        _check_operand(operator, operand, f"{place}.{path}.{operator}")
    return [Condition(path=path, operator=op, operand=operand) for op, operand in said.items()]


def _check_operand(operator: str, operand: Any, place: str) -> None:
    if operator in ("in", "not_in") and not isinstance(operand, list):
        raise SpecError("expected a list", path=place)
    if operator in ("glob", "regex") and not isinstance(operand, str):
        raise SpecError("expected a text", path=place)
    if operator in ("gt", "ge", "lt", "le") and not (
        is_number(operand) or isinstance(operand, str)
    ):
        raise SpecError("expected a number or a text", path=place)
    if operator == "regex":
        try:
            re.compile(operand)
        except re.error as error:
            raise SpecError(f"not a regular expression: {error}", path=place) from None


def _known(data: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in data:
        if key not in known:
            hint = nearest(str(key), known)
            raise SpecError(f"unknown key {key!r}", path=place, hint=hint)


# -- grants --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Leave for one run of one call: this conversation, this id, this tool, these arguments."""

    digest: str
    expires_at: datetime | None = None

    def covers(self, conversation: str, call: ToolCall, now: datetime | None = None) -> bool:
        """Whether it is leave for this very call, at this time."""
        if self.expires_at is not None and (now is None or now >= self.expires_at):
            return False
        return self.digest == _digest(conversation, call)


def grant_of(
    conversation: str,
    call: ToolCall,
    *,
    decided_at: datetime | None = None,
    expires_s: float | None = None,
) -> Grant:
    """The grant for a call as it was approved, its arguments as they were changed then.

    Args:
        decided_at, expires_s: when the decision fell, and how long it is good; without both it does
            not expire.
    """
    ends = None
    if decided_at is not None and expires_s is not None:
        ends = decided_at + timedelta(seconds=expires_s)
    return Grant(digest=_digest(conversation, call), expires_at=ends)


def _digest(conversation: str, call: ToolCall) -> str:
    parts = [conversation, call.id, call.name, call.arguments, call.raw]
    return hashlib.sha256(canonical(parts)).hexdigest()
