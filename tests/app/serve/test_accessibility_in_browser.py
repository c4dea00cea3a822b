"""Every page for everybody: what axe finds, light and dark, on a laptop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from accessibility import HAS_AXE, list_serious_violations
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
    "/conversations/asks": "#step p",
    "/chat/asks": "article.call",
}
"""What is there when the script of a page has filled it."""

PATHS = (
    *(page.path for page in PAGES),
    "/conversations/asks",
    "/chat/asks",
    "/charts/full",
    "/nowhere",
    COMPARISON,
)

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
async def test_no_page_has_a_serious_finding(address: str, scheme: str, viewport: dict[str, int]) -> None:
    """axe finds nothing serious or critical on any page, and no page is wider than its window."""
    found: list[Any] = []
    async with open_browser(color_scheme=scheme, viewport=viewport) as context:
        page = await context.new_page()
        await page.goto(f"{address}/sign-in")
        found += await list_serious_violations(page)
        await page.fill("#token", make_value("owner"))
        await page.click("main button")
        await page.wait_for_url("**/conversations")
        for path in PATHS:
            await page.goto(address + path)
            await page.locator(READY.get(path, "main h1")).first.wait_for()
            for panel in await page.locator(".tasks > details > summary").all():
                await panel.click()
            found += [(path, text) for text in await list_serious_violations(page)]
            width = await page.evaluate("document.documentElement.scrollWidth")
            found += [(path, f"it is {width} wide")] if width > viewport["width"] else []
    assert found == []
