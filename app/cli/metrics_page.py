"""Serves metrics of this process to Prometheus, in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from toolchart.app.cli.terminal.text import print_notice
from toolchart.states.errors import SpecError


@contextmanager
def serve_metrics(host: str, port: int) -> Iterator[MeterProvider]:
    """Where metrics go within the block; the page is at `/metrics`.

    Args:
        port: 0 for any that is free, which is printed.

    Raises:
        SpecError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        problem = f"--metrics: cannot listen on {host}, port {port}: {error.strerror or error}"
        raise SpecError(problem, hint="choose another address") from None
    provider = MeterProvider(metric_readers=[PrometheusMetricReader(registry=registry)])
    name = f"[{host}]" if ":" in host else host
    print_notice(f"toolchart: metrics at http://{name}:{server.server_port}/metrics")
    try:
        yield provider
    finally:
        provider.shutdown()
        server.shutdown()
        server.server_close()
        thread.join()
