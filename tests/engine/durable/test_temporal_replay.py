"""The workflow against histories that a real server kept: they replay, and a changed workflow is noticed.

Temporal compares kinds, names and order of commands, not their contents. So each promise has a negative twin,
and what Temporal does not notice is shown too, with what notices it instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from durable_scripts import check_log, list_scripts, read_comparable_log
from durable_workers import submit_message

from toolchart.engine.durable.performing import perform_stretch
from toolchart.engine.durable.stretches import Stretch
from toolchart.engine.log.stores.memory import MemoryStore

pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from temporal_histories import list_histories, load_history
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from toolchart.engine.durable import temporal_workflow
from toolchart.engine.durable.temporal_workflow import ConversationWorkflow

pytestmark = pytest.mark.slow

HISTORIES = list_histories()

COMPARES_NAMES = 1
"""The flag of a history with which the SDK compares the names of activities."""


async def replay_workflow(history: WorkflowHistory, *, is_sandboxed: bool = False) -> Exception | None:
    """Replay a history with the workflow as it is now; what Temporal has against it."""
    runner = SandboxedWorkflowRunner() if is_sandboxed else UnsandboxedWorkflowRunner()
    replayer = Replayer(workflows=[ConversationWorkflow], workflow_runner=runner)
    return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


def list_flags(history: WorkflowHistory) -> set[int]:
    """The flags with which the SDK wrote a history."""
    tasks = [event.workflow_task_completed_event_attributes for event in history.events]
    return {flag for task in tasks for flag in task.sdk_metadata.core_used_flags}


@pytest.mark.parametrize("name", HISTORIES)
async def test_a_committed_history_replays(name: str) -> None:
    """The workflow of this release does what the workflow did that wrote the history, in Temporal's sandbox.
    The history has the flag without which names would not be compared."""
    history = load_history(name)
    assert COMPARES_NAMES in list_flags(history)
    assert await replay_workflow(history, is_sandboxed=True) is None


def wait_always(stretch: Stretch, now: str) -> float:
    """Another workflow: it waits before each stretch."""
    return 7.0


def wait_never(stretch: Stretch, now: str) -> float:
    """Another workflow: it performs a stretch before its time."""
    return 0.0


def plan_nothing(stretch: Stretch, rest: Any) -> None:
    """Another workflow: nothing follows a stretch."""


TWINS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "another activity": (lambda: patch.object(temporal_workflow, "ACTIVITY", "another"), HISTORIES),
    "a timer before the activity": (lambda: patch.object(Stretch, "compute_delay_s", wait_always), HISTORIES),
    "no timer": (lambda: patch.object(Stretch, "compute_delay_s", wait_never), ["timer.1"]),
    "nothing after a rest": (lambda: patch.object(temporal_workflow, "plan_next", plan_nothing), ["timer.1"]),
}
"""How a workflow may be changed, and the histories that show it."""


@pytest.mark.parametrize(
    ("change", "name"), [(change, name) for change, (_, names) in TWINS.items() for name in names]
)
async def test_a_changed_workflow_does_not_replay(change: str, name: str) -> None:
    """The negative twin: with another activity, another timer or another order Temporal refuses the history,
    which the unchanged workflow replays in the same way."""
    history = load_history(name)
    assert await replay_workflow(history) is None
    with TWINS[change][0]():
        assert isinstance(await replay_workflow(history), NondeterminismError)


async def test_a_history_without_flags_would_hide_a_change() -> None:
    """Where a history lacks the flags of the SDK, another activity passes: so histories made by hand prove
    nothing, and the committed ones are those of a server."""
    history = load_history("approval.1")
    for event in history.events:
        if event.HasField("workflow_task_completed_event_attributes"):
            event.workflow_task_completed_event_attributes.ClearField("sdk_metadata")
    with patch.object(temporal_workflow, "ACTIVITY", "another"):
        assert await replay_workflow(history) is None


async def test_a_changed_input_is_noticed_by_the_log() -> None:
    """Temporal replays a history whose input was changed as if nothing was. The log holds against it: there
    is no message for the changed stretch, so it fails, and the log stays as it is."""
    history = load_history("approval.1")
    (payload,) = history.events[1].workflow_execution_signaled_event_attributes.input.payloads
    stretch = msgspec.json.decode(payload.data, type=Stretch)
    payload.data = payload.data.replace(stretch.key.encode(), b"turn/another")
    changed = msgspec.json.decode(payload.data, type=Stretch)
    assert (changed.key, changed.has_message) == ("turn/another", True)
    assert await replay_workflow(history) is None

    script = next(script for script in list_scripts({}) if script.name == "approval")
    store = MemoryStore()
    async with script.make_engine(store) as engine:
        submit_message(store, stretch, "one")
        assert (await perform_stretch(engine, stretch)).outcome == "waits"
        records = read_comparable_log(store)
        rest = await perform_stretch(engine, changed)
    assert rest.outcome == "failed"
    assert "not in the log" in (rest.error or "")
    assert read_comparable_log(store) == records
    check_log(store)
