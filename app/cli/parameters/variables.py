"""Parses `--var name=value` options into the variables of prompts and `match`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError


def parse_variables(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Parse `name=value` pairs: dots nest, `@FILE` reads a file, `@@` stands for a plain @.

    >>> parse_variables(("intent=weather", "who.name=Ada", "handle=@@ada"))
    {'intent': 'weather', 'who': {'name': 'Ada'}, 'handle': '@ada'}

    Raises:
        SpecError: a pair without `=`, a name with an empty part, a name that is both a value and a
            group, or a file that cannot be read.
    """
    variables: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *parents, last = name.split(".")
        if not equals or not all((*parents, last)):
            raise SpecError(
                f"--var {pair!r} is not of the form name=value",
                hint="examples: --var intent=weather, --var user.name=Ada, --var notes=@FILE",
            )
        group = _find_group(variables, parents, pair)
        if isinstance(group.get(last), dict):
            raise SpecError(f"--var {pair!r}: {last!r} is already a group of variables")
        group[last] = _read_variable(value, name)
    return variables


def _find_group(variables: dict[str, Any], parents: list[str], pair: str) -> dict[str, Any]:
    group = variables
    for parent in parents:
        inner = group.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SpecError(f"--var {pair!r}: {parent!r} already has a value")
        group = inner
    return group


def _read_variable(value: str, name: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text("utf-8-sig")
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise SpecError(
        f"--var {name}: the file {value[1:]!r} {problem}",
        hint="a value that begins with @ names a file; write @@ for a plain @",
    )
