"""The review of a changed chart: what differs, what that does to its proofs, which conversations it reroutes.

A review is a value (`ChartReview`), and a text for terminals, Markdown for a pull request, or JSON.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import to_builtins

from toolchart.engine.reading.rerouting import OtherWay, UnreadConversation
from toolchart.states.canonical_json import encode_canonical_text
from toolchart.states.chart.document import Chart
from toolchart.states.chart_comparison import (
    ChartComparison,
    EffectChange,
    RowChange,
    StateChange,
    ValueChange,
    compare_charts,
)
from toolchart.states.core.encoding import encode
from toolchart.states.diagram.comparison import build_comparison_diagram
from toolchart.states.diagram.markdown_table import format_code
from toolchart.states.diagram.model import Edge
from toolchart.states.diagram.renderers import draw_diagram
from toolchart.states.events import Limits
from toolchart.states.proofs.check import CheckReport, Finding

_MAX_VALUE_CHARS = 80
"""Characters of a value in text and Markdown; JSON has all of them."""

_CHARS_BEFORE_DIFFERENCE = 20
"""Characters before the first difference of two long values that begin alike."""

_BOUNDS = {
    "model_calls": "model calls",
    "tool_rounds": "rounds of tools",
    "agent_runs": "runs of agents",
    "unknown_agent_runs": "runs of agents of unknown cost",
    "function_calls": "calls of functions",
    "questions": "questions to people",
    "waits": "waits",
    "waiting_s": "seconds of waiting",
}


class ReviewedChart(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two charts, with what was proved of it."""

    name: str
    """As it was named."""
    chart: Chart
    report: CheckReport
    limits: Limits | None = None
    """Those of the agent, or of the newest turn of the conversation; None for a chart alone."""


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """What replaying conversations with the new chart said."""

    replayed: int
    """How many ran the old chart."""
    in_log: int
    """How many the log has."""
    other: tuple[OtherWay, ...] = ()
    unread: tuple[UnreadConversation, ...] = ()


class ChartReview(msgspec.Struct, frozen=True, kw_only=True):
    """Two charts, where they differ, and what follows from that."""

    old: ReviewedChart
    new: ReviewedChart
    comparison: ChartComparison
    limits: tuple[ValueChange, ...] = ()
    bounds: tuple[ValueChange, ...] = ()
    """What one turn can cost at most."""
    new_findings: tuple[Finding, ...] = ()
    gone_findings: tuple[Finding, ...] = ()
    kept_findings: tuple[Finding, ...] = ()
    """Those that both charts have, with the lines of the new one."""
    ways: Ways | None = None
    """None where no log was read."""

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        differences = (self.limits, self.bounds, self.new_findings, self.gone_findings)
        return self.comparison.is_equal and not any(differences)


def review_charts(old: ReviewedChart, new: ReviewedChart) -> ChartReview:
    """Compare two charts and what was proved of them."""
    comparison = compare_charts(old.chart, new.chart)
    old_names = _FindingNames(comparison.renamed, comparison.renamed_timers)
    new_names = _FindingNames({}, {})
    before, after = old_names.count(old.report.findings), new_names.count(new.report.findings)
    return ChartReview(
        old=old,
        new=new,
        comparison=comparison,
        limits=tuple(_compare_limits(old.limits, new.limits)),
        bounds=tuple(_compare_bounds(old.report, new.report)),
        new_findings=tuple(new_names.select(new.report.findings, after - before)),
        gone_findings=tuple(old_names.select(old.report.findings, before - after)),
        kept_findings=tuple(new_names.select(new.report.findings, after & before)),
    )


_FindingKey = tuple[str, str, str | None, str]
"""Kind, state, event and message: not the line."""


class _FindingNames:
    """The findings of a chart under the names of another one.

    A state may be called like a word of a message. So its name counts in quotes, in a label such as `a+b`,
    and in a path such as `a -> b`. A timer is called like no word.

    Args:
        states: by name of a state the one in the other chart, where they differ.
        timers: the same of timers.
    """

    def __init__(self, states: Mapping[str, str], timers: Mapping[str, str]) -> None:
        self._states, self._names = states, {**states, **timers}
        own_states, own_timers = ("|".join(map(re.escape, names)) or "(?!)" for names in (states, timers))
        self._pattern = re.compile(
            rf"(?:(?<=['+])|(?<=-> ))(?:{own_states})\b|\b(?:{own_states})(?=['+]| ->)|\b(?:{own_timers})\b"
        )

    def make_key(self, finding: Finding) -> _FindingKey:
        """What makes a finding the same in both charts."""
        state = "+".join(self._states.get(name, name) for name in finding.state.split("+"))
        event = finding.event and self._rename(finding.event)
        return finding.kind, state, event, self._rename(finding.message)

    def _rename(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._names[match[0]], text)

    def count(self, findings: Iterable[Finding]) -> Counter[_FindingKey]:
        """How often each of some findings occurs."""
        return Counter(map(self.make_key, findings))

    def select(self, findings: Iterable[Finding], wanted: Counter[_FindingKey]) -> Iterator[Finding]:
        """Those of some findings that are wanted, as often as they are."""
        rest = Counter(wanted)
        for finding in findings:
            key = self.make_key(finding)
            if rest[key] > 0:
                rest[key] -= 1
                yield finding


