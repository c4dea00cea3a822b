"""The counterexample of each finding happens in the real engine, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import choose_count
from random_flows import make_flow

from toolchart.app.cli.commands.charts.check import command as check_command
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import make_chart, parse_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import check
from toolchart.states.proofs.findings import CHANGES, Finding
from toolchart.testing.counterexamples.replaying import replay_counterexample
from toolchart.testing.counterexamples.sightings import SIGHTINGS

BROKEN = sorted((Path(__file__).parents[1] / "states" / "broken_charts").glob("*.yaml"))
NEVER_HAPPENS = {"unreachable", "dead row"}
OF_RULES = {"dead rule"}
"""About rules of approval, which no chart has; `tests/app/test_start_problems.py` shows them."""
OF_MIGRATION = {"no such state", "no such effect", "no such result", "other form"}
"""About an open conversation that moves to another chart; `tests/engine/test_migration.py` shows them."""


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_the_engine_does_what_a_finding_says(path: Path) -> None:
    """Each finding about a broken chart that has a run is confirmed by the engine."""
    chart = parse_chart(path.read_text("utf-8"), source=path.name)
    for finding in check(chart, risky=True).findings:
        replay = replay_counterexample(chart, finding)
        wanted = "no run" if finding.kind in NEVER_HAPPENS else "confirmed"
        assert replay.outcome == wanted, (finding.message, str(replay))
        assert bool(replay.events) is (wanted == "confirmed")


def test_the_corpus_has_a_chart_for_each_kind() -> None:
    """No kind of finding with a run goes without a broken chart."""
    kinds = {path.read_text("utf-8").splitlines()[0].removeprefix("# finding: ") for path in BROKEN}
    assert kinds >= {*SIGHTINGS} | NEVER_HAPPENS
    assert {*CHANGES} == {*SIGHTINGS} | NEVER_HAPPENS | OF_MIGRATION | OF_RULES | {
        "too large",
        "data flow",
        "undeclared",
    }


@pytest.mark.parametrize("kind", sorted(SIGHTINGS))
def test_a_false_finding_is_not_confirmed(kind: str) -> None:
    """Against a sound chart no finding is confirmed: the verdict is about the engine, not about `check`."""
    finding = Finding(kind=kind, message="", state="acting", event="tool_finished", run=("turn_started",))
    outcome = replay_counterexample(load_chart("action_selector"), finding).outcome
    assert outcome in ("not found", "not confirmed")


@pytest.mark.slow
def test_findings_about_random_flows_are_confirmed() -> None:
    """Of findings about random flows that have a run, the engine contradicts none, and confirms many. The
    others are false alarms: `check` does not follow every counter."""
    outcomes = []
    for seed in range(choose_count(short=6, long=1_500)):
        try:
            chart = make_chart(make_flow(seed))
            findings = check(chart, limits=Limits(max_iterations=3, max_attempts=2)).findings
        except SpecError:
            continue
        for finding in findings:
            if finding.kind in SIGHTINGS and finding.run:
                replay = replay_counterexample(chart, finding)
                assert replay.outcome != "not confirmed", (seed, finding.message, str(replay))
                outcomes.append(replay.outcome)
    assert outcomes.count("confirmed") * 2 >= len(outcomes)


def test_the_command_prints_what_the_engine_did(capsys: pytest.CaptureFixture[str]) -> None:
    """`check --replay-counterexample` prints the run, the change and what the engine did."""
    path = next(path for path in BROKEN if path.stem == "gap")
    assert check_command.main([str(path), "--replay-counterexample"], standalone_mode=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "    run: turn_started > replied.call_model" in lines
    assert any(
        line.startswith("    replay: the engine did as the finding says: turn_started") for line in lines
    )
    assert any(line.startswith("    change: ") for line in lines)
