"""The models for Spin: they load, they say what charts do, and what cannot be translated is refused.

`tests/soak/spin_gate.py` verifies every shipped chart and compares mutants; CI runs it.
"""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import spin_models
from effort import IS_LONG
from promela import SMALL_LIMITS, list_claims, write_promela
from promela.text import name_variable
from promela.variables import GuardWriter
from random_guards import GuardGenerator, build_facts, evaluate, list_values
from spin_models import CLAIM_OF_KIND, COMPILER, IS_MISSING, REASON, ModelRun, UndecidedError, verify_chart

from toolchart.app.cli.parameters.charts import resolve_chart
from toolchart.specs.charts import load_chart
from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.events import Limits
from toolchart.states.proofs.check import check

needs_spin = pytest.mark.skipif(IS_MISSING, reason=REASON)


@needs_spin
@pytest.mark.parametrize("name", ["planner", "plan_and_review"])
def test_spin_confirms_what_check_claims(name: str) -> None:
    """Every claim holds in every run, and each bound less one fails: it is exact."""
    chart = resolve_chart(name)
    assert chart is not None
    report = check(chart, risky=True, limits=SMALL_LIMITS)
    expected = [claim.name for claim in list_claims(report.worst, chart) if not claim.holds]
    assert expected
    assert verify_chart(chart, report) == expected


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "handled": ("prompting", {"drop": "failed"}),
    "goes_on": ("prompting", {"row": {"event": "failed", "target": "idle"}}),
    "reviewed": ("prompting", {"row": {"event": "replied", "target": "executing"}}),
    "approved": ("awaiting_tools", {"row": {"event": "reviewed", "target": "executing"}}),
    "kept": ("prompting", {"row": {"event": "replied", "target": "error"}}),
    "concluded": ("prompting", {"row": {"event": "failed", "target": "silence"}}),
    "ends": ("prompting", {"row": {"event": "failed", "target": "prompting"}}),
    "rests": ("prompting", {"row": {"event": "failed", "target": "turning"}}),
}
"""By claim: a state of the tool loop, and what is changed there so that the claim fails."""


@needs_spin
@pytest.mark.parametrize("claim", [*FAULTS][:: 1 if IS_LONG else 2])
def test_each_claim_fails_where_its_fault_is(claim: str) -> None:
    """Each claim can fail: a chart with its fault breaks it, and `check` finds the same fault.

    The short form takes every second claim; the Spin gate in CI compares all of them on mutants.
    """
    state, change = FAULTS[claim]
    document = copy.deepcopy(load_chart("tool_loop").document)
    rows = document["states"][state]["transitions"]
    if "drop" in change:
        rows[:] = [row for row in rows if row["event"] != change["drop"]]
    else:
        rows.insert(0, change["row"])
    document["states"]["idle"] = {"transitions": [{"event": "failed", "target": "error"}]}
    document["states"]["silence"] = {"final": True}
    document["states"]["turning"] = {"transitions": [{"target": "back"}]}
    document["states"]["back"] = {"transitions": [{"target": "turning"}]}
    chart = make_chart(document)
    report = check(chart, risky=True, limits=SMALL_LIMITS)
    assert claim in {CLAIM_OF_KIND.get(finding.kind) for finding in report.findings}
    assert claim in verify_chart(chart, report, [claim])


@needs_spin
def test_agents_that_were_cancelled_while_they_rested_are_not_woken() -> None:
    """S1.7: the next message wakes the agents that still rest, so Spin confirms that one runs at a time."""
    chart = resolve_chart("triage")
    assert chart is not None
    document = copy.deepcopy({**chart.document, "effects": dict(chart.effects)})
    rows = document["states"]["billing"]["transitions"]
    rows[:] = [row for row in rows if row["event"] != "cancelled"]
    rows.append({"event": "cancelled", "target": "pausing"})
    ends = [{"event": "cancelled", "target": "routing"}, {"event": "elapsed", "target": "error"}]
    document["states"]["pausing"] = {"enter": "wait", "transitions": ends}
    changed = make_chart(document)
    report = check(changed, risky=True, limits=SMALL_LIMITS)
    assert report.worst is not None
    assert report.worst.agent_runs == 1
    assert "agent_runs_bounded" not in verify_chart(changed, report)


