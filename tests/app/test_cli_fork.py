"""`fork` and `diff` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = Callable[..., Any]


@pytest.fixture
def talk(typed: Typed) -> str:
    """A conversation of six records, in the default log."""
    typed("run", "quickstart", "17 * 27", "--conversation", "talk")
    return "talk"


def test_another_result_gives_another_answer(typed: Typed, talk: str) -> None:
    """A fork with another tool result is a conversation of its own, compared by `diff`."""
    done = typed("fork", talk, "--tool-result", "call_1_0_0=12", "--name", "other")
    assert (done.code, done.out.strip()) == (0, "17 * 27 = 12")
    assert "other goes on from record 3 of talk" in done.err
    assert "goes on from record 3 of talk" in typed("show", "other").out
    assert typed("verify").code == 0
    assert typed("replay", "other").code == 0
    compared = typed("diff", talk, "other")
    assert compared.code == 1
    assert "4 steps in common" in compared.out
    assert "differ at /event/result/result" in compared.out
    data = json.loads(typed("diff", talk, "other", "--format", "json").out)
    assert (data["equal"], data["common"], data["first"]["left_seq"]) == (False, 4, 4)
    assert typed("diff", talk, "other", "--format", "mermaid").out.startswith("flowchart")
    assert typed("draw", "other").code == 0
    assert "12" in typed("export", "other").out


def test_a_what_if_that_changes_nothing_and_one_that_does(typed: Typed, talk: str) -> None:
    """Offline, a wider limit comes to the same; another model was never asked: exit 1, and what to do."""
    same = typed("fork", talk, "--set", "limits.max_iterations=9", "--offline", "--name", "wide")
    assert (same.code, same.out.strip()) == (0, "17 * 27 = 459")
    assert typed("diff", talk, "wide").code == 0
    other = typed("fork", talk, "--set", "model=x", "--offline", "--name", "new")
    assert other.code == 1
    assert "never asked 'x' this" in other.err
    assert "toolchart resume new" in other.err
    assert typed("resume", "new").out.strip() == "17 * 27 = 459"


def test_a_prompt_from_a_file(typed: Typed, talk: str, here: Path) -> None:
    """`--prompt` takes another system prompt; one that cannot be read is said so."""
    (here / "p.txt").write_text("Be different.", "utf-8")
    data = json.loads(typed("fork", talk, "--prompt", "p.txt", "--name", "n", "--json").out)
    assert (data["at"], data["stopped"]) == (1, None)
    assert "Be different." in typed("export", "n").out
    assert typed("fork", talk, "--prompt", "none.txt").code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "model"), "not of the form NAME=VALUE"),
        (("--set", "modle=x"), "did you mean 'model'?"),
        (("--tool-result", "call_1_0_0=grey"), "is not JSON"),
        (("--at", "99"), "its records are 0 to 5"),
    ],
)
def test_mistakes_are_said(typed: Typed, talk: str, words: tuple[str, ...], said: str) -> None:
    """A wrong setting, result or record: exit 2, what is allowed, and nothing is written."""
    done = typed("fork", talk, *words)
    assert done.code == 2
    assert said in done.err
    assert len(typed("runs", "--json").out.splitlines()) == 1
