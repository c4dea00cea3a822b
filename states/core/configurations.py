"""`Migrated`: an open conversation goes on with another chart; and which events bring a chart."""

from __future__ import annotations

from typing import ClassVar

from toolchart.states.events import Configured


class Migrated(Configured, frozen=True, kw_only=True, tag="migrated"):
    """An open conversation goes on with another chart; the proof that it may was made before.

    The chart takes over the configuration, the open effects, the results and the counters as they are.
    """

    TYPE: ClassVar[str] = "migrated"


CONFIGURATION_TYPES = (Configured.TYPE, Migrated.TYPE)
"""The events that bring a chart, a spec and tools."""
