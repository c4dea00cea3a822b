"""`toolchart serve`: serve an agent over HTTP, with pages for a browser."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.commands.agents.models_validate import results_option
from toolchart.app.cli.parameters.options import (
    durability_option,
    limits_option,
    list_engine_options,
    load_named_spec,
    log_option,
)
from toolchart.app.cli.terminal.log_messages import configure_logging
from toolchart.app.cli.terminal.text import print_notice
from toolchart.app.server.access.tokens import NewToken, make_tokens
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.runtime.engine import Engine
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.states.errors import explain_import_fault

if TYPE_CHECKING:
    from toolchart.app.server.serving import Address
    from toolchart.app.server.site import Site
    from toolchart.engine.durable.fleet.metrics import QueueFigures
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.specs.models import AgentSpec


@click.command(short_help="Serve an agent over HTTP, with pages for a browser.")
@click.argument("spec")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="The port to listen on."
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on."
)
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="NAME:ROLE,ROLE",
    help="A token with roles: read, chat, approve, edit, debug (fork and test beyond what the handlers "
    "give), delete (conversations from the log), all (the conversations of everybody, not its own alone). "
    "Its value is that of TOOLCHART_TOKEN_NAME, or is made up and printed. Repeatable.  "
    "[default: owner, with every role]",
)
@click.option("--certificate", type=click.Path(), metavar="FILE", help="Serve TLS with this certificate.")
@click.option("--key", type=click.Path(), metavar="FILE", help="The private key of the certificate.")
@click.option(
    "--allow-plain-http",
    is_flag=True,
    help="Listen without TLS on an address that others reach: they can read along.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A further name under which browsers address this server. Repeatable.",
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A site whose pages may use this server: https://chat.example. Repeatable.",
)
@click.option(
    "--allow-inline",
    is_flag=True,
    help="Let the testing API take configurations from requests: of mock and builtin tools only.",
)
@click.option(
    "--edit",
    "edit_folder",
    type=click.Path(exists=True, file_okay=False),
    metavar="FOLDER",
    help="Let tokens with the role edit save charts to files of this folder.",
)
@limits_option
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running turns may go on to their end when the server is stopped.",
)
@click.option(
    "--durable",
    "queue_address",
    metavar="ADDRESS",
    help="Hand turns over to the workers (`toolchart worker`) of this PostgreSQL database. Its log is used "
    "without --log.",
)
@results_option
@durability_option
@log_option
def command(
    spec: str,
    port: int,
    host: str,
    tokens: tuple[str, ...],
    certificate: str | None,
    key: str | None,
    allow_plain_http: bool,
    names: tuple[str, ...],
    origins: tuple[str, ...],
    allow_inline: bool,
    edit_folder: str | None,
    limits: tuple[str, ...],
    grace_s: float,
    queue_address: str | None,
    results: str,
    durability: str | None,
    log: str | None,
) -> None:
    """Serve the agent SPEC over HTTP until Ctrl-C: APIs for programs, pages for people.

    A link to sign in is printed, and each token that is made up. Only this machine is served unless --host
    names another address. See docs/serve.md.

    \b
    Example:  toolchart serve quickstart
              toolchart serve agent.yaml --token anna:chat,approve --token viewer:read
              toolchart serve agent.yaml --edit charts
              toolchart serve agent.yaml --durable postgresql://bot@db/bot
              toolchart serve agent.yaml --host 0.0.0.0 --certificate chain.pem --key key.pem
    """
    try:
        from toolchart.app.server.serving import (
            Address,
            check_address,
            make_settings,
            open_socket,
            serve_site,
        )
    except ImportError as error:
        raise explain_import_fault(error, "serve", "serve") from None
    from toolchart.app.server.application import build_application
    from toolchart.app.server.site import Site, read_limits

    configure_logging(verbose=False, shows_turns=True)
    address = Address(host=host, port=port, certificate=certificate, key=key, allows_plain=allow_plain_http)
    check_address(address)
    site_limits = read_limits(limits)
    options: dict[str, Any] = {"allow_inline": allow_inline, "results": results}
    settings = make_settings(address, names, source=spec, origins=origins, edit_folder=edit_folder, **options)
    new_tokens = make_tokens(tokens)
    with (
        ExitStack() as collection,
        open_socket(address) as listener,
        open_engine(
            spec, log, durability, queue_address, collection.enter_context(open_telemetry())
        ) as engine,
    ):

        def report_stop(number: int) -> None:
            name = signal.Signals(number).name
            print_notice(
                f"toolchart: {name}: no more turns begin; those that run may end, for {grace_s:g} s; "
                "a second signal waits no longer"
            )

        read_queue = make_queue_reader(queue_address, engine.spec) if queue_address is not None else None
        site = Site(
            engine,
            new_tokens,
            settings=settings,
            limits=site_limits,
            read_queue=read_queue,
            find_workers=engine.find_workers if isinstance(engine, FleetEngine) else None,
        )
        _print_start(site, address, new_tokens)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again when everything has ended
            application = build_application(site)
            serve_site(
                site,
                application,
                address,
                listener,
                grace_s=grace_s,
                on_signal=report_stop,
                on_end=collection.close,
            )
    print_notice("stopped")


@contextmanager
def open_engine(
    spec: str,
    log: str | None,
    durability: str | None,
    queue_address: str | None,
    telemetry: Telemetry | None = None,
) -> Iterator[Engine]:
    """The engine that is served: one that runs turns itself, or that hands them over to workers.

    Raises:
        SpecError: the spec or the address cannot be used.
        DurableHostUnavailable: the queue cannot be reached, or no worker has prepared it yet.
    """
    if queue_address is None:
        yield Engine(**list_engine_options(spec), log=log, durability=durability, telemetry=telemetry)
        return
    from toolchart.engine.durable.dbos_queue import DbosQueue

    agent, name = list_engine_options(spec), load_named_spec(spec).name
    parts = {"functions": agent.get("functions", ())}  # what else is Python, the workers have
    with closing(DbosQueue(queue_address, name or "agent")) as queue:
        yield FleetEngine(agent["spec"], queue, log=log or queue_address, durability=durability, **parts)


def make_queue_reader(address: str, spec: AgentSpec) -> Callable[[], Sequence[QueueFigures]]:
    """What reads the queue of an agent's workers; blocking."""
    from toolchart.engine.durable.fleet.queue_figures import build_queue_name, read_queue_figures

    return partial(read_queue_figures, address, build_queue_name(spec.name or "agent"))


def _print_start(site: Site, address: Address, tokens: list[NewToken]) -> None:
    """Print where the server is, how to sign in, and the tokens that nobody knows yet."""
    print_notice(f"serving {site.settings.source} at {address.url}; Ctrl-C stops it")
    for token in tokens:
        roles = ", ".join(sorted(token.access.roles))
        value = f": {token.value}" if token.is_generated else ", as its variable says"
        # Not by `print_notice`, which strikes secrets: this is the one place that shows a token.
        click.echo(f"token {token.access.name} ({roles}){value}", err=True)
        code = site.sessions.make_code(token.access)
        print_notice(f"  sign in once as {token.access.name}: {address.url}/sign-in?code={code}")
