"""`toolchart watch -- COMMAND`: the program runs as it does alone, and its model calls are seen."""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import httpx2
import pytest
from command_line import CTRL_C, START, run_and_type
from watch_commands import WAIT_S, ended, list_texts, make_environment, read_line, run_watch, start_watch

from toolchart.app.watch.client_variables import list_settings
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.testing.emulators import emulate_host

SDK_PROGRAM = """
import sys
import anthropic, ollama, openai
from google import genai

models = dict(pair.split("=") for pair in sys.argv[1:])
turn = [{"role": "user", "content": "hello"}]
texts = []

client = openai.OpenAI(api_key="k", max_retries=0)
texts.append(client.chat.completions.create(model=models["openai"], messages=turn).choices[0].message.content)
stream = client.chat.completions.create(model=models["openai"], messages=turn, stream=True)
texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))
texts.append(client.responses.create(model=models["openai"], input="hello").output_text)
stream = client.responses.create(model=models["openai"], input="hello", stream=True)
texts.append("".join(event.delta for event in stream if event.type == "response.output_text.delta"))

client = anthropic.Anthropic(api_key="k", max_retries=0)
options = {"model": models["anthropic"], "messages": turn, "max_tokens": 1000}
texts.append(client.messages.create(**options).content[-1].text)
with client.messages.stream(**options) as stream:
    texts.append(stream.get_final_text())

client = genai.Client(api_key="k", vertexai=False)
texts.append(client.models.generate_content(model=models["gemini"], contents="hello").text)
parts = client.models.generate_content_stream(model=models["gemini"], contents="hello")
texts.append("".join(part.text or "" for part in parts))

texts.append(ollama.chat(model=models["ollama"], messages=turn).message.content)
texts.append("".join(part.message.content for part in ollama.chat(models["ollama"], turn, stream=True)))
print(texts)
"""
"""Calls each wire by the SDK of its maker, whole and streamed, and says nothing of addresses."""

CHAT_PROGRAM = """
import openai
reply = openai.OpenAI(api_key="k").chat.completions.create(
    model="gpt-5.5", messages=[{"role": "user", "content": "hello"}])
print(reply.choices[0].message.content)
"""

SIGNAL_PROGRAM = """
import signal, sys, time
def leave(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(40 + number)
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), leave)
print("ready", flush=True)
time.sleep(60)
"""

TERMINAL_PROGRAM = """
import signal
count = 0
def note(number, frame):
    global count
    count += 1
    print("got", count, flush=True)
signal.signal(signal.SIGINT, note)
print("ready", flush=True)
line = input()
print("in all", count, line, flush=True)
"""


def test_each_sdk_honours_its_variable(tmp_path: Path) -> None:
    """The SDKs of OpenAI, Anthropic, Google and Ollama, unchanged, pass through: whole and streamed."""
    with ExitStack() as stack:
        names = ("openai", "anthropic", "gemini", "ollama")
        hosts = {name: stack.enter_context(emulate_host(name)) for name in names}
        urls = {name: f"http://127.0.0.1:{host.port}" for name, host in hosts.items()}
        urls["openai"] += "/v1"
        options = [word for name, url in urls.items() for word in (f"--{name}", url)]
        models = [f"{name}={host.model}" for name, host in hosts.items()]
        code, out, err = run_watch(
            "--log", "log.db", *options, "--", sys.executable, "-c", SDK_PROGRAM, *models, cwd=tmp_path
        )
        assert (code, out.decode()) == (0, f"{['Done.'] * 10}\n"), err
        assert {name: len(host.bodies) for name, host in hosts.items()} == {
            "openai": 4,
            "anthropic": 2,
            "gemini": 2,
            "ollama": 2,
        }
    lines = err.splitlines()
    start = lines.index("toolchart: 10 exchanges with model hosts")
    assert lines[start : start + 7] == [
        "toolchart: 10 exchanges with model hosts",
        f"  chat at {urls['openai']}: 2",
        f"  gemini at {urls['gemini']}: 2",
        f"  messages at {urls['anthropic']}: 2",
        f"  ollama at {urls['ollama']}: 2",
        f"  responses at {urls['openai']}: 2",
        "  10 model calls in 10 conversations",
    ]
    assert f"models: {hosts['openai'].model} 4" in err
    with closing(open_store(str(tmp_path / "log.db"))) as store:
        texts = [list_texts(store, name) for name in store.list_conversations()]
        assert texts == [["hello", "Done."]] * 10
        assert all(isinstance(each, VerifiedConversation) for each in verify_store(store))


