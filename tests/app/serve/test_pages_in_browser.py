"""The pages in a real browser: the test bench, a chat with approvals, runs, damage, and hostile texts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import make_engine, make_spec, reply_with_calls
from browser import CHROMIUM, open_browser, sign_in
from effort import IS_LONG
from hostile_texts import HOSTILE_TEXTS
from playwright.async_api import expect
from served import make_site, serve

from toolchart.app.server.site import Site, SiteSettings
from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
]

only_long = pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all")

APPROVAL: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}


def make_served(engine: Engine, tmp_path: Path) -> Site:
    """A site whose scores are in a folder of this test."""
    return make_site(engine, settings=SiteSettings(results=str(tmp_path / "models.json")))


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


async def test_the_test_bench_and_a_single_tool(tmp_path: Path) -> None:
    """S2.10: an example question runs on the shipped agent: call, result, answer and badge are shown; a
    form made from the schema runs one tool."""
    with serve(make_served(Engine("quickstart", log="memory"), tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/tools")
            await expect(page.locator("#bench-badge")).to_have_text("not validated")
            await page.click(".example >> nth=0")
            await page.click("#bench-run")
            await page.wait_for_selector("#bench-result .call")
            for part in ("calculator", "17 * (23 + 4)", "459", "iteration 1", " ms"):
                await expect(page.locator("#bench-result")).to_contain_text(part)
            await expect(page.locator("#bench-badge")).to_have_text("validated")
            await expect(page.locator("#bench-badge")).to_have_attribute("title", re.compile("1 of 1"))
            card = page.locator(".tool[data-tool=echo]")
            await card.locator(".try summary").click()
            await card.locator("input").fill("hello")
            await card.locator("button").click()
            await card.locator(".result .badge", has_text="succeeded").wait_for()
            await expect(card.locator(".result pre")).to_contain_text("hello")


@only_long
async def test_one_call_is_approved_one_edited_and_one_rejected(tmp_path: Path) -> None:
    """In two windows: what one decides the other sees; a decision that comes too late is refused and changes
    nothing. After a reload everything is there again."""
    engine = make_engine([ask_for("a", "b", "c"), "all is done"], **APPROVAL)
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            await page.fill("#message", "go")
            await page.press("#message", "Enter")
            await page.locator("button.approve").nth(2).wait_for()
            await page.wait_for_url("**/chat/*")
            other = await context.new_page()
            await other.goto(page.url)
            await other.locator("button.approve").nth(2).wait_for()
            await other.route("**/events*", lambda route: route.abort())
            cards = page.locator("article.call")
            await cards.nth(2).locator("button.reject").click()
            await cards.nth(2).get_by_text("rejected by owner (unsigned)").wait_for()
            await other.get_by_text("rejected by owner (unsigned)").wait_for()
            (late,) = await other.evaluate(
                """async (path) => {
                    const body = JSON.stringify({call_id: "call_1_0_2", approved: true});
                    const headers = {"Content-Type": "application/json"};
                    const answer = await fetch(path, {method: "POST", headers, body});
                    return [answer.status];
                }""",
                f"/api/conversations/{page.url.rsplit('/', 1)[1]}/decisions",
            )
            assert late == 409
            await cards.nth(1).locator(".edit summary").click()
            await cards.nth(1).locator("textarea").fill('{"text": "B"}')
            await cards.nth(1).get_by_text("Approve with these").click()
            await cards.nth(1).get_by_text("approved by owner (unsigned)").wait_for()
            await other.locator("article.call").nth(0).locator("button.approve").click()
            await page.get_by_text("all is done").wait_for()
            for _ in range(2):
                badges = page.locator("article.call .badge")
                await expect(badges).to_have_text(["succeeded", "succeeded", "denied"])
                await expect(page.locator(".bubble")).to_have_count(2)
                await page.reload()
                await page.get_by_text("all is done").wait_for()


@only_long
async def test_approvals_of_all_conversations_are_decided_on_one_page(tmp_path: Path) -> None:
    """By the keyboard alone one call is rejected with a reason, and one approved with other arguments. A call
    that somebody else decides says so, and stays until it is removed. What begins to wait appears by
    itself."""
    engine = make_engine([ask_for("a", "b"), "done", ask_for("c"), "done"], **APPROVAL)
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/approvals")
            await page.get_by_text("No call waits for a decision").wait_for()

            async def post(path: str, body: dict[str, Any]) -> None:
                headers = {"Origin": url}
                address = f"{url}/api/conversations{path}"
                answer = await page.request.post(address, data=body, headers=headers)
                assert answer.ok, await answer.text()

            await post("", {"message": "go", "conversation": "c1"})
            cards = page.locator("[data-conversation=c1] li.call")
            await cards.nth(1).locator("button.approve").wait_for()
            await expect(page.locator("#count")).to_have_text("2 calls wait")
            await cards.nth(0).locator("input").focus()
            await page.keyboard.type("not on a Friday")
            await page.keyboard.press("Shift+Tab")
            await page.keyboard.press("Enter")
            await cards.nth(0).get_by_text("rejected", exact=True).wait_for()
            await cards.nth(1).locator("summary").focus()
            await page.keyboard.press("Enter")
            await page.keyboard.press("Tab")
            await page.keyboard.press("Control+A")
            await page.keyboard.type('{"text": "B"}')
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await cards.nth(1).get_by_text("approved", exact=True).wait_for()
            await page.get_by_text("with other arguments").wait_for()
            await expect(page.locator("#decided")).to_contain_text("not on a Friday")
            await expect(page.locator("#decided")).to_contain_text("owner (unsigned)")
            await post("", {"message": "go", "conversation": "c2"})
            await page.locator("[data-conversation=c2] button.approve").wait_for()
            await post("/c2/decisions?wait=false", {"call_id": "call_1_0_0", "approved": False})
            await (
                page.locator("[data-conversation=c2]").get_by_text("rejected by owner (unsigned)").wait_for()
            )
            await page.locator("[data-conversation=c2]").get_by_text("Remove").press("Enter")
            await expect(page.locator("[data-conversation=c2]")).to_have_count(0)
            await expect(page.locator("#count")).to_have_text("0 calls wait")
            await page.goto(f"{url}/conversations/c2")
            await page.get_by_text("by owner (unsigned)").first.wait_for()


@only_long
async def test_a_finished_run_is_stepped_and_damage_turns_red(tmp_path: Path) -> None:
    """Keys move through the records, the chart marks where the run is, the guards of a step are shown; a
    record that somebody changed turns the badge red, and the page still opens."""
    log = tmp_path / "runs.db"
    engine = make_engine([ask_for("a"), "done"], log=log)
    await engine.arun("hi", conversation="c1")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations")
            await page.get_by_role("link", name="c1", exact=True).first.click()
            await page.wait_for_selector("#verified.good")
            await page.wait_for_selector('#diagram .current[data-state="finished"]')
            await page.press("body", "ArrowLeft")
            await page.wait_for_selector('#diagram .current[data-state="prompting"]')
            await page.locator("#step-name", has_text="tool_finished: executing").wait_for()
            await page.press("body", "Home")
            await expect(page.locator("#position")).to_have_text(re.compile("^2 of "))
            await page.press("body", "ArrowLeft")
            await expect(page.locator("#position")).to_have_text(re.compile("^1 of "))
            await expect(page.locator("#step-name")).to_have_text("configured")
            await expect(page.locator("#diagram .visited")).to_have_count(0)
            with contextlib.closing(sqlite3.connect(log)) as database, database:
                change = """UPDATE records SET line = replace(line, '"message":"hi"', '"message":"ho"')"""
                database.execute(change)
            await page.reload()
            await page.wait_for_selector("#verified.bad")
            await expect(page.locator("#damage")).to_contain_text("record 1")


@only_long
async def test_an_answer_survives_a_reload_in_the_middle_of_its_stream(tmp_path: Path) -> None:
    """Text appears while it is written; a page that is loaded again in the middle ends with the same answer,
    once."""
    pieces = ["one ", "two ", "three"]
    reply = {"content": "one two three", "stream": {"pieces": pieces, "pause_s": 0.4}}
    with serve(make_served(make_engine([reply]), tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            await page.fill("#message", "count")
            await page.click("text=Send")
            await page.get_by_text("one").first.wait_for()
            await page.reload()
            await page.get_by_text("one two three").wait_for()
            await page.locator("#chat-state", has_text="finished").wait_for()
            await expect(page.locator(".bubble.assistant")).to_have_count(1)


async def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    """Markup in messages, tool names, arguments, results and ids never becomes part of a page."""
    texts = [*HOSTILE_TEXTS, "<img src=x onerror=alert(1)>", "'\"><script>alert(1)</script>", "</style><b>x"]
    calls = reply_with_calls(*(("echo", {"text": text}) for text in texts), ("<b>nobody</b>", {"<i>": "<u>"}))
    engine = make_engine([calls, "<h1 id=planted>x</h1>" + "".join(texts)], name="<em id=planted>agent</em>")
    await engine.arun("<p id=planted>hi</p>" + "".join(texts), conversation="c1")
    asking = make_engine([calls], log=engine.store, **APPROVAL)
    await asking.arun("<p id=planted>hi</p>", conversation="c2")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations")
            alerts: list[str] = []
            page.on("dialog", lambda dialog: alerts.append(dialog.message))
            for path in (
                "/conversations",
                "/conversations/c1",
                "/chat/c1",
                "/tools",
                "/approvals",
                "/models",
                "/charts",
            ):
                await page.goto(url + path)
                await page.wait_for_load_state("load")
                if path.endswith(("c1", "approvals")):
                    await page.locator("#step .said, .call pre").first.wait_for()
                planted = await page.locator(
                    "#planted, main img, main script, main b, main u, main i"
                ).count()
                assert planted == 0, path
    assert alerts == []


async def test_a_double_click_on_send_begins_one_conversation(tmp_path: Path) -> None:
    """What is sent is shown at once, before the server has answered, and the button waits for it; a second
    click and Enter send nothing. A message whose answer was lost is in the box again, and sent again it is
    the same message: one conversation, one call of the model."""
    provider = ScriptedProvider(["one", "two"])
    engine = Engine(make_spec(), log="memory", providers={"model": provider})
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            may_go, is_lost = asyncio.Event(), True

            async def hold(route: Any) -> None:
                await may_go.wait()
                if is_lost:  # the server takes it, and the answer does not come back
                    await route.fetch()
                    await route.abort()
                else:
                    await route.continue_()

            await page.route("**/api/conversations?wait=false", hold)
            await page.fill("#message", "go")
            await page.dblclick("#send")
            sent = page.locator(".bubble.user")
            await expect(sent).to_have_text(re.compile("sending.*go"))
            await expect(page.locator("#send")).to_be_disabled()
            await expect(page.locator("#message")).to_have_value("")
            may_go.set()
            await expect(page.locator("#chat-problem")).not_to_have_text("")
            await expect(page.locator("#message")).to_have_value("go")
            await expect(sent).to_have_count(0)
            is_lost = False
            await page.locator("#send").dblclick()
            await page.press("#message", "Enter")
            await page.get_by_text("one").wait_for()
            await expect(sent).to_have_count(1)
            await expect(sent).not_to_contain_text("sending")
            await expect(page.locator("#send")).to_be_enabled()
            assert len(list(engine.store.list_conversations())) == 1
            await page.fill("#message", "go")
            await page.dblclick("#send")
            await page.get_by_text("two").wait_for()
            await expect(sent).to_have_count(2)
            assert len(list(engine.store.list_conversations())) == 1


async def test_a_double_click_runs_a_tool_once(tmp_path: Path) -> None:
    """The button of a form made from a schema waits for its answer: a second click sends nothing."""
    with serve(make_served(Engine("quickstart", log="memory"), tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/tools")
            may_go, requests = asyncio.Event(), []

            async def hold(route: Any) -> None:
                requests.append(route.request.url)
                await may_go.wait()
                await route.continue_()

            await page.route("**/api/tools/*/run", hold)
            card = page.locator("[data-tool=calculator]")
            await card.locator(".try summary").click()
            await card.locator("input").first.fill("1 + 1")
            button = card.locator("button[type=submit]")
            await button.dblclick()
            await expect(button).to_be_disabled()
            may_go.set()
            await card.locator(".result .badge", has_text="succeeded").wait_for()
            await expect(button).to_be_enabled()
            assert len(requests) == 1
