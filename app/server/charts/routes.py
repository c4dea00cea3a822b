"""The charts API: list, read, check, replay, save."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.answers import JsonAnswer, Refusal
from toolchart.app.server.bodies import read_form
from toolchart.app.server.charts.folder import ChartFile
from toolchart.app.server.charts.workbench import find_workbench
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import get_access, get_site
from toolchart.specs.charts import list_shipped_charts, read_shipped_chart

ROUTES = RouteGroup()

log = logging.getLogger("toolchart.server")


class CheckForm(msgspec.Struct, kw_only=True):
    """A chart to check."""

    yaml: str
    name: str = ""
    """The file that it is, or will be: places of findings begin with it."""
    for_agent: bool = True
    """Whether it is checked with limits, tools and trust of the agent that is served."""


class ReplayForm(CheckForm, kw_only=True):
    """A finding whose counterexample is replayed."""

    finding: int
    """Its index among the findings of the check."""


class SaveForm(msgspec.Struct, kw_only=True):
    """A chart to save; it is checked as `CheckForm` says first."""

    yaml: str
    for_agent: bool = True
    base: str = ""
    """The `digest` of the file that the text was made from; empty for a new file."""


@ROUTES.endpoint("GET", "/api/charts", "read")
async def list_charts(request: Request) -> Response:
    """List the charts that ship, and those of the folder that `--edit` names."""
    folder = find_workbench(get_site(request)).folder
    files, is_complete = await asyncio.to_thread(folder.list_names) if folder else ([], True)
    return JsonAnswer(
        {
            "shipped": list_shipped_charts(),
            "files": files,
            "is_complete": is_complete,
            "folder": folder.name if folder else None,
            "may_save": folder is not None and get_access(request).may("edit"),
        }
    )


@ROUTES.endpoint("GET", "/api/charts/shipped/{name}", "read")
async def read_shipped(request: Request) -> Response:
    """The YAML of a shipped chart."""
    name = str(request.path_params["name"])
    return JsonAnswer({"name": name, "yaml": read_shipped_text(name)})


def read_shipped_text(name: str) -> str:
    """The YAML of a shipped chart.

    Raises:
        Refusal: 404; there is none of this name.
    """
    if name not in list_shipped_charts():
        chart_names = ", ".join(list_shipped_charts())
        raise Refusal(404, f"there is no shipped chart {name!r}; shipped charts: {chart_names}")
    return read_shipped_chart(name)


@ROUTES.endpoint("GET", "/api/charts/files/{name}", "read")
async def read_file(request: Request) -> Response:
    """The YAML of a chart of the folder, with the `digest` that saving it wants."""
    folder = find_workbench(get_site(request)).require_folder()
    file = await asyncio.to_thread(folder.read, str(request.path_params["name"]))
    return JsonAnswer({**_describe_file(file), "yaml": file.text})


@ROUTES.endpoint("POST", "/api/charts/check", "edit", body=CheckForm)
async def check_chart(request: Request) -> Response:
    """What `toolchart check` says about a chart, and its drawing."""
    form, bench = await read_form(request, CheckForm), find_workbench(get_site(request))
    return JsonAnswer(
        await bench.examine(await bench.make_text(form.yaml, form.name, for_agent=form.for_agent))
    )


@ROUTES.endpoint("POST", "/api/charts/replay", "edit", body=ReplayForm)
async def replay_finding(request: Request) -> Response:
    """The counterexample of a finding, driven through the engine, step by step."""
    form, bench = await read_form(request, ReplayForm), find_workbench(get_site(request))
    if form.finding < 0:
        raise Refusal(404, "findings are counted from 0")
    chart = await bench.make_text(form.yaml, form.name, for_agent=form.for_agent)
    return JsonAnswer(await bench.replay(chart, form.finding))


@ROUTES.endpoint("POST", "/api/charts/files/{name}", "edit", body=SaveForm)
async def save_file(request: Request) -> Response:
    """Save a chart; refused (409) where the file is not the one of `base` any more.

    A text that is no chart is refused, one with findings is not.
    """
    form, bench = await read_form(request, SaveForm), find_workbench(get_site(request))
    folder, name = bench.require_folder(), str(request.path_params["name"])
    report = await bench.check(await bench.make_text(form.yaml, name, for_agent=form.for_agent))
    problem = report["problem"]
    if problem is not None:
        raise Refusal(422, f"nothing was saved: {_format_problem(problem)}", details={"problem": problem})
    by = get_access(request).name
    file = await asyncio.to_thread(lambda: folder.save(name, form.yaml, base=form.base, by=by))
    # A warning, since it changes what agents do: it is printed without further settings.
    log.warning("%s saved the chart %s", by, folder.path / name)
    return JsonAnswer({**_describe_file(file), "findings": len(report["findings"])})


def _describe_file(file: ChartFile) -> dict[str, Any]:
    return {"name": file.name, "digest": file.digest, "saved_by": file.saved_by, "saved_at": file.saved_at}


def _format_problem(problem: dict[str, Any]) -> str:
    return ": ".join(part for part in (problem["place"], problem["path"], problem["message"]) if part)