def test_the_operator_s_variables_name_the_hosts(tmp_path: Path) -> None:
    """Without options the hosts are those that the program would ask; a watch can watch another one."""
    own = [sys.executable, "-c", START, "watch", "--"]
    with emulate_host("openai") as host:
        url = host.base_url
        words = ("--", *own, sys.executable, "-c", CHAT_PROGRAM)
        code, out, err = run_watch(*words, cwd=tmp_path, OPENAI_BASE_URL=url, NO_PROXY="127.0.0.1")
    assert (code, out) == (0, b"Done.\n"), err
    inner, outer = err.strip().split("toolchart: 1 exchange with model hosts\n")[1:]
    assert re.match(r"  chat at http://127\.0\.0\.1:\d+/openai/v1: 1\n", inner)
    assert outer.startswith(f"  chat at {url}: 1\n")


def test_failures_are_counted(tmp_path: Path) -> None:
    """The summary says how many exchanges of each kind failed; the exit code stays the program's."""
    program = (
        "import openai\n"
        "try: openai.OpenAI(api_key='k', max_retries=1).models.list()\n"
        "except openai.APIStatusError as error: print(error.status_code)"
    )
    words = ("--openai", "http://127.0.0.1:1/v1", "--", sys.executable, "-c", program)
    code, out, err = run_watch(*words, cwd=tmp_path)
    assert (code, out) == (0, b"502\n")
    assert err.endswith(
        "2 exchanges with model hosts\n  other at http://127.0.0.1:1/v1: 2, 2 failed or cut\n"
    )


def test_streams_are_the_program_s_own(tmp_path: Path) -> None:
    """Standard input, output and error pass byte for byte, and so do words; ours come last."""
    program = (
        "import os, sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data); "
        "sys.stdout.buffer.write(os.fsencode(sys.argv[1])); sys.stderr.write('its own\\n')"
    )
    data = bytes(range(256)) * 4000
    words = ("--", sys.executable, "-c", program, "ü --help")
    code, out, err = run_watch(*words, cwd=tmp_path, stdin=data, LC_ALL="C")
    assert (code, out) == (0, data + "ü --help".encode())
    assert err.startswith("its own\ntoolchart: no exchange with a model host was seen\n")
    assert "@ai-sdk/google" in err


def test_the_environment_is_the_program_s_own(tmp_path: Path) -> None:
    """Nothing is added but the variables that lead to the proxy, and nothing is lost."""
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    code, out, err = run_watch("--", sys.executable, "-c", program, cwd=tmp_path, OWN="1")
    assert code == 0, err
    seen = json.loads(out)
    address = seen["OPENAI_BASE_URL"].removesuffix("/openai/v1")
    alone = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=make_environment(OWN="1"), capture_output=True
    )
    assert seen == {**json.loads(alone.stdout), **list_settings(address)}


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_the_exit_code_is_the_program_s(tmp_path: Path, script: str, code: int) -> None:
    """As a shell tells it, also where a signal killed the program."""
    assert run_watch("--", "sh", "-c", script, cwd=tmp_path)[0] == code


