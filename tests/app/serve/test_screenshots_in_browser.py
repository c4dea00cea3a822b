"""Pictures of the pages for `docs/serve.md`, made by a browser.

    PYTHONPATH=.typing:tests/support:tests python tests/app/serve/test_screenshots_in_browser.py

writes them anew. The test makes them too, and compares no pixels: fonts differ from machine to machine.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import reply_with_calls
from browser import CHROMIUM, open_browser
from effort import IS_LONG
from served import make_site, make_value, serve

from toolchart.app.server.site import Site, SiteSettings
from toolchart.engine import Engine
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "pictures" / "pages"

WINDOW = {"width": 1280, "height": 860}
QUALITY = 55
MOST_BYTES = 80_000
"""Size of one picture; a reader of the documents loads all of them."""


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of a page."""

    name: str
    path: str
    ready: str = "main h1"
    """What is there when the page is complete."""
    clicks: tuple[str, ...] = ()
    """What is clicked before the picture is made."""
    then: str = "main h1"
    """What is there after the clicks."""


PICTURES = (
    Picture(name="conversations", path="/conversations", ready="tbody tr >> nth=2"),
    Picture(
        name="run",
        path="/conversations/trip-to-oslo#2",
        ready="#verified.good",
        clicks=("#trace .kind-model >> nth=0",),
        then="#step .fresh-message",
    ),
    Picture(name="chat", path="/chat/night-shift", ready="article.call button >> nth=3"),
    Picture(name="approvals", path="/approvals", ready=".pane:not([hidden]) button.approve"),
    Picture(
        name="tools", path="/tools", clicks=(".example >> nth=0", "#bench-run"), then="#bench-result .call"
    ),
    Picture(name="charts", path="/charts/approval"),
    Picture(name="editor", path="/charts/edit?shipped=tool_loop", ready="svg .state, svg [data-state]"),
    Picture(name="comparison", path="/conversations/trip-to-oslo/diff?with=another-answer"),
    Picture(name="models", path="/models"),
)

SPEC: dict[str, Any] = {
    "name": "weather-desk",
    "chart": "approval",
    "llms": {
        "house": {"provider": "scripted", "model": "rehearsal", "context_limit": 32000, "replies": []},
        "spare": {
            "provider": "openai",
            "model": "gpt-4.1-mini",
            "api_key": "${WEATHER_DESK_KEY}",
            "requests_per_minute": 60,
        },
    },
    "prices": {"currency": "USD", "models": {"rehearsal": {"input": 0.4, "output": 1.6, "cached": 0.1}}},
    "tools": {
        "registry": [
            {"name": "calculator"},
            {
                "name": "weather",
                "description": "The weather of a city today.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
                "implementation": {
                    "type": "mock",
                    "mock_response": {"sky": "clear", "temperature_c": -4, "wind_m_s": 3},
                },
            },
            {
                "name": "send_report",
                "description": "Send a report to everybody on a list.",
                "risk": "high",
                "parameters": {
                    "type": "object",
                    "properties": {"list": {"type": "string"}, "text": {"type": "string"}},
                    "required": ["list", "text"],
                },
                "implementation": {"type": "mock", "mock_response": {"sent": True}},
            },
        ]
    },
    "responses": [{"llm": "house", "prompt": "Answer briefly.", "tools": {"enabled": True}}],
}

USAGE = {"usage": {"input": 412, "output": 38}}


def make_replies() -> list[Any]:
    """What the model says in the conversations of the pictures, and then in the test bench."""
    reports = [
        ("send_report", {"list": "night shift", "text": "Oslo: clear, -4 C, light wind."}),
        ("send_report", {"list": "drivers", "text": "Roads are icy before nine."}),
    ]
    return [
        reply_with_calls(("calculator", {"expression": "17 * (23 + 4)"})),
        "17 * (23 + 4) is 459.",
        {"content": "Let me look.", **reply_with_calls(("weather", {"city": "Oslo"}))},
        "It is clear in Oslo, 4 degrees below zero, with a light wind. Take a warm coat.",
        "Bring gloves too.",
        "Clear and cold: a coat, a hat and gloves.",
        {"content": "I will send two reports.", **reply_with_calls(*reports)},
        reply_with_calls(("calculator", {"expression": "17 * (23 + 4)"})),
        "17 * (23 + 4) is 459.",
    ]


async def make_served_site(folder: Path) -> Site:
    """A site with a few conversations, one of which waits for decisions."""
    replies = [{**reply, **USAGE} if isinstance(reply, dict) else reply for reply in make_replies()]
    provider = ScriptedProvider(replies)
    engine = Engine(SPEC, log=MemoryStore(), providers={"house": provider})
    await engine.arun("What is 17 * (23 + 4)?", conversation="sum-of-boxes")
    await engine.arun("What do I wear in Oslo today?", conversation="trip-to-oslo")
    await engine.arun("Anything else?", conversation="trip-to-oslo")
    await engine.conversation("trip-to-oslo").afork(4, name="another-answer")
    await engine.arun("Tell the night shift and the drivers about the weather.", conversation="night-shift")
    (folder / "charts").mkdir()
    settings = SiteSettings(results=str(folder / "models.json"), edit_folder="charts")
    return make_site(engine, settings=settings)


async def take_pictures(folder: Path, results: Path, pictures: Sequence[Picture] = PICTURES) -> None:
    """Write a picture of each page into a folder. Nothing in them names a place of this machine."""
    site = await make_served_site(results)
    with chdir(results), serve(site) as url:
        async with open_browser(viewport=WINDOW, color_scheme="light") as context:
            page = await context.new_page()
            await page.goto(f"{url}/sign-in")
            await page.fill("#token", make_value("owner"))
            await page.click("main button")
            await page.wait_for_url("**/conversations")
            session = await context.new_cdp_session(page)
            for picture in pictures:
                answer = await page.goto(url + picture.path)
                assert answer is not None
                assert answer.ok, picture.path
                await page.locator(picture.ready).first.wait_for()
                for place in picture.clicks:
                    await page.click(place)
                await page.locator(picture.then).first.wait_for()
                await page.evaluate("document.fonts.ready")
                form = {"format": "webp", "quality": QUALITY}
                shot = await session.send("Page.captureScreenshot", form)
                (folder / f"{picture.name}.webp").write_bytes(base64.b64decode(shot["data"]))


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.usefixtures("shared_browser")
@pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none")
@pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all")
async def test_each_page_has_its_picture(tmp_path: Path) -> None:
    """A picture of each page can be made; none is large, and no page loads anything from elsewhere."""
    await take_pictures(tmp_path, tmp_path)
    for picture in PICTURES:
        data = (tmp_path / f"{picture.name}.webp").read_bytes()
        assert (data[:4], data[8:12]) == (b"RIFF", b"WEBP")
        assert len(data) < MOST_BYTES, picture.name


def test_the_documents_show_each_picture() -> None:
    """`docs/serve.md` shows every picture, and each of them is in the repository."""
    text = (ROOT / "docs" / "serve.md").read_text("utf-8")
    names = {f"{picture.name}.webp" for picture in PICTURES}
    assert {path.name for path in FOLDER.iterdir()} == names
    for name in names:
        assert f"](pictures/pages/{name})" in text


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as results:
        asyncio.run(take_pictures(FOLDER, Path(results)))
    sys.stdout.write(f"{len(PICTURES)} pictures in {FOLDER}\n")
