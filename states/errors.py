"""Every error that Toolchart raises on purpose, in one tree.

    ToolchartError
    |-- SpecError          a chart, an agent spec or a history file that cannot be used
    |-- IllegalEvent       an event that the current state does not take
    |-- ProviderError      a model call that failed
    |-- Warned             a warning, where the agent's policy is strict
    |-- Unanswered         offline, something that was never recorded
    |-- ReplayMismatch     a log that does not re-derive
    |-- LogConflict        another writer appended first
    |-- LogDamaged         a log that does not verify
    `-- LogUnavailable     a store that cannot be opened, read or written

An error text says what is wrong, where, what is allowed and what to do next. A tool's failure is
never an error of this tree: it is data for the model.
"""

from __future__ import annotations

from dataclasses import dataclass


class ToolchartError(Exception):
    """The root: `except ToolchartError` catches whatever Toolchart reports on purpose."""


class SpecError(ToolchartError):
    """A chart or agent spec that cannot be used, with the place where it goes wrong."""

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
        super().__init__(self._text())

    def _text(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        head = ": ".join(part for part in (place, self.path, self.message) if part)
        return f"{head}\n  {self.hint}" if self.hint else head


class IllegalEvent(ToolchartError):
    """An event that no enabled transition takes; the snapshot is untouched."""

    def __init__(
        self,
        event: str,
        state: str,
        *,
        refused: tuple[str, ...] = (),
        legal: tuple[str, ...] = (),
    ) -> None:
        self.event = event
        self.state = state
        self.refused = refused
        """Guards that were asked and were false."""
        self.legal = legal
        """Events that some transition of the state takes."""
        text = f"no transition takes {event!r} in state {state!r}"
        if refused:
            text += "; false guards: " + ", ".join(refused)
        text += "; events taken here: " + (", ".join(legal) or "none, the state is final")
        super().__init__(text)


@dataclass(slots=True)
class ProviderError(ToolchartError):
    """A model call that failed, classified so that a chart can decide what to do."""

    kind: str
    """One of `FAILURE_KINDS` in `toolchart.states.events`."""
    message: str
    """The provider's words, without secrets."""
    status: int | None = None
    """HTTP status, where there was one."""
    retryable: bool = False
    """Whether the same request may succeed later."""
    retry_after_s: float | None = None
    """Seconds that the provider asked to wait."""

    def __str__(self) -> str:
        status = f" (HTTP {self.status})" if self.status is not None else ""
        return f"{self.kind}{status}: {self.message}"


class Warned(ToolchartError):
    """A warning under a strict policy: it stands in the log, and nothing further was done."""


class Unanswered(ToolchartError):
    """Something was asked for offline that the recorded conversation has no answer to."""


class ReplayMismatch(ToolchartError):
    """The first place where a log does not re-derive from its own recorded answers."""

    def __init__(
        self, *, seq: int, pointer: str, expected: object, got: object, blame: str
    ) -> None:
        self.seq = seq
        """Sequence number of the record."""
        self.pointer = pointer
        """JSON pointer into the record."""
        self.expected = expected
        """What the log holds."""
        self.got = got
        """What was derived now."""
        self.blame = blame
        """Class of cause: `chart`, `spec`, `tool schema`, `adapter` or `engine`."""
        super().__init__(
            f"record {seq} differs at {pointer}: the log has {expected!r}, replay gives {got!r} "
            f"(cause: {blame})"
        )


class LogConflict(ToolchartError):
    """Another writer already appended this record; nothing was written."""


class LogDamaged(ToolchartError):
    """A log that does not verify, with the first record that shows it."""

    def __init__(self, message: str, *, conversation: str | None = None, seq: int | None = None):
        self.conversation = conversation
        self.seq = seq
        where = f"conversation {conversation}" if conversation else "log"
        where += f", record {seq}" if seq is not None else ""
        super().__init__(f"{where}: {message}")


class LogUnavailable(ToolchartError):
    """A store that cannot be opened, read or written; what was acknowledged before is intact."""
