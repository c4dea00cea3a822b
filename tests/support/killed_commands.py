"""Runs parallel payments by `toolchart run` in a process that is killed, and `toolchart resume` after it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from killed_payments import PAYMENTS, ROUNDS, THREADS, check_log, read_ledger
from postgres_database import await_end_of_sessions
from web import QuietHandler, run_server

from toolchart.engine.log.stores import open_store

LONGEST_S = 0.12
"""Seconds after the first request within which the command is killed."""

_TOOLS = """\
import os, time
from typing import Any
from toolchart import ToolContext, tool

def note(id, key):
    handle = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, f"{id} {key}\\n".encode())
    os.fsync(handle)
    os.close(handle)
    time.sleep(0.004)

@tool
def pay(id: str, context: ToolContext[Any]) -> str:
    '''Pay.'''
    note(id, context.idempotency_key)
    return "paid"

@tool(idempotent=True)
def look(id: str, context: ToolContext[Any]) -> str:
    '''Look something up.'''
    note(id, context.idempotency_key)
    return "seen"
"""

_SPEC = """\
chart: tool_loop
llms:
  model: {{provider: ollama, model: m, base_url: "{address}"}}
tools:
  registry:
    - {{name: pay, implementation: {{type: python, handler: "payments:pay"}}}}
    - {{name: look, idempotent: true, implementation: {{type: python, handler: "payments:look"}}}}
responses:
  - {{llm: model, tools: {{enabled: true}}}}
"""


def run_and_kill(log: str, folder: Path, chance: random.Random) -> Counter[str]:
    """Run the command, kill it at a random instant after its first request, resume, and check its log."""
    ledger = folder / "ledger"
    _first_request.clear()
    with run_server(_ModelHandler) as port:
        address = f"http://127.0.0.1:{port}"
        (folder / "payments.py").write_text(_TOOLS)
        (folder / "agent.yaml").write_text(_SPEC.format(address=address))
        toolchart = [sys.executable, "-m", "toolchart"]
        run = [*toolchart, "run", "agent.yaml", "go", "--conversation", "c", "--log", log]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))}
        process = subprocess.Popen(
            run, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        _await_first_request(process)
        time.sleep(chance.uniform(0, LONGEST_S))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        await_end_of_sessions(log)
        before, began_before = _read_lines(log), read_ledger(ledger)
        command = run
        if len(before) > 1:
            command = [*toolchart, "resume", "c", "--spec", "agent.yaml", "--log", log]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        counts = check_log(THREADS, before, _read_lines(log), began_before, read_ledger(ledger))
    return counts + Counter(killed=process.returncode != 0)


def _read_lines(log: str) -> list[bytes]:
    store = open_store(log)
    lines = list(store.read_lines("c"))
    store.close()
    return lines


_first_request: list[float] = []
"""When the newest model host got its first request."""


def _await_first_request(process: subprocess.Popen[bytes]) -> None:
    while not _first_request and process.poll() is None:
        time.sleep(0.002)


class _ModelHandler(QuietHandler):
    """A model whose answer depends on the messages alone: payments in each round, then an end."""

    protocol_version = "HTTP/1.1"

    def answer_request(self) -> None:
        """Answer a chat."""
        messages = json.loads(self.read_body())["messages"]
        rounds = sum(1 for message in messages if message.get("tool_calls"))
        _first_request.append(time.monotonic())
        message: dict[str, Any] = {"role": "assistant", "content": "all done" if rounds >= ROUNDS else ""}
        if rounds < ROUNDS:
            names = ["pay"] * PAYMENTS + ["look"]
            message["tool_calls"] = [
                {"function": {"name": name, "arguments": {"id": f"{name}{rounds}{number}"}}}
                for number, name in enumerate(names)
            ]
        body = json.dumps({"model": "m", "message": message, "done": True, "done_reason": "stop"}).encode()
        self.send_whole(200, {"Content-Type": "application/json"}, body)
