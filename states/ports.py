"""Ports: the Protocols that a provider, a tool executor and a store implement."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import msgspec

from toolchart.states.errors import LogDamaged, ToolchartError
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
class CountingProvider(Protocol):
    """A provider whose host may count the tokens of a request."""

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens of a request by the host's own counter; None where it is not to be asked.

        Raises:
            ProviderError: the host did not count.
        """
        ...


@runtime_checkable
class AnswerDecoder(Protocol):
    """A provider that decodes kept answers again, without its key and without a network."""

    def decode_again(self, request: Request, content: bytes, *, status: int, is_streamed: bool) -> Reply:
        """The reply to a request by its raw answer, by the code that decodes it when it comes.

        It has no digest of the body, and nothing of the headers.

        Args:
            content: the bytes of the answer.
            status: of HTTP.
            is_streamed: whether the answer was asked for as a stream.

        Raises:
            ProviderError: the call failed by this answer.
            NotImplementedError: the adapter decodes no bytes.
        """
        ...


@runtime_checkable
class StreamingProvider(Provider, Protocol):
    """A provider that can stream its replies."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        """Yield deltas as they arrive and then, exactly once, the complete reply as `complete` returns it.

        Closing the generator early closes the connection.

        Raises:
            ProviderError: the call failed, or the stream ended without its terminal marker.
        """
        ...


def can_stream(provider: Provider) -> TypeGuard[StreamingProvider]:
    """Whether a provider can stream its replies. Asked in every turn, where `isinstance` takes 20 us."""
    return hasattr(provider, "stream")


class Executor(Protocol):
    """Reviews and runs tool calls. What may run does not depend on what the model was offered."""

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """Every tool that the spec activates, in the order of the spec."""
        ...

    def review(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict:
        """Check one call: known, allowed, parsed, valid, approved? Takes a limited time, and never raises."""
        ...

    def review_at_once(self, call: ToolCall, allowed_tools: Sequence[str]) -> Verdict | None:
        """As `review`; None where that would wait for a worker, so that it belongs in a thread."""
        ...

    def describe_tool(self, name: str) -> dict[str, str] | None:
        """The whole definition of a tool, part by part: what it is and what running it does. None where it
        does not exist, or nothing is run."""
        ...

    def run(
        self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None
    ) -> Coroutine[Any, Any, ToolFinished]:
        """Run one call and return its outcome; raises only when it is cancelled, or `ToolPending` when the
        outcome comes later, from outside.

        Args:
            starts: when it may begin (`CallStarts` of `tools.execution.starts`), beside its siblings: nothing
                outside the process may hear of the call before; None where no log has to know of it.
        """
        ...

    async def resolve(
        self, call: ToolCall, allowed_tools: Sequence[str], starts: Any = None
    ) -> ToolFinished | None:
        """How an interrupted call ended, as its tool says when it is asked; one that did not begin is run
        now. None where nobody knows, or nothing can be asked."""
        ...

    def refuse(self, call: ToolCall, outcome: str, reason: str) -> ToolFinished:
        """The result of a call that is not run."""
        ...


LEASE_S = 30.0
"""Seconds for which a lease is taken where nobody says otherwise; after so long without a sign of life,
another worker may take it."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right of one worker to append to a conversation and to its children, until it expires."""

    conversation: str
    token: int
    """The fencing token: it grows with every lease of the conversation."""
    worker: str
    """Who works: `HOST:PID` and more, see `engine/log/leases.py`; empty where nobody does."""
    since: float
    """When the worker took it: seconds since 1970."""
    expires: float
    """When it ends unless it is renewed: seconds since 1970, by the clock of the store."""
    is_open: bool = True
    """Whether the conversation has work left: false once it was released with its turn at an end."""
    due: float | None = None
    """Of a released one with an open turn: when it goes on by itself; None where it waits for somebody. Of a
    held one: what it was before, so that whoever does not want it any more gives it back as it was."""


SUBMISSION_KEY = "turn/"
"""What the key of a message begins with that waits for a worker; no key of an inbox does."""


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something for a conversation that another worker holds: a decision, a message, a cancellation."""

    number: int
    conversation: str
    """The conversation whose lease covers it: the root of a family."""
    key: str
    """Idempotency key: a second entry of the conversation with the same key is not kept."""
    data: bytes


class RecordBatch(msgspec.Struct, frozen=True, gc=False):
    """Records that are appended to one conversation together, all or none."""

    conversation: str
    first_seq: int
    """Number of the first record."""
    lines: Sequence[bytes]
    lease: Lease | None = None
    """The lease under which they are appended."""
    checkpoint: tuple[int, bytes] | None = None
    """Number and data of a checkpoint that is kept with them."""
    taken: Sequence[str] = ()
    """Keys of the inbox entries and submissions that became these records."""
    totals: Sequence[tuple[int, bytes]] = ()
    """Totals of turns that end with these records, by the number of the record."""
    is_over: bool = False
    """Of a batch without a lease that begins a conversation: whether its last turn is known to be at its end,
    so that no worker need look whether it has work."""


class IndexGap(msgspec.Struct, frozen=True):
    """A conversation with records that the search index of the store does not have."""

    number: int
    """Greater than that of each conversation that was begun before it."""
    conversation: str
    start: int
    """Records that the index has of it."""
    end: int
    """Records that it has."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What a search index knows of a conversation as a whole."""

    status: str
    """How its newest turn stands: a key of `STATUSES` in `engine/reading/search.py`."""
    state: str
    """Its current state."""
    place: str
    """Sorts conversations by who needs attention: the greatest text comes first."""
    owner: str = ""
    agent: str = ""
    """The name in its spec."""
    models: Sequence[str] = ()
    """The models that its turns asked for."""
    tags: Mapping[str, str] = {}
    is_child: bool = False
    is_redacted: bool = False
    """Whether its spec redacts what is recorded: then its messages are not in the index."""


