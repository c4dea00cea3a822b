"""`toolchart models validate`: can this model call tools? Asked, scored and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import DONE, NO
from toolchart.app.cli.log_access import json_option, print_json
from toolchart.app.cli.terminal.text import short, styled, talk
from toolchart.states.errors import SpecError
from toolchart.states.suggestions import nearest

if TYPE_CHECKING:
    from toolchart.specs.models import AgentSpec, LLMConfig
    from toolchart.states.ports import Provider
    from toolchart.tools.validation.cases import Case
    from toolchart.tools.validation.runner import Outcome
    from toolchart.tools.validation.tracker import Standing, Tracker

results_option = click.option(
    "--results",
    default=".toolchart/models.json",
    metavar="FILE",
    envvar="TOOLCHART_MODELS",
    show_envvar=True,
    show_default=True,
    help="The record of what was tested.",
)


@click.command("validate", short_help="Test how well a model calls tools.")
@click.argument("spec")
@click.option("--llm", metavar="NAME", help="Entry of `llms`; without it the first.")
@click.option("--model", metavar="NAME", help="Model; without it that of the entry.")
@click.option(
    "--suite",
    default="basic",
    metavar="SUITE",
    show_default=True,
    help="basic, bfcl (with --questions), or a file: BFCL questions or cases of your own.",
)
@click.option("--questions", type=click.Path(), metavar="FOLDER", help="BFCL's question files.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Cases of each category at most."
)
@results_option
@json_option
def validate_command(
    spec: str,
    llm: str | None,
    model: str | None,
    suite: str,
    questions: str | None,
    limit: int | None,
    results: str,
    as_json: bool,
) -> int:
    """Ask a model of the agent SPEC the questions of a suite, and judge the tool calls it makes.

    Each result is written to the record at once, so that several may test at the same time and a test
    that was stopped is not lost; a model is validated from a success rate of 0.8 on. Exits with 1 where
    this run stays below, or nothing could be asked.

    \b
    Example:  toolchart models validate ollama --model qwen3:8b
              toolchart models validate agent.yaml --llm box --suite bfcl --questions bfcl --limit 20
              toolchart models validate agent.yaml --suite cases.yaml --json | jq .rate
    """
    from toolchart.engine.runtime.model_hosts import model_host
    from toolchart.specs.loader import load_spec
    from toolchart.tools.validation.suites import load_suite
    from toolchart.tools.validation.tracker import Tracker

    agent = load_spec(spec)
    entry, name = _host(agent, llm), llm or next(iter(agent.llms))
    chosen = model or entry.model or _model_of_handler(agent, name)
    cases = _limited(load_suite(suite, bfcl=Path(questions) if questions else None), limit)
    beside = Path(agent.source).parent if agent.source else None
    provider = model_host(entry, f"llms.{name}", beside=beside)
    tracker = Tracker(results)
    outcomes = asyncio.run(_asked(provider, chosen, cases, suite, tracker))
    standing = tracker.standings().get(f"{provider.name}/{chosen}")
    return _tell(f"{provider.name}/{chosen}", suite, outcomes, standing, as_json)


def _host(agent: AgentSpec, llm: str | None) -> LLMConfig:
    if llm is not None and llm not in agent.llms:
        raise SpecError(
            f"there is no llm {llm!r}",
            file=agent.source,
            path="llms",
            hint=nearest(llm, agent.llms),
        )
    return agent.llms[llm] if llm is not None else next(iter(agent.llms.values()))


def _model_of_handler(agent: AgentSpec, name: str) -> str:
    """The model of the first handler that speaks to this host.

    Raises:
        SpecError: none is named.
    """
    for handler in agent.responses:
        if handler.llm == name and handler.model:
            return handler.model
    raise SpecError(
        "no model is named", file=agent.source, path=f"llms.{name}.model", hint="--model NAME"
    )


def _limited(cases: Sequence[Case], limit: int | None) -> list[Case]:
    """The first cases of each category."""
    if limit is None:
        return list(cases)
    counts: dict[str, int] = {}
    kept = []
    for case in cases:
        counts[case.category] = counts.get(case.category, 0) + 1
        if counts[case.category] <= limit:
            kept.append(case)
    return kept


async def _asked(
    provider: Provider, model: str, cases: Sequence[Case], suite: str, tracker: Tracker
) -> list[Outcome]:
    from toolchart.tools.validation.runner import run_suite

    done: list[Outcome] = []
    try:
        running = run_suite(provider, model, cases, suite=suite, tracker=tracker)
        async with aclosing(running) as outcomes:
            async for outcome in outcomes:
                done.append(outcome)
                _tell_one(outcome, len(done), len(cases))
    finally:
        await provider.aclose()
    return done


def _tell_one(outcome: Outcome, number: int, total: int) -> None:
    mark = "?" if outcome.error else "ok" if outcome.passed else "FAILED"
    why = f"  {short(outcome.reason, 200)}" if outcome.reason else ""
    talk(f"{number}/{total}  {mark:<6}  {outcome.case.id}{why}")


def _tell(
    name: str, suite: str, outcomes: Sequence[Outcome], standing: Standing | None, as_json: bool
) -> int:
    from toolchart.tools.validation.confidence_interval import wilson
    from toolchart.tools.validation.runner import summarized
    from toolchart.tools.validation.tracker import THRESHOLD

    went = summarized(outcomes)
    total = went.passed + went.failed
    rate = went.passed / total if total else 0.0
    interval = wilson(went.passed, total)
    if as_json:
        rows: dict[str, Any] = {
            "model": name,
            "suite": suite,
            "passed": went.passed,
            "total": total,
            "rate": rate,
            "interval": list(interval),
            "not_asked": went.errors,
            "categories": {key: list(counts) for key, counts in went.by_category.items()},
            "standing": told(standing),
        }
        print_json(rows)
    else:
        for category, (passed, of) in went.by_category.items():
            click.echo(f"{category:<28}  {passed:>4} of {of}")
        words = f"{rate:.0%}, 95 % between {interval[0]:.0%} and {interval[1]:.0%}"
        click.echo(styled(f"{name}  {went.passed} of {total}  ({words})", bold=True))
        if standing is not None:
            click.echo(f"on record: {badge(standing)}")
    if went.errors:
        talk(f"{went.errors} cases could not be asked; they are not on record")
    return DONE if total and rate >= THRESHOLD else NO


def badge(standing: Standing | None) -> str:
    """A model's standing in two words.

    >>> badge(None)
    '-'
    """
    if standing is None:
        return "-"
    word = "validated" if standing.validated else "tested"
    return f"{word} {standing.passed}/{standing.total}"


def told(standing: Standing | None) -> dict[str, Any] | None:
    """A model's standing for programs."""
    if standing is None:
        return None
    return {
        "validated": standing.validated,
        "passed": standing.passed,
        "total": standing.total,
        "rate": standing.rate,
        "interval": list(standing.interval),
        "last_tested": standing.last_tested,
        "categories": {key: list(counts) for key, counts in standing.categories.items()},
    }
