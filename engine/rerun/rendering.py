"""Reports of reruns for other programs and for people: JUnit XML, and one HTML page.

Models, tools and users can have written any of these texts. Every text is made visible
(`states/visible_text.py`) and then escaped, in one place for each form.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from toolchart.engine.rerun.comparison import FirstDifference
from toolchart.engine.rerun.judges import RunView
from toolchart.engine.rerun.report import RerunReport, RerunResult
from toolchart.states.messages import Usage
from toolchart.states.visible_text import make_visible

_MAX_VALUE_CHARACTERS = 400

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c2128;"
    "background:#fff}table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.4rem .6rem;"
    "border-bottom:1px solid #d0d7de;vertical-align:top}td.n{text-align:right}code,pre{font:13px/1.45 "
    "ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere}.ok{color:#116329}.no{color:#a40e26}"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}"
    ".ok{color:#56d364}.no{color:#ff7b72}}"
)


def render_json(report: RerunReport) -> str:
    """The report as JSON."""
    return json.dumps(report.to_dict(), indent=2) + "\n"


def render_junit(report: RerunReport) -> str:
    """The report as JUnit XML: one test case per conversation."""
    totals = report.totals
    suite = ElementTree.Element(
        "testsuite",
        name="toolchart rerun",
        tests=str(totals.conversations),
        failures=str(sum(not r.is_accepted and r.status != "failed" for r in report.results)),
        errors=str(sum(not r.is_accepted and r.status == "failed" for r in report.results)),
        skipped=str(totals.statuses["skipped"]),
    )
    for result in report.results:
        _add_case(suite, result)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_case(suite: ElementTree.Element, result: RerunResult) -> None:
    seconds = result.rerun.seconds if result.rerun is not None else 0.0
    case = ElementTree.SubElement(
        suite, "testcase", classname="rerun", name=make_visible(result.conversation), time=f"{seconds:.3f}"
    )
    if result.status == "skipped":
        ElementTree.SubElement(case, "skipped", message=make_visible(result.reason))
    elif not result.is_accepted:
        tag = "error" if result.status == "failed" else "failure"
        element = ElementTree.SubElement(
            case, tag, type=result.status, message=make_visible(summarize_result(result))
        )
        element.text = make_visible(describe_difference(result))


def summarize_result(result: RerunResult) -> str:
    """One line: why a result is what it is."""
    parts = [result.reason] if result.reason else []
    parts += [f"{j.judge}: {j.reason or 'did not pass'}" for j in result.judgements if not j.passed]
    if result.first is not None and not result.reason:
        parts.insert(
            0, f"differs at record {_name_seq(result.first.recorded_seq)}: {_name_place(result.first)}"
        )
    return "; ".join(parts)


def describe_difference(result: RerunResult) -> str:
    """The first difference with both values, for people; empty where there is none."""
    first = result.first
    if first is None:
        return ""
    lines = [
        f"record {_name_seq(first.recorded_seq)} of the recording and {_name_seq(first.rerun_seq)} of the "
        f"rerun: {_name_place(first)}",
        f"  recorded: {_shorten(first.recorded)}",
        f"  rerun:    {_shorten(first.rerun)}",
        *(f"  request:  {text}" for text in result.request_differences),
    ]
    return "\n".join(lines)


def _name_seq(seq: int | None) -> str:
    return "(none)" if seq is None else str(seq)


def _name_place(first: FirstDifference) -> str:
    return f"{first.event} {first.pointer}".rstrip()


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[: _MAX_VALUE_CHARACTERS - 3] + "..."


# -- HTML ------------------------------------------------------------------------------------------


def _escape(text: object) -> str:
    """The only way in which a text reaches the page."""
    return html.escape(make_visible(str(text)), quote=True)


def _tag(name: str, content: str, css: str = "") -> str:
    return f'<{name} class="{css}">{content}</{name}>' if css else f"<{name}>{content}</{name}>"


def render_html(report: RerunReport) -> str:
    """The report as one HTML page that loads nothing."""
    totals = report.totals
    counts = ", ".join(f"{count} {status}" for status, count in totals.statuses.items() if count)
    verdict = _tag("strong", "passed", "ok") if report.has_passed else _tag("strong", "not passed", "no")
    figures = _tag(
        "table",
        "".join(
            _render_row("th", row) if n == 0 else _render_row("td", row)
            for n, row in enumerate(_list_totals(report))
        ),
    )
    rows = "".join(map(_render_result, report.results))
    head = _render_row("th", ("conversation", "result", "why", "tokens", "cost", "seconds"))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Rerun</title><style>{_STYLE}</style></head><body>"
        f"<h1>Rerun of {totals.conversations} conversations</h1>"
        f"<p>{verdict}: {_escape(counts)}. {totals.known} known from the baseline, {totals.failed} new.</p>"
        f"{figures}<h2>Conversations</h2><table>{head}{rows}</table></body></html>\n"
    )


def _list_totals(report: RerunReport) -> list[tuple[str, ...]]:
    totals = report.totals
    return [
        ("", "tokens", "cost", "seconds of model calls"),
        ("recorded", *_format_usage(totals.recorded_usage), f"{totals.recorded_seconds:.3f}"),
        ("rerun", *_format_usage(totals.rerun_usage), f"{totals.rerun_seconds:.3f}"),
    ]


def _format_usage(usage: Usage) -> tuple[str, str]:
    tokens = (usage.input or 0) + (usage.output or 0) if (usage.input, usage.output) != (None, None) else None
    return ("" if tokens is None else str(tokens), "" if usage.cost is None else f"{usage.cost:.6f}")


def _render_row(tag: str, cells: tuple[str, ...]) -> str:
    return _tag("tr", "".join(_tag(tag, _escape(cell)) for cell in cells))


def _render_result(result: RerunResult) -> str:
    word = f"{result.status} (known)" if result.is_known and not result.has_passed else result.status
    details = describe_difference(result)
    why = _escape(summarize_result(result))
    if details:
        why += f"<details><summary>first difference</summary><pre>{_escape(details)}</pre></details>"
    cells = [
        _tag("td", _tag("code", _escape(result.conversation))),
        _tag("td", _escape(word), "ok" if result.is_accepted else "no"),
        _tag("td", why),
        *(_tag("td", _escape(text), "n") for text in _list_changes(result)),
    ]
    return _tag("tr", "".join(cells))


def _list_changes(result: RerunResult) -> list[str]:
    """Tokens, cost and seconds as `recorded → rerun`."""

    def compare(read: Callable[[RunView], str]) -> str:
        values = [read(run) for run in (result.recorded, result.rerun) if run is not None]
        return values[0] if len(set(values)) == 1 else " → ".join(values)

    return [
        compare(lambda run: _format_usage(run.usage)[0]),
        compare(lambda run: _format_usage(run.usage)[1]),
        compare(lambda run: f"{run.seconds:.3f}"),
    ]


RENDERERS: dict[str, Callable[[RerunReport], str]] = {
    "json": render_json,
    "junit": render_junit,
    "html": render_html,
}
"""Each form of a report by its name."""
