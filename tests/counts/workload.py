"""The work whose costs `gate.py` counts: `python workload.py COUNT SIZE [--worse]`.

Each count has a process of its own. The work is written as users write it: a synchronous `@tool`, a spec from
a file, a log in SQLite as it comes. It prints one number. `--worse` seeds a regression of that count, so that
a test can see the gate fail.

Only what repeats exactly is counted; no time is measured. Calls count where their file is of the package.
"""

from __future__ import annotations

import asyncio
import gc
import http.server
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]
import conftest  # noqa: E402, F401  makes the checkout importable

SPEC = """\
chart: tool_loop
llms:
  model: {provider: scripted, model: m}
limits: {max_iterations: %d}
tools: {}
responses:
  - {llm: model, prompt: You add numbers., tools: {enabled: true}}
"""

READING_NS = 40_000
"""Nanoseconds between two readings of the clock, so that a record's time does not depend on the machine."""


def make_engine(folder: Path, iterations: int, turns: int = 1, reply: str = "") -> Any:
    """An engine with one tool, a spec from a file and a log in SQLite; the model calls and then answers.

    Args:
        reply: what the model says beside each call.
    """
    import toolchart
    from toolchart.providers.scripted.provider import ScriptedProvider
    from toolchart.states.messages import Reply, ToolCall, Usage

    @toolchart.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    replies: list[Reply] = []
    for turn in range(turns):
        for index in range(iterations):
            call = ToolCall(id=f"call_{turn}_{index}", name="add", arguments={"a": index, "b": 2})
            usage = Usage(input=10, output=5, total=15)
            replies.append(
                Reply(
                    content=reply,
                    tool_calls=(call,),
                    finish_reason="tool_calls",
                    native_reason="tool_calls",
                    usage=usage,
                )
            )
        replies.append(Reply(content="done", finish_reason="stop", native_reason="stop"))
    spec = folder / "agent.yaml"
    spec.write_text(SPEC % (iterations + 1))
    return toolchart.Engine(
        str(spec), log=str(folder / "log.db"), functions=[add], providers={"model": ScriptedProvider(replies)}
    )


async def run_turn(engine: Any, conversation: str = "c", *, is_streamed: bool = False) -> None:
    """Run one turn."""
    if is_streamed:
        result = [item async for item in engine.stream("go", conversation=conversation)][-1]
    else:
        result = await engine.arun("go", conversation=conversation)
    assert result.content == "done", result


def run_with_slow_clock(work: Callable[[], Any]) -> None:
    """Run a coroutine under a clock that advances by the same at each reading."""
    readings = itertools.count(1_800_000_000_000_000_000, READING_NS)
    with patch.object(time, "time_ns", readings.__next__):
        asyncio.run(work())


def spoil_steps(extra: Callable[[], object]) -> None:
    """Seed a regression: each step of the core does something more."""
    from toolchart.states.machine import Machine

    plain = Machine.try_event

    def try_event(*args: Any) -> Any:
        extra()
        return plain(*args)

    patch.object(Machine, "try_event", try_event).start()


# -- the counts ----------------------------------------------------------------------------------


def run_turn_for_instructions(size: int, is_worse: bool) -> int:
    """Run one turn of `size` iterations; Valgrind counts around this process."""
    if is_worse:
        spoil_steps(lambda: sum(range(1_000)))
    with tempfile.TemporaryDirectory() as name:
        engine = make_engine(Path(name), size)
        run_with_slow_clock(lambda: run_turn(engine))
    return 0


def run_floor(size: int, is_worse: bool) -> int:
    """Run the plain loop of `benchmarks/loop.py`: a tool in a thread, four SQLite commits an iteration."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import loop

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(loop.run_plain_loop(size, loop.open_committed_log(Path(name) / "log"), True))
    return 0


def count_calls(size: int, is_worse: bool) -> int:
    """Calls of the package's Python functions on the loop's thread, in the third turn of a conversation."""
    import toolchart

    package = str(Path(toolchart.__file__).parent)
    if is_worse:
        from toolchart.states.messages import Usage

        spoil_steps(lambda: [Usage().plus(Usage()) for _ in range(2)])
    calls = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        name = frame.f_code.co_filename
        # Python 3.12 runs comprehensions in their function's frame; they do not count before either.
        if event == "call" and name.startswith(package) and not frame.f_code.co_name.endswith("comp>"):
            calls += 1

    async def turns(folder: Path) -> None:
        engine = make_engine(folder, size, 3)
        for _ in range(2):
            await run_turn(engine)
        sys.setprofile(note)
        await run_turn(engine)
        sys.setprofile(None)
        await engine.aclose()

    with tempfile.TemporaryDirectory() as name:
        run_with_slow_clock(lambda: turns(Path(name)))
    return calls


def count_bytes(size: int, is_worse: bool) -> int:
    """Bytes of the records of one turn of `size` iterations; durations of tools count as one digit."""
    with tempfile.TemporaryDirectory() as name:
        engine = make_engine(Path(name), size, reply="done!" * 4 if is_worse else "")
        run_with_slow_clock(lambda: run_turn(engine))
        lines = [bytes(line) for line in engine.store.read_lines("c")]
    return sum(len(re.sub(rb'("execution_time_ms":)[\d.e-]+', rb"\g<1>0", line)) for line in lines)


def count_conversation_bytes(size: int, is_worse: bool) -> int:
    """Bytes of memory that `size` idle conversations of one turn hold in an engine."""

    async def converse(folder: Path) -> int:
        engine = make_engine(folder, 1, size + 20)
        for index in range(20):
            await run_turn(engine, f"warm{index}")
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        held: list[bytes] = []
        for index in range(size):
            await run_turn(engine, f"c{index}")
            if is_worse:
                held.append(bytes(2 * 1024))
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        await engine.aclose()
        return after - before

    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(converse(Path(name)))


QUICKSTART = """
import contextlib, io, sys
sys.path.insert(0, sys.argv.pop(1))
if sys.argv.pop(1):
    import toolchart.states.proofs.check
    import toolchart.app.server.site
