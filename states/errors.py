"""Every error that Toolchart raises on purpose, in one tree.

    ToolchartError
    |-- SpecError              a chart, an agent spec or a history file that cannot be used
    |   |-- PluginUnusable     something of another package that is named, and cannot be loaded
    |   |-- SettingsWidened    a change that gives a turn more than its bound
    |   `-- TurnChanged        a turn that is run once, asked for with another input or of another agent
    |-- NotFound               a conversation or a turn that is not in the log
    |-- PluginFailure          code of another package that raised while it was used
    |-- EffectRefused          an effect of a log's chart that the operator's own chart does not declare
    |-- IllegalEvent           an event for which the current state has no enabled transition
    |-- ProviderError          a model call that failed
    |-- NoRecordedAnswer       an offline run that needs an answer which was never recorded
    |-- ReplayMismatch         a log that replay does not derive again
    |   `-- UnknownSemantics   records that only another release can derive
    |-- LogConflict            another writer appended first
    |   |-- LeaseHeld          another worker works on the conversation
    |   `-- LeaseLost          this worker has lost its lease, so it appends nothing
    |-- TurnCancelled          a turn that a signal cancelled
    |-- DurableHostUnavailable a durable host that cannot be reached, so a stretch was not started
    |-- LogDamaged             a log that fails verification
    `-- LogUnavailable         a store that cannot be opened, read or written
        |-- ForeignLog         a file or database that is no log of Toolchart
        |-- NewerLog           a log in a format of a later release
        |-- LogBusy            another writer is at work; nothing was waited for
        `-- StorageFailure     the machine failed: the disk is full, or reading or writing failed

The text of an error names what is wrong, where, what is allowed and what to do next. The failure of a tool
is not an error of this tree: it is data for the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches

EXTRA_PACKAGES = {
    "bedrock": ("botocore>=1.44",),
    "durable": ("dbos>=3.4,<4",),
    "temporal": ("temporalio>=1.35,<2",),
    "entra": ("azure-identity>=1.23",),
    "http": ("jsonpath-ng>=1.6",),
    "mcp": ("mcp>=2.3,<3",),
    "otel": ("opentelemetry-api>=1.45",),
    "otlp": ("opentelemetry-sdk>=1.45", "opentelemetry-exporter-otlp-proto-http>=1.45"),
    "pdf": ("pypdf>=5",),
    "pictures": ("resvg-py>=0.5,<0.6",),
    "postgres": ("psycopg[binary]>=3.2",),
    "serve": ("starlette>=0.48", "uvicorn>=0.35", "jinja2>=3.1", "prometheus-client>=0.22"),
}
"""The packages of each extra. A test compares them with `pyproject.toml`."""


def format_install(*extras: str) -> str:
    """The command that installs what extras need, wherever Toolchart itself was installed from.

    >>> format_install("pdf")
    "pip install 'pypdf>=5'"
    """
    packages = [package for extra in extras for package in EXTRA_PACKAGES[extra]]
    return " ".join(["pip install", *(f"'{package}'" for package in packages)])


class ToolchartError(Exception):
    """The root: `except ToolchartError` catches every error that Toolchart raises on purpose."""


class SpecError(ToolchartError):
    """A chart or agent spec that cannot be used, with file, line and key path."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        self.file = file
        """Path or name of the document."""
        self.line = line
        """One-based line in the document."""
        self.path = path
        """Key path, for instance `responses[0].tools.max_iterations`."""
        self.hint = hint
        """What is allowed, or what to do next."""
        super().__init__(self._format_text())

    def _format_text(self) -> str:
        location = self.file or ""
        if self.line is not None:
            location = f"{location}:{self.line}" if location else f"line {self.line}"
        first_line = ": ".join(part for part in (location, self.path, self.message) if part)
        return f"{first_line}\n  {self.hint}" if self.hint else first_line


class PluginUnusable(SpecError):
    """Something that another package adds, and that was named, cannot be loaded."""


class NotFound(ToolchartError):
    """The log does not have what was named: there is no such conversation, or it has no turn yet.

    Nothing was written. It is no `SpecError`: the agent can be used.
    """

    def __init__(self, conversation: str, *, part: str = "", hint: str = "") -> None:
        """For what a conversation that exists does not have yet, `part` says what."""
        self.conversation = conversation
        """The id that was asked for."""
        self.hint = hint
        """What to do next; empty where nothing is known."""
        problem = (
            f"conversation {conversation!r} has no {part} yet"
            if part
            else f"there is no conversation {conversation!r} in this log"
        )
        super().__init__(problem + (hint and f"\n  {hint}"))


class PluginFailure(ToolchartError):
    """Code of another package raised an error that is none of Toolchart while it was used."""


