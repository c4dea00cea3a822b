"""Unchanged agents of frameworks under `toolchart watch`: each call is in the conversation that it is of.

A host on loopback knows the truth (`scenario_host.py`). Each program runs once alone and once watched; one
log has all its scenarios, so that conversations of one may be taken for those of another.

`python tests/watched/test_watched_frameworks.py` writes `measures.json`: by framework, what was grouped and
how much of it is marked as not certain.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from contextlib import closing
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import pytest
from watch_page import follow_page
from watched_runs import (
    ENVIRONMENTS,
    MEASURES,
    PROGRAMS,
    VARIABLE,
    Measures,
    find_command,
    measure,
    read_pins,
    run_program,
    watch_program,
)

from toolchart.engine.log.stores import open_store


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_of_a_framework_asks_is_grouped_as_it_was(name: str, tmp_path: Path) -> None:
    """Every call is in the log once, no conversation has calls of two without a mark, children are children
    of the right calls, what is asked again stays in its conversation, all verify and replay, and the program
    prints what it prints alone."""
    command = find_command(PROGRAMS[name], tmp_path)
    if command is None:
        pytest.skip(f"{VARIABLE} names no folder that .ci/install_watched has filled")
    measures = watch(command, tmp_path)
    assert measures.faults == []
    assert measures.calls > 40
    assert measures.marked <= PROGRAMS[name].most_marked


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_keeps_the_rules_notices_none(name: str, tmp_path: Path) -> None:
    """Under `--enforce`, with a chart that allows all: as above, with every answer held and judged. A client
    that asks again by itself where nothing of an answer has come (AI SDK) does so at a stream that is cut
    before its first words, and its program does not see the cut."""
    command = find_command(PROGRAMS[name], tmp_path)
    if command is None:
        pytest.skip(f"{VARIABLE} names no folder that .ci/install_watched has filled")
    (tmp_path / "free.yaml").write_text(FREE_CHART, "utf-8")
    options = ("--chart", str(tmp_path / "free.yaml"), "--enforce")
    measures = watch(command, tmp_path, *options, left_out="cut" if name.startswith("ai sdk") else "")
    assert measures.faults == []
    assert measures.marked <= PROGRAMS[name].most_marked


def test_the_page_works_with_langgraph(tmp_path: Path) -> None:
    """The page *Watch what you have*, with its agent of LangGraph: watched, mined, and held to a rule."""
    if not ENVIRONMENTS:
        pytest.skip(f"{VARIABLE} names no folder that .ci/install_watched has filled")
    follow_page(tmp_path, str(Path(ENVIRONMENTS, "python/bin/python")), "graph.py")


FREE_CHART = """
name: free
states:
  prompting:
    initial: true
    enter: call_model
    transitions:
      - {event: replied, target: awaiting_tools, cond: "finish_reason == 'tool_calls'"}
      - {event: replied, target: finished}
      - {event: failed, target: prompting}
      - {event: cancelled, target: finished}
  awaiting_tools:
    enter: review_calls
    transitions:
      - {event: reviewed, target: executing}
      - {event: cancelled, target: finished}
  executing:
    enter: run_tools
    transitions:
      - {event: tool_finished, cond: "pending_calls > 0"}
      - {event: tool_finished, target: prompting}
      - {event: cancelled, target: finished}
      - {event: user_said}
  finished: {final: true, enter: answer}
"""


def watch(command: list[str], folder: Path, *options: str, left_out: str = "") -> Measures:
    """Run a program alone and watched, and measure what was recorded.

    Args:
        options: of the watch.
        left_out: what is printed of this scenario is not compared.
    """
    plain, _ = run_program(command, folder)
    shown, host = watch_program(command, folder, folder / "log.db", options)
    section = re.compile(rf"^-- {left_out}\n.*?(?=^-- |\Z)", re.DOTALL | re.MULTILINE)
    assert section.sub("", shown) == section.sub("", plain)
    with closing(open_store(str(folder / "log.db"))) as store:
        return measure(host, store)


def test_the_measures_are_of_the_pinned_versions() -> None:
    """`measures.json` has a row for each program, with the versions that would be installed."""
    rows = json.loads(MEASURES.read_text("utf-8"))
    pins = read_pins()
    assert [row["framework"] for row in rows] == [program.title for program in PROGRAMS.values()]
    for row, program in zip(rows, PROGRAMS.values(), strict=True):
        installed = {package: pins[program.language, package] for package in program.packages}
        assert row["versions"] == installed, "run: python tests/watched/test_watched_frameworks.py"
        assert row["faults"] == 0


def main() -> None:
    """Measure all programs, print a table, and write it."""
    pins, rows = read_pins(), []
    print(f"{'framework':40} {'calls':>6} {'true':>6} {'logged':>7} {'marked':>7} {'faults':>7}")
    for program in PROGRAMS.values():
        with tempfile.TemporaryDirectory() as place:
            command = find_command(program, Path(place))
            if command is None:
                sys.exit(f"{VARIABLE} names no folder that .ci/install_watched has filled")
            measures = watch(command, Path(place))
        rows.append(
            {
                "framework": program.title,
                "versions": {package: pins[program.language, package] for package in program.packages},
                "calls": measures.calls,
                "true_conversations": measures.true_conversations,
                "conversations": measures.conversations,
                "marked_share": round(measures.marked / measures.calls, 3),
                "faults": len(measures.faults),
            }
        )
        figures = (measures.calls, measures.true_conversations, measures.conversations, measures.marked)
        cells = [f"{figure:>{width}}" for figure, width in zip(figures, (6, 6, 7, 7), strict=True)]
        print(f"{program.title:40} {' '.join(cells)} {len(measures.faults):>7}", *measures.faults, flush=True)
    MEASURES.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
