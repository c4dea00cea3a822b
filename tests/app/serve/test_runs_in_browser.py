"""The page of a run in a browser: sub-agents, heat, open effects, forks, reruns, comparisons and exports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser, sign_in
from child_agents import make_parent_chart
from effort import IS_LONG
from playwright.async_api import expect
from served import make_site, serve

from toolchart.testing.clock import TurnableClock

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


async def test_a_sub_agent_is_folded_under_the_record_that_asked_for_it() -> None:
    """The fold opens by keyboard and shows the steps of the child; its link leads to the child's run, and
    from there back. Hours between two turns take one line."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    clock = TurnableClock()
    replies = [ask_for("a"), "first", "second"]
    engine = make_engine(replies, chart=make_parent_chart(), effects=effects, clock=clock)
    await engine.arun("hi", conversation="p")
    clock.advance("3h")
    await engine.arun("again", conversation="p")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/p")
            fold = page.locator("details.child[data-child='p.1']")
            await fold.locator("summary").focus()
            await page.keyboard.press("Enter")
            await fold.get_by_text("2 replied → awaiting_tools").wait_for()
            await expect(fold.locator("summary")).to_have_text("sub-agent p.1 finished 6 records")
            await expect(page.locator("#timeline .idle")).to_have_text(["idle for 3 h"])
            await expect(page.locator("#timeline .turn")).to_have_text(["Turn 1", "Turn 2"])
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/conversations/p.1")
            await page.get_by_text("Parent").click()
            await page.wait_for_url("**/conversations/p")


async def test_the_whole_request_of_a_step() -> None:
    """A step that asks a model unfolds its request: model, messages and tools. Other steps offer none."""
    engine = make_engine([ask_for("a"), "done"])
    await engine.arun("What is it?", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1")
            await page.locator("#step", has_text="replied in").wait_for()
            assert await page.locator("#step details.requests").count() == 0
            await page.press("body", "ArrowLeft")
            await page.get_by_text("The whole request to the model").click()
            body = page.locator("#step details.requests pre")
            await body.wait_for()
            request = json.loads(await body.inner_text())
    assert request["model"] == "m"
    assert [message["role"] for message in request["messages"]] == ["system", "user", "assistant", "tool"]
    assert "echo" in [tool["name"] for tool in request["tools"]]


async def test_heat_and_open_effects() -> None:
    """The heat of visits and of time colours the chart and lists the numbers; each step says which effects it
    leaves open, also the newest one of a turn that waits."""
    clock = TurnableClock()
    engine = make_engine([ask_for("a", "b")], chart="approval", approval={"default": "ask"}, clock=clock)
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1")
            await page.locator("#step .open", has_text="ask_approval").wait_for()
            await page.press("body", "ArrowLeft")
            await page.locator("#step .open", has_text="review_calls").wait_for()
            await page.select_option("#marks", "visits")
            await page.locator("#heat th", has_text="awaiting_approval").wait_for()
            await expect(page.locator("#diagram [data-state=prompting].heat-5")).to_have_count(1)
            await expect(page.locator("#diagram [data-state=finished][class*=heat]")).to_have_count(0)
            await page.select_option("#marks", "path")
            await expect(page.locator("#diagram [class*=heat]")).to_have_count(0)
            await expect(page.locator("#heat")).to_be_hidden()


async def test_a_run_is_forked_in_three_ways_and_compared() -> None:
    """With another result of a call, another model, and another message: each fork is a run of its own that
    names its origin, and the comparison shows the first difference."""
    replies = [ask_for("a"), "recorded", "with another result", ask_for("a"), "by another model", "anew"]
    engine = make_engine(replies)
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1")
            await page.locator("#step p").first.wait_for()

            async def show(event: str) -> None:
                await page.locator("#timeline button", has_text=event).first.click()
                await page.locator("#step strong", has_text=event).wait_for()

            async def fork() -> str:
                """The name of the fork, once its turn is over: the next one takes the next reply."""
                await page.click("#fork button[type=submit]")
                name = str(await page.locator("#fork-answer a.name").inner_text())
                async with asyncio.timeout(120):
                    while not engine.conversation(name).read_turn().is_over:  # noqa: ASYNC110  it runs in the server
                        await asyncio.sleep(0.01)
                return name

            await page.locator("#fork-panel > summary").click()
            await show("tool_finished")
            await page.fill("#fork-result", '"changed"')
            name = await fork()
            assert "changed" in str(list(engine.store.read_lines(name)))
            await page.click("#fork-answer >> text=Compare with this run")
            await page.get_by_text("The first difference").wait_for()
            await expect(page.locator("main")).to_contain_text("changed")
            await page.locator("thead a", has_text=name).click()
            await page.get_by_text("Forked from record").wait_for()
            await page.goto(f"{url}/conversations/c1")
            await page.locator("#fork-panel > summary").click()
            await show("turn_started")
            await page.fill("#fork-model", "another-model")
            name = await fork()
            await page.goto(f"{url}/conversations/{name}")
            await page.locator("#figures", has_text="another-model").wait_for()
            await page.goto(f"{url}/conversations/c1")
            await page.locator("#fork-panel > summary").click()
            await expect(page.locator("#fork-message")).to_have_value("hi")
            await page.fill("#fork-message", "something else")
            name = await fork()
            await page.goto(f"{url}/chat/{name}")
            await page.get_by_text("something else").wait_for()
            await page.get_by_text("anew").wait_for()


async def test_a_run_is_run_again() -> None:
    """Unchanged it is the same; under another prompt the log has no answer, and the page says where."""
    engine = make_engine([ask_for("a"), "recorded"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1")
            await page.locator("#rerun-panel > summary").click()
            await expect(page.locator("#rerun-system")).to_have_value("Be brief.")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .badge.good", has_text="same").wait_for()
            await page.fill("#rerun-system", "Be long.")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .badge.warn", has_text="diverged").wait_for()
            await expect(page.locator("#rerun-answer")).to_contain_text("Be long.")
            await page.fill("#rerun-settings", "{")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .problem", has_text="JSON object").wait_for()
            await page.locator("#messages-panel > summary").click()
            await page.locator("#run-messages .bubble.assistant", has_text="recorded").wait_for()


async def test_export() -> None:
    """The records of a run are downloaded as a file."""
    engine = make_engine(["one", "two"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1")
            await page.locator("#export-panel > summary").click()
            async with page.expect_download() as waiting:
                await page.click("#export-panel >> text=jsonl")
            download = await waiting.value
            assert download.suggested_filename == "c1-jsonl.jsonl"
            assert '"prev"' in Path(await download.path()).read_text("utf-8")
