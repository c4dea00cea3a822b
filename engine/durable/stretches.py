"""The port of durable hosts: stretches of work, and the one place that says what follows from each.

A durable host (DBOS, Temporal) brings queues, timers and placement. It decides nothing about a
conversation. All that it is asked for is a *stretch*: go on with a conversation until it rests. The driver
does that as ever, so each decision stays where it was:

- An effect is performed once: the log is read first; what has its answer there is not performed again; what
  is open is performed and its event appended under the fencing token. A host that starts a stretch twice, or
  hands it to another worker in the middle, changes nothing.
- Sleep until: a conversation that rests with a timer is followed by a stretch that is due then.
- Wait for a message: a conversation that waits for somebody ends its stretch. Whoever leaves an event in the
  inbox of the log starts another one.
- Children run within the stretch of their root, because its lease covers them.
- Cancel: an event in the inbox like any other; the worker that runs the turn hears of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from toolchart.states.canonical_json import encode_canonical
from toolchart.states.core.step import SEMANTICS
from toolchart.states.ports import SUBMISSION_KEY

LONGEST_WAIT_S = 30.0
"""Seconds that a worker waits for a timer itself; a longer wait is left to the host."""

_LONGEST_PAUSE_S = 30.0

_HELD_ATTEMPTS = 7
"""How often a stretch without a message looks again at a conversation that another worker holds: for longer
than a lease lasts without a sign of life."""


NORMAL_PRIORITY, LAST_PRIORITY = 3, 5
"""The priority of what nobody gave one, and the greatest. As Temporal numbers them, from 1."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work on one conversation, until it rests. No content: what a user said lies in the store of the log.

    A host keeps its stretches as long as it likes, and nobody can delete a conversation out of them.
    """

    conversation: str
    key: str
    """What the stretch is for: a host performs one of this id. A turn's begins with `SUBMISSION_KEY`: it is
    the key under which its message lies in the store of the log."""
    version: str
    """The version of the workers that may perform it."""
    first_seq: int = 0
    """Number of the first record that the turn may have written."""
    due: str | None = None
    """When it begins: RFC 3339, UTC; None is at once."""
    pause_s: float = 0.0
    """Seconds after which it begins; where there is no `due`."""
    attempt: int = 0
    """How often the same stretch was tried before."""
    priority: int = NORMAL_PRIORITY
    """From 1, which goes first, to 5. It orders what waits for one owner."""
    owner: str = ""
    """Whose the conversation is: workers may limit how many of one owner they work on at once."""
    parked_under: int = 0
    """Token of the lease under which somebody asked to have a parked conversation tried once more: the next
    worker that takes the conversation does, and those after it do not. 0 where nobody asked."""

    @property
    def id(self) -> str:
        """The id under which a host performs it once."""
        name = f"{self.conversation}/{self.key}"
        return f"{name}/{self.attempt}" if self.attempt else name

    @property
    def has_message(self) -> bool:
        """Whether a message of the user waits for it; else it goes on with what is open."""
        return self.key.startswith(SUBMISSION_KEY)

    def compute_delay_s(self, now: str) -> float:
        """Seconds from now until it begins.

        Args:
            now: the present time, RFC 3339.
        """
        if self.due is None:
            return self.pause_s
        return max(0.0, (datetime.fromisoformat(self.due) - datetime.fromisoformat(now)).total_seconds())


Outcome = Literal["over", "waits", "held", "stopped", "unavailable", "failed", "parked"]
"""How a stretch left its conversation: the turn is over; it waits for somebody or for a time; another worker
holds it; this worker was stopped; the log could not be written; the stretch can never be done; too many
workers have died at the same place."""


class Rest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a stretch left its conversation. No content: that stands in the log."""

    outcome: Outcome
    state: str = ""
    next_seq: int = 0
    """Number of the next record."""
    due: str | None = None
    """When the conversation goes on by itself: RFC 3339, UTC."""
    version: str = ""
    """The version of the workers that may go on then."""
    error: str | None = None
    """Why the stretch failed, or why the conversation is parked."""

    @property
    def has_rested(self) -> bool:
        """Whether the turn is over, or waits for somebody or for a time."""
        return self.outcome in ("over", "waits")


