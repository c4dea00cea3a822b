"""The workbench of a site: charts of the browser go to bounded workers, and to the operator's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from toolchart.app.server.access.rates import Slots
from toolchart.app.server.answers import Refusal
from toolchart.app.server.charts.folder import MAX_NAME_CHARACTERS, ChartFolder
from toolchart.app.server.charts.work import EMPTY_REPORT, ChartText, Surroundings
from toolchart.app.server.site import Site
from toolchart.engine.runtime.engine import Engine
from toolchart.states.chart.document import Chart
from toolchart.states.chart.yaml_document import CHART_LIMITS, write_yaml
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.tools.data_flow import describe_agent_chart
from toolchart.workers.pool import BoundExceeded, Work, WorkFailed, run_bounded_async

_WORK = "toolchart.app.server.charts.work"
_NAME = "charts"

NO_FOLDER = (
    "this server saves no charts; start it with --edit FOLDER to let tokens with the role edit save there"
)


class Workbench:
    """Checks, draws and saves charts for one site.

    Each piece of work runs in a process of its own, at most `Limits.check_s` seconds long, and at most
    `Limits.checks` run at the same time.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._slots = Slots("checks of charts", site.limits.checks)
        folder, files = site.settings.edit_folder, site.limits.chart_files
        self.folder = ChartFolder(folder, _list_agent_files(site.engine), files=files) if folder else None
        self._agent: Surroundings | None = None

    def require_folder(self) -> ChartFolder:
        """The operator's folder.

        Raises:
            Refusal: 409; the operator opened none.
        """
        if self.folder is None:
            raise Refusal(409, NO_FOLDER)
        return self.folder

    def find_agent_file(self) -> str:
        """The name of the agent's chart in the operator's folder; empty where it is none of its files."""
        spec = self._site.engine.spec
        if self.folder is None or not isinstance(spec.chart, str):
            return ""
        for base in (Path(spec.source).parent if spec.source else Path(), Path()):
            path = (base / spec.chart).absolute()
            if path.is_file():
                is_inside = path.parent.resolve() == self.folder.path.resolve()
                return path.name if is_inside and self.folder.has_chart(path.name) else ""
        return ""

    async def make_text(self, text: str, name: str, *, for_agent: bool) -> ChartText:
        """A chart as a worker takes it.

        Args:
            name: that of its file, for places in findings.
            for_agent: whether it is checked with limits, tools and trust of the site's agent; else as
                `toolchart check FILE` does.

        Raises:
            Refusal: 413; the text is too long.
        """
        if len(text) > CHART_LIMITS.characters:
            raise Refusal(413, f"a chart has at most {CHART_LIMITS.characters:,} characters")
        around = await asyncio.to_thread(self._describe_agent) if for_agent else Surroundings()
        folder = str(self.folder.path.absolute()) if self.folder else ""
        return ChartText(
            yaml=text, source=name[:MAX_NAME_CHARACTERS] or "chart.yaml", folder=folder, around=around
        )

    async def check(self, chart: ChartText) -> dict[str, Any]:
        """What `check` says about a chart.

        Raises:
            Refusal: 429; too many charts are checked now.
        """
        with self._slots.hold():
            return _complete_report(await self._run_work("examine_chart", chart=chart))

    async def examine(self, chart: ChartText) -> dict[str, Any]:
        """What `check` says about a chart, and its drawing; two workers, so that one may fail alone.

        Raises:
            Refusal: 429; too many charts are checked now.
        """
        with self._slots.hold():
            report, drawing = await asyncio.gather(
                self._run_work("examine_chart", chart=chart), self._run_work("draw_chart", chart=chart)
            )
        return {**_complete_report(report), **_complete_drawing(drawing)}

    async def replay(self, chart: ChartText, number: int) -> dict[str, Any]:
        """The counterexample of a finding of a chart, driven through the engine.

        Raises:
            Refusal: 404 where the chart has no finding of this number, 422 where no run could be made, 429
                where too many charts are checked now.
        """
        with self._slots.hold():
            answer = await self._run_work("replay_finding", chart=chart, number=number)
        if answer.get("kind") == IndexError.__name__:
            raise Refusal(404, f"the chart has no finding {number}; check it again")
        if "failed" in answer:
            raise Refusal(422, f"no run could be made: {answer['failed']}")
        return answer

    async def _run_work(self, function: str, **arguments: Any) -> dict[str, Any]:
        """What a function of the worker answers; `failed` says why there is no answer."""
        limit_s = self._site.limits.check_s
        work = Work(module=_WORK, function=function, arguments=arguments, preload=(_WORK,))
        try:
            answer: dict[str, Any] = await run_bounded_async(work, timeout_s=limit_s)
        except BoundExceeded as error:
            reason = f"it was not ready after {limit_s:g} s" if error.limit == "time" else str(error)
            return {"failed": reason}
        except WorkFailed as failure:
            return {"failed": failure.text or failure.kind, "kind": failure.kind}
        return answer

    def _describe_agent(self) -> Surroundings:
        """What the check of a chart needs to know of the agent; made once, since agents do not change."""
        if self._agent is None:
            self._agent = describe_surroundings(self._site.engine)
        return self._agent


def _list_agent_files(engine: Engine) -> list[str]:
    """The file of the agent, and those of the agents that its chart runs."""
    runs = [row.parameters for row in engine.chart.vocabulary.declared.values()]
    specs = [run.spec for run in runs if isinstance(run, RunAgentParameters) and run.spec]
    return [*filter(None, [engine.spec.source]), *specs]


def _complete_report(answer: dict[str, Any]) -> dict[str, Any]:
    if "failed" not in answer:
        return answer
    hint = "make the chart smaller, or use `toolchart check`, which has no limit"
    problem = {
        "message": f"no check: {answer['failed']}",
        "hint": hint,
        "line": None,
        "place": "",
        "path": "",
    }
    return {**EMPTY_REPORT, "problem": problem}


def _complete_drawing(answer: dict[str, Any]) -> dict[str, Any]:
    if "failed" not in answer:
        return answer
    return {"svg": None, "no_svg": f"The chart cannot be drawn: {answer['failed']}"}


def find_workbench(site: Site) -> Workbench:
    """The workbench of a site, made when it is first needed."""
    workbench: Workbench | None = site.running.get(_NAME)
    if workbench is None:
        workbench = site.running[_NAME] = Workbench(site)
    return workbench


def describe_surroundings(engine: Engine) -> Surroundings:
    """What the check of a chart needs to know of an agent, as plain values."""
    spec = engine.spec
    chart, options = describe_agent_chart(spec, engine.tools.functions)
    flow = options["flow_agent"]
    return Surroundings(
        risky=options["risky"],
        limits=options["limits"],
        unbounded=options["unbounded"],
        effects={name: chart.effects[name] for name in spec.effects or () if name in chart.effects},
        handlers=flow.handlers,
        user=flow.user,
    )


def write_whole_chart(chart: Chart) -> str:
    """The YAML of a resolved chart with the effects that are in force: a file of its own."""
    document = {**chart.document, **({"effects": dict(chart.effects)} if chart.effects else {})}
    return write_yaml(document, default_flow_style=None, width=100)
