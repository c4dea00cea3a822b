"""`check` and `doctor` find what would keep an agent from starting; hints name commands that install."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from source_tree import load_modules

import toolchart
from toolchart.states.errors import EXTRA_PACKAGES, format_install

RunCli = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def write_agent(folder: Path, provider: str = "scripted", **tools: Any) -> Path:
    """Write an agent spec with these tools."""
    file = folder / "agent.json"
    spec = {
        "llms": {"m": {"provider": provider, "model": "m", "replies": ["ok"]}},
        "tools": tools,
        "responses": [{"llm": "m", "prompt": "p", "tools": {"enabled": True}}],
    }
    file.write_text(json.dumps(spec), "utf-8")
    return file


def make_python_entry(handler: str) -> dict[str, Any]:
    """A registry entry of a Python function."""
    return {"name": "own", "implementation": {"type": "python", "handler": handler}}


def test_a_script_is_read_by_check_and_doctor_and_named_at_its_line(run_cli: RunCli, work_dir: Path) -> None:
    """A wrong key of a script fails `check`, `doctor` and `run`, each with file, line, the nearest key and
    the allowed ones; each says it once."""
    lines = ["llms:", "  m:", "    provider: scripted", "    model: m", "    rules:", "      - match: hi"]
    lines += ["        replly: hello", "responses: [{llm: m}]", ""]
    (work_dir / "agent.yaml").write_text("\n".join(lines), "utf-8")
    problem = "agent.yaml:7: llms.m.rules[0].replly: unknown key 'replly'"
    checked = run_cli("check", "agent.yaml")
    assert (checked.code, checked.out.count(problem)) == (1, 1)
    inspected = run_cli("doctor", "agent.yaml")
    assert (inspected.code, inspected.out.count(problem)) == (1, 1)
    started = run_cli("run", "agent.yaml", "hi")
    assert (started.code, started.err.count(problem)) == (2, 1)
    for text in (checked.out, inspected.out, started.err):
        assert "did you mean 'reply'? known: call, match, on_error, reply, usage" in text


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("a handler that cannot be imported", {"registry": [make_python_entry("no_such:f")]}, "no_such"),
    ("a builtin that does not exist", {"registry": [{"name": "calculater"}]}, "calculator"),
]


@pytest.mark.parametrize(("what", "tools", "words"), BROKEN, ids=[row[0] for row in BROKEN])
def test_check_and_doctor_refuse(
    run_cli: RunCli, work_dir: Path, what: str, tools: dict[str, Any], words: str
) -> None:
    """Issue 16: an agent that cannot start as it is written fails `check` and `doctor`, and is told why."""
    file = str(write_agent(work_dir, **tools))
    checked = run_cli("check", file)
    assert checked.code == 1, what
    assert words in checked.out
    is_left_out = what == "a builtin that does not exist"
    assert ("the agent starts without a tool" in checked.out) is is_left_out
    report = json.loads(run_cli("check", file, "--json").out)
    assert (report["ok"], len(report["start"])) == (False, 1)
    inspected = run_cli("doctor", file)
    assert inspected.code == 1
    assert words in inspected.out


@pytest.mark.parametrize("words", [("check",), ("doctor",), ("run",), ("tools", "list"), ("serve",)])
def test_no_command_takes_a_provider_that_does_not_exist(
    run_cli: RunCli, work_dir: Path, words: tuple[str, ...]
) -> None:
    """A spec with an unknown provider is refused by each command, with its place and the nearest name."""
    file = str(write_agent(work_dir, "opnai"))
    result = run_cli(*words, file, *(["hi"] if words == ("run",) else []))
    assert result.code == 2, result.err
    assert "agent.json:1: llms.m.provider: unknown provider" in result.err
    assert "did you mean 'openai'?" in result.err
    assert not (work_dir / ".toolchart").exists()


def test_a_missing_extra_is_found(run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: an agent whose extra is not installed fails `check` with the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "mcp", None)
    file = str(write_agent(work_dir, mcp={"s": {"command": "none"}}))
    checked = run_cli("check", file)
    assert checked.code == 1
    assert format_install("mcp") in checked.out


def test_a_handler_beside_the_spec_is_imported(run_cli: RunCli, tmp_path: Path, work_dir: Path) -> None:
    """Issue 16: a Python handler in a file beside the spec is found, wherever the command is started."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    name = f"own_tools_{abs(hash(str(tmp_path)))}"
    (folder / f"{name}.py").write_text(
        "def f(text: str) -> str:\n    'Return it.'\n    return text\n", "utf-8"
    )
    entry = {**make_python_entry(f"{name}:f"), "risk": "low"}
    file = str(write_agent(folder, registry=[entry]))
    checked = run_cli("check", file)
    assert checked.code == 0, checked.out
    assert run_cli("run", file, "hi").out.strip() == "ok"