class DurableHost(Protocol):
    """Starts stretches on some worker; implemented over DBOS and Temporal, and in process."""

    async def start(self, stretch: Stretch) -> None:
        """Have a stretch performed when it is due, once for its id, also after the end of this process.

        Where a stretch of this id was started already, nothing happens. The host starts what `plan_next` says
        after it.

        Raises:
            DurableHostUnavailable: the host cannot be reached; the stretch was not started.
        """
        ...


Workers = Literal["ready", "of another chart", "none"]
"""Who takes stretches of a chart: workers of it; those that live are of another chart, or of another version
of this one; or nobody lives."""


class FollowedHost(DurableHost, Protocol):
    """A host that can also say how a stretch has ended, and whether workers live."""

    def find_workers(self, version: str) -> Workers:
        """Whether workers of a chart take stretches now; blocking.

        Raises:
            DurableHostUnavailable: the host cannot be reached.
        """
        ...

    async def find_rest(self, stretch: Stretch) -> Rest | None:
        """How a stretch has left its conversation; None where it has not ended.

        What the stretch has written is in the log then, and what follows it was started.

        Raises:
            DurableHostUnavailable: the host cannot be reached.
        """
        ...


def plan_next(stretch: Stretch, rest: Rest) -> Stretch | None:
    """What follows a stretch; None where its conversation waits for somebody, or is over."""
    match rest.outcome:
        case "waits" if rest.due is not None:
            # The next record names this rest: whoever finds it plans the same stretch, which the host
            # starts once.
            key = f"due/{rest.next_seq}"
            return Stretch(
                conversation=stretch.conversation,
                key=key,
                version=rest.version or stretch.version,
                due=rest.due,
                priority=stretch.priority,
                owner=stretch.owner,
            )
        case "held" if not stretch.has_message and stretch.attempt >= _HELD_ATTEMPTS:
            return None
        case "held" | "stopped" | "unavailable":
            # The inner bound: a float of 2 to the power of 1,024 is an error.
            pause_s = min(2.0 ** min(stretch.attempt, 10) / 2, _LONGEST_PAUSE_S)
            return replace(stretch, attempt=stretch.attempt + 1, due=None, pause_s=pause_s)
    return None


def compute_version(chart: str) -> str:
    """The version of workers of a chart: its digest, and the number of the core's semantics.

    Args:
        chart: its YAML text, as record 0 holds it.
    """
    digest = hashlib.sha256(chart.encode()).hexdigest()
    return f"{digest[:16]}-semantics-{SEMANTICS}"


class Submission(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of the user for a worker, as it lies in the store of the log until a turn begins with it."""

    stretch: Stretch
    """The one that begins the turn."""
    message: str
    options: Mapping[str, Any] = {}
    """Of the turn, as `encode_turn_options` makes them."""

    def digest_input(self) -> str:
        """A digest of what the user said, with its options."""
        return hashlib.sha256(encode_canonical([self.message, dict(self.options)])).hexdigest()[:32]


def decode_submission(data: bytes) -> Submission:
    """A submission from the store.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return msgspec.json.decode(data, type=Submission)


def encode_stretch(stretch: Stretch) -> str:
    """A stretch as JSON, as hosts keep it."""
    return msgspec.json.encode(stretch).decode()


def decode_stretch(text: str) -> Stretch:
    """A stretch from its JSON.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.json.decode(text, type=Stretch)


def encode_rest(rest: Rest) -> str:
    """A rest as JSON, as hosts keep it."""
    return msgspec.json.encode(rest).decode()


def decode_rest(text: str) -> Rest:
    """A rest from its JSON.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.json.decode(text, type=Rest)
