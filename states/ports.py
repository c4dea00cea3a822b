"""Ports: the Protocols that a provider, a tool executor and a store implement."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from toolchart.states.errors import LogConflict
from toolchart.states.events import ToolFinished, Verdict
from toolchart.states.messages import Delta, Reply, Request, ToolCall, ToolDefinition


class BodyBuilder(Protocol):
    """Builds the bodies of model calls. Without its key and without a network it still can."""

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """The complete body that this request sends to the host, as JSON data; headers are no part of it.

        Pure: the request and the settings of the host decide alone, so that a later process builds the
        same body from the recorded request.

        Args:
            stream: whether the reply is to be streamed.

        Raises:
            ProviderError: the host has no form for the request (`bad_request`).
        """
        ...


class Provider(BodyBuilder, Protocol):
    """Calls the models of one host.

    A reply, and an error after the body was built, carry the digest of the body (`wire_digest`).
    """

    name: str
    """Adapter name, as in the spec's `provider`."""

    async def complete(self, request: Request) -> Reply:
        """Call the model and return its complete reply.

        Raises:
            ProviderError: the call failed; with a failure kind, and without secrets.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        ...


@runtime_checkable
class StreamingProvider(Protocol):
    """A provider that can stream its replies."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas as they arrive and then, exactly once, the complete reply as `complete` returns it.

        Closing the generator early closes the connection.

        Raises:
            ProviderError: the call failed, or the stream ended without its terminal marker.
        """
        ...


class Executor(Protocol):
    """Reviews and runs tool calls. What may run does not depend on what the model was offered."""

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool that the spec activates, in the order of the spec."""
        ...

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """Check one call: known, allowed, parsed, valid, approved? Pure, fast, and never raises."""
        ...

    def run(self, call: ToolCall, allowed_tools: Sequence[str]) -> Coroutine[Any, Any, ToolFinished]:
        """Run one call and return its outcome; raises only when it is cancelled."""
        ...

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        ...


RecordBatch = tuple[str, int, Sequence[bytes]]
"""Conversation, number of the first record, record lines: the arguments of `Store.append`."""


@runtime_checkable
class GroupCommitStore(Protocol):
    """A store that can write records of several conversations in one commit."""

    def append_many(self, batches: Sequence[RecordBatch]) -> Sequence[LogConflict | None]:
        """Append to several conversations in one commit, durable on return.

        Each batch is appended completely or not at all. The result has one entry per batch, in order: None,
        or the conflict with another writer.

        Raises:
            LogUnavailable: the store cannot be written; no batch was appended.
        """
        ...


@runtime_checkable
class CheckpointStore(Protocol):
    """A store that keeps checkpoints beside the records. A store without them works; going on costs more."""

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record.

        It need not be durable on return, but it is before any record that is appended later.

        Raises:
            LogUnavailable: the store cannot be written; the checkpoint was not kept.
        """
        ...

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Record number and data of each checkpoint, the newest first.

        Args:
            newest: leave out those of later records.
        """
        ...


class Store(Protocol):
    """Stores log records; the only part of the engine that writes to a disk."""

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append canonical record lines, all or none; durable on return.

        Raises:
            LogConflict: a record with one of these numbers is already there.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        ...

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The record lines from number `start` on, in order; none for an unknown conversation."""
        ...

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        ...

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, oldest first."""
        ...

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation with its checkpoints; a part of one cannot be deleted.

        Raises:
            LogUnavailable: the store cannot be written; nothing was deleted.
        """
        ...

    def close(self) -> None:
        """Close the store; safe to call twice."""
        ...
