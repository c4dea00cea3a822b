"""Histories of workers on one JetStream server, over a network that delays and cuts, are linearizable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from effort import choose_count
from nats_server import NatsServer
from store_simulator import run_served_history

from toolchart_nats.store import open_jetstream_store

pytestmark = pytest.mark.slow


def test_histories_are_linearizable(nats_server: NatsServer, tmp_path: Path) -> None:
    """Appends, leases, inboxes and checkpoints of workers at the same time answer as those of one after the
    other, where what they say is delayed and connections are cut before or after it is heard."""
    faults: set[str] = set()
    for seed in range(choose_count(short=3, long=300)):
        address = nats_server.build_address(tmp_path / str(seed))
        port = int(nats_server.place.rpartition(":")[2])

        def open_at(port: int, address: str = address) -> Any:
            return open_jetstream_store(address.replace(nats_server.place, f"127.0.0.1:{port}"))

        faults |= run_served_history(seed, "nats", port, open_at).faults
    assert "cut" in faults
