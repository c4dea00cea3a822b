"""A headless Chromium for tests of pages; tests are skipped with a reason where there is none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from served import make_value

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
"""The program; empty where there is none."""

PATIENCE_MS = 120_000
"""Bound on a hang: on a busy machine a page may take long to show what a test waits for."""


_shared: dict[asyncio.AbstractEventLoop, Any] = {}
"""By event loop, the browser in which the tests on it open their windows."""


@asynccontextmanager
async def run_browser() -> AsyncIterator[Any]:
    """A browser for this block, and for every window that is opened on this event loop meanwhile."""
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS
        )
        _shared[asyncio.get_running_loop()] = browser
        try:
            yield browser
        finally:
            del _shared[asyncio.get_running_loop()]
            await browser.close()


@asynccontextmanager
async def open_browser(**options: Any) -> AsyncIterator[Any]:
    """A browser context with no data of another one, in the shared browser or in one of its own.

    Requests to other hosts, errors of scripts and broken policies fail the test.
    """
    problems: list[str] = []
    shared = _shared.get(asyncio.get_running_loop())
    async with nullcontext(shared) if shared is not None else run_browser() as browser:
        context = await browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)

        def watch(page: Any) -> None:
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("request", lambda request: note_foreign(request.url))
            page.on(
                "console",
                lambda message: (
                    problems.append(message.text) if "Content Security Policy" in message.text else None
                ),
            )

        def note_foreign(url: str) -> None:
            if not url.startswith(("http://127.0.0.1:", "data:", "file:///")):
                problems.append(f"request to {url}")

        context.on("page", watch)
        try:
            yield context
        finally:
            await context.close()
    assert not problems, problems


async def wait_for_value(page: Any, expression: str, value: Any) -> None:
    """Wait until an expression has a value in a page.

    Not `wait_for_function`: where it has to look twice it breaks the pages' policy, which forbids `eval`.
    """
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while await page.evaluate(expression) != value:  # noqa: ASYNC110  a page has no event
            await asyncio.sleep(0.02)


async def sign_in(context: Any, url: str, path: str, name: str = "owner") -> Any:
    """A page that is signed in by the form."""
    page = await context.new_page()
    await page.goto(url + path)
    await page.fill("#token", make_value(name))
    await page.click("main button")
    await page.wait_for_url(f"**{path}")
    return page
