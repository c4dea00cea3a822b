"""A file of seals: a seal journal over a whole log, or seals of single conversations (version 1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from toolchart.engine.log.seal import SEAL_VERSION, Seal, check_seal, read_seals
from toolchart.engine.log.sealing.journal import Journal, read_journal
from toolchart.engine.log.sealing.keys import SealVerifier
from toolchart.engine.log.sealing.log_seals import check_log
from toolchart.states.errors import LogDamaged, MissingKey, SpecError
from toolchart.states.ports import Store


class SealFile(Protocol):
    """Seals whose own signatures were checked."""

    def find_damage(self, store: Store, only: str | None = None) -> Iterator[LogDamaged]:
        """What the log lacks of that which was sealed; of one conversation or of all."""
        ...

    def count_conversations(self, only: str | None = None) -> int:
        """How many seals of conversations it has."""
        ...


def read_seal_file(path: str, key: bytes | None, verifier: SealVerifier, anchor: str | None) -> SealFile:
    """The seals of a file, with chain, roots and signatures checked, and strictly with keys.

    Args:
        key: the shared secret of HMAC, for seals of version 1.
        anchor: digest of an entry that the file must contain.

    Raises:
        SpecError: the file cannot be read, or has no seal.
        LogDamaged: a seal was changed, or the entry of the anchor is missing.
        MissingKey: a seal is signed, and its key is not given.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SpecError(f"the seals cannot be read: {error.strerror}", file=path) from None
    if data.lstrip()[:20].replace(b" ", b"").startswith(b'{"seal":%d,' % SEAL_VERSION):
        if anchor is not None:
            raise SpecError("seals of single conversations have no anchor", file=path)
        return _ConversationSeals(list(read_seals(data, path)), key)
    journal = read_journal(data, path, verifier)
    if anchor is not None and anchor.strip().lower() not in journal.digests:
        raise LogDamaged(f"{path} does not contain the seal of the anchor {anchor}: it was rolled back")
    return _JournalSeals(journal)


class _JournalSeals:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def find_damage(self, store: Store, only: str | None = None) -> Iterator[LogDamaged]:
        """See `SealFile`."""
        return check_log(store, self._journal, only)

    def count_conversations(self, only: str | None = None) -> int:
        """See `SealFile`."""
        names = self._journal.points.keys() - self._journal.tombstones.keys()
        return len(names & {only}) if only is not None else len(names)


class _ConversationSeals:
    def __init__(self, seals: list[Seal], key: bytes | None) -> None:
        self._seals = seals
        self._key = key

    def find_damage(self, store: Store, only: str | None = None) -> Iterator[LogDamaged]:
        """See `SealFile`."""
        for seal in self._seals:
            if seal.hmac is not None and self._key is None:
                raise MissingKey(
                    f"the seal of conversation {seal.conversation} is signed, and its key is not given\n"
                    "  name it with --key-file FILE"
                )
            if only in (None, seal.conversation):
                try:
                    check_seal(store, seal, self._key)
                except LogDamaged as damage:
                    yield damage

    def count_conversations(self, only: str | None = None) -> int:
        """See `SealFile`."""
        return sum(only in (None, seal.conversation) for seal in self._seals)
