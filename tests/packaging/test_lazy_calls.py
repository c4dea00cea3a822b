"""Nothing calls a generator or a coroutine and drops it: what such a call says would never run."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from lazy_calls import LazyCalls, load_trees
from source_tree import ROOT

_SAMPLE = """
from toolchart.engine.log.replay import replay, replay_conversation
from toolchart.engine.log import replay as replays

def check_log(engine, lines):
    {0}

def list_steps(lines):
    yield from replay(lines)
"""

_NEVER_RUN = ("tests.packaging.seeded_agent_mistakes",)
"""Files for type checkers alone."""

_SAMPLE_MODULES = ("toolchart.engine.log.replay", "toolchart.engine.runtime.engine")


@cache
def _load(module: str) -> ast.Module:
    path = ROOT / module.partition(".")[2].replace(".", "/")
    return ast.parse(path.with_suffix(".py").read_text("utf-8"))


def _read_sample(statement: str) -> LazyCalls:
    """The calls of a small file with a statement, beside the files that it imports."""
    trees = {name: _load(name) for name in _SAMPLE_MODULES}
    return LazyCalls({**trees, "sample": ast.parse(_SAMPLE.format(statement))})


def test_every_generator_and_coroutine_is_consumed() -> None:
    """Issue 37: no statement of the package, its tests and its benchmarks drops a generator, a coroutine or a
    context manager, keeps one that nobody reads, or takes one for true."""
    trees = load_trees(ROOT)
    calls = LazyCalls(trees)
    modules = [module for module in trees if module not in _NEVER_RUN]
    assert len(modules) == len(trees) - len(_NEVER_RUN)
    found = [(module, *call) for module in modules for call in calls.list_unconsumed(module)]
    assert found == []


def test_the_lazy_functions_of_the_package_are_known() -> None:
    """Generators, functions that return one, coroutines and context managers count as lazy; others do not."""
    names = ("engine.log.replay", "engine.durable.performing", "providers.transport.limits")
    calls = LazyCalls({f"toolchart.{name}": _load(f"toolchart.{name}") for name in names})
    lazy = calls.list_lazy("toolchart.engine.log.replay")
    assert {"replay", "read_chain", "replay_conversation"} <= lazy
    assert not {"load_conversation", "derive_step"} & lazy
    assert "perform_stretch" in calls.list_lazy("toolchart.engine.durable.performing")
    assert "share_limits" in calls.list_lazy("toolchart.providers.transport.limits")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("replay(lines)", "replay"),
        ("replays.replay(lines)", "replays.replay"),
        ("replay_conversation(lines, 'c')", "replay_conversation"),
        ("engine.arun('a')", "engine.arun"),
        ("steps = replay(lines)", "replay"),
        ("assert replay(lines)", "replay"),
        ("assert not replay(lines)", "replay"),
        ("assert replay(lines) == []", "replay"),
        ("with engine: replay(lines)", "replay"),
        ("list_steps(lines)", "list_steps"),
    ],
)
def test_a_call_that_nobody_consumes_is_found(statement: str, name: str) -> None:
    """Each way to forget a generator or a coroutine is found."""
    assert [call for _, call in _read_sample(statement).list_unconsumed("sample")] == [name]


@pytest.mark.parametrize(
    "statement",
    [
        "list(replay(lines))",
        "assert list(replay(lines)) == []",
        "assert 1 in replay(lines)",
        "steps = replay(lines); list(steps)",
        "return replay(lines)",
        "for step in replay(lines): pass",
        "engine.run('a')",
    ],
)
def test_a_call_that_is_consumed_is_no_finding(statement: str) -> None:
    """What somebody iterates over, returns or hands on is left alone, and so is a plain function."""
    assert _read_sample(statement).list_unconsumed("sample") == []
