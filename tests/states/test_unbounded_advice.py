"""The advice of `unbounded` names a counter that moves: who takes it has a bound."""

from __future__ import annotations

import copy
import random
import re
from typing import Any

import pytest
from chart_mutants import make_mutant
from effort import choose_count

from toolchart.states.chart.loading import make_chart
from toolchart.states.errors import SpecError
from toolchart.states.proofs.check import check
from toolchart.states.proofs.findings import Finding

ADVICE = re.compile(r"write `([\w.]+ < \w+)` into the guard of (.+), and a row after it")
PLACE = re.compile(r"row (\d+) of '(\w+)'")

EDITOR: dict[str, Any] = {
    "name": "editor",
    "states": {
        "drafting": {
            "initial": True,
            "enter": "write",
            "transitions": [
                {"event": "replied", "target": "judging"},
                {"event": "failed cancelled", "target": "error"},
            ],
        },
        "judging": {
            "enter": "judge",
            "transitions": [
                {"event": "replied", "target": "drafting"},
                {"event": "failed cancelled", "target": "error"},
            ],
        },
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {
        "write": {"call_model": {"prompt": "w", "as": "draft"}},
        "judge": {"call_model": {"prompt": "j", "as": "verdict"}},
    },
}


def list_bodies(holder: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every state by its name."""
    bodies: dict[str, dict[str, Any]] = {}
    for name, body in holder.get("states", {}).items():
        bodies |= {name: body, **list_bodies(body)}
    return bodies


def take_advice(document: dict[str, Any], finding: Finding) -> dict[str, Any] | None:
    """The chart with the guard where the advice says; None where the advice names no counter or not every
    row. The row behind it leads to the end of the chart."""
    match = ADVICE.fullmatch(finding.change.removesuffix(" that leads out"))
    if match is None or " more" in match[2]:
        return None
    changed = copy.deepcopy(document)
    changed["states"]["braked"] = {"final": True, "enter": "answer_with_error"}
    bodies = list_bodies(changed)
    places = sorted(((state, int(row) - 1) for row, state in PLACE.findall(match[2])), reverse=True)
    for state, row in places:
        rows = bodies[state]["transitions"]
        old = rows[row]
        conditions = old.get("cond") or []
        guards = [conditions] if isinstance(conditions, str) else list(conditions)
        rows[row] = {**old, "cond": [*guards, match[1]]}
        rows.insert(row + 1, {**old, "target": "braked"})
        rows[row + 1].pop("internal", None)
    return changed


def match_guard(finding: Finding) -> tuple[str, str]:
    """A cycle, and the guard that an advice names."""
    match = ADVICE.match(finding.change)
    return finding.message, match[1] if match is not None else ""


def test_a_cycle_of_models_is_counted_by_their_results() -> None:
    """Writer and critic without a bound: the words are plain, and the advice names a result of the cycle and
    the row that brings it, not an iteration, which never grows there."""
    (finding,) = [f for f in check(make_chart(EDITOR)).findings if f.kind == "unbounded"]
    assert finding.message == (
        "a turn can go drafting -> judging -> drafting for ever: no guard there counts the rounds"
    )
    assert finding.change == (
        "write `draft.count < 4` into the guard of row 1 of 'drafting', and a row after it that leads out"
    )
    changed = take_advice(EDITOR, finding)
    assert changed is not None
    assert "unbounded" not in {f.kind for f in check(make_chart(changed)).findings}


def test_where_nothing_counts_the_advice_says_so() -> None:
    """A cycle of timers moves no counter: the advice is to ask for something with a result."""
    document = {
        "name": "clock",
        "states": {
            "ticking": {
                "initial": True,
                "enter": "wait",
                "transitions": [
                    {"event": "elapsed", "target": "ticking"},
                    {"event": "cancelled", "target": "done"},
                ],
            },
            "done": {"final": True, "enter": "answer_with_error"},
        },
    }
    (finding,) = [f for f in check(make_chart(document)).findings if f.kind == "unbounded"]
    assert finding.change.startswith("nothing that a guard can count grows on each way round")


@pytest.mark.parametrize("seed", range(choose_count(short=1, long=12)))
def test_whoever_takes_the_advice_has_a_bound(seed: int) -> None:
    """For random charts with a cycle that has no bound: the advice, taken word for word, ends that cycle."""
    rng, taken = random.Random(f"advice/{seed}"), 0
    for _ in range(400):
        document = make_mutant(rng)
        if document is None:
            continue
        for _ in range(6):  # a chart may have several cycles, and each gets its own advice
            findings = [f for f in check(make_chart(document)).findings if f.kind == "unbounded"]
            finding = next((f for f in findings if "for ever" in f.message), None)
            changed = take_advice(document, finding) if finding is not None else None
            if finding is None or changed is None:
                break
            try:
                left = [f for f in check(make_chart(changed)).findings if f.kind == "unbounded"]
            except SpecError:  # a rule of the loader wants an effect's row otherwise
                break
            # Another cycle may go through the same states; it has another counter, or none.
            assert match_guard(finding) not in map(match_guard, left), (finding, left, changed)
            taken += 1
            document = changed
        if taken >= 20:
            return
    pytest.fail(f"only {taken} advices could be taken")