def _compare_limits(old: Limits | None, new: Limits | None) -> Iterator[ValueChange]:
    if old is None or new is None:
        return
    before, after = to_builtins(old), to_builtins(new)
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            texts = [None if side.get(name) is None else f"{side[name]:g}" for side in (before, after)]
            yield ValueChange(name=name, old=texts[0], new=texts[1])


def _compare_bounds(old: CheckReport, new: CheckReport) -> Iterator[ValueChange]:
    if old.worst is None and new.worst is None:
        return
    if old.worst is None or new.worst is None:
        texts = ["no bound" if report.worst is None else "bounded" for report in (old, new)]
        yield ValueChange(name="a turn", old=texts[0], new=texts[1])
    for field, name in _BOUNDS.items():
        before, after = _format_bound(old, field), _format_bound(new, field)
        if before != after:
            yield ValueChange(name=name, old=before, new=after)


def _format_bound(report: CheckReport, field: str) -> str | None:
    if report.worst is None:
        return None
    number = f"{getattr(report.worst, field):g}"
    formula = report.formulas.get(field)
    return f"{number} ({formula})" if formula and formula != number else number


# -- text ----------------------------------------------------------------------------------------


def format_review(review: ChartReview) -> str:
    """A review as text, each difference with its line."""
    lines = [f"{review.old.name} → {review.new.name}"]
    if review.is_equal:
        return "\n".join([*lines, "no difference"]) + "\n"
    sections = {
        "chart": [f"~ {_format_value_change(change)}" for change in review.comparison.others],
        "states": [_format_state(review, change) for change in review.comparison.states],
        "rows": list(_format_rows(review)),
        "effects": [_format_effect(change) for change in review.comparison.effects],
        "limits": [f"~ {_format_value_change(change)}" for change in review.limits],
        "bounds of a turn": [f"~ {_format_value_change(change)}" for change in review.bounds],
        "findings": list(_format_findings(review)),
        "conversations": list(_format_ways(review)),
    }
    for title, entries in sections.items():
        if entries:
            lines += [title, *(f"  {line}" for entry in entries for line in entry.split("\n"))]
    return "\n".join(lines) + "\n"


def _format_value_change(change: ValueChange) -> str:
    old, new = _shorten(change.old), _shorten(change.new)
    if old == new and change.old is not None and change.new is not None:
        old, new = _shorten_at_difference(change.old, change.new)
    return f"{change.name}: {old} → {new}"


def _shorten(text: str | None) -> str:
    return "(none)" if text is None else _cut(" ".join(text.split()))


def _shorten_at_difference(old: str, new: str) -> tuple[str, str]:
    """Two texts whose beginnings are the same, or that differ in white space: from before the place where
    they differ."""
    texts = [" ".join(text.split()) for text in (old, new)]
    if texts[0] == texts[1]:
        texts = [encode_canonical_text(text) for text in (old, new)]
    pairs = enumerate(zip(*texts, strict=False))
    first = next((index for index, (a, b) in pairs if a != b), min(map(len, texts)))
    start = first - _CHARS_BEFORE_DIFFERENCE
    before, after = (_cut(f"...{text[start:]}" if start > 0 else text) for text in texts)
    return before, after


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[: _MAX_VALUE_CHARS - 3]}..."


def _format_state(review: ChartReview, change: StateChange) -> str:
    details = "; ".join(_format_value_change(each) for each in change.details)
    match change.change:
        case "added":
            own = ", ".join(f"{each.name} {_shorten(each.new)}" for each in change.details)
            return _add_line(f"+ {change.new}" + (f": {own}" if own else ""), review.new, change.new_line)
        case "removed":
            return _add_line(f"- {change.old}", review.old, change.old_line)
        case "renamed":
            text = f"~ {change.old} is called {change.new}" + (f"; {details}" if details else "")
            return _add_line(text, review.new, change.new_line)
    return _add_line(f"~ {change.new}: {details}", review.new, change.new_line)


