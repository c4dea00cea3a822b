"""Defaults of options from configuration files: one of the user, and one of the folder.

    log = "runs.db"               # every command that has the option
    [run]
    quiet = true                  # only `toolchart run`

What goes first: the command line, the environment, `toolchart.toml` of the folder, the user's file, the
built-in default. A file may set how a command works and shows its result. It may not say which agent acts,
what is decided or with which key: a folder may come from a stranger, so these are said each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from toolchart.app.cli.command_table import COMMANDS
from toolchart.states.errors import SpecError, suggest_name

PROJECT_FILE = "toolchart.toml"

ALLOWED_OPTIONS = (
    *(
        "log",
        "durability",
        "json",
        "llm",
        "model",
        "handler",
        "quiet",
        "verbose",
        "concurrency",
        "parallel",
        "per-minute",
    ),
    *("limit", "format", "context", "usage", "children"),
)
"""Options that a file may set."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one file."""

    file: Path
    data: Mapping[str, Any]
    is_own: bool
    """Whether the file is the user's, and not that of a folder."""

    def make_error(self, key: str, problem: str, hint: str | None = None) -> SpecError:
        """The error about one key."""
        return SpecError(problem, file=str(self.file), path=key, hint=hint)


def find_user_file() -> Path:
    """The user's own file: `~/.config/toolchart/config.toml`, or in the folder `XDG_CONFIG_HOME`."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "toolchart" / "config.toml"


def set_defaults(context: click.Context) -> None:
    """Give the command that is about to run the defaults of the configuration files.

    Raises:
        SpecError: as `read_defaults`.
    """
    group, name = context.command, context.invoked_subcommand
    command = group.get_command(context, name) if name and isinstance(group, click.Group) else None
    if command is not None and name is not None:
        context.default_map = {name: read_defaults(command, name)}


def read_defaults(command: click.Command, name: str) -> dict[str, Any]:
    """The defaults of one command, for `click.Context.default_map`.

    Raises:
        SpecError: a file is no TOML or sets what it may not.
    """
    values: dict[str, Any] = {}
    for path, is_own in ((find_user_file(), True), (Path(PROJECT_FILE), False)):
        layer = _read_file(path, is_own=is_own)
        if layer is not None:
            values.update(_read_layer(layer, command, name))
    return _spread_over_subcommands(command, values)


def _read_file(path: Path, *, is_own: bool) -> Defaults | None:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"it cannot be read: {error}", file=str(path)) from None
    import tomllib

    try:
        return Defaults(file=path, data=tomllib.loads(text), is_own=is_own)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", file=str(path)) from None


def _read_layer(layer: Defaults, command: click.Command, name: str) -> dict[str, Any]:
    """The values of a file for one command; those of its own table go before those of all commands."""
    common: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for key, value in layer.data.items():
        (tables if isinstance(value, dict) else common)[key] = value
    _check_tables(layer, tables)
    values = _check_options(layer, common, command, is_common=True)
    return values | _check_options(layer, tables.get(name, {}), command, prefix=f"{name}.")


def _check_tables(layer: Defaults, tables: Mapping[str, Any]) -> None:
    for name in tables:
        if name not in COMMANDS:
            hint = suggest_name(name, COMMANDS)
            raise layer.make_error(name, f"there is no command {name!r}", hint)


def _check_options(
    layer: Defaults,
    data: Mapping[str, Any],
    command: click.Command,
    prefix: str = "",
    is_common: bool = False,
) -> dict[str, Any]:
    """The values by the names of the command's parameters.

    Args:
        is_common: whether they are for all commands, of which this one may lack some.
    """
    options = dict(_iterate_options(command))
    values = {}
    for key, value in data.items():
        word = key.replace("_", "-")
        if word not in ALLOWED_OPTIONS or (word not in options and not is_common):
            names = ALLOWED_OPTIONS if is_common else [name for name in options if name in ALLOWED_OPTIONS]
            problem = f"{key!r} is no option that a file may set here"
            raise layer.make_error(prefix + key, problem, suggest_name(word, names))
        if word == "log" and "://" in str(value) and not layer.is_own:
            problem = "the file of a folder names a log by its path only"
            raise layer.make_error(prefix + key, problem, f"an address may stand in {find_user_file()}")
        if word in options:
            values[str(options[word].name)] = _check_value(layer, prefix + key, options[word], value)
    return values


def _iterate_options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """The options of a command and of its subcommands, by every name."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from ((word.lstrip("-"), parameter) for word in parameter.opts)
    for inner in getattr(command, "commands", {}).values():
        yield from _iterate_options(inner)


def _check_value(layer: Defaults, key: str, option: click.Option, value: Any) -> Any:
    if option.is_flag and not isinstance(value, bool):
        raise layer.make_error(key, f"{value!r} is neither true nor false")
    try:
        option.type_cast_value(click.Context(click.Command("check")), value)
    except click.UsageError as error:
        raise layer.make_error(key, error.message) from None
    return value


def _spread_over_subcommands(command: click.Command, values: dict[str, Any]) -> dict[str, Any]:
    inner = getattr(command, "commands", {})
    return values | {name: _spread_over_subcommands(one, values) for name, one in inner.items()}
