"""`toolchart worker`: take turns of an agent from a queue in PostgreSQL, and run them."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.parameters.options import (
    dsn_option,
    durability_option,
    list_engine_options,
    log_option,
)
from toolchart.app.cli.parameters.parking import park_after_option
from toolchart.app.cli.terminal.stopping import GRACE_S
from toolchart.app.cli.terminal.text import print_notice
from toolchart.engine.durable.client import check_address
from toolchart.engine.durable.stretches import LONGEST_WAIT_S
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.states.errors import explain_import_fault

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

    from toolchart.engine.durable.dbos_worker import DbosWorker
    from toolchart.engine.telemetry.live import Telemetry

_MOST = 1_000_000
"""Of what a limit may be; the queue has a bound of its own, which it does not explain."""


@click.command(short_help="Take turns from a queue in PostgreSQL, and run them.")
@click.argument("spec")
@click.option(
    "--concurrency",
    type=click.IntRange(1, _MOST),
    default=16,
    show_default=True,
    metavar="N",
    help="Most conversations that one worker works on at once. That of the worker which started last holds "
    "for all workers of the agent.",
)
@click.option(
    "--per-owner",
    type=click.IntRange(min=1),
    metavar="N",
    help="Most conversations of one owner that one worker works on at once, so that others get their turn. "
    "That of the worker which started last holds for all. Default: no limit.",
)
@click.option(
    "--rate",
    metavar="N/SECONDS",
    help="Most conversations that the whole fleet takes up in so many seconds, as the worker which started "
    "last says. Default: no limit.",
)
@click.option(
    "--supervise",
    "supervises",
    is_flag=True,
    help="Also hand on the work of dead workers, and wake conversations that nobody goes on with.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0),
    default=GRACE_S,
    show_default=True,
    metavar="SECONDS",
    help="Time that running calls have to end when the worker is stopped.",
)
@park_after_option
@click.option(
    "--metrics",
    "metrics_address",
    metavar="HOST:PORT",
    help="Serve metrics of the worker, its queue and its turns for Prometheus at http://HOST:PORT/metrics.",
)
@dsn_option
@durability_option
@log_option
def command(
    spec: str,
    concurrency: int,
    per_owner: int | None,
    rate: str | None,
    supervises: bool,
    grace_s: float,
    park_after: int,
    metrics_address: str | None,
    dsn: str,
    durability: str | None,
    log: str | None,
) -> int:
    """Run turns of the agent SPEC that `toolchart submit` put into the queue of a PostgreSQL database.

    Any number of workers may run; one of them at least with --supervise. The log is in the same database,
    unless --log names another one that all workers share. A worker takes conversations of its own chart only.
    SIGTERM, SIGHUP and Ctrl-C let running calls end and give everything else back.

    \b
    Example:  toolchart worker agent.yaml --dsn postgresql://bot@db/bot --supervise
              toolchart worker agent.yaml --dsn postgresql://bot@db/bot --concurrency 50 --rate 100/60
              toolchart worker agent.yaml --dsn postgresql://bot@db/bot --metrics 127.0.0.1:9464
    """
    from toolchart.engine.durable.dbos_worker import DbosWorker, WorkerOptions

    check_address(dsn)
    options = WorkerOptions(
        concurrency=concurrency,
        per_owner=per_owner,
        rate=_parse_rate(rate),
        supervises=supervises,
        grace_s=grace_s,
    )

    async def work(provider: MeterProvider | None, telemetry: Telemetry | None) -> None:
        waits: Any = {"longest_wait_s": LONGEST_WAIT_S, "telemetry": telemetry, "park_after": park_after}
        waits |= {"log": log or dsn, "durability": durability}
        async with Engine(**list_engine_options(spec), **waits) as engine:
            await _work_until_signal(DbosWorker(engine, dsn, options, meter_provider=provider), grace_s)

    with _serve_metrics(metrics_address) as provider, open_telemetry(meter_provider=provider) as telemetry:
        asyncio.run(work(provider, telemetry))
    return SUCCESS


def _serve_metrics(address: str | None) -> AbstractContextManager[MeterProvider | None]:
    """Where metrics go within the block; None where nobody asked for them.

    Raises:
        click.UsageError: the address is not of the form HOST:PORT.
        SpecError: the extra is not installed, or the port is in use.
    """
    if address is None:
        return nullcontext()
    host, port = _parse_address(address)
    try:
        from toolchart.app.cli.metrics_page import serve_metrics
    except ImportError as error:
        raise explain_import_fault(error, "--metrics", "metrics") from None
    return serve_metrics(host, port)


def _parse_address(address: str) -> tuple[str, int]:
    """The host and the port of `--metrics`.

    Raises:
        click.UsageError: it is not of the form HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise click.UsageError(f"--metrics {address!r} is not of the form HOST:PORT, such as 127.0.0.1:9464.")
    return host.strip("[]"), int(port)


async def _work_until_signal(worker: DbosWorker, grace_s: float) -> None:
    """Work until a signal asks the process to stop."""
    stop, has_begun = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)  # a second one ends the process at once
        print_notice(f"toolchart: {number.name}: what runs may end, for {grace_s:g} s")
        stop.set()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, request_stop, number)
    report = asyncio.create_task(_report_begin(has_begun, worker.agent, worker.version))
    try:
        await worker.run(stop, has_begun)
    finally:
        report.cancel()


async def _report_begin(has_begun: asyncio.Event, agent: str, version: str) -> None:
    await has_begun.wait()
    print_notice(f"toolchart: works on {agent!r}, version {version}")


def _parse_rate(rate: str | None) -> tuple[int, float] | None:
    """The number and the seconds of `--rate`.

    Raises:
        click.UsageError: it is not of the form N/SECONDS.
    """
    if rate is None:
        return None
    count, _, seconds = rate.partition("/")
    try:
        values = int(count), float(seconds)
    except ValueError:
        values = 0, 0.0
    if not 1 <= values[0] <= _MOST or not 0 < values[1] < float("inf"):
        raise click.UsageError(f"--rate {rate!r} is not of the form N/SECONDS, such as 100/60.")
    return values
