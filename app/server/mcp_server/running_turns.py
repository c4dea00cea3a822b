"""Turns that tool calls have begun: waited for, or left to run as tasks.

Source: the extension `io.modelcontextprotocol/tasks` (SEP-2663) of 2026-07-28. A task is a conversation; what
is said about it comes from the log, so that it can be asked for as long as the log has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

import mcp_types as types

from toolchart.app.server.access.tokens import Access
from toolchart.app.server.endpoints import require_role
from toolchart.app.server.mcp_server.forms import build_input_requests, read_input_responses
from toolchart.app.server.mcp_server.results import build_call_result
from toolchart.app.server.protocols.turns import Pieces, continue_turn, finish_turn, read_answers, read_times
from toolchart.app.server.protocols.waiting import list_waiting_items
from toolchart.app.server.site import Site
from toolchart.engine.runtime.result import Turn

TASKS = "io.modelcontextprotocol/tasks"

POLL_MS = 1000
"""Milliseconds after which a client should ask again."""


class TaskParams(types.RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, types.ElicitResult]


class RunningTurns:
    """The turns of one MCP server that run now. One that takes long becomes a task, for clients that know
    tasks."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._turns: dict[str, asyncio.Task[Turn]] = {}

    async def wait_for(
        self, conversation: str, turn: Coroutine[Any, Any, Turn], *, may_be_task: bool
    ) -> Turn | dict[str, Any]:
        """The result of a turn; a handle where it takes longer and may be a task.

        Cancelling this cancels the turn, unless it has become a task.
        """
        task = asyncio.ensure_future(turn)
        self._turns[conversation] = task
        task.add_done_callback(lambda _: self._forget(conversation, task))
        try:
            task_after_s = self._site.limits.task_after_s if may_be_task else None
            done, _ = await asyncio.wait({task}, timeout=task_after_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task.result()
        return {**await self._describe_task(conversation), "resultType": "task", "status": "working"}

    def _forget(self, conversation: str, task: asyncio.Task[Turn]) -> None:
        if self._turns.get(conversation) is task:
            del self._turns[conversation]
        if not task.cancelled():
            task.exception()  # the log has it; nobody else may wait for it

    async def stop(self) -> None:
        """Stop the turns that run as tasks; the log keeps them open."""
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- tasks -----------------------------------------------------------------------------------

    async def describe(self, conversation: str, access: Access) -> dict[str, Any]:
        """The state of a task.

        Raises:
            NotFound: there is none.
        """
        self._site.claim(access, conversation)  # its turn may have no record yet
        status: dict[str, Any] = {"status": "working"}
        if conversation not in self._turns:
            result = await asyncio.to_thread(self._site.engine.conversation(conversation).read_turn)
            status = self._describe_status(result, access)
        return {**await self._describe_task(conversation), "resultType": "complete", **status}

    async def _describe_task(self, conversation: str) -> dict[str, Any]:
        created, updated = await asyncio.to_thread(self._read_times, conversation)
        return {
            "taskId": conversation,
            "createdAt": created,
            "lastUpdatedAt": updated,
            "ttlMs": None,
            "pollIntervalMs": POLL_MS,
        }

    def _describe_status(self, result: Turn, access: Access) -> dict[str, Any]:
        if result.error is not None and result.error.kind == "cancelled":
            return {"status": "cancelled", "statusMessage": result.error.message}
        requests = build_input_requests(list_waiting_items(result.waiting, result.conversation), access)
        if not result.is_over and requests:
            dumped = {key: _dump(request) for key, request in requests.items()}
            return {"status": "input_required", "inputRequests": dumped}
        if not result.is_over:
            return {"status": "working", "statusMessage": f"waits in state {result.state}"}
        return {
            "status": "completed",
            "result": {**_dump(build_call_result(result)), "resultType": "complete"},
        }

    async def update(self, params: UpdateParams, access: Access) -> None:
        """Give the answers to what a task waits for; it goes on by itself.

        Raises:
            Refusal: an answer does not fit, or there is no such task.
        """
        self._site.require_conversation(access, params.task_id)
        pieces = await self.continue_turn(params.task_id, params.input_responses, access)
        if pieces is not None:
            turn = asyncio.ensure_future(finish_turn(pieces))
            self._turns[params.task_id] = turn
            turn.add_done_callback(lambda _: self._forget(params.task_id, turn))

    async def continue_turn(
        self, conversation: str, responses: Mapping[str, Any], access: Access
    ) -> Pieces | None:
        """The turn that goes on with the answers to requests for input; None where all were put off."""
        answers = read_answers(self._site, read_input_responses(responses), access)
        if not answers:
            return None
        engine = self._site.client_tools.find_engine(answers[0].item.root)
        return await continue_turn(self._site, engine, answers, access.name)

    async def cancel(self, conversation: str, access: Access) -> None:
        """Stop a task.

        Raises:
            SpecError: no turn of the conversation is open.
        """
        require_role(access, "chat")
        self._site.require_conversation(access, conversation)
        running = self._site.engine.conversation(conversation)
        await running.acancel(f"cancelled by {access.name}", author=access.name)

    def _read_times(self, conversation: str) -> tuple[str, str]:
        """When the first and the newest record were written."""
        engine = self._site.engine
        if engine.store.read_last_line(conversation) is None:  # the turn has no record yet
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            return now, now
        return read_times(engine, conversation)


def _dump(value: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped
