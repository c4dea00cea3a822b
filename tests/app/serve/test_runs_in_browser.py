"""The page of a run in a browser: trace, chart and step; keys, edits, forks, decisions, reruns, exports."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser, sign_in, wait_for_value
from child_agents import make_parent_chart
from effort import IS_LONG
from foreign_loops import Loop, make_exchange
from playwright.async_api import expect
from served import make_site, serve

from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.watching.recorder import Recorder
from toolchart.states.messages import Reply

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


def rows(page: Any) -> Any:
    """The rows of the trace that are shown."""
    return page.locator("#trace .line:visible")


async def list_rows(page: Any) -> list[str]:
    """The texts of the rows in their order: number, name, and what it says."""
    texts = await rows(page).evaluate_all(
        """(lines) => lines.sort((a, b) => a.index - b.index).map((line) =>
            ["seq", "name-of"].map((name) => line.querySelector("." + name).textContent)
                .concat(line.querySelector("code").textContent).join(" ").trim())"""
    )
    return list(texts)


async def open_run(context: Any, url: str, path: str = "/conversations/c1") -> Any:
    """The page of a run, with its newest step shown."""
    page = await sign_in(context, url, path)
    await page.locator("#run[data-ready]").wait_for()
    return page


async def press(page: Any, *keys: str) -> None:
    """Press keys outside of any field."""
    for key in keys:
        await page.press("body", key)


async def test_the_trace_has_turns_calls_and_tools_with_arguments_tokens_and_cost() -> None:
    """One row for each turn, model call, tool and decision: with what was asked and what became of it, tokens
    and time. Records that begin or close none of them are hidden until somebody asks for them."""
    usage = {"usage": {"input": 1200, "output": 34, "cost": 0.0125}}
    replies = [ask_for("a", "b") | usage, "done", "again"]
    engine = make_engine(replies)
    await engine.arun("Say a and b", conversation="c1")
    await engine.arun("Thanks", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            assert await list_rows(page) == [
                "1 Turn 1 Say a and b",
                "2 m → 2 calls: echo, echo",
                '4 echo text="a"',
                '5 echo text="b"',
                "6 m done",
                "7 Turn 2 Thanks",
                "8 m again",
            ]
            first = rows(page).nth(1)
            await expect(first.locator(".tokens")).to_have_text("1,234")
            await expect(first.locator(".cost")).to_have_text(".0125")
            await expect(page.locator("#figure-cost")).to_have_text(".0125")
            await expect(page.locator("#quiet-rows")).to_have_text("show 2 quiet rows")
            await press(page, "q")
            assert [text.split()[:2] for text in await list_rows(page)][:4] == [
                ["0", "configured"],
                ["1", "Turn"],
                ["2", "m"],
                ["3", "reviewed"],
            ]


async def test_each_action_has_a_key_and_the_address_names_the_step() -> None:
    """Keys go by row, record, turn and failure, to what cost most and to a number, fold and find; the address
    leads to the same step again, and `?` lists every key."""
    bad = reply_with_calls(("nobody", {"x": 1}))
    usage = {"usage": {"input": 9000, "output": 1, "cost": 0.5}}
    engine = make_engine([ask_for("a"), bad | usage, "done", "again"])
    await engine.arun("first", conversation="c1")
    await engine.arun("second", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            position, name = page.locator("#position"), page.locator("#step-name")
            count = int(str(await position.inner_text()).split()[-1])
            await expect(position).to_have_text(f"{count} of {count}")
            await press(page, "ArrowLeft")
            await expect(name).to_have_text("turn_started: finished → prompting")
            await press(page, "[", "[")
            await expect(position).to_have_text(f"2 of {count}")
            await press(page, "j")
            await expect(name).to_have_text("replied: prompting → awaiting_tools")
            await press(page, "n")
            await expect(page.locator("#trace .chosen.failed .name-of")).to_have_text("nobody")
            await press(page, "$")
            await expect(page.locator("#trace .chosen .cost")).to_have_text(".5000")
            await expect(page.locator("#step")).to_contain_text("100 % of the run")
            seq = str(await page.locator("#trace .chosen .seq").inner_text())
            await wait_for_value(page, "location.hash", f"#{seq}")
            await page.reload()
            await page.locator("#run[data-ready]").wait_for()
            await expect(page.locator("#trace .chosen .seq")).to_have_text(seq)
            await press(page, "g")
            await page.fill("#go-to", "3")
            await page.press("#go-to", "Enter")
            await expect(position).to_have_text(f"4 of {count}")
            await press(page, "/")
            await page.keyboard.type("nobody")
            await page.keyboard.press("Enter")
            assert [text.split()[1] for text in await list_rows(page)] == ["Turn", "m", "nobody", "Turn"]
            await press(page, "x", "[", "h")
            assert [text.split()[1] for text in await list_rows(page)][:2] == ["Turn", "Turn"]
            await press(page, "l")
            await press(page, "?")
            keys = str(await page.locator("#key-list").inner_text())
            assert all(text in keys for text in ("next row", "next failure", "fork with the edits"))
            await page.keyboard.press("Escape")
            await press(page, "2")
            await expect(page.locator("#chart-pane")).to_be_hidden()
            await press(page, "2")
            await expect(page.locator("#chart-pane")).to_be_visible()


async def test_a_step_says_what_was_said_and_why() -> None:
    """The step shows the reply and its calls, what was new in the request, and the guards in words: one that
    merely did not hold is no failure. The whole request unfolds."""
    engine = make_engine([ask_for("a"), "done"])
    await engine.arun("What is it?", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            step = page.locator("#step")
            await expect(step.locator(".said").first).to_have_text("done")
            await expect(step.locator(".fresh")).to_contain_text("New since the last request")
            await expect(step.locator(".fresh-message")).to_have_count(1)
            await expect(step.locator(".guards li")).to_have_text(
                ["does not holdfinish_reason == 'tool_calls'", "holdsfinish_reason == 'stop'"]
            )
            await expect(step.locator(".guards .bad")).to_have_count(0)
            await step.get_by_text("The whole request to the model").click()
            body = step.locator("details.requests pre")
            await body.wait_for()
            request = json.loads(await body.inner_text())
    assert request["model"] == "m"
    assert [message["role"] for message in request["messages"]] == ["system", "user", "assistant", "tool"]
    assert "echo" in [tool["name"] for tool in request["tools"]]


async def test_a_sub_agent_is_folded_under_the_row_that_asked_for_it() -> None:
    """The fold opens by a key and shows the rows of the child, deeper; its step leads to the child's own run,
    and from there back."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    engine = make_engine([ask_for("a"), "first"], chart=make_parent_chart(), effects=effects)
    await engine.arun("hi", conversation="p")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url, "/conversations/p")
            await expect(page.locator("#trace .kind-child")).to_have_attribute("aria-expanded", "false")
            await press(page, "Home", "j", "l")
            await expect(page.locator("#trace .kind-tool", has_text="echo")).to_be_visible()
            texts = await list_rows(page)
            assert [text.split()[1] for text in texts] == ["Turn", "work", "m", "echo", "m"]
            await press(page, "j")
            await page.locator("#step .head a.name").click()
            await page.wait_for_url("**/conversations/p.1#*")
            await page.locator("#run[data-ready]").wait_for()
            await press(page, "m")
            await page.get_by_text("Parent").click()
            await page.wait_for_url("**/conversations/p")


