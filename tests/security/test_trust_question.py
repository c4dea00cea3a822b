"""The question of `--trust-log`: its list is the manifest of the loaded agent, and nothing runs before it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents import make_spec
from command_line import run_and_type
from command_runs import RunCli
from msgspec.structs import replace

from toolchart.app.cli.stored_agent import choose_agent, find_shipped_agent
from toolchart.engine import Engine
from toolchart.engine.manifest import build_manifest
from toolchart.providers.hosts import HOSTS
from toolchart.specs.loader import list_shipped_agents, load_spec
from toolchart.states.errors import SpecError
from toolchart.states.events import Configured
from toolchart.states.starts import START_KINDS, Start, quote_whole, quote_words
from toolchart.states.vocabulary import get_effects
from toolchart.tools.sources.table import TOOL_SOURCES

TRACED = Path(__file__).resolve().parents[1] / "support" / "traced_agents.py"
HOST = {"m": {"provider": "scripted", "model": "m", "replies": ["done"]}}


def list_starts(spec: Any) -> tuple[Start, ...]:
    """The starts of a spec."""
    return build_manifest(load_spec(spec)).starts


def find_subjects(spec: Any, kind: str) -> list[str]:
    """What the starts of one kind are."""
    return [start.subject for start in list_starts(spec) if start.kind == kind]


def make_agent(**sections: Any) -> dict[str, Any]:
    """A spec with a scripted host and these sections."""
    return {"llms": HOST, "responses": [{"llm": "m"}], **sections}


def make_flow(effects: dict[str, Any], *, declares: bool = False, **keys: Any) -> dict[str, Any]:
    """A chart that asks for an effect, `act`, and what it declares."""
    chart: dict[str, Any] = {
        "states": {
            "acting": {
                "initial": True,
                "enter": "act",
                "transitions": [
                    {"event": event, "target": "finished"}
                    for event in (
                        "returned",
                        "replied",
                        "agent_finished",
                        "agent_failed",
                        "failed",
                        "cancelled",
                    )
                ],
            },
            "finished": {"final": True, "enter": "answer_with_error"},
        },
        **keys,
    }
    return {**chart, "effects": effects} if declares else chart


# -- what hid before --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "t", "type": "python", "handler": "os:system"},
        {"name": "t", "implementation": {"type": "python", "handler": "os:system"}},
        {"name": "t", "type": "function", "implementation": {"type": "python", "handler": "os:system"}},
        {"name": "t", "type": "mock", "implementation": {"type": "python", "handler": "os:system"}},
        {"name": "t", "_x": 1, "$y": 2, "type": "python", "handler": "os:system", "description": "harmless"},
    ],
)
def test_every_spelling_of_a_python_tool_is_listed(entry: dict[str, Any]) -> None:
    """Nested or flat, the function of a tool is on the list, before everything that only reads."""
    starts = list_starts(make_agent(tools={"registry": [entry]}))
    assert (starts[0].kind, starts[0].subject) == ("function", "os:system")


@pytest.mark.parametrize("body", ["os:system", {"function": "os:system", "arguments": {"command": "id"}}])
@pytest.mark.parametrize("place", ["spec", "inline", "path", "extends", "child", "child path", "changed"])
def test_every_place_of_a_called_function_is_listed(tmp_path: Path, place: str, body: Any) -> None:
    """A called function is listed wherever it is declared: in the spec, charts, their bases, children."""
    effects = {"act": {"call_function": body}}
    chart = make_flow(effects, declares=True)
    file = tmp_path / "chart.yaml"
    file.write_text(yaml.safe_dump(chart, sort_keys=False), "utf-8")
    child = tmp_path / "child.yaml"
    child.write_text(yaml.safe_dump(make_agent(chart=chart)), "utf-8")
    run = {"act": {"run_agent": {"spec": str(child), "as": "x"}}}
    run_path = {"act": {"run_agent": {"chart": str(file), "as": "x"}}}
    harmless = {"act": {"call_function": {"function": "math:sqrt"}}}
    sections: dict[str, dict[str, Any]] = {
        "spec": {"chart": make_flow({}), "effects": effects},
        "inline": {"chart": chart},
        "path": {"chart": str(file)},
        "extends": {"chart": {"extends": str(file)}},
        "child": {"chart": make_flow(run, declares=True)},
        "child path": {"chart": make_flow({}), "effects": run_path},
        "changed": {"chart": make_flow(harmless, declares=True), "effects": effects},
    }
    agent = make_agent(**sections[place])
    assert "os:system" in find_subjects(agent, "function")
    if isinstance(body, dict):
        assert any('"command":"id"' in start.purpose for start in list_starts(agent))
    assert ("child.yaml" in str(find_subjects(agent, "file"))) == (place == "child")
    assert bool(find_subjects(agent, "agent")) == place.startswith("child")


def test_a_class_that_stands_for_a_schema_is_listed() -> None:
    """`schema: module:Class` imports a module, in any kind of effect."""
    for kind in ("call_model", "run_agent", "wait", "ask_person"):
        agent = make_agent(chart=make_flow({}), effects={"act": {kind: {"schema": "evil:Form", "as": "x"}}})
        assert "evil:Form" in find_subjects(agent, "function"), kind


def test_a_command_stands_with_its_environment() -> None:
    """The variables of a server's command stand before it: some of them choose what runs."""
    server = {
        "command": "sh",
        "args": ["-c", "x"],
        "env": {"LD_PRELOAD": "/evil.so", "B": "${SECRET}"},
        "cwd": "d",
    }
    agent = make_agent(tools={"mcp": {"s": server}})
    command = next(start for start in list_starts(agent) if start.kind == "command")
    assert command.words == ("LD_PRELOAD=/evil.so", "B=${SECRET}", "sh", "-c", "x")
    assert "in the folder d" in command.purpose
    assert find_subjects(agent, "variable") == ["SECRET"]


