"""Runs programs of frameworks under `toolchart watch`, and holds what was recorded against the truth."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from command_line import START
from scenario_host import Noted, ScenarioHost, serve_scenarios

from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.watching.recorder import CONTINUES
from toolchart.providers.transport.raw_answers import compute_answer_digest
from toolchart.states.effects import CallModel
from toolchart.states.ports import Store

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "watched"
MEASURES = FOLDER / "measures.json"
"""What was measured: by program, versions, calls, conversations, and the share that is marked."""
VARIABLE = "TOOLCHART_WATCHED"
ENVIRONMENTS = os.environ.get(VARIABLE, "")
"""The folder that `.ci/install_watched` has filled."""
LIMIT_S = 240

_REASONS = ("it goes on from", "began with the same request")
"""What the first reply says of a conversation that may be the rest of another one."""


@dataclass(frozen=True)
class Program:
    """An agent that others could have written."""

    title: str
    file: str
    packages: tuple[str, ...]
    """What it is written for."""
    arguments: tuple[str, ...] = ()
    most_marked: int = 0
    """How many of its calls may be marked: of those that run alike beside each other, without ids."""

    @property
    def language(self) -> str:
        """Whose packages they are."""
        return "python" if self.file.endswith(".py") else "node"


PROGRAMS = {
    "openai chat": Program("openai, chat completions", "raw_openai_chat.py", ("openai",)),
    "openai responses": Program("openai, Responses", "raw_openai_responses.py", ("openai",), ("whole",)),
    "openai stateful": Program(
        "openai, stateful Responses", "raw_openai_responses.py", ("openai",), ("stateful",)
    ),
    "anthropic": Program("anthropic", "raw_anthropic.py", ("anthropic",)),
    "google-genai": Program("google-genai", "raw_gemini.py", ("google-genai",), most_marked=12),
    "ollama": Program("ollama", "raw_ollama.py", ("ollama",), most_marked=6),
    **{
        f"pydantic ai {wire}": Program(
            f"Pydantic AI, {words}", "with_pydantic_ai.py", ("pydantic-ai-slim",), (wire,), 4
        )
        for wire, words in (
            ("chat", "chat completions"),
            ("responses", "Responses"),
            ("messages", "Anthropic"),
        )
    },
    **{
        f"openai agents {wire}": Program(
            f"OpenAI Agents SDK, {words}", "with_openai_agents.py", ("openai-agents",), (wire,)
        )
        for wire, words in (("chat", "chat completions"), ("responses", "Responses"))
    },
    **{
        f"ai sdk {wire}": Program(f"AI SDK, {words}", "with_ai_sdk.mjs", ("ai", package), (wire,))
        for wire, words, package in (
            ("chat", "chat completions", "@ai-sdk/openai"),
            ("responses", "Responses", "@ai-sdk/openai"),
            ("messages", "Anthropic", "@ai-sdk/anthropic"),
        )
    },
    "openai node": Program("openai for Node, chat completions", "raw_openai.mjs", ("openai",)),
    "langgraph": Program("LangGraph", "with_langgraph.py", ("langgraph", "langchain", "langchain-openai")),
}


@dataclass(frozen=True)
class LoggedCall:
    """A model call of the log."""

    conversation: str
    is_marked: bool
    """Whether it says that its conversation is not certain."""
    says_why: bool
    """Whether it is marked, or says that something went before."""


@dataclass
class Measures:
    """What a run has shown."""

    calls: int = 0
    conversations: int = 0
    true_conversations: int = 0
    marked: int = 0
    faults: list[str] = field(default_factory=list)
    """What was grouped wrongly without a mark, in words."""


def find_command(program: Program, folder: Path) -> list[str] | None:
    """What runs a program in a folder; None where its environment was not installed."""
    python, packages = Path(ENVIRONMENTS, "python/bin/python"), Path(ENVIRONMENTS, "node/node_modules")
    is_there = (python if program.language == "python" else packages).exists()
    if not ENVIRONMENTS or not is_there:
        return None
    file = FOLDER / "programs" / program.file
    if program.language == "python":
        return [str(python), str(file), *program.arguments]
    # Node looks for packages beside the file of a program.
    (folder / "node_modules").symlink_to(packages)
    shutil.copy(file, folder)
    return [str(packages / ".bin" / "node"), str(folder / program.file), *program.arguments]


def read_pins() -> dict[tuple[str, str], str]:
    """The versions that `.ci/install_watched` installs, by language and package."""
    lines = (FOLDER / "requirements.txt").read_text("utf-8").splitlines()
    names = [re.sub(r"\[.*\]", "", line).split("==") for line in lines if not line.startswith("#")]
    packages = json.loads((FOLDER / "package.json").read_text("utf-8"))["dependencies"]
    return {
        **{("python", name): version for name, version in names},
        **{("node", name): version for name, version in packages.items()},
    }


def run_program(command: list[str], folder: Path, *scenarios: str) -> tuple[str, ScenarioHost]:
    """What a program prints, and the host that it asked.

    Raises:
        AssertionError: it fails, or does not end in time.
    """
    with serve_scenarios() as host:
        environment = {
            **{name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            **host.make_environment(),
            "HOME": str(folder),
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "PYDANTIC_DISABLE_PLUGINS": "__all__",
        }
        process = subprocess.run(
            [*command, *scenarios],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    shown = f"`{' '.join(command)}`:\n{process.stdout}{process.stderr}"
    assert process.returncode == 0, shown
    assert not host.refused, (host.refused, shown)
    return process.stdout, host


def watch_program(
    command: list[str], folder: Path, log: Path, options: Sequence[str] = ()
) -> tuple[str, ScenarioHost]:
    """As `run_program`, under a watch with these options that writes a log."""
    words = [sys.executable, "-c", START, "watch", "--log", str(log), *options, "--", *command]
    return run_program(words, folder)


def measure(host: ScenarioHost, store: Store) -> Measures:
    """What of a log is as it was."""
    names = list(store.list_conversations())
    logged: dict[str, list[LoggedCall]] = defaultdict(list)
    begun: dict[str, dict[str, Any]] = {}
    for name in names:
        events = [json.loads(line)["event"] for line in store.read_lines(name)]
        begun[name] = next(event for event in events if event["type"] == "configured")
        for digest, call in _list_calls(name, events):
            logged[digest].append(call)
    noted = list(_find_unread(host.noted, logged))
    truth = {each.digest: each for each in noted}
    measures = Measures(
        calls=len(host.noted),
        conversations=len(names),
        true_conversations=len({noted.run for noted in host.noted}),
        marked=sum(call.is_marked for calls in logged.values() for call in calls),
    )
    say = measures.faults.append
    for each in noted:
        if len(logged[each.digest]) != 1:
            say(f"a call of {each.run!r} is in the log {len(logged[each.digest])} times")
    for digest in logged.keys() - truth.keys():
        if logged[digest]:
            say(f"{logged[digest][0].conversation} has a call that was not asked")
    certain = {digest: calls[0] for digest, calls in logged.items() if digest in truth and len(calls) == 1}
    runs: dict[str, str] = {}
    for digest, call in certain.items():  # in the order of each conversation
        run = truth[digest].run
        if not call.is_marked and runs.get(call.conversation, run) != run:
            say(f"{call.conversation} goes on from {runs[call.conversation]!r} with {run!r} without a mark")
        runs[call.conversation] = run
    measures.faults += _check_runs(noted, certain, begun)
    measures.faults += [
        f"{verified} does not verify"
        for verified in verify_store(store)
        if not isinstance(verified, VerifiedConversation)
    ]
    for name in names:
        for digest, said in _list_said(store, name):
            if digest in truth and truth[digest].said != said:
                say(f"a call of {truth[digest].run!r} was asked {truth[digest].said}, in the log {said}")
    return measures


def _find_unread(noted: list[Noted], logged: dict[str, list[LoggedCall]]) -> Iterator[Noted]:
    """What the host noted; a refusal that a client did not read to its end, as far as it has read it."""
    for each in noted:
        parts = (compute_answer_digest(each.content[:length]) for length in range(len(each.content)))
        digest = next((part for part in parts if part in logged), each.digest)
        yield each if each.digest in logged else replace(each, digest=digest)


def _list_said(store: Store, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By the digest of each answer: what users have said in the request that the log derives."""
    said: tuple[str, ...] = ()
    for replayed in replay_conversation(store, name):
        event = replayed.record.event
        if event["type"] in ("replied", "failed") and event.get("answer_digest"):
            yield event["answer_digest"], said
        for effect in replayed.step.effects:
            if isinstance(effect, CallModel):
                messages = effect.request.messages
                # Where a program changes its prompt within a turn, the next one begins without words.
                said = tuple(each.content for each in messages if each.role == "user" and each.content)