async def test_heat_zoom_and_states() -> None:
    """The heat of visits and of time colours the chart and lists the numbers. A zoomed chart is never smaller
    than it was drawn, so no letter is under 11 px; a click on a state leaves its rows."""
    engine = make_engine([ask_for("a", "b"), "done"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await page.select_option("#marks", "visits")
            await page.locator("#heat th", has_text="awaiting_tools").wait_for()
            await expect(page.locator("#diagram [data-state=prompting].heat-5")).to_have_count(1)
            await page.select_option("#marks", "path")
            await expect(page.locator("#diagram [class*=heat]")).to_have_count(0)
            await expect(page.locator("#heat")).to_be_hidden()
            await press(page, "-", "-", "-", "-")
            await expect(page.locator("#percent")).to_have_text("100 %")
            smallest = await page.evaluate(
                """() => Math.min(...[...document.querySelectorAll("#diagram text")].map((text) =>
                    parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))"""
            )
            assert smallest >= 11
            await press(page, "+")
            await expect(page.locator("#percent")).to_have_text("120 %")
            await page.locator("#diagram [data-state=executing] text").first.click()
            await expect(page.locator("#only")).to_contain_text("executing")
            texts = [text.split()[1] for text in await list_rows(page)]
            assert texts == ["Turn", "echo", "echo"]


async def test_what_waits_is_decided_on_the_page() -> None:
    """A run that waits opens at what waits; a call is approved there, the next one rejected, and the page
    goes on with the run."""
    engine = make_engine([ask_for("a", "b"), "done"], chart="approval", approval={"default": "ask"})
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await expect(page.locator("#waits")).to_contain_text("2 wait for a person")
            await press(page, "Home", "w")
            await expect(page.locator("#step button.approve")).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(page.locator("#waits")).to_contain_text("1 waits for a person")
            await press(page, "Home", "w")
            await expect(page.locator("#step button.approve")).to_be_focused()
            await page.keyboard.press("Tab")
            await page.keyboard.press("Enter")
            await page.locator("#trace .kind-tool", has_text="denied").wait_for()
            await page.locator("#trace .line", has_text="done").wait_for()
            await expect(page.locator("#waits")).to_be_hidden()


async def test_what_waits_is_there_at_once() -> None:
    """What waits, and that a run is a fork, stand in the page as it is sent: the figures of a long run come
    later, and nobody waits for them in order to decide."""
    engine = make_engine([ask_for("a"), "done"], chart="approval", approval={"default": "ask"})
    await engine.arun("hi", conversation="c1")
    await engine.conversation("c1").afork(name="f1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            await context.route("**/api/conversations/*", lambda route: route.abort())
            page = await open_run(context, url, "/conversations/f1")
            await expect(page.locator("#origin")).to_have_text("fork of c1")
            await expect(page.locator("#waits")).to_contain_text("1 waits for a person")
            await expect(page.locator("#figure-time")).to_have_text("\u00a0")
            await page.locator("#step button.approve").click()
            await page.locator("#trace .line", has_text="done").wait_for()


async def test_what_is_written_while_the_page_reads_is_seen() -> None:
    """A record that was written after the server had answered, and before the page had the answer, is read
    too; a row that was chosen meanwhile stays chosen."""
    engine = make_engine(["one", "two", "three"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            answered, told = asyncio.Event(), asyncio.Event()

            async def hold(route: Any) -> None:
                answer = await route.fetch()
                answered.set()
                await told.wait()
                await route.fulfill(response=answer)

            await page.route("**/steps?*", hold, times=1)
            await page.evaluate(
                "new EventSource('/api/conversations/c1/events').addEventListener('record', "
                "(event) => { window.newest = event.lastEventId; })"
            )
            await engine.arun("again", conversation="c1")
            await answered.wait()
            await engine.arun("once more", conversation="c1")
            last = sum(1 for _ in engine.store.read_lines("c1")) - 1
            await wait_for_value(page, "window.newest", str(last))
            await press(page, "Home")
            told.set()
            await page.locator("#trace .line", has_text="three").wait_for()
            await expect(page.locator("#position")).to_have_text(f"2 of {last + 1}")


async def test_a_run_that_goes_on_leaves_the_field_in_which_somebody_writes() -> None:
    """The page follows the newest record, but not out of a field: a reason stays while somebody else decides
    the other call."""
    engine = make_engine([ask_for("a", "b"), "done"], chart="approval", approval={"default": "ask"})
    turn = await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            reason = page.locator("#step .reason")
            await reason.fill("not today")
            await engine.conversation("c1").aapprove(turn.pending_approvals[1].id)
            await page.locator("#trace .line", has_text="approved").wait_for()
            await expect(page.locator("#waits")).to_contain_text("1 waits")
            await expect(reason).to_be_focused()
            await expect(reason).to_have_value("not today")


async def wait_for_fork(engine: Any, place: Any) -> str:
    """The name of the fork, once its turn is over: the next one takes the next reply."""
    name = str(await place.locator("a.name").inner_text())
    async with asyncio.timeout(120):
        while not engine.conversation(name).read_turn().is_over:  # noqa: ASYNC110  it runs in the server
            await asyncio.sleep(0.01)
    return name


async def test_a_run_is_forked_in_four_ways_and_compared() -> None:
    """With other arguments of a call, another result, another message and another model: each fork is a run
    of its own that names its origin and stands in the tree of forks; the comparison shows the difference."""
    replies = [
        ask_for("a"),
        "recorded",
        "other arguments",
        "other result",
        "anew",
        ask_for("a"),
        "other model",
    ]
    engine = make_engine(replies)
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            answer = page.locator("#edit-answer")

            async def edit(seq: int, text: str) -> str:
                await page.goto(f"{url}/conversations/c1#{seq}")
                await page.reload()
                await page.locator("#run[data-ready]").wait_for()
                await press(page, "e")
                await page.fill("#step .editable textarea", text)
                await page.keyboard.press("Control+Enter" if seq == 2 else "Escape")
                if seq != 2:
                    await page.keyboard.press("Enter")
                return await wait_for_fork(engine, answer)

            name = await edit(2, '{"text": "changed"}')
            assert '"changed"' in str(list(engine.store.read_lines(name)))
            assert engine.conversation(name).read_turn().content == "other arguments"
            name = await edit(4, '"changed"')
            assert engine.conversation(name).read_turn().content == "other result"
            await answer.get_by_text("Compare with this run").click()
            await page.get_by_text("The first difference").wait_for()
            await expect(page.locator("main")).to_contain_text("changed")
            await page.locator(".sides a", has_text=name).click()
            await page.locator("#origin", has_text="fork of c1").wait_for()
            name = await edit(1, "something else")
            assert engine.conversation(name).read_turn().content == "anew"
            await page.goto(f"{url}/conversations/c1#1")
            await page.reload()
            await page.locator("#run[data-ready]").wait_for()
            await press(page, "f")
            await page.fill("#fork-model", "another-model")
            await page.click("#fork button[type=submit]")
            name = await wait_for_fork(engine, page.locator("#fork-answer"))
            await page.goto(f"{url}/conversations/{name}")
            await expect(page.locator("#figure-models")).to_have_text("another-model")
            await press(page, "c")
            await expect(page.locator("#forks li")).to_have_count(4)
            await page.locator("#forks a", has_text="Compare").first.click()
            await page.wait_for_url("**/diff?with=*")


async def test_a_comparison_is_read_by_keys() -> None:
    """Keys lead from difference to difference, whose values stand below, and open a step in its run: of what
    a fork shares, in the run that recorded it. The address names the chosen row."""
    engine = make_engine([ask_for("a"), "recorded", "again", "other"])
    await engine.arun("hi", conversation="c1")
    await engine.arun("more", conversation="c1")
    async with engine:
        changes = ForkChanges(arguments={"call_1_0_0": {"text": "changed"}})
        await engine.conversation("c1").afork(changes=changes, name="f")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations/c1/diff?with=f")
            await page.locator("#comparison[data-ready]").wait_for()
            values = page.locator(".values:visible")
            await expect(values).to_have_count(1)
            for text in ("/event/reply/tool_calls/0/arguments/text", "changed"):
                await expect(values).to_contain_text(text)
            chosen = page.locator('.pair[aria-selected="true"]')
            first = await chosen.get_attribute("id")
            await press(page, "j")
            assert await chosen.get_attribute("id") != first
            await expect(values).to_have_count(1)
            assert page.url.endswith(f"#{await chosen.get_attribute('id')}")
            await press(page, "k")
            assert await chosen.get_attribute("id") == first
            await press(page, "k")
            await expect(chosen).to_have_class(re.compile("only-left"))
            await press(page, "o")
            await expect(page.locator(".common li:visible")).to_have_count(2)
            await page.locator(".common li a").nth(1).click()
            await page.wait_for_url("**/conversations/c1#1")
            await page.goto(f"{url}/conversations/c1/diff?with=f")
            await page.locator("#comparison[data-ready]").wait_for()
            await press(page, "?")
            await expect(page.locator("#key-list dt")).to_have_count(10)
            await page.keyboard.press("Escape")
            await press(page, "b")
            await page.wait_for_url("**/conversations/f#1")


async def test_figures_come_to_the_step_that_is_being_read() -> None:
    """A step whose record comes after the figures of the run says its share of the cost, as any other."""
    usage = {"usage": {"input": 1, "output": 1, "cost": 0.5}}
    engine = make_engine([{"content": "one"} | usage, {"content": "two"} | usage])
    await engine.arun("hi", conversation="c1")
    await engine.arun("again", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            may_count, may_read = asyncio.Event(), asyncio.Event()

            def hold_until(event: asyncio.Event) -> Any:
                async def hold(route: Any) -> None:
                    await event.wait()
                    await route.continue_()

                return hold

            await context.route("**/api/conversations/c1", hold_until(may_count))
            page = await open_run(context, url)
            await page.route("**/records?*", hold_until(may_read))
            await press(page, "$")
            may_count.set()
            await expect(page.locator("#figure-cost")).to_have_text("1.00")
            may_read.set()
            await expect(page.locator("#step .facts")).to_contain_text("50 % of the run")


async def test_a_run_is_shared_by_two_keys(tmp_path: Path) -> None:
    """`S` goes to the page that says what the file would show, and Enter takes the file."""
    engine = make_engine(["Write to ada@example.org"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await press(page, "S")
            await page.wait_for_url("**/conversations/c1/share")
            async with page.expect_download() as download:
                await page.keyboard.press("Enter")
            path = tmp_path / "run.html"
            await (await download.value).save_as(path)
    text = path.read_text()
    assert "ada@example.org" not in text
    assert "<!doctype html>" in text


async def test_an_edit_that_is_no_json_forks_nothing() -> None:
    """The page says what is wrong, keeps the edit, and nothing is written."""
    engine = make_engine([ask_for("a"), "recorded"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url, "/conversations/c1")
            await press(page, "Home", "j", "e")
            await page.fill("#step .editable textarea", "{text: no}")
            await page.click("#fork-edits")
            await expect(page.locator("#edit-answer .problem")).to_contain_text("not JSON")
            await expect(page.locator("#step .editable textarea")).to_have_value("{text: no}")
            await page.click("#drop-edits")
            await expect(page.locator("#edits")).to_be_hidden()
    assert list(engine.store.list_conversations()) == ["c1"]


async def test_a_key_waits_for_the_step_that_was_chosen() -> None:
    """Keys pressed quicker than a step is read open the field of that step: not the field of the step before,
    and not none."""
    engine = make_engine([ask_for("a"), "recorded"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await press(page, "Home")
            await expect(page.locator("#step-name")).to_have_text("turn_started: start → prompting")

            async def hold(route: Any) -> None:
                await asyncio.sleep(0.5)
                await route.continue_()

            await page.route("**/records?*", hold)
            await press(page, "j", "e")
            area = page.locator("#step .editable textarea")
            await expect(area).to_have_attribute("aria-label", "Arguments")
            await expect(area).to_be_focused()
            await press(page, "Escape", "j", "e", "j")
            await expect(page.locator("#step-name")).to_have_text("replied: prompting → finished")
            await expect(area).to_have_count(0)


async def test_a_run_is_run_again() -> None:
    """Unchanged it is the same; under another prompt the log has no answer, and the page says where."""
    engine = make_engine([ask_for("a"), "recorded"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await press(page, "r")
            await expect(page.locator("#rerun-system")).to_have_value("Be brief.")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .badge", has_text="same").wait_for()
            await page.fill("#rerun-system", "Be long.")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .badge.warn", has_text="diverged").wait_for()
            await expect(page.locator("#rerun-answer")).to_contain_text("Be long.")
            await page.fill("#rerun-settings", "{")
            await page.click("#rerun button[type=submit]")
            await page.locator("#rerun-answer .problem", has_text="JSON object").wait_for()
            await page.keyboard.press("Escape")
            await press(page, "m")
            await page.locator("#run-messages .bubble.assistant", has_text="recorded").wait_for()


async def test_export() -> None:
    """The records of a run are downloaded as a file."""
    engine = make_engine(["one", "two"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await press(page, "m")
            async with page.expect_download() as waiting:
                await page.click("#more-dialog >> text=jsonl")
            download = await waiting.value
            assert download.suggested_filename == "c1-jsonl.jsonl"
            assert '"prev"' in Path(await download.path()).read_text("utf-8")


async def test_a_long_run_is_whole_however_it_is_opened() -> None:
    """Of a run with more steps than come with the first page, the newest are there at once and the rest
    follows; a step that the address names is opened though it is an old one, and only the rows in sight have
    elements."""
    engine = make_engine(["ok"] * 1200)
    for number in range(1200):
        await engine.arun(f"message {number}", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await page.locator("#run[data-whole]").wait_for()
            await press(page, "Home")
            await expect(page.locator("#trace .chosen")).to_contain_text("message 0")
            assert await page.locator("#trace .line").count() < 100
            await page.goto(f"{url}/conversations/c1#21")
            await page.reload()
            await page.locator("#run[data-ready]").wait_for()
            await expect(page.locator("#step .said").first).to_have_text("message 10")


async def test_keys_are_listed_on_every_page_and_letters_can_be_turned_off() -> None:
    """`?` and a button list the keys of each page that has some. Where letters are off, they are off on every
    page, also after it is loaded anew; arrows and `?` stay."""
    engine = make_engine(["one", "two"])
    for name in ("c1", "c2"):
        await engine.arun("hi", conversation=name)
    paths = (
        "/conversations",
        "/approvals",
        "/chat",
        "/charts",
        "/conversations/c1/diff?with=c2",
        "/conversations/c1",
    )
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations")
            keys = page.locator("#keys-dialog")
            for path in paths:
                await page.goto(url + path)
                await keys.wait_for(state="attached")
                await press(page, "?")
                await expect(keys.locator("dt", has_text="?")).to_be_visible()
                await page.keyboard.press("Escape")
                await expect(keys).to_be_hidden()
                opener = page.locator('button[data-key="?"]')
                await opener.click()
                await keys.locator(".close").click()
            await page.locator("#run[data-ready]").wait_for()
            await press(page, "?")
            await page.uncheck("#keys-on")
            await page.keyboard.press("Escape")
            position = page.locator("#position")
            await press(page, "k")
            await expect(position).to_have_text("3 of 3")
            await page.reload()
            await page.locator("#run[data-ready]").wait_for()
            await press(page, "k", ".", "ArrowUp")
            await expect(position).to_have_text("2 of 3")
            await press(page, "?")
            await expect(page.locator("#keys-on")).not_to_be_checked()


async def test_keys_work_where_the_browser_stores_nothing() -> None:
    """A page without storage, as a browser may open a file, has its keys; letters that are turned off stay so
    as long as it is shown."""
    engine = make_engine(["one"])
    await engine.arun("hi", conversation="c1")
    refuse = "get() { throw new DOMException('denied', 'SecurityError'); }"
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            await context.add_init_script(f"Object.defineProperty(window, 'localStorage', {{ {refuse} }})")
            page = await open_run(context, url)
            position = page.locator("#position")
            await press(page, "k")
            await expect(position).to_have_text("2 of 3")
            await press(page, "?")
            await page.uncheck("#keys-on")
            await page.keyboard.press("Escape")
            await press(page, "j")
            await expect(position).to_have_text("2 of 3")
            await press(page, "ArrowDown")
            await expect(position).to_have_text("3 of 3")


async def test_what_is_said_about_a_reply_stands_in_its_step() -> None:
    """Warnings about a reply, such as a call whose conversation is not certain, are read in its step."""
    engine = make_engine([])
    recorder = Recorder(engine.store, {"watch": "w"})
    loop = Loop(name="l", wire="chat", rng=Random(0), first="go")
    for number in (1, 2):
        reply = Reply(content="done", finish_reason="stop")
        recorder.note(make_exchange(loop, number, number, number + 0.5, loop.messages, reply))
    first, second = recorder.close().conversations
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url, f"/conversations/{second}")
            warnings = page.locator("#step section", has=page.get_by_role("heading", name="Warnings"))
            await expect(warnings).to_contain_text(f"{first} began with the same request")


async def test_the_next_key_after_a_dialog_with_a_field_is_a_key() -> None:
    """A key that is pressed in the very moment in which a dialog closes opens the next one: until the browser
    draws its next frame, the field of the closed dialog still gets the keys."""
    engine = make_engine(["one"])
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await open_run(context, url)
            await press(page, "g")
            await expect(page.locator("#go-to")).to_be_focused()
            target = await page.evaluate(
                """() => {
                    document.getElementById("go-dialog").close();
                    const element = document.activeElement;
                    element.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
                    return element.id;
                }"""
            )
            assert target == "go-to", "the browser gives the keys to another element: this test shows nothing"
            await expect(page.locator("#fork-dialog")).to_be_visible()
