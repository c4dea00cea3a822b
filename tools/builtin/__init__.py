"""The table of builtin tools: name, description, schema and function of each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolchart.states.errors import SpecError
from toolchart.states.messages import ToolDefinition
from toolchart.states.starts import Start
from toolchart.tools.builtin import dates, fetch, planner, text
from toolchart.tools.builtin.algebra import OPERATIONS
from toolchart.tools.builtin.calculator import calculate
from toolchart.tools.builtin.clock import get_current_datetime
from toolchart.tools.builtin.workspace import files, shell
from toolchart.tools.definition import Runner, Tool


def _generate_uuid(arguments: Mapping[str, Any]) -> str:
    return str(uuid.uuid4())


def _return_text(arguments: Mapping[str, Any]) -> Any:
    return arguments["text"]


def _define_builtin(name: str, description: str, run: Runner, schema: dict[str, Any], **options: Any) -> Tool:
    definition = ToolDefinition(name=name, description=description, parameters=schema)
    return Tool(definition=definition, run=run, **{"idempotent": True, **options})


def _make_object_schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


_CALCULATOR = _make_object_schema(
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
            "maxLength": 10,
            "description": "solve, derivative, integral: by which symbol (letters only); x when left out.",
        },
    },
    "expression",
)
_CLOCK = _make_object_schema(
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
        _define_builtin("calculator", "Evaluate a mathematical expression exactly.", calculate, _CALCULATOR),
        _define_builtin(
            "get_current_datetime", "Get the current date and time.", get_current_datetime, _CLOCK
        ),
        _define_builtin(
            "generate_uuid", "Generate a random UUID (version 4).", _generate_uuid, _make_object_schema({})
        ),
        _define_builtin(
            "echo",
            "Give back a text unchanged.",
            _return_text,
            _make_object_schema({"text": {"type": "string", "description": "The text."}}, "text"),
        ),
        _define_builtin(
            "text",
            "Count, change the case of, replace in, search, slice or compare texts.",
            text.run_text_operation,
            text.SCHEMA,
        ),
        _define_builtin(
            "date_arithmetic",
            "Add to a date, take the difference of two, find a weekday, convert between zones.",
            dates.run_date_operation,
            dates.SCHEMA,
        ),
        _define_builtin(
            "planner",
            "Keep a plan of steps: create it, mark steps as done, read it again.",
            planner.Planner(),
            planner.SCHEMA,
            needs_context=True,
            parallel=False,
            repeatable=True,
            max_result_size=40_000,
        ),
        _define_builtin(
            "fetch_result",
            "Get more of an earlier result that was shortened.",
            fetch.fetch_result,
            fetch.SCHEMA,
            needs_context=True,
            reads_results=True,
        ),
    )
}
"""Builtins without settings, by name; a spec activates one by its name alone."""


def _open_folder(settings: Mapping[str, Any], name: str) -> files.Folder:
    root = settings.get("root")
    if not isinstance(root, str) or not root:
        raise SpecError(
            f"tool {name!r} needs a folder",
            hint="root: docs   (beside name; the tool sees nothing outside of it)",
        )
    return files.Folder(root)


def _make_list_directory(settings: Mapping[str, Any], name: str) -> Tool:
    run = _open_folder(settings, name).list_directory
    description = "List the files of a folder."
    return _define_builtin(name, description, run, files.LIST_SCHEMA, execution_mode="thread", listing=True)


def _make_read_file(settings: Mapping[str, Any], name: str) -> Tool:
    run = _open_folder(settings, name).read_file
    description = "Read a text file."
    options: dict[str, Any] = {"execution_mode": "thread", "listing": True, "needs_context": True}
    return _define_builtin(name, description, run, files.READ_SCHEMA, **options)


def _make_search_files(settings: Mapping[str, Any], name: str) -> Tool:
    run = _open_folder(settings, name).search_files
    description = "Find the lines of text files that contain some words."
    return _define_builtin(name, description, run, files.SEARCH_SCHEMA, execution_mode="thread", listing=True)


def _make_run_shell(settings: Mapping[str, Any], name: str) -> Tool:
    _open_folder(settings, name)
    run = shell.Shell(settings["root"]).run
    options: dict[str, Any] = {"idempotent": False, "requires_approval": True, "risk": "high"}
    description = "Run a shell command. A person is asked each time."
    return _define_builtin(
        name, description, run, shell.SCHEMA, execution_mode="async", parallel=False, **options
    )


BUILTIN_FACTORIES: dict[str, Callable[[Mapping[str, Any], str], Tool]] = {
    "list_directory": _make_list_directory,
    "read_file": _make_read_file,
    "search_files": _make_search_files,
    "run_shell": _make_run_shell,
}
"""Builtins with settings, by name; each function makes the tool from the settings and a tool name."""

BUILTIN_SETTINGS: dict[str, tuple[str, ...]] = dict.fromkeys(BUILTIN_FACTORIES, ("root",))
"""The settings of each builtin that has any. `root` is relative to the folder of the spec."""


ASKING_BUILTINS = ("run_shell",)
"""Builtins of which a person approves every call, whatever the spec says about their risk."""


def is_asking_builtin(handler: str) -> bool:
    """Whether a person approves every call of this builtin."""
    return handler in ASKING_BUILTINS


def make_builtin(handler: str, settings: Mapping[str, Any], name: str) -> Tool | None:
    """Make the builtin tool of a handler, or None if there is no such builtin.

    Args:
        name: the name that the model calls it by.

    Raises:
        SpecError: a required setting is missing.
    """
    if handler in BUILTIN_FACTORIES:
        return BUILTIN_FACTORIES[handler](settings, name)
    builtin = BUILTINS.get(handler)
    if builtin is None:
        return None
    # Each agent gets its own planner, because a planner remembers the plan of the current reply.
    run = planner.Planner() if handler == "planner" else builtin.run
    return replace(builtin, run=run, definition=replace(builtin.definition, name=name))


def _list_folder_starts(handler: str, folder: str) -> Iterator[Start]:
    if handler == "run_shell":
        purpose = f"in the folder {folder}, with the rights of this user"
        yield Start(kind="command", subject="any shell command that the model asks for", purpose=purpose)
    yield Start(kind="file", subject=folder, purpose=f"folder whose files {handler} reads")


def list_builtin_tool_starts(handler: str, settings: Mapping[str, Any], base_folder: Path) -> Iterator[Start]:
    """What a builtin can start or read: those with settings work in a folder, the others stay inside.

    An unknown one is left out of the agent, and starts nothing.
    """
    if handler in BUILTIN_FACTORIES:
        yield from _list_folder_starts(handler, str(base_folder / str(settings.get("root") or "")))
