"""`toolchart doctor`: could this agent run here and now?"""

from __future__ import annotations

from dataclasses import asdict

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import json_option, log_option, print_json
from toolchart.app.cli.terminal.text import printable, styled
from toolchart.app.doctor import Check, examine

_MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("?", "yellow")}


@click.command(short_help="Check keys, hosts, models, packages and the log.")
@click.argument("spec", required=False)
@json_option
@log_option
def command(spec: str | None, as_json: bool, log: str | None) -> int:
    """Check this machine and, with SPEC, what that agent needs: keys, hosts, models, tools, prices.

    Hosts are asked for their models and for nothing else. No secret is printed. Exits with 1 where a
    check failed; each failure says what to do next.

    \b
    Example:  toolchart doctor
              toolchart doctor agent.yaml
              toolchart doctor agent.yaml --json | jq 'select(.ok == false)'
    """
    from toolchart.specs.loader import load_spec

    failed = False
    for check in examine(load_spec(spec) if spec is not None else None, log):
        failed = failed or check.ok is False
        if as_json:
            print_json(asdict(check), lines=True)
        else:
            _tell(check)
    return NO if failed else DONE


def _tell(check: Check) -> None:
    mark, colour = _MARKS[check.ok]
    click.echo(f"{styled(f'{mark:<6}', fg=colour)}  {printable(f'{check.about}: {check.said}')}")
    if check.hint:
        click.echo(f"        {printable(check.hint)}")
