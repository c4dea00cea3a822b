"""`Start`: one thing that an agent can start, load, call, open, send or read.

A row of a table that can act (a tool source, a kind of effect, a model host) has a function that lists the
starts of one entry, from the entry alone. Such a function imports no module of a user, opens no connection
and runs no program: it says what would. `engine/manifest.py` gathers the starts of a whole agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from toolchart.states.canonical_json import encode_canonical_text

StartKind = Literal["command", "function", "agent", "plugin", "host", "address", "file", "variable"]

START_KINDS: tuple[StartKind, ...] = (
    *("command", "function", "agent", "plugin", "host", "address"),
    *("file", "variable"),
)
"""Every kind, the most dangerous first: what runs here, what other specs and packages run, what is sent out,
what is read or written, what is taken from the environment."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an agent can start, reach or read."""

    kind: StartKind
    """`command`: a program. `function`: a Python function or class; its module is imported. `agent`: another
    agent, whose own starts are listed too. `plugin`: an installed package. `host`: a model host. `address`:
    any other address that something is sent to. `file`: a file or a folder. `variable`: one of the
    environment."""
    subject: str
    """What it is, whole: the command line, `module:name`, the address, the path, the name of the variable."""
    words: tuple[str, ...] = ()
    """For a `command`: the words of its line, its variables before them as `NAME=VALUE`; empty where only a
    description can be given."""
    purpose: str = ""
    """What it is for, in a few words."""
    place: str = ""
    """Key path of the part of the spec that names it."""
    agent: Mapping[str, Any] | None = None
    """For `agent`: its `handler`, `spec` or `chart`, as the effect declares them."""


def list_no_starts(*entry: Any) -> Iterable[Start]:
    """The starts of an entry that stays inside the process: none."""
    return ()


# -- texts -------------------------------------------------------------------------------------------

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]{}$*?&#;()<>|!~^-]+")
_PLAIN_TEXT = re.compile(r"[ -!#-\[\]-~]*")
"""Printable ASCII without quotation mark and backslash."""
_RUN = re.compile(r"(.)\1{23,}", re.DOTALL)


def quote_whole(text: str) -> str:
    """A text as one line of ASCII, whole: quoted as JSON where it holds anything else than plain characters.

    Any character beyond ASCII stands as its number, since it may be invisible, or look like another one. A
    character that is repeated many times stands once, with its count: it could push the rest off a screen.
    """
    return _quote(text, bool(_PLAIN_TEXT.fullmatch(text)) and text == text.strip() != "")


def quote_words(words: Sequence[str]) -> str:
    """The words of a command line, each as `quote_whole` writes it, and quoted where it has a space."""
    return " ".join(_quote(word, bool(_PLAIN_WORD.fullmatch(word))) for word in words)


def _quote(text: str, is_plain: bool) -> str:
    line = text if is_plain else json.dumps(text).replace("\x7f", "\\u007f")
    return _RUN.sub(lambda run: f"{run.group(1)}<{len(run.group(0)):,} times>", line)


def find_addresses(value: Any) -> Iterator[str]:
    """Every text in a value, at any depth, that holds an address."""
    if isinstance(value, str):
        if "://" in value:
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from find_addresses(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_addresses(item)


# -- declared effects ------------------------------------------------------------------------------
#
# The parameters are not checked here, and nothing that they name is loaded: the functions read what the
# loader of declarations would follow, in every spelling that it accepts.

_USER_PARTS = "user_message"
"""The word of `attach` that names no file."""


def list_call_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The files that a model call attaches, and the addresses that it hands to the host."""
    attachments = parameters.get("attach")
    for part in attachments if isinstance(attachments, list) else ():
        if isinstance(part, str) and part != _USER_PARTS:
            yield Start(kind="file", subject=part, purpose="is read, and sent to a model host")
    parts = [part for part in attachments if isinstance(part, Mapping)] if attachments else []
    for address in find_addresses([parts, parameters.get("options")]):
        yield Start(kind="address", subject=address, purpose="is handed to a model host, which may ask it")


def list_function_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The function that is called, with its arguments as they are declared."""
    arguments = parameters.get("arguments") or {}
    purpose = f"is called with {encode_canonical_text(arguments)}" if arguments else "is called"
    yield Start(kind="function", subject=str(parameters.get("function") or ""), purpose=purpose)


def list_agent_starts(parameters: Mapping[str, Any]) -> Iterator[Start]:
    """The agent that is run; its own starts are listed by whoever loads it."""
    agent = {key: parameters[key] for key in ("handler", "spec", "chart") if parameters.get(key)}
    words = [
        f"{key} {value}" if isinstance(value, str) else f"an inline {key}" for key, value in agent.items()
    ]
    yield Start(kind="agent", subject=" with ".join(words), purpose="is run as a child", agent=agent)
