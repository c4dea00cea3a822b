"""`toolchart batch`: run an agent over many inputs, each once, and go on after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolchart.app.cli.exit_codes import CANCELLED, NEGATIVE, SUCCESS
from toolchart.app.cli.log_access import print_json
from toolchart.app.cli.parameters.options import (
    durability_option,
    list_engine_options,
    load_named_spec,
    log_option,
)
from toolchart.app.cli.terminal.log_messages import configure_logging
from toolchart.app.cli.terminal.tables import format_cost
from toolchart.app.cli.terminal.text import is_terminal, print_notice
from toolchart.engine.batch.runner import BatchInput, ResultsFile, read_inputs, refuse_misspelt_fields
from toolchart.engine.log.stores import DEFAULT_LOG
from toolchart.engine.telemetry.environment import open_telemetry
from toolchart.specs.document_files import read_regular_file
from toolchart.states.core.encoding import encode
from toolchart.states.errors import SpecError, suggest_name

if TYPE_CHECKING:
    from toolchart.engine.batch.runner import Batch, BatchReport
    from toolchart.engine.runtime.engine import Engine
    from toolchart.engine.telemetry.live import Telemetry
    from toolchart.specs.models import AgentSpec


_SHOWN_FAILURES = 3

_SHOWN_WARNINGS = 10

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""By the ending of a file that is a table: what separates its columns."""


@click.command(short_help="Run an agent over many inputs, each once.")
@click.argument("spec")
@click.argument("inputs", metavar="INPUTS")
@click.option("--output", "-o", metavar="FILE", help="Results file. Default: INPUTS.results.jsonl.")
@click.option("--name", metavar="NAME", help="Beginning of the conversations' ids. Default: that of INPUTS.")
@click.option(
    "--concurrency",
    "-j",
    type=click.IntRange(1, 50_000),
    metavar="N",
    help="Inputs that run at the same time. Default: 8, with --economy 10000.",
)
@click.option(
    "--economy",
    is_flag=True,
    help="Let model calls wait in batch jobs of their host: at half the price, within a day.",
)
@click.option(
    "--per-minute", type=click.FloatRange(min=0.001), metavar="N", help="Most inputs that begin in a minute."
)
@click.option("--llm", metavar="NAME", help="Use this entry of `llms` instead of the handler's.")
@click.option("--model", metavar="NAME", help="Use this model instead of the agent's.")
@click.option(
    "--again",
    is_flag=True,
    help="Run inputs again that changed, or whose agent changed, and those without an answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress and no report.")
@durability_option
@log_option
def command(
    spec: str,
    inputs: str,
    output: str | None,
    name: str | None,
    concurrency: int | None,
    economy: bool,
    per_minute: float | None,
    llm: str | None,
    model: str | None,
    again: bool,
    as_json: bool,
    quiet: bool,
    durability: str | None,
    log: str | None,
) -> int:
    """Run the agent SPEC over INPUTS: a JSON Lines file, a table (.csv, .tsv), or - for standard input.

    A line is a message, or an object with `message` and, if wanted, `key`, `variables` and `handler`. The
    columns of a table are the same, and every other column is a variable. Each input has a conversation of
    its own and one line in the results file. The same command goes on after a kill or Ctrl-C: answers are
    read, open turns go on, and failed ones are tried again. An input whose key had another message before, or
    another agent (prompt, model, tools, chart), is an error; --again runs it again. Exits with 1 if an input
    failed or waits for a person.

    \b
    Example:  toolchart batch agent.yaml questions.jsonl -j 4
              toolchart batch agent.yaml questions.csv --per-minute 60 --output answers.jsonl
              toolchart batch agent.yaml questions.jsonl --economy
              printf '2+2\\n3*3\\n' | toolchart batch quickstart - --output sums.jsonl
    """
    from toolchart.engine.batch.runner import Batch
    from toolchart.engine.runtime.engine import Engine

    configure_logging(verbose=False)
    rows = _read_rows(inputs)
    refuse_misspelt_fields(rows, lambda: load_named_spec(spec), _name_source(inputs))
    place = Path("batch" if inputs == "-" else inputs)
    path = Path(output) if output else place.with_suffix(".results.jsonl")
    if inputs != "-" and _is_same_file(path, Path(inputs)):
        hint = "name another file: --output FILE"
        raise SpecError("the results cannot stand in the file of the inputs", file=str(path), hint=hint)
    if _is_same_file(path, Path(log or DEFAULT_LOG)):
        hint = "name another file: --output FILE"
        raise SpecError("the results cannot stand in the log", file=str(path), hint=hint)
    progress = _Progress() if is_terminal(sys.stderr) and not quiet else None
    results = ResultsFile(path)

    async def run_batch(telemetry: Telemetry | None) -> tuple[BatchReport, bool]:
        agent = list_engine_options(spec)
        if economy:
            agent["spec"] = _make_economic(load_named_spec(spec))
        async with Engine(**agent, log=log, durability=durability, telemetry=telemetry) as engine:
            if llm is not None and llm not in engine.spec.llms:
                raise SpecError(f"there is no llm {llm!r}", hint=suggest_name(llm, engine.spec.llms))
            batch = Batch(
                engine,
                results,
                name or place.stem,
                concurrency=concurrency or (10_000 if economy else 8),
                per_minute=per_minute,
                llm=llm,
                model=model,
                again=again,
                on_progress=progress,
            )
            return batch.report, await _run(batch, rows, engine if economy else None)

    try:
        with open_telemetry() as telemetry:
            report, is_stopped = asyncio.run(run_batch(telemetry))
    finally:
        results.close()
    return _report(report, path, is_stopped, as_json=as_json, quiet=quiet)


