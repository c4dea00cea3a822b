"""What is done with a chart that somebody writes in the browser, in a bounded worker: check, draw, replay.

Nothing here imports or reads what the text names: functions stay names, and `extends` finds the charts that
ship and the files of the operator's folder, no others. The answers are JSON data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from toolchart.app.chart_checks import format_bound
from toolchart.app.server.answers import Refusal
from toolchart.app.server.charts.folder import ChartFolder
from toolchart.app.studio.drawings import draw_for_page
from toolchart.engine.reading.visited_path import find_active_states
from toolchart.specs.charts import list_shipped_charts, read_shipped_chart
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.document import Chart, walk_states
from toolchart.states.chart.loading import parse_chart
from toolchart.states.core.encoding import encode
from toolchart.states.diagram.model import format_guard
from toolchart.states.effects import EffectDescriptor
from toolchart.states.errors import SpecError, suggest_name
from toolchart.states.events import Limits
from toolchart.states.flows.parameters import RunAgentParameters
from toolchart.states.proofs.check import CheckReport, Finding, check
from toolchart.states.proofs.dataflow.agents import FlowAgent, FlowHandler, Hop
from toolchart.testing.counterexamples.replaying import Counterexample, drive_counterexample, name_event
from toolchart.testing.counterexamples.sightings import Moment


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """For which agent a chart is checked; plain values, since they go to another process."""

    risky: bool = True
    limits: Limits | None = None
    unbounded: bool = False
    effects: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The effects that the spec declares, complete; they count before those of the chart."""
    handlers: tuple[FlowHandler, ...] = ()
    user: Hop | None = None


class ChartText(msgspec.Struct, frozen=True, kw_only=True):
    """A chart as it was sent."""

    yaml: str
    source: str
    """How places of it are called: the name of its file."""
    folder: str = ""
    """Where `extends` may find files; empty for nowhere."""
    around: Surroundings = Surroundings()


def examine_chart(chart: ChartText) -> dict[str, Any]:
    """What `check` says about a chart; for a text that is none, `problem` says why, with its line."""
    try:
        parsed = _parse(chart)
        report = _check(chart, parsed)
    except SpecError as error:
        return {**EMPTY_REPORT, "problem": _describe_error(error, chart.source)}
    flaws = [_describe_finding(item, chart.source) for item in report.findings]
    return {
        **EMPTY_REPORT,
        "chart": report.chart,
        "ok": not flaws,
        "verdict": report.verdict,
        "findings": flaws,
        "notes": [_describe_finding(item, chart.source) for item in report.notes],
        "bound": format_bound(report),
        "has_bound": report.worst is not None,
        "places": report.state_count,
        "answers": report.table_size,
        "words": _list_own_words(parsed),
        "without": _name_gaps(chart, parsed),
    }


def draw_chart(chart: ChartText) -> dict[str, Any]:
    """The drawing of a chart as `svg`; where there can be none it is null, and `no_svg` says why.

    `states` has what each state of it says, so that two drawings can be compared.
    """
    drawing = draw_for_page(lambda: _parse(chart))
    return {**drawing, "states": _describe_states(_parse(chart)) if drawing["svg"] else {}}


def replay_finding(chart: ChartText, number: int) -> dict[str, Any]:
    """The counterexample of a finding, driven through the engine, step by step.

    Raises:
        IndexError: the chart has no finding of this number.
        SpecError: the text is no chart.
    """
    parsed = _parse(chart)
    finding = _check(chart, parsed).findings[number]
    run = drive_counterexample(parsed, finding, _build_flow_agent(chart, parsed))
    names = tuple(name_event(moment) for moment in run.moments)
    active = find_active_states(parsed, {moment.step.target for moment in run.moments})
    return {
        "outcome": run.outcome,
        "text": str(Counterexample(outcome=run.outcome, events=names)),
        "steps": [_describe_step(moment, active[moment.step.target]) for moment in run.moments],
    }


EMPTY_REPORT: dict[str, Any] = {
    "chart": "",
    "ok": False,
    "verdict": "",
    "problem": None,
    "findings": [],
    "notes": [],
    "bound": "",
    "has_bound": False,
    "places": 0,
    "answers": 0,
    "words": {"effects": [], "facts": []},
    "without": "",
}
"""A report without anything."""


# -- reading -------------------------------------------------------------------------------------


def _parse(chart: ChartText) -> Chart:
    declare = (lambda own: {**own, **chart.around.effects}) if chart.around.effects else None
    return parse_chart(
        chart.yaml, source=chart.source, resolve=_build_resolver(chart.folder), effects=declare
    )


def _build_resolver(folder: str) -> Callable[[str], str]:
    """The function that finds what `extends` names."""

    def resolve(name: str) -> str:
        if name in list_shipped_charts():
            return read_shipped_chart(name)
        if not folder:
            raise SpecError(
                f"no chart {name[:80]!r} is known here: without --edit only those that ship",
                hint=suggest_name(name, list_shipped_charts()),
            )
        opened = ChartFolder(folder)
        try:
            return opened.read(name).text
        except Refusal as refusal:
            raise SpecError(
                refusal.message,
                hint=f"extend one of {', '.join(list_shipped_charts())}, or a file of {opened.name}",
            ) from None

    return resolve


