"""A run as one file: what it asks first, that it opens without a server, checks itself, and comes back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pages need the extra `serve`")

from agents import make_engine, reply_with_calls
from browser import CHROMIUM, open_browser
from child_agents import make_parent_chart
from effort import IS_LONG
from golden_logs import list_golden_logs, read_golden_log, split_conversations
from hostile_texts import HOSTILE_TEXTS
from served import make_site, open_client

from toolchart.app.studio.pages.run import read_steps
from toolchart.app.studio.sharing import build_shared_page, bundle_modules, survey_content
from toolchart.engine.exchange.exports import copy_redacted
from toolchart.engine.log.redaction import Redactor
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.stores import DEFAULT_LOG, open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.record_file import read_shared_page

RunCli = Callable[..., Any]

in_browser = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]
MAIL = "mira@example.org"


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


def make_log(*replies: Any, conversation: str = "c1", **options: Any) -> Any:
    """A store with one conversation of one turn."""
    engine = make_engine(list(replies), **options)
    engine.run(f"Write to {MAIL}", conversation=conversation)
    return engine.store


@pytest.fixture
def run_in_log(run_cli: RunCli) -> RunCli:
    """`run_cli` in a folder whose log has one conversation."""
    run_cli("run", "quickstart", f"Tell {MAIL} what 17 * 27 is", "--conversation", "sum")
    return run_cli


# -- the command ---------------------------------------------------------------------------------


def test_nothing_is_written_before_somebody_was_asked(run_in_log: RunCli, work_dir: Path) -> None:
    """Where nobody can be asked, the command says what the file would show and how to decide; nothing is
    written."""
    done = run_in_log("share", "sum")
    assert (done.code, done.out) == (2, "")
    assert "Found in them: " in done.err
    assert "email" in done.err
    assert "--yes" in done.err
    assert "--redact" in done.err
    assert run_in_log("share", "sum", "--yes", "--redact", "email").code == 2
    unknown = run_in_log("share", "sum", "--redact", "emial")
    assert unknown.code == 2
    assert "'email'" in unknown.err


def test_a_shared_run_comes_back_whole(run_in_log: RunCli, work_dir: Path) -> None:
    """`import` takes the records of the file into another log, byte for byte; a second time it skips them. A
    file is not overwritten, and one that was cut off is refused."""
    assert run_in_log("share", "sum", "--yes", "-o", "run.html").code == 0
    assert run_in_log("share", "sum", "--yes", "-o", "run.html").code == 2
    assert "toolchart import run.html" in run_in_log("show", "sum", "--log", "run.html").err
    assert run_in_log("import", "run.html", "--log", "other.db").out == "sum\n"
    assert run_in_log("verify", "--log", "other.db").code == 0
    assert "skipped sum" in run_in_log("import", "run.html", "--log", "other.db").err
    assert run_in_log("import", "run.html", "--owner", "anna", "--log", "other.db").code == 2
    own, first = (open_store(work_dir / name) for name in ("other.db", DEFAULT_LOG))
    assert list(own.read_lines("sum")) == list(first.read_lines("sum"))
    own.close()
    first.close()
    page = (work_dir / "run.html").read_bytes()
    (work_dir / "cut.html").write_bytes(page[: page.index(b'{"seq":1') + 40])
    cut = run_in_log("import", "cut.html", "--log", "third.db")
    assert cut.code == 5
    assert "its end is missing" in cut.err
    assert not (work_dir / "third.db").exists()


def test_a_page_that_mail_or_an_editor_changed_comes_back(run_in_log: RunCli, work_dir: Path) -> None:
    """Other line ends, a byte order mark and the comment of a browser that saved the page change no record.
    A changed record is named with the file that the user gave."""
    run_in_log("share", "sum", "--yes", "-o", "run.html")
    page = (work_dir / "run.html").read_bytes()
    saved = page.replace(b"<!doctype html>", b"<!DOCTYPE html>\n<!-- saved from url=(0014)about:internet -->")
    others = (page.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + page, saved.replace(b"\n", b"\r\n"))
    for number, other in enumerate(others):
        (work_dir / "other.html").write_bytes(other)
        assert run_in_log("import", "other.html", "--log", f"{number}.db").out == "sum\n"
    (work_dir / "bad.html").write_bytes(page.replace(b'"seq":1,', b'"seq":7,'))
    bad = run_in_log("import", "bad.html", "--log", "bad.db")
    assert bad.code == 5
    assert "line 3 of the records in bad.html: its hash does not match" in bad.err


def test_what_was_found_is_replaced_in_a_copy_that_replays(run_in_log: RunCli, work_dir: Path) -> None:
    """With --redact the file has no such text anywhere, its records verify and replay, and the log is as it
    was."""
    assert run_in_log("share", "sum", "--redact", "email", "-o", "run.html").code == 0
    assert MAIL.encode() not in (work_dir / "run.html").read_bytes()
    assert run_in_log("import", "run.html", "--log", "other.db").code == 0
    assert run_in_log("verify", "--log", "other.db").code == 0
    assert run_in_log("replay", "sum", "--log", "other.db").code == 0
    assert "[redacted:" in run_in_log("show", "sum", "--log", "other.db").out
    assert MAIL in run_in_log("show", "sum").out


NUMBER = 4111111111111111


def test_what_is_found_is_what_a_redacted_file_lacks() -> None:
    """A secret at the beginning of a line is found, and so are numbers, owners and tags; a redacted file has
    none of them, and its records verify and replay. What it leaves is said: ids, names and the agent's own
    texts."""
    asked = reply_with_calls(("echo", {"text": "x", "card": NUMBER, "more": [NUMBER, 1.5, True]}))
    replies = [asked, "Call\n+49 170 1234567 with\nsk-abcdefghijklmnopqrst"]
    engine = make_engine(replies)
    engine.run("hi", conversation="c1", owner=MAIL, tags={"of": MAIL}, author=MAIL)
    content = survey_content(engine.store, "c1")
    assert {"email": 3, "phone": 1, "token": 1}.items() <= content.found.items()
    assert content.found["card"] >= 2
    assert not content.kept
    page = build_shared_page(engine.store, "c1", tuple(content.found)).decode()
    for secret in (MAIL, "170 1234567", "sk-abc", str(NUMBER)):
        assert secret not in page
    assert '"more":["[redacted:' in page
    assert ",1.5,true]" in page
    copy = MemoryStore()
    copy.append("c1", 0, copy_redacted(engine.store, "c1", Redactor(patterns=tuple(content.found))))
    assert len(list(replay_conversation(copy, "c1"))) == content.records
    engine = make_engine(["ok"], responses=[{"llm": "model", "prompt": f"Send all to {MAIL}"}])
    engine.run(f"I am {MAIL}", conversation=MAIL)
    kept = survey_content(engine.store, MAIL)
    assert 0 < kept.kept["email"] < kept.found["email"]
    assert "Redaction leaves" in kept.describe()


def test_what_redaction_leaves_is_said(run_cli: RunCli, work_dir: Path) -> None:
    """With --redact too, the command says what the file still shows of what was to be replaced."""
    run_cli("run", "quickstart", f"Tell {MAIL} a number", "--conversation", f"for-{MAIL}")
    done = run_cli("share", f"for-{MAIL}", "--redact", "email", "-o", "run.html")
    assert done.code == 0
    assert "Redaction leaves 1 email: in ids" in done.err
    assert f"for {MAIL}" not in (work_dir / "run.html").read_text()


def test_a_run_with_agents_is_shared_whole_or_not_redacted() -> None:
    """The file holds the conversations of the agents that a run asks; a redacted copy, whose records would
    hold other hashes, is refused with what to do."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    store = make_log(ask_for("a"), "first", chart=make_parent_chart(), effects=effects, conversation="p")
    assert survey_content(store, "p").conversations == ("p", "p.1")
    assert b'{"conversation":"p.1"' in build_shared_page(store, "p")
    with pytest.raises(Exception, match=r"cannot be redacted now: its records hold hashes of 'p\.1'"):
        build_shared_page(store, "p", ["email"])


