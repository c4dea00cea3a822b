"""Fault 6, widened: every command of the table runs with a planted key, and none shows or keeps it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import START, run_toolchart
from command_uses import CASES, FORMATS, list_command_words, write_inputs
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from planted_key import KEY, find_key, quote_key
from postgres_database import create_database
from web import serve_web

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
from toolchart.engine.exchange.exports import write_records
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.specs.secrets import remember_environment
from toolchart.states.core.encoding import read_json
from toolchart.states.errors import SpecError

WITHOUT_KEY = {
    "chat": "runs in a process of its own below",
    "mcp": "has a test of its own below",
    "serve": "has a test of its own below",
    "worker": "has a test of its own below",
    "submit": "is in the test of workers below",
}
"""Commands that are not in `CASES`, and why."""


@pytest.mark.slow
def test_no_command_shows_or_keeps_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, database and every output are free of it, whatever the host quotes; a new command has
    to be added here."""
    covered = {" ".join(words[:count]) for words in CASES for count in (1, 2)}
    assert [name for name in list_command_words() if name not in covered | set(WITHOUT_KEY)] == []
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BOX_KEY", KEY)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))  # an empty pipe
    outputs: list[str] = []
    with serve_web(quote_key) as web:
        write_inputs(folder, web.url)
        run = _make_runner(capsys)
        for words in CASES:
            outputs += run(words)
        chat = run_toolchart("chat", "agent.yaml", cwd=folder, stdin="hello\n", BOX_KEY=KEY)
        outputs += [chat.stdout, chat.stderr]
        assert len(web.requests) >= 4
    assert any("(secret)" in text for text in outputs)
    assert find_key(folder, *outputs) == []


def _make_runner(capsys: pytest.CaptureFixture[str]) -> Callable[[tuple[str, ...]], list[str]]:
    def run(words: tuple[str, ...]) -> list[str]:
        code = run_to_exit_code(lambda: cli.main(list(words), standalone_mode=False, prog_name="toolchart"))
        out, err = capsys.readouterr()
        assert "Traceback" not in err, (words, err)
        assert code != 70, (words, err)
        assert code != 2, (words, err)
        return [out, err]

    return run


async def test_an_mcp_server_shows_and_keeps_no_key(tmp_path: Path) -> None:
    """`toolchart mcp`: its answers, its messages and its log are free of it, also after errors."""
    folder = tmp_path / "work"
    folder.mkdir()
    answers: list[str] = []
    with serve_web(quote_key) as web, (tmp_path / "messages").open("w+") as messages:
        write_inputs(folder, web.url)
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-c", START, "mcp", "agent.yaml"],
            cwd=folder,
            env={**os.environ, "BOX_KEY": KEY},
        )
        async with Client(stdio_client(parameters, errlog=messages)) as client:
            (tool,) = (await client.list_tools()).tools
            answers += [
                (await client.call_tool(tool.name, {"message": text})).model_dump_json()
                for text in ("hello", "fail")
            ]
        messages.seek(0)
        answers.append(messages.read())
        assert len(web.requests) >= 2
    assert any("(secret)" in text for text in answers)
    assert find_key(folder, *answers) == []


@pytest.mark.slow
def test_a_server_shows_and_keeps_no_key(tmp_path: Path) -> None:
    """`toolchart serve`: what it answers, its messages and its log are free of it, also after an error."""
    folder = tmp_path / "work"
    folder.mkdir()
    token = "token-of-this-test-only"
    with serve_web(quote_key) as web:
        write_inputs(folder, web.url)
        process, port, answers = _start_server(folder, token)
        try:
            answers += _ask_server(f"http://127.0.0.1:{port}", token)
            process.send_signal(signal.SIGINT)
            answers += process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
        assert len(web.requests) >= 2
    assert any("(secret)" in text for text in answers)
    assert find_key(folder, *answers) == []


def _start_server(folder: Path, token: str) -> tuple[subprocess.Popen[str], int, list[str]]:
    """A server that listens, its port, and what it has said; another process may be faster to take a port."""
    for _ in range(20):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", START, "serve", "agent.yaml", "--port", str(port)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BOX_KEY": KEY, "TOOLCHART_TOKEN_OWNER": token},
        )
        assert process.stderr is not None
        said = process.stderr.readline()  # it listens before it says so
        if "cannot listen" not in said:
            return process, port, [said]
        process.communicate(timeout=120)
    raise AssertionError("every port is taken")