def test_builtins_that_act_are_listed() -> None:
    """The shell is a command; a folder that is read, and an index that is written, are files."""
    registry = [
        {"name": "a", "handler": "run_shell", "root": "."},
        {
            "name": "b",
            "implementation": {"type": "internal", "handler": "rag_query"},
            "folders": {"x": "docs"},
        },
        {"name": "calculator"},
    ]
    agent = make_agent(tools={"registry": registry})
    assert find_subjects(agent, "command") == ["any shell command that the model asks for"]
    assert set(find_subjects(agent, "file")) == {".", "docs", ".toolchart/b.db"}


def test_addresses_and_keys_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host stands with its address, and with the variable of its key only where it would get it."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    own = {"a": {"provider": "openai", "model": "m"}}
    other = {
        "a": {"provider": "openai", "model": "m", "base_url": "http://evil.test", "proxy": "http://p.test"}
    }
    assert find_subjects(make_agent(llms={**HOST, **own}), "host") == ["https://api.openai.com/v1"]
    assert "OPENAI_API_KEY" in find_subjects(make_agent(llms={**HOST, **own}), "variable")
    agent = make_agent(llms={**HOST, **other}, rag_services={"s": {"url": "http://rag.test"}})
    assert find_subjects(agent, "host") == ["http://evil.test"]
    assert find_subjects(agent, "address") == ["http://p.test", "http://rag.test"]
    assert find_subjects(agent, "variable") == []


def test_what_other_sections_open_is_listed(tmp_path: Path) -> None:
    """Prices, debug files, OpenAPI documents and certificates are files."""
    document = tmp_path / "api.yaml"
    document.write_text("openapi: 3.1.0\nservers: [{url: 'http://api.test'}]\npaths: {}\n", "utf-8")
    agent = make_agent(
        llms={**HOST, "o": {"provider": "openai", "base_url": "http://o.test", "ca_file": "ca.pem"}},
        tools={"openapi": [{"document": str(document)}]},
        prices="p.yaml",
        debug={"traces": True},
    )
    assert set(find_subjects(agent, "file")) == {"p.yaml", "debug", "ca.pem", str(document)}
    assert set(find_subjects(agent, "address")) == {"http://api.test"}


# -- how it is shown --------------------------------------------------------------------------------


def test_a_line_is_whole_and_ascii() -> None:
    """Nothing is cut; what may be invisible, or look like another letter, is its number; padding counts."""
    hidden = "a" + " " * 5000 + "\x1b[2K\u202e\u200b\u3164\u2800\u043epenai\x7f; rm -rf /"
    for line in (quote_whole(hidden), quote_words(["sh", hidden])):
        assert line.isascii()
        assert line.isprintable()
        assert " <5,000 times>" in line
        assert all(
            mark in line for mark in ("\\u001b", "\\u202e", "\\u200b", "\\u3164", "\\u2800", "\\u043e")
        )
        assert line.endswith('rm -rf /"')
    assert quote_whole("https://a.test/x?y=z") == "https://a.test/x?y=z"
    long = "".join(f"{number:05d}" for number in range(2000))
    assert quote_whole(long) == long


def test_the_most_dangerous_stands_first() -> None:
    """Commands and functions come before hosts, files and variables, and the lines are numbered."""
    tools = {
        "registry": [{"name": "t", "type": "python", "handler": "os:system"}],
        "mcp": {"s": {"command": "x"}},
    }
    manifest = build_manifest(load_spec(make_agent(tools=tools, comment="${A} ${B}", prices="p")))
    kinds = [start.kind for start in manifest.starts]
    assert kinds == sorted(kinds, key=START_KINDS.index)
    lines = manifest.format_lines()
    assert lines[0].startswith("1. command: x")
    assert lines[-1].startswith(f"{len(lines)}. variable: B")