def _check(chart: ChartText, parsed: Chart) -> CheckReport:
    around = chart.around
    return check(
        parsed,
        limits=around.limits,
        risky=around.risky,
        unbounded=around.unbounded,
        flow_agent=_build_flow_agent(chart, parsed),
    )


def _build_flow_agent(chart: ChartText, parsed: Chart) -> FlowAgent | None:
    """The agent for its data flow; None where the chart runs further agents, since no file is read here."""
    around = chart.around
    if not around.handlers or _runs_agents(parsed):
        return None
    return FlowAgent(
        chart=parsed,
        handlers=around.handlers,
        user=around.user,
        find_place=lambda effect, state: _find_place(parsed, effect, state),
        find_child=_refuse_child,
    )


def _refuse_child(row: EffectDescriptor) -> NoReturn:
    raise SpecError(f"the agent of {row.name!r} is not known here")


def _runs_agents(chart: Chart) -> bool:
    return any(isinstance(row.parameters, RunAgentParameters) for row in chart.vocabulary.declared.values())


def _find_place(chart: Chart, effect: str, state: str) -> str:
    position: Any = ("effects", effect)
    if effect not in chart.effects:
        position = next((place for name, _, place in walk_states(chart) if name == state), position)
    return _format_place(chart.source or chart.name, chart.find_line(position))


# -- answers -------------------------------------------------------------------------------------


def _format_place(source: str, line: int | None) -> str:
    return f"{source}:{line}" if line else source


def _describe_error(error: SpecError, source: str) -> dict[str, Any]:
    return {
        "message": error.message,
        "line": error.line if error.file in (None, source) else None,
        "place": _format_place(error.file or source, error.line),
        "path": error.path or "",
        "hint": error.hint or "",
    }


def _describe_finding(finding: Finding, source: str) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "message": finding.message,
        "state": finding.state,
        "event": finding.event or "",
        "line": finding.line,
        "place": _format_place(source, finding.line) if finding.line else "",
        "run": list(finding.run),
        "change": finding.change,
    }


def _list_own_words(chart: Chart) -> dict[str, Any]:
    """The effects that the chart declares, and the facts of their results."""
    return {
        "effects": [
            {"name": row.name, "meaning": f"{row.kind}: {row.meaning}", "events": list(row.answers)}
            for row in chart.vocabulary.declared.values()
        ],
        "facts": [
            {"name": fact.name, "type": fact.type, "meaning": fact.meaning}
            for fact in chart.vocabulary.result_facts.values()
        ],
    }


def _describe_states(chart: Chart) -> dict[str, Any]:
    """By state: what it says itself, and each of its rows as a reader sees it and as it is compared."""
    return {
        name: {
            "own": _write_whole(
                chart, {key: body[key] for key in body if key not in ("transitions", "states")}
            ),
            "rows": [
                {"event": str(row.get("event")), "text": _describe_row(row), "own": _write_whole(chart, row)}
                for row in body.get("transitions") or ()
            ],
        }
        for name, body, _ in walk_states(chart)
    }


def _write_whole(chart: Chart, part: Mapping[str, Any]) -> str:
    """A part of a chart with the declared effects that it names, as one text."""
    words = [word for value in part.values() for word in _list_words(value)]
    return encode_canonical_text(
        [part, {name: chart.effects[name] for name in chart.effects if name in words}]
    )


def _describe_row(row: Mapping[str, Any]) -> str:
    guard = format_guard(_list_words(row.get("cond")), _list_words(row.get("unless")))
    effects = [word for slot in ("before", "on", "after") for word in _list_words(row.get(slot))]
    words = [
        str(row.get("event")),
        f"[{guard}]" if guard else "",
        f"/ {', '.join(effects)}" if effects else "",
    ]
    words.append(f"→ {row['target']}" if row.get("target") else "stays")
    return " ".join(word for word in words if word)


def _list_words(value: Any) -> list[str]:
    """The texts of a value that is one, or a list of some."""
    return [str(entry) for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, str)]


def _name_gaps(chart: ChartText, parsed: Chart) -> str:
    """What was not looked at, in words."""
    if not _runs_agents(parsed):
        return ""
    parts = ["what its agents cost", *(["the data flow through them"] if chart.around.handlers else [])]
    return f"not looked at here: {' and '.join(parts)}; `toolchart check` of the agent does"


def _describe_step(moment: Moment, active: tuple[str, ...]) -> dict[str, Any]:
    step = moment.step
    return {
        "event": name_event(moment),
        "source": step.source,
        "target": step.target,
        "active": list(active),
        "fired": [[row.source, row.row] for row in step.fired],
        "guards": dict(step.guards),
        "asks": [effect.name for effect in step.effects],
        "cancels": len(step.cancels),
        "brought": _summarize(encode(moment.event)),
    }


def _summarize(event: Any) -> dict[str, Any]:
    """What an event brought, without what every event has."""
    return {key: value for key, value in event.items() if key not in ("type", "at", "effect")}


def prepare() -> None:
    """Check one chart of ours, so that what is imported late and remembered is there for every worker."""
    examine_chart(ChartText(yaml=read_shipped_chart("tool_loop"), source="tool_loop"))
