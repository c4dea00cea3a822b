"""docs/flows.md is correct: each shipped flow with its purpose, its picture, its start and its worst case.

The page is generated: `python tests/packaging/test_flows_doc.py` writes it from the first comment of each
flow and from what the commands print.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import pytest
from standard_input import empty_stdin

from toolchart.app.cli import cli
from toolchart.app.cli.exit_codes import run_to_exit_code
from toolchart.specs.flows import list_shipped_flows, read_flow_text

DOC = Path(__file__).resolve().parents[2] / "docs" / "flows.md"

MESSAGES: dict[str, tuple[str, ...]] = {
    "action_selector": ("echo x",),
    "approval_deadline": ("pay",),
    "context_minimisation": ("price of a chair",),
    "dual_model": ("I am angry",),
    "fallback": ("what is 2 + 3",),
    "interview": ("Hello",),
    "judge": ("Is it open?",),
    "long_conversation": ("My number is 17. Please keep it in mind.", "Which number did I say?"),
    "long_results": ("Which room is free on Monday?",),
    "map_reduce": ("Why are there tides?",),
    "plan_and_review": ("What is 6 * 7?",),
    "plan_then_execute": ("sums",),
    "reflection": ("tides",),
    "specialist": ("tides", "thank you"),
    "triage": ("A question about my bill", "thank you"),
}
"""The messages of a conversation that shows a flow. Each command is a process of its own, in which replies in
order begin again; so an interview shows its first turn."""

INTRODUCTION = """\
# Shipped flows

Here you find a flow to begin with. A flow is an agent whose chart uses several models, agents, people or
turns. Each one here runs offline with a scripted model. `toolchart init NAME --from FLOW` writes a copy of
your own: put your models under `llms` and change the prompts. `chart: FLOW` in an agent uses the chart and
its effects without a copy. [Writing charts](writing-charts/index.md) explains the parts. The worst case is
the last line of `toolchart check`.

This page is generated: `python tests/packaging/test_flows_doc.py` writes it, and the same file tests it.
"""


def print_page() -> str:
    """The page as it should be."""
    names = list_shipped_flows()
    links = "\n".join(
        f"- [{title_flow(name)}](#{title_flow(name).lower().replace(' ', '-')})" for name in names
    )
    return "\n".join((INTRODUCTION, links, "", *map(print_flow, names)))


def title_flow(name: str) -> str:
    """The name of a flow as a heading."""
    return name.replace("_", " ").capitalize()


def read_purpose(name: str) -> str:
    """The comment above the name of a flow."""
    head, _, _ = read_flow_text(name).partition("\nname:")
    return "\n".join(line.removeprefix("# ") for line in head.splitlines())


def print_flow(name: str) -> str:
    """The section of a flow."""
    talk = " --conversation talk" if len(MESSAGES[name]) > 1 or name == "approval_deadline" else ""
    runs = [f"toolchart run my_flow.yaml {shlex.quote(message)}{talk}" for message in MESSAGES[name]]
    with TemporaryDirectory() as folder:
        outputs = {
            line: run_command(line, folder) for line in (f"toolchart init my_flow --from {name}", *runs)
        }
        worst_case = run_command("toolchart check my_flow.yaml", folder).splitlines()[-1]
    console = "\n".join(f"$ {line}\n{output}" for line, output in outputs.items())
    _, _, bound = worst_case.rpartition("; ")
    return (
        f"## {title_flow(name)}\n\n{read_purpose(name)}\n\n![The flow {name}](pictures/{name}.svg)\n\n"
        f"```console\n{console}\n```\n\nWorst case: {bound}.\n"
    )


def run_command(line: str, folder: str) -> str:
    """The answer that a command prints in a folder; without one its messages, except those with a time."""
    output, messages = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with chdir(folder), empty_stdin(), redirect_stdout(output), redirect_stderr(messages):
        run_to_exit_code(
            lambda: cli.main(shlex.split(line)[1:], standalone_mode=False, prog_name="toolchart")
        )
    for stream in (output, messages):
        stream.seek(0)
    lines = (message for message in messages.read().splitlines() if not re.search(r"\dT\d\d:", message))
    return output.read().strip() or "\n".join(lines)


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    """The page has what the commands print now."""
    assert DOC.read_text("utf-8") == print_page(), "run: python tests/packaging/test_flows_doc.py"


def test_every_flow_is_explained() -> None:
    """Each flow has two sentences of purpose, a picture, and a bound."""
    page = DOC.read_text("utf-8")
    for name in list_shipped_flows():
        assert len(re.findall(r"\.(?:\s|$)", read_purpose(name))) == 2, name
        assert (DOC.parent / "pictures" / f"{name}.svg").is_file()
    assert page.count("Worst case: a turn takes at most ") == len(list_shipped_flows())
    assert "Traceback" not in page


if __name__ == "__main__":
    DOC.write_text(print_page(), "utf-8")
    sys.exit()
