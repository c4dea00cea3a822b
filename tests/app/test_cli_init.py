"""`toolchart init` writes an agent of one's own: a copy of one that ships, which runs and checks clean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolchart.specs.flows import list_shipped_flows
from toolchart.specs.loader import list_shipped_agents, read_shipped_agent

RunCli = Callable[..., Any]


def test_a_copy_has_its_own_name_and_runs(run_cli: RunCli, work_dir: Path) -> None:
    """The file is the flow under the new name; it runs offline and checks clean."""
    result = run_cli("init", "editor", "--from", "reflection")
    assert (result.code, result.out) == (0, "editor.yaml\n")
    assert 'toolchart run editor.yaml "..."' in result.err
    copy = yaml.safe_load((work_dir / "editor.yaml").read_text("utf-8"))
    assert copy == {**yaml.safe_load(read_shipped_agent("reflection")), "name": "editor"}
    answer = run_cli("run", "editor.yaml", "tides")
    assert (answer.code, answer.out) == (0, "Tides follow the moon. The sea rises twice a day.\n")
    assert run_cli("check", "editor.yaml").code == 0


@pytest.mark.parametrize("name", list_shipped_flows())
def test_every_flow_is_copied_and_checks_clean(name: str, run_cli: RunCli, work_dir: Path) -> None:
    """Each shipped flow becomes a file that keeps its comments and that `check` finds clean."""
    assert run_cli("init", "mine", "--from", name).code == 0
    text = (work_dir / "mine.yaml").read_text("utf-8")
    assert text == read_shipped_agent(name).replace(f"\nname: {name}\n", "\nname: mine\n")
    assert "\nname: mine\n" in text
    result = run_cli("check", "mine.yaml", "--json")
    assert (result.code, json.loads(result.out)["ok"]) == (0, True)


@pytest.mark.parametrize("name", list_shipped_agents())
def test_every_shipped_agent_can_be_copied(name: str, run_cli: RunCli, work_dir: Path) -> None:
    """Every name that `run` accepts is an origin."""
    assert run_cli("init", "mine.yml", "--from", name).code == 0
    assert "llms" in yaml.safe_load((work_dir / "mine.yml").read_text("utf-8"))


def test_without_an_origin_it_is_the_quickstart(run_cli: RunCli, work_dir: Path) -> None:
    """`init NAME` copies the quickstart."""
    assert run_cli("init", "first").code == 0
    result = run_cli("run", "first.yaml", "What is 2 + 3?")
    assert (result.code, "5" in result.out) == (0, True)


def test_an_existing_file_is_not_overwritten(run_cli: RunCli, work_dir: Path) -> None:
    """The file stays as it is; the error says what to do."""
    (work_dir / "editor.yaml").write_text("mine", "utf-8")
    result = run_cli("init", "editor")
    assert (result.code, result.out) == (2, "")
    assert "editor.yaml exists already" in result.err
    assert "choose another name; nothing was written" in result.err
    assert (work_dir / "editor.yaml").read_text("utf-8") == "mine"


def test_an_unknown_origin_is_refused_with_the_nearest(run_cli: RunCli, work_dir: Path) -> None:
    """A misspelt flow: exit 2, the name that was meant, and no file."""
    result = run_cli("init", "editor", "--from", "reflexion")
    assert result.code == 2
    assert "there is no shipped agent 'reflexion'" in result.err
    assert "did you mean 'reflection'?" in result.err
    assert not list(work_dir.iterdir())


def test_a_folder_that_is_not_there_is_refused(run_cli: RunCli, work_dir: Path) -> None:
    """A path that cannot be written: exit 2 with the reason, without a traceback."""
    result = run_cli("init", "nowhere/editor")
    assert result.code == 2
    assert "nowhere/editor.yaml cannot be written: No such file or directory" in result.err
    assert "Traceback" not in result.err


def test_json_has_the_path_and_the_origin(run_cli: RunCli, work_dir: Path) -> None:
    """`--json` prints one object on stdout and nothing else."""
    result = run_cli("init", "agents", "--from", "triage", "--json")
    assert (result.code, result.err) == (0, "")
    assert json.loads(result.out) == {"path": "agents.yaml", "from": "triage"}
    assert (work_dir / "agents.yaml").is_file()


@pytest.mark.parametrize(
    "model", ["openai:gpt-5-mini", "ollama:qwen3:8b", "openai:1e5", "openai:yes", "openai:a b"]
)
def test_an_agent_of_a_model(run_cli: RunCli, work_dir: Path, model: str) -> None:
    """`--model PROVIDER:MODEL` writes a small agent of that model, whose names are texts whatever they look
    like. It checks clean, and its loaded form says provider, model and tools."""
    result = run_cli("init", "support", "--model", model)
    assert (result.code, result.out) == (0, "support.yaml\n")
    text = (work_dir / "support.yaml").read_text("utf-8")
    spec = yaml.safe_load(text)
    assert len(text.splitlines()) == 12
    assert ":".join(spec["llms"]["main"].values()) == model
    assert [tool["name"] for tool in spec["tools"]["registry"]] == ["calculator", "get_current_datetime"]
    assert json.loads(run_cli("check", "support.yaml", "--json").out)["findings"] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--model", "gpt-5"), "a model is named as PROVIDER:MODEL, not 'gpt-5'"),
        (("--model", "opnai:gpt-5"), "--model: unknown provider 'opnai'\n  did you mean 'openai'?"),
        (("--model", "openai:m", "--from", "quickstart"), "leave out --model"),
    ],
)
def test_a_model_that_is_none_writes_nothing(
    run_cli: RunCli, work_dir: Path, words: tuple[str, ...], problem: str
) -> None:
    """A model without its provider, an unknown provider and two origins are errors with the next step."""
    result = run_cli("init", "support", *words)
    assert (result.code, problem in result.err) == (2, True), result.err
    assert not (work_dir / "support.yaml").exists()
