"""Receipts: what remembers outside of the log that a signed approval was used.

A log can be copied, and its end can be cut off; what it says of an approval is gone then. A receipt is a
file in a folder of the operator. Its name is the SHA-256 of the signature, so that a second use finds it,
whichever log it comes from and whichever process it is.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.messages import DecisionSignature

ALREADY_USED = "its signed approval was used before, as a receipt says"


class Receipts(msgspec.Struct, frozen=True):
    """A folder of receipts. It is made at the first use."""

    folder: Path

    def note_use(self, signature: DecisionSignature, *, tool: str, key: str, may_repeat: bool) -> str | None:
        """Note, durable on return, that a signed approval is used; returns why it may not be, or None.

        Of two uses at the same time one is refused.

        Args:
            key: the idempotency key of the call.
            may_repeat: whether a use with the same key may come again: its tool is idempotent, so the call
                is repeated after a crash, and whoever is called takes it for the same one.
        """
        path = self.folder / hashlib.sha256(signature.value.encode("utf-8", "surrogatepass")).hexdigest()
        content = encode_canonical_text({"signer": signature.key, "tool": tool, "key": key})
        data = content.encode("utf-8", "surrogatepass")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                return None if may_repeat and path.read_bytes() == data else ALREADY_USED
            try:
                os.write(file, data)
                os.fsync(file)
            finally:
                os.close(file)
            self._sync_folder()
        except OSError as error:
            return f"no receipt can be written to {self.folder}: {error.strerror or error}"
        return None

    def _sync_folder(self) -> None:
        """Make the name of a new file durable."""
        if os.name == "nt":  # a folder cannot be opened there
            return
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
