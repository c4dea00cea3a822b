"""`toolchart schema`: the published JSON Schemas."""

from __future__ import annotations

from typing import Any

import click

from toolchart.app.cli.exit_codes import DONE

KINDS = ("spec", "record", "chart")


@click.command(short_help="Print a JSON Schema.")
@click.argument("what", type=click.Choice(KINDS), default="spec")
def command(what: str) -> int:
    """Print the JSON Schema of an agent spec, of a record of the log, or of a chart.

    \b
    Example:  toolchart schema > agent.schema.json
              toolchart schema record
    """
    from toolchart.app.cli.log_access import print_json

    print_json(_schema(what))
    return DONE


def _schema(what: str) -> dict[str, Any]:
    match what:
        case "record":
            from toolchart.engine.log.record_schema import record_schema

            return record_schema()
        case "chart":
            return _chart_schema()
        case _:
            from toolchart.specs.schema import spec_schema

            return spec_schema()


def _chart_schema() -> dict[str, Any]:
    """The library's own schema, since a chart is a chart of its; and `extends`, which is ours."""
    from statemachine.io.validation import load_schema

    schema: dict[str, Any] = dict(load_schema())
    del schema["$id"], schema["required"]
    states = schema["properties"]["states"]
    state = states["additionalProperties"]
    taken_out = {"type": "null", "description": "In an extension: takes the state out."}
    extends = {"type": "string", "description": "Name or path of the chart that this one changes."}
    properties = {
        **schema["properties"],
        "extends": extends,
        "states": {**states, "additionalProperties": {"anyOf": [state, taken_out]}},
    }
    either = [{"required": ["states"]}, {"required": ["extends"]}]
    return {**schema, "title": "Toolchart chart", "properties": properties, "anyOf": either}
