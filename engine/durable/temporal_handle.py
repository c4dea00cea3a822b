"""A conversation as its workflow on Temporal has it: for programs that have a client, and no log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from toolchart.engine.durable.temporal_reports import (
    Answer,
    Cancellation,
    Decision,
    PersonUpdate,
    Reception,
    encode_update,
)
from toolchart.engine.durable.temporal_worker import build_error, build_queue_name, build_workflow_id
from toolchart.engine.durable.temporal_workflow import TASK_TIMEOUT, WAITING, WORKFLOW, Carried
from toolchart.states.canonical_json import encode_canonical
from toolchart.states.errors import IllegalEvent, NotFound, SpecError, ToolchartError, format_install

try:
    from temporalio.client import (
        Client,
        WithStartWorkflowOperation,
        WorkflowFailureError,
        WorkflowQueryFailedError,
        WorkflowUpdateFailedError,
        WorkflowUpdateRPCTimeoutOrCancelledError,
    )
    from temporalio.common import WorkflowIDConflictPolicy
    from temporalio.exceptions import ApplicationError
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    raise SpecError("Temporal's SDK is not installed", hint=format_install("temporal")) from None


class TemporalConversation:
    """Says what waits in a conversation, and hands over what people decide. A worker writes it into the log.

    What is said here stands in the history of the workflow too. `DurableClient` leaves it in the log alone.

    Args:
        client: the connection to the server and its namespace; it belongs to the caller.
        agent: the name of the agent, as its spec has it.
        conversation: its id.

    Raises:
        SpecError: the id is longer than Temporal takes.
    """

    def __init__(self, client: Client, agent: str, conversation: str) -> None:
        self._client = client
        self._agent = agent
        self.id = conversation
        self._workflow_id = build_workflow_id(agent, conversation)

    async def decide(
        self,
        call_id: str,
        *,
        approved: bool,
        reason: str | None = None,
        by: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        update_id: str | None = None,
    ) -> Reception:
        """Hand over the decision about a call that waits, in the conversation or in a child of it.

        Args:
            arguments: new arguments, if the approval changes them.
            update_id: an update that is sent again with its id is taken once; with another content it is
                another update.

        Returns:
            What became of it, when it is durable in the inbox of the log.

        Raises:
            IllegalEvent: no call waits for it, or it has its decision.
            NotFound: there is no such conversation.
            SpecError: it breaks its form, or is not signed as the spec requires.
            DurableHostUnavailable: the host cannot be reached; sending it again is safe.
        """
        return await self._update(
            Decision(
                call_id=call_id, approved=approved, reason=reason, by=by, arguments=_copy_fields(arguments)
            ),
            update_id,
        )

    async def answer(
        self,
        content: Mapping[str, Any],
        *,
        question: str | None = None,
        by: str | None = None,
        update_id: str | None = None,
    ) -> Reception:
        """Hand over the answer to a question of the chart.

        Args:
            content: the fields of the question's form.
            question: name of the effect that asks, where several questions are open.
            update_id: as for `decide`.

        Returns:
            As `decide`.

        Raises:
            IllegalEvent: no question waits for it, or it has its answer.
            NotFound, SpecError, DurableHostUnavailable: as by `decide`.
        """
        return await self._update(Answer(content=_copy_fields(content), question=question, by=by), update_id)

    async def cancel(
        self, reason: str | None = None, *, author: str | None = None, update_id: str | None = None
    ) -> Reception:
        """Have the open turn stopped.

        Args:
            author: who stops it.
            update_id: as for `decide`.

        Returns:
            As `decide`.

        Raises:
            IllegalEvent: no turn is open.
            NotFound, SpecError, DurableHostUnavailable: as by `decide`.
        """
        return await self._update(Cancellation(reason=reason, author=author), update_id)

    async def read_waiting(self) -> dict[str, Any]:
        """What waits in the conversation and in its children, as `Waiting.to_dict` gives it.

        Raises:
            NotFound: Temporal has no workflow of it any more, or never had one.
            DurableHostUnavailable: the host cannot be reached, or no worker answers.
        """
        try:
            return dict(await self._workflow.query(WAITING, result_type=dict))
        except (RPCError, RuntimeError, WorkflowQueryFailedError) as error:
            raise self._translate(error) from None

    async def read_result(self) -> dict[str, Any] | None:
        """Wait until the workflow has ended; the result of the newest turn, as `Turn.to_dict` gives it.

        None where no turn ever ended.

        Raises:
            NotFound: Temporal has no workflow of it any more, or never had one.
            SpecError: the workflow was cancelled or terminated, or its message could never be run.
            DurableHostUnavailable: the host cannot be reached.
        """
        try:
            result: dict[str, Any] | None = await self._workflow.result()
        except WorkflowFailureError as error:
            raise SpecError(f"the workflow of {self.id!r} has no result: {error.cause}") from None
        except (RPCError, RuntimeError) as error:
            raise self._translate(error) from None
        return result

    @property
    def _workflow(self) -> Any:
        return self._client.get_workflow_handle(self._workflow_id)

    async def _update(self, update: PersonUpdate, update_id: str | None) -> Reception:
        data = encode_update(update)  # refused here, it starts no workflow
        # The workflow may have ended, and the conversation may wait all the same: it was terminated, or kept
        # open for its time. So the update starts one where there is none, which then asks the log.
        start = WithStartWorkflowOperation(
            WORKFLOW,
            msgspec.to_builtins(Carried(conversation=self.id)),
            id=self._workflow_id,
            task_queue=build_queue_name(self._agent),
            task_timeout=TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        try:
            answer = await self._client.execute_update_with_start_workflow(
                str(type(update).__struct_config__.tag),
                data,
                start_workflow_operation=start,
                id=_name_update(update_id, data),
                result_type=dict,
            )
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            # The SDK raises it in the place of a cancellation too, and a time limit of the caller is one.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise build_error(error) from None
        except (RPCError, RuntimeError, WorkflowUpdateFailedError) as error:
            raise self._translate(error) from None
        return msgspec.convert(answer, Reception)

    def _translate(self, error: Exception) -> ToolchartError:
        """The error of the tree for one of the SDK."""
        if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
            return NotFound(self.id)
        cause = error.cause if isinstance(error, WorkflowUpdateFailedError) else None
        if isinstance(error, RPCError) and error.status is RPCStatusCode.INVALID_ARGUMENT:
            return SpecError(f"Temporal does not take this: {error}")
        if not isinstance(cause, ApplicationError):
            return build_error(error)
        match cause.type:
            case "NotFound":
                return NotFound(self.id)
            case "IllegalEvent" | "AlreadyDecided":
                return IllegalEvent("update", "", text=cause.message)
            case "HandOverFailed":
                return build_error(cause)
            case _:
                return SpecError(cause.message)


def _copy_fields(fields: Any) -> Any:
    """Fields as a dict; what is none as it is, so that it is refused with the place where it stands."""
    return dict(fields) if isinstance(fields, Mapping) else fields


def _name_update(update_id: str | None, data: Any) -> str | None:
    """The id of an update for Temporal; None for one of Temporal's own.

    Temporal answers a second update of one id with what it answered the first, whatever the second says.
    So a digest of what it says is a part of the id.
    """
    return f"{update_id}/{sha256(encode_canonical(data)).hexdigest()[:16]}" if update_id else None
