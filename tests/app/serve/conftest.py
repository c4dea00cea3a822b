"""A browser for all tests of pages in a process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_browser() -> AsyncIterator[None]:
    """Start the browser in which `open_browser` opens windows, and end it after the last test."""
    from browser import run_browser

    async with run_browser():
        yield
