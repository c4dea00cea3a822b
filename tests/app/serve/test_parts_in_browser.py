"""Pictures, sounds, files, sources and calls of a host on the chat page and on the page of a run."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import make_engine
from browser import CHROMIUM, open_browser, sign_in
from effort import IS_LONG
from playwright.async_api import expect
from served import make_site, serve

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]


def draw_picture() -> str:
    """A small green picture."""

    def make_chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 80, 40, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"".join(b"\0" + b"\x20\x90\x60" * 80 for _ in range(40)))
    chunks = make_chunk(b"IHDR", head) + make_chunk(b"IDAT", rows) + make_chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def make_sound() -> str:
    """A tenth of a second of silence."""
    samples = b"\0\0" * 800
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    data = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return base64.b64encode(struct.pack("<4sI", b"RIFF", len(data)) + data).decode()


PARTS: list[dict[str, Any]] = [
    {
        "type": "host_call",
        "tool": "web_search",
        "input": {"query": "boats <b>in</b> Oslo"},
        "sources": [{"type": "citation", "url": "https://a.test/boats", "title": "Boats"}],
    },
    {"type": "image", "data": draw_picture(), "media_type": "image/png", "name": "harbour.png"},
    {"type": "audio", "data": make_sound(), "media_type": "audio/wav", "name": "horn.wav"},
    {"type": "file", "data": "YSxi", "media_type": "text/csv", "name": "boats.csv"},
    {"type": "citation", "url": "https://a.test/boats", "title": "Boats", "text": "three boats"},
    {"type": "citation", "url": "javascript:alert(1)", "title": "Not a page"},
    {"type": "image", "url": "https://a.test/far.png"},
]


@pytest.mark.parametrize("path", ["/chat/c1", "/conversations/c1"])
async def test_a_page_shows_the_parts_of_a_reply(path: str) -> None:
    """A picture is drawn, a sound can be played, a file be saved, and a source be opened; nothing is loaded
    from elsewhere, and an address that is no page is text."""
    engine = make_engine([{"content": "Three boats.", "parts": PARTS}])
    await engine.arun("How many boats?", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser(viewport={"width": 1100, "height": 1200}) as context:
            page = await sign_in(context, url, path)
            place = page.locator("#messages" if path.startswith("/chat") else "#step")
            picture = place.locator("figure img")
            await picture.wait_for()
            assert await picture.evaluate("image => image.complete && image.naturalWidth") == 80
            sound = place.locator("audio")
            await sound.evaluate(
                "audio => audio.readyState > 0 || new Promise(r => audio.onloadedmetadata = r)"
            )
            assert await sound.evaluate("audio => audio.duration") == pytest.approx(0.1)
            await expect(place.locator("a[download='boats.csv']")).to_have_count(1)
            sources = place.locator("p.source a")
            assert await sources.last.get_attribute("href") == "https://a.test/boats"
            await expect(place.get_by_text("Not a page").first).to_be_visible()
            assert await place.locator("a[href^='javascript']").count() == 0
            await place.get_by_text("The host ran web_search").click()
            await expect(place.get_by_text("boats <b>in</b> Oslo").first).to_be_visible()
            await expect(place.locator("img")).to_have_count(1)
