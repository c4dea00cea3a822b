"""`toolchart schema`: the published JSON Schemas."""

from __future__ import annotations

import click

from toolchart.app.cli.common import print_json


@click.command(short_help="Print a JSON Schema.")
@click.argument("what", type=click.Choice(["spec", "chart"]), default="spec")
def command(what: str) -> int:
    """Print the JSON Schema of an agent spec, or of a chart.

    \b
    Example:  toolchart schema > agent.schema.json
    """
    if what == "spec":
        from toolchart.specs.schema import spec_schema

        print_json(spec_schema())
        return 0
    from statemachine.io.validation import load_schema

    print_json(load_schema())
    return 0
