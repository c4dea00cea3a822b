"""The children of a fork: recorded answers are taken, and nothing runs twice that must not.

A child is not forked. Where the parent of the fork has an answer of the same agent to the same message, after
the shared records or for an effect that is open there, the fork takes it. Any other child is begun anew, as a
conversation of the fork; its tools ask before they run, unless they are idempotent.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from msgspec.structs import replace

from toolchart.engine.log.fork import ForkPlan
from toolchart.engine.log.replay import ReplayedStep
from toolchart.engine.runtime.dependencies import ChildRunner, ChildTask
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.effects import RunAgent
from toolchart.states.errors import NoRecordedAnswer
from toolchart.states.flows.events import AgentAnswering, AgentFailed, AgentFinished


class ForkChildren:
    """Runs the children of a fork.

    Args:
        steps: the replayed steps of the forked conversation, shared ones included.
        children: begins children that have no recorded answer; None where the log alone answers.
    """

    def __init__(self, plan: ForkPlan, steps: Iterable[ReplayedStep], children: ChildRunner | None) -> None:
        self._children = children
        self._answers: dict[str, deque[AgentAnswering]] = defaultdict(deque)
        open_ids = {effect.id for effect in plan.parent.snapshot.open_effects}
        runs: dict[int, RunAgent] = {}
        for replay_step in steps:
            step = replay_step.step
            runs |= {effect.id: effect for effect in step.effects if isinstance(effect, RunAgent)}
            event = replay_step.record.decode_event()
            if isinstance(event, AgentFinished | AgentFailed) and event.head and not step.is_late:
                is_new = event.effect in open_ids or replay_step.record.seq > plan.event.seq
                if is_new and event.effect in runs:
                    self._answers[_build_key(runs[event.effect], event.item)].append(event)

    async def run_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.run_child`.

        Raises:
            NoRecordedAnswer: the log alone answers, and has no answer.
        """
        answers = self._answers.get(_build_key(task.effect, task.item))
        if answers and not task.effect.rests:
            return replace(answers.popleft(), at="", effect=task.effect.id, item=task.item)
        if self._children is None:
            message = task.effect.messages[task.item]
            raise NoRecordedAnswer(f"the recorded conversation has no answer of an agent to {message!r}")
        return await self._children.run_child(task)

    async def cancel_child(self, task: ChildTask) -> AgentAnswering | None:
        """See `ChildRunner.cancel_child`."""
        return await self._children.cancel_child(task) if self._children is not None else None


def _build_key(effect: RunAgent, item: int) -> str:
    """What makes two children the same: the agent, what it is told and what it knows."""
    history = [(message.role, message.content) for message in effect.history]
    return encode_canonical_text([effect.agent, effect.messages[item], history])
