"""Attacks by what a log holds: each of its texts as markup on every page, and texts that imitate events."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser
from effort import IS_LONG, choose_count
from hostile_logs import chain_conversations, write_base_logs
from served import make_site, make_value, open_client, serve

from toolchart.app.server.server_events import encode_event
from toolchart.app.server.site import Limits
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore

MARKUP = "</script><img id=planted src=x onerror=alert(1)>\"'><b id=planted onclick='x'>\u2028"

CASES = choose_count(short=12, long=2000)


Logs = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def logs() -> Logs:
    """Real conversations of several kinds, one of them with calls that wait for a decision."""
    store = MemoryStore()
    calls = reply_with_calls(("echo", {"text": "x"}), ("weather", {"city": "Oslo"}))
    with make_engine([calls], log=store, chart="approval", approval={"default": "ask"}) as engine:
        engine.run("please", conversation="asks")
    logs = {**write_base_logs(), "asks": tuple(store.read_lines("asks"))}
    return {name: [json.loads(line) for line in lines] for name, lines in logs.items()}


def list_text_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of each text of some JSON data; those of hashes are left out, which are computed again."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("hash", "prev", "head"):
                yield from list_text_paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from list_text_paths(item, (*path, index))
    elif isinstance(value, str):
        yield path


def plant_markup(logs: Logs, paths: Iterable[tuple[Any, ...]]) -> dict[str, list[bytes]]:
    """The lines of these conversations, with right hashes, in which these texts end in markup."""
    planted = json.loads(json.dumps(logs))
    for *path, key in paths:
        place: Any = planted
        for step in path:
            place = place[step]
        place[key] += MARKUP
    return chain_conversations(planted, is_strict=True)


class PlantedElements(HTMLParser):
    """Counts the elements that a text has become."""

    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at one element."""
        self.count += ("id", "planted") in attrs or any(name.startswith("on") for name, _ in attrs)


def choose_paths(logs: Logs) -> list[tuple[Any, ...]]:
    """Places of texts: some in every run, all in the long form."""
    paths = list(list_text_paths(logs))
    return random.Random(17).sample(paths, min(CASES, len(paths)))


async def test_each_text_of_a_log_stays_a_text(logs: Logs) -> None:
    """Whatever field of a log holds markup: no page has an element of it, and none fails without a view."""
    store, names = MemoryStore(), {}
    for number, path in enumerate(choose_paths(logs)):
        names[f"{path[0]}-{number}"] = path
        store.append(f"{path[0]}-{number}", 0, plant_markup({path[0]: logs[path[0]]}, [path])[path[0]])
    pages = dict.fromkeys(("/conversations", "/approvals"), ())
    pages |= {f"/{kind}/{name}": names[name] for name in names for kind in ("conversations", "chat")}
    async with open_client(make_site(make_engine([], log=store), limits=Limits(burst=10**6))) as client:
        client.headers["Accept"] = "text/html"
        for page, path in pages.items():
            answer = await client.get(page)
            parser = PlantedElements()
            parser.feed(answer.text)
            assert parser.count == 0, (page, path)
            assert "internal error" not in answer.text, (page, path)
            assert "Traceback" not in answer.text, (page, path)


FREE_KEYS = {"content", "message", "text", "error", "reason", "result", "city", "system", "prompt", "model"}
"""Fields that anybody may fill; with markup in all of them at once a log can still be read."""


@pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none")
@pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all")
async def test_scripts_of_the_pages_make_texts_of_it(logs: Logs) -> None:
    """A browser steps through hostile conversations, and nothing of them becomes an element."""
    paths = [path for path in list_text_paths(logs) if path[-1] in FREE_KEYS]
    store = MemoryStore()
    for name, lines in plant_markup(logs, paths).items():
        store.append(name, 0, lines)
    with serve(make_site(make_engine([], log=store))) as url:
        async with open_browser() as context:
            page = await context.new_page()
            page.on("dialog", lambda dialog: pytest.fail(dialog.message))
            await page.goto(f"{url}/sign-in")
            await page.fill("#token", make_value("owner"))
            await page.click("main button")
            await page.wait_for_url("**/conversations")
            for name in ("asks", "g", "p", "h"):
                await page.goto(f"{url}/conversations/{quote(name)}")
                await page.locator("#run[data-ready]").wait_for()
                for _ in range(min(12, len(logs[name]))):
                    assert await page.locator("#planted").count() == 0, name
                    await page.press("body", "ArrowLeft")
                    await page.locator("#step p").first.wait_for()
                await page.goto(f"{url}/chat/{quote(name)}")
                await page.locator("#messages article, #chat-problem:not(:empty)").first.wait_for()
                assert await page.locator("#planted").count() == 0, name


async def test_no_text_imitates_an_event_of_a_stream() -> None:
    """Line ends in a text, of any kind, begin no event of their own: each record is one event."""
    text = "a\n\nevent: result\ndata: {}\n\nid: 99\r\rdata: x\u2028\x85"
    engine = make_engine([text], log="memory")
    site = make_site(engine)
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": text, "conversation": "c1"})
        events = site.feeds.follow("c1", 0)
        newest = engine.store.read_last_line("c1")
        assert newest is not None
        sent = [encode_event(await anext(events)) for _ in range(newest[0] + 1)]
        await events.aclose()
    for seq, data in enumerate(sent):
        lines = data.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert [line.partition(":")[0] for line in lines] == ["id", "event", "data", "", ""]
        assert lines[0] == f"id: {seq}"
        assert json.loads(lines[2][6:])["seq"] == seq


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/passwd", "a/../../secret", "..\\secret", "%2e%2e%2fsecret", "c1\0", "~", "...."],
)
async def test_no_conversation_leads_out_of_the_log(name: str, tmp_path: Path) -> None:
    """A log takes any id, and reads and writes nothing outside of its own files."""
    (tmp_path / "secret").write_text('{"seq":0,"planted":1}\n')
    before = sorted(path.name for path in tmp_path.iterdir())
    store = open_store(tmp_path / "log" / "log.db")
    async with open_client(make_site(make_engine(["hello"], log=store))) as client:
        seen = []
        for path in (f"/api/conversations/{quote(name, safe='')}", f"/conversations/{quote(name, safe='')}"):
            for end in ("", "/records", "/messages", "/steps"):
                seen.append(await client.get(path + end))
        written = await client.post("/api/conversations", json={"message": "hi", "conversation": name})
    assert all("planted" not in answer.text for answer in seen)
    assert all(answer.status_code in (400, 404, 405) for answer in seen)
    assert written.status_code in (200, 400)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "log") == before