def _list_calls(name: str, events: list[dict[str, Any]]) -> Iterator[tuple[str, LoggedCall]]:
    """The answers of a conversation by their digests. What a failed call would say, the next reply says."""
    waiting: list[str] = []
    for event in events:
        if event["type"] not in ("replied", "failed") or not event.get("answer_digest"):
            continue
        waiting.append(event["answer_digest"])
        if event["type"] == "replied":
            words = " ".join(event["reply"].get("warnings", ()))
            marked = "not certain" in words
            for digest in waiting:
                yield digest, LoggedCall(name, marked, marked or any(each in words for each in _REASONS))
            waiting = []
    for digest in waiting:
        yield digest, LoggedCall(name, False, False)


def _check_runs(
    noted: list[Noted], certain: dict[str, LoggedCall], begun: dict[str, dict[str, Any]]
) -> Iterator[str]:
    """What is wrong with where the calls of each true conversation are."""
    runs: dict[str, list[Noted]] = defaultdict(list)
    for each in noted:
        if each.digest in certain:
            runs[each.run].append(each)
    for run, calls in runs.items():
        places = [certain[each.digest] for each in calls]
        first = {place.conversation: place for place in reversed(places)}
        for name in list(dict.fromkeys(place.conversation for place in places))[1:]:
            if CONTINUES not in begun[name].get("tags", {}) and not first[name].says_why:
                yield f"{run!r} begins once more in {name}, which does not say why"
        for each, follower, place, next_place in zip(calls, calls[1:], places, places[1:], strict=False):
            again = each.fault and each.asked == follower.asked
            if again and place.conversation != next_place.conversation and not next_place.is_marked:
                yield f"{run!r} asks again after {each.fault}, in another conversation"
        parent = run.rpartition("/")[0]
        if parent:
            yield from _check_child(run, runs[parent], places[0], certain, begun)


def _check_child(
    run: str, parents: list[Noted], place: LoggedCall, certain: dict[str, LoggedCall], begun: dict[str, Any]
) -> Iterator[str]:
    """What is wrong with where a child is."""
    if place.is_marked:
        return
    link = begun[place.conversation].get("parent")
    if link is None:
        yield f"{run!r} is no child of a call"
        return
    topic = run.rpartition("/")[2]
    (asked,) = [each for each in parents if any(topic in text for text in each.calls.values())]
    item = [topic in text for text in asked.calls.values()].index(True)
    if (link["conversation"], link.get("item", 0)) != (certain[asked.digest].conversation, item):
        yield f"{run!r} is the child of another call"
