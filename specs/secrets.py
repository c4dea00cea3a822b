"""Secrets: fills `${VARIABLE}` from the environment, hides literal secrets, and strikes known ones by value.

A secret that was used may come back: a host quotes the key in an error, a tool prints its environment. So
every secret that this process knows is remembered, and `strike_secrets` removes it by its value from whatever
leaves: records of the log, errors, messages, printed JSON. There is no second filter.

What is secret in a spec follows from its place (`find_spec_secrets`): the values of keys with names of
secrets, every value of `headers`, `env` and `query`, and every `${VARIABLE}`, except where the place is known
to be public, as `user-agent` and `ca_file` are. A place that nobody thought of is secret.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote

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

_VALUE_SECTIONS = ("env", "headers", "query")
"""Sections of a spec whose keys are names that the author chose: each value is secret, but those of public
names. `redact.keys` holds for them too."""

_PUBLIC_NAMES = re.compile(
    r"(?i)(accept(-.*)?|cache-control|connection|content-.*|date|expect|from|host|(http-)?referer|origin|pragma"
    r"|prefer|priority|range|traceparent|tracestate|te|trailer|user-agent|via|x-title|.*[-_]version|.*[-_]beta"
    r"|path|home|pwd|shell|term|tz|lang|lc_.*|python.*|user|logname|tmpdir|debug|.*_(debug|dir|home|mode|path)"
    r"|(.*_)?(env|region|log|log_level|verbosity|no_color|host|port))"
)
"""Names of headers, queries and variables whose values are not secret."""

_PUBLIC_PLACES = frozenset(
    {
        *(
            "base_url",
            "url",
            "proxy",
            "ca_file",
            "client_certificate",
            "command",
            "cwd",
            "folder",
            "path",
            "file",
        ),
        *("document", "region", "project", "location", "profile", "model", "provider", "name", "description"),
        *("prompt", "comment", "health_check_endpoint"),
    }
)
"""Keys whose value says where something is or what it is called: a variable in it is no secret, unless it
stands in an address behind its host, or its own name says that it is one."""

_DATA_KEYS = frozenset(
    {
        *(
            "parameters",
            "schema",
            "json_schema",
            "properties",
            "mock_response",
            "chart",
            "effects",
            "document",
        ),
        *("response_format", "prices", "detection", "match"),
    }
)
"""Keys whose values are data of other forms, in which `headers` and `env` may be names of anything."""

_SCHEME_WORD = re.compile(r"(?i)(bearer|basic|token|apikey|key)\s+")
"""What stands in a header before the secret itself."""

_SECRET_ARGUMENT = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)(?:=(.*))?", re.DOTALL)
"""An option of a command line, and its value where it stands in the same word."""

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
            if _SECRET_KEYS.search(name) or name in _secret_variables:
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


def hide_secrets(value: Any, key: str = "", globs: Sequence[str] = (), section: str = "") -> Any:
    """Return the value with literal secrets replaced; references such as `${KEY}` stay as they are.

    Secrets are found by their places, and in URLs as passwords and by the names in their queries.

    Args:
        globs: further names, in small letters, for `env`, headers and the queries of URLs.
        section: the key of the mapping around it; `-` inside data of another form.
    """
    if isinstance(value, dict):
        inner = "-" if section == "-" or key in _DATA_KEYS else key
        return {name: hide_secrets(item, str(name), globs, inner) for name, item in value.items()}
    if isinstance(value, list):
        if key == "args" and section != "-":
            return _hide_arguments(value)
        return [hide_secrets(item, key, globs, section) for item in value]
    if not isinstance(value, str) or not value:
        return value
    if _is_secret_place(key, section, globs):
        return _hide_literal(value)
    text = _PASSWORD_IN_URL.sub(SECRET_PLACEHOLDER, value)
    return _hide_queries(text, globs) if "://" in text else text


def _is_secret_place(key: str, section: str, globs: Sequence[str] = ()) -> bool:
    """Whether whatever stands under a key of a section is secret."""
    if _SECRET_KEYS.search(key) or (section == "auth" and key in ("key", "token", "bearer")):
        return True
    return section in _VALUE_SECTIONS and (_matches_glob(key, globs) or not _PUBLIC_NAMES.fullmatch(key))


def _hide_literal(text: str) -> str:
    """A secret text without what is written out in it: a text of references only stays as it is."""
    word = _SCHEME_WORD.match(text)
    reference = _REFERENCE.fullmatch(text[word.end() :] if word else text, 0)
    if reference is None:
        return SECRET_PLACEHOLDER
    default = reference.group(2)
    if default is None or len(default) < MIN_SECRET_CHARACTERS:
        return text
    return text[: text.index(":-") + 2] + SECRET_PLACEHOLDER + "}"


def _hide_arguments(arguments: Sequence[Any]) -> list[Any]:
    """A command line without the values of options with names of secrets."""
    shown = [hide_secrets(argument, "args") for argument in arguments]
    for index, start in _find_secret_arguments(arguments):
        shown[index] = arguments[index][:start] + _hide_literal(arguments[index][start:])
    return shown


def _find_secret_arguments(arguments: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Which arguments are secret, and where in them the secret begins."""
    is_next = False
    for index, argument in enumerate(arguments):
        if not isinstance(argument, str):
            continue
        option = _SECRET_ARGUMENT.fullmatch(argument)
        if is_next and argument and not option:
            yield index, 0
        is_next = bool(option and option.group(2) is None and _SECRET_KEYS.search(option.group(1)))
        if option and option.group(2) and _SECRET_KEYS.search(option.group(1)):
            yield index, option.start(2)


