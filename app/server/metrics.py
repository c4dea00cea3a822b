"""`/metrics`: what the server has counted, and how things stand now, in the text format of Prometheus.

Prometheus' own client writes the text; its global registry is not used, so nothing else of the process stands
there. Counters are those of `figures.py`. Gauges are read when somebody asks, in a thread: what waits for
people from the log, as `/api/approvals` reads it, and the queue from the database of the workers. Where one
of them cannot be read its gauges are missing, `toolchart_log_readable` is 0, and the rest is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart import __version__
from toolchart.app.server.answers import Refusal
from toolchart.app.server.conversations.approvals import find_cache
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.figures import LAG_BUCKETS_S, ServerFigures
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.engine.reading.approvals import RowCache, list_waiting
from toolchart.states.errors import ToolchartError, find_missing_package, format_install

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

log = logging.getLogger("toolchart.server")


def _watch_loop(site: Site) -> AbstractAsyncContextManager[None]:
    return site.figures.watch_loop()


ROUTES = RouteGroup(_watch_loop)


@ROUTES.endpoint("GET", "/metrics", "all", in_openapi=False)
async def report_metrics(request: Request) -> Response:
    """Tell what the server has counted and how things stand, as Prometheus reads it.

    Raises:
        Refusal: 501; Prometheus' client is not installed.
    """
    site = get_site(request)
    cache = find_cache(site, get_access(request), "waiting calls")
    try:
        text, media_type = await asyncio.to_thread(write_metrics, site, cache)
    except ImportError as error:
        if find_missing_package(error) is None:
            raise
        raise Refusal(501, f"metrics need more packages: {format_install('serve')}") from None
    return Response(text, media_type=media_type)


def write_metrics(site: Site, cache: RowCache) -> tuple[bytes, str]:
    """The text and its media type; blocking.

    Args:
        cache: what earlier looks at the waiting calls have read.
    """
    # Here, because it takes 0.1 s that no server needs before somebody asks.
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(site, cache))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Page:
    """The families of one answer; Prometheus' client calls `collect`."""

    def __init__(self, site: Site, cache: RowCache) -> None:
        self._site = site
        self._cache = cache

    def describe(self) -> Iterable[Metric]:
        """Nothing: names are known when they are collected."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families."""
        site = self._site
        yield from _describe_counters(site.figures)
        yield _describe_lag(site.figures)
        yield _make_gauge(
            "toolchart_running_turns", "Turns that hold a slot (limit `turns`).", site.turns.in_use
        )
        yield _make_gauge(
            "toolchart_open_streams", "Event streams that are open (limit `readers`).", site.readers.in_use
        )
        yield from self._describe_waiting()
        yield from self._describe_queue()
        yield _make_gauge(
            "toolchart_build_info", "The release that runs; always 1.", 1, {"version": __version__}
        )

    def _list_waiting(self) -> list[dict[str, Any]]:
        site = self._site
        answer = list_waiting(site.engine.store, self._cache, most=site.limits.approvals_in)
        rows: list[dict[str, Any]] = answer["waiting"]
        return rows

    def _describe_waiting(self) -> Iterator[Metric]:
        try:
            rows = self._list_waiting()
        except ToolchartError as error:
            log.warning("what waits for people could not be read: %s", error)
            yield _make_gauge("toolchart_log_readable", "Whether the log could be read.", 0)
            return
        yield _make_gauge("toolchart_log_readable", "Whether the log could be read.", 1)
        for name, key, what in (
            ("toolchart_waiting_approvals", "calls", "Tool calls that wait for a decision"),
            ("toolchart_waiting_questions", "questions", "Questions that wait for an answer"),
        ):
            count = sum(len(row[key]) for row in rows)
            yield _make_gauge(name, f"{what}, of all conversations that `/approvals` looks at.", count)

    def _describe_queue(self) -> Iterator[Metric]:
        if self._site.read_queue is None:
            return
        from prometheus_client.metrics_core import GaugeMetricFamily

        try:
            entries = self._site.read_queue()
        except Exception as error:  # of psycopg, which need not be installed; the next look may find it
            log.warning("the queue could not be measured: %s", type(error).__name__)
            return
        length = GaugeMetricFamily(
            "toolchart_queue_length",
            "Entries of the workers' queue.",
            labels=("state", "priority", "version"),
        )
        for entry in entries:
            length.add_metric((entry.state, str(entry.priority), entry.version), entry.count)
        yield length
        oldest_s = max((entry.oldest_s for entry in entries if entry.state == "waiting"), default=0.0)
        yield _make_gauge("toolchart_queue_oldest_seconds", "Age of the oldest entry that waits.", oldest_s)


def _describe_counters(figures: ServerFigures) -> Iterator[Metric]:
    # Copies: the event loop goes on counting.
    yield _make_counter(
        "toolchart_requests",
        "Requests by method, route and class of the status.",
        ("method", "route", "status"),
        figures.requests.copy(),
    )
    turns = {(end,): count for end, count in figures.turns.copy().items()}
    yield _make_counter(
        "toolchart_turns",
        "Turns by how they ended, and how often one came to rest without an end.",
        ("end",),
        turns,
    )
    for name, text, by_model in (
        (
            "toolchart_input_tokens",
            "Prompt tokens of answered model calls, cached ones included.",
            "input_tokens",
        ),
        (
            "toolchart_cached_tokens",
            "Those of the prompt tokens that hosts read from a cache.",
            "cached_tokens",
        ),
        ("toolchart_output_tokens", "Completion tokens, reasoning included.", "output_tokens"),
        ("toolchart_cost", "Cost of model calls, in the currency of the price table.", "cost"),
    ):
        counts: Mapping[str, float] = getattr(figures, by_model).copy()
        yield _make_counter(name, text, ("model",), {(model,): count for model, count in counts.items()})


def _describe_lag(figures: ServerFigures) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    counts, sum_s = figures.lags.copy(), figures.lag_s
    bounds = [*(str(bound) for bound in LAG_BUCKETS_S), "+Inf"]
    totals = accumulate(counts[index] for index in range(len(bounds)))
    return HistogramMetricFamily(
        "toolchart_loop_lag_seconds",
        "How late the event loop came to a task that was due, looked at four times a second.",
        buckets=list(zip(bounds, totals, strict=True)),
        sum_value=sum_s,
    )


def _make_counter(
    name: str, text: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], float]
) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family


def _make_gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=tuple(labels or ()))
    family.add_metric(tuple((labels or {}).values()), value)
    return family
