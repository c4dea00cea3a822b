"""The page of charts: the agent's own, those that ship, and the operator's, each drawn and checked.

Nothing changes here; `chart_editor.py` is the page that edits a chart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.chart_checks import format_bound
from toolchart.app.server.answers import Refusal
from toolchart.app.server.charts.workbench import find_workbench
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.app.studio.drawings import draw_for_page, prepare_svg
from toolchart.app.studio.pages.layout import show_page
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.document import Chart
from toolchart.states.proofs.check import check
from toolchart.tools.data_flow import describe_agent_chart

ROUTES = RouteGroup()

_OWN = "the agent's own chart"


@ROUTES.page("/charts")
@ROUTES.page("/charts/{name}")
async def show_charts(request: Request) -> Response:
    """Show one chart: that of the agent, or the shipped one of the path."""
    name = str(request.path_params.get("name", ""))
    if name and name not in list_shipped_charts():
        chart_names = ", ".join(list_shipped_charts())
        raise Refusal(404, f"there is no shipped chart {name!r}; shipped charts: {chart_names}")
    values = await asyncio.to_thread(read_chart, get_site(request), name)
    own_file = "" if name else await asyncio.to_thread(find_workbench(get_site(request)).find_agent_file)
    origin = f"?shipped={name}" if name else f"?file={own_file}" if own_file else ""
    subject = "for an agent whose tools need approvals, under the usual limits" if name else _WITH_AGENT
    return await _show(request, f"/charts/{name}" if name else "/charts", origin, subject, values)


@ROUTES.page("/charts/files/{name}")
async def show_file(request: Request) -> Response:
    """Show a chart of the operator's folder, checked with the limits and tools of the agent."""
    name, bench = str(request.path_params["name"]), find_workbench(get_site(request))
    file = await asyncio.to_thread(bench.require_folder().read, name)
    report = await bench.examine(await bench.make_text(file.text, name, for_agent=True))
    saved = f"{file.saved_by} saved it at {file.saved_at}." if file.saved_by else ""
    values = {**report, "chart": report["chart"] or name, "yaml": file.text, "saved": saved}
    if report["svg"]:
        values["svg"] = prepare_svg(report["svg"])
    return await _show(request, f"/charts/files/{name}", f"?file={name}", _WITH_AGENT, values)


async def _show(
    request: Request, path: str, origin: str, subject: str, values: Mapping[str, Any]
) -> Response:
    folder = find_workbench(get_site(request)).folder
    files, is_complete = await asyncio.to_thread(folder.list_names) if folder else ([], True)
    return show_page(
        request,
        "charts.html",
        "/charts",
        path=path,
        names=list_shipped_charts(),
        files=files,
        is_complete=is_complete,
        folder=folder.name if folder else "",
        edit_path=f"/charts/edit{origin}" if get_access(request).may("edit") else "",
        subject=subject,
        **{"problem": None, "saved": "", **values},
    )


_WITH_AGENT = "with the limits and tools of this agent"


def read_chart(site: Site, name: str) -> dict[str, Any]:
    """A chart with its drawing and its report; proofs are made once, since neither charts nor agent change.

    Args:
        name: that of a shipped chart; empty for the agent's own.
    """
    if name:
        return _read_shipped_chart(name)
    values: dict[str, Any] | None = site.running.get(_OWN)
    if values is None:
        chart, options = describe_agent_chart(site.engine.spec, site.engine.tools.functions)
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
        "findings": report.findings,
        "verdict": report.verdict,
        "notes": report.notes,
        "places": report.state_count,
        "answers": report.table_size,
        "has_bound": report.worst is not None,
        "bound": format_bound(report),
        **draw_for_page(lambda: chart),
    }
