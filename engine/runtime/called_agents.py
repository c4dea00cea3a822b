"""Agents behind tools: a call of the model runs another agent as a child conversation.

The child is one as `run_agent` has it. Its id derives from the effect `run_tools` and the place of the call
in the reply, its first record is linked to the one that asked for the call, and the outcome of the call names
its newest record. So it is found again after a crash, and never run twice. What it used counts in the
parent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from toolchart.engine.log.family import read_parent
from toolchart.engine.runtime.parts import ChildTask, DriverPort
from toolchart.specs.child_agents import MAX_DEPTH
from toolchart.specs.models import AgentSpec
from toolchart.specs.turn_plan import select_handler
from toolchart.states.core.building import share_budgets
from toolchart.states.effects import RunAgent
from toolchart.states.events import AgentFailed, AgentFinished, ToolFinished
from toolchart.states.json_bounds import check_foreign_json
from toolchart.states.ports import Store
from toolchart.tools.definition import ToolFailure, ToolPending
from toolchart.tools.execution.context import CallContext


class AgentCalls:
    """The agents that the calls of one conversation run.

    Args:
        get_driver: returns the driver of the conversation.
    """

    def __init__(self, spec: AgentSpec, store: Store, get_driver: Callable[[], DriverPort]) -> None:
        self._spec = spec
        self._store = store
        self._get_driver = get_driver
        self._answers: dict[str, AgentFinished | AgentFailed] = {}
        """How children ended, by the ids of the calls that ran them, until the outcomes are recorded."""
        self._open_tasks: dict[str, ChildTask] = {}
        """Children whose calls run now, by the ids of the calls."""

    async def run(self, context: CallContext, agent: Mapping[str, Any], message: str) -> Any:
        """Run an agent for a call, or go on with it.

        Returns:
            The agent's answer: JSON data where its handler demands a form, else the text.

        Raises:
            ToolFailure: the agent failed, waits for somebody, or stands too deep.
        """
        task = self._build_task(context, agent, message)
        self._refuse_depth(task.parent)
        children = task.dependencies.children if task.dependencies is not None else None
        if children is None:
            raise ToolFailure("no agent can be run here")
        self._open_tasks[context.call_id] = task
        answer = await children.run_child(task)
        if isinstance(answer, AgentFinished):
            self._answers[context.call_id] = answer
            return self._read_answer(agent, answer.content)
        if isinstance(answer, AgentFailed):
            self._answers[context.call_id] = answer
            raise ToolFailure(f"the agent failed ({answer.kind}): {answer.message}")
        if answer is None:
            raise ToolPending  # it waits for a person: the call is run again when somebody has answered
        raise ToolFailure("the agent waits for the user's next message, which it cannot get behind a tool")

    async def add_to(self, outcome: ToolFinished) -> ToolFinished:
        """The outcome of a call with what its child has used, and its newest record.

        A child that is still open, since the call took too long for instance, is cancelled.
        """
        task = self._open_tasks.pop(outcome.call_id, None)
        if task is None:
            return outcome
        answer: Any = self._answers.pop(outcome.call_id, None)
        if answer is None and task.dependencies is not None and task.dependencies.children is not None:
            answer = await task.dependencies.children.cancel_child(task)
        if answer is None:
            return outcome
        return replace(
            outcome, conversation=answer.conversation, item=answer.item, head=answer.head, usage=answer.usage
        )

    def _build_task(self, context: CallContext, agent: Mapping[str, Any], message: str) -> ChildTask:
        driver = self._get_driver()
        calls = [open_call.call.id for open_call in context.reply_calls]
        item = calls.index(context.call_id)
        effect = RunAgent(
            id=context.effect,
            name=context.tool,
            state=driver.snapshot.state,
            kind="run_agent",
            result=context.tool,
            agent=dict(agent),
            messages=("",) * item + (message,),
            limits=share_budgets(driver.snapshot, driver.snapshot.calls.pending or 1),
            is_list=True,
        )
        return ChildTask(
            parent=context.conversation,
            effect=effect,
            item=item,
            variables=driver.snapshot.variables,
            dependencies=driver.dependencies,
        )

    def _refuse_depth(self, conversation: str) -> None:
        depth, link = 0, read_parent(self._store, conversation)
        while link is not None and depth < MAX_DEPTH:
            depth, link = depth + 1, read_parent(self._store, str(link["conversation"]))
        if depth == MAX_DEPTH:
            raise ToolFailure(f"agents run each other more than {MAX_DEPTH} deep")

    def _read_answer(self, agent: Mapping[str, Any], content: str) -> Any:
        form = select_handler(self._spec, {}, agent.get("handler")).response_format
        if not form:
            return content
        try:
            check_foreign_json(content)
            return orjson.loads(content)
        except ValueError:
            return content
