"""Subjects of the JetStream store, and how ids of conversations stand in them."""

from __future__ import annotations

import hashlib
import re

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9a-f]{2})")


def encode_token(text: str) -> str:
    """A text as one token of a subject: what is no letter, digit, `_` or `-` becomes `=` and two digits."""
    return _UNSAFE.sub(lambda match: b"=%02x" % match[0][0], text.encode("utf-8", "surrogatepass")).decode()


def decode_token(token: str) -> str:
    """The text of a token."""
    data = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")
    return data.decode("utf-8", "surrogatepass")


class Subjects:
    """The subjects of one log.

    Args:
        name: that of its stream.
    """

    def __init__(self, name: str) -> None:
        self.prefix = f"toolchart.{name}"

    @property
    def everything(self) -> str:
        """All subjects of the log."""
        return f"{self.prefix}.>"

    def build_family(self, family: str) -> str:
        """Everything whose order counts in a family."""
        return f"{self.prefix}.f.{encode_token(family)}.>"

    def build_appends(self, family: str) -> str:
        """All appends of a family."""
        return f"{self.prefix}.f.{encode_token(family)}.*.*"

    def build_of_conversation(self, family: str, conversation: str, kind: str) -> str:
        """One kind of message of a conversation: `b`, `r`, `e`, `l.open`, `l.done`, `l.*`, `>`."""
        return f"{self.prefix}.f.{encode_token(family)}.{encode_token(conversation)}.{kind}"

    def build_of_all(self, kind: str) -> str:
        """One kind of message of all conversations."""
        return f"{self.prefix}.f.*.*.{kind}"

    def build_link(self, conversation: str) -> str:
        """What names the family of a child."""
        return f"{self.prefix}.k.{encode_token(conversation)}"

    def build_checkpoints(self, conversation: str) -> str:
        """The checkpoints of a conversation."""
        return f"{self.prefix}.c.{encode_token(conversation)}"

    def build_entry(self, conversation: str, state: str, key: str) -> str:
        """An entry of an inbox.

        Args:
            state: `open`, `done`, or `*` for both.
        """
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f"{self.prefix}.i.{encode_token(conversation)}.{state}.{digest}"

    def build_entries(self, conversation: str | None, state: str) -> str:
        """The entries of a conversation, or of all."""
        token = "*" if conversation is None else encode_token(conversation)
        return f"{self.prefix}.i.{token}.{state}.*"

    def build_inbox(self, conversation: str) -> str:
        """Everything of an inbox."""
        return f"{self.prefix}.i.{encode_token(conversation)}.>"

    def build_pieces(self, conversation: str, id_: str) -> str:
        """The pieces of one large content; `*` as the id for all of a conversation."""
        return f"{self.prefix}.x.{encode_token(conversation)}.{id_}"

    def split(self, subject: str) -> list[str]:
        """The tokens after the name of the log."""
        return subject[len(self.prefix) + 1 :].split(".")
