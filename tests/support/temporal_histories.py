"""The committed histories of workflows: what a real server kept for some scripted conversations.

`python tests/support/temporal_histories.py` writes them again; it needs Temporal's program `temporal`. Do so
only where the workflow was changed on purpose so that histories from before cannot be replayed: workflows
that are open then cannot go on, which the change log must say.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from durable_scripts import Script, list_scripts, run_on_host
from temporal_server import find_server, run_server
from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from toolchart.engine import Engine
from toolchart.engine.durable.client import DurableClient
from toolchart.engine.durable.temporal_handle import TemporalConversation
from toolchart.engine.durable.temporal_worker import TemporalHost, TemporalWorker, build_workflow_id
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.events import Decided

FOLDER = Path(__file__).parents[1] / "engine" / "durable" / "histories"

RENEW_OPTIONS = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=12")
"""Let a server ask for a new run very soon."""

RECORDED = {
    "approval": (),
    "approval-updated": (),
    "cancellation": (),
    "timer": (),
    "timer-renewed": RENEW_OPTIONS,
}
"""The script of each history, and the options of its server."""


def list_histories() -> list[str]:
    """The names of the committed histories."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def load_history(name: str) -> WorkflowHistory:
    """A committed history."""
    return parse_history(name, (FOLDER / f"{name}.json").read_text())


def parse_history(name: str, text: str) -> WorkflowHistory:
    """A history from its JSON."""
    id_ = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"].get("workflowId", name)
    return WorkflowHistory.from_json(id_, text)


async def fetch_runs(client: Client, id_: str) -> list[WorkflowHistory]:
    """The histories of the runs of a workflow, the oldest first."""
    newest = (await client.get_workflow_handle(id_).describe()).run_id
    async with asyncio.timeout(60):
        # The server lists what has begun and ended a little later.
        while newest not in (runs := await _list_runs(client, id_)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    handles: list[WorkflowHandle[object, object]] = [
        client.get_workflow_handle(id_, run_id=run) for run in runs
    ]
    return [await handle.fetch_history() for handle in handles]


async def _list_runs(client: Client, id_: str) -> list[str]:
    """The ids of the runs of a workflow, the oldest first."""
    runs = [run async for run in client.list_workflows(f'WorkflowId = "{id_}"')]
    return [run.run_id for run in sorted(runs, key=lambda run: run.start_time)]


class UpdatingClient(DurableClient):
    """Hands decisions over by updates of the workflow."""

    def __init__(self, engine: Engine, client: Client, agent: str) -> None:
        super().__init__(engine, TemporalHost(client, agent))
        self._client, self._agent = client, agent

    async def decide(self, conversation: str, decision: Decided) -> Any:
        """Hand over a decision."""
        handle = TemporalConversation(self._client, self._agent, conversation)
        return await handle.decide(decision.call_id, approved=decision.approved, by=decision.by)


async def _record(address: str, script: Script, *, has_updates: bool) -> Sequence[WorkflowHistory]:
    """Carry out a script on a server; the histories of its runs."""
    client = await Client.connect(address, identity="a worker")
    async with script.make_engine(MemoryStore()) as engine:
        worker = TemporalWorker(engine, client)
        async with worker.run():
            sender = DurableClient(engine, TemporalHost(client, worker.agent))
            if has_updates:
                sender = UpdatingClient(engine, client, worker.agent)
            await run_on_host(engine, sender, script.actions, script.name)
            # The log has the end of a turn before the workflow knows of it.
            handle = TemporalConversation(client, worker.agent, script.name)
            if engine.conversation(script.name).read_turn().is_over:
                await handle.read_result()
            else:
                while not (await handle.read_waiting())["approvals"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        return await fetch_runs(client, build_workflow_id(worker.agent, script.name))


def main() -> None:
    """Write each history again."""
    scripts = {script.name: script for script in list_scripts({})}
    program = find_server()
    assert program is not None, "needs Temporal's program `temporal`"
    for name, options in RECORDED.items():
        base, _, kind = name.partition("-")
        with run_server(program, *options) as address:
            runs = asyncio.run(_record(address, scripts[base], has_updates=kind == "updated"))
        for path in FOLDER.glob(f"{name}.*.json"):
            path.unlink()  # the old one may have had more runs
        for number, run in enumerate(runs, 1):
            events = ",\n".join(json.dumps(event) for event in run.to_json_dict()["events"])
            path = FOLDER / f"{name}.{number}.json"
            path.write_text(f'{{"events": [\n{events}\n]}}\n')


if __name__ == "__main__":
    main()
