"""The page of charts: each chart drawn, with the findings and bounds of `check`."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine
from served import make_site, open_client

from toolchart.app.chart_checks import format_bound
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.proofs.check import check

FAULTY: dict[str, Any] = {
    "name": "<b>faulty</b>",
    "extends": "tool_loop",
    "states": {"lost": {"enter": "answer", "final": True}},
}


def read_text(page: str) -> str:
    """The text of a page, without tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_the_chart_of_the_agent_is_shown_with_its_own_limits() -> None:
    """The page begins with the agent's chart: drawn, with the bound that its limits give, and a link to each
    shipped chart."""
    tools = {"registry": [{"name": "echo"}], "max_iterations": 7}
    async with open_client(make_site(make_engine(["hi"], tools=tools)), "viewer") as client:
        page = (await client.get("/charts")).text
    text = read_text(page)
    assert "at most 39 model calls" in text
    assert "clean" in text
    assert 'data-state="prompting"' in page
    assert "<style" not in page
    assert all(f'href="/charts/{name}"' in page for name in list_shipped_charts())


async def test_findings_say_what_to_change() -> None:
    """A finding stands with its kind, its text and what to change, and is no longer called clean; markup in
    the name of the chart stays text, in the drawing too."""
    async with open_client(make_site(make_engine(["hi"], chart=FAULTY))) as client:
        first, second = (await client.get("/charts")).text, (await client.get("/charts")).text
    text = read_text(first)
    assert "1 finding" in text
    assert "unreachable" in text
    assert "What to change: delete the state, or add a row that leads to it" in text
    assert "clean" not in text
    assert "<b>" not in first
    assert first == second


@pytest.mark.parametrize("name", list_shipped_charts())
async def test_every_shipped_chart_is_drawn_with_what_is_proved(name: str) -> None:
    """Each page has the drawing of its chart, its bound, and as many findings and notes as `check` has."""
    report = check(load_chart(name), risky=True)
    async with open_client(make_site(), "viewer") as client:
        page = (await client.get(f"/charts/{name}")).text
    bound = format_bound(report)
    assert f"{bound[0].upper()}{bound[1:]}." in read_text(page)
    assert page.count('<li class="card">') == len(report.findings) + len(report.notes)
    assert page.count('aria-current="page"') == 2
    assert "<svg" in page


@pytest.mark.parametrize("name", ["nothing", "tool_loop.yaml", "..%2f..%2fpyproject.toml", "%2fetc%2fpasswd"])
async def test_only_names_of_shipped_charts_are_opened(name: str) -> None:
    """No path is ever opened; the error names the charts that there are."""
    async with open_client(make_site()) as client:
        answer = await client.get(f"/charts/{name}")
    assert answer.status_code == 404
    if "%2f" not in name:
        assert "tool_loop" in answer.json()["error"]
