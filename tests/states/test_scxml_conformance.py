"""Conformance with SCXML: the suites of SCION and the W3C through our machine, and guards in ECMAScript.

`scxml_passes.txt` lists the tests that pass. It may only grow.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_guards import GuardGenerator, build_facts, evaluate, list_values
from scxml_suite import REASON, find_suite_folder, list_suite_tests, run_suite_test

from toolchart.states.diagram.scxml import write_ecmascript
from toolchart.states.errors import SpecError

FOLDER = find_suite_folder()
"""Read here, because tests run without the variables of Toolchart."""

PASSES = Path(__file__).with_name("scxml_passes.txt")


def read_passes() -> list[str]:
    """The names in the list, in order."""
    lines = PASSES.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.skipif(FOLDER is None, reason=REASON)
def test_what_loads_does_what_scxml_says() -> None:
    """Every pure test that our rules let load passes, and exactly those that pass are in the list."""
    assert FOLDER is not None
    passes, wrong = [], {}
    for test in list_suite_tests(FOLDER):
        try:
            difference = run_suite_test(test)
        except SpecError:
            continue  # for instance regions whose conflicts the library resolves in another order
        if difference is None:
            passes.append(test.name)
        else:
            wrong[test.name] = difference
    assert wrong == {}
    assert sorted(passes) == read_passes(), f"write the new list to {PASSES.name}; it may only grow"


def test_the_list_of_passes_does_not_shrink() -> None:
    """The list has at least as many names as it had when it was begun, each once and in order."""
    names = read_passes()
    assert len(names) >= 65
    assert names == sorted(set(names))


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
def test_guards_mean_in_ecmascript_what_they_mean_in_python() -> None:
    """600 random guards with arithmetic, fractions and chains: a JavaScript engine and Python agree."""
    random, facts = Random(8), build_facts(are_small=True)
    generator = GuardGenerator(random, facts, fractions=True, products=True)
    guards = [text for _ in range(300) for text in generator.make_literals()][:600]
    cases: list[dict[str, Any]] = []
    for guard in guards:
        values = {name: random.choice(list(list_values(fact))) for name, fact in facts.items()}
        cases.append({"cond": write_ecmascript(guard), "values": values})
    script = """
    const cases = JSON.parse(require("fs").readFileSync(0, "utf8"));
    const truths = cases.map(({cond, values}) => {
        const data = {};
        for (const [name, value] of Object.entries(values)) {
            const [first, field] = name.split(".");
            if (field) (data[first] = data[first] || {})[field] = value; else data[first] = value;
        }
        return new Function(...Object.keys(data), "return " + cond)(...Object.values(data));
    });
    console.log(JSON.stringify(truths));
    """
    # The environment may hold options of a Node.js that is not this one.
    environment = {key: value for key, value in os.environ.items() if key != "NODE_OPTIONS"}
    done = subprocess.run(
        ["node", "-e", script],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=environment,
    )
    truths = json.loads(done.stdout)
    wrong = [
        (guard, case)
        for guard, case, truth in zip(guards, cases, truths, strict=True)
        if evaluate(guard, case["values"]) is not truth
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("guard", "condition"),
    [
        ("finish_reason == 'stop' and not retryable", "(finish_reason === 'stop') && (retryable === false)"),
        ("0 < iteration < 3", "(0 < iteration) && (iteration < 3)"),
        ("not (draft.count >= 4 or has_content)", "((draft.count >= 4) || has_content) === false"),
        ("In('thinking')", "In('thinking')"),
    ],
)
def test_conditions_are_plain(guard: str, condition: str) -> None:
    """The usual guards stay readable."""
    assert write_ecmascript(guard) == condition