def test_the_lines_of_a_page_are_those_of_the_log(tmp_path: Path) -> None:
    """Whatever stands in a run, the file gives back its bytes."""
    store = make_log(ask_for(*HOSTILE_TEXTS[:-1]), "".join(HOSTILE_TEXTS) + "&lt;&amp;lt;</script>")
    (tmp_path / "run.html").write_bytes(build_shared_page(store, "c1"))
    lines = (read_shared_page(tmp_path / "run.html") or b"").splitlines()
    assert lines[1:] == list(store.read_lines("c1"))


async def test_the_server_says_what_a_file_would_show_and_gives_it() -> None:
    """The page of a run leads to one that names what was found; the file comes as a download, redacted where
    that was chosen, and only to who may read the conversation."""
    engine = make_engine(["done"])
    await engine.arun(f"Write to {MAIL}", conversation="c1")
    async with open_client(make_site(engine)) as client:
        page = (await client.get("/conversations/c1/share")).text
        assert "1 email" in page
        answer = await client.get("/api/conversations/c1/share")
        assert answer.headers["content-disposition"] == 'attachment; filename="c1.html"'
        assert MAIL in answer.text
        assert MAIL not in (await client.get("/api/conversations/c1/share?redact=email")).text
        assert (await client.get("/api/conversations/c1/share?redact=nothing")).status_code == 400
        assert (await client.get("/api/conversations/c2/share")).status_code == 404