class SettingsWidened(SpecError):
    """A change that would give a turn more than the agent spec gives; `path` names the setting."""


class TurnChanged(SpecError):
    """A turn that is run once was asked for with another input, or of an agent that has changed.

    Nothing was run or read.
    """

    def __init__(self, subject: str, difference: str, hint: str) -> None:
        self.difference = difference
        """What differs, with the value in the log and the one now: `another message: 'a' then, 'b' now`."""
        super().__init__(f"{subject} with {difference}", hint=hint)


def find_missing_package(error: ImportError) -> str | None:
    """The package of somebody else that an import did not find, or not in a version that will do.

    None where the fault is in a module of our own: that is a defect, and no installation mends it.
    """
    package = (error.name or "").partition(".")[0]
    return package if package and package != __name__.partition(".")[0] else None


def explain_import_fault(error: ImportError, what: str, *extras: str) -> ImportError | SpecError:
    """The error to raise where a part with packages of its own cannot be imported.

    Args:
        what: the part that needs them.
        extras: the extras that bring them.
    """
    if find_missing_package(error) is None:
        return error
    return SpecError(f"{what} needs more packages: {error}", hint=format_install(*extras))


class EffectRefused(ToolchartError):
    """A conversation asks for an effect that the operator's own chart does not name, or declares otherwise.

    Nothing of the effect was performed. The conversation stays open.
    """

    def __init__(self, effect: str, action: str, problem: str, conversation: str) -> None:
        self.effect = effect
        """Its name in the chart of the log."""
        self.action = action
        """What performing it would do: `call_function os:system`."""
        self.conversation = conversation
        super().__init__(
            f"conversation {conversation!r} asks for the effect {effect!r} ({action}), and the chart of your "
            f"agent {problem}: nothing was performed\n"
            "  a log starts nothing by itself: go on with the agent that began it (--spec), or move it to "
            f"your chart: toolchart migrate {conversation} --spec SPEC"
        )


class IllegalEvent(ToolchartError):
    """An event for which no transition is enabled. The snapshot does not change."""

    def __init__(
        self,
        event: str,
        state: str,
        *,
        false_conditions: tuple[str, ...] = (),
        legal: tuple[str, ...] = (),
        text: str = "",
    ) -> None:
        """`text` says it in place of the conditions, where somebody knows it better."""
        self.event = event
        self.state = state
        self.false_conditions = false_conditions
        """Guards that were false, or conditions on the event that do not hold."""
        self.legal = legal
        """Events for which the state has a transition."""
        derived_text = f"no transition takes {event!r} in state {state!r}"
        if false_conditions:
            derived_text += "; false guards: " + ", ".join(false_conditions)
        if legal or not false_conditions:  # a false condition alone does not say what the state takes
            derived_text += "; events taken here: " + (", ".join(legal) or "none, the state is final")
        super().__init__(text or derived_text)


class AlreadyDecided(IllegalEvent):
    """A decision about a call that is decided. Nothing was written, and what was decided stands."""

    def __init__(self, call_id: str, state: str, *, approved: bool, by: str, at: str) -> None:
        super().__init__("decided", state)
        self.call_id = call_id
        self.approved = approved
        self.by = by
        """Who decided; empty where the log does not say."""
        self.at = at
        """When: RFC 3339, UTC."""
        outcome = "approved" if approved else "rejected"
        who = f" by {by!r}" if by else ""
        self.args = (f"call {call_id!r} is decided already: {outcome}{who} at {at}; nothing was changed",)


@dataclass(slots=True)
class ProviderError(ToolchartError):
    """A model call that failed, classified so that a chart can decide what to do."""

    kind: str
    """One of `FAILURE_KINDS` in `toolchart.states.events`."""
    message: str
    """The provider's message, without secrets."""
    status: int | None = None
    """HTTP status, if there was one."""
    retryable: bool = False
    """Whether the same request may succeed later."""
    retry_after_s: float | None = None
    """Seconds that the provider asked to wait."""
    wire_digest: str | None = None
    """Digest of the body that the adapter handed over; None if the call failed before there was one."""
    rate_limits: dict[str, dict[str, float]] | None = None
    """What the host said about its limits, as in `Reply.rate_limits`."""

    def __str__(self) -> str:
        status = f" (HTTP {self.status})" if self.status is not None else ""
        return f"{self.kind}{status}: {self.message}"


class NoRecordedAnswer(ToolchartError):
    """An offline run needs an answer that the recorded conversation does not contain."""