def write_log(folder: Path, stored: dict[str, Any]) -> None:
    """Write a log whose conversation `c` rests, and whose stored spec is this one."""
    with Engine(make_spec(), log=folder / "log.db") as engine:
        engine.spec._public_document.clear()
        engine.spec._public_document.update(stored)
        engine.run("go", conversation="c")


def test_a_person_sees_the_whole_list(tmp_path: Path) -> None:
    """On a terminal: the count, every item on a numbered line, then the question; only `yes` starts them."""
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')"
    server = {"command": sys.executable, "args": ["-c", " " * 3000, code]}
    tools = {"registry": [{"name": "t", "type": "python", "handler": "evil:run"}], "mcp": {"s": server}}
    (tmp_path / "evil.py").write_text(f"{code}\ndef run(): return 1\n", "utf-8")
    write_log(tmp_path, make_agent(tools=tools))
    words = ["resume", "c", "--trust-log", "--log", "log.db"]
    code_no, screen = run_and_type(words, tmp_path, [(b"[y/N]", b"n\n")])
    assert code_no == 3
    text = screen.replace("\r\n", "\n")
    assert "can start, reach or read 2 things:\n  1. command" in text
    assert str(mark) in text
    assert "\n  2. function: evil:run  (tool t" in text
    assert "all that is listed (2)?" in text
    assert not mark.exists()
    code_yes, _ = run_and_type(words, tmp_path, [(b"[y/N]", b"y\n")])
    assert code_yes == 0
    assert mark.exists()


def test_a_log_names_no_approvers(tmp_path: Path, run_cli: RunCli) -> None:
    """A stored spec with a section that no log holds was written by somebody else, and is refused."""
    write_log(tmp_path, make_agent(approvers={"me": [{"key": "ed25519:x"}]}))
    result = run_cli("resume", "c", "--trust-log", "--log", "log.db")
    assert result.code == 2
    assert "approvers" in result.err
    assert "Traceback" not in result.err


def test_the_answer_holds_for_the_list_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a chart that the agent names changes while the person reads, nothing starts."""
    file = tmp_path / "chart.yaml"
    file.write_text(
        yaml.safe_dump(make_flow({"act": {"call_function": "math:sqrt"}}, declares=True)), "utf-8"
    )
    stored = build_configured(make_agent(chart=str(file)))

    def change_file(*_: Any, **__: Any) -> bool:
        """What happens while the question stands."""
        file.write_text(file.read_text("utf-8").replace("math:sqrt", "os:system"), "utf-8")
        return True

    monkeypatch.setattr("toolchart.app.cli.stored_agent.can_ask_user", lambda: True)
    monkeypatch.setattr("click.confirm", change_file)
    with pytest.raises(SpecError, match="was changed while you read"):
        choose_agent(None, stored, trust_log=True)


# -- what cannot say is refused ---------------------------------------------------------------------


def test_a_row_that_cannot_say_is_refused() -> None:
    """A tool source, a host and an effect without `list_starts` are incomplete: registries refuse them."""
    rows = [
        replace(TOOL_SOURCES.find("python"), list_starts=""),
        replace(HOSTS.find("openai"), list_starts=""),
        replace(get_effects()["call_function"], list_starts=None),
    ]
    for row in rows:
        assert any("`list_starts` is missing" in gap for gap in row.find_gaps())


@pytest.mark.parametrize(
    "sections",
    [
        {"chart": "no_such_chart.yaml"},
        {"effects": {"act": {"run_agent": {"spec": "no_such_agent.yaml", "as": "x"}}}},
        {"effects": {"act": {"run_agent": {"spec": "/dev/zero", "as": "x"}}}},
        {"effects": {"act": {"no_such_kind": {}}}},
        {"effects": {"act": "call_function"}},
        {"tools": {"openapi": [{"document": "/dev/zero"}]}},
        {"tools": {"mcp": {"s": {"command": "x", "url": "http://y"}}}},
        {"tools": {"registry": [{"name": "t", "type": "http", "url": "x", "allow_hosts": 5}]}},
        {"tools": {"registry": [{"name": "t", "type": "http"}]}},
        {"tools": {"registry": [{"name": "t", "handler": "run_shell", "root": ["x"], "environment": 5}]}},
    ],
)
def test_an_agent_that_cannot_be_read_is_refused(sections: dict[str, Any]) -> None:
    """What would make the list incomplete is an error, and no list: also a device that never ends."""
    with pytest.raises(SpecError):
        build_manifest(load_spec(make_agent(**sections)))


def test_a_row_that_fails_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the function of another package's row raises, the person reads why there is no list."""
    row = "toolchart.tools.sources.registry_entries:list_python_starts"

    def fail(*_: Any) -> Any:
        """What a careless row does."""
        raise KeyError("file")

    monkeypatch.setattr(row.replace(":", "."), fail)
    tools = {"registry": [{"name": "t", "type": "python", "handler": "math:sqrt"}]}
    with pytest.raises(SpecError, match="cannot say what it starts: KeyError"):
        build_manifest(load_spec(make_agent(tools=tools)))


