"""Every store of Toolchart passes the conformance suite, and so does one of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_store import FolderStore
from pgbouncer import run_pgbouncer
from postgres_database import create_database
from store_conformance import StoreConformance

from toolchart.engine.log.stores import open_store, open_store_for_reading


class TestMemory(StoreConformance):
    """The memory store."""

    keeps_logs = False

    def open(self, folder: Path, **options: Any) -> Any:
        """A new log."""
        return open_store("memory", **options)


class TestSqlite(StoreConformance):
    """The SQLite store."""

    def open(self, folder: Path, **options: Any) -> Any:
        """A log in a file."""
        return open_store(folder / "log.db", **options)

    def open_for_reading(self, folder: Path) -> Any:
        """The same log, for reading."""
        return open_store_for_reading(folder / "log.db")


class TestPostgres(StoreConformance):
    """The PostgreSQL store."""

    keeps_files = False

    @pytest.fixture(autouse=True)
    def find_server(self, postgres: str) -> None:
        """Use the server of the session."""
        self.server = postgres

    def open(self, folder: Path, **options: Any) -> Any:
        """A log in a database of its own."""
        return open_store(create_database(self.server, folder), **options)

    def open_for_reading(self, folder: Path) -> Any:
        """The same log, for reading."""
        return open_store_for_reading(create_database(self.server, folder))


class TestPostgresBehindPgBouncer(StoreConformance):
    """The PostgreSQL store on sessions that are lent for one transaction, to whoever asks."""

    keeps_files = False

    @pytest.fixture(autouse=True)
    def find_pool(self, postgres: str, tmp_path: Path) -> Iterator[None]:
        """Lend sessions of a database of the test's own."""
        with run_pgbouncer(create_database(postgres, tmp_path)) as self.address:
            yield

    def open(self, folder: Path, **options: Any) -> Any:
        """A log in the database."""
        return open_store(self.address, **options)


class TestStoreOfSomebodyElse(StoreConformance):
    """A store that was written from `docs/extending.md` alone."""

    def open(self, folder: Path, **options: Any) -> Any:
        """A log in a folder."""
        return FolderStore(folder / "log", **options)
