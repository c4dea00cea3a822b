"""Help, tools and schemas: every command says what it does, and what it prints holds."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import click
import pytest
import yaml
from jsonschema import Draft202012Validator

from toolchart.app.cli import COMMANDS, cli
from toolchart.engine.log.record_schema import record_schema
from toolchart.specs import agents, charts
from toolchart.specs.loader import shipped_agents
from toolchart.states.events import EVENTS

Typed = Callable[..., Any]


def commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[Any]:
    """Every command with the words that call it, groups included."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield pytest.param((*words, name), command, id=" ".join((*words, name)))
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


# -- help --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "command"), list(commands()))
def test_every_command_explains_itself(
    typed: Typed, words: tuple[str, ...], command: click.Command
) -> None:
    """A sentence, an example, a text for every option; `-h`, `--help` and `help` say the same."""
    assert command.help
    sentence = command.help.split("\n\n")[0]
    assert sentence.endswith((".", ":")) or "." in sentence
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, f"{' '.join(words)} {option.opts[0]} has no help"
    said = typed(*words, "-h")
    assert said.code == 0
    assert typed(*words, "--help").out == typed("help", *words).out == said.out
    if not isinstance(command, click.Group):
        assert "Example:  toolchart " in said.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_the_commands_say(name: str) -> None:
    """The sentence in the table, which loads nothing, is the command's own."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.short_help == COMMANDS[name]


def examples() -> Iterator[Any]:
    """Every command line in the help texts."""
    for _, command in (param.values for param in commands()):
        for line in re.findall(r"^\s*(?:Example:|Try:)?\s*(toolchart .+)$", command.help, re.M):
            words = re.split(r"\s[|>]\s", line)[0]
            yield pytest.param(words, id=words)


@pytest.mark.parametrize("line", list(examples()))
def test_every_example_is_a_command(line: str) -> None:
    """What the help shows can be typed: each command and option in it exists."""
    words = shlex.split(line)[1:]
    command: click.Command | None = cli
    context = click.Context(cli, **cli.context_settings)
    while isinstance(command, click.Group):
        command = command.get_command(context, words.pop(0))
    assert command is not None
    command.make_context(command.name, words, parent=context)


def test_the_first_screen(typed: Typed) -> None:
    """`toolchart --help` has every command, the exit codes and something to try."""
    said = typed("--help").out
    for name in COMMANDS:
        assert re.search(rf"^  {name}  +\S", said, re.M)
    for code in range(6):
        assert f"{code} " in said.partition("Exit codes:")[2]
    assert 'toolchart run quickstart "What is 17 * (23 + 4)?"' in said


# -- tools -------------------------------------------------------------------------------------------


def test_tools_of_an_agent(typed: Typed) -> None:
    """S2.1: name, kind and description of each tool, in the spec's order; `--json` with schemas."""
    lines = typed("tools", "list", "quickstart").out.splitlines()
    names = ["calculator", "get_current_datetime", "generate_uuid", "echo"]
    assert [line.split()[:2] for line in lines] == [[name, "builtin"] for name in names]
    rows = typed("tools", "list", "quickstart", "--json").out.splitlines()
    told = [json.loads(row) for row in rows]
    assert [row["name"] for row in told] == names
    for row in told:
        Draft202012Validator.check_schema(row["parameters"])


def test_tools_as_a_provider_is_told(typed: Typed) -> None:
    """S2.2: OpenAI and Ollama get functions, Gemini one list of function declarations."""
    for provider in ("openai", "ollama"):
        entries = json.loads(typed("tools", "list", "quickstart", "--provider", provider).out)
        assert {entry["type"] for entry in entries} == {"function"}
        assert entries[3]["function"]["name"] == "echo"
    (entry,) = json.loads(typed("tools", "list", "quickstart", "--provider", "gemini").out)
    assert [one["name"] for one in entry["function_declarations"]][3] == "echo"


