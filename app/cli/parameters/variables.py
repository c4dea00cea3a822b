"""`--var`: variables for prompt and match, from `name=value` pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolchart.states.errors import SpecError


def parse_variables(pairs: tuple[str, ...]) -> dict[str, Any]:
    """`name=value` pairs as a mapping: dots nest, `@FILE` reads a file, `@@` begins with an @.

    >>> parse_variables(("intent=weather", "who.name=Ada", "handle=@@ada"))
    {'intent': 'weather', 'who': {'name': 'Ada'}, 'handle': '@ada'}

    Raises:
        SpecError: a pair without `=`, a name with an empty part, a name that is a value and a group,
            or a file that cannot be read.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        *parents, last = name.split(".")
        if not equals or not all((*parents, last)):
            raise SpecError(
                f"--var {pair!r} is not of the form name=value",
                hint="for instance --var intent=weather, --var user.name=Ada, --var notes=@FILE",
            )
        here = _group(found, parents, pair)
        if isinstance(here.get(last), dict):
            raise SpecError(f"--var {pair!r}: {last!r} is a group of variables already")
        here[last] = _value(value, name)
    return found


def _group(found: dict[str, Any], parents: list[str], pair: str) -> dict[str, Any]:
    here = found
    for parent in parents:
        inner = here.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise SpecError(f"--var {pair!r}: {parent!r} has a value of its own already")
        here = inner
    return here


def _value(value: str, name: str) -> str:
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
        hint="a value that begins with @ names a file; @@ stands for a plain @",
    )