def test_agents_that_run_each_other_are_listed_once(tmp_path: Path) -> None:
    """A circle of agents ends."""
    spec = make_agent(chart=make_flow({}), effects={"act": {"run_agent": {"spec": "a.yaml", "as": "x"}}})
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    assert len(find_subjects(tmp_path / "a.yaml", "agent")) == 1


# -- shipped agents -----------------------------------------------------------------------------------


def build_configured(spec: Any) -> Configured:
    """What a log says about a conversation of an agent, with an empty chart."""
    document = spec if isinstance(spec, dict) else load_spec(spec).to_public_dict()
    return Configured(format=1, conversation="c", chart="", spec=document)


def test_a_shipped_agent_is_one_word_for_word() -> None:
    """Every shipped agent is recognised by spec, chart and effects; none by its spec alone."""
    for name in list_shipped_agents():
        with Engine(name, log="memory", providers={}) as engine:
            stored = engine.conversation("c").build_configured_event()
        assert find_shipped_agent(stored) == name
        evil = {"act": {"call_function": {"function": "os:system"}}}
        assert find_shipped_agent(replace(stored, effects=evil)) is None
        assert find_shipped_agent(replace(stored, chart=stored.chart + "\n")) is None
        assert find_shipped_agent(replace(stored, spec={**stored.spec, "comment": "x"})) is None


@pytest.mark.parametrize(
    ("name", "goes_on"),
    [("quickstart", True), ("triage", True), ("handy", False), ("openai", False), ("informed", False)],
)
def test_a_log_chooses_no_shipped_agent_that_acts(name: str, goes_on: bool) -> None:
    """Only one that starts nothing goes on because a log names it; the others are named by the operator."""
    with Engine(name, log="memory", providers={}) as engine:
        stored = engine.conversation("c").build_configured_event()
    assert choose_agent(name, stored, trust_log=False) == name
    if goes_on:
        assert choose_agent(None, stored, trust_log=False) == name
    else:
        with pytest.raises(SpecError, match=f"--spec {name}"):
            choose_agent(None, stored, trust_log=False)


def test_equal_values_are_not_equal_words() -> None:
    """1 and true are equal values, and not the same words of a spec."""
    with Engine("talkative", log="memory") as engine:
        stored = engine.conversation("c").build_configured_event()
    text = json.dumps(stored.spec)
    assert "true" in text
    changed = json.loads(text, object_hook=lambda data: {k: 1 if v is True else v for k, v in data.items()})
    assert changed == stored.spec
    assert find_shipped_agent(replace(stored, spec=changed)) is None


# -- under a tracer -----------------------------------------------------------------------------------


def run_traced(folder: Path, seed: int, first: int, count: int, *rows: str) -> dict[str, Any]:
    """Run random agents in a process with a tracer; what they did that was not listed."""
    words = [sys.executable, str(TRACED), str(seed), str(first), str(count), str(folder), *rows]
    result = subprocess.run(words, capture_output=True, text=True, timeout=1800, env={**os.environ})
    assert result.returncode == 0, result.stderr[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
def test_whatever_ran_was_listed(tmp_path: Path) -> None:
    """Five hundred random agents from logs: each process, module, connection and file was on its list, and
    before the answer there was none."""
    answer = run_traced(tmp_path, 25, 0, 500)
    assert answer["agents"] == 500
    assert answer["findings"] == {"": []}
    seen = answer["seen"]
    assert min(seen[kind] for kind in ("process", "import", "connection", "file")) > 50
    for kind in START_KINDS:
        assert kind == "plugin" or seen[f"line: {kind}"] > 50, kind
    assert sum(count for what, count in seen.items() if what.startswith("refused")) < 50


HIDDEN_ROWS = (
    "toolchart.tools.sources.registry_entries:list_python_starts",
    "toolchart.tools.sources.registry_entries:list_http_starts",
    "toolchart.tools.sources.mcp:list_mcp_starts",
    "toolchart.providers.entries:list_host_starts",
    "effect:call_function",
    "effect:run_agent",
)


@pytest.mark.slow
def test_the_tracer_notices_a_row_that_hides(tmp_path: Path) -> None:
    """Where one row says nothing of what it starts, the tracer finds it: each row that is hidden."""
    findings = run_traced(tmp_path, 2, 1000, 30, *HIDDEN_ROWS)["findings"]
    assert [row for row in HIDDEN_ROWS if not findings[row]] == []
