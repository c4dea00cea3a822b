"""Malformed charts: each ends in a loaded chart or in a located error, never in another exception."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from effort import choose_count
from malformed_charts import RICH_CHART, list_seed_documents, mutate_document, mutate_meaning, mutate_text

from toolchart.specs.charts import list_shipped_charts, load_chart, load_spec_chart
from toolchart.specs.loader import load_spec
from toolchart.states.chart.loading import Chart, make_chart
from toolchart.states.errors import SpecError
from toolchart.states.machine import Machine, get_machine
from toolchart.states.proofs.check import check
from toolchart.states.proofs.exploration import explore_chart
from toolchart.states.snapshot import Configuration

MAX_CPU_S = 60.0
"""Seconds of processor time for one chart: endless work is found, whatever the machine."""

SPEC = {
    "llms": {"main": {"provider": "scripted", "model": "m", "replies": []}},
    "responses": [{"match": {"all": True}, "llm": "main"}],
}

CHARTS = choose_count(short=500, long=40_000)
CHECKED = choose_count(short=4, long=1_500)
EXPLORED = choose_count(short=30, long=3_000)


def load_located(load: Callable[[], Chart], seed: int) -> Chart | None:
    """The chart, or None for a located error; fails for any other end and for endless work."""
    start = time.process_time()
    chart, refusal = None, None
    try:
        chart = load()
    except SpecError as error:
        refusal = error
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    if refusal is not None:
        assert refusal.file, f"seed {seed}: no file in: {refusal}"
        assert refusal.line or refusal.path, f"seed {seed}: no place in: {refusal}"
    assert time.process_time() - start < MAX_CPU_S, f"seed {seed} is slow"
    return chart


def list_texts() -> list[str]:
    """The YAML of correct charts: as shipped (some extend others) and resolved."""
    names = list_shipped_charts()
    shipped = [files("toolchart.specs.charts").joinpath(f"{name}.yaml").read_text() for name in names]
    return [RICH_CHART, *shipped, *(load_chart(name).to_yaml() for name in names)]


def build_loaders(folder: Path) -> list[Callable[[Random], Callable[[], Chart]]]:
    """Four ways of a malformed chart into the program; each makes one from random numbers."""
    documents, texts = list_seed_documents(), list_texts()

    def write_chart_file(random: Random) -> Callable[[], Chart]:
        path = folder / "chart.yaml"
        text = mutate_text(random, random.choice(texts))
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return lambda: load_chart(str(path))

    def write_spec_file(random: Random) -> Callable[[], Chart]:
        path = folder / "spec.yaml"
        text = mutate_text(random, textwrap.indent(random.choice(texts), "  "))
        text = "chart:\n" + text + "\n" + yaml.safe_dump(SPEC)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return lambda: load_spec_chart(load_spec(path))

    def make_inline_chart(random: Random) -> Callable[[], Chart]:
        document = mutate_document(random, random.choice(documents))
        return lambda: load_chart_value(document)

    def make_odd_meaning(random: Random) -> Callable[[], Chart]:
        document = mutate_meaning(random, random.choice([*documents, *[documents[-1]] * 5]))
        return lambda: load_chart_value(document)

    return [write_chart_file, write_spec_file, make_inline_chart, make_odd_meaning]


def load_chart_value(document: Any) -> Chart:
    """The chart of a spec that was written in Python."""
    try:
        return load_spec_chart(load_spec({**SPEC, "chart": document}))
    except SpecError as error:
        if error.file is None and (error.path or "").startswith("chart"):
            # A spec that is a mapping has no file; the key path says where.
            raise SpecError(error.message, file="(mapping)", path=error.path) from None
        raise


@pytest.mark.parametrize("way", range(4), ids=["chart file", "spec file", "inline", "odd meaning"])
def test_malformed_charts_end_in_located_errors(way: int, tmp_path: Path) -> None:
    """Thousands of mutants of correct charts load, or name file and place; none without end.

    What loads also compiles, unless it never rests from its start.
    """
    make_loader = build_loaders(tmp_path)[way]
    counts: Counter[str] = Counter()
    for seed in range(way, CHARTS, 4):
        chart = load_located(make_loader(Random(seed)), seed)
        counts["refused" if chart is None else "loaded"] += 1
        if chart is not None:
            _compile(chart, seed)
    assert counts["loaded"] > CHARTS / 100
    assert counts["refused"] > CHARTS / 10


def _compile(chart: Chart, seed: int) -> Machine | None:
    """The machine, or None for a chart that never rests from its start."""
    try:
        return get_machine(chart)
    except SpecError as error:
        if "never rests" in error.message:
            return None
        raise AssertionError(f"seed {seed}: no rule with a line for: {error}") from error


def test_odd_charts_that_load_can_be_checked() -> None:
    """The proofs take every chart that loads: a report or a `SpecError`, no other end."""
    for seed, chart in _list_loaded(CHECKED):
        try:
            check(chart)
        except SpecError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


def test_odd_charts_that_load_are_always_somewhere() -> None:
    """No event leads to a configuration without a meaning: in no state, or in two at once."""
    for seed, chart in _list_loaded(EXPLORED):
        machine = _compile(chart, seed)
        if machine is not None:
            for place in explore_chart(machine).states:
                problem = _find_configuration_problem(machine, place.configuration)
                assert problem is None, f"seed {seed}: {problem} in {place.configuration.states}"


def _list_loaded(count: int) -> list[tuple[int, Chart]]:
    """Mutants of the right shape that load, with their seeds."""
    documents = list_seed_documents()
    charts: list[tuple[int, Chart]] = []
    seed = 0
    while len(charts) < count:
        random = Random(seed)
        try:
            document = random.choice([*documents, *[documents[-1]] * 5])
            charts.append((seed, make_chart(mutate_meaning(random, document))))
        except SpecError:
            pass
        seed += 1
    return charts


def _find_configuration_problem(machine: Machine, configuration: Configuration) -> str | None:
    """What is wrong with the active states of a configuration; None for a legal one."""
    active = set(configuration.states)
    states = {name: state for name, state in machine._states_by_id.items() if name in active}
    if sum(state.parent is None for state in states.values()) != 1:
        return "not exactly one state at the top"
    for name, state in states.items():
        children = [child.id for child in state.states if child.id in active]
        if state.parent is not None and state.parent.id not in active:
            return f"{name} without its parent"
        if state.states and len(children) != (len(state.states) if state.parallel else 1):
            return f"{name} with {len(children)} active states inside"
    return None


@pytest.mark.parametrize("name", list_shipped_charts())
def test_shipped_charts_load_inline_as_they_do_from_a_file(name: str) -> None:
    """An inline chart means the same as the file, even though YAML reads `on:` as true there."""
    inline = load_spec_chart(load_spec({**SPEC, "chart": load_chart(name).document}))
    assert inline.digest == load_chart(name).digest
