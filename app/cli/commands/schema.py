"""`toolchart schema`: print the JSON Schema of agent specs, log records or charts."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import print_json

KINDS = ("spec", "record", "chart")


@click.command(short_help="Print a JSON Schema.")
@click.argument("kind", type=click.Choice(KINDS), default="spec")
def command(kind: str) -> int:
    """Print the JSON Schema of an agent spec, of a record of the log, or of a chart.

    \b
    Example:  toolchart schema > agent.schema.json
              toolchart schema record
    """
    print_json(_load_schema(kind))
    return SUCCESS


def _load_schema(kind: str) -> dict[str, Any]:
    match kind:
        case "record":
            from toolchart.engine.log.record_schema import build_record_schema

            return build_record_schema()
        case "chart":
            return _build_chart_schema()
        case _:
            from toolchart.specs.models import build_spec_schema

            return build_spec_schema()


def _build_chart_schema() -> dict[str, Any]:
    """Return the schema of python-statemachine, extended by the key `extends` of Toolchart."""
    from statemachine.io.validation import load_schema

    schema: dict[str, Any] = dict(load_schema())
    del schema["$id"], schema["required"]
    states = schema["properties"]["states"]
    state = states["additionalProperties"]
    removal = {"type": "null", "description": "In a chart that extends another: removes the state."}
    extends = {"type": "string", "description": "Name or path of the chart that this one changes."}
    properties = {
        **schema["properties"],
        "extends": extends,
        "states": {**states, "additionalProperties": {"anyOf": [state, removal]}},
    }
    alternatives = [{"required": ["states"]}, {"required": ["extends"]}]
    return {**schema, "title": "Toolchart chart", "properties": properties, "anyOf": alternatives}
