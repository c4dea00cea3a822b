"""The builtin tools, by the name that activates them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from toolchart.states.messages import ToolDefinition
from toolchart.tools.builtin.calculator import calculate
from toolchart.tools.builtin.clock import current_datetime
from toolchart.tools.definition import Runner, Tool


def _uuid(arguments: Mapping[str, Any]) -> str:
    return str(uuid.uuid4())


def _echo(arguments: Mapping[str, Any]) -> Any:
    return arguments["text"]


def _builtin(
    name: str, description: str, run: Runner, properties: dict[str, Any], *required: str
) -> Tool:
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    definition = ToolDefinition(name=name, description=description, parameters=parameters)
    return Tool(definition=definition, run=run, idempotent=True)


BUILTINS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        _builtin(
            "calculator",
            "Evaluate a mathematical expression exactly.",
            calculate,
            {
                "expression": {
                    "type": "string",
                    "description": "For instance `17 * (23 + 4)`, `sqrt(2) * sqrt(8)`, `2**10 - 24`.",
                }
            },
            "expression",
        ),
        _builtin(
            "get_current_datetime",
            "Get the current date and time.",
            current_datetime,
            {
                "timezone": {
                    "type": "string",
                    "description": "IANA time zone, for instance `Europe/Prague`; UTC when left out.",
                }
            },
        ),
        _builtin("generate_uuid", "Generate a random UUID (version 4).", _uuid, {}),
        _builtin(
            "echo",
            "Give back a text unchanged.",
            _echo,
            {"text": {"type": "string", "description": "The text."}},
            "text",
        ),
    )
}
"""Every builtin; a spec activates one by naming it."""