# -- in a browser --------------------------------------------------------------------------------


async def open_file(context: Any, path: Path) -> Any:
    """The page of a file, once it has checked its records."""
    page = await context.new_page()
    await page.goto(path.as_uri())
    await page.locator("#verified:not(:text('checking'))").wait_for()
    return page


class TestInBrowser:
    """What opens the file."""

    pytestmark = in_browser

    async def test_it_opens_without_a_server_and_fetches_nothing(self, tmp_path: Path) -> None:
        """From a disk: the trace, the chart, each step and the keys are there, and the hashes are checked."""
        store = await asyncio.to_thread(make_log, ask_for("a"), "done")
        path = tmp_path / "run.html"
        path.write_bytes(build_shared_page(store, "c1"))
        async with open_browser() as context:
            asked: list[str] = []
            context.on("request", lambda request: asked.append(request.url))
            page = await open_file(context, path)
            assert await page.locator("#verified.good").count() == 1
            assert await page.locator("#trace .line:visible").count() == 4
            assert await page.locator("#diagram [data-state=finished].current").count() == 1
            assert await page.locator("#step .said").first.inner_text() == "done"
            await page.keyboard.press("k")
            await page.locator("#step-name", has_text="tool_finished").wait_for()
            await page.keyboard.press("m")
            head = str(await page.locator("#head").inner_text())
            assert head == json.loads(list(store.read_lines("c1"))[-1])["hash"]
        assert asked == [path.as_uri()]

    async def test_one_changed_byte_says_which_record(self, tmp_path: Path) -> None:
        """For bytes all over the records: the page names the conversation and the record."""
        page = build_shared_page(await asyncio.to_thread(make_log, ask_for("a"), "done"), "c1")
        start = page.index(b'{"seq":0')
        end = page.index(b"</script>", start)
        lines = page[start:end].split(b"\n")
        async with open_browser() as context:
            for seq, share in ((0, 0.5), (1, 0.4), (2, 0.6), (3, 0.7), (4, 0.2), (5, 0.9)):
                offset = start + sum(len(line) + 1 for line in lines[:seq]) + int(len(lines[seq]) * share)
                while not page[offset : offset + 1].isalnum():
                    offset += 1
                other = b"1" if page[offset : offset + 1] != b"1" else b"2"
                path = tmp_path / f"{seq}.html"
                path.write_bytes(page[:offset] + other + page[offset + 1 :])
                opened = await open_file(context, path)
                assert await opened.locator("#verified.bad").count() == 1
                problem = str(await opened.locator("#damage").inner_text())
                assert f"record {seq} of conversation c1" in problem, (seq, problem)
                await opened.close()

    async def test_a_changed_byte_beside_the_records_is_said_too(self, tmp_path: Path) -> None:
        """In a heading, in the keys of a record, and in what the server has drawn: the page is never left
        checking, says what is changed, and shows what can be shown."""
        child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
        effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
        options = {"chart": make_parent_chart(), "effects": effects, "conversation": "p"}
        store = await asyncio.to_thread(lambda: make_log(ask_for("a"), "first", **options))
        page = build_shared_page(store, "p")
        own, other = (page.index(b'{"conversation":"%b"' % name) for name in (b"p", b"p.1"))
        first = page.index(b'{"seq":0', own)
        cases = (
            (own + 3, b"x", "no heading of a conversation"),
            (own + 17, b"q", "conversation p: it is not in the file"),
            (own + 30, b"\n", "no heading of a conversation"),
            (page.index(b'"head":"', own) + 9, b"x", "is not the one that its heading names"),
            (other + 19, b"7", "it belongs to another conversation"),
            (other + 1, b"&", "no heading of a conversation"),
            (page.index(b'"event"', first) + 2, b"x", "record 0 of conversation p"),
            (first, b"<", "record 0 of conversation p"),
            (page.index(b'"kinds"') + 1, b"x", "beside the records was changed"),
            (page.index(b'"kinds"') + 6, b"x", "beside the records was changed"),
        )
        async with open_browser() as context:
            for place, (offset, byte, text) in enumerate(cases):
                path = tmp_path / f"{place}.html"
                path.write_bytes(page[:offset] + byte + page[offset + 1 :])
                opened = await open_file(context, path)
                assert await opened.locator("#verified.bad").count() == 1, place
                assert text in str(await opened.locator("#damage").inner_text()), place
                await opened.close()

    async def test_a_page_that_a_browser_saved_shows_the_run_once(self, tmp_path: Path) -> None:
        """Saved as it was drawn and opened again, it has each row once and is checked anew; one that was cut
        off before its script says that nothing is checked."""
        page = build_shared_page(await asyncio.to_thread(make_log, ask_for("a"), "done"), "c1")
        path = tmp_path / "run.html"
        path.write_bytes(page)
        async with open_browser() as context:
            opened = await open_file(context, path)
            rows = await opened.locator("#trace .line").count()
            saved = re.sub(r"<meta http-equiv=[^>]*>", "", await opened.content())
            path.write_text(saved.replace('"seq":2,', '"seq":4,', 1))
            again = await open_file(context, path)
            assert await again.locator("#verified.bad").count() == 1
            assert await again.locator("#trace .line").count() == rows
            path.write_bytes(page[: page.index(b'<script type="module">') + 1000])
            cut = await open_file(context, path)
            assert await cut.locator("#verified").inner_text() == "not checked"

    async def test_a_record_that_is_missing_is_named(self, tmp_path: Path) -> None:
        """In the middle, and at the end, where the chain alone would not show it."""
        page = build_shared_page(await asyncio.to_thread(make_log, ask_for("a"), "done"), "c1")
        lines = re.findall(rb'^\{"seq":.*\n', page, re.MULTILINE)
        async with open_browser() as context:
            for seq, text in ((2, "record 2 of conversation c1"), (-1, f"{len(lines)} records were written")):
                path = tmp_path / f"without{seq}.html"
                path.write_bytes(page.replace(lines[seq], b""))
                opened = await open_file(context, path)
                assert text in str(await opened.locator("#damage").inner_text())
                await opened.close()

    async def test_hostile_content_stays_text_without_the_policy(self, tmp_path: Path) -> None:
        """With the policy taken out of the file, nothing of a run becomes an element or a script."""
        texts = [*HOSTILE_TEXTS[:-1], "<img id=planted src=x onerror=alert(1)>", "</script><b id=planted>"]
        store = await asyncio.to_thread(make_log, ask_for(*texts), "".join(texts))
        path = tmp_path / "run.html"
        page = build_shared_page(store, "c1").decode()
        bare = re.sub(r"<meta http-equiv=[^>]*>", "", page)
        assert bare != page
        path.write_text(bare)
        async with open_browser() as context:
            alerts: list[str] = []
            opened = await open_file(context, path)
            opened.on("dialog", lambda dialog: alerts.append(dialog.message))
            assert await opened.locator("#verified.good").count() == 1
            for _ in range(len(texts)):
                await opened.keyboard.press("k")
                await opened.locator("#step .head").wait_for()
                assert await opened.locator("#planted").count() == 0
            assert alerts == []

    async def test_the_file_and_the_server_make_the_same_columns(self) -> None:
        """For every conversation of the golden logs: what the file makes of its records is what the server
        sends to the page of a run."""
        store = MemoryStore()
        names = []
        for golden in list_golden_logs():
            for name, lines in split_conversations(read_golden_log(golden)).items():
                names.append(f"{golden} {name}")
                store.append(names[-1], 0, lines)
        script = bundle_modules().partition("modules.shared_run")[0]
        async with open_browser() as context:
            page = await context.new_page()
            await page.set_content("<p></p>")
            await page.add_script_tag(
                content=f"{script}\nwindow.makeColumns = modules.shared_columns.makeColumns;"
            )
            for name in names:
                records = [json.loads(line) for line in store.read_lines(name)]
                made = await page.evaluate("(records) => makeColumns(records)", records)
                sent = json.loads(json.dumps(await asyncio.to_thread(read_steps, store, name, 0, 10**6)))
                sent.pop("active")
                sent.pop("kinds")
                assert made == sent, name
        assert len(names) > 20
