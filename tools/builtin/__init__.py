"""The builtin tools, by the name that activates them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.tools.builtin import dates, fetch, files, planner, text
from toolchart.tools.builtin.algebra import OPERATIONS
from toolchart.tools.builtin.calculator import calculate
from toolchart.tools.builtin.clock import current_datetime
from toolchart.tools.definition import Runner, Tool


def _uuid(arguments: Mapping[str, Any]) -> str:
    return str(uuid.uuid4())


def _echo(arguments: Mapping[str, Any]) -> Any:
    return arguments["text"]


def _builtin(
    name: str, description: str, run: Runner, schema: dict[str, Any], **options: Any
) -> Tool:
    definition = ToolDefinition(name=name, description=description, parameters=schema)
    return Tool(definition=definition, run=run, **{"idempotent": True, **options})


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_CALCULATOR = _object(
    {
        "expression": {
            "type": "string",
            "description": "For instance `17 * (23 + 4)`, `sqrt(2) * sqrt(8)`, `x**2 = 4`.",
        },
        "operation": {
            "type": "string",
            "enum": ["evaluate", *OPERATIONS],
            "description": "evaluate, when left out; the others take symbols such as x.",
        },
        "variable": {
            "type": "string",
            "pattern": "^[A-Za-z]{1,10}$",
            "description": "solve, derivative, integral: by which symbol; x when left out.",
        },
    },
    "expression",
)
_CLOCK = _object(
    {
        "timezone": {
            "type": "string",
            "description": "IANA time zone, for instance `Europe/Prague`; UTC when left out.",
        }
    }
)

BUILTINS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        _builtin(
            "calculator", "Evaluate a mathematical expression exactly.", calculate, _CALCULATOR
        ),
        _builtin(
            "get_current_datetime", "Get the current date and time.", current_datetime, _CLOCK
        ),
        _builtin("generate_uuid", "Generate a random UUID (version 4).", _uuid, _object({})),
        _builtin(
            "echo",
            "Give back a text unchanged.",
            _echo,
            _object({"text": {"type": "string", "description": "The text."}}, "text"),
        ),
        _builtin(
            "text",
            "Count, change the case of, replace in, search, slice or compare texts.",
            text.text_tool,
            text.SCHEMA,
        ),
        _builtin(
            "date_arithmetic",
            "Add to a date, take the difference of two, find a weekday, convert between zones.",
            dates.date_arithmetic,
            dates.SCHEMA,
        ),
        _builtin(
            "planner",
            "Keep a plan of steps: create it, mark steps as done, read it again.",
            planner.Planner(),
            planner.SCHEMA,
            needs_context=True,
            parallel=False,
            repeatable=True,
            max_result_size=40_000,
        ),
        _builtin(
            "fetch_result",
            "Get more of an earlier result that was shortened.",
            fetch.fetch_result,
            fetch.SCHEMA,
            needs_context=True,
        ),
    )
}
"""Every builtin that needs no settings; a spec activates one by naming it."""


def _folder(settings: Mapping[str, Any], name: str) -> files.Folder:
    root = settings.get("root")
    if not isinstance(root, str) or not root:
        raise SpecError(
            f"tool {name!r} needs a folder",
            hint="root: docs   (beside name; the tool sees nothing outside of it)",
        )
    return files.Folder(root)


def _list_directory(settings: Mapping[str, Any], name: str) -> Tool:
    run = _folder(settings, name).list_directory
    description = "List the files of a folder."
    return _builtin(name, description, run, files.LIST_SCHEMA, way="thread", listing=True)


def _read_file(settings: Mapping[str, Any], name: str) -> Tool:
    run = _folder(settings, name).read_file
    return _builtin(name, "Read a text file.", run, files.READ_SCHEMA, way="thread", listing=True)


WITH_SETTINGS: dict[str, Callable[[Mapping[str, Any], str], Tool]] = {
    "list_directory": _list_directory,
    "read_file": _read_file,
}
"""Builtins that need settings: `root`, relative to the folder of the spec."""

SETTINGS: dict[str, tuple[str, ...]] = {"list_directory": ("root",), "read_file": ("root",)}
"""The settings that each of them takes."""


def make_builtin(handler: str, settings: Mapping[str, Any], name: str) -> Tool | None:
    """The builtin of a handler under a name, or None where there is no such builtin.

    Raises:
        SpecError: a setting that it needs is missing.
    """
    if handler in WITH_SETTINGS:
        return WITH_SETTINGS[handler](settings, name)
    found = BUILTINS.get(handler)
    if found is None:
        return None
    # A planner of its own for every agent: it remembers the plan of a reply under way.
    run = planner.Planner() if handler == "planner" else found.run
    return replace(found, run=run, definition=replace(found.definition, name=name))
