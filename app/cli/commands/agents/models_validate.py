"""`toolchart models validate`: test how well a model calls tools, and save the score."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import json_option, load_named_spec
from toolchart.app.cli.terminal.output import echo
from toolchart.app.cli.terminal.text import print_notice, shorten, style_text
from toolchart.states.errors import SpecError, suggest_name
from toolchart.tools.validation.runner import run_suite, summarize_outcomes
from toolchart.tools.validation.suites import load_suite
from toolchart.tools.validation.tracker import THRESHOLD, Tracker, compute_wilson_interval

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec, LLMConfig
    from toolchart.states.ports import Provider
    from toolchart.tools.validation.cases import Case
    from toolchart.tools.validation.runner import Outcome
    from toolchart.tools.validation.tracker import ModelRating, Tracker

results_option = click.option(
    "--results",
    default=".toolchart/models.json",
    metavar="FILE",
    envvar="TOOLCHART_MODELS",
    show_envvar=True,
    show_default=True,
    help="File with the test results.",
)


@click.command("validate", short_help="Test how well a model calls tools.")
@click.argument("spec")
@click.option("--llm", metavar="NAME", help="Entry of `llms`. Default: the first.")
@click.option("--model", metavar="NAME", help="Model to test. Default: the model of the entry.")
@click.option(
    "--suite",
    default="basic",
    metavar="SUITE",
    show_default=True,
    help="basic, or a file with your own cases.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of cases per category.")
@results_option
@json_option
def validate_command(
    spec: str, llm: str | None, model: str | None, suite: str, limit: int | None, results: str, as_json: bool
) -> int:
    """Send the questions of a suite to a model of the agent SPEC, and score the tool calls that it makes.

    Each result is saved at once, so several tests can run at the same time and an interrupted test loses
    nothing. A model counts as validated from a success rate of 0.8. Exits with 1 if this run is below that,
    or no question could be asked.

    \b
    Example:  toolchart models validate ollama --model qwen3:8b
              toolchart models validate agent.yaml --llm box --limit 20
              toolchart models validate agent.yaml --suite cases.yaml --json | jq .rate
    """
    from toolchart.engine.runtime.model_hosts import create_model_provider

    agent = load_named_spec(spec)
    entry, name = _find_llm(agent, llm), llm or next(iter(agent.llms))
    model_name = model or entry.model or _find_handler_model(agent, name)
    cases = _limit_cases(load_suite(suite), limit)
    folder = Path(agent.source).parent if agent.source else None
    provider = create_model_provider(entry, f"llms.{name}", beside=folder)
    tracker = Tracker(results)
    outcomes = asyncio.run(_run_cases(provider, model_name, cases, suite, tracker))
    rating = tracker.list_ratings().get(f"{provider.name}/{model_name}")
    return _report_outcomes(f"{provider.name}/{model_name}", suite, outcomes, rating, as_json)


def _find_llm(agent: AgentSpec, llm: str | None) -> LLMConfig:
    if llm is not None and llm not in agent.llms:
        raise SpecError(
            f"there is no llm {llm!r}", file=agent.source, path="llms", hint=suggest_name(llm, agent.llms)
        )
    return agent.llms[llm] if llm is not None else next(iter(agent.llms.values()))


def _find_handler_model(agent: AgentSpec, name: str) -> str:
    """Return the model of the first handler that uses this entry.

    Raises:
        SpecError: no handler names a model.
    """
    for handler in agent.responses:
        if handler.llm == name and handler.model:
            return handler.model
    raise SpecError("no model is set", file=agent.source, path=f"llms.{name}.model", hint="use --model NAME")


def _limit_cases(cases: Sequence[Case], limit: int | None) -> list[Case]:
    """Return the first `limit` cases of each category."""
    if limit is None:
        return list(cases)
    counts: dict[str, int] = {}
    selection = []
    for case in cases:
        counts[case.category] = counts.get(case.category, 0) + 1
        if counts[case.category] <= limit:
            selection.append(case)
    return selection


async def _run_cases(
    provider: Provider, model: str, cases: Sequence[Case], suite: str, tracker: Tracker
) -> list[Outcome]:
    outcomes: list[Outcome] = []
    try:
        stream = run_suite(provider, model, cases, suite=suite, tracker=tracker)
        async with aclosing(stream):
            async for outcome in stream:
                outcomes.append(outcome)
                _print_outcome(outcome, len(outcomes), len(cases))
    finally:
        await provider.aclose()
    return outcomes


def _print_outcome(outcome: Outcome, number: int, total: int) -> None:
    mark = "?" if outcome.error else "ok" if outcome.passed else "FAILED"
    reason = f"  {shorten(outcome.reason, 200)}" if outcome.reason else ""
    print_notice(f"{number}/{total}  {mark:<6}  {outcome.case.id}{reason}")


def _report_outcomes(
    name: str, suite: str, outcomes: Sequence[Outcome], rating: ModelRating | None, as_json: bool
) -> int:
    summary = summarize_outcomes(outcomes)
    total = summary.passed + summary.failed
    rate = summary.passed / total if total else 0.0
    interval = compute_wilson_interval(summary.passed, total)
    if as_json:
        rows: dict[str, Any] = {
            "model": name,
            "suite": suite,
            "passed": summary.passed,
            "total": total,
            "rate": rate,
            "interval": list(interval),
            "not_asked": summary.errors,
            "categories": {key: list(counts) for key, counts in summary.by_category.items()},
            "standing": encode_rating(rating),
        }
        print_json(rows)
    else:
        for category, (passed, count) in summary.by_category.items():
            echo(f"{category:<28}  {passed:>4} of {count}")
        interval_text = f"{rate:.0%}, 95 % between {interval[0]:.0%} and {interval[1]:.0%}"
        echo(style_text(f"{name}  {summary.passed} of {total}  ({interval_text})", bold=True))
        if rating is not None:
            echo(f"saved results: {format_badge(rating)}")
    if summary.errors:
        print_notice(f"{summary.errors} cases could not be asked and were not saved")
    return SUCCESS if total and rate >= THRESHOLD else NEGATIVE


def format_badge(rating: ModelRating | None) -> str:
    """Return a model's saved rating in two words.

    >>> format_badge(None)
    '-'
    """
    if rating is None:
        return "-"
    label = "validated" if rating.is_validated else "tested"
    return f"{label} {rating.passed}/{rating.total}"


def encode_rating(rating: ModelRating | None) -> dict[str, Any] | None:
    """Return a model's saved rating for JSON output."""
    if rating is None:
        return None
    return {
        "validated": rating.is_validated,
        "passed": rating.passed,
        "total": rating.total,
        "rate": rating.success_rate,
        "interval": list(rating.confidence_interval),
        "last_tested": rating.last_tested,
        "categories": {key: list(counts) for key, counts in rating.categories.items()},
    }
