"""The same program in several frameworks: what each task is, and how a program of it is run.

Each task has a folder with a program `with_NAME.py` for each framework that it is written in. Every program
runs in processes of its own, in the environment of its framework, against a scripted model host on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted_host import ONLY, ScriptedHost, Step, answer, ask, call, say, serve_script

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "pairs"
VARIABLE = "TOOLCHART_PAIRS"
ENVIRONMENTS = os.environ.get(VARIABLE, "")
"""The folder that `.ci/install_pairs` has filled."""
TOOLCHART = "toolchart"
OWN_LOOP = "own_loop"
FRAMEWORKS = {
    TOOLCHART: "Toolchart",
    "pydantic_ai": "Pydantic AI",
    "openai_agents": "OpenAI Agents SDK",
    "langgraph": "LangGraph",
    OWN_LOOP: "a loop of your own",
}
PACKAGES = {
    "pydantic_ai": {"pydantic-ai-slim": "Pydantic AI"},
    "openai_agents": {"openai-agents": "OpenAI Agents SDK"},
    "langgraph": {"langgraph": "LangGraph", "langchain": "LangChain"},
    OWN_LOOP: {"openai": "the OpenAI SDK"},
}
"""By framework: the packages that its programs are written for, and what people call them."""
RELEASES = ("newest", "lowest")
TURNS = 4
"""Of the long conversation; each is a process."""
LIMIT_S = 240
"""How long all processes of one program may take together: four times the slowest on a busy machine."""


@dataclass(frozen=True)
class Task:
    """What the programs of a folder do alike."""

    title: str
    steps: Sequence[Step]
    """What the model says, in order."""
    lines: Sequence[str]
    """What every program prints, from all its processes."""
    outcomes: Sequence[tuple[str, Any, Any]]
    """Each call that is run: tool, arguments, value."""
    processes: Sequence[Sequence[str]] = ((),)
    """The arguments of each process, in order; they share a folder."""
    most_texts: int | None = None
    """How many texts of user and model a request may have, where the task says so."""


TASKS = {
    "typed_answer": Task(
        title="A typed answer, with dependencies",
        steps=[
            call("find_balance", currency="EUR"),
            answer(advice="Ada, 120.50 EUR are left.", block_card=True, risk=8),
            call("find_balance", currency="EUR"),
            answer(advice="Bob, 7.00 EUR are left.", block_card=False, risk=2),
        ],
        lines=[
            "Ada, 120.50 EUR are left. Block: True. Risk: 8.",
            "Bob, 7.00 EUR are left. Block: False. Risk: 2.",
        ],
        outcomes=[
            ("find_balance", {"currency": "EUR"}, "120.50 EUR"),
            ("find_balance", {"currency": "EUR"}, "7.00 EUR"),
        ],
    ),
    "streamed_approval": Task(
        title="A streamed answer, and an approval",
        steps=[
            Step(text="I shall refund A7.", calls=[("refund", {"order": "A7", "cents": 1250})]),
            say("A7 is refunded."),
        ],
        lines=["I shall refund A7.", "refund {'order': 'A7', 'cents': 1250} waits", "A7 is refunded."],
        outcomes=[("refund", {"order": "A7", "cents": 1250}, "A7: 1250 cents paid back")],
    ),
    "delegation": Task(
        title="Delegation, over two processes",
        steps=[
            ask("billing", "Credit Ada 500 cents."),
            call("credit", customer="Ada", cents=500),
            say("I gave Ada 500 cents."),
            say("You have your 500 cents back."),
        ],
        lines=["credit {'customer': 'Ada', 'cents': 500} waits", "You have your 500 cents back."],
        outcomes=[
            ("billing", {ONLY: "Credit Ada 500 cents."}, "I gave Ada 500 cents."),
            ("credit", {"customer": "Ada", "cents": 500}, "Ada has 500 cents more"),
        ],
        processes=[("ask",), ("approve",)],
    ),
    "long_conversation": Task(
        title="A long conversation",
        steps=[
            step
            for number in range(1, TURNS + 1)
            for step in (
                call("add", total=sum(range(number)), amount=number),
                say(f"The total is {sum(range(number + 1))} now, after {number} amounts that you named."),
            )
        ],
        lines=[
            *(
                f"The total is {sum(range(number + 1))} now, after {number} amounts that you named."
                for number in range(1, TURNS + 1)
            ),
            f"{TURNS} messages, from 'Please add 1 to my total.' to 'Please add {TURNS} to my total.'",
        ],
        outcomes=[
            ("add", {"total": sum(range(number)), "amount": number}, sum(range(number + 1)))
            for number in range(1, TURNS + 1)
        ],
        processes=[
            *(("say", f"Please add {number} to my total.") for number in range(1, TURNS + 1)),
            ("read",),
        ],
        most_texts=5,
    ),
    "model_free_test": Task(
        title="A test without a model", steps=[], lines=["The test passes."], outcomes=[]
    ),
}


def find_python(framework: str, release: str = "newest") -> Path | None:
    """The Python that runs the programs of a framework; None where no environment was installed."""
    if framework == TOOLCHART:
        return Path(sys.executable)
    python = Path(ENVIRONMENTS) / release / "bin" / "python"
    return python if ENVIRONMENTS and python.exists() else None


def find_program(task: str, framework: str) -> Path:
    """The file of a program."""
    return PROGRAMS / task / f"with_{framework}.py"


def list_tasks(framework: str) -> list[str]:
    """The tasks that a framework has a program of."""
    return [task for task in TASKS if find_program(task, framework).exists()]


@dataclass(frozen=True)
class Outcome:
    """What a program did."""

    lines: list[str]
    outcomes: list[tuple[str, Any, Any]]
    host: ScriptedHost


def run_program(task: str, framework: str, python: Path, folder: Path) -> Outcome:
    """Run all processes of a program, one after the other, in one folder.

    Raises:
        AssertionError: a process fails, or does not end in time.
    """
    lines: list[str] = []
    program = find_program(task, framework)
    end = time.monotonic() + LIMIT_S
    with serve_script(TASKS[task].steps) as host:
        environment = make_environment(framework, folder, host.url)
        for arguments in TASKS[task].processes:
            command = [str(python), str(program), *arguments]
            lines += run_process(command, environment, folder, end - time.monotonic()).splitlines()
    return Outcome(lines, host.list_outcomes(), host)


def run_process(command: Sequence[str], environment: dict[str, str], folder: Path, limit_s: float) -> str:
    """What a process prints.

    Raises:
        AssertionError: it fails, or does not end in time; then it is killed.
    """
    try:
        process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=max(limit_s, 0.1)
        )
    except subprocess.TimeoutExpired as error:
        printed = b"".join(part for part in (error.stdout, error.stderr) if isinstance(part, bytes))
        raise AssertionError(
            f"`{' '.join(command)}` was killed after {limit_s:.0f} s, which is its time. It printed:\n"
            + printed.decode(errors="replace")
        ) from None
    assert process.returncode == 0, f"`{' '.join(command)}` failed:\n{process.stdout}{process.stderr}"
    return process.stdout


def make_environment(framework: str, folder: Path, url: str) -> dict[str, str]:
    """The environment of a program: a host on loopback, a key that nobody has, nothing sent elsewhere."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
        "HOME": str(folder),
        "OPENAI_API_KEY": "no-key",
        "OPENAI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",  # else it sends each run to OpenAI
        "LANGSMITH_TRACING": "false",
    }
    if framework == TOOLCHART:
        environment["PYTHONPATH"] = str(ROOT / ".typing")
    return environment
