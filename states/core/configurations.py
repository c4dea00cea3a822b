"""Events about a whole conversation: `Migrated` (another chart), `Erased` (content is gone); and which events
bring a chart."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from toolchart.states.events import Configured, Event


class Migrated(Configured, frozen=True, kw_only=True, tag="migrated"):
    """An open conversation goes on with another chart; the proof that it may was made before.

    The chart takes over the configuration, the open effects, the results and the counters as they are.
    """

    TYPE: ClassVar[str] = "migrated"


class ErasedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A record that a stand-in replaced."""

    seq: int
    digest: str
    """SHA-256 of the stand-in, as the stand-in itself has it."""
    is_content: bool
    """Whether content was erased in it; else only digests that depend on such content were replaced."""


class Erased(Event, frozen=True, kw_only=True, tag="erased"):
    """Content of earlier records was erased. Each is replaced by a stand-in without the content."""

    TYPE: ClassVar[str] = "erased"
    records: tuple[ErasedRecord, ...]
    by: str | None = None
    """Who had it erased."""
    reason: str | None = None


CONFIGURATION_TYPES = (Configured.TYPE, Migrated.TYPE)
"""The events that bring a chart, a spec and tools."""
