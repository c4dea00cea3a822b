"""`toolchart watch`: run a program of anybody, and see its exchanges with model hosts."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import closing

import click

from toolchart.app.cli import added_variables
from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.parameters.options import (
    durability_option,
    log_option,
    owner_option,
    parse_tags,
    tag_option,
)
from toolchart.app.cli.terminal.output import get_output
from toolchart.app.cli.terminal.text import print_notice
from toolchart.states.errors import explain_import_fault


@click.command(
    short_help="Run a program of anybody, and see its exchanges with model hosts.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", metavar="[--] [COMMAND] [ARG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the proxy; default: a free one.")
@click.option("--openai", metavar="URL", help="The host for OpenAI's APIs, with its version: https://.../v1.")
@click.option("--anthropic", metavar="URL", help="The host for Anthropic's API, without a version.")
@click.option("--gemini", metavar="URL", help="The host for Gemini's API, without a version.")
@click.option("--ollama", metavar="URL", help="The host for Ollama's API.")
@click.option(
    "--https",
    metavar="HOST[=PROVIDER]",
    multiple=True,
    help="A host that is seen although COMMAND speaks HTTPS to it; can be repeated.",
)
@click.option("--prices", metavar="FILE", help="A price table: adds the cost, where a host does not say it.")
@click.option("--chart", metavar="CHART", help="A chart or an agent: says where a program leaves it.")
@click.option(
    "--enforce", is_flag=True, help="Let only those calls reach the program that the agent of --chart allows."
)
@owner_option
@tag_option
@durability_option
@log_option
def command(
    words: tuple[str, ...],
    port: int | None,
    openai: str | None,
    anthropic: str | None,
    gemini: str | None,
    ollama: str | None,
    https: tuple[str, ...],
    prices: str | None,
    chart: str | None,
    enforce: bool,
    owner: str | None,
    tags: tuple[str, ...],
    durability: str | None,
    log: str | None,
) -> int:
    """Run COMMAND, in any language and unchanged, and write its model calls into a log as conversations.

    A proxy on this machine sees what COMMAND asks and what it gets. Each of its conversations is one in the
    log, with children, retries, tokens and times, that `show`, `draw`, `diff`, `stats`, `verify`, `rerun` and
    the pages read. What COMMAND decided is recorded as decided there. Where it is not certain to which
    conversation a call belongs, its reply says so.

    The clients of COMMAND are led to the proxy by environment variables: OPENAI_BASE_URL, OPENAI_API_BASE,
    ANTHROPIC_BASE_URL, ANTHROPIC_API_URL, ANTHROPIC_API_BASE, GOOGLE_GEMINI_BASE_URL, GEMINI_API_BASE,
    OLLAMA_HOST, OLLAMA_BASE_URL and OLLAMA_API_BASE. What they said before, or the option, is the host that
    the proxy asks; without both it is the official one. Everything passes as it is, streams chunk by chunk,
    keys too; no key is written.

    A client that reads none of them is led by --https: its requests to HOST are seen, in HTTPS, as long as it
    reads HTTPS_PROXY and one of SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE and NODE_EXTRA_CA_CERTS.
    PROVIDER says whose API HOST speaks (openai, anthropic, gemini, ollama); of their own hosts it is known.
    For this a certificate authority is made that COMMAND alone trusts, for these hosts alone, for a day; its
    key is in no file, and all is gone at the end. HTTPS to other hosts passes unread, and is counted.

    With --chart each conversation is held against a chart or an agent, mined or written: where it leaves it,
    standard error says at once, the reply in the log, and the list at the end. With --enforce a call that
    the agent refuses does not reach COMMAND: text passes as it streams, calls wait until they are decided,
    and the model reads why one was refused. A call that needs a person waits for `toolchart approve` or the
    approvals page. What cannot be judged does not pass.

    COMMAND has the terminal, gets the signals and gives the exit code: 127 where it is not found, 126 where
    it cannot be run, 128 and the signal's number where a signal killed it. What was seen is printed on
    standard error at the end. Without COMMAND, --port serves the proxy to any program until Ctrl-C, and the
    variables are printed.

    Traces that a program sends elsewhere do not pass here. The OpenAI Agents SDK sends its own to OpenAI
    unless OPENAI_AGENTS_DISABLE_TRACING=1 is set. WebSockets are not passed on.

    \b
    Example:  toolchart watch -- python agent.py
              toolchart watch --openai http://127.0.0.1:8000/v1 -- node agent.mjs --fast
              toolchart watch --https api.openai.com --https api.example.com=openai -- python agent.py
              toolchart watch --chart agent.yaml --enforce -- python agent.py
              toolchart watch --port 9000
    """
    if not words and port is None:
        raise click.UsageError(
            "Nothing is watched: name a command, as in `toolchart watch -- python agent.py`, "
            "or serve every program with --port."
        )
    if enforce and chart is None:
        raise click.UsageError("--enforce needs --chart: the agent or chart whose rules hold.")
    try:
        from toolchart.app.watch.watching import watch_command, watch_until_signal
    except ImportError as error:
        raise explain_import_fault(error, "watch", "serve") from None
    from toolchart.app.listening import open_listener
    from toolchart.app.watch.child import CommandFailure
    from toolchart.app.watch.client_variables import check_hosts, read_hosts
    from toolchart.app.watch.named_hosts import read_named_hosts
    from toolchart.app.watch.proxy import Proxy
    from toolchart.app.watch.rules import load_rules
    from toolchart.app.watch.summary import (
        ExchangeCounts,
        TunnelCounts,
        WatchSink,
        describe_watch,
        end_recording,
    )
    from toolchart.app.watch.tunnel import check_own_proxy
    from toolchart.engine.log.stores import open_store
    from toolchart.engine.runtime.clock import generate_conversation_id
    from toolchart.engine.watching.enforcing import Enforcer
    from toolchart.engine.watching.recorder import TAG, Recorder
    from toolchart.providers.prices import load_price_table

    environment = {name: value for name, value in os.environ.items() if name not in added_variables}
    options = {"openai": openai, "anthropic": anthropic, "gemini": gemini, "ollama": ollama}
    hosts, named = read_hosts(options, environment), read_named_hosts(https)
    if named:
        check_own_proxy()
    tunnel_counts = TunnelCounts(named) if named else None
    price_table, watch = load_price_table(prices, None), generate_conversation_id()
    own_tags = {**parse_tags(tags), TAG: watch}
    counts = ExchangeCounts()
    replayer = load_rules(chart) if chart is not None else None
    with (
        open_listener("127.0.0.1", port or 0) as listener,
        closing(open_store(log, durable=durability != "normal")) as store,
    ):
        own_port = listener.getsockname()[1]
        check_hosts(hosts, own_port)
        recorder = Recorder(
            *(store, own_tags, price_table, owner or ""),
            say=lambda text: print_notice(f"toolchart: {text}"),
            replayer=replayer,
            is_enforced=enforce,
        )
        if enforce and replayer is not None:
            options = f" --spec {shlex.quote(chart or '')}{f' --log {shlex.quote(log)}' if log else ''}"
            proxy = Proxy(hosts, counts, Enforcer(recorder, store, replayer, options), named)
        else:
            proxy = Proxy(hosts, WatchSink(counts, recorder), named=named)

        def print_start(settings: Mapping[str, str]) -> None:
            address = f"http://127.0.0.1:{own_port}"
            lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
            print_notice("\n  ".join([f"toolchart: watching at {address}; Ctrl-C ends it", *lines]))

        try:
            if words:
                stdout = _find_descriptor()
                code = asyncio.run(watch_command(proxy, listener, words, environment, stdout, tunnel_counts))
            else:
                asyncio.run(watch_until_signal(proxy, listener, print_start, environment, tunnel_counts))
                code = SUCCESS
        except CommandFailure as failure:
            print_notice(f"toolchart: {failure}")
            return failure.code
        finally:
            lines = end_recording(recorder, watch, log)
    contacts = list(tunnel_counts.list_lines()) if tunnel_counts is not None else []
    print_notice(f"toolchart: {describe_watch(counts, proxy.refusals, lines, contacts)}")
    if proxy.sink_failures:
        failures = len(proxy.sink_failures)
        print_notice(f"toolchart: {failures} exchanges were not noted: {proxy.sink_failures[0]}")
    return code


def _find_descriptor() -> int | None:
    """The descriptor of standard output for the program: that of 1 is ours while a command runs."""
    try:
        return get_output().fileno()
    except (OSError, ValueError):
        return None
