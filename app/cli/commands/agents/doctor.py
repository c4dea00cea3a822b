"""`toolchart doctor`: check whether an agent can run on this machine now."""

from __future__ import annotations

import click
from msgspec import to_builtins

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option, load_named_spec, log_option
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import escape_controls, style_text
from toolchart.app.doctor import Check, check_environment

_MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("?", "yellow")}


@click.command(short_help="Check API keys, hosts, models, packages and the log.")
@click.argument("spec", required=False)
@click.option(
    "--plugins", is_flag=True, help="Load everything that other packages add, to see whether it can be used."
)
@json_option
@log_option
def command(spec: str | None, plugins: bool, as_json: bool, log: str | None) -> int:
    """Check this machine and, with SPEC, what that agent needs: keys, hosts, models, tools, prices.

    Hosts are only asked to list their models. No secret is printed. Exits with 1 if a check fails; each
    failure names the next step.

    \b
    Example:  toolchart doctor
              toolchart doctor agent.yaml
              toolchart doctor --plugins
              toolchart doctor agent.yaml --json | jq 'select(.ok == false)'
    """
    has_failure = False
    agent = load_named_spec(spec) if spec is not None else None
    for check in check_environment(agent, log, loads_plugins=plugins):
        has_failure = has_failure or check.ok is False
        if as_json:
            print_json(to_builtins(check), lines=True)
        else:
            _print_check(check)
    return NEGATIVE if has_failure else SUCCESS


def _print_check(check: Check) -> None:
    mark, colour = _MARKS[check.ok]
    echo(f"{style_text(f'{mark:<6}', fg=colour)}  {escape_controls(f'{check.about}: {check.said}')}")
    if check.hint:
        echo(f"        {escape_controls(check.hint)}")