def _ask_server(address: str, token: str) -> list[str]:
    """Run a turn that ends in a call and one that fails, and read what the server knows of them."""
    answers: list[str] = []
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=120) as client:

        def ask(path: str, body: Any = None) -> httpx.Response:
            answer = client.get(path) if body is None else client.post(path, json=body)
            answers.append(answer.text)
            return answer

        (model,) = ask("/v1/models").json()["data"]
        for text in ("hello", "fail"):
            body = {"model": model["id"], "messages": [{"role": "user", "content": text}]}
            ask("/v1/chat/completions", body)
        conversations = [row["conversation"] for row in ask("/api/conversations").json()["conversations"]]
        assert len(conversations) == 2
        for name in conversations:
            for part in ("", "/records", "/messages"):
                assert ask(f"/api/conversations/{name}{part}").status_code == 200
        for path in ("/api/connections/providers", "/api/models/list", "/api/tools/list", "/"):
            ask(path)
    return answers


@pytest.mark.slow
def test_a_worker_shows_and_keeps_no_key(postgres: str, tmp_path: Path) -> None:
    """`toolchart submit` and `toolchart worker`: what they print, the log, and every table of their queue are
    free of it, also after an error of the host."""
    pytest.importorskip("dbos", reason="needs the extra `durable`")
    folder = tmp_path / "work"
    folder.mkdir()
    address = create_database(postgres, tmp_path)
    with serve_web(quote_key) as web:
        write_inputs(folder, web.url)
        process = subprocess.Popen(
            [sys.executable, "-c", START, "worker", "agent.yaml", "--dsn", address],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BOX_KEY": KEY},
        )
        try:
            outputs = _submit(folder, address, "hello") + _submit(folder, address, "fail")
            _wait_for_states(address, hello="awaiting_approval", fail="error")
            process.send_signal(signal.SIGTERM)
            outputs += process.communicate(timeout=120)
        finally:
            process.kill()
            process.wait()
    tables = _read_tables(address)
    assert "(secret)" in tables
    assert find_key(folder, tables, *outputs) == []


def _submit(folder: Path, address: str, text: str) -> list[str]:
    """Submit a message, once a worker has prepared the queue; what the commands printed."""
    words = ("submit", "agent.yaml", text, "--conversation", text, "--dsn", address)
    outputs: list[str] = []
    end_s = time.monotonic() + 120
    while True:
        done = run_toolchart(*words, cwd=folder, BOX_KEY=KEY)
        outputs += [done.stdout, done.stderr]
        if done.returncode == 0:
            return outputs
        assert time.monotonic() < end_s, done.stderr
        time.sleep(0.5)


def _wait_for_states(address: str, **states: str) -> None:
    """Return when each conversation is in its state; fail after two minutes."""
    store = open_store(address)
    end_s = time.monotonic() + 120
    try:
        while True:
            newest = {name: store.read_last_line(name) for name in states}
            found = {name: read_json(row[1])["target"] for name, row in newest.items() if row is not None}
            if found == states:
                return
            assert time.monotonic() < end_s, found
            time.sleep(0.05)
    finally:
        store.close()


def _read_tables(address: str) -> str:
    """Every row of every table of a database, as text."""
    import psycopg
    from psycopg import sql

    query = (
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND table_type = 'BASE TABLE'"
    )
    texts: list[str] = []
    with psycopg.connect(address) as db:
        tables = db.execute(query).fetchall()
        assert {schema for schema, _ in tables} >= {"dbos", "public"}
        for schema, table in tables:
            rows = db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table)))
            texts += [repr(row) for row in rows.fetchall()]
    return "\n".join(texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("show", "a"),
        ("draw", "a", "--sequence", "--format", "svg"),
        *(("export", "a", "--format", f) for f in FORMATS if f != "jsonl"),
    ],
)
def test_reading_a_log_strikes_what_it_holds(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a log that was written where the key was not known, what is printed has it struck; the log stays."""
    monkeypatch.chdir(tmp_path)
    messages = [{"role": "user", "content": f"use {KEY}"}, {"role": "assistant", "content": KEY}]
    lines = import_messages(messages, "a", "2026-01-01T00:00:00Z", "chat.json")
    store = open_store("log.db")
    store.append("a", 0, lines)
    store.close()
    monkeypatch.setenv("BOX_API_KEY", KEY)
    outputs = _make_runner(capsys)((*words, "--log", "log.db"))
    assert find_key(tmp_path / "none", *outputs) == []
    assert find_key(tmp_path)


def test_records_that_hold_the_key_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of records is hashed, so nothing can be struck from it: there is none, and no part of one."""
    store = MemoryStore()
    messages = [{"role": "user", "content": f"use {KEY}"}, {"role": "assistant", "content": KEY}]
    store.append("a", 0, import_messages(messages, "a", "2026-01-01T00:00:00Z", "chat.json"))
    monkeypatch.setenv("BOX_API_KEY", KEY)
    remember_environment()
    with pytest.raises(SpecError, match="holds a secret"):
        write_records(store, ["a"], str(tmp_path / "a.jsonl"))
    assert not list(tmp_path.iterdir())