class IndexEntry(msgspec.Struct, frozen=True):
    """What is written to a search index about one conversation: what closes its gap."""

    gap: IndexGap
    outline: Outline
    texts: Sequence[tuple[int, str]]
    """Number of a record, and its words, separated by spaces."""


class SearchTerm(msgspec.Struct, frozen=True):
    """One word of a search: words of the index that stand one after the other."""

    words: tuple[str, ...]
    """Letters and digits only."""
    is_prefix: bool
    """Whether the last one may go on."""
    text: str
    """As it was given: an id may begin with it."""


class IndexQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a search index; all conditions must hold."""

    terms: Sequence[SearchTerm] = ()
    """Each is found in a record of the conversation, or begins its id."""
    statuses: Sequence[str] = ()
    owner: str | None = None
    by_attention: bool = False
    """Whether the conversations come by their `place`; else the newest comes first."""
    before: tuple[int, str] | None = None
    """Number and place of a conversation: only those that come after it."""


class RecordReader(Protocol):
    """What a conversation is loaded from."""

    def read_lines(self, conversation: str, start: int = 0) -> Iterator[bytes]:
        """The record lines from number `start` on, in order; none for an unknown conversation."""
        ...

    def read_last_line(self, conversation: str) -> tuple[int, bytes] | None:
        """Number and line of the newest record."""
        ...

    def read_checkpoints(self, conversation: str, newest: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Record number and data of each checkpoint, the newest first.

        Args:
            newest: leave out those of later records.
        """
        ...