from toolchart.app.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
print(*sorted(sys.modules))
"""


def list_modules(is_worse: bool) -> list[str]:
    """The modules that a quickstart from the command line has imported at its end."""
    with tempfile.TemporaryDirectory() as name:
        options = [str(ROOT / ".typing"), "worse" if is_worse else ""]
        words = ["--log", f"{name}/log.db", "run", "quickstart", "What is 17 * (23 + 4)?"]
        command = [sys.executable, "-c", QUICKSTART, *options, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def count_modules(size: int, is_worse: bool) -> int:
    """The package's modules that a quickstart imports."""
    return sum(name.startswith("toolchart") for name in list_modules(is_worse))


def count_other_modules(size: int, is_worse: bool) -> int:
    """The modules of the standard library and of other packages that a quickstart imports."""
    return sum(not name.startswith("toolchart") for name in list_modules(is_worse))


def run_synced_turn(size: int, is_worse: bool) -> int:
    """Run one turn of `size` iterations; `syncs.c` counts the syncs around this process."""
    if is_worse:
        import os

        def sync() -> None:
            with tempfile.TemporaryFile() as file:
                os.fsync(file.fileno())

        spoil_steps(sync)
    with tempfile.TemporaryDirectory() as name:
        engine = make_engine(Path(name), size)
        asyncio.run(run_turn(engine))
        engine.close()
    return 0


def count_connections(size: int, is_worse: bool) -> int:
    """Connections that `size` turns, whole and streamed by turns, open to a chat-completions host."""
    host = ChatHost(("127.0.0.1", 0), ChatAnswers)
    host.keeps_connections = not is_worse
    threading.Thread(target=host.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{host.server_address[1]}/v1"

    async def converse(folder: Path) -> None:
        import toolchart

        spec = folder / "agent.yaml"
        entry = {"provider": "openai", "model": "m", "base_url": address, "api_key": "k", "api": "chat"}
        spec.write_text((SPEC % 2).replace("{provider: scripted, model: m}", json.dumps(entry)))
        engine = toolchart.Engine(str(spec), log=str(folder / "log.db"))
        for index in range(size):
            await run_turn(engine, is_streamed=index % 2 == 1)
        await engine.aclose()

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(converse(Path(name)))
    host.shutdown()
    return host.connections


class ChatHost(http.server.ThreadingHTTPServer):
    """A host on loopback that counts the connections that it accepts."""

    connections = 0
    keeps_connections = True

    def process_request(self, *args: Any) -> None:
        """Count a connection and serve its requests."""
        self.connections += 1
        super().process_request(*args)


class ChatAnswers(http.server.BaseHTTPRequestHandler):
    """Answers each request with the word `done`, as one piece or as a stream."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat-completions request."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice = {"index": 0, "finish_reason": "stop"}
        answer = {"id": "r", "object": "chat.completion", "created": 1, "model": "m"}
        if request.get("stream"):
            chunk = {**answer, "choices": [{**choice, "delta": {"role": "assistant", "content": "done"}}]}
            data, content_type = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream"
        else:
            message = {"role": "assistant", "content": "done"}
            data = json.dumps({**answer, "choices": [{**choice, "message": message}]})
            content_type = "application/json"
        assert isinstance(self.server, ChatHost)
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        if not self.server.keeps_connections:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


COUNTS: dict[str, Callable[[int, bool], int]] = {
    "instructions": run_turn_for_instructions,
    "floor": run_floor,
    "calls": count_calls,
    "bytes": count_bytes,
    "memory": count_conversation_bytes,
    "modules": count_modules,
    "other modules": count_other_modules,
    "syncs": run_synced_turn,
    "connections": count_connections,
}


def main() -> None:
    """Do the work and print its count."""
    name, size = sys.argv[1], int(sys.argv[2])
    if name in ("instructions", "floor"):
        gc.disable()
    print(COUNTS[name](size, "--worse" in sys.argv))


if __name__ == "__main__":
    main()