def test_an_unknown_tool_is_a_warning(typed: Typed, here: Any) -> None:
    """A name that no tool has is left out with a warning that names the nearest, on stderr."""
    (here / "agent.yaml").write_text(
        "llms: {a: {provider: scripted, model: m, replies: [x]}}\n"
        "tools: {registry: [{name: calcluator}]}\nresponses: [{llm: a}]\n"
    )
    done = typed("tools", "list", "agent.yaml")
    assert (done.code, done.out) == (0, "")
    assert "calculator" in done.err
    assert "this agent has no tools" in done.err


# -- schemas -----------------------------------------------------------------------------------------


def shipped_documents(package: Any) -> dict[str, Any]:
    """The shipped YAML files of a package, as data."""
    from importlib.resources import files

    texts = {
        entry.name: entry.read_text("utf-8")
        for entry in files(package).iterdir()
        if entry.name.endswith(".yaml")
    }
    return {name: yaml.safe_load(text) for name, text in texts.items()}


@pytest.mark.parametrize(("kind", "package"), [("spec", agents), ("chart", charts)])
def test_what_is_shipped_fits_its_schema(typed: Typed, kind: str, package: Any) -> None:
    """`schema spec` and `schema chart` are valid, take every shipped file and refuse what is none."""
    schema = json.loads(typed("schema", kind).out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for name, document in shipped_documents(package).items():
        assert [error.message for error in validator.iter_errors(document)] == [], name
    assert not validator.is_valid({})
    assert not validator.is_valid([])


def test_the_spec_is_the_default_schema(typed: Typed) -> None:
    """`toolchart schema` prints the schema of agent specs."""
    assert typed("schema").out == typed("schema", "spec").out


@cache
def checked() -> Draft202012Validator:
    """A validator of records."""
    schema = record_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


OFFLINE = {
    "quickstart": "2+2",
    "careful": "delete a.txt",
    "planful": "plan it",
    "steadfast": "go",
    "talkative": "go",
    "thrifty": "go",
}
"""Shipped agents that need no model host, with a message for each."""


def test_records_fit_their_schema(typed: Typed) -> None:
    """Every record of every kind of conversation fits `schema record`; every event has its form."""
    assert set(OFFLINE) < set(shipped_agents())
    for agent, message in OFFLINE.items():
        typed("run", agent, message, "--conversation", agent)
    typed("approve", "careful", "call_1_0_0", "--deny")
    typed("fork", "steadfast", "--set", "temperature=0", "--name", "forked")
    seen = set()
    for agent in (*OFFLINE, "forked"):
        for line in typed("show", agent, "--json").out.splitlines():
            record = json.loads(line)
            seen.add(record["event"]["type"])
            assert [error.message for error in checked().iter_errors(record)] == []
    assert seen == set(EVENTS) - {"cancelled"}
    assert len(checked().schema["properties"]["event"]["oneOf"]) == len(EVENTS)


def test_what_is_no_record_does_not_fit(typed: Typed) -> None:
    """An unknown key, a missing one, a wrong type or an unknown event, anywhere, is refused."""
    typed("run", "quickstart", "2+2", "--conversation", "c")
    record = json.loads(typed("show", "c", "--json").out.splitlines()[2])
    assert checked().is_valid(record)
    for key in record:
        assert not checked().is_valid({k: v for k, v in record.items() if k != key}), key
    wrong = [
        {"extra": 1},
        {"seq": -1},
        {"hash": "x"},
        {"guards": {"a": 1}},
        {"effects": [{"type": "x"}]},
        {"event": {"type": "unheard"}},
        {"event": {**record["event"], "extra": 1}},
        {"event": {"type": "replied"}},
        {"event": {"type": "replied", "reply": {"content": "x"}}},
        {"event": {"type": "replied", "reply": {"finish_reason": "maybe"}}},
    ]
    for change in wrong:
        assert not checked().is_valid({**record, **change}), change


def test_the_record_schema_is_documented() -> None:
    """What the source says of an event and of its fields stands in the schema."""
    parts = record_schema()["$defs"]
    assert parts["Replied"]["description"] == "The model answered, whole."
    assert parts["Failed"]["properties"]["kind"]["description"] == "One of `FAILURE_KINDS`."
