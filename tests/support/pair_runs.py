"""The same program in three frameworks: what each task is, and how a program of it is run.

Each task has a folder with the programs `with_toolchart.py`, `with_pydantic_ai.py` and
`with_openai_agents.py`. Every program runs in a process of its own, in the environment of its framework,
against a scripted model host on loopback.
"""

from __future__ import annotations

import os
import subprocess
import sys
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
FRAMEWORKS = {TOOLCHART: "Toolchart", "pydantic_ai": "Pydantic AI", "openai_agents": "OpenAI Agents SDK"}
RELEASES = ("newest", "lowest")
TURNS = 6
"""Of the long conversation; each is a process."""


@dataclass(frozen=True)
class Task:
    """What the three programs of a folder do alike."""

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
        most_texts=8,
    ),
    "model_free_test": Task(
        title="A test without a model", steps=[], lines=["The test passes."], outcomes=[]
    ),
}


def find_python(framework: str, release: str = "newest") -> Path | None:
    """The Python that runs the programs of a framework; None where no environment was installed."""
    if framework == TOOLCHART:
        return Path(sys.executable)
    return Path(ENVIRONMENTS) / release / "bin" / "python" if ENVIRONMENTS else None


def find_program(task: str, framework: str) -> Path:
    """The file of a program."""
    return PROGRAMS / task / f"with_{framework}.py"


@dataclass(frozen=True)
class Outcome:
    """What a program did."""

    lines: list[str]
    outcomes: list[tuple[str, Any, Any]]
    host: ScriptedHost


def run_program(task: str, framework: str, python: Path, folder: Path) -> Outcome:
    """Run all processes of a program, one after the other, in one folder.

    Raises:
        AssertionError: a process fails.
    """
    lines: list[str] = []
    with serve_script(TASKS[task].steps) as host:
        environment = make_environment(framework, folder, host.url)
        for arguments in TASKS[task].processes:
            command = [str(python), str(find_program(task, framework)), *arguments]
            process = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600
            )
            assert process.returncode == 0, process.stdout + process.stderr
            lines += process.stdout.splitlines()
    return Outcome(lines, host.list_outcomes(), host)


def make_environment(framework: str, folder: Path, url: str) -> dict[str, str]:
    """The environment of a program: a host on loopback, a key that nobody has, nothing sent elsewhere."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
        "HOME": str(folder),
        "OPENAI_API_KEY": "no-key",
        "OPENAI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",  # else it sends each run to OpenAI
    }
    if framework == TOOLCHART:
        environment["PYTHONPATH"] = str(ROOT / ".typing")
    return environment
