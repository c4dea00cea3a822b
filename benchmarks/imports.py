"""Benchmark of imports: conversations of other programs come into a log.

    python benchmarks/imports.py [--conversations 10000] [--forms anthropic,responses]

Each conversation has one to four calls with a result each. For each form, a file of JSON Lines is imported by
`toolchart import` in a process of its own into a new SQLite log. Printed are the seconds of the command, of
reading the same file as JSON alone, and of writing as many records of the same size into SQLite in one
transaction, which any import has to do; and the ratio of the command to these two together.

Goal: 10,000 conversations in a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEXT = "what was found about it " * 8


def build_chat(number: int, calls: int) -> Any:
    """A list of chat completions."""
    messages: list[Any] = [{"role": "user", "content": f"question {number}"}]
    for index in range(calls):
        call = {"name": "look_up", "arguments": json.dumps({"text": f"{number} {index}"})}
        entry = {"id": f"c{index}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": "One moment.", "tool_calls": [entry]})
        messages.append({"role": "tool", "tool_call_id": f"c{index}", "content": TEXT})
    return [*messages, {"role": "assistant", "content": f"answer {number}"}]


def build_responses(number: int, calls: int) -> Any:
    """A request of the Responses API."""
    items: list[Any] = [{"role": "user", "content": f"question {number}"}]
    for index in range(calls):
        call = {"name": "look_up", "arguments": json.dumps({"text": f"{number} {index}"})}
        items.append({"type": "function_call", "call_id": f"c{index}", **call})
        items.append({"type": "function_call_output", "call_id": f"c{index}", "output": TEXT})
    return {
        "instructions": "Be brief.",
        "input": [*items, {"role": "assistant", "content": f"answer {number}"}],
    }


def build_anthropic(number: int, calls: int) -> Any:
    """A request of the Anthropic API."""
    messages: list[Any] = [{"role": "user", "content": f"question {number}"}]
    for index in range(calls):
        use = {
            "type": "tool_use",
            "id": f"c{index}",
            "name": "look_up",
            "input": {"text": f"{number} {index}"},
        }
        result = {"type": "tool_result", "tool_use_id": f"c{index}", "content": TEXT}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "One moment."}, use]})
        messages.append({"role": "user", "content": [result]})
    messages.append({"role": "assistant", "content": f"answer {number}"})
    return {"system": "Be brief.", "messages": messages}


def build_gemini(number: int, calls: int) -> Any:
    """A request of the Gemini API."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": f"question {number}"}]}]
    for index in range(calls):
        call = {"name": "look_up", "args": {"text": f"{number} {index}"}}
        answer = {"name": "look_up", "response": {"output": TEXT}}
        contents.append({"role": "model", "parts": [{"functionCall": call}]})
        contents.append({"role": "user", "parts": [{"functionResponse": answer}]})
    return {"contents": [*contents, {"role": "model", "parts": [{"text": f"answer {number}"}]}]}


FORMS: dict[str, Callable[[int, int], Any]] = {
    "chat": build_chat,
    "responses": build_responses,
    "anthropic": build_anthropic,
    "gemini": build_gemini,
}


def measure(form: str, count: int, folder: Path) -> None:
    """Import a file, and print what it took."""
    dice, path, log = Random(7), folder / f"{form}.jsonl", folder / f"{form}.db"
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            file.write(json.dumps(FORMS[form](number, dice.randint(1, 4))) + "\n")
    start = time.perf_counter()
    with path.open(encoding="utf-8") as file:
        for line in file:
            json.loads(line)
    read_s = time.perf_counter() - start
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / ".typing"),
        "TOOLCHART_LIMITS": "file_values=100000000",
    }
    start = time.perf_counter()
    words = ["import", str(path), "--log", str(log), "--conversation", form]
    command = [sys.executable, "-m", "toolchart", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    import_s = time.perf_counter() - start
    assert len(done.stdout.split()) == count, done.stderr
    with sqlite3.connect(log) as source:
        (records,) = source.execute("SELECT count(*) FROM records").fetchone()
    size = log.stat().st_size
    start = time.perf_counter()
    with sqlite3.connect(folder / f"{form}.floor.db") as floor:
        floor.execute("CREATE TABLE rows (name TEXT, number INTEGER, line BLOB, PRIMARY KEY (name, number))")
        row = b"x" * (size // records)
        floor.executemany(
            "INSERT INTO rows VALUES (?, ?, ?)", (("a", index, row) for index in range(records))
        )
    write_s = time.perf_counter() - start
    ratio = import_s / (read_s + write_s)
    print(
        f"{form:10} {count:6} conversations, {records:7} records, {size / 2**20:6.1f} MiB: "
        f"import {import_s:6.2f} s, JSON alone {read_s:5.2f} s, rows alone {write_s:.2f} s, ratio {ratio:.1f}"
    )


def main() -> None:
    """Measure each form that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--conversations", type=int, default=10_000)
    parser.add_argument("--forms", default=",".join(FORMS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for form in options.forms.split(","):
            measure(form, options.conversations, Path(folder))


if __name__ == "__main__":
    main()
