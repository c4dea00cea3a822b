"""`toolchart emulate`: serve a model host on this machine that refuses what the real one refuses."""

from __future__ import annotations

import threading

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.terminal.output import echo
from toolchart.providers.shared.host_rows import find_row
from toolchart.testing.emulators.server import MODELS, emulate_host, list_emulated_hosts


@click.command(short_help="Serve a model host that refuses like the real one, for tests.")
@click.argument("host", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; default: a free one.")
@click.option("--model", help="Model to name; default: one that the host has.")
@click.option("--json", "as_json", is_flag=True, help="Print the entry, or the list, as JSON.")
def command(host: str | None, port: int, model: str | None, as_json: bool) -> int:
    """Serve an emulator of HOST on 127.0.0.1 until it is stopped; without HOST, list those there are.

    It calls the tools that the newest message names, one after the other, or else the first one once, and
    then answers. What the host is known to refuse gets the host's own error, and each refusal is printed with
    who says so. What is only told is answered, with a warning.

    \b
    Example:  toolchart emulate
              toolchart emulate mistral --port 9000
    """
    if host is None:
        rows = [
            {"host": name, "title": find_row(name).title, "whole": name in MODELS}
            for name in list_emulated_hosts()
        ]
        if as_json:
            print_json(rows)
        else:
            for row in rows:
                echo(f"{row['host']:12} {row['title']}{'' if row['whole'] else '  (partly known)'}")
        return SUCCESS
    with emulate_host(host, model=model, port=port) as emulator:
        emulator.on_refusal = lambda refusal: click.echo(
            f"{'refused' if refusal.is_certain else 'warning'}: {refusal.message}  [{refusal.source}]",
            err=True,
        )
        if as_json:
            print_json(emulator.entry)
        else:
            keys = ", ".join(f"{key}: {value}" for key, value in emulator.entry.items())
            echo(emulator.base_url)
            click.echo(f"an entry that uses it:  llms: {{main: {{{keys}}}}}", err=True)
        threading.Event().wait()
    return SUCCESS
