"""Runs random agents from logs under a tracer, and says what they did that the trust question did not list.

A process of its own, since an audit hook can never be removed:

    python traced_agents.py SEED FIRST COUNT FOLDER [ROW ...]

Each agent stands in a log. The question of `--trust-log` is asked, its list is kept, the answer is yes, and a
turn runs. Printed is JSON: how many agents ran, what was seen, and every finding. A ROW names a function
that lists starts, as `module:name`, or a kind of effect, as `effect:KIND`: it lists nothing while COUNT
agents run, to see that the tracer notices.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import os
import re
import socket
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

import adopt_checkout  # noqa: E402, F401
import click  # noqa: E402
from agents import make_spec  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from random_acting_agents import write_agent  # noqa: E402

import toolchart  # noqa: E402
from toolchart.app.cli import stored_agent  # noqa: E402
from toolchart.engine import Engine  # noqa: E402
from toolchart.engine.log.replay import load_conversation  # noqa: E402
from toolchart.engine.log.stores import open_store  # noqa: E402
from toolchart.engine.manifest import Manifest, build_manifest  # noqa: E402
from toolchart.states.errors import ToolchartError  # noqa: E402
from toolchart.states.starts import Start, list_no_starts  # noqa: E402
from toolchart.states.vocabulary import get_effects  # noqa: E402
from toolchart.tools.retrieval import services  # noqa: E402

PACKAGE = Path(toolchart.__file__).resolve().parent
BASELINE_FOLDERS = tuple(
    {str(PACKAGE), *map(os.path.realpath, (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()))}
    | {os.path.realpath(folder) for folder in sys.path if folder}
    | {"/usr", "/lib", "/lib64", "/etc", "/proc", "/dev", "/sys", "/bin"}
)
"""What Toolchart, its packages and Python itself are made of."""

WORKER = "from toolchart.workers.host import main"
"""Stands in the program of Toolchart's own worker, which bounds untrusted work."""

LIBRARY_COMMANDS = (["uname", "-p"],)
"""What Python's `platform` starts for the SDKs, whatever the agent is."""


class Tracer:
    """Keeps what the process starts, imports, connects to and opens, while it is on."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.is_on = False
        sys.addaudithook(self._see)
        sys.meta_path.insert(0, self)  # the hook hears of import statements only, not of `import_module`

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Keep the name of a module that is imported; find nothing."""
        if self.is_on:
            self.events.append(("import", name))

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "subprocess.Popen":
            self.events.append(("process", [os.fsdecode(word) for word in arguments[1]]))
        elif event in ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"):
            self.events.append(("process", [event, os.fsdecode(arguments[0])]))
        elif event in ("socket.connect", "socket.sendto"):
            self.events.append(("connection", arguments[1]))
        elif event == "socket.getaddrinfo":
            self.events.append(("connection", (arguments[0], arguments[1])))
        elif event == "sqlite3.connect" or (event == "open" and isinstance(arguments[0], (str, bytes))):
            self.events.append(("file", os.fsdecode(arguments[0])))


