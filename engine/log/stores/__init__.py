"""Stores of the log: the table of store kinds, and `open_store`, which opens the one that an address names.

To add a store, write its class in a module of this package and add a row to the table. Another package adds
a row by an entry point of the group `toolchart.stores`; see `docs/extending.md`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from toolchart.engine.log.reading.listing import find_sample
from toolchart.engine.log.secrecy.envelopes import refuse_envelope
from toolchart.engine.log.secrecy.keys import LogKeys, find_keys
from toolchart.states.descriptors import (
    Descriptor,
    Registry,
    find_reference_gaps,
    find_text_gaps,
    load_reference,
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
        name="nats",
        address="nats://...",
        summary="a NATS JetStream stream",
        open=f"{_FOLDER}.jetstream.store:open_jetstream_store",
        open_for_reading=f"{_FOLDER}.jetstream.store:open_jetstream_for_reading",
        install=EXTRA_PACKAGES["nats"][0],
        is_durable=True,
    ),
    StoreDescriptor(
        name="jsonl",
        address="FOLDER/",
        summary="a folder of JSON Lines files",
        open=f"{_FOLDER}.jsonl:JsonlStore",
        accepts=lambda address: address.endswith(("/", ".jsonl")) or Path(address).is_dir(),
        is_durable=True,
        is_path=True,
    ),
    StoreDescriptor(
        name="sqlite",
        address="FILE",
        summary="a SQLite file",
        open=f"{_FOLDER}.sqlite:SqliteStore",
        open_for_reading=f"{_FOLDER}.sqlite_reading:open_sqlite_for_reading",
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
) -> Store:
    """Open the store of an address; None is the default SQLite file.

    - `memory`: in memory, until the process ends;
    - `postgresql://...`: a PostgreSQL database (extra `postgres`);
    - `nats://HOST:PORT/NAME`: a stream of NATS JetStream (extra `nats`);
    - a folder, or a path that ends in `/` or `.jsonl`: one JSON Lines file per conversation in it;
    - `NAME://...`: a store that another package adds;
    - any other path: a SQLite file.

    Args:
        create: whether a missing log may be created.
        durable: true is `full`: a commit is synced before it returns. False is `normal`: the newest
            records may be lost when the machine (not the process) stops.
        keys: encrypt the log. None takes those of `TOOLCHART_LOG_KEY_FILE` or `TOOLCHART_LOG_KEY`, if set;
            False takes none.

    Raises:
        LogUnavailable: the store cannot be opened.
        MissingKey: the log is encrypted, and there is no key: what is appended would stand there in the
            clear.
        SpecError: no store has the scheme of the address, or its row is incomplete.
    """
    text = str(address or DEFAULT_LOG)
    row = find_store(text)
    opener = _load_opener(row, row.open)
    store: Store = opener(text, create=create, durable=durable)
    keys = find_keys() if keys is None else keys
    if keys and row.is_durable:
        return _encrypt_store(store, keys)
    try:
        _refuse_encrypted_log(store)
    except BaseException:
        store.close()
        raise
    return store


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
    store: Store = opener(text) if for_reading else opener(text, create=False, durable=True)
    keys = keys or find_keys()
    return _encrypt_store(store, keys) if keys is not None and row.is_durable else store


def _encrypt_store(store: Store, keys: LogKeys) -> Store:
    # Late: the wrapper reads as every reader of the log does, and few logs are encrypted.
    from toolchart.engine.log.stores.encrypted import encrypt_store

    return encrypt_store(store, keys)


def _refuse_encrypted_log(store: Store) -> None:
    """Refuse to write to an encrypted log without a key.

    Raises:
        MissingKey: a conversation of it is encrypted.
    """
    try:
        sample = find_sample(store)
        first = next(iter(store.read_lines(sample)), None) if sample is not None else None
    except LogDamaged:  # reported to those who read it
        return
    if first is not None:
        refuse_envelope(first, 0, sample)


def _load_opener(row: StoreDescriptor, reference: str) -> Callable[..., Store]:
    """The function that opens a store.

    Raises:
        LogUnavailable: its module cannot be imported.
    """
    try:
        opener: Callable[..., Store] = load_reference(reference)
    except (ImportError, AttributeError) as error:
        install = f"\n  pip install '{row.install}'" if row.install else ""
        raise LogUnavailable(f"the store {row.name!r} cannot be loaded: {error}{install}") from error
    return opener