def test_commands_that_cannot_run_end_as_in_a_shell(tmp_path: Path) -> None:
    """127 for what is not there, 126 for what is no program; in words, without a traceback."""
    plain, broken, data = tmp_path / "plain", tmp_path / "broken", tmp_path / "data"
    plain.write_text("echo hello\n")
    broken.write_text("#!/no/such/interpreter\n")
    data.write_text("no program\n")
    for path in (plain, broken):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    for name, code, words in [
        ("no-such-command", 127, "command not found"),
        ("./no-such-file", 127, "command not found"),
        (str(data), 126, "Permission denied"),
        (str(tmp_path), 126, "Permission denied"),
        (str(plain), 126, "is no program"),
        (str(broken), 126, "interpreter"),
    ]:
        done = run_watch(name, cwd=tmp_path)
        assert (done[0], done[1]) == (code, b"")
        assert words in done[2]
        assert len(done[2].splitlines()) == 1


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_signals_are_the_program_s_to_decide(tmp_path: Path, name: str) -> None:
    """A signal reaches the program, whose exit code is the answer; what was seen is still said."""
    number = getattr(signal, name)
    process = start_watch("--", sys.executable, "-c", SIGNAL_PROGRAM, cwd=tmp_path)
    with ended(process):
        assert read_line(process.stdout) == b"ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out.decode()) == (40 + number, f"got {name}\n")
    assert err.startswith(b"toolchart: no exchange")


def test_the_terminal_stays_the_program_s(tmp_path: Path) -> None:
    """It reads lines from it, and Ctrl-C reaches it once, not twice."""
    words = ["watch", "--", sys.executable, "-c", TERMINAL_PROGRAM]
    code, screen = run_and_type(words, tmp_path, [(b"ready", CTRL_C), (b"got 1", b"go on\n")])
    assert code == 0
    assert "in all 1 go on" in screen
    assert "no exchange with a model host was seen" in screen


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_proxy_stands_alone_until_a_signal(tmp_path: Path, name: str) -> None:
    """With --port and no command it prints the variables once, serves many programs, and sums up."""
    with emulate_host("openai") as host:
        process = start_watch("--port", "0", "--openai", host.base_url, cwd=tmp_path)
        with ended(process):
            first = read_line(process.stderr).decode()
            address = re.findall(r"http://127\.0\.0\.1:\d+", first)[0]
            settings = [read_line(process.stderr).decode().strip() for _ in list_settings(address)]
            assert settings == [f"export {key}={value}" for key, value in list_settings(address).items()]
            body = {"model": host.model, "messages": [{"role": "user", "content": "hello"}]}
            for path in ("/openai/v1/chat/completions", "/v1/chat/completions"):
                headers = {"authorization": "Bearer k"}
                passed = httpx2.post(address + path, json=body, headers=headers, trust_env=False)
                assert passed.status_code == 200
            assert httpx2.get(f"{address}/elsewhere", trust_env=False).status_code == 404
            process.send_signal(getattr(signal, name))
            out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (0, b"")
    assert err.decode().startswith(
        f"toolchart: 2 exchanges with model hosts\n  chat at {host.base_url}: 2\n"
        "  refused: no model host has the path /elsewhere"
    )


def test_mistakes_are_said_before_anything_runs(tmp_path: Path) -> None:
    """No command, no address, the proxy itself as host, a port in use: exit code 2, and nothing is run."""
    mark = tmp_path / "ran"
    runs = ("--", "touch", str(mark))
    with emulate_host("openai") as host:
        port = str(host.port)
        free = httpx2.URL(host.base_url).copy_with(port=1)
        for words, text in [
            ((), "name a command"),
            (("--openai", "nonsense", *runs), "--openai: this is no address of a model host"),
            (("--port", port, *runs), f"cannot listen on 127.0.0.1, port {port}"),
            (("--openai", str(free), "--anthropic", "ftp://x", *runs), "--anthropic"),
        ]:
            code, out, err = run_watch(*words, cwd=tmp_path)
            assert (code, out) == (2, b"")
            assert text in err
            assert "Traceback" not in err
        own = f"http://127.0.0.1:{port}/v1"
    code, _, err = run_watch("--port", port, "--openai", own, *runs, cwd=tmp_path)
    assert code == 2
    assert "is the proxy itself" in err
    assert not mark.exists()


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """Without uvicorn the command says what to install."""
    start = f"import sys; sys.modules['uvicorn'] = None; {START}"
    done = subprocess.run(
        [sys.executable, "-c", start, "watch", "--", "true"],
        cwd=tmp_path,
        env=make_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 2
    assert "watch needs more packages" in done.stderr
    assert "uvicorn>=" in done.stderr
