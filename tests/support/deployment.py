"""Reads the files of `deploy/` as the programs do that they are written for."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from toolchart.app.cli import cli

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

_VARIABLE = re.compile(
    r"\$(?:\{(?P<name>\w+)(?::(?P<mark>[-?])(?P<default>[^}]*))?\}|(?P<rest>.?))", re.DOTALL
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping; a key beside `<<` goes before what is merged."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.constructor.ConstructorError(
                None, None, f"a key stands twice: {keys}", node.start_mark
            )
        self.flatten_mapping(node)  # puts what is merged before the others, and what stands later counts
        make = self.construct_object
        return {make(key, deep=True): make(value, deep=True) for key, value in node.value}


def read_compose(environment: Mapping[str, str]) -> dict[str, Any]:
    """The compose file, merged and substituted.

    Raises:
        KeyError: it needs a variable that `environment` does not have.
        ValueError: a `$` begins no variable.
    """
    value = yaml.load((DEPLOY / "compose.yaml").read_text("utf-8"), StrictLoader)
    return substitute(value, environment)


def substitute(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with `${NAME}`, `${NAME:-default}` and `${NAME:?}` replaced in all texts."""

    def replace(match: re.Match[str]) -> str:
        if match["name"] is None:
            raise ValueError(f"{match[0]!r} begins no variable")
        if found := environment.get(match["name"]):
            return found
        if match["mark"] != "-":
            raise KeyError(match["name"])
        return str(match["default"])

    if isinstance(value, str):
        return _VARIABLE.sub(replace, value)
    if isinstance(value, list):
        return [substitute(item, environment) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, environment) for key, item in value.items()}
    return value


def list_variables() -> dict[str, str | None]:
    """The variables of the compose file, and their defaults; None where a value must be given."""
    text = re.sub(r"^\s*#.*$", "", (DEPLOY / "compose.yaml").read_text("utf-8"), flags=re.MULTILINE)
    return {
        str(match["name"]): match["default"] if match["mark"] == "-" else None
        for match in _VARIABLE.finditer(text)
    }


def read_example() -> dict[str, str]:
    """The variables of `.env.example`, with what stands there."""
    lines = (DEPLOY / ".env.example").read_text("utf-8").splitlines()
    rows = [line.partition("=") for line in lines if line and not line.startswith("#")]
    assert len({name for name, _, _ in rows}) == len(rows)
    return {name: value for name, _, value in rows}


def read_unit(path: Path) -> configparser.RawConfigParser:
    """A unit of systemd; a key that stands twice is an error, and `$VAR` and `%` are left alone."""
    unit = configparser.RawConfigParser(comment_prefixes=("#", ";"), delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys have capitals
    unit.read_string(path.read_text("utf-8"))
    return unit


def read_instructions() -> list[tuple[str, str]]:
    """The instructions of the container file, each with its arguments; lines that go on are joined."""
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    rows = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, words.strip()) for name, _, words in rows]


def parse_command(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of a command line without the word `toolchart`.

    Raises:
        click.ClickException: there is no such command or option, or an argument is missing or wrong.
    """
    rest, names = list(words), []
    command: click.Command | None = cli
    context = click.Context(cli, **cli.context_settings)
    while isinstance(command, click.Group):
        names.append(rest.pop(0))
        command = command.get_command(context, names[-1])
    if command is None:
        raise click.UsageError(f"No such command {names[-1]!r}.")
    with command.make_context(command.name, rest, parent=context) as inner:
        return " ".join(names), dict(inner.params)


def read_seconds(text: str) -> float:
    """A duration of compose or systemd, such as `45s`, `1m` or `45`."""
    match = re.fullmatch(r"(\d+)([hms]?)", text)
    assert match, text
    return float(match[1]) * _SECONDS[match[2]]


def split_exec_start(unit: configparser.RawConfigParser) -> list[str]:
    """The words of the command of a unit."""
    return shlex.split(unit["Service"]["ExecStart"])