def _format_rows(review: ChartReview) -> Iterator[str]:
    state = None
    for row in review.comparison.rows:
        if row.state != state:
            state = row.state
            yield state
        for line in _format_row(review, row):
            yield f"  {line}"


def _format_row(review: ChartReview, row: RowChange) -> Iterator[str]:
    if row.change == "moved" and row.old is not None and row.new is not None:
        text = f"~ {format_edge(row.new)}, moved from row {row.old.row + 1} to row {row.new.row + 1}"
        yield _add_line(text, review.new, row.new_line)
        return
    if row.old is not None:
        yield _add_line(f"- {format_edge(row.old)}", review.old, row.old_line)
    if row.new is not None:
        yield _add_line(f"+ {format_edge(row.new)}", review.new, row.new_line)
    if row.old is not None and row.new is not None and format_edge(row.old) == format_edge(row.new):
        for change in row.details:  # what the two lines do not show, such as the inside of an `if`
            yield f"  {_format_value_change(change)}"


def format_edge(edge: Edge) -> str:
    """A row as text: `replied [score >= 8] → published / tell`."""
    target = "(stays)" if edge.stays else " ".join(edge.targets) + (" (re-enters)" if edge.reenters else "")
    guard = f" [{edge.guard}]" if edge.guard else ""
    effects = f" / {', '.join(edge.effects)}" if edge.effects else ""
    return f"{edge.event_text or '(at once)'}{guard} → {target}{effects}"


def _format_effect(change: EffectChange) -> str:
    if change.change == "added":
        return f"+ {change.name}: " + ", ".join(f"{d.name} {_shorten(d.new)}" for d in change.details)
    if change.change == "removed":
        return f"- {change.name}"
    return f"~ {change.name}: " + "; ".join(map(_format_value_change, change.details))


def _format_findings(review: ChartReview) -> Iterator[str]:
    for mark, side, findings in (
        ("+", review.new, review.new_findings),
        ("-", review.old, review.gone_findings),
    ):
        for finding in findings:
            yield _add_line(f"{mark} {finding.kind}: {finding.message}", side, finding.line)
            if mark == "+" and finding.run:
                yield f"    run: {' > '.join(finding.run)}"
            if mark == "+" and finding.change:
                yield f"    change: {finding.change}"
    if review.kept_findings:
        number = len(review.kept_findings)
        yield f"  {number} finding{'' if number == 1 else 's'} in both: toolchart check {review.new.name}"


def _add_line(text: str, side: ReviewedChart, line: int | None) -> str:
    return f"{text}  ({side.chart.source or side.name}:{line})" if line else text


def _format_ways(review: ChartReview) -> Iterator[str]:
    ways = review.ways
    if ways is None:
        return
    yield describe_ways(ways, review.old.name)
    for way in ways.other:
        yield f"~ {way.conversation}: {_describe_place(way)}"
        yield f"    - {way.old}"
        yield f"    + {_describe_new_way(way)}"
    for unread in ways.unread:
        yield f"? {unread.conversation} cannot be replayed: {unread.reason}"


def describe_ways(ways: Ways, old: str) -> str:
    """One sentence about the conversations."""
    if not ways.replayed:
        if not ways.in_log:
            return "the log has no conversation"
        return f"none of the {ways.in_log} conversations in the log has the chart of {old}"
    number = len(ways.other)
    head = f"{number} of {ways.replayed} that ran {old} {'goes' if number == 1 else 'go'} another way"
    return head if not ways.unread else f"{head}; {len(ways.unread)} cannot be replayed"


def _describe_place(way: OtherWay) -> str:
    state = f" in {way.state}" if way.state else ""
    return f"record {way.seq}, turn {way.turn}, {way.event}{state}"


def _describe_new_way(way: OtherWay) -> str:
    if way.kind == "content":
        return f"{way.new}, with another content"
    return way.new


# -- Markdown ------------------------------------------------------------------------------------


