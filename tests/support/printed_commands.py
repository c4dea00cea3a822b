"""The commands that the README and the tour print, and the files that a reader has at that point.

`python tests/support/printed_commands.py` runs them all as printed with the installed `toolchart`, each by a
shell, in a folder of its own. With a clone as an argument it first runs the README's first command there:
that makes an environment of its own and installs the package, and the other commands use it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")

NEEDS_A_HOST = ("toolchart run openai", "toolchart run ollama", "toolchart run gemini")
"""Commands that call a real model."""

EXIT_CODES = {"toolchart diff one other": 1}
"""Exit codes other than 0: two conversations that differ."""

QUESTIONS = ("What is 17 * 27?", "What is 2 + 2?")


def list_first_commands() -> list[str]:
    """The commands of the line that installs the package and runs it."""
    (line,) = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    return str(line).split(" && ")


def list_commands() -> list[str]:
    """Every command of the tour's code, in order, with the names of conversations that exist."""
    lines = re.findall(r"^    (toolchart .*)$", TOUR, re.MULTILINE)
    commands = [re.sub(r"\s+# .*", "", line) for line in lines if not line.startswith(NEEDS_A_HOST)]
    return [re.sub(r"\bCONVERSATION\b|\bONE\b", "one", c).replace("OTHER", "other") for c in commands]


def list_preparations() -> list[str]:
    """The commands that write the conversations of the other commands."""
    own_agent = "toolchart run agent.yaml Hello --conversation one"
    return [own_agent, f"{list_first_commands()[-1]} --conversation other"]


def write_files(folder: Path) -> None:
    """Write what the commands name: the tour's agent on scripted hosts, questions, messages."""
    (text,) = re.findall(r"```yaml\n(name: support\n.*?)```", TOUR, re.DOTALL)
    agent = yaml.safe_load(text)
    rules = [{"match": r"[\s\S]*", "reply": "So it is."}]
    agent["llms"] = {name: {"provider": "scripted", "model": "m", "rules": rules} for name in agent["llms"]}
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False), "utf-8")
    rows = [json.dumps({"message": question}) for question in QUESTIONS]
    (folder / "questions.jsonl").write_text("\n".join(rows) + "\n", "utf-8")
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]
    (folder / "chat.json").write_text(json.dumps(messages), "utf-8")


def _install_in_clone(clone: Path) -> str:
    """Run the README's first command in a clone; return the folder of its programs."""
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    line = " && ".join(list_first_commands())
    done = subprocess.run(
        ["bash", "-c", line], cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert "459" in done.stdout, done.stdout
    return str(clone / ".venv" / "bin")


def run_all(programs: str | None = None) -> int:
    """Run every command by a shell; return how many failed.

    Args:
        programs: a folder of programs that goes before the others.
    """
    path = os.pathsep.join([*([programs] if programs else []), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name))
        for command in [*list_preparations(), *list_commands()]:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=name,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            is_right = done.returncode == EXIT_CODES.get(command, 0)
            print("ok    " if is_right else "FAILED", command)
            if not is_right:
                failures += 1
                print(done.stdout)
    return failures


if __name__ == "__main__":
    sys.exit(run_all(_install_in_clone(Path(sys.argv[1])) if sys.argv[1:] else None) > 0)
