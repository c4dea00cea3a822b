"""Stores of the log: what a store must do, the table of store kinds, and `open_store`.

**What a store must do.** It keeps the lines of conversations, and beside them small values. It has the
methods below; `StoreBase` (`base.py`) makes all others from them. Appends under a lease, leases, inboxes,
checkpoints, erasing and deleting are written there, once for all stores.

| method | what it promises |
|---|---|
| `commit(changes, wait, sync)` | makes changes, each completely or not at all |
| `read_lines(conversation, start)` | the lines from a number on, in order, byte for byte |
| `read_last_line(conversation)` | number and line of the newest record |
| `read_value(conversation, kind, key)` | the data of one small value |
| `read_values(conversation, kind, before)` | key and data of those of a kind, the greatest key first |
| `list_values(kind, conversations)` | those that are listed, by conversation, as they were written |
| `list_conversations()` | the ids of all conversations with records, the one that began first before others |
| `close()` | closes the store; may be called twice |
| `read_time()` | the clock of leases, where it is not that of this machine |

- *A change* (`base.Change`) belongs to one conversation: what one small value must begin with (`check`), how
  many records there must be (`first_seq`), lines that are appended, and values that are written. Erasing
  also gives lines that replace earlier ones; a deletion takes the conversation with its values.
- *Atomicity.* The check, the number and all writes of a change are one step. A crash leaves all of a change
  or nothing. So the entries of an inbox that became records, a checkpoint and large parts are written with
  their records. Changes of one commit share its cost (one sync) and are refused one by one.
- *What is compared*: bytes. A lease is fenced by the beginning of its value, which is its token and its
  worker; it is taken, prolonged and given back only where the whole value is still the one that was read. A
  store knows nothing about leases.
- *Durability.* What `commit` has returned from survives a crash of the process; with `durable`, a loss of
  power too. With `sync=False` it may come to the disk later, but never after a later change.
- *Clock.* Leases are compared with `read_time`: the clock of the machine for files, that of the server where
  several machines share one.
- *Data of values* is any bytes, from a few to some hundred thousand. A kind is a word of lower-case letters;
  a key is any text. A write gives the value a number that is greater than those of its conversation and kind.
- *Erasing.* When a change with `replaced` has returned, the bytes of the old lines are gone from the files
  of the store, and so is what it keeps of values that were written over.
- *Opened for reading*, a store writes and creates nothing, beside its files neither; `commit` raises
  `LogUnavailable`.

What only some stores can do has a default in `StoreBase`, which a store may replace: `check_place`,
`check_storage`, `vacuum`, and the upkeep between commits; and what a store with indexes does faster: lists,
samples, names by their beginning. Stores on SQL keep large parts of lines once (`large_parts.py`); the
encrypted store (`encrypted.py`) wraps any other.

To add a store, write its class in a module of this package and add a row to the table. Another package adds
a row by an entry point of the group `toolchart.stores`; see `docs/extending.md`. `toolchart.testing.stores`
has the tests that every store passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolchart.engine.log.secrecy.envelopes import build_missing_key, find_envelope
from toolchart.engine.log.secrecy.keys import LogKeys, find_keys
from toolchart.engine.log.stores.base import StoreBase
from toolchart.states.descriptors import (
    Descriptor,
    Registry,
    find_reference_gaps,
    find_text_gaps,
    guard_row,
    load_row_reference,
)
from toolchart.states.errors import EXTRA_PACKAGES, LogDamaged, LogUnavailable, SpecError

if TYPE_CHECKING:
    from toolchart.states.ports import Store

DEFAULT_LOG = ".toolchart/log.db"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


class StoreDescriptor(Descriptor, frozen=True, kw_only=True):
    """One kind of store. `NAME://...` is an address of the store NAME."""

    address: str = ""
    """The form of its addresses, for people: `postgresql://USER@HOST/DATABASE`."""
    summary: str = ""
    """What the address is, in a few words: `a SQLite file`."""
    open: str = ""
    """Reference to a function `(address, *, create, durable)` that returns a `Store`. With `create=False` it
    raises `LogUnavailable` where there is no log. With `durable=False` the newest records may be lost when
    the machine stops."""
    open_for_reading: str = ""
    """Reference to a function `(address)` that returns a `Store` which writes and creates nothing. Empty
    where `open` with `create=False` does so as long as nothing is appended."""
    accepts: Callable[[str], bool] | None = None
    """Whether an address without a scheme is one of this store. Only rows of Toolchart itself are asked; a
    store of another package has addresses of the form `NAME://...` only."""
    schemes: tuple[str, ...] = ()
    """Further schemes that mean this store, for rows of Toolchart itself."""
    install: str = ""
    """What to install if the module of `open` cannot be imported: `toolchart[postgres]`."""
    is_durable: bool | None = None
    """Whether its records survive the end of the process."""
    is_path: bool = False
    """Whether its addresses are paths, which are relative to the file that names them."""

    def find_gaps(self) -> list[str]:
        """What this row lacks, one sentence each."""
        gaps = super().find_gaps() or (
            [] if _SCHEME.fullmatch(self.name) else [f"`name` {self.name!r} is not a URL scheme"]
        )
        gaps += find_text_gaps(address=self.address, summary=self.summary)
        gaps += find_reference_gaps("open", self.open, "the function that opens the store")
        if self.open_for_reading:
            gaps += find_reference_gaps(
                "open_for_reading", self.open_for_reading, "the function that opens the store for reading"
            )
        if self.is_durable is None:
            gaps.append("`is_durable` is missing: whether records survive the end of the process")
        return gaps

    def list_references(self) -> dict[str, str]:
        """The functions that open the store."""
        reading = {"open_for_reading": self.open_for_reading} if self.open_for_reading else {}
        return {"open": self.open, **reading}


_FOLDER = "toolchart.engine.log.stores"

_BUILTIN_STORES = (
    StoreDescriptor(
        name="memory",
        address="memory",
        summary="in memory, until the process ends",
        open=f"{_FOLDER}.memory:open_memory_store",
        accepts=lambda address: address == "memory",
        is_durable=False,
    ),
    StoreDescriptor(
        name="postgresql",
        address="postgresql://...",
        summary="a PostgreSQL database",
        open=f"{_FOLDER}.postgres:open_postgres_store",
        open_for_reading=f"{_FOLDER}.postgres:open_postgres_for_reading",
        schemes=("postgres",),
        install=EXTRA_PACKAGES["postgres"][0],
        is_durable=True,
    ),
    StoreDescriptor(
        name="jsonl",
        address="FILE.jsonl",
        summary="what `export --format jsonl` wrote, to be read only",
        open=f"{_FOLDER}.record_file:refuse_to_write",
        open_for_reading=f"{_FOLDER}.record_file:RecordFile",
        accepts=lambda address: address.endswith(".jsonl"),
        is_durable=True,
        is_path=True,
    ),
    StoreDescriptor(
        name="folder",
        address="FOLDER/",
        summary="a folder of JSON Lines files",
        open=f"{_FOLDER}.jsonl:JsonlStore",
        open_for_reading=f"{_FOLDER}.jsonl:open_jsonl_for_reading",
        accepts=lambda address: address.endswith("/") or Path(address).is_dir(),
        is_durable=True,
        is_path=True,
    ),
    StoreDescriptor(
        name="sqlite",
        address="FILE",
        summary="a SQLite file",
        open=f"{_FOLDER}.sqlite:SqliteStore",
        open_for_reading=f"{_FOLDER}.sqlite_reading:SqliteReader",
        accepts=lambda address: True,
        is_durable=True,
        is_path=True,
    ),
)

STORES = Registry("store", "toolchart.stores", StoreDescriptor, lambda: _BUILTIN_STORES)
"""Every kind of store. The first row that accepts an address opens it."""


def find_store(address: str) -> StoreDescriptor:
    """The kind of store that an address names.

    Raises:
        SpecError: no store has the scheme of the address, or its row is incomplete.
    """
    scheme, separator, _ = address.partition("://")
    if not separator:
        return next(row for row in STORES.builtin_rows if row.accepts and row.accepts(address))
    aliases = {alias: row.name for row in STORES.builtin_rows for alias in row.schemes}
    row = STORES.find(aliases.get(scheme, scheme), "log")
    if row.is_path:
        raise SpecError(f"{address!r} is no address of the store {row.name!r}", hint=f"write {row.address}")
    return row


def open_store(
    address: str | Path | None,
    *,
    create: bool = True,
    durable: bool = True,
    keys: LogKeys | Literal[False] | None = None,
    accept_plain: bool = False,
) -> Store:
    """Open the store of an address; None is the default SQLite file.

    - `memory`: in memory, until the process ends;
    - `postgresql://...`: a PostgreSQL database (extra `postgres`);
    - a folder, or a path that ends in `/`: one JSON Lines file per conversation in it;
    - `NAME://...`: a store that another package adds;
    - any other path: a SQLite file.

    A path that ends in `.jsonl` is a file of records, which only `open_store_for_reading` opens.

    Args:
        create: whether a missing log may be created.
        durable: true is `full`: a commit is synced before it returns. False is `normal`: the newest
            records may be lost when the machine (not the process) stops.
        keys: encrypt the log. None takes those of `TOOLCHART_LOG_KEY_FILE` or `TOOLCHART_LOG_KEY`, if set;
            False takes none.
        accept_plain: with keys, read what is not encrypted as it is, and open a log that is in the clear:
            only to copy it.

    Raises:
        LogUnavailable: the store cannot be opened, or the log is in the clear and there are keys: what is
            appended would be encrypted beside it, and refused by who reads with the keys.
        MissingKey: the log is encrypted, and there is no key, or not the one of its newest conversations:
            what is appended would stand there in the clear, or under a wrong key.
        SpecError: no store has the scheme of the address, or its row is incomplete.
    """
    if address is not None and not isinstance(address, (str, Path)):
        kind = type(address).__name__
        raise SpecError(
            f"the address of a log is a text or a path, not {kind}", hint='write "memory", or name a file'
        )
    text = str(address or DEFAULT_LOG)
    row = find_store(text)
    opener = _load_opener(row, row.open)
    with guard_row(row):
        store: Store = opener(text, create=create, durable=durable)
    keys = find_keys() if keys is None else keys
    used_keys = keys if keys and row.is_durable else None
    try:
        if not accept_plain:
            _check_encryption(store, used_keys)
    except BaseException:
        store.close()
        raise
    return _encrypt_store(store, used_keys, accept_plain=accept_plain) if used_keys else store


def open_store_for_reading(address: str | Path | None, *, keys: LogKeys | None = None) -> Store:
    """Open the store of an address as it is: nothing is written, upgraded or created, beside it neither.

    What others append later need not be seen.

    Args:
        keys: see `open_store`. Without them an encrypted log opens, and `MissingKey` comes from what reads
            a record.

    Raises:
        LogUnavailable: there is no log, or it cannot be read; `ForeignLog`, `NewerLog` and `MissingKey` say
            why.
        LogDamaged: it is not as a store leaves it.
        SpecError: no store has the scheme of the address, or its row is incomplete.
    """
    text = str(address or DEFAULT_LOG)
    row = find_store(text)
    for_reading = row.open_for_reading
    opener = _load_opener(row, for_reading or row.open)
    with guard_row(row):
        store: Store = opener(text) if for_reading else opener(text, create=False, durable=True)
    keys = keys or find_keys()
    return _encrypt_store(store, keys) if keys is not None and row.is_durable else store


def _encrypt_store(store: Store, keys: LogKeys, *, accept_plain: bool = False) -> Store:
    # Late: the wrapper reads as every reader of the log does, and few logs are encrypted.
    from toolchart.engine.log.stores.encrypted import EncryptedStore

    if not isinstance(store, StoreBase):
        store.close()
        raise LogUnavailable("only a store that inherits from StoreBase can be encrypted")
    return EncryptedStore(store, keys, accept_plain=accept_plain)


def _check_encryption(store: Store, keys: LogKeys | None) -> None:
    """Refuse to write to a log that is encrypted with other keys than those that are given, or none.

    This rests on a sample, because a log may have any number of conversations: the newest three, and the
    oldest one. A key that reads one of the newest is in use. One that reads only the oldest was in use before
    a change of keys, and nothing more is to be written under it. A single conversation that somebody without
    the key has planted decides nothing where there are more: those beside it are encrypted as before. The
    sample finds mistakes of operators; whatever is read is checked line by line.

    Raises:
        MissingKey: the log is encrypted, its newest conversations with another key.
        LogUnavailable: there are keys, and the log is in the clear.
    """
    try:
        found = [(name, _find_key_id(store, name)) for name in store.list_sample()]
    except LogDamaged:  # of the store as a whole: reported to those who read it
        return
    sample = [(name, key_id) for name, key_id in found if key_id is not None]
    known = [name for name, key_id in sample if keys is not None and keys.find(key_id) is not None]
    missing = [(name, key_id) for name, key_id in sample if key_id and name not in known]
    if missing and (not known or known == [sample[-1][0]]):
        name, key_id = missing[0]
        raise build_missing_key(key_id, name, keys.list_ids() if keys is not None else [])
    if keys is not None and sample and not known:
        raise LogUnavailable(
            "this log is not encrypted, and a key is given: it would hold both\n"
            "  copy it into an encrypted one: toolchart convert --to NEW --to-key FILE --accept-plain\n"
            "  or give no key, to go on without encryption"
        )


def _find_key_id(store: Store, conversation: str) -> str | None:
    """The key of the newest record of a conversation, else that of its first one; empty where both are in the
    clear, None where no record can be read."""
    try:
        newest = store.read_last_line(conversation)
        if newest is None:
            return None
        envelope = find_envelope(newest[1])
        if envelope is None:  # somebody may have appended it to an encrypted conversation
            envelope = next((find_envelope(line) for line in store.read_lines(conversation)), None)
    except LogDamaged:
        return None
    return envelope.key_id if envelope is not None else ""


def _load_opener(row: StoreDescriptor, reference: str) -> Callable[..., Store]:
    """The function that opens a store.

    Raises:
        LogUnavailable: its module cannot be imported.
    """
    try:
        opener: Callable[..., Store] = load_row_reference(row, reference)
    except (ImportError, AttributeError) as error:
        install = f"\n  pip install '{row.install}'" if row.install else ""
        raise LogUnavailable(f"the store {row.name!r} cannot be loaded: {error}{install}") from error
    return opener
