"""Secrets: fills `${VARIABLE}` from the environment, hides literal secrets, and strikes known ones by value.

A secret that was used may come back: a host quotes the key in an error, a tool prints its environment. So
every secret that this process knows is remembered, and `strike_secrets` removes it by its value from whatever
leaves: records of the log, errors, messages, printed JSON. There is no second filter.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

from toolchart.states.errors import SpecError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

_SECRET_KEYS = re.compile(
    r"(?i)((api|access|private|subscription)[_-]?key|secret|passwo?r?d|authorization|cookie|bearer"
    r"|credentials?|(^|[_-]|access|auth)token)$"
)
"""Names of keys, headers and variables with secret values: `x-api-key`, `GITHUB_TOKEN`, `Cookie`, ..."""

_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s:$]*:[^/@\s$]+(?=@)")

_QUERY_VALUE = re.compile(r"(?<=[?&;])([A-Za-z0-9_.%-]{1,64})=([^&;#\s$]+)")
"""A name and its value in the query of a URL."""

_SECRET_QUERY_NAMES = frozenset({"key", "sig", "signature", "auth", "code", "token", "pass"})

_VALUE_SECTIONS = ("env", "headers")
"""Sections of a spec whose keys are names that the author chose, so that `redact.keys` holds for them."""

SECRET_PLACEHOLDER = "(secret)"
"""Replaces, in the log, a secret that was written into the spec itself."""


def resolve_environment(text: str, where: str) -> str:
    """Fill every `${VARIABLE}` and `${VARIABLE:-default}` of a text from the environment.

    Called only where a client is made, so that the log has the reference and not the value.

    Raises:
        SpecError: a variable is not set; names it and the key path `where`, never a value.
    """

    def read_variable(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        setting = os.environ.get(name)
        if setting:
            if _SECRET_KEYS.search(name):
                remember_secret(setting)
            return setting
        if default is not None:
            return default
        raise SpecError(
            f"the environment variable {name} is not set",
            path=where,
            hint=f"export {name}=..., or write ${{{name}:-default}}",
        )

    return _REFERENCE.sub(read_variable, text)


def find_references(text: str) -> Iterator[tuple[str, str]]:
    """Yield each variable that a text refers to: its name, and the reference as it is written."""
    for match in _REFERENCE.finditer(text):
        yield match.group(1), match.group(0)


def find_literal_secrets(value: Any, key: str = "") -> Iterator[str]:
    """Yield the secrets that are written into a spec itself, recognised by the names of their keys."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from find_literal_secrets(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from find_literal_secrets(item, key)
    elif hide_secrets(value, key) != value:
        password = _PASSWORD_IN_URL.search(str(value))
        yield password.group(0) if password else str(value).removeprefix("Bearer ").strip()


def hide_secrets(value: Any, key: str = "", globs: Sequence[str] = (), section: str = "") -> Any:
    """Return the value with literal secrets replaced; references such as `${KEY}` stay as they are.

    Secrets are found by the names of keys, and in URLs as passwords and by the names in their queries.

    Args:
        globs: further names, in small letters, for `env`, headers and the queries of URLs.
        section: the key of the mapping around it.
    """
    if isinstance(value, dict):
        return {name: hide_secrets(item, str(name), globs, key) for name, item in value.items()}
    if isinstance(value, list):
        return [hide_secrets(item, key, globs, section) for item in value]
    if not isinstance(value, str) or not value:
        return value
    is_secret = bool(_SECRET_KEYS.search(key)) or (section == "auth" and key == "key")
    if is_secret or (section in _VALUE_SECTIONS and _matches_glob(key, globs)):
        return value if _REFERENCE.fullmatch(value.removeprefix("Bearer ").strip()) else SECRET_PLACEHOLDER
    text = _PASSWORD_IN_URL.sub(SECRET_PLACEHOLDER, value)
    return _hide_queries(text, globs) if "://" in text else text


def _hide_queries(text: str, globs: Sequence[str]) -> str:
    """The text with secret values in the queries of URLs replaced."""

    def hide_value(match: re.Match[str]) -> str:
        name = match.group(1)
        is_secret = _SECRET_KEYS.search(name) or name.lower() in _SECRET_QUERY_NAMES
        is_secret = is_secret or _matches_glob(name, globs)
        return f"{name}={SECRET_PLACEHOLDER}" if is_secret else match.group(0)

    return _QUERY_VALUE.sub(hide_value, text)


def _matches_glob(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), glob) for glob in globs)


# -- files with secrets ---------------------------------------------------------------------------


def read_secret_file(path: str | Path, *, what: str = "this key") -> bytes:
    """The content of a file with a key, at most 100,000 bytes.

    Raises:
        SpecError: it cannot be read, or others can read it.
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(100_000)
    except OSError as error:
        raise SpecError(f"the key cannot be read: {error.strerror}", file=str(path)) from None
    if os.name == "posix" and stat.S_ISREG(mode) and mode & 0o077:
        raise SpecError(
            f"others can read {what}", file=str(path), hint=f"take the right from them: chmod 600 {path}"
        )
    return data


# -- known secrets -------------------------------------------------------------------------------

MIN_SECRET_CHARACTERS = 8
"""A shorter value also stands in ordinary texts, and is not struck."""

_known_spellings: dict[str, bytes] = {}
"""Every spelling of every known secret, the longest first, and its bytes."""


def remember_secret(value: str) -> None:
    """Have a secret struck from everything that leaves this process from now on."""
    if len(value) < MIN_SECRET_CHARACTERS or value in _known_spellings:
        return
    spellings = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
    }
    ordered = sorted({*_known_spellings, *spellings}, key=len, reverse=True)
    _known_spellings.clear()
    _known_spellings.update({spelling: spelling.encode("utf-8", "replace") for spelling in ordered})


def remember_environment() -> None:
    """Remember each variable of the environment whose name says that it is a secret."""
    for name, value in os.environ.items():
        if _SECRET_KEYS.search(name):
            remember_secret(value)


def strike_secrets(text: str) -> str:
    """The text without the known secrets; the same object where there is none in it."""
    for spelling in _known_spellings:
        if spelling in text:
            text = text.replace(spelling, SECRET_PLACEHOLDER)
    return text


def strike_secret_bytes(data: bytes) -> bytes:
    """As `strike_secrets`, for encoded text."""
    for spelling in _known_spellings.values():
        if spelling in data:
            data = data.replace(spelling, SECRET_PLACEHOLDER.encode())
    return data
