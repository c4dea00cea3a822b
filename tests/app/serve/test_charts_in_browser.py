"""The page that edits a chart, in a browser: findings as one types, runs, saves, stale ones, keys alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")
pytest.importorskip("playwright.async_api", reason="pages are tested with Playwright")

from accessibility import HAS_AXE, list_violations
from agents import make_engine
from browser import CHROMIUM, open_browser, sign_in, wait_for_value
from effort import IS_LONG
from hostile_texts import HOSTILE_TEXTS
from playwright.async_api import expect
from served import make_site, make_value, serve

from toolchart.app.server.site import Site, SiteSettings
from toolchart.specs.charts import read_shipped_chart

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("shared_browser"),
    pytest.mark.skipif(not CHROMIUM, reason="pages are tested with Chromium, and there is none"),
    pytest.mark.skipif(not IS_LONG, reason="browsers are slow; TOOLCHART_LONG=1 runs all"),
]

TOOL_LOOP = read_shipped_chart("tool_loop")
LAST_ROW = "      - {event: tool_finished, target: prompting}\n"
LOST_STATE = "  lost: {final: true, enter: answer}\n"
FAULTY = TOOL_LOOP.replace(LAST_ROW, "") + LOST_STATE


def make_editing_site(folder: Path) -> Site:
    """A site that saves charts to a folder."""
    return make_site(make_engine(["hi"]), settings=SiteSettings(edit_folder=str(folder)))


async def open_editor(context: Any, url: str, query: str, name: str = "owner") -> Any:
    """The page that edits a chart, signed in."""
    page = await context.new_page()
    await page.goto(f"{url}/charts/edit{query}")
    if "/sign-in" in page.url:
        await page.fill("#token", make_value(name))
        await page.click("main button")
        await page.wait_for_url(f"**/charts/edit{query}")
    return page


async def wait_for_verdict(page: Any, text: str, faulty_lines: int | None = None) -> None:
    """Wait until the text has this verdict; with a number, until so many lines are marked too.

    An earlier text may have the same verdict, but only the newest one has marks.
    """
    await expect(page.locator("#verdict")).to_have_text(text)
    if faulty_lines is not None:
        await expect(page.locator("#gutter .faulty")).to_have_count(faulty_lines)


async def expect_selection(page: Any, text: str) -> None:
    """Wait until this text is selected."""
    await wait_for_value(page, "document.getSelection().toString()", text)


async def expect_focus(page: Any, name: str) -> None:
    """Wait until the element with this id has the focus."""
    await wait_for_value(page, "document.activeElement.id", name)


async def test_a_chart_is_edited_until_it_is_clean_and_saved(tmp_path: Path) -> None:
    """Faults are shown beside their lines with file and line; a counterexample is stepped through on the
    drawing; when both faults are mended the chart is clean, and Ctrl+S saves it. A save of what somebody else
    has changed meanwhile is refused, compared, and possible after that."""
    path = tmp_path / "mine.yaml"
    path.write_text(FAULTY)
    lines = FAULTY.splitlines()
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await open_editor(context, url, "?file=mine.yaml")
            await wait_for_verdict(page, "2 findings", 2)
            gap, lost = lines.index("  executing:") + 1, lines.index(LOST_STATE.rstrip()) + 1
            marked = await page.locator("#gutter .faulty").all_inner_texts()
            assert [int(text) for text in marked] == [gap, lost]
            await expect(page.locator("#backdrop .faulty .mark").first).to_contain_text("gap")
            await page.get_by_role("button", name=f"Go to mine.yaml:{lost}").click()
            await expect_selection(page, lines[lost - 1])

            await page.get_by_role("button", name="Step through the counterexample of finding").click()
            await page.get_by_text("The engine did what the finding says.").wait_for()
            await expect_focus(page, "run-slider")
            await expect(page.locator("#run-position")).to_have_text("1 of 4")
            await expect(page.locator("#after .current")).to_have_attribute("data-state", "prompting")
            await page.keyboard.press("End")
            await expect(page.locator("#after .current")).to_have_attribute("data-state", "executing")
            await expect(page.locator("#run-step")).to_contain_text("no row takes it")
            await expect(page.locator("#run-step .truth", has_text="false")).to_have_count(2)
            await page.keyboard.press("Escape")
            await expect(page.locator("#after .visited")).to_have_count(0)

            await page.fill("#yaml", FAULTY.replace(LOST_STATE, ""))
            await wait_for_verdict(page, "1 finding")
            await page.locator('#before .removed[data-state="lost"]').wait_for()
            await expect(page.locator("#changes")).to_have_text("States that are gone, drawn dashed: lost.")
            await page.fill("#yaml", TOOL_LOOP)
            await wait_for_verdict(page, "clean", 0)
            await expect(page.locator("#bound")).to_contain_text("at most")
            await page.focus("#yaml")
            await page.keyboard.press("Control+s")
            await page.get_by_text("owner saved mine.yaml").wait_for()
            assert path.read_text() == TOOL_LOOP

            other = await open_editor(context, url, "?file=mine.yaml")
            await other.fill("#yaml", TOOL_LOOP + "# other\n")
            await other.click("#save-button")
            await other.get_by_text("owner saved mine.yaml").wait_for()
            await page.fill("#yaml", TOOL_LOOP + "# mine\n")
            await page.click("#save-button")
            await page.get_by_text("mine.yaml has changed since you opened it: owner saved it").wait_for()
            assert path.read_text() == TOOL_LOOP + "# other\n"
            await page.click("#compare")
            await page.locator("#theirs", has_text="# other").wait_for()
            await page.click("#save-button")
            await page.get_by_text("owner saved mine.yaml").wait_for()
            assert path.read_text() == TOOL_LOOP + "# mine\n"


async def test_the_editor_is_used_by_keys_alone(tmp_path: Path) -> None:
    """A copy of a shipped chart is begun from the page of charts, typed into with indentation kept, a word is
    put in from the lists, F8 goes to a finding, Tab leaves the text, and the copy is saved under a name."""
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await open_editor(context, url, "")
            await page.goto(f"{url}/charts/tool_loop")
            await page.get_by_role("link", name="Edit a copy").focus()
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/charts/edit?shipped=tool_loop")
            await wait_for_verdict(page, "clean")
            await page.focus("#yaml")
            await page.keyboard.press("Control+End")
            await page.keyboard.type("  lost:")
            await page.keyboard.press("Enter")
            await page.keyboard.type("final: true")
            await page.keyboard.press("Enter")
            await page.keyboard.type("enter: ")
            assert (await page.input_value("#yaml")).endswith("  lost:\n    final: true\n    enter: ")
            await page.focus("#filter")
            await page.keyboard.type("answer_at_limit")
            await page.get_by_role("button", name="answer_at_limit", exact=True).focus()
            await page.keyboard.press("Enter")
            assert (await page.input_value("#yaml")).endswith("enter: answer_at_limit")
            await wait_for_verdict(page, "1 finding", 1)
            await page.keyboard.press("Control+Home")
            await page.keyboard.press("F8")
            await expect_selection(page, "  lost:")
            await page.keyboard.press("Tab")
            await expect_focus(page, "name")
            await page.keyboard.press("Control+a")
            await page.keyboard.type("by keys.yaml")
            await page.keyboard.press("Enter")
            await page.get_by_text("the name of a chart has letters").wait_for()
            await page.keyboard.press("Control+a")
            await page.keyboard.type("by_keys.yaml")
            await page.keyboard.press("Enter")
            await page.get_by_text("owner saved by_keys.yaml with 1 finding.").wait_for()
            await page.wait_for_url("**/charts/edit?file=by_keys.yaml")
    assert (tmp_path / "by_keys.yaml").read_text().endswith("enter: answer_at_limit")


async def test_errors_and_drafts_say_what_to_do(tmp_path: Path) -> None:
    """A text that is no chart is marked in its line, and the last drawing stays; saving it is refused with
    the line; what was not saved is back after a reload; without the role nothing can be written."""
    (tmp_path / "mine.yaml").write_text(TOOL_LOOP)
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await open_editor(context, url, "?file=mine.yaml")
            await wait_for_verdict(page, "clean")
            broken = TOOL_LOOP.replace("enter: call_model", "enter: call_modle")
            line = broken[: broken.index("call_modle")].count("\n") + 1
            await page.fill("#yaml", broken)
            await wait_for_verdict(page, "not a chart", 1)
            assert await page.locator("#gutter .faulty").all_inner_texts() == [f"{line}\n"]
            hint = "What to do: did you mean 'call_model'?"
            await expect(page.locator("#findings")).to_contain_text(hint)
            await expect(page.locator("#after.stale svg")).to_have_count(1)
            await page.click("#save-button")
            await page.get_by_text("nothing was saved: mine.yaml").wait_for()
            page.on("dialog", lambda dialog: dialog.accept())
            await page.reload()
            await page.get_by_text("What you had written and not saved is back.").wait_for()
            await expect(page.locator("#yaml")).to_have_value(broken)
            await page.click("#drop-draft")
            await wait_for_verdict(page, "clean")
            await expect(page.locator("#yaml")).to_have_value(TOOL_LOOP)
        async with open_browser() as context:
            page = await open_editor(context, url, "?file=mine.yaml", "viewer")
            await page.get_by_text("Your token lacks the role edit").wait_for()
            await expect(page.locator("#yaml")).not_to_be_editable()
            await expect(page.locator("#save-button")).to_have_count(0)
    assert (tmp_path / "mine.yaml").read_text() == TOOL_LOOP


async def test_hostile_charts_stay_texts(tmp_path: Path) -> None:
    """Markup in names, guards, comments and findings never becomes part of the page or of a drawing."""
    names = "".join(
        f"  {text!r}: {{final: true, enter: answer}}\n"
        for text in ("<b>x", "</svg><script>alert(1)</script>")
    )
    comments = "".join(
        f"# {text.encode('ascii', 'ignore').decode()}\n" for text in HOSTILE_TEXTS if text.isprintable()
    )
    (tmp_path / "mine.yaml").write_text(f"# </textarea><b>\n{comments}{TOOL_LOOP}{names}")
    alerts: list[str] = []
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await open_editor(context, url, "?file=mine.yaml")
            page.on("dialog", lambda dialog: alerts.append(dialog.message))
            await page.locator("#verdict.bad").wait_for()
            assert await page.locator("main b, main script, main img, main iframe").count() == 0
    assert alerts == []


@pytest.mark.skipif(
    not HAS_AXE, reason="axe-core is absent; TOOLCHART_AXE names the folder in which npm installed it"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
async def test_the_editor_is_for_everybody(tmp_path: Path, scheme: str, width: int) -> None:
    """axe finds nothing above minor with findings, with a run that is stepped and with the lists open; the
    page is no wider than its window, and its parts keep their heights while the check works."""
    (tmp_path / "mine.yaml").write_text(FAULTY)
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
            page = await open_editor(context, url, "?file=mine.yaml")
            height = await page.evaluate("document.documentElement.scrollHeight")
            await wait_for_verdict(page, "2 findings", 2)
            await page.locator("#after svg").wait_for()
            assert await page.evaluate("document.documentElement.scrollHeight") - height <= 30
            await page.get_by_role("button", name="Step through").click()
            await page.locator("#run-controls:not([hidden])").wait_for()
            await page.evaluate(
                "document.querySelectorAll('details').forEach((item) => { item.open = true; })"
            )
            assert await list_violations(page) == []
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            await page.goto(f"{url}/charts/files/mine.yaml")
            assert await list_violations(page) == []


async def test_changed_transitions_are_marked(tmp_path: Path) -> None:
    """A transition with another target, guard or event is marked in both drawings and named with what it was;
    so are one that is new, one that is gone, one at another place in the order, and a state that asks for
    something else. Where nothing differs nothing is marked."""
    (tmp_path / "mine.yaml").write_text(TOOL_LOOP)
    failed = "      - {event: failed, target: error}\n"
    lines = TOOL_LOOP.splitlines(keepends=True)
    start, end = lines.index("  prompting:\n"), lines.index("  awaiting_tools:\n")
    stop = next(line for line in lines[start:end] if "finish_reason == 'stop'" in line)
    said = next(line for line in lines[start:end] if "user_said" in line)

    def edit(*edits: tuple[str, str]) -> str:
        text = "".join(lines[start:end])
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        return "".join([*lines[:start], text, *lines[end:]])

    changed, added, gone = (
        "Changed transitions, drawn thick",
        "New transitions, drawn blue",
        "are gone, drawn dashed",
    )
    cases: list[tuple[str, str, dict[str, int]]] = [
        (
            edit((failed, failed.replace("target: error", "target: finished"))),
            f"{changed}: prompting: failed → finished (before: failed → error).",
            {"#before .transition.changed": 1, "#after .transition.changed": 1},
        ),
        (
            edit((stop, stop.replace("'stop'", "'length'"))),
            f"{changed}: prompting: replied [finish_reason == 'length'] → finished (before: replied",
            {"#before .transition.changed": 1, "#after .transition.changed": 1},
        ),
        (
            edit((failed, f'      - {{event: failed, target: finished, cond: "iteration > 1"}}\n{failed}')),
            f"{added}: prompting: failed [iteration > 1] → finished.",
            {"#before .transition.changed": 0, "#after .transition.added": 1},
        ),
        (
            edit((said, "")),
            f"Transitions that {gone}: prompting: user_said stays.",
            {"#before .transition.removed": 1, "#after .changed": 0},
        ),
        (
            edit((failed, ""), (said, f"{said}{failed}")),
            f"{changed}: prompting: failed → error (at another place).",
            {"#before .transition.changed": 1, "#after .transition.changed": 1},
        ),
        (
            TOOL_LOOP.replace("  finished: {final: true, enter: answer}", "  finished: {final: true}"),
            "States that do something else, drawn on yellow: finished.",
            {"#before .state.changed": 1, "#after .state.changed": 1, ".transition.changed": 0},
        ),
        (
            TOOL_LOOP,
            "Before and after have the same states and transitions.",
            {".changed": 0, ".added": 0, ".removed": 0},
        ),
    ]
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await open_editor(context, url, "?file=mine.yaml")
            await page.locator("#before .state").first.wait_for()
            for text, words, marks in cases:
                await page.fill("#yaml", text)
                await expect(page.locator("#changes")).to_contain_text(words)
                for place, count in marks.items():
                    await expect(page.locator(place)).to_have_count(count)


async def test_a_chart_is_zoomed_and_names_no_place_of_the_server(tmp_path: Path) -> None:
    """Keys and buttons make the drawing larger and fit it again, never smaller than it was drawn. Pages and
    errors name the folder, and not where it lies."""
    (tmp_path / "mine.yaml").write_text(FAULTY)
    (tmp_path / "wrong.yaml").write_text("name: wrong\nextends: nothing\n")
    with serve(make_editing_site(tmp_path)) as url:
        async with open_browser() as context:
            page = await sign_in(context, url, "/charts/files/mine.yaml")
            percent = page.locator("#percent")
            await expect(percent).to_have_text("100 %")
            await page.press("body", "+")
            await expect(percent).to_have_text("120 %")
            await page.get_by_role("button", name="Make the chart smaller").click()
            await page.get_by_role("button", name="Make the chart smaller").click()
            await expect(percent).to_have_text("100 %")
            await page.press("body", "?")
            await expect(page.locator("#keys-dialog")).to_be_visible()
            for path in ("files/mine.yaml", "edit?file=mine.yaml", "files/no.yaml", "files/wrong.yaml"):
                await page.goto(f"{url}/charts/{path}")
                text = await page.content()
                assert tmp_path.name in text
                assert str(tmp_path.parent) not in text
