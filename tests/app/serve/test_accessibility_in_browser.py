"""Every page for everybody: what axe finds, light and dark, on a screen, a tablet and a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from accessibility import HAS_AXE, list_violations
from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser
from effort import IS_LONG
from served import make_site, make_value, serve

from toolchart.app.server.site import SiteSettings
from toolchart.app.studio.rendering import PAGES

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
    pytest.mark.skipif(
        not HAS_AXE, reason="axe-core is absent; TOOLCHART_AXE names the folder in which npm installed it"
    ),
]

COMPARISON = "/conversations/asks/diff?with=over"

READY = {
    "/approvals": ".pane:not([hidden]) button.approve",
    "/conversations/asks": "#run[data-ready]",
    "/chat/asks": "article.call",
    "/charts/edit?shipped=tool_loop": "#verdict.good",
}
"""What is there when the script of a page has filled it."""

PATHS = (
    *(page.path for page in PAGES),
    "/conversations/asks",
    "/chat/asks",
    "/charts/full",
    "/charts/edit?shipped=tool_loop",
    "/nowhere",
    COMPARISON,
)

WIDTHS = (1440, 1024, 390)

DIALOGS = {"?": "keys", "g": "go", "f": "fork", "r": "rerun", "c": "compare", "m": "more"}
"""Dialogs of the page of a run, by the key that opens each."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a conversation that is over, and one that waits for decisions."""
    calls = reply_with_calls(("echo", {"text": "a"}), ("weather", {"city": "Prague"}))
    engine = make_engine([calls, "done"], chart="approval", approval={"default": "ask"})
    engine.run("Please ask", conversation="asks")
    engine.run("Please answer", conversation="over")
    results = tmp_path_factory.mktemp("scores") / "models.json"
    with serve(make_site(engine, settings=SiteSettings(results=str(results)))) as url:
        yield url


@asynccontextmanager
async def sign_in_with(address: str, scheme: str, width: int, found: list[Any]) -> AsyncIterator[Any]:
    """A page that is signed in; what axe finds where one signs in is noted."""
    async with open_browser(color_scheme=scheme, viewport={"width": width, "height": 860}) as context:
        page = await context.new_page()
        await page.goto(f"{address}/sign-in")
        found += await list_violations(page)
        await page.fill("#token", make_value("owner"))
        await page.click("main button")
        await page.wait_for_url("**/conversations")
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_every_page_is_for_everybody(address: str, scheme: str, width: int) -> None:
    """axe finds nothing above minor on any page, and no page is wider than its window."""
    found: list[Any] = []
    async with sign_in_with(address, scheme, width, found) as page:
        for path in PATHS:
            await page.goto(address + path)
            await page.locator(READY.get(path, "main h1")).first.wait_for()
            found += [(path, text) for text in await list_violations(page)]
            wide = await page.evaluate("document.documentElement.scrollWidth")
            found += [(path, f"it is {wide} wide")] if wide > width else []
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_the_dialogs_of_a_run_are_for_everybody(address: str, scheme: str, width: int) -> None:
    """axe finds nothing above minor in any dialog of the page of a run."""
    found: list[Any] = []
    async with sign_in_with(address, scheme, width, found) as page:
        await page.goto(f"{address}/conversations/asks")
        await page.locator("#run[data-ready]").wait_for()
        for key, name in DIALOGS.items():
            await page.keyboard.press(key)
            await page.locator(f"#{name}-dialog[open]").wait_for()
            found += [(name, text) for text in await list_violations(page)]
            await page.keyboard.press("Escape")
            await page.locator(f"#{name}-dialog:not([open])").wait_for(state="attached")
    assert not found, "\n".join(map(str, found))
