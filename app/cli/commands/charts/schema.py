"""`toolchart schema`: print the JSON Schema of agent specs, log records or charts."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import click

from toolchart.app.cli.exit_codes import SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import NameChoice

KINDS = ("spec", "record", "chart")


@click.command(short_help="Print a JSON Schema.")
@click.argument("kind", type=NameChoice(KINDS), default="spec")
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
    """The schema of python-statemachine, extended by Toolchart's keys `extends`, `effects` and `after`."""
    from statemachine.io.validation import load_schema

    schema: dict[str, Any] = deepcopy(load_schema())
    del schema["$id"], schema["required"]
    states = schema["properties"]["states"]
    state = states["additionalProperties"]
    schema["$defs"]["state"]["properties"]["after"] = {
        "type": "object",
        "description": "Deadlines of the state: by a duration or a time of day, the target or the row.",
        "additionalProperties": {"type": ["string", "object"]},
    }
    _allow_removal(schema["$defs"]["state"]["properties"])
    removal = {"type": "null", "description": "In a chart that extends another: removes the state."}
    effects = {
        "type": "object",
        "description": "Declared effects by name: one kind with its parameters.",
        "additionalProperties": {"type": "object", "minProperties": 1, "maxProperties": 1},
    }
    extends = {"type": "string", "description": "Name or path of the chart that this one changes."}
    properties = {
        **schema["properties"],
        "extends": extends,
        "effects": effects,
        "states": {**states, "additionalProperties": {"anyOf": [state, removal]}},
    }
    alternatives = [{"required": ["states"]}, {"required": ["extends"]}]
    return {**schema, "title": "Toolchart chart", "properties": properties, "anyOf": alternatives}


def _allow_removal(keys: dict[str, Any]) -> None:
    """Allow null for each key of a state: in a chart that extends another it removes the key."""
    for name, key in keys.items():
        keys[name] = {"anyOf": [key, {"type": "null"}]}