@pytest.mark.parametrize("is_package", [False, True])
def test_a_process_takes_no_module_of_another_spec(tmp_path: Path, is_package: bool) -> None:
    """Two specs may have a module of the same name beside them. In one process the second is refused with
    both files, where it would run the functions of the first. The same text is the same module."""
    name = f"same_name_{'package' if is_package else 'module'}"
    files = []
    for folder_name, said in (("first", "first"), ("second", "second"), ("third", "first")):
        folder = tmp_path / folder_name
        module = folder / name / "__init__.py" if is_package else folder / f"{name}.py"
        module.parent.mkdir(parents=True)
        module.write_text(f"def f() -> str:\n    'Say it.'\n    return '{said}'\n", "utf-8")
        files.append(write_agent(folder, registry=[{**make_python_entry(f"{name}:f"), "risk": "low"}]))
    with toolchart.Engine(files[0], log="memory"):
        pass
    with toolchart.Engine(files[2], log="memory"):
        pass
    with pytest.raises(toolchart.SpecError) as caught:
        toolchart.Engine(files[1], log="memory")
    parts = (
        "another one is",
        str(tmp_path / "first" / name),
        str(tmp_path / "second" / name),
        "another name",
    )
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize(
    ("text", "handler", "words"),
    [
        ("def broken(:\n", "NAME:f", "NAME.py:1: "),
        ("\nx = 1 / 0\n", "NAME:f", "NAME.py:2: ZeroDivisionError: "),
        ("import no_such_package\n", "NAME:f", "NAME.py:1: ModuleNotFoundError"),
        ("def look_up() -> str:\n    return 'x'\n", "NAME:lookup", "did you mean 'look_up'?"),
        ("", "NAM:f", "did you mean 'NAME'?"),
    ],
)
def test_a_fault_in_a_module_of_tools_names_its_line(
    text: str, handler: str, words: str, run_cli: RunCli, work_dir: Path
) -> None:
    """Issue 16: a mistake in one's own module is the spec's: exit code 2, the entry in the spec, and the file
    and line of the mistake."""
    name = f"tools_{abs(hash((str(work_dir), text)))}"
    (work_dir / f"{name}.py").write_text(text, "utf-8")
    file = write_agent(
        work_dir, registry=[make_python_entry(handler.replace("NAME", name).replace("NAM", name[:-1]))]
    )
    result = run_cli("run", str(file), "hi")
    assert (result.code, result.out) == (2, "")
    assert f"{file}:1: tools.registry[0]: tool 'own'" in result.err
    assert words.replace("NAME", name) in result.err


