"""Secrets: `${VARIABLE}` resolves late, where a client is made, and is logged as it is written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from toolchart.states.errors import SpecError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_SECRET_KEYS = re.compile(
    r"(?i)((api|access|private|subscription)[_-]?key|secret|passwo?r?d|authorization|cookie|bearer"
    r"|credentials?|(^|[_-]|access|auth)token)$"
)
"""Names of keys, headers and variables whose values are secret: `x-api-key`, `GITHUB_TOKEN`, `Cookie`, ..."""

_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:$]*:[^/@\s$]+(?=@)")

HIDDEN = "(secret)"
"""What stands in the log for a secret that was written into the spec itself."""


def resolve(text: str, where: str) -> str:
    """The text with every `${VARIABLE}` or `${VARIABLE:-default}` filled in.

    Raises:
        SpecError: a variable is not set; names it and the place, never a value.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = os.environ.get(name)
        if found:
            return found
        if default is not None:
            return default
        raise SpecError(
            f"the environment variable {name} is not set",
            path=where,
            hint=f"export {name}=..., or write ${{{name}:-default}}",
        )

    return _REFERENCE.sub(value, text)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Each variable that a text refers to: its name, and the reference as it is written."""
    for match in _REFERENCE.finditer(text):
        yield match.group(1), match.group(0)


def literal_secrets(value: Any, key: str = "") -> Iterator[str]:
    """The secrets that are written into a spec itself, by the names of their keys."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from literal_secrets(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from literal_secrets(item, key)
    elif hidden(value, key) != value:
        inside = _PASSWORD_IN_URL.search(str(value))
        yield inside.group(0) if inside else str(value).removeprefix("Bearer ").strip()


def hidden(value: Any, key: str = "") -> Any:
    """The value with literal secrets replaced; references stay, they are no secrets."""
    if isinstance(value, dict):
        return {name: hidden(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [hidden(item, key) for item in value]
    if isinstance(value, str) and value and _SECRET_KEYS.search(key):
        return value if _REFERENCE.fullmatch(value.removeprefix("Bearer ").strip()) else HIDDEN
    return _PASSWORD_IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value
