"""The approval policy of a spec: rules that say which calls need a person.

    approval:
      - {tools: "read_*", decision: always}
      - {tools: [send_mail], when: {to: {glob: "*@example.com"}}, decision: always}
      - {tools: transfer, when: {amount: {gt: 1000}}, decision: never, reason: "over the limit"}
      - {tools: "*", decision: ask}

The first rule that matches a call decides. A rule whose conditions cannot be compared with the call's values
(`conditions.py`) fails closed: with `never` and `ask` it matches, with `always` it does not. Where no rule
matches, `{default: ask | never, rules: [...]}` decides; without a default a tool with `risk: high` or
`requires_approval` needs approval and every other tool runs. With `require_signatures: true` only a decision
counts that one of the spec's approvers signed (`approvers.py`). This module asks nobody: that is the engine's
part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import Ruling
from toolchart.tools.approvers import Approvers, parse_approvers
from toolchart.tools.conditions import OPERATORS, Condition
from toolchart.tools.definition import Tool
from toolchart.tools.receipts import Receipts
from toolchart.tools.schemas.checks import is_number

Decision = Literal["always", "never", "ask"]

DECISIONS: dict[str, Ruling] = {"always": "run", "never": "denied", "ask": "needs_approval"}
"""By decision: the ruling on the call."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of a policy."""

    tools: tuple[str, ...]
    """Globs over tool names."""
    conditions: tuple[Condition, ...] = ()
    """All of them must be true."""
    decision: Decision
    reason: str | None = None
    """Text for the model where the decision is `never`."""
    expires_s: float | None = None
    """Seconds for which an approval is valid."""

    def names_tool(self, tool: Tool) -> bool:
        """Whether this rule is about the tool."""
        names = (tool.name, tool.alias) if tool.alias else (tool.name,)
        return any(fnmatchcase(name, glob) for glob in self.tools for name in names)

    def matches(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Whether this rule decides about the call."""
        if not self.names_tool(tool):
            return False
        schema = tool.definition.parameters
        answers = [condition.compare(arguments, schema) for condition in self.conditions]
        if False in answers:
            return False
        # Fails closed: what cannot be compared lets no call run, and never spares one the question or the
        # refusal.
        return None not in answers or self.decision != "always"


class IdleGlob(msgspec.Struct, frozen=True, kw_only=True):
    """A glob of a rule that matches no tool."""

    rule_index: int
    message: str
    is_dead: bool
    """Whether a call may run that the rule was to hold back: it names one tool, to ask or to refuse, and
    nothing else asks about every call. A pattern may be a precaution, and `always` holds nothing back."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules in their order."""

    rules: tuple[Rule, ...] = ()
    default: Decision | None = None
    """What no rule names; None leaves it to the tool's own flags."""
    require_signatures: bool = False
    """Whether a decision without a valid signature is refused."""
    approvers: Approvers = Approvers()
    """Who may sign."""
    receipts: Receipts | None = None
    """Where the use of each signed approval is noted; None where the log alone remembers it."""

    def find_rule(self, tool: Tool, arguments: Mapping[str, Any]) -> Rule | None:
        """The first rule that matches the call, or None."""
        return next((rule for rule in self.rules if rule.matches(tool, arguments)), None)

    def find_ruling(
        self, tool: Tool, arguments: Mapping[str, Any], *, is_from_text: bool = False
    ) -> tuple[Ruling, str | None]:
        """The ruling on a valid call (run, denied or needs_approval), and its reason.

        Args:
            is_from_text: the call may be quoted from what the model read; it asks where nothing else
                decides.
        """
        rule = self.find_rule(tool, arguments) if self.rules else None
        decision = rule.decision if rule else self.default
        if tool.pin_problem is not None and decision != "never":
            # The rule was written for the tool that was pinned.
            return "needs_approval", tool.pin_problem
        if decision is None:
            needs_approval = tool.requires_approval or tool.risk == "high" or is_from_text
            return ("needs_approval" if needs_approval else "run"), None
        if decision == "never":
            reason = rule.reason if rule else None
            return "denied", reason or f"the approval policy forbids this call of {tool.name!r}"
        return DECISIONS[decision], None

    def may_ask(self, asks_by_itself: bool) -> bool:
        """Whether a call may need a person's decision.

        Args:
            asks_by_itself: whether some call asks where no rule says otherwise.
        """
        if self.default == "ask" or any(rule.decision == "ask" for rule in self.rules):
            return True
        return asks_by_itself and self.default is None

    @property
    def may_wait(self) -> bool:
        """Whether a ruling may wait for a worker."""
        return any(condition.may_wait for rule in self.rules for condition in rule.conditions)

    def list_idle_globs(
        self, names: Collection[str], may_exist: Callable[[str], bool] = lambda glob: False
    ) -> list[IdleGlob]:
        """The globs that match no tool.

        Args:
            names: of all tools that are known.
            may_exist: whether a glob may match a tool that is not known.
        """
        spares_none = self.default is not None or any(
            "*" in rule.tools and rule.decision != "always" and not rule.conditions for rule in self.rules
        )
        return [
            IdleGlob(
                rule_index=index,
                message=f"approval rule {index + 1} ({rule.decision}) names {glob!r}, which matches no tool "
                f"({suggest_name(glob, names) if names else 'the agent has none'})",
                is_dead=rule.decision != "always" and not spares_none and not set(glob) & set("*?["),
            )
            for index, rule in enumerate(self.rules)
            for glob in rule.tools
            if glob != "*" and not any(fnmatchcase(name, glob) for name in names) and not may_exist(glob)
        ]

    def list_warnings(self, tools: Collection[Tool]) -> list[str]:
        """One warning for each glob that matches no tool, and those of `list_type_warnings`."""
        names = dict.fromkeys(name for tool in tools for name in (tool.name, tool.alias) if name)
        return [*(idle.message for idle in self.list_idle_globs(names)), *self.list_type_warnings(tools)]

    def list_type_warnings(self, tools: Collection[Tool]) -> list[str]:
        """One warning for each condition whose argument may have a type that cannot be compared."""
        warnings: list[str] = []
        for tool in tools:
            for number, rule in enumerate(self.rules):
                for condition in rule.conditions if rule.names_tool(tool) else ():
                    problem = condition.find_open_type(tool.definition.parameters)
                    if problem is not None:
                        effect = "does not match then" if rule.decision == "always" else "matches then"
                        warnings.append(
                            f"approval rule {number + 1} ({rule.decision}) for {tool.name!r}: {problem}; "
                            f"the rule {effect}"
                        )
        return warnings


# -- parsing -------------------------------------------------------------------------------------

_RULE_KEYS = ("tools", "when", "decision", "reason", "expires_s", "comment")


_POLICY_KEYS = ("rules", "default", "require_signatures", "receipts", "comment")


def parse_policy(
    data: Any, path: str = "approval", *, approvers: Any = None, base_folder: Path | None = None
) -> Policy:
    """Parse a spec's `approval` section: a list of rules, or `{default: ..., rules: [...]}`.

    Args:
        approvers: the spec's `approvers` section.
        base_folder: where a relative folder of receipts begins; None is the working directory.

    Raises:
        SpecError: not a policy, with the key path, what is allowed and the most similar key.
    """
    known_approvers = parse_approvers(approvers)
    section = data if isinstance(data, Mapping) else {}
    _check_keys(section, _POLICY_KEYS, path)
    default, must_sign = section.get("default"), section.get("require_signatures", False)
    if default not in (None, "ask", "never"):
        raise SpecError(f"{default!r} is no default", path=f"{path}.default", hint="ask or never")
    if not isinstance(must_sign, bool):
        raise SpecError("expected true or false", path=f"{path}.require_signatures")
    if must_sign and not known_approvers.keys:
        raise SpecError(
            "nobody could approve: the spec names no approvers",
            path=f"{path}.require_signatures",
            hint="add `approvers: {NAME: [{key: ...}]}`; `toolchart approve --new-key FILE` makes a key",
        )
    folder = section.get("receipts")
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise SpecError("expected the path of a folder", path=f"{path}.receipts")
    if isinstance(data, Mapping):
        data, path = data.get("rules", []), f"{path}.rules"
    if not isinstance(data, list | None):
        raise SpecError("expected a list of rules", path=path, hint=_EXAMPLE)
    rules = (_parse_rule(rule, f"{path}[{index}]") for index, rule in enumerate(data or ()))
    return Policy(
        rules=tuple(rules),
        default=default,
        require_signatures=must_sign,
        approvers=known_approvers,
        receipts=None if folder is None else Receipts((base_folder or Path()) / folder),
    )


_EXAMPLE = 'for instance: - {tools: "delete_*", when: {path: {glob: "/tmp/*"}}, decision: ask}'


def _parse_rule(data: Any, path: str) -> Rule:
    if not isinstance(data, Mapping):
        raise SpecError("expected a rule", path=path, hint=_EXAMPLE)
    _check_keys(data, _RULE_KEYS, path)
    decision = data.get("decision")
    if decision not in DECISIONS:
        hint = suggest_name(str(decision), DECISIONS)
        raise SpecError(f"{decision!r} is not a decision", path=f"{path}.decision", hint=hint)
    expires_s = data.get("expires_s")
    if expires_s is not None and not (is_number(expires_s) and expires_s > 0):
        raise SpecError(f"{expires_s!r} is not a positive number of seconds", path=f"{path}.expires_s")
    return Rule(
        tools=_parse_globs(data.get("tools", "*"), f"{path}.tools"),
        conditions=_parse_conditions(data.get("when") or {}, f"{path}.when"),
        decision=decision,
        reason=data.get("reason"),
        expires_s=expires_s,
    )


def _parse_globs(data: Any, path: str) -> tuple[str, ...]:
    globs = [data] if isinstance(data, str) else data
    if not isinstance(globs, list) or not globs or not all(isinstance(glob, str) for glob in globs):
        raise SpecError("expected a glob or a list of globs over tool names", path=path)
    return tuple(globs)


def _parse_conditions(data: Any, path: str) -> tuple[Condition, ...]:
    if not isinstance(data, Mapping):
        raise SpecError("expected a mapping from arguments to conditions", path=path, hint=_EXAMPLE)
    return tuple(
        condition
        for argument, value in data.items()
        for condition in _parse_argument_conditions(str(argument), value, path)
    )


def _parse_argument_conditions(argument: str, value: Any, path: str) -> Sequence[Condition]:
    """A plain value means equality, a list means one of its items, a mapping names operators."""
    if isinstance(value, list):
        return [Condition(path=argument, operator="in", operand=value)]
    if not isinstance(value, Mapping):
        return [Condition(path=argument, operator="eq", operand=value)]
    _check_keys(value, OPERATORS, f"{path}.{argument}")
    for operator, operand in value.items():
        problem = OPERATORS[operator].find_problem(operand)
        if problem is not None:
            raise SpecError(problem, path=f"{path}.{argument}.{operator}")
    return [
        Condition(path=argument, operator=operator, operand=operand) for operator, operand in value.items()
    ]


def _check_keys(data: Mapping[str, Any], allowed_keys: Collection[str], path: str) -> None:
    for key in data:
        if key not in allowed_keys:
            hint = suggest_name(str(key), allowed_keys)
            raise SpecError(f"unknown key {key!r}", path=path, hint=hint)