class Store(RecordReader, Protocol):
    """Stores the log; the only part of the engine that writes to a disk.

    What a store writes for itself is less: it inherits from `StoreBase` (`engine/log/stores/base.py`), which
    has all of this and says more about it.
    """

    commits_at_once: bool
    """Whether a commit is so short that the event loop may do it: it waits for no disk and no network."""
    has_upkeep: bool
    """Whether there is work to do between commits."""

    def append(
        self, conversation: str, first_seq: int, lines: Sequence[bytes], *, is_over: bool = False
    ) -> None:
        """Append canonical record lines, all or none; durable on return.

        Args:
            is_over: whether their last turn is known to be at its end.

        Raises:
            LogConflict: the conversation has another number of records, or a worker holds it.
            LogUnavailable: the store cannot be written; nothing was appended.
        """
        ...

    def append_many(
        self, batches: Sequence[RecordBatch], *, wait: bool = True
    ) -> Sequence[ToolchartError | None]:
        """Append several batches in one commit, durable on return; of each, None or why it was refused.

        A batch with a lease is appended only while its lease is the newest of the conversation. A batch
        without one is refused while a worker holds the conversation.

        Args:
            wait: false raises `LogBusy` where another writer is at work.

        Raises:
            LogUnavailable: the store cannot be written; no batch was appended.
        """
        ...

    def delete(self, conversation: str) -> None:
        """Delete a whole conversation with its checkpoints; a part of one cannot be deleted.

        Raises:
            LeaseHeld: a worker holds it.
            LogUnavailable: the store cannot be written; nothing was deleted.
        """
        ...

    def delete_many(self, conversations: Sequence[str]) -> None:
        """Delete whole conversations in one commit; none where a worker holds one of them.

        Raises:
            LeaseHeld: a worker holds one of them.
        """
        ...

    def list_conversations(self) -> Iterable[str]:
        """The ids of all conversations, oldest first."""
        ...

    def iterate_newest_first(self, before: str | None = None) -> Iterator[str]:
        """The ids of all conversations, the newest first, read as far as they are asked for.

        Args:
            before: only those that are older than this one; none where it is unknown.
        """
        ...

    def list_recent(self) -> Sequence[str]:
        """The conversations that may have the newest record; all of a store that does not know."""
        ...

    def find_names(self, beginning: str) -> Sequence[str]:
        """All ids that begin with a text, sorted."""
        ...

    def read_ends(self) -> Iterator[tuple[str, bytes, int, bytes]]:
        """Of each conversation with records: id, first line, number of the newest record, its line.

        Large values may be left out: null stands in their place.
        """
        ...

    def write_checkpoint(self, conversation: str, seq: int, data: bytes) -> None:
        """Keep the checkpoint of a record; it is durable before any record that is appended later.

        Raises:
            LogUnavailable: the store cannot be written; the checkpoint was not kept.
        """
        ...

    def read_totals(self, conversation: str) -> Iterable[tuple[int, bytes]]:
        """The totals of each turn that it has totals of, with the number of the record that ended it."""
        ...

    def acquire_lease(self, conversation: str, worker: str, seconds: float, *, wait: bool = True) -> Lease:
        """Take the lease of a conversation, which need not exist yet.

        Raises:
            LeaseHeld: another worker holds it, which lives.
            LogBusy: another writer is at work, and `wait` is false.
        """
        ...

    def renew_leases(self, leases: Sequence[Lease], seconds: float) -> Sequence[bool]:
        """Prolong leases from now on; of each, whether it was still held."""
        ...

    def release_lease(
        self, lease: Lease, *, is_open: bool, due: float | None = None, wait: bool = True
    ) -> bool:
        """End a lease; nothing happens where another worker has taken it.

        Args:
            is_open: whether a turn is left open.
            due: when that turn goes on by itself: seconds since 1970; None where it waits for somebody.

        Returns:
            False where the inbox has entries for this worker: it keeps the lease.
        """
        ...

    def find_lease(self, conversation: str) -> Lease | None:
        """The newest lease of a conversation, also where it was released or has expired."""
        ...

    def list_leases(self) -> Sequence[Lease]:
        """The leases that are held now, the oldest first."""
        ...

    def list_unfinished(self) -> Iterable[str]:
        """The conversations that a worker may go on with now."""
        ...

    def post(self, conversation: str, key: str, data: bytes, taken: Sequence[str] = ()) -> bool:
        """Add an entry to the inbox of a conversation, durable on return; false where its key is known."""
        ...

    def submit(self, conversation: str, key: str, digest: str, data: bytes) -> bool:
        """Keep a message for the worker that begins a turn with it, durable on return; whether the message
        under the key has this digest."""
        ...

    def read_submission(self, conversation: str, key: str) -> bytes | None:
        """The message under a key: empty where it was taken, None where there is none."""
        ...

    def list_submissions(self, conversations: Sequence[str] | None = None) -> Iterable[InboxEntry]:
        """The messages of all conversations, or of these, that no worker has taken."""
        ...

    def withdraw_submissions(self, conversation: str) -> int:
        """Take the messages of a conversation back that no worker has taken; how many there were.

        Raises:
            LogConflict: a worker holds the conversation, or has just taken it.
        """
        ...

    def is_withdrawn(self, conversation: str, key: str) -> bool:
        """Whether the message under a key was withdrawn."""
        ...

    def read_inbox(self, conversations: Sequence[str]) -> Sequence[InboxEntry]:
        """The entries of these conversations that are not taken yet, the oldest first."""
        ...

    def drop_entries(self, conversation: str, keys: Sequence[str]) -> None:
        """Mark entries as taken that become no record."""
        ...

    def check_place(self) -> None:
        """Return where what stands at the place of the log is what the store has opened.

        Raises:
            LogUnavailable: it was deleted, replaced or overwritten; everything is refused from then on.
        """
        ...

    def check_storage(self) -> Iterable[LogDamaged]:
        """Everything in its rows and files that is not as the store leaves it, and reading does not see."""
        ...

    def vacuum(self) -> None:
        """Give the space of deleted conversations back to the system, where the store keeps it for itself."""
        ...

    def close_idle(self, seconds: float) -> None:
        """Close each connection that nobody has used for so many seconds; the next use opens one."""
        ...

    def take_over_upkeep(self) -> None:
        """Leave the work between commits to `do_upkeep` from now on."""
        ...

    def needs_upkeep(self) -> bool:
        """Whether there is enough of it; cheap."""
        ...

    def do_upkeep(self) -> None:
        """Do it; called from the writer thread."""
        ...

    def list_index_gaps(self) -> Sequence[IndexGap]:
        """The conversations whose records the search index does not have all, the newest first."""
        ...

    def write_index(self, entries: Sequence[IndexEntry]) -> bool:
        """Write to the search index in one commit; false where the store keeps none.

        Raises:
            LogUnavailable: the store cannot be written.
        """
        ...

    def read_outlines(self, conversations: Sequence[str]) -> Mapping[str, tuple[int, Outline]]:
        """Number and outline of those of these conversations that the index has."""
        ...

    def find_in_index(self, query: IndexQuery) -> Iterator[tuple[int, str, str]]:
        """Number, id and place of the conversations that the index finds, in the order of the query."""
        ...

    def read_words(self, conversation: str) -> Iterator[tuple[int, str]]:
        """Number and words of the records of a conversation that the index has, in order."""
        ...

    def list_choices(self, owner: str | None = None) -> Sequence[Outline]:
        """The outlines of the newest conversations, as far as they differ in what one can choose from."""
        ...

    def close(self) -> None:
        """Close the store; safe to call twice."""
        ...