class ReplayMismatch(ToolchartError):
    """The first difference between a log and its replay."""

    def __init__(
        self, *, seq: int, pointer: str, expected: object, actual: object, blame: str, host: str = ""
    ) -> None:
        self.seq = seq
        """Sequence number of the record."""
        self.pointer = pointer
        """JSON pointer into the record."""
        self.expected = expected
        """The value in the log."""
        self.actual = actual
        """The value that replay derived."""
        self.blame = blame
        """Kind of cause: `chart`, `spec`, `tool schema`, `tool source`, `texts`, `release`, `adapter` or
        `engine`."""
        self.host = host
        """The model host (the `provider` of its `llms` entry) whose `adapter` differs; else empty."""
        super().__init__(
            f"record {seq} differs at {pointer}: the log has {expected!r}, replay gives {actual!r} "
            f"(cause: {self.cause})"
        )

    @property
    def cause(self) -> str:
        """The cause in words: `chart`, or `adapter of openai`."""
        return f"{self.blame} of {self.host}" if self.host else self.blame


class UnknownSemantics(ReplayMismatch):
    """Records that another release derived, with semantics of the core that this release does not have."""

    def __init__(self, *, seq: int, recorded: int, known: int, release: str, hint: str = "") -> None:
        super().__init__(
            seq=seq, pointer="/event/versions/semantics", expected=recorded, actual=known, blame="release"
        )
        self.release = release
        """The release that derives them."""
        self.hint = hint
        """What to do next."""
        self.args = (
            f"record {seq} and those after it were derived by semantics {recorded} of the core, and this "
            f"release has semantics {known}\n"
            f"  release {release} of Toolchart replays them and ends the open turn; reading, drawing, "
            f"exporting and verifying need no other release{hint and f'; {hint}'}",
        )


class LogConflict(ToolchartError):
    """Another writer already appended this record; nothing was written."""


class LeaseHeld(LogConflict):
    """Another worker works on the conversation; nothing was written."""

    def __init__(self, conversation: str, worker: str, since: float, expires: float) -> None:
        self.conversation = conversation
        self.worker = worker
        """Who works on it."""
        self.since = since
        """Since when: seconds since 1970."""
        self.expires = expires
        """When its lease ends, unless it is renewed: seconds since 1970."""
        start = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        super().__init__(
            f"conversation {conversation!r} is worked on by {worker}, since {start}\n"
            "  wait for it, or stop it: toolchart cancel; a worker that dies loses it after a while"
        )


class LeaseLost(LogConflict):
    """Another worker has taken the conversation over; nothing was written, and nothing more is begun."""


class TurnCancelled(ToolchartError):
    """A signal cancelled a turn that is run once. The log has it up to there, and asking again goes on."""

    def __init__(self, signal: str) -> None:
        self.signal = signal
        """The name of the signal, for instance `SIGTERM`."""
        super().__init__(f"{signal} cancelled the turn; the log has it up to there")


class DurableHostUnavailable(ToolchartError):
    """A durable host that cannot be reached. Nothing was started; asking again is safe."""


class LogDamaged(ToolchartError):
    """A log that fails verification, with the first record that is wrong."""

    def __init__(self, message: str, *, conversation: str | None = None, seq: int | None = None):
        self.problem = message
        """What is wrong, without the place."""
        self.conversation = conversation
        self.seq = seq
        location = f"conversation {conversation}" if conversation else "log"
        location += f", record {seq}" if seq is not None else ""
        super().__init__(f"{location}: {message}")

    @property
    def hint(self) -> str:
        """What to do next; empty where `problem` says it."""
        if "\n" in self.problem:
            return ""
        hint = "`toolchart verify` lists all damage, and what is intact; restore the log from a backup"
        if self.conversation is None:
            return hint
        return (
            f"{hint}, or keep the intact conversations:\n"
            "  toolchart export --format jsonl > intact.jsonl; toolchart import intact.jsonl --log new.db"
        )


class LogUnavailable(ToolchartError):
    """A store that cannot be opened, read or written. Records that were acknowledged earlier are intact."""


class ForeignLog(LogUnavailable):
    """A file or database that no release of Toolchart has written. Nothing in it was changed."""


class NewerLog(LogUnavailable):
    """A log in a format that only a later release reads. Nothing says that it is damaged."""


class LogBusy(LogUnavailable):
    """Another writer is at work, and the caller does not wait."""


class StorageFailure(LogUnavailable):
    """The machine failed: the disk is full, or it cannot be read or written."""


def describe_value(value: object) -> str:
    """A value that is not allowed where it stands, for an error: a function or a class by its name."""
    text = str(getattr(value, "__name__", None) or repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def suggest_name(name: str, candidates: Iterable[str]) -> str:
    """A hint for a misspelt name: the most similar candidate, or all candidates."""
    names = sorted(candidates)
    matches = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {matches[0]!r}?" if matches else "known: " + ", ".join(names)