def test_a_misspelt_file_or_chart_names_the_nearest(run_cli: RunCli, work_dir: Path) -> None:
    """A chart that does not exist is named with its line in the spec; a file, with its neighbour."""
    write_agent(work_dir)
    result = run_cli("run", "agnet.json", "hi")
    assert (result.code, "did you mean 'agent.json'?" in result.err) == (2, True)
    result = run_cli("run", str(work_dir / "no" / "agent.json"), "hi")
    assert "there is no folder" in result.err
    (work_dir / "own.yaml").write_text(
        "llms: {m: {provider: scripted, model: m, replies: [ok]}}\nchart: aproval\nresponses: [{llm: m}]\n",
        "utf-8",
    )
    result = run_cli("run", "own.yaml", "hi")
    assert result.code == 2
    assert "own.yaml:2: chart: no chart 'aproval'" in result.err
    assert "did you mean 'approval'?" in result.err


def test_install_hints_name_the_packages_of_the_extras() -> None:
    """Issue 16: a hint installs the packages themselves, so it holds wherever Toolchart came from; they are
    those of the extras, and no text names `toolchart[...]`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, packages in EXTRA_PACKAGES.items():
        assert list(packages) == extras[extra]
    for module in load_modules().values():
        text = module.path.read_text("utf-8")
        assert not re.search(r"pip install '?toolchart\[", text), module.location


def test_a_command_whose_extras_are_missing_names_their_packages(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`toolchart mcp` without its libraries is a clear error with the command that installs all of them."""
    monkeypatch.delitem(sys.modules, "toolchart.app.server.mcp_server.connections", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    result = run_cli("mcp", "quickstart")
    assert (result.code, result.out) == (2, "")
    assert format_install("mcp", "serve") in result.err
    for package in (*EXTRA_PACKAGES["mcp"], *EXTRA_PACKAGES["serve"]):
        assert f"'{package}'" in result.err


@pytest.mark.parametrize(("command", "module"), [("mcp", "mcp_server.connections"), ("serve", "serving")])
def test_a_fault_of_our_own_modules_is_no_missing_package(
    command: str, module: str, run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of Toolchart that cannot be imported is a defect, and nothing is said about packages."""
    monkeypatch.setitem(sys.modules, f"toolchart.app.server.{module}", None)
    result = run_cli(command, "quickstart")
    assert (result.code, result.out) == (70, "")
    assert "pip install" not in result.err
    assert module in result.err


def test_check_says_what_a_spec_does_not_use(run_cli: RunCli, work_dir: Path) -> None:
    """A key that Toolchart does not read is named by `check` as by `run`: a clean chart does not hide it."""
    file = write_agent(work_dir)
    spec = json.loads(file.read_text("utf-8"))
    spec["responses"][0]["alowed_tools"] = ["calculator"]
    file.write_text(json.dumps(spec), "utf-8")
    words = "keys that Toolchart does not use: responses[0].alowed_tools"
    checked = run_cli("check", str(file))
    assert (checked.code, words in checked.err) == (0, True)
    assert json.loads(run_cli("check", str(file), "--json").out)["warnings"] == [words]


SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"prices": {"models": {"m": {"inputt": 1}}}}, "inputt"),
    ({"redact": {"patterns": ["emial"]}}, "emial"),
]


@pytest.mark.parametrize(("section", "word"), SECTIONS, ids=["prices", "redact"])
def test_check_and_doctor_read_what_every_run_reads(
    run_cli: RunCli, work_dir: Path, section: dict[str, Any], word: str
) -> None:
    """A price table or a pattern that no run takes is a problem of `check`, and said once by `doctor`."""
    file = write_agent(work_dir)
    spec = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**spec, **section}), "utf-8")
    assert run_cli("run", str(file), "hi").code == 2
    checked = run_cli("check", str(file))
    assert checked.code == 1
    assert word in checked.out
    inspected = run_cli("doctor", str(file))
    assert inspected.code == 1
    assert inspected.out.count(word) == 1


@pytest.mark.parametrize(
    ("rules", "tools", "code"),
    [
        ([{"tools": "ecko", "decision": "ask"}], {}, 1),
        ({"rules": [{"tools": ["echo", "ecko"], "decision": "never"}]}, {}, 1),
        ([{"tools": "ecko_*", "decision": "ask"}], {}, 0),
        ([{"tools": "ecko", "decision": "always"}], {}, 0),
        ({"default": "ask", "rules": [{"tools": "ecko", "decision": "never"}]}, {}, 0),
        ([{"tools": "ecko", "decision": "never"}, {"tools": "*", "decision": "ask"}], {}, 0),
        ([{"tools": "ecko", "decision": "ask"}], {"mcp": {"mail": {"command": "no-such-server"}}}, 1),
    ],
)
def test_a_rule_that_names_no_tool_fails_the_check(
    run_cli: RunCli, work_dir: Path, rules: Any, tools: dict[str, Any], code: int
) -> None:
    """A rule of approval for one misspelt tool holds nothing back: the tool that was meant runs unasked.

    So it is a finding, with its place and the nearest name. A pattern, `always`, and a rule beside one that
    asks about every other call let nothing run: they are notes.
    """
    file = write_agent(work_dir, registry=[{"name": "echo"}], **tools)
    spec = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**spec, "approval": rules}), "utf-8")
    checked = run_cli("check", str(file))
    report = json.loads(run_cli("check", str(file), "--json").out)
    assert (checked.code, report["ok"]) == (code, not code)
    kind, where = ("dead rule", report["findings"]) if code else ("idle rule", report["notes"])
    (entry,) = [entry for entry in where if entry["kind"] == kind]
    assert re.search(r"names 'ecko(_\*)?', which matches no tool .*echo.*agent.json:1\)", entry["message"])
    assert checked.out.count("which matches no tool") == 1
    assert "which matches no tool" not in checked.err
    if code:
        assert "change: write the name of a tool that the agent has" in checked.out
        assert "replay: no run" in run_cli("check", str(file), "--replay-counterexample").out


@pytest.mark.parametrize(
    ("rule", "tools"),
    [
        ("mail__send", {"mcp": {"mail": {"command": "no-such-server"}}}),
        ("send", {"mcp": {"mail": {"command": "no-such-server", "prefix": ""}}}),
        ("list_orders", {"openapi": [{"document": "orders.json"}]}),
        ("geo_lookup", {"registry": [{"name": "geo.lookup", "implementation": {"type": "mock"}}]}),
        ("geo.lookup", {"registry": [{"name": "geo.lookup", "implementation": {"type": "mock"}}]}),
    ],
)
def test_a_rule_for_a_tool_that_may_be_there_is_no_finding(
    run_cli: RunCli, work_dir: Path, rule: str, tools: dict[str, Any]
) -> None:
    """The tools of servers and documents are not known before they are asked; a tool with a name that some
    host refuses has a second one."""
    file = write_agent(work_dir, **tools)
    spec = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**spec, "approval": [{"tools": rule, "decision": "ask"}]}), "utf-8")
    report = json.loads(run_cli("check", str(file), "--json").out)
    found = [*report["findings"], *report["notes"], *report["warnings"]]
    assert "matches no tool" not in json.dumps(found)


def test_an_agent_in_python_finds_its_rules_that_name_no_tool(run_cli: RunCli, work_dir: Path) -> None:
    """`Agent.check` says what the command says."""
    program = work_dir / "ruled_agent.py"
    program.write_text(
        "from toolchart import Agent, tool\n"
        "@tool(risk='low', trust='trusted')\n"
        "def refund(order: str) -> str:\n"
        "    return order\n"
        "rules = [{'tools': name, 'decision': 'ask'} for name in ('refund', 'refnd')]\n"
        "agent = Agent('scripted:m', tools=[refund], approval=rules)\n",
        "utf-8",
    )
    words = "approval rule 2 (ask) names 'refnd', which matches no tool (did you mean 'refund'?)"
    checked = run_cli("check", f"{program}:agent")
    assert (checked.code, f"dead rule: {words}" in checked.out) == (1, True)
    (finding,) = runpy.run_path(str(program))["agent"].check().findings
    assert (finding.kind, finding.message) == ("dead rule", words)
