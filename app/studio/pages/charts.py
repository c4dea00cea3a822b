"""The page of charts: the agent's own and those that ship, each drawn, with what `check` proves about it."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.chart_checks import describe_agent_chart, format_bound
from toolchart.app.server.answers import Refusal
from toolchart.app.server.endpoints import Endpoint, RouteGroup
from toolchart.app.server.site import Site, get_site
from toolchart.app.studio.drawings import draw_for_page
from toolchart.app.studio.pages.layout import show_page
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.proofs.check import check

_OWN = "the agent's own chart"


async def show_charts(request: Request) -> Response:
    """Show one chart: that of the agent, or the shipped one of the path."""
    name = str(request.path_params.get("name", ""))
    if name and name not in list_shipped_charts():
        known = ", ".join(list_shipped_charts())
        raise Refusal(404, f"there is no shipped chart {name!r}; shipped charts: {known}")
    values = await asyncio.to_thread(read_chart, get_site(request), name)
    return show_page(request, "charts.html", "/charts", name=name, names=list_shipped_charts(), **values)


def read_chart(site: Site, name: str) -> dict[str, Any]:
    """A chart with its drawing and its report; proofs are made once, since neither charts nor agent change.

    Args:
        name: that of a shipped chart; empty for the agent's own.
    """
    if name:
        return _read_shipped_chart(name)
    values: dict[str, Any] | None = site.running.get(_OWN)
    if values is None:
        chart, options = describe_agent_chart(site.engine.spec)
        values = site.running[_OWN] = _describe_chart(chart, options)
    return values


@cache
def _read_shipped_chart(name: str) -> dict[str, Any]:
    return _describe_chart(load_chart(name), {"risky": True})


def _describe_chart(chart: Chart, options: dict[str, Any]) -> dict[str, Any]:
    report = check(chart, **options)
    return {
        "chart": chart.name,
        "yaml": chart.to_yaml(),
        "report": report,
        "bound": format_bound(report),
        **draw_for_page(lambda: chart),
    }


ROUTES = RouteGroup(
    name="charts page",
    endpoints=tuple(
        Endpoint(
            method="GET",
            path=path,
            role="read",
            answer=show_charts,
            summary="The page of charts.",
            is_page=True,
            in_openapi=False,
        )
        for path in ("/charts", "/charts/{name}")
    ),
)
