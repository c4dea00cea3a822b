"""The planner: just another tool, whose plan lives in the conversation's log.

Every result holds the whole plan, so the newest planner result of a conversation is the plan. Nothing
is kept here between turns: a conversation that goes on tomorrow, elsewhere, has its plan with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.context import CallContext

MOST_STEPS = 50
LONGEST_STEP = 300
"""Characters; with the number of steps it keeps a plan short enough to be shown whole."""

MOST_UNDER_WAY = 64
"""Conversations whose reply under way is remembered."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": ["create_plan", "update_plan", "mark_done", "read_plan"],
            "description": "create_plan: begin a plan; update_plan: replace its steps, done ones "
            "stay done; mark_done: a step is finished; read_plan: look at it.",
        },
        "goal": {"type": "string", "maxLength": 500, "description": "create_plan: what it is for."},
        "steps": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": LONGEST_STEP},
            "minItems": 1,
            "maxItems": MOST_STEPS,
            "description": "create_plan, update_plan: the steps in order.",
        },
        "step": {"type": "integer", "minimum": 1, "description": "mark_done: number of the step."},
        "note": {"type": "string", "maxLength": 300, "description": "mark_done: what came of it."},
    },
    "required": ["action"],
}

Plan = dict[str, Any]


class Planner:
    """Runs planner calls.

    Calls of one reply do not see each other's results in the snapshot yet, so the newest plan of the
    reply under way is remembered, for that reply alone.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[tuple[int, int, int], Plan]] = {}

    def __call__(self, arguments: Mapping[str, Any], context: CallContext) -> Plan:
        """The plan after the action.

        Raises:
            ToolFailure: there is no plan yet, or the action cannot be done.
        """
        plan = changed(self._current(context), arguments)
        if context.conversation:
            known = list(self._under_way.items())[-MOST_UNDER_WAY:]
            self._under_way = {**dict(known), context.conversation: (_place(context), plan)}
        return plan

    def _current(self, context: CallContext) -> Plan | None:
        place, plan = self._under_way.get(context.conversation, (None, None))
        if plan is not None and place == _place(context):
            return plan
        return newest_plan(context)


def _place(context: CallContext) -> tuple[int, int, int]:
    """What is the same for all calls of one reply."""
    return context.turn, context.iteration, len(context.messages)


def newest_plan(context: CallContext) -> Plan | None:
    """The plan of the conversation: that of the newest good result of this tool."""
    for name, result in reversed(context.siblings):
        if name == context.tool and result.get("success"):
            return _as_plan(result.get("result"))
    for place in range(len(context.messages) - 1, -1, -1):
        message = context.messages[place]
        if message.role == "tool" and message.name == context.tool:
            plan = _read(message.content or "")
            if plan is not None:
                return plan
    return None


def _read(content: str) -> Plan | None:
    try:
        result = json.loads(content)
    except ValueError:
        return None
    return _as_plan(result.get("result")) if isinstance(result, dict) else None


def _as_plan(value: Any) -> Plan | None:
    return value if isinstance(value, dict) and isinstance(value.get("steps"), list) else None


def changed(plan: Plan | None, arguments: Mapping[str, Any]) -> Plan:
    """The plan after an action; pure.

    Raises:
        ToolFailure: the action cannot be done.
    """
    action = arguments["action"]
    if action == "create_plan":
        return _plan(arguments.get("goal", ""), [_step(text) for text in _steps(arguments)])
    if plan is None:
        raise ToolFailure("there is no plan yet; create one with create_plan")
    if action == "update_plan":
        known = {step["text"]: step for step in plan["steps"] if step["done"]}
        steps = [known.get(text, _step(text)) for text in _steps(arguments)]
        return _plan(arguments.get("goal", plan["goal"]), steps)
    if action == "mark_done":
        return _plan(plan["goal"], _marked(plan["steps"], arguments))
    return plan


def _steps(arguments: Mapping[str, Any]) -> list[str]:
    if "steps" not in arguments:
        raise ToolFailure(f"{arguments['action']} needs 'steps'")
    return [str(text) for text in arguments["steps"]]


def _step(text: str) -> dict[str, Any]:
    return {"text": text, "done": False}


def _marked(steps: list[dict[str, Any]], arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    number = arguments.get("step")
    if number is None or not 1 <= number <= len(steps):
        raise ToolFailure(f"mark_done needs 'step', a number from 1 to {len(steps)}")
    done = {**steps[number - 1], "done": True}
    if "note" in arguments:
        done["note"] = arguments["note"]
    return [done if place == number - 1 else step for place, step in enumerate(steps)]


def _plan(goal: str, steps: list[dict[str, Any]]) -> Plan:
    numbered = [{**step, "step": place} for place, step in enumerate(steps, 1)]
    open_ = [step["step"] for step in numbered if not step["done"]]
    return {
        "goal": goal,
        "steps": numbered,
        "done": len(numbered) - len(open_),
        "next": open_[0] if open_ else None,
    }
