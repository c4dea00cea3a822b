"""What is read on the pages: words stay whole, no letter is small, and nothing moves while a page loads; at
the widths of a screen, a tablet and a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser
from served import make_site, make_value, serve

from toolchart.app.server.site import SiteSettings
from toolchart.states.events import Decided

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
]

LONG_ID = "0123456789abcdef" * 7
LONG_TEXT = "https-example-" + "x" * 180

READY = {
    "/approvals": "#decided tbody tr",
    "/conversations/asks": "#run[data-ready]",
    "/chat/asks": "article.call",
    "/charts/edit?shipped=tool_loop": "svg .state, svg [data-state]",
}
"""What is there when the script of a page has filled it."""

PATHS = (
    "/conversations",
    "/conversations/asks",
    "/conversations/asks/diff?with=over",
    "/chat/asks",
    "/approvals",
    "/tools",
    "/charts",
    "/charts/full",
    "/charts/edit?shipped=tool_loop",
    "/models",
)

FIND_BROKEN = """() => {
    const found = [];
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    while (walker.nextNode()) {
        const node = walker.currentNode;
        const parent = node.parentElement;
        if (parent.closest("svg, textarea, script, option, .code") || !parent.checkVisibility()) {
            continue;
        }
        for (const match of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
            if (match[0].length > 24) {
                continue;
            }
            range.setStart(node, match.index);
            range.setEnd(node, match.index + match[0].length);
            const boxes = [...range.getClientRects()].filter((box) => box.width);
            const lines = new Set(boxes.map((box) => Math.round(box.top)));
            if (lines.size > 1) {
                found.push(`${parent.tagName} ${match[0]}`);
            }
        }
    }
    return found;
}"""
"""The words of at most 24 characters that stand on two lines."""


FIND_SMALL = """() => {
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement;
        const text = walker.currentNode.data.trim();
        if (!text || parent.closest("script, option") || !parent.checkVisibility()) {
            continue;
        }
        const matrix = parent.closest("svg") ? parent.getScreenCTM?.() : null;
        const scale = matrix ? Math.hypot(matrix.a, matrix.b) : 1;
        const size = parseFloat(getComputedStyle(parent).fontSize) * scale;
        if (size < 10.99) {
            found.add(`${parent.tagName} ${size.toFixed(1)} ${text.slice(0, 20)}`);
        }
    }
    return [...found];
}"""
"""The texts whose letters are smaller than 11 px, those in drawings as they are scaled."""

WATCH_SHIFTS = """
    window.shifts = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) {
            window.shifts += entry.hadRecentInput ? 0 : entry.value;
        }
    }).observe({type: "layout-shift", buffered: true});
"""
"""Counts in `shifts` how much of a page moves by itself. Source: Layout Instability, W3C draft."""

MOST_SHIFTED = 0.015
SETTLED_MS = 500


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with long ids and long words: what waits, what was decided, and what is over."""
    calls = reply_with_calls(("echo", {"text": "a"}), ("weather", {"city": "Prague"}))
    replies = [calls, "done", calls, "done", "done"]
    engine = make_engine(replies, chart="approval", approval={"default": "ask"})
    engine.run("Please summarise the characteristics of an internationalisation", conversation="asks")
    engine.run("Please answer", conversation="over")
    waiting = engine.run(LONG_TEXT, conversation=LONG_ID).pending_approvals
    for call in waiting:
        decision = Decided(call_id=call.id, approved=False, reason="not acceptable to anybody", by="owner")
        engine.conversation(LONG_ID).resume(decision)
    results = tmp_path_factory.mktemp("scores") / "models.json"
    with serve(make_site(engine, settings=SiteSettings(results=str(results)))) as url:
        yield url


@asynccontextmanager
async def sign_in_at(address: str, width: int) -> AsyncIterator[Any]:
    """A page that is signed in, in a window so wide."""
    async with open_browser(viewport={"width": width, "height": 860}) as context:
        page = await context.new_page()
        await page.goto(f"{address}/sign-in")
        await page.fill("#token", make_value("owner"))
        await page.click("main button")
        await page.wait_for_url("**/conversations")
        yield page


@pytest.mark.parametrize("width", [1440, 1024, 390])
async def test_no_letter_is_small_and_nothing_moves(address: str, width: int) -> None:
    """On every page each letter has 11 px or more, those of drawings too. While a page loads nothing moves by
    itself: what a browser measures of it stays below what anybody sees."""
    found: list[Any] = []
    async with sign_in_at(address, width) as page:
        await page.add_init_script(WATCH_SHIFTS)
        for path in PATHS:
            await page.goto(address + path)
            await page.locator(READY.get(path, "main h1")).first.wait_for()
            await page.wait_for_timeout(SETTLED_MS)
            found += [(path, text) for text in await page.evaluate(FIND_SMALL)]
            shifted = await page.evaluate("window.shifts")
            found += [(path, f"{shifted:.3f} moved")] if shifted > MOST_SHIFTED else []
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("width", [1440, 1024, 860, 390])
async def test_no_word_is_broken(address: str, width: int) -> None:
    """On every page no word of up to 24 characters stands on two lines, and the page is not wider than its
    window: a table that needs more room is scrolled, and what is longer than a word is broken."""
    found: list[Any] = []
    async with sign_in_at(address, width) as page:
        for path in PATHS:
            await page.goto(address + path)
            await page.locator(READY.get(path, "main h1")).first.wait_for()
            for panel in await page.locator("main details > summary").all():
                if await panel.is_visible():
                    await panel.click()
            found += [(path, text) for text in await page.evaluate(FIND_BROKEN)]
            wide = await page.evaluate("document.documentElement.scrollWidth")
            found += [(path, f"it is {wide} wide")] if wide > width else []
    assert not found, "\n".join(map(str, found))
