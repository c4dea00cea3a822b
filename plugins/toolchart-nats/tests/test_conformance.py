"""The NATS store passes the tests that every store passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from nats_server import NatsServer

from toolchart.engine.log.stores.base import StoreBase
from toolchart.testing.stores import StoreConformance
from toolchart_nats.store import open_jetstream_for_reading, open_jetstream_store

pytestmark = pytest.mark.slow


class TestJetStreamStore(StoreConformance):
    """A stream for each folder."""

    keeps_files = False

    @pytest.fixture(autouse=True)
    def _use_server(self, nats_server: NatsServer) -> None:
        """Keep the logs of this test in the server of the session."""
        self._server = nats_server

    def open(self, folder: Path, **options: Any) -> StoreBase:
        """The store of the stream that is named after a folder."""
        return open_jetstream_store(self._server.build_address(folder), **options)

    def open_for_reading(self, folder: Path) -> StoreBase:
        """The same, for reading."""
        return open_jetstream_for_reading(self._server.build_address(folder))
