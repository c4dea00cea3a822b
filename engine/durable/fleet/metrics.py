"""OpenTelemetry metrics of a worker and of its queue.

What one worker does are counters and histograms of that worker. What the queue holds is read from the
database when somebody collects: each worker reports the same, so take it from one, or the newest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from toolchart.engine.durable.stretches import Rest
from toolchart.states.errors import SpecError, format_install

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

log = logging.getLogger("toolchart.engine")

_SCOPE = "toolchart.worker"

_BUCKETS_S = (0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84, 655.36, 2621.44)

AGENT = "gen_ai.agent.name"
"""The attribute of every metric; that of the conventions, as in the metrics of turns."""


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a queue that have the same state, priority and version."""

    state: str
    """`waiting` for a worker, `delayed` until a time, or `running`."""
    priority: int
    version: str
    """Of the workers that may take them."""
    count: int
    overdue: int = 0
    """Those of the delayed ones whose time has come."""
    oldest_s: float = 0.0
    """Seconds since the oldest of them came into this state."""


class FleetMetrics:
    """Counts what a worker does, and tells what its queue holds.

    Args:
        agent: name of the agent.
        read_figures: reads the queue; it is called in the thread of whoever collects.
        count_lost_leases: how many conversations the worker had to give up because another one took them.

    Raises:
        SpecError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        meter_provider: MeterProvider,
        agent: str,
        read_figures: Callable[[], Sequence[QueueFigures]],
        count_lost_leases: Callable[[], int],
    ) -> None:
        try:
            from opentelemetry.metrics import Observation
        except ImportError:
            raise SpecError(
                "metrics need OpenTelemetry, which is not installed", hint=format_install("metrics")
            ) from None
        self._make_observation = Observation
        self._attributes = {AGENT: agent}
        self._read_figures = read_figures
        self._figures: Sequence[QueueFigures] = ()
        self._running = 0
        meter = meter_provider.get_meter(_SCOPE)
        self._stretches = meter.create_histogram(
            "toolchart.worker.stretch.duration",
            unit="s",
            description="Stretches that this worker has performed, by their outcome",
            explicit_bucket_boundaries_advisory=_BUCKETS_S,
        )
        self._handed_on = meter.create_counter(
            "toolchart.worker.handed_on",
            unit="{stretch}",
            description="Stretches of dead workers that this supervisor has handed on",
        )
        self._make_gauges(meter)
        meter.create_observable_counter(
            "toolchart.worker.lost_leases",
            [_ignore_options(lambda: [Observation(count_lost_leases(), self._attributes)])],
            unit="{conversation}",
            description="Conversations that another worker has taken over from this one",
        )

    def _make_gauges(self, meter: Meter) -> None:
        gauges: tuple[tuple[str, str, str, Callable[[], Iterable[Observation]]], ...] = (
            # The first one reads the queue; the others take what it has read.
            ("toolchart.queue.length", "{entry}", "Entries of the queue", self._observe_length),
            ("toolchart.queue.oldest", "s", "Age of the oldest entry that waits", self._observe_age),
            ("toolchart.queue.overdue", "{entry}", "Delayed entries that are due", self._observe_overdue),
            ("toolchart.worker.running", "{stretch}", "Stretches that run now", self._observe_running),
        )
        for name, unit, description, observe in gauges:
            callbacks = [_ignore_options(observe)]
            meter.create_observable_gauge(name, callbacks, unit=unit, description=description)

    @contextmanager
    def measure_stretch(self) -> Iterator[Callable[[Rest], None]]:
        """Count what runs within the block as a stretch; call what is yielded with how it has ended."""
        started_s = time.monotonic()
        self._running += 1

        def note(rest: Rest) -> None:
            attributes = {**self._attributes, "toolchart.stretch.outcome": rest.outcome}
            self._stretches.record(time.monotonic() - started_s, attributes)

        try:
            yield note
        finally:
            self._running -= 1

    def note_handed_on(self, count: int) -> None:
        """Count stretches of dead workers that were handed on."""
        self._handed_on.add(count, self._attributes)

    # -- gauges ----------------------------------------------------------------------------------

    def _observe_length(self) -> Iterable[Observation]:
        try:
            self._figures = self._read_figures()
        except Exception as error:  # a collection has no caller that could do anything about it
            log.warning("the queue could not be measured: %s", error)
            self._figures = ()
        for figures in self._figures:
            attributes: dict[str, str | int] = {
                **self._attributes,
                "toolchart.queue.state": figures.state,
                "toolchart.queue.priority": figures.priority,
                "toolchart.version": figures.version,
            }
            yield self._make_observation(figures.count, attributes)

    def _observe_age(self) -> Iterable[Observation]:
        waiting = [figures.oldest_s for figures in self._figures if figures.state == "waiting"]
        yield self._make_observation(max(waiting, default=0.0), self._attributes)

    def _observe_overdue(self) -> Iterable[Observation]:
        yield self._make_observation(sum(figures.overdue for figures in self._figures), self._attributes)

    def _observe_running(self) -> Iterable[Observation]:
        yield self._make_observation(self._running, self._attributes)


def _ignore_options(
    observe: Callable[[], Iterable[Observation]],
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda _: observe()
