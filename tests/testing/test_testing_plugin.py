"""The pytest plugin in a separate test suite: its fixtures work, and it imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = f"""
import importlib.util
# Makes this checkout importable as toolchart, as the checkout's own tests do.
spec = importlib.util.spec_from_file_location("adopting", {str(ROOT / "tests" / "conftest.py")!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
pytest_plugins = ["toolchart.testing.plugin"]
"""

SUITE = """
import pytest
from toolchart import Engine

pytestmark = pytest.mark.slow

SPEC = {
    "llms": {"model": {"provider": "scripted", "model": "m", "replies": ["unused"]}},
    "tools": {"registry": [{"name": "calculator"}]},
    "responses": [{"llm": "model", "prompt": "Be brief.", "tools": {"enabled": True}}],
}


def run(log, model):
    with Engine(SPEC, log=log, providers={"model": model}) as engine:
        return engine.run("2 + 3?", conversation="c1")


def test_replays(scripted_model, toolchart_log, assert_replays):
    call = {"tool_calls": [{"name": "calculator", "arguments": {"expression": "2+3"}}]}
    model = scripted_model(call, "It is 5.")
    assert run(toolchart_log, model).content == "It is 5."
    assert len(model.requests) == 2
    assert [len(steps) for steps in assert_replays(toolchart_log).values()] == [6]
    assert list(assert_replays(toolchart_log, "c1")) == ["c1"]


def test_rules(scripted_model, toolchart_log):
    model = scripted_model(rules=[{"match": "3", "reply": "by rule"}])
    assert run(toolchart_log, model).content == "by rule"


def test_hosts_are_emulated(emulated_host):
    first, second = emulated_host("groq"), emulated_host("ollama", model="qwen3:8b")
    assert first.port != second.port
    with Engine({**SPEC, "llms": {"model": second.entry}}, log="memory") as engine:
        assert engine.run("2 + 3?").content == "Done."
    assert second.bodies[0]["model"] == "qwen3:8b"


def test_logs_are_apart(toolchart_log):
    assert not toolchart_log.exists()


def test_the_command_line_uses_the_log(toolchart_log):
    import os
    assert os.environ["TOOLCHART_LOG"] == str(toolchart_log)


def test_a_changed_log_fails(scripted_model, toolchart_log, assert_replays):
    import sqlite3
    run(toolchart_log, scripted_model("It is 5."))
    with sqlite3.connect(toolchart_log) as db:
        (table,) = [
            name for (name, sql) in db.execute("SELECT name, sql FROM sqlite_master WHERE type='table'")
            if "line" in sql
        ]
        for trigger, in db.execute("SELECT name FROM sqlite_master WHERE type='trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        changed = db.execute(
            f"UPDATE {table} SET line = CAST(replace(CAST(line AS TEXT), 'is 5', 'is 6') AS BLOB)"
        )
        assert changed.rowcount
    with pytest.raises(pytest.fail.Exception, match="does not replay"):
        assert_replays(toolchart_log)


def test_an_empty_log_fails(assert_replays):
    from toolchart.engine.log.stores import open_store
    with pytest.raises(pytest.fail.Exception, match="the log is empty"):
        assert_replays(open_store("memory"))
    with pytest.raises(pytest.fail.Exception, match="nothing to replay"):
        assert_replays(open_store("memory"), "no such conversation")
"""

LIGHT = """
import sys

HEAVY = {"pydantic", "hypothesis", "openai", "ollama", "google.genai", "sympy", "rich", "statemachine",
         "yaml", "orjson", "jsonschema", "toolchart.engine", "toolchart.states"}

def pytest_collection_finish(session):
    import toolchart.testing
    loaded = HEAVY & set(sys.modules)
    assert not loaded, loaded
"""


def run_pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a suite in a folder, with no plugins except those that its conftest names."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_the_fixtures_work_in_a_suite(tmp_path: Path) -> None:
    """The fixtures of the plugin work in a suite, and `assert_replays` fails on a changed log."""
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_mine.py").write_text(SUITE, encoding="utf-8")
    done = run_pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_the_state_machine_is_one_line_of_a_suite(tmp_path: Path) -> None:
    """`TestMine = chart_state_machine("mine.yaml").TestCase` runs under plain pytest."""
    from toolchart.specs.charts import load_chart

    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(load_chart("tool_loop").to_yaml(), encoding="utf-8")
    suite = """
        from hypothesis import settings
        from toolchart.testing import chart_state_machine
        TestMine = chart_state_machine("mine.yaml").TestCase
        TestMine.settings = settings(max_examples=5, database=None, deadline=None)
    """
    (tmp_path / "test_mine.py").write_text(textwrap.dedent(suite), encoding="utf-8")
    done = run_pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_is_light(tmp_path: Path) -> None:
    """At pytest's start the plugin imports pytest and the lazy `toolchart.testing`, and nothing heavy."""
    (tmp_path / "conftest.py").write_text(CONFTEST + LIGHT, encoding="utf-8")
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
    done = run_pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_point_names_the_plugin(pytestconfig: pytest.Config) -> None:
    """An installed Toolchart registers the plugin; the tests of this repository turn it off."""
    import importlib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    points = config["project"]["entry-points"]["pytest11"]
    assert points == {"toolchart": "toolchart.testing.plugin"}
    module = importlib.import_module(points["toolchart"])
    assert {"scripted_model", "toolchart_log", "assert_replays"} <= set(vars(module))
    assert pytestconfig.pluginmanager.is_blocked("toolchart")
    assert "-p no:toolchart" in config["tool"]["pytest"]["ini_options"]["addopts"]
