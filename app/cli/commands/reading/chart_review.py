"""What `toolchart diff` does with two charts."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import find_conversation, open_log_for_reading, print_json
from toolchart.app.cli.parameters.charts import ChartSubject, load_subject, suggest_chart
from toolchart.app.cli.parameters.options import format_command
from toolchart.app.cli.terminal.drawings import find_form, write_drawing
from toolchart.app.cli.terminal.progress import track_progress
from toolchart.app.cli.terminal.text import print_text
from toolchart.engine.log.stores import DEFAULT_LOG
from toolchart.states.errors import NotFound, SpecError
from toolchart.states.visible_text import make_visible

if TYPE_CHECKING:
    from toolchart.app.chart_reviews import ChartReview, ReviewedChart, Ways
    from toolchart.states.events import Limits
    from toolchart.states.ports import Store

_TEXT_FORMS = ("text", "markdown")
_PICTURES = ("svg", "png", "mermaid", "dot", "table")
FORMS = (*_TEXT_FORMS, *_PICTURES)
"""What two charts are written as; `table` and all before it but the texts are pictures of both."""

_FORMATS_BY_ENDING = {
    ".txt": "text",
    ".md": "markdown",
    ".svg": "svg",
    ".png": "png",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
}


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """LEFT or RIGHT."""

    name: str
    subject: ChartSubject | None
    """None for a conversation."""


def find_reviewed(left: str, right: str, is_of_charts: bool) -> tuple[Named, Named] | None:
    """What LEFT and RIGHT name, if their charts are to be compared; None for two conversations.

    Args:
        is_of_charts: whether the charts of two conversations are compared.

    Raises:
        SpecError: a chart cannot be loaded.
    """
    old, new = (Named(name=name, subject=load_subject(name)) for name in (left, right))
    if old.subject is None and new.subject is None and not is_of_charts:
        if Path(left).suffix in (".yaml", ".yml") or Path(right).suffix in (".yaml", ".yml"):
            missing = left if Path(left).suffix in (".yaml", ".yml") else right
            raise SpecError(f"there is no file {missing!r}")
        return None
    return old, new


def review(
    sides: tuple[Named, Named],
    form: str | None,
    output: str | None,
    conversations: tuple[str, ...],
    *,
    as_json: bool,
    log: str | None,
) -> int:
    """Compare two charts, and print or write what differs.

    Returns:
        The exit code.

    Raises:
        SpecError: one side is no chart and no conversation, or FILE cannot be written.
        LogUnavailable, LogDamaged: the log that was named, or that a conversation stands in, cannot be read.
    """
    from toolchart.app.chart_reviews import encode_review

    form = form or find_form(output or "", _FORMATS_BY_ENDING, "text")
    with _open_log(sides, conversations, log) as store:
        result = _build_review(sides, store, conversations)
    if as_json:
        print_json(encode_review(result))
    elif output is None and form in _TEXT_FORMS:
        print_text(_write_text(result, form).rstrip("\n"))
    else:
        write_drawing(_render(result, form), output)
    return SUCCESS if result.is_equal else NEGATIVE


def _open_log(
    sides: tuple[Named, Named], conversations: tuple[str, ...], log: str | None
) -> AbstractContextManager[Store | None]:
    """The log. Two charts can be compared where there is none, if no one names one."""
    needs_log = conversations or log is not None or any(side.subject is None for side in sides)
    if not needs_log and not Path(DEFAULT_LOG).exists():
        return nullcontext()
    return open_log_for_reading(log)


# -- the two charts ------------------------------------------------------------------------------


def _build_review(
    sides: tuple[Named, Named], store: Store | None, conversations: tuple[str, ...]
) -> ChartReview:
    from toolchart.app.chart_reviews import review_charts

    old, new = (_review_chart(side, other, store) for side, other in (sides, sides[::-1]))
    result = review_charts(old, new)
    if store is None or result.is_equal:
        return result
    if sides[0].subject is None and not conversations:
        conversations = (sides[0].name,)
    return msgspec.structs.replace(result, ways=_replay(result, store, conversations))


def _review_chart(side: Named, other: Named, store: Store | None) -> ReviewedChart:
    """One side with what is proved of it. A chart alone is proved as if the other agent ran it."""
    from toolchart.app.chart_reviews import ReviewedChart
    from toolchart.specs.agent_costs import find_widest_limits
    from toolchart.states.proofs.check import check

    limits: Limits | None = None
    subject = side.subject
    if subject is None:
        assert store is not None, "a conversation stands in a log"
        subject, limits = _load_recorded(side.name, store)
    spec = subject.spec
    options = dict(subject.options)
    if spec is not None:
        limits = find_widest_limits(spec)
    elif other.subject is not None and other.subject.spec is not None:
        options = _adapt_options(other.subject, subject)
    elif limits is not None:
        options["limits"] = limits
    return ReviewedChart(
        name=side.name, chart=subject.chart, report=check(subject.chart, **options), limits=limits
    )


def _adapt_options(agent: ChartSubject, subject: ChartSubject) -> dict[str, Any]:
    """The options of an agent for another chart than its own."""
    from toolchart.tools.data_flow import describe_data_flow, may_ask

    flow_agent = describe_data_flow(agent.spec, subject.chart, functions=agent.functions)
    risky = may_ask(agent.spec, subject.chart, agent.functions)
    return {**agent.options, "flow_agent": flow_agent, "risky": risky}


def _load_recorded(name: str, store: Store) -> tuple[ChartSubject, Limits | None]:
    """The newest chart of a conversation, and the limits of its newest turn.

    Raises:
        SpecError: there is no chart and no conversation of this name.
    """
    from toolchart.engine.reading.steps import read_configured, read_turn_start
    from toolchart.engine.reading.visited_path import read_chart
    from toolchart.states.events import TurnStarted

    try:
        conversation = find_conversation(store, name)
    except NotFound as error:
        raise SpecError(
            f"{name!r} is not a chart, an agent, a file or a conversation",
            hint=f"{suggest_chart(name)}; conversations: {error.hint or error}",
        ) from None
    configured = read_configured(store, conversation)
    start = read_turn_start(store, conversation)
    event = start.decode_known_fields() if start is not None else None
    limits = event.settings.limits if isinstance(event, TurnStarted) else None
    risky = configured is not None and bool(configured.tools)
    chart = read_chart(store, conversation)
    return ChartSubject(chart=chart, options={"risky": risky}), limits


# -- conversations -------------------------------------------------------------------------------


def _replay(result: ChartReview, store: Store, prefixes: tuple[str, ...]) -> Ways:
    """Replay the conversations that ran the old chart, or those that are named, with the new one.

    Raises:
        SpecError: a conversation that is named never ran the old chart.
    """
    from toolchart.app.chart_reviews import Ways
    from toolchart.engine.reading.rerouting import OtherWay, Rerouting, UnreadConversation

    rerouting = Rerouting(
        result.old.chart,
        result.new.chart,
        renamed={**result.comparison.renamed, **result.comparison.renamed_timers},
        limits={change.name: getattr(result.new.limits, change.name) for change in result.limits},
    )
    every = list(store.list_conversations())
    names = list(dict.fromkeys(find_conversation(store, prefix) for prefix in prefixes))
    for name in names:
        if not rerouting.has_run_old_chart(store, name):
            raise SpecError(
                f"the conversation {name!r} never ran the chart of {result.old.name}",
                path="--conversation",
                hint=f"its own chart is compared by: {format_command('diff', name, result.new.name)}",
            )
    names = names or rerouting.list_conversations(store)
    outcomes = [
        rerouting.find_other_way(store, name) for name in track_progress(names, "replaying", len(names))
    ]
    return Ways(
        replayed=len(names),
        in_log=len(every),
        other=tuple(outcome for outcome in outcomes if isinstance(outcome, OtherWay)),
        unread=tuple(outcome for outcome in outcomes if isinstance(outcome, UnreadConversation)),
    )


# -- output --------------------------------------------------------------------------------------


def _write_text(result: ChartReview, form: str) -> str:
    from toolchart.app.chart_reviews import format_markdown, format_review

    return format_markdown(result) if form == "markdown" else format_review(result)


def _render(result: ChartReview, form: str) -> str | bytes:
    from toolchart.states.diagram.comparison import build_comparison_diagram
    from toolchart.states.diagram.renderers import draw_diagram

    if form in _TEXT_FORMS:
        return make_visible(_write_text(result, form))
    return draw_diagram(build_comparison_diagram(result.comparison), form)
