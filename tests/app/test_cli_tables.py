"""Help texts and their examples, `tools list`, and the JSON Schemas."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
from golden_logs import list_golden_logs, read_golden_log, split_conversations
from jsonschema import Draft202012Validator

import toolchart
from toolchart.app.cli import COMMANDS, cli
from toolchart.app.cli.command_table import COMMAND_GROUPS
from toolchart.engine.log.record_schema import build_record_schema
from toolchart.specs import agents, charts
from toolchart.states.chart.yaml_document import parse_document
from toolchart.states.vocabulary import get_events

RunCli = Callable[..., Any]


def list_commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield every command with the words that call it, groups included."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield pytest.param((*words, name), command, id=" ".join((*words, name)))
        if isinstance(command, click.Group):
            yield from list_commands(command, (*words, name))


# -- help --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "command"), list(list_commands()))
def test_every_command_explains_itself(
    run_cli: RunCli, words: tuple[str, ...], command: click.Command
) -> None:
    """Every command has a sentence, an example and help for each option; `-h`, `--help` and `help` agree."""
    assert command.help
    sentence = command.help.split("\n\n")[0]
    assert sentence.endswith((".", ":")) or "." in sentence
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{' '.join(words)} {option.opts[0]} has no help"
    help_result = run_cli(*words, "-h")
    assert help_result.code == 0
    assert run_cli(*words, "--help").out == run_cli("help", *words).out == help_result.out
    if not isinstance(command, click.Group):
        assert "Example:  toolchart " in help_result.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_matches_the_commands(name: str) -> None:
    """The sentence in the table, which imports nothing, equals the command's own."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.short_help == COMMANDS[name].summary


def list_command_modules() -> list[str]:
    """The names of the commands that have a module."""
    folder = Path(toolchart.app.cli.commands.__path__[0])
    texts = {path.stem.rstrip("_"): path.read_text("utf-8") for path in folder.glob("*/*.py")}
    return [name for name, text in texts.items() if re.search(r"^def command\(", text, re.M)]


def list_examples() -> Iterator[Any]:
    """Yield every command line in the help texts."""
    for _, command in (param.values for param in list_commands()):
        for line in re.findall(r"^\s*(?:Example:|Try:)?\s*(toolchart .+)$", command.help, re.M):
            words = re.split(r"\s[|>]\s", line)[0]
            yield pytest.param(words, id=words)


