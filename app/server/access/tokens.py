"""Tokens: names with roles. A token is kept as its digest, so that no page and no error can show it."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import msgspec

from toolchart.specs.secrets import remember_secret
from toolchart.states.errors import SpecError, suggest_name

Role = Literal["read", "chat", "approve", "edit", "debug", "delete", "all"]
"""What a token may do: read; start turns, with what the agent's handlers give; decide about calls and answer
forms; check charts of their own, and save them to the operator's folder; go beyond the handlers (fork and run
again with any settings, prompt or results, run a tool alone, test models with all tools); delete
conversations from the log, with what was said and done there. Every token may read. A token does this with
the conversations that it has begun. With `all`, a role of operators, it does so with those of everybody."""

ROLES: tuple[Role, ...] = get_args(Role)

TOKEN_BYTES = 32
MIN_TOKEN_CHARACTERS = 20
"""A shorter token could be guessed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who sends a request."""

    name: str
    """The name of the token. The log has it as the owner of the conversations that it begins, as the author
    of its messages and cancellations, and as who has decided and answered."""
    roles: frozenset[Role]

    def may(self, role: Role) -> bool:
        """Whether the role is among those of the token."""
        return role in self.roles


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token at the start of a server, the only time that its value is known."""

    access: Access
    value: str
    is_generated: bool
    """Whether this process has made it up; otherwise the operator knows it already."""


class TokenTable:
    """The tokens of one server; safe against timing."""

    def __init__(self, tokens: Iterable[NewToken]) -> None:
        self._rows = [(_digest(token.value), token.access) for token in tokens]

    def find(self, value: str) -> Access | None:
        """Whose token this is; None for an unknown one."""
        wanted, matching_access = _digest(value), None
        for digest, access in self._rows:
            if hmac.compare_digest(digest, wanted):
                matching_access = access
        return matching_access


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def make_tokens(words: Sequence[str]) -> list[NewToken]:
    """The tokens of `--token NAME:ROLE,ROLE`; without any, one named `owner` with every role.

    The value comes from the environment variable `TOOLCHART_TOKEN_<NAME>` where it is set, else it is
    random.

    Raises:
        SpecError: a word is not of this form, a name stands twice, or a value is too short.
    """
    tokens = [_make_token(word) for word in words or (f"owner:{','.join(ROLES)}",)]
    names = [token.access.name for token in tokens]
    if len(set(names)) != len(names):
        raise SpecError(f"--token names {max(names, key=names.count)!r} twice")
    return tokens


def _make_token(word: str) -> NewToken:
    name, _, roles = word.partition(":")
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"--token {word!r}: {name!r} cannot be a name",
            hint="write NAME:ROLE,ROLE with letters, digits, - _ . @ in the name: --token anna:chat,approve",
        )
    access = Access(name=name, roles=_parse_roles(word, roles))
    variable = f"TOOLCHART_TOKEN_{re.sub('[^A-Za-z0-9]', '_', name).upper()}"
    value = os.environ.get(variable, "")
    if value and len(value) < MIN_TOKEN_CHARACTERS:
        raise SpecError(f"{variable} is shorter than {MIN_TOKEN_CHARACTERS} characters, so it can be guessed")
    token = NewToken(access=access, value=value or secrets.token_urlsafe(TOKEN_BYTES), is_generated=not value)
    remember_secret(token.value)
    return token


def _parse_roles(word: str, roles: str) -> frozenset[Role]:
    names = [role.strip() for role in roles.split(",") if role.strip()]
    for name in names:
        if name not in ROLES:
            raise SpecError(f"--token {word!r}: unknown role {name!r}", hint=suggest_name(name, ROLES))
    return frozenset({"read", *(role for role in ROLES if role in names)})