def _is_same_file(path: Path, other: Path) -> bool:
    """Whether two names lead to one file, also by links; either may be there later only."""
    return path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other))


def _read_rows(inputs: str) -> list[BatchInput]:
    try:
        data = sys.stdin.buffer.read() if inputs == "-" else read_regular_file(Path(inputs))
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", file=inputs) from None
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 text ({error.reason} at byte {error.start})"
        raise SpecError(problem, file=inputs, hint="save it as UTF-8") from None
    return read_inputs(
        text, source=_name_source(inputs), delimiter=_DELIMITERS.get(Path(inputs).suffix.lower(), "")
    )


def _name_source(inputs: str) -> str:
    return "standard input" if inputs == "-" else inputs


def _make_economic(agent: AgentSpec) -> AgentSpec:
    """The agent, whose handlers let their calls wait in batch jobs."""
    handlers = [handler.model_copy(update={"batch": True}) for handler in agent.responses]
    return agent.model_copy(update={"responses": handlers})


async def _run(batch: Batch, rows: list[BatchInput], economic_engine: Engine | None) -> bool:
    """Run the batch; returns whether Ctrl-C stopped it. A second Ctrl-C ends the turns that run.

    Args:
        economic_engine: the engine whose turns wait in batch jobs: they stay there and are left open.
    """
    is_stopped = False
    tasks = []
    loop = asyncio.get_running_loop()

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        loop.remove_signal_handler(signal.SIGINT)
        batch.stop()
        if economic_engine is None:
            print_notice("toolchart: stopping when the turns that run have ended; Ctrl-C again ends them now")
        else:
            print_notice("toolchart: stopping; calls stay in their batch jobs, and the same command goes on")
            tasks.append(loop.create_task(economic_engine.astop(0)))

    with contextlib.suppress(NotImplementedError, RuntimeError):  # not here, or not in the main thread
        loop.add_signal_handler(signal.SIGINT, stop)
    await batch.run(rows)
    return is_stopped


class _Progress:
    """One line on stderr that is written again after each input."""

    def __call__(self, report: BatchReport) -> None:
        cost = f", {format_cost(report.usage.cost)}" if report.usage.cost is not None else ""
        text = f"{report.result_count} of {report.inputs}, {report.failed} failed{cost}"
        end = "\n" if report.result_count == report.inputs else ""
        click.echo(f"\r{text}\033[K{end}", nl=False, err=True)


def _report(report: BatchReport, path: Path, is_stopped: bool, *, as_json: bool, quiet: bool) -> int:
    remaining_count = report.inputs - report.result_count
    data: dict[str, Any] = {
        "inputs": report.inputs,
        "answered": report.answered,
        "failed": report.failed,
        "changed": report.changed,
        "waiting": report.waiting,
        "left": remaining_count,
        "earlier": report.earlier,
        "warnings": report.warnings,
        "failures": report.failures,
        "usage": encode(report.usage),
        "results": str(path),
    }
    if as_json:
        print_json(data)
    elif not quiet:
        tokens = f"; {report.usage.total} tokens" if report.usage.total else ""
        cost = f"; cost {format_cost(report.usage.cost)}" if report.usage.cost is not None else ""
        changed = f" ({report.changed} changed)" if report.changed else ""
        print_notice(
            f"{report.answered} of {report.inputs} answered, {report.failed} failed{changed}, "
            f"{report.waiting} waiting, {remaining_count} left, {report.earlier} from earlier"
            f"{tokens}{cost}; results: {path}"
        )
        for text, count in [*report.warnings.items()][:_SHOWN_WARNINGS]:
            print_notice(f"  warning of {count} of them: {text}")
        if len(report.warnings) > _SHOWN_WARNINGS:
            print_notice(f"  and {len(report.warnings) - _SHOWN_WARNINGS} more warnings: see {path}")
        for key, failure in [*report.failures.items()][:_SHOWN_FAILURES]:
            print_notice(f"  {key}: {failure}")
        if report.failed > _SHOWN_FAILURES:
            print_notice(f"  and {report.failed - _SHOWN_FAILURES} more: see {path}")
        if report.failed > report.changed:
            print_notice("  the same command tries failed inputs again")
        if report.changed:
            print_notice("  --again runs changed inputs again; --name NAME begins another batch")
    if is_stopped and remaining_count:
        return CANCELLED
    return SUCCESS if report.answered == report.inputs else NEGATIVE
