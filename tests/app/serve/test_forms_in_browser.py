"""Questions of a chart, attachments and queued messages in a browser: on the pages Approvals and Chat."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from accessibility import HAS_AXE, list_violations
from agents import make_engine, make_spec
from browser import CHROMIUM, open_browser, sign_in, wait_for_value
from effort import IS_LONG
from playwright.async_api import expect
from served import make_site, serve

from toolchart.engine import Engine
from toolchart.states.messages import Reply, Request

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]

FORM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "team"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "title": "Your name", "description": "As on the badge."},
        "team": {"enum": ["red", "blue"]},
        "guests": {"type": "integer", "minimum": 0, "maximum": 4},
        "vegan": {"type": "boolean"},
        "days": {"type": "array", "items": {"enum": ["Mon", "Tue", "Wed"]}},
        "note": {"type": "string", "pattern": "^[a-z ]*$"},
    },
}

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def make_asking_engine() -> Engine:
    """An agent whose chart asks a person, within two hours, and answers with the name."""
    rows = [
        {"event": "answered", "target": "finished"},
        {"event": "failed", "target": "error"},
        {"event": "cancelled", "target": "error"},
    ]
    states = {
        "asking": {"initial": True, "enter": "ask_guest", "after": {"2h": "error"}, "transitions": rows},
        "finished": {"final": True, "enter": "greet"},
        "error": {"final": True, "enter": "answer_with_error"},
    }
    effects = {
        "ask_guest": {"ask_person": {"question": "Who comes?", "as": "guest", "form": FORM}},
        "greet": {"answer": "Hello {{guest.name}}"},
    }
    return make_engine([], chart={"name": "asking", "states": states}, effects=effects)


class HeldModel:
    """A model that answers when a test says so."""

    name = "held"

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Nothing is sent."""
        return {}

    async def complete(self, request: Request) -> Reply:
        """The reply, once it may be given."""
        while not self.may_answer.is_set():  # noqa: ASYNC110  a test in another thread says so
            await asyncio.sleep(0.01)
        return Reply(content="one two", finish_reason="stop")

    async def aclose(self) -> None:
        """Nothing to close."""


async def press(page: Any, *keys: str) -> None:
    """Press keys, one after the other."""
    for key in keys:
        await page.keyboard.press(key)


async def test_a_form_is_filled_in_by_keyboard_on_the_page_of_approvals() -> None:
    """The fields come from the schema. What the schema forbids is not sent; the answer stands among what was
    decided, with its author; another window sees that nothing waits any more."""
    engine = make_asking_engine()
    await engine.arun("hi", conversation="c1")
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/approvals")
            card = page.locator(".pane.question")
            await card.locator("button[type=submit]").wait_for()
            other = await context.new_page()
            await other.goto(f"{url}/approvals")
            await other.locator(".pane.question button[type=submit]").wait_for()
            await expect(page.locator("#count")).to_have_text("1 question waits")
            await expect(page.locator(".pane .facts")).to_contain_text("then the chart goes to error")
            if HAS_AXE:
                assert await list_violations(page) == []
            await page.get_by_label("Your name (needed)").focus()
            await page.keyboard.type("A")
            await press(page, "Enter")
            await expect(page.locator(":invalid[name=name]")).to_have_count(1)
            await page.keyboard.type("da")
            await press(page, "Tab", "b", "Tab", "9", "Enter")
            await expect(page.locator(":invalid[name=guests]")).to_have_count(1)
            await press(page, "Backspace", "2", "Tab", "Space", "Tab", "Tab", "Space", "Tab", "Tab")
            await page.keyboard.type("see you")
            await press(page, "Enter")
            await expect(page.locator("#told")).to_have_text("Answered: Who comes?")
            await other.locator(".pane.question").get_by_text("answered by owner").wait_for()
            await page.locator("#decided", has_text="ask_guest").wait_for()
    result = engine.conversation("c1").read_turn()
    expected = {"name": "Ada", "team": "blue", "guests": 2, "vegan": True, "days": ["Tue"], "note": "see you"}
    assert (result.content, result.results["guest"]) == ("Hello Ada", expected)


async def test_a_form_is_answered_in_the_chat() -> None:
    """The question is a card of the chat; an answer that only the server can refuse says why and stays."""
    with serve(make_site(make_asking_engine())) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            await page.fill("#message", "hi")
            await page.press("#message", "Enter")
            card = page.locator("article.question")
            await card.get_by_label("Your name (needed)").fill("Ada")
            await card.get_by_label("team (needed)").select_option("red")
            await card.locator("[name=note]").evaluate("(field) => field.removeAttribute('pattern')")
            await card.locator("[name=note]").fill("LOUD")
            await card.locator("button").click()
            await card.locator(".problem", has_text="note").wait_for()
            await card.locator("[name=note]").fill("")
            await card.locator("button").click()
            await page.get_by_text("Hello Ada").wait_for()
            await expect(page.locator("article.question")).to_have_count(0)


async def test_attachments_and_queued_messages_are_shown(tmp_path: Path) -> None:
    """An attached picture is shown with its name, another file by its name. What is said while a turn runs is
    marked as queued until the chart takes it."""
    (tmp_path / "dot.png").write_bytes(PIXEL)
    (tmp_path / "notes.txt").write_text("notes")
    model = HeldModel()
    with serve(make_site(Engine(make_spec(), log="memory", providers={"model": model}))) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat")
            await page.set_input_files("#files", [str(tmp_path / "dot.png"), str(tmp_path / "notes.txt")])
            await page.fill("#message", "look")
            await page.click("text=Send")
            await page.locator(".bubble.user figcaption", has_text="dot.png").wait_for()
            await wait_for_value(page, "document.querySelector('.bubble.user img').naturalWidth", 1)
            await expect(page.locator(".bubble.user .attachment")).to_have_text("File: notes.txt")
            await page.locator("#chat-state", has_text="running").wait_for()
            was_seen = asyncio.Event()

            async def hold(route: Any) -> None:
                await was_seen.wait()
                await route.continue_()

            await page.route("**/messages*", hold)
            await page.fill("#message", "and more")
            await page.press("#message", "Enter")
            await page.locator(".bubble.queued", has_text="and more").wait_for()
            was_seen.set()
            await page.locator(".bubble.queued").wait_for(state="detached")
            await page.locator(".bubble.user", has_text="and more").wait_for()
            model.may_answer.set()
            await page.locator("#chat-state", has_text="finished").wait_for()
            await expect(page.locator(".bubble.user", has_text="and more")).to_have_count(1)


async def test_a_damaged_chat_says_so() -> None:
    """A record that cannot be read ends the chat with a link to the run, and breaks no script."""
    engine = make_engine(["one"])
    await engine.arun("hi", conversation="c1")
    engine.store._lines["c1"][2] = b'{"broken'  # type: ignore[attr-defined]
    with serve(make_site(engine)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/chat/c1")
            await page.locator("#chat-problem a").click()
            await page.wait_for_url("**/conversations/c1")
            await page.locator("#verified.bad").wait_for()
