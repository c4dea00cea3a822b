"""The keys that encrypt a log: from a file or a variable that the operator names, never from the log.

A key file has one key in each line, the newest last. The newest one encrypts; all of them decrypt. So a key
is changed by adding a line.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from toolchart.specs.secrets import read_secret_file, remember_secret
from toolchart.states.errors import SpecError

if TYPE_CHECKING:
    from toolchart.specs.sections.keeping import LogKeyConfig

PREFIX = "toolchart-log-key:"
"""Stands before the Base64 of a key."""

KEY_BYTES = 32

VARIABLE = "TOOLCHART_LOG_KEY"
"""Variable with the keys of the log, separated by spaces."""

FILE_VARIABLE = "TOOLCHART_LOG_KEY_FILE"
"""Variable with the path of a key file."""

_CONTEXT = b"toolchart log key\0"


class LogKeys:
    """The keys of an encrypted log; the last one is the newest and encrypts.

    Args:
        keys: 32 random bytes each, for instance from `os.urandom(32)`.

    Raises:
        SpecError: there is no key, or one has another length than 32 bytes.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {compute_key_id(key): key for key in keys}
        if not self._keys or any(len(key) != KEY_BYTES for key in self._keys.values()):
            raise SpecError("a log is encrypted with at least one key, and each has 32 bytes")
        self.newest_id = list(self._keys)[-1]

    def find(self, key_id: str) -> bytes | None:
        """The key with this id."""
        return self._keys.get(key_id)

    def list_ids(self) -> list[str]:
        """The ids of all keys, the newest last. An id says nothing about its key."""
        return list(self._keys)


def compute_key_id(key: bytes) -> str:
    """What stands in the log about a key: 16 hexadecimal digits of a SHA-256."""
    return hashlib.sha256(_CONTEXT + key).hexdigest()[:16]


def add_key(path: Path) -> str:
    """Add a new key to a file that only its owner can read (0600), which is created; returns its id.

    Raises:
        SpecError: the file cannot be written, others can read it, or it holds something else.
    """
    if path.exists():
        read_key_file(path)
    key = os.urandom(KEY_BYTES)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(f"{PREFIX}{base64.b64encode(key).decode()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpecError(f"the key cannot be written: {error.strerror}", file=str(path)) from None
    return compute_key_id(key)


def read_key_file(path: str | Path) -> LogKeys:
    """The keys of a file.

    Raises:
        SpecError: it cannot be read, others can read it, or a line is no key.
    """
    lines = read_secret_file(path).decode("utf-8", "replace").splitlines()
    words = [line.strip() for line in lines]
    return parse_keys([word for word in words if word and not word.startswith("#")], str(path))


def read_key_variable(name: str) -> LogKeys:
    """The keys in a variable of the environment, separated by spaces.

    Raises:
        SpecError: it is not set, or a word is no key.
    """
    text = os.environ.get(name, "")
    if not text.strip():
        raise SpecError(
            f"the environment variable {name} is not set",
            hint="it holds the keys that encrypt the log; make one: toolchart keys log FILE",
        )
    return parse_keys(text.split(), name)


def read_spec_keys(section: LogKeyConfig, source: str | None) -> LogKeys:
    """The keys that the section `log_key` of an agent spec names.

    Args:
        source: file of the spec.

    Raises:
        SpecError: it names none, or both a variable and a file, or what it names holds no key.
    """
    if (section.env is None) == (section.file is None):
        raise SpecError(
            "expected either `env` or `file`",
            file=source,
            path="log_key",
            hint="log_key: {env: NAME_OF_A_VARIABLE}, or log_key: {file: log.keys}",
        )
    if section.env is not None:
        return read_key_variable(section.env)
    return read_key_file(Path(source or ".").parent / str(section.file))


def parse_keys(words: Iterable[str], source: str) -> LogKeys:
    """The keys of some words, the newest last.

    Raises:
        SpecError: a word is no key, or there is none. The message never has a word.
    """
    keys = [_parse_key(word, number, source) for number, word in enumerate(words, 1)]
    if not keys:
        raise SpecError("there is no key in it", file=source, hint="make one: toolchart keys log FILE")
    return LogKeys(keys)


def _parse_key(word: str, number: int, source: str) -> bytes:
    try:
        key = base64.b64decode(word.removeprefix(PREFIX), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if not word.startswith(PREFIX) or len(key) != KEY_BYTES:
        raise SpecError(
            f"word {number} is no key of a log: expected `{PREFIX}` and 32 bytes in Base64",
            file=source,
            hint="make one: toolchart keys log FILE",
        )
    remember_secret(word)
    remember_secret(word.removeprefix(PREFIX))
    return key


# -- keys of this process --------------------------------------------------------------------------

_keys_in_use: ContextVar[LogKeys | None] = ContextVar("toolchart_log_keys", default=None)


@contextmanager
def use_keys(keys: LogKeys | None) -> Iterator[None]:
    """Have logs that are opened within the block use these keys, where they are given no others."""
    token = _keys_in_use.set(keys)
    try:
        yield
    finally:
        _keys_in_use.reset(token)


def find_keys() -> LogKeys | None:
    """The keys of `use_keys`, else those of the environment; None where there are none.

    Raises:
        SpecError: what the environment names holds no key.
    """
    keys = _keys_in_use.get()
    if keys is not None:
        return keys
    if os.environ.get(FILE_VARIABLE):
        return read_key_file(os.environ[FILE_VARIABLE])
    return read_key_variable(VARIABLE) if os.environ.get(VARIABLE) else None
