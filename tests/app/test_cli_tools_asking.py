"""The approval prompt of `toolchart run` on a terminal, and `toolchart approve`."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CTRL_C, CTRL_D, run_and_type, run_toolchart
from command_runs import RunCli

from toolchart.engine import Engine

pytestmark = pytest.mark.slow

CHOICE, WHY, OTHER = b"[l]ater: ", b"(optional): ", b"keep them): "
RUN = ["run", "careful", "delete report.txt", "--conversation", "c"]


def read_call(folder: Path) -> dict[str, object]:
    """Return the only call of the conversation."""
    with Engine("careful", log=folder / ".toolchart" / "log.db") as engine:
        (call,) = engine.conversation("c").resume().tool_calls
        return {"params": call.params, "result": call.result}


def test_a_person_approves(tmp_path: Path) -> None:
    """S5.3: the terminal shows tool and arguments, asks, and "yes" runs the call."""
    code, screen = run_and_type(RUN, tmp_path, [(CHOICE, b"y\n")])
    assert code == 0
    assert "approve delete_file (call_1_0_0)?" in screen
    assert '"path": "report.txt"' in screen
    assert "Done: deleted (only rehearsed)" in screen


def test_a_person_rejects_with_a_reason(tmp_path: Path) -> None:
    """S5.3: after "no" the model is informed that the call was not executed, with the typed reason."""
    code, screen = run_and_type(RUN, tmp_path, [(CHOICE, b"n\n"), (WHY, b"not on a Friday\n")])
    assert code == 0
    assert "I did not do it:" in screen
    assert "not executed: not on a Friday" in str(read_call(tmp_path)["result"])


def test_changed_arguments_are_validated(tmp_path: Path) -> None:
    """S5.3: typed arguments are parsed and validated like a model's before they are approved."""
    code, screen = run_and_type(
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
    assert "please answer y, n, e or l" in screen
    assert "not valid JSON" in screen
    assert "'path'" in screen.split("Invalid arguments")[1].splitlines()[0]
    assert read_call(tmp_path)["params"] == {"path": "other.txt"}


@pytest.mark.parametrize("answer", [b"l\n", CTRL_D])
def test_later_leaves_the_call_to_another_process(tmp_path: Path, run_cli: RunCli, answer: bytes) -> None:
    """S5.4: a postponed call waits in the log, and `approve` in another process continues the turn."""
    code, screen = run_and_type(RUN, tmp_path, [(CHOICE, answer)])
    assert code == 1
    assert "toolchart approve c call_1_0_0" in screen
    result = run_cli("approve", "c", "call_1_0_0")
    assert (result.code, result.out) == (0, "Done: deleted (only rehearsed)\n")


def test_ctrl_c_at_the_question_cancels_the_turn(tmp_path: Path, run_cli: RunCli) -> None:
    """S5.4: Ctrl-C at the prompt cancels the turn, and no tool runs."""
    code, screen = run_and_type(RUN, tmp_path, [(CHOICE, CTRL_C)])
    assert code == 3
    assert "Traceback" not in screen
    assert "cancelled; the log of conversation c has every step until now" in screen
    records = run_cli("show", "c", "--json").out
    assert "needs_approval" in records
    assert "succeeded" not in records


def test_another_process_approves_other_arguments(tmp_path: Path, run_cli: RunCli) -> None:
    """S5.4: `approve --args` changes the arguments; invalid ones decide nothing."""
    run_cli(*RUN)
    for arguments, message in (("{path", "not valid JSON"), ('{"path": []}', "Invalid arguments")):
        refusal = run_cli("approve", "c", "call_1_0_0", "--args", arguments)
        assert (refusal.code, refusal.out) == (2, "")
        assert message in refusal.err
    changes = '{"path": "other.txt"}'
    result = run_toolchart("approve", "c", "call_1_0_0", "--args", changes, cwd=tmp_path)
    assert result.returncode == 0
    assert read_call(tmp_path)["params"] == {"path": "other.txt"}
