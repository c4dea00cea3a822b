"""Doors that read a conversation: all say the same, and those that perform steps of the core are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from reminding import run_reminder
from served import bearer, make_site, open_client, serve
from starlette.routing import Route

from toolchart.app.server.application import build_application
from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.engine.log import replay
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.reading.figures import read_figures, read_total_usage, read_turns
from toolchart.states.core.encoding import encode
from toolchart.states.ports import Store

RunCli = Callable[..., Any]

APPROVAL: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}

DERIVING_PATHS = {
    "/api/conversations/{conversation}": "the result of the newest turn is the value that `run` gives",
    "/api/conversations/{conversation}/open": "which effects are open is decided by the core's closing rules",
    "/api/conversations/{conversation}/requests": "a request is derived, and compared with its digest",
    "/v1/responses/{response}": "what of a reply is the answer is decided by the chart",
}
"""The paths that perform steps of the core, and why."""

ENDLESS_PATHS = ("/api/conversations/{conversation}/events", "/mcp")
"""The paths that answer with a stream without an end: records as they are written, and what a turn says."""

DERIVING_COMMANDS = {"replay c --json": "it derives every step, and compares it with its record"}
"""The reading commands that do, and why."""


def copy_without_checkpoints(source: Store, target: Any) -> None:
    """Copy the records alone: whoever derives a conversation of the copy has to perform its steps."""
    for name in source.list_conversations():
        target.append(name, 0, list(source.read_lines(name)))


@pytest.fixture(scope="module")
def recorded() -> MemoryStore:
    """A conversation with an ended turn and one that waits for a decision; and a fork of it."""
    call = reply_with_calls(("echo", {"text": "a"}))
    store, copy = MemoryStore(), MemoryStore()
    with make_engine(["first", call], log=store, **APPROVAL) as engine:
        engine.run("hi", conversation="c")
        engine.run("go", conversation="c")
        engine.conversation("c").fork(name="d")
    copy_without_checkpoints(store, copy)
    return copy


DOOR: ContextVar[str] = ContextVar("DOOR", default="")
"""What is asked now; empty in what a server does beside its requests, such as going on after a crash."""


@pytest.fixture
def deriving(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The doors that have performed steps of the core."""
    doors: set[str] = set()

    def perform(machine: Any, snapshot: Any, event: Any) -> Any:
        doors.add(DOOR.get())
        return original(machine, snapshot, event)

    original = replay.step
    monkeypatch.setattr(replay, "step", perform)
    return doors


async def test_paths_that_perform_steps_are_named(recorded: MemoryStore, deriving: set[str]) -> None:
    """Every path that reads a conversation, of the API, of each protocol and of the pages, performs no step
    of the core, but for those that are named with their reason."""
    site = make_site(make_engine(["hello"], log=recorded, **APPROVAL))
    values = {
        "{conversation}": "c",
        "{format}": "openai",
        "{response}": ResponseName(conversation="c", turn=1, seq=1).id,
    }
    read = 0
    async with open_client(site) as client:
        for route in build_application(site).routes:
            if not isinstance(route, Route) or "GET" not in route.methods or route.path in ENDLESS_PATHS:
                continue
            path = route.path
            for name, value in values.items():
                path = path.replace(name, value)
            if "{" in path:
                continue  # it reads no conversation
            DOOR.set(route.path)
            answer = await client.get(path, params={"other": "d", "with": "d", "seq": "1"})
            read += answer.status_code == 200
            assert answer.status_code < 500, path
    assert read > 30
    assert deriving - {""} == set(DERIVING_PATHS)


@pytest.mark.parametrize(
    "command",
    [
        "runs --json",
        "runs --json --usage --children",
        "stats --json",
        "show c",
        "show c --json",
        "show c --overview --json",
        "draw c",
        "draw c --sequence",
        "diff c d --json",
        "export c --format openai",
        "export c --format calls",
        "replay c --json",
        "verify --json",
    ],
)
def test_commands_that_perform_steps_are_named(
    command: str, recorded: MemoryStore, deriving: set[str], tmp_path: Path, run_cli: RunCli
) -> None:
    """So does every command that reads."""
    log = str(tmp_path / "log.db")
    store = open_store(log)
    copy_without_checkpoints(recorded, store)
    store.close()
    DOOR.set(command)
    assert run_cli(*command.split(), "--log", log).out
    assert deriving == {command}.intersection(DERIVING_COMMANDS)


def test_figures_are_the_same_at_every_door(tmp_path: Path, run_cli: RunCli) -> None:
    """The tokens of a model call that a timer asked for while the chart waited for its user are shown at
    every door that shows figures, and by the result of the turn."""
    log = str(tmp_path / "log.db")
    store = open_store(log)
    with run_reminder(store) as engine:
        total = encode(engine.conversation("c").read_turn().usage)
        with serve(make_site(engine)) as address, httpx.Client(base_url=address, headers=bearer()) as client:
            row = client.get("/api/conversations?figures=true").json()["conversations"][0]
            overview = client.get("/api/conversations/c").json()
    (runs,) = [
        json.loads(line) for line in run_cli("runs", "--json", "--usage", "--log", log).out.splitlines()
    ]
    stats = json.loads(run_cli("stats", "--json", "--log", log).out)
    shown = json.loads(run_cli("show", "c", "--overview", "--json", "--log", log).out)
    store = open_store(log)
    doors = {
        "figures": encode(read_figures(store, "c").usage),
        "turns": encode(read_turns(store, "c")[0].usage),
        "family": encode(read_total_usage(store, "c")),
        "list": row["usage"],
        "overview": overview["usage"],
        "overview of the family": overview["total_usage"],
        "result": overview["result"]["usage"],
        "runs": {**total, **{name: runs[name] for name in ("input", "output", "cost")}},
        "stats": stats["usage"],
        "show": shown["total_usage"],
    }
    store.close()
    assert {name: usage for name, usage in doors.items() if usage != total} == {}
    assert (total["total"], row["model_calls"], stats["model_calls"]) == (6, 2, 2)
