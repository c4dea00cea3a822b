"""Every command survives packages that are broken, raise and hang; an error comes to who names them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import SETUP, START, run_toolchart
from command_uses import CASES, list_command_words, write_inputs
from hostile_plugins import FAULTS, RUN_LINES, add_to_path, install_hostile_plugins, install_shaky_plugin
from planted_key import KEY, quote_key
from web import serve_web

from toolchart.states.descriptors import REGISTRIES

WITHOUT_USE = {
    "chat": "runs in a process of its own below",
    "mcp": "runs in a process of its own below",
    "serve": "runs in a process of its own below",
    "worker": "takes turns from PostgreSQL; its help is in the test",
    "submit": "needs the queue of `worker`; its help is in the test",
}
"""Commands that are not in `CASES`, and why."""

MORE_CASES: tuple[tuple[str, ...], ...] = (
    ("check", "tool_loop"),
    ("draw", "full", "--format", "mermaid"),
    ("schema", "record"),
    ("schema", "chart"),
    ("tools", "pin", "--help"),
    ("no-such-command",),
    ("draw", "full", "--format", "no-such-format"),
    ("run", "no-such-agent", "x"),
    ("runs", "--log", "nostore://x"),
)

Line = tuple[tuple[str, ...], str]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them installed."""
    folder = tmp_path_factory.mktemp("packages")
    install_hostile_plugins(folder)
    return folder


def run_lines(lines: list[Line], cwd: Path, packages: Path | None, **env: str) -> dict[str, Any]:
    """Run command lines one after the other in one new process; what they left and printed."""
    done = subprocess.run(
        [sys.executable, "-c", f"{SETUP}\n{RUN_LINES}"],
        cwd=cwd,
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=500,
        env={**os.environ, "PYTHONPATH": add_to_path(packages), **env},
    )
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert_no_escapes(done.stderr)
    return result


def assert_no_escapes(text: str) -> None:
    """No character of an output acts on a terminal."""
    assert not [char for char in text if char in "\x1b\u202e\x9b"], text


def drop_figures(text: str) -> str:
    """An output without what differs from run to run: times, ids, hashes, and the width of columns."""
    text = re.sub(r"[A-Za-z0-9+/_=-]{20,}", "X", text)
    text = re.sub(r"\b[0-9a-f]{8,}\b", "X", text)
    text = re.sub(r"\d[\d.,:]*", "0", text)
    text = re.sub(r"─+", "─", text)
    return " ".join(text.split())


def drop_added_names(text: str) -> str:
    """An output without the names of packages, which lists and helps show."""
    try:
        return json.dumps(_drop_from_json(json.loads(text)))
    except ValueError:
        pass
    lines = [line for line in text.splitlines() if not line.startswith('{"about":"package zz')]
    text = " ".join("\n".join(lines).split())
    text = re.sub(r", (zz\w+|ZZ)://\.\.\. \(from the package zz[\w-]+\)", "", text)
    text = re.sub(r"\? package zz[\w-]+: adds .*? toolchart doctor --plugins ?", "", text)
    return re.sub(r"(\||, )'?(zz\w+|ZZ)'?", "", text)


def _drop_from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_drop_from_json(item) for item in value if not re.search(r"^zz|^ZZ$|package zz", _name(item))]
    return value


def _name(item: Any) -> str:
    return item if isinstance(item, str) else str(item.get("description")) if isinstance(item, dict) else ""


def test_the_table_has_every_command() -> None:
    """A new command has to be added to the table, or to the reasons."""
    covered = {" ".join(words[:count]) for words in CASES for count in (1, 2)}
    assert [name for name in list_command_words() if name not in covered | set(WITHOUT_USE)] == []


def test_commands_load_nothing_that_is_not_named(packages: Path, tmp_path: Path) -> None:
    """The short form: with all of them installed, help, check, run and schemas load and start nothing."""
    lines: list[Line] = [
        (("--help",), ""),
        (("draw", "--help"), ""),
        (("check", "tool_loop"), ""),
        (("run", "quickstart", "2+3", "--log", "memory"), ""),
        (("schema", "spec"), ""),
        (("zznobody",), ""),
    ]
    result = run_lines(lines, tmp_path, packages)
    assert [code for code, _, _ in result["outcomes"]] == [0, 0, 0, 0, 0, 2]
    assert result["loaded"] == []
    assert result["threads"] == []
    for _, out, err in result["outcomes"]:
        assert_no_escapes(out + err)
    assert "zzhang://... (from the package zzhang)" in " ".join(result["outcomes"][0][1].split())


