"""The tests of this plugin see it as if it were installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plugin_folders import see_plugin


@pytest.fixture(autouse=True)
def _see_this_plugin() -> Iterator[None]:
    """Let Toolchart find the store of these tests."""
    with see_plugin("toolchart-nats"):
        yield
