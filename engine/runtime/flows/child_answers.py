"""What a parent is told of a child: the events that answer `run_agent`."""

from __future__ import annotations

from toolchart.engine.runtime.dependencies import ChildTask
from toolchart.states.flows.events import AgentAnswering, AgentFailed, AgentFinished, AgentRested
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot
from toolchart.tools.schemas.output import parse_output


def build_answer(task: ChildTask, snapshot: Snapshot, head: str, at: str) -> AgentAnswering | None:
    """How the newest turn of a child went; None where it is open.

    Args:
        head: hash of the newest record of the child.
    """
    if not snapshot.is_over:
        return None
    content, error = snapshot.answer or "", snapshot.error
    if snapshot.awaits_user:
        return AgentRested(
            at=at,
            effect=task.effect.id,
            item=task.item,
            conversation=task.conversation,
            head=head,
            usage=snapshot.usage,
            content=content,
        )
    if error is not None:
        return build_failure(task, at, error.kind, error.message, head, snapshot)
    output = None
    if task.effect.schema is not None:
        output, problem = parse_output(content, task.effect.schema)
        if output is None:
            return build_failure(task, at, "bad_output", problem, head, snapshot)
    return AgentFinished(
        at=at,
        effect=task.effect.id,
        item=task.item,
        conversation=task.conversation,
        head=head,
        usage=snapshot.usage,
        content=content,
        output=output,
        limit_reached=snapshot.limit_reached,
    )


def build_failure(
    task: ChildTask, at: str, kind: str, message: str, head: str = "", snapshot: Snapshot | None = None
) -> AgentFailed:
    """`agent_failed` for a child.

    Args:
        head: hash of its newest record; empty where it has none.
        snapshot: where it stands, for its usage; None where it has none.
    """
    usage: Usage | None = snapshot.usage if snapshot is not None else None
    return AgentFailed(
        at=at,
        effect=task.effect.id,
        item=task.item,
        conversation=task.conversation,
        head=head,
        usage=usage,
        kind=kind,
        message=message,
    )
