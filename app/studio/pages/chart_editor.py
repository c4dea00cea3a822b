"""The page that edits a chart: its YAML, findings as one types, pictures before and after, runs, saving."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from toolchart.app.server.charts.routes import read_shipped_text
from toolchart.app.server.charts.workbench import NO_FOLDER, find_workbench, write_whole_chart
from toolchart.app.server.endpoints import RouteGroup
from toolchart.app.server.site import Site, get_access, get_site
from toolchart.app.studio.pages.layout import show_page
from toolchart.specs.charts import list_shipped_charts
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.vocabulary import Fact, get_effects, get_events, get_facts, list_chart_events

ROUTES = RouteGroup()


class EditedChart(msgspec.Struct, frozen=True, kw_only=True):
    """The chart that an editor begins with."""

    title: str
    yaml: str
    origin: str
    """Where the text comes from, as a sentence."""
    name: str
    """The file that is offered for saving."""
    base: str = ""
    """Digest of that file; empty where it does not exist yet."""


@ROUTES.page("/charts/edit")
async def show_editor(request: Request) -> Response:
    """Show the editor of a file of the folder, of a copy of a shipped chart, or of one of the agent's."""
    site, access = get_site(request), get_access(request)
    chart = await asyncio.to_thread(_find_chart, request)
    folder = find_workbench(site).folder
    return show_page(
        request,
        "chart_editor.html",
        "/charts",
        chart=chart,
        may_edit=access.may("edit"),
        no_saving=_explain_no_saving(has_folder=folder is not None, may_edit=access.may("edit")),
        folder=folder.name if folder else "",
        words=list_words(),
    )


def _explain_no_saving(*, has_folder: bool, may_edit: bool) -> str:
    if not may_edit:
        return "Your token lacks the role edit, so this page only shows the text. Ask for a token with it."
    return "" if has_folder else f"{NO_FOLDER[0].upper()}{NO_FOLDER[1:]}."


def _find_chart(request: Request) -> EditedChart:
    """The chart that the address names.

    Raises:
        Refusal: 404; there is no such chart.
    """
    site, query = get_site(request), request.query_params
    bench = find_workbench(site)
    if query.get("shipped"):
        return _copy_shipped(query["shipped"])
    name = query.get("file") or bench.find_agent_file()
    if not name:
        return _copy_own(site)
    file = bench.require_folder().read(name)
    origin = f"{file.saved_by} saved this text at {file.saved_at}." if file.saved_by else ""
    return EditedChart(title=file.name, yaml=file.text, origin=origin, name=file.name, base=file.digest)


def _copy_shipped(name: str) -> EditedChart:
    return EditedChart(
        title=f"a copy of {name}",
        yaml=read_shipped_text(name),
        origin=f"A copy of the chart {name}, which ships and is never changed.",
        name=f"my_{name}.yaml",
    )


def _copy_own(site: Site) -> EditedChart:
    """The chart of the agent: the text of a shipped one, else the whole resolved chart, without comments."""
    spec = site.engine.spec
    if spec.chart in list_shipped_charts() and not spec.effects:
        return _copy_shipped(str(spec.chart))
    stem = Path(spec.chart).stem if isinstance(spec.chart, str) else spec.name or "agent"
    chart = load_agent_chart(spec)
    return EditedChart(
        title="a copy of the agent's chart",
        yaml=write_whole_chart(chart),
        origin="A copy of the agent's chart with all that it extends and declares, without comments. "
        "The agent uses the file that you save when its spec names it under `chart`.",
        name=f"{''.join(c if c.isascii() and (c.isalnum() or c in '_-') else '_' for c in stem)}_chart.yaml",
    )


# -- words at hand -------------------------------------------------------------------------------


class ChartWord(msgspec.Struct, frozen=True, kw_only=True):
    """One word that a chart may use."""

    name: str
    kind: str
    """What may be written for it, or what answers it."""
    meaning: str


def list_words() -> dict[str, Sequence[ChartWord]]:
    """The effects, facts and events that every chart may name, from their tables."""
    return {
        "Effects": [
            ChartWord(name=row.name, kind=_join("answered by", row.answers), meaning=row.meaning)
            for row in get_effects().values()
            if row.build is not None
        ],
        "Kinds of effects to declare": [
            ChartWord(name=row.name, kind=_join("answered by", row.answers), meaning=row.meaning)
            for row in get_effects().values()
            if row.declare is not None
        ],
        "Facts": [
            ChartWord(name=fact.name, kind=_describe_values(fact), meaning=fact.meaning)
            for fact in get_facts().values()
        ],
        "Events": [
            ChartWord(name=name, kind="", meaning=get_events()[name].meaning) for name in list_chart_events()
        ],
    }


def _join(text: str, names: Sequence[Any]) -> str:
    return f"{text} {', '.join(names)}" if names else ""


def _describe_values(fact: Fact) -> str:
    """What a fact can be: its words, its range, or its type."""
    if fact.words:
        return " | ".join(fact.words)
    if fact.type != "integer":
        return "true | false"
    lower = "" if fact.minimum is None else f"from {fact.minimum}"
    upper = "" if fact.maximum is None else f"to {fact.maximum}"
    return " ".join(part for part in ("number", lower, upper) if part)
