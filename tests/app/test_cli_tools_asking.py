"""`toolchart run` on a terminal asks about each call that needs approval."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import toolchart
from typing_at import CTRL_C, CTRL_D, typing

from toolchart.engine import Engine

CHOICE, WHY, OTHER = b"[l]ater: ", b"is told): ", b"as they were): "
RUN = ["run", "careful", "delete report.txt", "--conversation", "c"]


def call(folder: Path) -> dict[str, object]:
    """The one call of the conversation."""
    with Engine("careful", log=folder / ".toolchart" / "log.db") as engine:
        (made,) = engine.resume("c").tool_calls
        return dict(made)


def test_a_person_approves(tmp_path: Path) -> None:
    """S5.3: the terminal shows tool and arguments, asks, and a yes runs the call."""
    code, screen = typing(RUN, tmp_path, [(CHOICE, b"y\n")])
    assert code == 0
    assert "approve delete_file (call_1_0_0)?" in screen
    assert '"path": "report.txt"' in screen
    assert "Done: deleted (only rehearsed)" in screen


def test_a_person_rejects_with_a_reason(tmp_path: Path) -> None:
    """S5.3: a no is told to the model as not executed, with the reason that was typed."""
    code, screen = typing(RUN, tmp_path, [(CHOICE, b"n\n"), (WHY, b"not on a Friday\n")])
    assert code == 0
    assert "I did not do it:" in screen
    assert "not on a Friday" in str(call(tmp_path)["result"])


def test_changed_arguments_are_looked_at_again(tmp_path: Path) -> None:
    """S5.3: what a person types in is parsed and validated like a model's, and then approved."""
    code, screen = typing(
        RUN,
        tmp_path,
        [
            (CHOICE, b"what?\n"),
            (CHOICE, b"e\n"),
            (OTHER, b'{"path"\n'),
            (OTHER, b'{"path": []}\n'),
            (OTHER, b'{"path": "other.txt"}\n'),
            (CHOICE, b"y\n"),
        ],
    )
    assert code == 0
    assert "y, n, e or l, please" in screen
    assert "not valid JSON" in screen
    assert "'path'" in screen.split("Invalid arguments")[1].splitlines()[0]
    assert call(tmp_path)["params"] == {"path": "other.txt"}


@pytest.mark.parametrize("answer", [b"l\n", CTRL_D])
def test_later_leaves_the_call_to_another_process(tmp_path: Path, answer: bytes) -> None:
    """S5.4: a call that was put off waits in the log; `approve` in another process goes on."""
    code, screen = typing(RUN, tmp_path, [(CHOICE, answer)])
    assert code == 1
    assert "toolchart approve c call_1_0_0" in screen
    done = toolchart("approve", "c", "call_1_0_0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Done: deleted (only rehearsed)\n")


def test_ctrl_c_at_the_question_cancels_the_turn(tmp_path: Path) -> None:
    """S5.4: Ctrl-C while a question stands ends the turn in order, and nothing was run."""
    code, screen = typing(RUN, tmp_path, [(CHOICE, CTRL_C)])
    assert code == 3
    assert "Traceback" not in screen
    assert "cancelled; conversation c has every step up to here" in screen
    shown = toolchart("show", "c", "--json", cwd=tmp_path).stdout
    assert "needs_approval" in shown
    assert "succeeded" not in shown


def test_nobody_is_asked_where_nobody_is_there(tmp_path: Path) -> None:
    """S5.4: without a terminal the call waits, and the exit code says that the turn is open."""
    done = toolchart(*RUN, cwd=tmp_path)
    assert done.returncode == 1
    assert "waiting for a decision: delete_file" in done.stderr
    assert "[y]es" not in done.stderr


def test_another_process_approves_other_arguments(tmp_path: Path) -> None:
    """S5.4: `approve --args` changes the arguments; what does not fit decides nothing."""
    toolchart(*RUN, cwd=tmp_path)
    for given, told in (("{path", "not valid JSON"), ('{"path": []}', "Invalid arguments")):
        refused = toolchart("approve", "c", "call_1_0_0", "--args", given, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert told in refused.stderr
    changed = '{"path": "other.txt"}'
    done = toolchart("approve", "c", "call_1_0_0", "--args", changed, cwd=tmp_path)
    assert done.returncode == 0
    assert call(tmp_path)["params"] == {"path": "other.txt"}
