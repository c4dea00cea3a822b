"""The review of a tool call before it runs: known, allowed, parsed, valid, approved.

The same checks are made again just before the run. Which tools the model was offered, and how the call
was judged earlier, never decide whether it may run.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from toolchart.states.events import Outcome, Verdict
from toolchart.states.messages import ToolCall
from toolchart.tools.approval import Policy
from toolchart.tools.definition import Tool
from toolchart.tools.execution.argument_repair import repair_json_text
from toolchart.tools.execution.examination import ArgumentExaminer
from toolchart.tools.registry import Registry


class CallJudgement(NamedTuple):
    """Whether a call is good, and with which arguments it would run."""

    tool: Tool | None
    arguments: dict[str, Any]
    """Repaired, and without parameters that the tool does not have."""
    notes: tuple[str, ...]
    """What was repaired or dropped."""
    outcome: Outcome | None
    """How the call ends without a run; None where the call is good."""
    reason: str
    """Why it does not run, in words for the model."""


class CallReviewer:
    """Judges calls against a registry's tools and schemas, and against the approval policy."""

    def __init__(self, registry: Registry, policy: Policy) -> None:
        self._registry = registry
        self._policy = policy
        self._has_slow_patterns = policy.has_slow_patterns
        self._examiners: dict[str, ArgumentExaminer] = {}
        for tool in registry:
            self.examine_by(tool, is_trusted=tool.kind == "builtin")

    def examine_by(self, tool: Tool, *, is_trusted: bool = False) -> None:
        """Check arguments by the schema of this tool from now on.

        Raises:
            SpecError: the schema is not valid.
        """
        self._examiners[tool.name] = ArgumentExaminer(
            tool.definition.parameters, tool.name, is_trusted=is_trusted
        )

    def may_wait(self, call: ToolCall) -> bool:
        """Whether judging the call may wait for a worker; the event loop must not wait meanwhile."""
        examiner = self._examiners.get(call.name)
        if examiner is None:
            tool = self._registry.get(call.name)  # by its alias
            if tool is None:
                return False
            examiner = self._examiners[tool.name]
        return self._has_slow_patterns or not examiner.is_cheap(call.arguments or {})

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """Decide what happens to a call: it runs, needs approval, is denied or is invalid.

        Never raises, and takes a limited time.
        """
        judgement = self.judge_call(call, allowed_tools)
        if judgement.outcome is not None:
            ruling = "denied" if judgement.outcome == "denied" else "invalid"
            return Verdict(call_id=call.id, ruling=ruling, reason=judgement.reason)  # type: ignore[arg-type]
        assert judgement.tool is not None, "a good call has a tool"
        policy_ruling, reason = self._policy.find_ruling(
            judgement.tool, judgement.arguments, is_from_text=call.is_from_text
        )
        return Verdict(
            call_id=call.id,
            ruling=policy_ruling,
            reason=reason,
            arguments=judgement.arguments if judgement.notes else None,
            notes=judgement.notes,
            may_repeat=judgement.tool.repeatable,
            definition=(
                self._registry.describe_tool(judgement.tool.name)
                if policy_ruling == "needs_approval"
                else None
            ),
        )

    def judge_call(self, call: ToolCall, allowed_tools: Sequence[str]) -> CallJudgement:
        """Check that the tool is known and allowed and that the arguments can be read and are valid.

        Arguments are repaired at most once.
        """
        tool = self._registry.get(call.name)
        if tool is None:
            name = shorten_name(call.name)
            reason = f"Tool {name!r} not found; {self._registry.suggest_name(name)}"
            return CallJudgement(None, {}, (), "failed", reason)
        if call.name not in allowed_tools and not _is_allowed(tool, allowed_tools):
            allowed_names = ", ".join(allowed_tools) or "none"
            reason = f"Tool {call.name!r} is not allowed here; allowed: {allowed_names}"
            return CallJudgement(tool, {}, (), "denied", reason)
        arguments = call.arguments
        notes: tuple[str, ...] = ()
        if arguments is None:
            repaired_json = repair_json_text(call.raw)
            if repaired_json is None:
                problem = call.problem or "they could not be read"
                return _judge_invalid(tool, call, problem)
            arguments, notes = repaired_json[0], (str(repaired_json[1]),)
        return self._judge_arguments(tool, call, arguments, notes)

    def _judge_arguments(
        self, tool: Tool, call: ToolCall, arguments: dict[str, Any], notes: tuple[str, ...]
    ) -> CallJudgement:
        """Validate the arguments; repair them once and drop unknown parameters where needed."""
        examination = self._examiners[tool.name].examine(arguments)
        if examination.problem is not None:
            return _judge_invalid(tool, call, examination.problem)
        return CallJudgement(tool, examination.arguments, (*notes, *examination.notes), None, "")


def _judge_invalid(tool: Tool, call: ToolCall, problem: str) -> CallJudgement:
    reason = f"Invalid arguments for {call.name!r}: {problem}"
    return CallJudgement(tool, {}, (), "failed", reason)


def shorten_name(name: str) -> str:
    """A tool name for a result text; a model may invent a name of any length."""
    return name if len(name) <= 100 else name[:97] + "..."


def _is_allowed(tool: Tool, allowed_tools: Sequence[str]) -> bool:
    """Whether the list holds the tool's name, its alias, or a glob that matches one of them."""
    names = (tool.name, tool.alias) if tool.alias else (tool.name,)
    return any(fnmatchcase(name, glob) for glob in allowed_tools for name in names)
