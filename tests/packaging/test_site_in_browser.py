"""The site in a browser: everybody can read it, on a laptop and a phone, and nothing comes from elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from accessibility import HAS_AXE, list_violations
from browser import CHROMIUM, open_browser
from effort import IS_LONG

BUILT_SITE = Path(os.environ.get("TOOLCHART_SITE", ""))
"""A folder in which `.ci/build_site.py` has built the pages."""

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
    pytest.mark.skipif(
        not HAS_AXE, reason="axe-core is absent; TOOLCHART_AXE names the folder in which npm installed it"
    ),
    pytest.mark.skipif(
        not (BUILT_SITE / "llms.txt").is_file(), reason="TOOLCHART_SITE names no folder with the built site"
    ),
]

LAPTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

ADDRESSES = ("", "tutorial/first-agent/", "recipes/budget/", "commands/run/", "serve-protocols/")
"""One page of each kind: pictures, commands, programs, options, tables. A large one costs axe a minute."""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The built site on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(BUILT_SITE)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
async def test_everybody_can_read_a_page(address: str, size: dict[str, int], scheme: Any) -> None:
    """axe finds nothing above minor, no page is wider than the screen, and no request goes elsewhere (which
    `open_browser` watches)."""
    found: list[str] = []
    async with open_browser(viewport=size, color_scheme=scheme) as browser:
        page = await browser.new_page()
        for path in ADDRESSES:
            await page.goto(address + path)
            violations = await list_violations(page)
            found += [f"{path}: {violation}" for violation in violations]
            if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{path}: wider than the screen")
    assert found == []
