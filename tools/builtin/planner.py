"""The `planner` tool: keeps a plan of steps in the log of the conversation.

Each result holds the whole plan, so the newest planner result of a conversation is its plan. The tool
stores nothing between turns. A conversation that continues in another process still has its plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchart.states.json_bounds import parse_foreign_json
from toolchart.tools.definition import ToolFailure
from toolchart.tools.execution.context import CallContext

MAX_STEPS = 50
MAX_STEP_LENGTH = 300
"""Characters of a step. Together with `MAX_STEPS` it keeps a plan short enough to show it whole."""

MAX_RECENT_PLANS = 64
"""Number of conversations whose plan of the current reply is remembered."""

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
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_STEP_LENGTH},
            "minItems": 1,
            "maxItems": MAX_STEPS,
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

    The snapshot does not yet hold the results of other calls in the same reply. So the planner remembers
    the newest plan of the current reply, and only of that one.
    """

    def __init__(self) -> None:
        self._recent_plans: dict[str, tuple[tuple[int, int, int], Plan]] = {}

    def __call__(self, arguments: Mapping[str, Any], context: CallContext) -> Plan:
        """Apply an action and return the whole plan.

        Raises:
            ToolFailure: there is no plan yet, or the action is not possible.
        """
        plan = apply_action(self._find_plan(context), arguments)
        if context.conversation:
            recent = list(self._recent_plans.items())[-MAX_RECENT_PLANS:]
            self._recent_plans = {**dict(recent), context.conversation: (_get_reply_position(context), plan)}
        return plan

    def _find_plan(self, context: CallContext) -> Plan | None:
        position, plan = self._recent_plans.get(context.conversation, (None, None))
        if plan is not None and position == _get_reply_position(context):
            return plan
        return find_newest_plan(context)


def _get_reply_position(context: CallContext) -> tuple[int, int, int]:
    """A value that is equal for all calls of one reply and differs between replies."""
    return context.turn, context.iteration, len(context.messages)


def find_newest_plan(context: CallContext) -> Plan | None:
    """The plan of the newest successful planner result of the conversation, or None."""
    for name, result in reversed(context.list_finished_siblings()):
        if name == context.tool and result.get("success"):
            return _accept_plan(result.get("result"))
    for index in range(len(context.messages) - 1, -1, -1):
        message = context.messages[index]
        if message.role == "tool" and message.name == context.tool:
            plan = _parse_plan(message.content or "")
            if plan is not None:
                return plan
    return None


def _parse_plan(content: str) -> Plan | None:
    try:
        result = parse_foreign_json(content)
    except ValueError:
        return None
    return _accept_plan(result.get("result")) if isinstance(result, dict) else None


def _accept_plan(value: Any) -> Plan | None:
    return value if isinstance(value, dict) and isinstance(value.get("steps"), list) else None


def apply_action(plan: Plan | None, arguments: Mapping[str, Any]) -> Plan:
    """The plan after an action; the given plan does not change.

    Raises:
        ToolFailure: the action is not possible.
    """
    action = arguments["action"]
    if action == "create_plan":
        return _make_plan(
            arguments.get("goal", ""), [_make_step(text) for text in _get_step_texts(arguments)]
        )
    if plan is None:
        raise ToolFailure("there is no plan yet; create one with create_plan")
    if action == "update_plan":
        finished_steps = {step["text"]: step for step in plan["steps"] if step["done"]}
        steps = [finished_steps.get(text, _make_step(text)) for text in _get_step_texts(arguments)]
        return _make_plan(arguments.get("goal", plan["goal"]), steps)
    if action == "mark_done":
        return _make_plan(plan["goal"], _mark_step_done(plan["steps"], arguments))
    return plan


def _get_step_texts(arguments: Mapping[str, Any]) -> list[str]:
    if "steps" not in arguments:
        raise ToolFailure(f"{arguments['action']} needs 'steps'")
    return [str(text) for text in arguments["steps"]]


def _make_step(text: str) -> dict[str, Any]:
    return {"text": text, "done": False}


def _mark_step_done(steps: list[dict[str, Any]], arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    number = arguments.get("step")
    if number is None or not 1 <= number <= len(steps):
        raise ToolFailure(f"mark_done needs 'step', a number from 1 to {len(steps)}")
    done = {**steps[number - 1], "done": True}
    if "note" in arguments:
        done["note"] = arguments["note"]
    return [done if index == number - 1 else step for index, step in enumerate(steps)]


def _make_plan(goal: str, steps: list[dict[str, Any]]) -> Plan:
    numbered_steps = [{**step, "step": number} for number, step in enumerate(steps, 1)]
    open_steps = [step["step"] for step in numbered_steps if not step["done"]]
    return {
        "goal": goal,
        "steps": numbered_steps,
        "done": len(numbered_steps) - len(open_steps),
        "next": open_steps[0] if open_steps else None,
    }