def format_markdown(review: ChartReview) -> str:
    """A review for a pull request: the differences as a coloured block, the rest as lists, and a picture."""
    lines = [f"### Chart: {format_code(review.old.name)} → {format_code(review.new.name)}", ""]
    if review.is_equal:
        return "\n".join([*lines, "No difference.", ""])
    block = [
        *(f"~ {_format_value_change(change)}" for change in review.comparison.others),
        *(_format_state(review, change) for change in review.comparison.states),
        *(line for row in review.comparison.rows for line in _format_marked_row(review, row)),
        *(_format_effect(change) for change in review.comparison.effects),
        *(f"~ {_format_value_change(change)}" for change in review.limits),
    ]
    if block:
        body = [_mark_change(line) for entry in block for line in entry.split("\n")]
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", "\n".join(body))), default=0))
        lines += [f"{fence}diff", *body, fence, ""]
    if review.bounds:
        lines += ["| a turn at most | before | now |", "| --- | --- | --- |"]
        lines += [
            f"| {change.name} | {_format_cell(change.old or 'none')} | {_format_cell(change.new or 'none')} |"
            for change in review.bounds
        ]
        lines.append("")
    lines += _list_markdown_findings(review)
    lines += _list_markdown_ways(review)
    picture = draw_diagram(build_comparison_diagram(review.comparison), "mermaid")
    lines += ["<details><summary>Picture</summary>", "", "```mermaid", str(picture).rstrip(), "```", ""]
    lines += ["</details>", ""]
    return "\n".join(lines)


def _format_marked_row(review: ChartReview, row: RowChange) -> Iterator[str]:
    for line in _format_row(review, row):
        mark, _, rest = line.partition(" ")
        yield f"{mark} {row.state}: {rest}" if mark in "+-~" and mark else line


def _mark_change(line: str) -> str:
    """A line of a `diff` block: what changed is marked with `!`, which is coloured there."""
    return f"!{line[1:]}" if line.startswith("~") else line


def _list_markdown_findings(review: ChartReview) -> Iterator[str]:
    for title, findings in (("New findings", review.new_findings), ("Gone", review.gone_findings)):
        if findings:
            yield f"**{title}**"
            yield ""
            for finding in findings:
                run = f" (run: {' > '.join(finding.run)})" if finding.run else ""
                yield f"- {finding.kind}: {_escape_text(finding.message + run)}"
            yield ""
    if review.kept_findings:
        yield f"Findings in both: {len(review.kept_findings)}."
        yield ""


def _list_markdown_ways(review: ChartReview) -> Iterator[str]:
    ways = review.ways
    if ways is None:
        return
    sentence = describe_ways(ways, review.old.name)
    yield f"**Conversations**: {_escape_text(sentence)}."
    yield ""
    if ways.other:
        yield "| conversation | where | happened | would happen |"
        yield "| --- | --- | --- | --- |"
        for way in ways.other:
            cells = (way.conversation, _describe_place(way), way.old, _describe_new_way(way))
            yield f"| {' | '.join(map(_format_cell, cells))} |"
        yield ""
    for unread in ways.unread:
        yield f"- {_escape_text(unread.conversation)} cannot be replayed: {_escape_text(unread.reason)}"
    if ways.unread:
        yield ""


_SPECIAL = re.compile(r"([\\`*_<>\[\]#|~&])")


def _escape_text(text: str) -> str:
    """A text of a chart or a log, in one line, so that Markdown and HTML read nothing into it."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _format_cell(text: str) -> str:
    """A text of a chart or a log as a cell of a table."""
    return format_code(" ".join(text.split())).replace("|", "\\|")


# -- JSON ----------------------------------------------------------------------------------------


def encode_review(review: ChartReview) -> dict[str, Any]:
    """A review as JSON data; nothing is shortened."""
    comparison = review.comparison
    return {
        "left": review.old.name,
        "right": review.new.name,
        "equal": review.is_equal,
        "chart": list(map(encode, comparison.others)),
        "states": list(map(encode, comparison.states)),
        "renamed": dict(comparison.renamed),
        "rows": [_encode_row(row) for row in comparison.rows],
        "effects": list(map(encode, comparison.effects)),
        "limits": list(map(encode, review.limits)),
        "bounds": {
            side: {
                "worst": encode(reviewed.report.worst) if reviewed.report.worst else None,
                "formulas": dict(reviewed.report.formulas),
            }
            for side, reviewed in (("left", review.old), ("right", review.new))
        },
        "findings": {
            "new": list(map(encode, review.new_findings)),
            "gone": list(map(encode, review.gone_findings)),
            "both": list(map(encode, review.kept_findings)),
        },
        "conversations": encode(review.ways) if review.ways is not None else None,
    }


def _encode_row(row: RowChange) -> dict[str, Any]:
    sides = {
        side: {"text": format_edge(edge), "row": edge.row, "line": line} if edge is not None else None
        for side, edge, line in (("left", row.old, row.old_line), ("right", row.new, row.new_line))
    }
    return {"change": row.change, "state": row.state, **sides, "details": list(map(encode, row.details))}
