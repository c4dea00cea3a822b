"""The Protocols between the layers: what a provider, an executor and a store must offer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from toolchart.states.deltas import Delta
from toolchart.states.errors import LogConflict
from toolchart.states.events import ToolFinished, Verdict
from toolchart.states.messages import Reply, Request, ToolCall, ToolDefinition


class Provider(Protocol):
    """Speaks to one model host."""

    name: str
    """Adapter name, as in the spec's `provider`."""

    async def complete(self, request: Request) -> Reply:
        """One whole reply.

        Raises:
            ProviderError: the call failed; classified, without secrets.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections; safe to call twice."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A provider whose replies can be seen growing."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Deltas as they come, and last, exactly once, the whole reply: the one `complete` gives.

        Closing the generator early closes the connection.

        Raises:
            ProviderError: the call failed, or the stream ended without its terminal marker.
        """
        ...


class Executor(Protocol):
    """Judges and runs tool calls. What a model was shown never decides what may run."""

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool that the spec activates, in its order."""
        ...

    def review(self, call: ToolCall, allowed: Sequence[str]) -> Verdict:
        """Known, allowed, parsed, valid, approved? Pure and quick; never raises."""
        ...

    async def run(self, call: ToolCall, allowed: Sequence[str]) -> ToolFinished:
        """Run one call and say how it ended; never raises but on cancellation."""
        ...

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        ...


Batch = tuple[str, int, Sequence[bytes]]
"""Conversation, number of the first record, record lines: the arguments of `Store.append`."""


@runtime_checkable
class Groups(Protocol):
    """A store in which several conversations can share one commit."""

    def append_many(self, batches: Sequence[Batch]) -> Sequence[LogConflict | None]:
        """Append for several conversations in one commit, durable on return.

        Each is appended all or none; the answer says, in their order, which lost to another writer.

        Raises:
            LogUnavailable: the store cannot be written; nothing of any was appended.
        """
        ...


class Store(Protocol):
    """Keeps records; the only thing in the engine that touches a disk."""

    def append(self, conversation: str, first_seq: int, lines: Sequence[bytes]) -> None:
        """Append canonical record lines, all or none, durable on return.

        Raises:
            LogConflict: a record with one of these numbers is already there.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        ...

    def read(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The record lines from `start` on, in order; nothing for an unknown conversation."""
        ...

    def last(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        ...

    def conversations(self) -> Iterable[str]:
        """Every conversation's id, the oldest first."""
        ...

    def delete(self, conversation: str) -> None:
        """Forget a whole conversation; parts of one are never taken away.

        Raises:
            LogUnavailable: the store cannot be written; nothing was deleted.
        """
        ...

    def close(self) -> None:
        """Release the store; safe to call twice."""
        ...