@needs_spin
@pytest.mark.parametrize(
    ("bound", "value", "variables", "message"),
    [("MAX_CPU_SECONDS", 1, "abcdefgh", "processor time"), ("MAX_DEPTH", 50, "abc", "50 steps")],
)
def test_a_search_that_is_cut_decides_nothing(
    bound: str, value: int, variables: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that ends at its time or depth is an error of its own, whatever it has seen until then."""
    monkeypatch.setattr(spin_models, bound, value)
    declared = f"byte {', '.join(variables)};"
    steps = " ".join(f":: {name} < 20 -> {name}++" for name in variables)
    formula = " && ".join(f"{name} < 21" for name in variables)
    text = f"{declared}\nactive proctype p() {{ do {steps} od }}\nltl small {{ [] ({formula}) }}\n"
    run = ModelRun(text, tmp_path)
    with pytest.raises(UndecidedError, match=message):
        run.holds("small")


# -- guards --------------------------------------------------------------------------------------


@pytest.mark.skipif(COMPILER is None, reason="a C compiler is not installed")
def test_guards_mean_in_promela_what_they_mean_in_python(tmp_path: Path) -> None:
    """400 random guards with arithmetic, fractions and chained comparisons: C and Python agree."""
    random, facts = Random(12), build_facts(are_small=True)
    generator = GuardGenerator(random, facts, fractions=True, products=True)
    guards = [text for _ in range(200) for text in generator.make_literals()][:400]
    vocabulary: Any = SimpleNamespace(find_fact=facts.get)
    writer = GuardWriter(vocabulary, lambda name: name_variable("fact", name))
    cases = [{name: random.choice(list(list_values(fact))) for name, fact in facts.items()} for _ in guards]
    words = facts["word"].words
    lines = [f"#define word_word__{word} {index}" for index, word in enumerate(words)]
    lines += [f"int {name_variable('fact', name)};" for name in facts]
    lines += ["#include <stdio.h>", "int main(void) {"]
    for guard, case in zip(guards, cases, strict=True):
        for name, value in case.items():
            number = words.index(value) if isinstance(value, str) else int(value)
            lines.append(f"{name_variable('fact', name)} = {number};")
        lines.append(f'printf("%d\\n", (int)({writer.write(guard)}));')
    (tmp_path / "guards.c").write_text("\n".join([*lines, "return 0; }"]))
    subprocess.run([str(COMPILER), "-w", "-o", "guards", "guards.c"], cwd=tmp_path, check=True, timeout=300)
    output = subprocess.run([tmp_path / "guards"], capture_output=True, text=True, check=True, timeout=300)
    truths = [bool(int(line)) for line in output.stdout.split()]
    wrong = [
        (guard, case)
        for guard, case, truth in zip(guards, cases, truths, strict=True)
        if bool(evaluate(guard, case)) is not truth
    ]
    assert wrong == []


# -- the text ------------------------------------------------------------------------------------


def test_different_names_stay_different() -> None:
    """Names that could run together, or that are no identifiers, give different variables."""
    parts = [
        ("a_b", "c"),
        ("a", "b_c"),
        ("a__b", "c"),
        ("a", "_b", "c"),
        ("a_ub", "c"),
        ("ä", "b"),
        ("a.b", "c"),
    ]
    assert len({name_variable("open", *names) for names in parts}) == len(parts)


def test_bounds_become_claims() -> None:
    """Each number of the worst case is claimed to hold, and one less to fail, under the given limits."""
    chart = load_chart("tool_loop")
    limits = Limits(max_iterations=4)
    text = write_promela(chart, limits=limits, worst=check(chart, limits=limits).worst)
    assert "ltl model_calls_bounded { [] (model_calls <= 21) }" in text
    assert "ltl tool_rounds_lower { [] (tool_rounds < 4) }" in text
    assert "Limits: max_attempts = 3, max_iterations = 4." in text


def test_what_cannot_be_translated_is_refused() -> None:
    """A row whose reach depends on what a deep history remembers is refused, with the reason."""
    inner = {"leaf": {"transitions": [{"event": "user_said", "target": "again"}]}, "other": {}}
    outer = {
        "history": {"again": {"type": "deep", "transitions": [{"target": "leaf"}]}},
        "states": {"first": {"states": inner}, "second": {}},
    }
    chart = make_chart(
        {"name": "deep", "states": {"outer": outer, "done": {"final": True, "enter": "answer"}}}
    )
    with pytest.raises(SpecError, match="depends on what is remembered"):
        write_promela(chart)