@pytest.mark.parametrize("line", list(list_examples()))
def test_every_example_is_a_command(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example in the help parses: its commands and options exist."""
    (tmp_path / "charts").mkdir()
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    command: click.Command | None = cli
    context = click.Context(cli, **cli.context_settings)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    assert command is not None
    with (
        contextlib.suppress(click.exceptions.Exit),
        command.make_context(command.name, words, parent=context),
    ):
        pass


@pytest.mark.parametrize("name", COMMANDS)
def test_the_default_log_is_the_one_that_is_used(run_cli: RunCli, name: str) -> None:
    """The help names the log that a command uses without `--log`: with a queue, the database of the queue."""
    text = " ".join(run_cli(name, "--help").out.split())
    if "--log LOG" in text:
        expected = "the database of --dsn" if "--dsn ADDRESS" in text else ".toolchart/log.db"
        assert f"[default: {expected}]" in text


def test_the_first_screen(run_cli: RunCli) -> None:
    """`toolchart --help` lists every command in one group, the exit codes and an example."""
    output = run_cli("--help").out
    names = []
    for group, rows in COMMAND_GROUPS.items():
        section = output.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\w+)  +\S", section, re.M) == list(rows)
        names += rows
    assert sorted(names) == sorted(list_command_modules())
    for code in range(6):
        assert f"{code} " in output.partition("Exit codes:")[2]
    assert 'toolchart run quickstart "What is 17 * (23 + 4)?"' in output


# -- tools -------------------------------------------------------------------------------------------


def test_tools_of_an_agent(run_cli: RunCli) -> None:
    """S2.1: name, kind and description of each tool, in the order of the spec; `--json` adds schemas."""
    lines = run_cli("tools", "list", "quickstart").out.splitlines()
    names = ["calculator", "get_current_datetime", "generate_uuid", "echo"]
    assert [line.split()[:2] for line in lines] == [[name, "builtin"] for name in names]
    rows = run_cli("tools", "list", "quickstart", "--json").out.splitlines()
    tools = [json.loads(row) for row in rows]
    assert [row["name"] for row in tools] == names
    for row in tools:
        Draft202012Validator.check_schema(row["parameters"])


def test_tools_in_the_format_of_a_provider(run_cli: RunCli) -> None:
    """S2.2: OpenAI and Ollama get functions, Gemini gets one list of function declarations."""
    for provider in ("openai", "ollama"):
        entries = json.loads(run_cli("tools", "list", "quickstart", "--provider", provider).out)
        assert {entry["type"] for entry in entries} == {"function"}
        assert entries[3]["function"]["name"] == "echo"
    (entry,) = json.loads(run_cli("tools", "list", "quickstart", "--provider", "gemini").out)
    assert [declaration["name"] for declaration in entry["function_declarations"]][3] == "echo"


def test_an_unknown_tool_is_a_warning(run_cli: RunCli, work_dir: Any) -> None:
    """An unknown tool name is left out, with a warning on stderr that names the nearest."""
    (work_dir / "agent.yaml").write_text(
        "llms: {a: {provider: scripted, model: m, replies: [x]}}\n"
        "tools: {registry: [{name: calcluator}]}\nresponses: [{llm: a}]\n"
    )
    result = run_cli("tools", "list", "agent.yaml")
    assert (result.code, result.out) == (0, "")
    assert "calculator" in result.err
    assert "this agent has no tools" in result.err


# -- schemas -----------------------------------------------------------------------------------------


def load_shipped_documents(package: Any) -> dict[str, Any]:
    """Return the shipped YAML files of a package as data."""
    from importlib.resources import files

    texts = {
        entry.name: entry.read_text("utf-8")
        for entry in files(package).iterdir()
        if entry.name.endswith(".yaml")
    }
    return {name: parse_document(text, name).data for name, text in texts.items()}


@pytest.mark.parametrize(("kind", "package"), [("spec", agents), ("chart", charts)])
def test_shipped_files_match_their_schema(run_cli: RunCli, kind: str, package: Any) -> None:
    """`schema spec` and `schema chart` are valid, accept every shipped file and reject other values."""
    schema = json.loads(run_cli("schema", kind).out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for name, document in load_shipped_documents(package).items():
        assert [error.message for error in validator.iter_errors(document)] == [], name
    assert not validator.is_valid({})
    assert not validator.is_valid([])


def test_the_spec_is_the_default_schema(run_cli: RunCli) -> None:
    """`toolchart schema` prints the schema of agent specs."""
    assert run_cli("schema").out == run_cli("schema", "spec").out


@cache
def build_record_validator() -> Draft202012Validator:
    """Return a validator of records."""
    schema = build_record_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_records_fit_their_schema() -> None:
    """Every record of the golden logs matches `schema record`, and every event occurs."""
    seen = set()
    for name in list_golden_logs():
        for line in chain.from_iterable(split_conversations(read_golden_log(name)).values()):
            record = json.loads(line)
            seen.add(record["event"]["type"])
            assert [error.message for error in build_record_validator().iter_errors(record)] == [], name
    assert seen == set(get_events())
    assert len(build_record_validator().schema["properties"]["event"]["oneOf"]) == len(get_events())


def test_what_is_no_record_does_not_fit(run_cli: RunCli) -> None:
    """An unknown key, a missing one, a wrong type or an unknown event, anywhere, is refused."""
    run_cli("run", "quickstart", "2+2", "--conversation", "c")
    record = json.loads(run_cli("show", "c", "--json").out.splitlines()[2])
    assert build_record_validator().is_valid(record)
    for key in build_record_validator().schema["required"]:
        assert not build_record_validator().is_valid({k: v for k, v in record.items() if k != key}), key
    wrong = [
        {"extra": 1},
        {"seq": -1},
        {"hash": "x"},
        {"guards": {"a": 1}},
        {"asks": [{"effect": 1, "id": 1}]},
        {"asks": [{**record["asks"][0], "extra": 1}]},
        {"cancels": ["x"]},
        {"late": "yes"},
        {"untaken": 1},
        {"event": {"type": "unheard"}},
        {"event": {**record["event"], "extra": 1}},
        {"event": {"type": "replied"}},
        {"event": {"type": "replied", "reply": {"content": "x"}}},
        {"event": {"type": "replied", "reply": {"finish_reason": "maybe"}}},
    ]
    for change in wrong:
        assert not build_record_validator().is_valid({**record, **change}), change


def test_the_record_schema_is_documented() -> None:
    """The schema contains the docstrings of events and fields."""
    parts = build_record_schema()["$defs"]
    assert parts["Replied"]["description"] == "The model answered, and its reply is complete."
    assert parts["Failed"]["properties"]["kind"]["description"] == "One of `FAILURE_KINDS`."
