"""The pages in a real browser: the test bench, a chat with approvals, runs, damage, and hostile texts."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
from toolchart.engine.reading.messages import read_transcript
from toolchart.providers.scripted.provider import ScriptedProvider

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
]

only_long = pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all")

PANE = ".pane:not([hidden])"
"""The chosen item of the page Approvals."""

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
            await cards.nth(2).locator(".status", has_text="rejected by owner (unsigned)").wait_for()
            await other.locator(".status", has_text="rejected by owner (unsigned)").wait_for()
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
            await cards.nth(1).locator("button.edit").click()
            await cards.nth(1).locator("textarea").fill('{"text": "B"}')
            await cards.nth(1).get_by_text("Approve with these").click()
            await cards.nth(1).locator(".status", has_text="approved by owner (unsigned)").wait_for()
            await other.locator("article.call").nth(0).locator("button.approve").click()
            await page.get_by_text("all is done").wait_for()
            for _ in range(2):
                for index, outcome in enumerate(["succeeded", "succeeded", "denied"]):
                    await expect(cards.nth(index)).to_have_attribute("data-outcome", outcome)
                await expect(page.locator(".bubble")).to_have_count(2)
                await page.reload()
                await page.get_by_text("all is done").wait_for()


@only_long
async def test_approvals_of_all_conversations_are_decided_on_one_page(tmp_path: Path) -> None:
    """By the keyboard alone one call is rejected with a reason, and one approved with other arguments: each
    is gone then, the result is said, and the next one comes. A call that somebody else decides says so, and
    stays until the person goes on. What begins to wait appears by itself."""
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
            await expect(page.locator("#count")).to_have_text("2 calls wait")
            await expect(page.locator("#nav-waiting")).to_have_text("2")
            pane = page.locator(PANE)
            await expect(pane).to_have_attribute("data-call", "call_1_0_0")
            await page.keyboard.press("n")
            await page.keyboard.type("not on a Friday, yes")
            await page.keyboard.press("Enter")
            await expect(page.locator("#told")).to_have_text("Rejected: echo of c1")
            await expect(pane).to_have_attribute("data-call", "call_1_0_1")
            await expect(pane.locator("h2")).to_be_focused()
            await expect(pane.locator(".foot:not([inert])")).to_have_count(1)
            await page.keyboard.press("e")
            await page.keyboard.press("Control+A")
            await page.keyboard.type('{"text": "B"}')
            await page.keyboard.press("Control+Enter")
            await expect(page.locator("#told")).to_have_text("Approved with other arguments: echo of c1")
            await expect(pane).to_have_count(0)
            await expect(page.locator("#decided")).to_contain_text("with other arguments")
            await expect(page.locator("#decided")).to_contain_text("not on a Friday, yes")
            await expect(page.locator("#decided")).to_contain_text("owner (unsigned)")
            await post("", {"message": "go", "conversation": "c2"})
            await pane.locator("button.approve").wait_for()
            await post("/c2/decisions?wait=false", {"call_id": "call_1_0_0", "approved": False})
            await pane.get_by_text("rejected by owner (unsigned)").wait_for()
            await expect(pane.locator("button.approve")).to_have_count(0)
            await pane.get_by_text("Go on").press("Enter")
            await expect(page.locator("[data-conversation=c2]")).to_have_count(0)
            await expect(page.locator("#count")).to_have_text("0 calls wait")
            await expect(page.locator("#nav-waiting")).to_have_text("")
            await page.goto(f"{url}/conversations/c2")
            await page.get_by_text("by owner (unsigned)").first.wait_for()


PRESS_AGAIN = """() => {
    const press = () => document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "y", bubbles: true}));
    document.addEventListener("keydown", press, {once: true});
    new MutationObserver(press).observe(document.getElementById("told"), {childList: true});
}"""
"""Press `y` once more with the next key, and as soon as a result is told."""

RISKY: dict[str, Any] = {
    "name": "launch",
    "risk": "high",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "implementation": {"type": "mock", "mock_response": "gone"},
}


@only_long
async def test_the_keys_of_approvals(tmp_path: Path) -> None:
    """Keys move in the queue and decide, never while somebody types; a second press that follows at once
    decides nothing about the next call, and a call of high risk wants a second one. Put off, a call stays."""
    calls = reply_with_calls(*[("echo", {"text": text}) for text in "abc"], ("launch", {"place": "here"}))
    engine = make_engine([calls, "done"], **APPROVAL, tools={"registry": [{"name": "echo"}, RISKY]})
    await engine.arun("go", conversation="c1")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/approvals")
            pane, rows = page.locator(PANE), page.locator("#queue .entry")
            sent: list[Any] = []

            def note(call: Any) -> None:
                if "decisions?" in call.url:
                    sent.append(call.post_data_json)

            page.on("request", note)
            await expect(rows).to_have_count(4)
            await expect(page).to_have_title("(4) Approvals - Toolchart")
            for key, call in (("j", 1), ("k", 0), ("k", 0), ("l", 1)):
                await page.keyboard.press(key)
                await expect(pane).to_have_attribute("data-call", f"call_1_0_{call}")
            await expect(rows).to_have_count(4)
            await expect(pane.locator(".foot:not([inert])")).to_have_count(1)
            await page.keyboard.press("n")
            await page.keyboard.type("y?ljk")
            await page.keyboard.press("Escape")
            await expect(pane.locator("h2")).to_be_focused()
            assert sent == []
            await page.keyboard.press("?")
            await expect(page.locator("dialog")).to_contain_text("approve; twice where the risk is high")
            await page.keyboard.press("y")
            await page.keyboard.press("Escape")
            await page.evaluate(PRESS_AGAIN)
            await page.keyboard.press("y")
            await expect(page.locator("#told")).to_have_text("Approved: echo of c1")
            await expect(rows).to_have_count(3)
            await expect(pane).to_have_attribute("data-call", "call_1_0_2")
            assert [item["call_id"] for item in sent] == ["call_1_0_1"]
            await expect(pane.locator(".foot:not([inert])")).to_have_count(1)
            await page.keyboard.press("j")
            await expect(pane).to_have_attribute("data-call", "call_1_0_3")
            await page.keyboard.press("y")
            await expect(pane.locator(".confirm")).to_contain_text("press y or Enter once more to run launch")
            await page.keyboard.press("Escape")
            await expect(pane.locator(".confirm")).to_have_text("")
            await page.keyboard.press("y")
            assert len(sent) == 1
            await page.keyboard.press("Enter")
            await expect(page.locator("#told")).to_have_text("Approved: launch of c1")
            assert [item["call_id"] for item in sent] == ["call_1_0_1", "call_1_0_3"]


@only_long
@pytest.mark.parametrize("size", [(1440, 860), (390, 844)], ids=["screen", "phone"])
async def test_a_decision_fits_on_one_screen(tmp_path: Path, size: tuple[int, int]) -> None:
    """What is asked, by whom, what it does and all buttons are in sight without scrolling, however long the
    arguments are; a long value and a cut message can be read to the end. Every page has the number of what
    waits in its navigation."""
    long = "a long text " * 500
    engine = make_engine([ask_for(long), "done"], **APPROVAL)
    await engine.arun(f"please {long} the end", conversation="c1", author="anna")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser(viewport={"width": size[0], "height": size[1]}) as context:
            page = await sign_in(context, url, "/tools")
            await expect(page.locator("#nav-waiting")).to_have_text("1")
            await page.goto(f"{url}/approvals")
            pane = page.locator(PANE)
            for place in (
                pane.get_by_role("heading", name="Run echo?"),
                pane.get_by_text("asked for by anna"),
                pane.get_by_text("handler: echo"),
                pane.locator(".arguments dt"),
                *(pane.locator(f"button.{name}") for name in ("approve", "reject", "edit", "later")),
                pane.locator(".reason"),
            ):
                await expect(place).to_be_in_viewport(ratio=1)
            await pane.locator(".long summary").click()
            await expect(pane.locator(".long > .value")).to_have_text(long)
            await pane.get_by_text("Show the rest").click()
            await expect(pane.locator(".said.user .text")).to_have_text(re.compile("the end$"))


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
            await page.get_by_role("link", name="c1 hi", exact=True).first.click()
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
async def test_a_chat_shows_markdown_and_one_line_for_each_call(tmp_path: Path) -> None:
    """Answers are Markdown, messages of people are not. A call is a line that opens to its arguments and its
    result. The list beside it has the newest conversations, the one that waits marked."""
    answer = "**bold** and `code`\n\n```py\nx = 1\n```\n\n- one\n- two"
    replies = [reply_with_calls(("calculator", {"expression": "6 * 7"})), answer]
    engine = make_engine(replies)
    await engine.arun("**mine** stays", conversation="c1")
    asking = make_engine([ask_for("a")], log=engine.store, **APPROVAL)
    await asking.arun("may I?", conversation="c2")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat/c1")
            await expect(page.locator(".bubble.user .text")).to_have_text("**mine** stays")
            await expect(page.locator(".bubble.assistant strong")).to_have_text("bold")
            await expect(page.locator(".bubble.assistant li")).to_have_text(["one", "two"])
            await expect(page.locator(".code-block .label")).to_have_text("py")
            await context.grant_permissions(["clipboard-read", "clipboard-write"])
            await page.locator(".copy").click()
            await expect(page.locator(".copy")).to_have_text("Copied")
            assert await page.evaluate("navigator.clipboard.readText()") == "x = 1"
            line = page.locator("article.call summary")
            await expect(line).to_contain_text('calculator(expression="6 * 7")· 42')
            assert (await line.bounding_box())["height"] < 32  # type: ignore[index]
            await line.click()
            await expect(page.locator(".call-body pre")).to_have_text("42")
            rows = page.locator("#conversations a")
            await expect(rows).to_have_text([re.compile(r"may I\?waits"), re.compile("mine")])
            await expect(rows.nth(1)).to_have_attribute("aria-current", "page")
            await rows.nth(0).click()
            await page.wait_for_url("**/chat/c2")
            await page.locator("button.approve").wait_for()


@only_long
async def test_a_message_is_sent_again_in_a_fork(tmp_path: Path) -> None:
    """Retry sends the message of a turn again, with other words, in a conversation that shares what was
    before it; the first one stays as it was."""
    engine = make_engine(["first", "second", "another"])
    await engine.arun("one", conversation="c1")
    await engine.arun("two", conversation="c1")
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat/c1")
            bubble = page.locator(".bubble.user", has_text="two")
            await bubble.get_by_role("button", name="Retry").click()
            box = bubble.locator("textarea")
            await expect(box).to_be_focused()
            await expect(box).to_have_value("two")
            await box.fill("two, again")
            await bubble.get_by_role("button", name="Send in a new conversation").dblclick()
            await page.get_by_text("another").wait_for()
            await expect(page.locator(".bubble")).to_have_text(
                [re.compile(text) for text in ("one", "first", "two, again", "another")]
            )
            assert len(list(engine.store.list_conversations())) == 2
    assert read_transcript(engine.store, "c1").messages[-1].content == "second"


@only_long
async def test_keys_of_the_chat(tmp_path: Path) -> None:
    """Shift+Enter begins a line and Enter sends; `?` lists the keys, `m` goes to the message, and Escape
    stops the turn that runs."""
    reply = {"content": "one two", "stream": {"pieces": ["one ", "two"], "pause_s": 60}}
    with serve(make_served(make_engine([reply]), tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            await page.keyboard.press("?")
            await expect(page.locator("dialog")).to_contain_text("a new line in it")
            await page.keyboard.press("Escape")
            await page.keyboard.press("m")
            await page.keyboard.type("a?")
            await page.keyboard.press("Shift+Enter")
            await page.keyboard.type("b")
            await expect(page.locator("#message")).to_have_value("a?\nb")
            await page.keyboard.press("Enter")
            await page.locator(".bubble.assistant", has_text="one").wait_for()
            await page.keyboard.press("Escape")
            await page.locator("#stop").wait_for(state="hidden")
            await expect(page.locator("#chat-state")).to_have_text("error")


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
    markdown = "# " + "\n\n- ".join(
        f"{text} [{text}](javascript:alert(1)) ![{text}]({text})" for text in texts
    )
    answer = "<h1 id=planted>x</h1>" + "".join(texts) + "\n\n" + markdown
    engine = make_engine([calls, answer], name="<em id=planted>agent</em>")
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
                    await page.locator(
                        "#step .said, #log .call .name, .pane:not([hidden]) .arguments"
                    ).first.wait_for()
                planted = await page.locator(
                    "#planted, main img, main script, main b, main u, main i, a[href^=javascript]"
                ).count()
                assert planted == 0, path
                if path == "/chat/c1":
                    await page.locator(".markdown h3").first.wait_for()
                    for line in await page.locator("article.call summary").all():
                        await line.click()
                    assert await page.locator("#planted, main img, a[href^=javascript]").count() == 0
                if path == "/approvals":
                    shown = " ".join(await page.locator(".pane .arguments").all_text_contents())
                    assert "right\\u{202e}left\\u{2066}\\u{200b}" in shown
    assert alerts == []


@only_long
async def test_runs_are_found_while_one_types(tmp_path: Path) -> None:
    """Each letter is asked for at once; while an answer is under way further ones wait and are asked for
    together, so the list is that of the last one. The address names the search, and keys open what was
    found."""
    engine = make_engine(["A red fox.", "A red wolf.", "A blue whale."])
    for name in ("fox", "wolf", "whale"):
        await engine.arun("What do you see?", conversation=name)
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/conversations")
            rows = page.locator("#conversations tbody tr")
            await expect(rows).to_have_count(3)
            asked: list[str] = []
            may_answer = asyncio.Event()

            async def hold(route: Any) -> None:
                asked.append(route.request.url.partition("search=")[2].partition("&")[0])
                answer = await route.fetch()
                await may_answer.wait()
                await route.fulfill(response=answer)

            await page.route("**/conversations?*", hold)
            await page.keyboard.press("/")
            await page.keyboard.type("red wolf", delay=20)
            may_answer.set()
            await expect(rows).to_have_count(1)
            await expect(rows).to_contain_text("A red wolf.")
            assert asked == ["r", "red+wolf"]
            await page.wait_for_url("**/conversations?search=red+wolf*")
            await page.keyboard.press("ArrowDown")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/conversations/wolf**")


PLANT = (
    '<img id=planted src=x onerror="window.hit = 1">',
    "'\"><script>window.hit = 1</script><b id=planted>x</b>",
    "</script></style></title></textarea><svg id=planted onload='window.hit = 1'>",
    "javascript:window.hit=1",
    "{{ 7 * 7 }}<iframe id=planted srcdoc='<script>parent.hit = 1</script>'>",
)
FIND_PLANTED = """() => [window.hit ? "a script ran" : "",
    ...[...document.querySelectorAll("#planted, main img, main iframe, main script, [href^='javascript' i]")]
        .map((element) => element.outerHTML.slice(0, 80)),
    ...[...document.querySelectorAll("*")]
        .filter((element) => element.getAttributeNames().some((name) => name.startsWith("on")))
        .map((element) => element.outerHTML.slice(0, 80)),
].filter(Boolean)"""
"""What became an element or a script of a page."""


async def make_hostile_log() -> Engine:
    """Runs in which everything that somebody can choose is markup: names, tags, messages, arguments, results,
    errors, reasons, questions, forms, models."""
    text = " ".join(PLANT)
    calls = ask_for(*PLANT)
    calls["tool_calls"] += reply_with_calls(("echo", {PLANT[0]: PLANT[1]}), (PLANT[0], {"<i>": text}))[
        "tool_calls"
    ]
    tags = {"team": PLANT[0], "plan": PLANT[1]}
    engine = make_engine([calls | {"content": text}, text, "other"], name=PLANT[0], description=text)
    await engine.arun(text, conversation="over", tags=tags)
    await engine.arun(text, conversation=PLANT[0])
    await engine.conversation("over").afork(name=PLANT[1])
    failing = make_engine([{"fail": {"kind": "bad_request", "message": text}}], log=engine.store)
    await failing.arun(text, conversation="failed", tags=tags)
    asking = make_engine([calls, "done"], log=engine.store, **APPROVAL)
    turn = await asking.arun(text, conversation="waits", tags=tags)
    first = turn.pending_approvals[0].id
    await asking.conversation("waits").aapprove(first, approved=False, reason=text, by=PLANT[0])
    form = {
        "type": "object",
        "title": text,
        "properties": {
            PLANT[0]: {"type": "string", "title": text, "description": text, "default": text},
            "b": {"enum": [*PLANT]},
        },
    }
    rows = [{"event": "answered", "target": "finished"}, {"event": "failed", "target": "finished"}]
    states = {
        "asking": {"initial": True, "enter": "ask_guest", "transitions": rows},
        "finished": {"final": True, "enter": "greet"},
    }
    effects = {
        "ask_guest": {"ask_person": {"question": text, "as": "guest", "form": form}},
        "greet": {"answer": "Hello"},
    }
    guest = make_engine([], log=engine.store, chart={"name": "asking", "states": states}, effects=effects)
    await guest.arun(text, conversation="asks", tags=tags)
    return engine


@only_long
async def test_hostile_texts_stay_texts_where_no_policy_helps(tmp_path: Path) -> None:
    """With the content policy bypassed nothing of a run becomes an element or a script: on no page, in no
    dialog, in no row of a trace, in no step, and in no error."""
    engine = await make_hostile_log()
    names = ["over", "failed", "waits", "asks", *PLANT[:2]]
    quoted = [quote(name, safe="") for name in names]
    paths = [
        *(
            "/conversations",
            f"/conversations?search={quote('window hit')}",
            f"/conversations?tag={quoted[4]}",
        ),
        *("/approvals", "/tools", "/models", "/charts", f"/charts/files/{quoted[4]}", f"/charts/{quoted[4]}"),
        *(f"/charts/edit?file={quoted[4]}", f"/conversations/{quote(PLANT[2], safe='')}", "/chat"),
        *(f"/conversations/over/diff?with={name}" for name in (quoted[1], quoted[5], "nobody")),
        *(f"/{place}/{name}" for place in ("chat", "conversations") for name in quoted),
    ]
    found: list[Any] = []
    with serve(make_served(engine, tmp_path)) as url:
        async with open_browser(bypass_csp=True) as context:
            page = await sign_in(context, url, "/conversations")

            async def look(place: str) -> None:
                await page.wait_for_timeout(100)
                found.extend((place, item) for item in await page.evaluate(FIND_PLANTED))

            for path in paths:
                await page.goto(url + path)
                await page.wait_for_load_state("networkidle" if "chat" not in path else "load")
                await look(path)
                for line in await page.locator("main details > summary:visible").all():
                    await line.click()
                await look(f"{path}, unfolded")
                if path.startswith("/conversations/") and await page.locator("#run").count():
                    await page.locator("#run[data-ready]").wait_for()
                    await page.keyboard.press("Home")
                    for at in range(24):
                        await page.keyboard.press("j")
                        await look(f"{path}, row {at}")
                    for key in "cmrf?":
                        await page.keyboard.press(key)
                        await look(f"{path}, {key}")
                        await page.keyboard.press("Escape")
            assert not found, "\n".join(map(str, found))
            await page.evaluate("(text) => { document.querySelector('main').innerHTML = text; }", PLANT[0])
            await look("a page with a planted element")
            assert len(found) > 2, "nobody would notice"


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