def is_baseline_module(name: str) -> bool:
    """Whether a module is Python's, Toolchart's or an installed package's."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "toolchart":
        return True
    spec = importlib.util.find_spec(top)
    origin = spec.origin or next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    return spec is None or is_baseline_file(os.path.realpath(origin))


def is_baseline_file(path: str) -> bool:
    """Whether a file belongs to Python, Toolchart or an installed package."""
    return path.startswith(tuple(f"{folder}/" for folder in BASELINE_FOLDERS)) or path in BASELINE_FOLDERS


def is_covered(kind: str, what: Any, starts: tuple[Start, ...]) -> bool:
    """Whether a line of the list says what was seen."""
    if kind == "process":
        return any(_covers_process(start, what) for start in starts)
    if kind == "import":
        return any(
            start.kind == "function" and f"{start.subject.partition(':')[0]}.".startswith(f"{what}.")
            for start in starts
        )
    if kind == "connection":
        return any(
            start.kind in ("host", "address") and _split_address(start.subject) == (what[0], int(what[1]))
            for start in starts
            if isinstance(what, tuple) and what[1]
        )
    return any(_covers_file(start, what) for start in starts)


def _covers_process(start: Start, words: list[str]) -> bool:
    if words[0].startswith(("os.", "pty.")):
        is_tool = start.purpose.startswith("tool ")  # its arguments are the model's; an effect's are declared
        return start.subject == "os:system" and (is_tool or words[1] in start.purpose)
    if start.kind == "command" and start.words:
        return list(start.words[-len(words) :]) == words
    return start.kind == "command" and "shell command" in start.subject and words == ["/bin/sh", "-c", "true"]


def _split_address(address: str) -> tuple[str | None, int | None]:
    parts = urlsplit(re.sub(r"\$\{\w+\}", "x", address))
    try:
        return parts.hostname, parts.port
    except ValueError:
        return None, None


def _covers_file(start: Start, path: str) -> bool:
    if start.kind == "file":
        listed = os.path.realpath(start.subject)
        folder, name = os.path.split(listed)
        # An event has no folder where the file was opened by the handle of its folder. A file that is written
        # at once has a temporary name first, and its folder is synced.
        is_inside = not os.path.isabs(path) and os.path.exists(f"{listed}/{path}")
        path = os.path.realpath(path)
        return (
            is_inside
            or path in (listed, folder)
            or path.startswith((f"{listed}/", f"{listed}-", f"{folder}/.{name}."))
        )
    if start.kind == "function":  # its module, and what it writes to show that it ran
        module = start.subject.partition(":")[0]
        name, path = module.partition(".")[0], os.path.realpath(path)
        return any(f"/{part}" in path for part in (f"{name}.", f"{name}/", f"ran_{name}"))
    return False


def hold_ports(count: int) -> list[socket.socket]:
    """Sockets that hold a port each and do not listen: whoever connects there is refused at once."""
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("127.0.0.1", 0))
    return holders


def run_agent(
    tracer: Tracer, seed: int, number: int, folder: Path, ports: list[int], seen: Counter[str]
) -> list[str]:
    """Everything that one agent did that was not listed; empty for an honest list."""
    folder.mkdir()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    log = str(folder / "log.db")
    spec = write_agent(seed, number, folder, ports)
    harmless = make_spec(llms={"model": {"provider": "scripted", "model": "m", "replies": ["x"]}})
    with Engine(harmless, log=log) as writer:
        writer.spec._public_document.clear()
        writer.spec._public_document.update(spec)
        writer.run("go", conversation="c")
    store = open_store(log)
    replayed = load_conversation(store, "c")
    assert replayed is not None
    store.close()
    findings: list[str] = []
    listed: list[Manifest] = []

    def keep_manifest(agent: Any) -> Manifest:
        listed.append(build_manifest(agent))
        return listed[-1]

    def agree(*_: Any, **__: Any) -> bool:
        tracer.events.append(("yes", None))
        return True

    stored_agent.build_manifest = keep_manifest  # type: ignore[attr-defined]
    stored_agent.can_ask_user = lambda: True  # type: ignore[attr-defined]
    click.confirm = agree  # type: ignore[assignment]
    tracer.events.clear()
    tracer.is_on = True
    with redirect_stderr(io.StringIO()) as screen:
        agent = stored_agent.choose_agent(None, replayed.configured, trust_log=True)
        try:
            with Engine(agent, log=log) as engine:
                engine.run("go", conversation="c")
        except ToolchartError as error:
            seen[f"refused: {str(error)[-140:]}"] += 1
    tracer.is_on = False
    starts = listed[0].starts
    shown = {line.strip() for line in screen.getvalue().splitlines()}
    if not {line.strip() for line in listed[0].format_lines()} <= shown:
        findings.append(f"agent {number}: the question was not shown whole")
    is_asked = False
    for kind, what in list(tracer.events):
        if kind == "yes":
            is_asked = True
            continue
        is_own = (
            (kind == "process" and (WORKER in " ".join(what) or what in LIBRARY_COMMANDS))
            or (kind == "import" and is_baseline_module(what))
            or (kind == "file" and (is_baseline_file(os.path.realpath(what)) or what.startswith(log)))
            or (kind == "connection" and isinstance(what, (str, bytes)) and not what)
        )
        if is_own:
            continue
        seen[kind] += 1
        is_data = kind == "file" and what.endswith((".yaml", ".json", ".yml"))
        if not is_asked and not is_data:
            findings.append(f"agent {number}: before the answer: {kind} {what!r}")
        if not is_covered(kind, what, starts):
            findings.append(f"agent {number}: not listed: {kind} {what!r}")
    seen.update(f"line: {start.kind}" for start in starts)
    sys.path.remove(str(folder))
    return list(dict.fromkeys(findings))


@contextmanager
def hide_row(row: str) -> Iterator[None]:
    """A block in which one row lists nothing: `module:function`, or `effect:KIND`."""
    place, _, name = row.partition(":")
    if place == "effect":
        rows = get_effects()
        honest = rows[name]
        rows[name] = replace(honest, list_starts=list_no_starts)
        yield
        rows[name] = honest
        return
    module = importlib.import_module(place)
    function = getattr(module, name)
    setattr(module, name, list_no_starts)
    yield
    setattr(module, name, function)


def main() -> None:
    """Run the agents that the command line names; with rows, as many agents for each row."""
    seed, first, count, folder, *rows = sys.argv[1:]
    sys.path = [os.path.abspath(entry) for entry in sys.path]
    os.environ["ACTING_TOKEN"] = "a-token-of-the-environment"
    services.FIRST_WAIT_S = 0.0
    holders = hold_ports(100)
    ports = [holder.getsockname()[1] for holder in holders]
    tracer, seen = Tracer(), Counter[str]()
    findings: dict[str, list[str]] = {row: [] for row in rows or ("",)}
    number = int(first)
    for row, found in findings.items():
        with hide_row(row) if row else nullcontext():
            for _ in range(int(count)):
                place = Path(folder) / f"agent_{number}"
                found += run_agent(tracer, int(seed), number, place, ports, seen)
                number += 1
    for holder in holders:
        holder.close()
    print(json.dumps({"agents": number - int(first), "seen": seen, "findings": findings}))


if __name__ == "__main__":
    main()