def find_spec_secrets(value: Any, key: str = "", section: str = "") -> Iterator[tuple[str, bool]]:
    """Yield what is secret in a spec or a part of one: the texts, and the names of variables.

    Returns:
        A text that is written out, or the name of a variable; and whether it is a variable.
    """
    if isinstance(value, dict):
        inner = "-" if section == "-" or key in _DATA_KEYS else key
        for name, item in value.items():
            yield from find_spec_secrets(item, str(name), inner)
    elif isinstance(value, list):
        secret_words = dict(_find_secret_arguments(value)) if key == "args" else {}
        for index, item in enumerate(value):
            if index in secret_words:
                yield from _find_text_secrets(item[secret_words[index] :])
            elif key == "environment" and isinstance(item, str) and section != "-":
                if not _PUBLIC_NAMES.fullmatch(item):
                    yield item, True
            else:
                yield from find_spec_secrets(item, key, section)
    elif isinstance(value, str) and value:
        if _is_secret_place(key, section):
            yield from _find_text_secrets(value)
        else:
            yield from _find_address_secrets(value)
            is_public = section == "-" or key in _PUBLIC_PLACES or section in _VALUE_SECTIONS
            for name, _ in () if is_public else find_references(value):
                yield name, True


def _find_text_secrets(text: str) -> Iterator[tuple[str, bool]]:
    """What is secret in a text whose place says that it is."""
    word = _SCHEME_WORD.match(text)
    secret = text[word.end() :] if word else text
    references = list(_REFERENCE.finditer(secret))
    for match in references:
        yield match.group(1), True
        if match.group(2):
            yield match.group(2), False
    if not references:
        yield secret.strip(), False
        if word and word.group(1).lower() == "basic":
            yield from _find_password(_decode_base64(secret.strip()))


def _find_address_secrets(text: str) -> Iterator[tuple[str, bool]]:
    """What is secret in an address: password, secret values of the query, variables behind the host."""
    if "://" not in text:
        return
    for words in _PASSWORD_IN_URL.findall(text):
        yield words, False
        yield from _find_password(unquote(words))
    for name, words in _QUERY_VALUE.findall(text):
        if _SECRET_KEYS.search(name) or name.lower() in _SECRET_QUERY_NAMES:
            yield words, False
            yield unquote(words), False
    host_end = text.find("/", text.index("://") + 3)
    is_signed_in = "@" in text[:host_end] if host_end > 0 else "@" in text
    for match in _REFERENCE.finditer(text):
        is_behind_host = 0 < host_end <= match.start()
        if is_behind_host or (is_signed_in and match.start() < text.index("@")):
            yield match.group(1), True


def _find_password(words: str) -> Iterator[tuple[str, bool]]:
    """A password after the name of a user, and both as HTTP writes them."""
    if ":" in words:
        yield words.partition(":")[2], False
        yield base64.b64encode(words.encode()).decode(), False


def _decode_base64(text: str) -> str:
    """The text that Base64 stands for; empty where it is none."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""


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


_secret_variables: set[str] = set()
"""Variables that stand at a secret place of some spec, whatever they are called."""


def remember_spec_secrets(document: Any) -> None:
    """Remember every secret that a spec of the operator holds or refers to, wherever it stands.

    What strangers sent is no such spec: they would choose what is struck.

    Args:
        document: the whole spec as it was written, or a part with the keys that lead to it.
    """
    for text, is_variable in find_spec_secrets(document):
        if not is_variable:
            remember_secret(text)
            continue
        _secret_variables.add(text)
        value = os.environ.get(text, "")
        remember_secret(value)
        for inner, _ in _find_address_secrets(value):
            remember_secret(inner)


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