@pytest.mark.slow
def test_every_command_is_as_without_them(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help and a real use of each command give the same output and exit code with and without them."""
    helps = [(*name.split(), "--help") for name in list_command_words()]
    lines: list[Line] = [(words, "") for words in ((), ("--help",), *helps, *CASES, *MORE_CASES)]
    results = []
    with serve_web(quote_key) as web:
        for name, seen in (("without", None), ("with", packages)):
            folder = tmp_path / name / "work"
            folder.mkdir(parents=True)
            write_inputs(folder, web.url)
            results.append(run_lines(lines, folder, seen, BOX_KEY=KEY))
    plain, hostile = results
    for (words, _), one, two in zip(lines, plain["outcomes"], hostile["outcomes"], strict=True):
        assert_no_escapes(two[1] + two[2])
        assert two[0] == one[0], (words, two)
        assert "Traceback" not in two[2], (words, two)
        without = drop_added_names(one[1]), drop_added_names(two[1])
        assert drop_figures(without[1]) == drop_figures(without[0]), words
    assert hostile["loaded"] == []
    assert hostile["threads"] == []


@pytest.mark.slow
def test_completion_loads_none(packages: Path, tmp_path: Path) -> None:
    """A shell gets its suggestions beside them, and nothing of them is imported."""
    line = "toolchart draw full --format m"
    words = {"COMP_WORDS": line, "COMP_CWORD": "4", "_TOOLCHART_COMPLETE": "bash_complete"}
    done = run_toolchart(cwd=tmp_path, PYTHONPATH=add_to_path(packages), **words)
    assert done.returncode == 0
    assert done.stdout.split() == ["plain,mermaid"]
    assert_no_escapes(done.stdout + done.stderr)


@pytest.mark.slow
def test_a_chat_and_a_server_run_beside_them(packages: Path, tmp_path: Path) -> None:
    """`chat` with a pipe, `mcp` and `serve` with /health and a turn work as if they were not installed."""
    env = {"PYTHONPATH": add_to_path(packages), "BOX_KEY": KEY}
    chat = run_toolchart("chat", "quickstart", "--log", "memory", cwd=tmp_path, stdin="2+3\n", **env)
    assert chat.returncode == 0, chat.stderr
    assert_no_escapes(chat.stdout)
    mcp = run_toolchart("mcp", "quickstart", "--log", "memory", cwd=tmp_path, stdin="", **env)
    assert mcp.returncode == 0, mcp.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", START, "serve", "quickstart", "--log", "memory", "--port", str(port)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **env,
            "TOOLCHART_TOKEN_OWNER": "token-of-this-test-only",
            "TOOLCHART_PLUGIN_TIMEOUT": "1",
        },
    )
    try:
        assert process.stderr is not None
        listening = threading.Event()
        said: list[str] = []

        def read_messages() -> None:
            for line in process.stderr or ():
                said.append(line)
                if "http://" in line:
                    listening.set()

        reader = threading.Thread(target=read_messages, daemon=True)
        reader.start()
        assert listening.wait(120), said
        headers = {"Authorization": "Bearer token-of-this-test-only"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=120) as client:
            assert client.get("/health").status_code == 200
            model = client.get("/v1/models").json()["data"][0]
            body = {"model": model["id"], "messages": [{"role": "user", "content": "2+3"}]}
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            (row,) = client.get("/api/conversations").json()["conversations"]
            place = f"/api/conversations/{row['conversation']}"
            assert client.get(f"{place}/export/openai").status_code == 200
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        reader.join(60)
    finally:
        process.kill()
        process.wait()
    assert_no_escapes("".join(said))


AGENT = """\
llms: {{m: {{provider: {host}, model: m, replies: [x]}}}}
tools: {{registry: [{{name: one, implementation: {{type: {source}}}}}]}}
responses: [{{llm: m, tools: {{enabled: true}}}}]
"""

USES = {
    "toolchart.hosts": "run host-{}.yaml hello --log memory",
    "toolchart.stores": "runs --log {}://x",
    "toolchart.tool_sources": "run source-{}.yaml hello --log memory",
}
"""By group: a command that names a row of it."""
assert USES.keys() == REGISTRIES.keys()


def write_uses(folder: Path) -> None:
    """Agents that each name one row of one package."""
    words = {"host": "scripted", "source": "mock"}
    for fault in FAULTS:
        for kind in words:
            (folder / f"{kind}-{fault}.yaml").write_text(AGENT.format(**{**words, kind: fault}), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_who_names_one_gets_an_error(fault: str, packages: Path, tmp_path: Path) -> None:
    """A row of each kind: the error names row, package, module and reason, with exit code 2 and no escapes;
    what runs after it in the same process is not touched."""
    write_uses(tmp_path)
    lines: list[Line] = [(tuple(use.format(fault).split()), "") for use in USES.values()]
    after: Line = (("check", "tool_loop"), "")
    result = run_lines([*lines, after], tmp_path, packages, TOOLCHART_PLUGIN_TIMEOUT="1")
    *outcomes, last = result["outcomes"]
    for (group, use), (code, out, err) in zip(USES.items(), outcomes, strict=True):
        assert code == 2, (use, out, err)
        assert f"entry point {fault!r} of {fault}" in err, (use, err)
        assert FAULTS[fault][1] in err, (use, err)
        assert out == "", (group, out)
        assert "Traceback" not in err
        assert_no_escapes(out + err)
    assert last[0] == 0
    assert len(result["threads"]) == (1 if fault == "zzhang" else 0)
    if fault == "zzhang":
        errors = [err for _, _, err in outcomes]
        assert "it was not imported in 1 seconds" in errors[0]
        assert all("still being imported" in err for err in errors[1:])


LATE_USES = {
    "runs --log zzshaky://x": 70,
    "run source-zzshaky.yaml hello --log memory": 70,
    "run host-zzshaky.yaml hello --log memory": 1,
}
"""Commands that use a row whose code raises, with their exit codes; what fails in a turn is `failed`."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "Stop"])
def test_code_that_raises_in_use_is_named(kind: str, tmp_path: Path) -> None:
    """A row that loads, and whose code raises later: the message names the package and the error, escaped; a
    turn goes on with `failed`, any other command ends with 70."""
    packages = tmp_path / "packages"
    packages.mkdir()
    install_shaky_plugin(packages)
    words = {"host": "scripted", "source": "mock"}
    for part in words:
        (tmp_path / f"{part}-zzshaky.yaml").write_text(AGENT.format(**{**words, part: "zzshaky"}), "utf-8")
    lines: list[Line] = [(tuple(use.split()), "") for use in LATE_USES]
    result = run_lines([*lines, (("check", "tool_loop"), "")], tmp_path, packages, ZZ_RAISE=kind)
    *outcomes, last = result["outcomes"]
    for (use, expected), (code, out, err) in zip(LATE_USES.items(), outcomes, strict=True):
        assert code == expected, (use, code, out, err)
        assert "zzshaky" in err, (use, err)
        assert "\\x1b[2J\\u202egnp" in err or code == 2, (use, err)
        assert "Traceback" not in err, use
        assert_no_escapes(out + err)
    assert last[0] == 0


@pytest.mark.slow
def test_the_doctor_tries_each_one(packages: Path, tmp_path: Path) -> None:
    """`doctor --plugins` reports every broken row with its reason; without the option it only lists them."""
    lines: list[Line] = [(("doctor", "--json", *more), "") for more in ((), ("--plugins",))]
    result = run_lines(lines, tmp_path, packages, TOOLCHART_PLUGIN_TIMEOUT="1")
    listed, tried = (
        [json.loads(line) for line in out.splitlines() if '"package zz' in line]
        for _, out, _ in result["outcomes"]
    )
    assert {check["ok"] for check in listed} == {None}
    assert {check["about"] for check in listed} >= {f"package {name}" for name in FAULTS}
    for name, (_, reason) in FAULTS.items():
        checks = [check for check in tried if check["about"] == f"package {name}"]
        assert len(checks) >= len(REGISTRIES), name
        assert {check["ok"] for check in checks} == {False}
        assert all(reason in check["said"] for check in checks), checks
    assert [code for code, _, _ in result["outcomes"]] == [0, 1]
    for _, out, err in result["outcomes"]:
        assert_no_escapes(out + err)


def test_a_ctrl_c_of_a_person_is_theirs(packages: Path, tmp_path: Path) -> None:
    """Who waits for a package that hangs stops the command with Ctrl-C, at once and with exit code 3."""
    code = (
        f"{SETUP}; import signal, threading; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        + (
            "def stop():\n"
            "    while not any(t.name.startswith('loading ') for t in threading.enumerate()): pass\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "threading.Thread(target=stop, daemon=True).start()\n"
            "sys.argv[1:] = ['runs', '--log', 'zzhang://x']; main()\n"
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": add_to_path(packages), "TOOLCHART_PLUGIN_TIMEOUT": "100"},
    )
    assert done.returncode == 3, done.stderr
    assert "cancelled" in done.stderr
