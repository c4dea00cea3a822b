"""Stores of the log: what a store must do, the table of store kinds, and `open_store`.

**What a store must do.** It keeps the lines of conversations, and beside them small values. It has the
methods below; `StoreBase` (`base.py`) makes all others from them. Appends under a lease, leases, inboxes,
checkpoints and deleting are written there, once for all stores.

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
  many records there must be (`first_seq`), lines that are appended, and values that are written; a
  deletion takes the conversation with its values.
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
- *Opened for reading*, a store writes and creates nothing, beside its files neither; `commit` raises
  `LogUnavailable`.

What only some stores can do has a default in `StoreBase`, which a store may replace: `check_place`,
`check_storage`, `vacuum`, and the upkeep between commits; and what a store with indexes does faster: lists,
samples, names by their beginning. Stores on SQL keep large parts of lines once (`large_parts.py`).

To add a store, write its class in a module of this package and add a row to the table. Another package adds
a row by an entry point of the group `toolchart.stores`; see `docs/extending.md`. The tests
that every store passes are in `tests/support/store_conformance.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from toolchart.states.descriptors import (
    Descriptor,
    Registry,
    find_reference_gaps,
    find_text_gaps,
    guard_row,
    load_row_reference,
)
from toolchart.states.errors import EXTRA_PACKAGES, LogUnavailable, SpecError

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
    is_only_read: bool = False
    """Whether nobody writes to it: `open` refuses."""

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
        is_only_read=True,
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
        SpecError: no store has the scheme of the address, its row is incomplete, or it names a folder.
    """
    scheme, separator, _ = address.partition("://")
    if not separator:
        if address.endswith(("/", os.sep)) or Path(address).is_dir():
            file = Path(address, "log.db")
            raise SpecError(f"{address} is a folder, and a log is a file or a database", hint=f"write {file}")
        return next(row for row in STORES.builtin_rows if row.accepts and row.accepts(address))
    aliases = {alias: row.name for row in STORES.builtin_rows for alias in row.schemes}
    row = STORES.find(aliases.get(scheme, scheme), "log")
    if row.is_path:
        raise SpecError(f"{address!r} is no address of the store {row.name!r}", hint=f"write {row.address}")
    return row


def open_store(address: str | Path | None, *, create: bool = True, durable: bool = True) -> Store:
    """Open the store of an address; None is the default SQLite file.

    - `memory`: in memory, until the process ends;
    - `postgresql://...`: a PostgreSQL database (extra `postgres`);
    - `NAME://...`: a store that another package adds;
    - any other path: a SQLite file.

    A path that ends in `.jsonl` is a file of records, which only `open_store_for_reading` opens.

    Args:
        create: whether a missing log may be created.
        durable: true is `full`: a commit is synced before it returns. False is `normal`: the newest
            records may be lost when the machine (not the process) stops.

    Raises:
        LogUnavailable: the store cannot be opened.
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
    return store


def open_store_for_reading(address: str | Path | None) -> Store:
    """Open the store of an address as it is: nothing is written, upgraded or created, beside it neither.

    What others append later need not be seen.

    Raises:
        LogUnavailable: there is no log, or it cannot be read; `ForeignLog` and `NewerLog` say why.
        LogDamaged: it is not as a store leaves it.
        SpecError: no store has the scheme of the address, or its row is incomplete.
    """
    text = str(address or DEFAULT_LOG)
    row = find_store(text)
    for_reading = row.open_for_reading
    opener = _load_opener(row, for_reading or row.open)
    with guard_row(row):
        store: Store = opener(text) if for_reading else opener(text, create=False, durable=True)
    return store


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
