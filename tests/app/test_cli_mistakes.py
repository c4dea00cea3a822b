"""Mistakes: each ends in one readable message and exit 2, none in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.exit_codes import ended, exit_code
from toolchart.states import errors
from toolchart.states.errors import ToolchartError

Typed = Callable[..., Any]

SPEC = """\
llms:
  a: {provider: scripted, model: m, replies: [x]}
tools: {registry: [{name: echo}]}
responses:
  - {llm: a, prompt: "{{who.name}}", tools: {enabled: true}}
"""

OPENAI = SPEC.replace("scripted", "openai").replace(", replies: [x]", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SPEC.replace("llms", "llsm"), "did you mean 'llms'"),
        (SPEC.replace("registry", "regsitry"), "agent.yaml:3: tools.regsitry: unknown key"),
        (SPEC.replace("llm: a", "llm: b"), "there is no llm 'b'"),
        (SPEC.replace("scripted", "opnai"), "did you mean 'openai'"),
        (OPENAI.replace("model: m", "model: m, api_key: '${UNSET_X}'"), "UNSET_X is not set"),
        (OPENAI, "no API key"),
        (SPEC.replace("  - {llm", "\t- {llm"), "never with tabs"),
        (SPEC.replace("provider: scripted,", "provider: [scripted,"), "agent.yaml:2"),
        ("", "the file is empty"),
        ("- a list", "expected a mapping"),
        (None, "no such file"),
    ],
)
def test_an_unusable_spec(typed: Typed, here: Path, text: str | None, told: str) -> None:
    """Issue 2: a typo, an unknown name, an unset variable, a tab, no file: exit 2, one message."""
    if text is not None:
        (here / "agent.yaml").write_text(text)
    done = typed("run", "agent.yaml", "hi")
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "Traceback" not in done.err
    assert done.err.count("toolchart: ") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("rnu", "Did you mean 'run'"),
        ("frobnicate", "Commands: run, chat, show"),
        ("run", "Missing argument 'SPEC'"),
        ("run quickstart x --var novalue", "not of the form name=value"),
        ("run quickstart x --var =v", "not of the form name=value"),
        ("run quickstart x --var a..b=v", "not of the form name=value"),
        ("run quickstart x --var a=1 --var a.b=2", "'a' has a value of its own already"),
        ("run quickstart x --var a.b=2 --var a=1", "'a' is a group of variables already"),
        ("run quickstart x --var a=@nowhere", "the file 'nowhere' cannot be read"),
        ("run quickstart x --var a=@.", "the file '.' cannot be read"),
        ("run quickstrat x", "did you mean 'quickstart'"),
        ("run . x", "this is a folder"),
        ("run quickstart x --handler rehersal", "did you mean 'rehearsal'"),
        ("run quickstart x --llm nobody", "there is no llm 'nobody'"),
        ("run quickstart x --history none.json", "history cannot be read"),
        ("run quickstart x --modle m", "--model"),
        ("run quickstart what is it", "Put the message in quotes"),
        ("run quickstart -5+3", "A message that begins with - goes after --"),
        ("run quickstart x --log /dev/null/log.db", "cannot be used"),
        ("runs --log no/such/log.db", "there is no log at no/such/log.db"),
        ("tools list quickstart --provider opnai", "did you mean 'openai'"),
        ("tools lst quickstart", "list"),
        ("tools list nothing", "neither a file nor a shipped agent"),
        ("schema recrod", "record"),
    ],
)
def test_wrong_usage(typed: Typed, words: str, told: str) -> None:
    """Wrong usage exits with 2 and says what is allowed, or the nearest that is."""
    done = typed(*words.split())
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "quickstart", ""], "The message is empty"),
        (["run", "quickstart", " \n"], "The message is empty"),
        (["run", "quickstart", "x", "--conversation", ""], "cannot be the id"),
        (["run", "quickstart", "x", "--conversation", "a\nb"], "cannot be the id"),
        (["run", "quickstart", "x", "--conversation", "a\x1b[2J"], "cannot be the id"),
        (["run", "quickstart", "\udcff"], "is not UTF-8 text"),
    ],
)
def test_unusable_words(typed: Typed, here: Path, words: list[str], told: str) -> None:
    """What could not be typed again, or not be logged, is refused before anything is written."""
    done = typed(*words)
    assert done.code == 2
    assert told in done.err
    assert not (here / ".toolchart").exists()


def test_a_message_that_begins_with_a_dash(typed: Typed) -> None:
    """After `--` any message can be given."""
    assert typed("run", "quickstart", "--", "-5 + 3").out == "-5 + 3 = -2\n"


def test_words_in_another_locale_are_taken_as_utf8(typed: Typed) -> None:
    """Bytes that the locale could not decode are taken as the UTF-8 that they are."""
    word = "echo: čau".encode().decode("ascii", "surrogateescape")
    assert typed("run", "quickstart", word).out == "čau\n"


def test_a_conversation_in_the_middle_of_a_turn(typed: Typed) -> None:
    """A new message for an open turn is refused, and the command that finishes it is named."""
    typed("run", "careful", "delete a.txt", "--conversation", "c")
    done = typed("run", "careful", "again", "--conversation", "c")
    assert done.code == 2
    assert "toolchart resume c" in done.err


# -- errors and codes --------------------------------------------------------------------------------


def subclasses(kind: type) -> set[type]:
    """A class's subclasses, all the way down."""
    return {one for below in kind.__subclasses__() for one in (below, *subclasses(below))}


EXAMPLES: list[tuple[ToolchartError, int]] = [
    (errors.SpecError("no"), 2),
    (errors.IllegalEvent("replied", "finished"), 2),
    (errors.LogUnavailable("no"), 2),
    (errors.ProviderError(kind="server", message="no"), 1),
    (errors.ReplayMismatch(seq=1, pointer="/", expected=1, got=2, blame="chart"), 1),
    (errors.LogConflict("no"), 1),
    (errors.Unanswered("no"), 1),
    (errors.Warned("no"), 1),
    (errors.LogDamaged("no"), 5),
    (ToolchartError("no"), 2),
]


@pytest.mark.parametrize(("error", "code"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_every_error_has_its_code(
    error: ToolchartError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN 10: one place says which error exits with which code; each is told in one message."""

    def fails() -> None:
        raise error

    assert exit_code(error) == code
    assert ended(fails) == code
    assert capsys.readouterr().err == f"toolchart: {error}\n"


def test_no_error_is_forgotten() -> None:
    """A new class of error has to be given a code on purpose."""
    ours = {one for one in subclasses(ToolchartError) if one.__module__ == errors.__name__}
    assert ours <= {type(error) for error, _ in EXAMPLES}


def test_an_unexpected_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours is told in one message with the way to its traceback, and exits with 70."""
    assert ended(lambda: {}["gone"]) == 70  # type: ignore[index]
    said = capsys.readouterr().err
    assert said == "toolchart: internal error: KeyError: 'gone'\n  TOOLCHART_DEBUG=1 shows where\n"
    monkeypatch.setenv("TOOLCHART_DEBUG", "1")
    with pytest.raises(KeyError):
        ended(lambda: {}["gone"])  # type: ignore[index]


def test_an_error_cannot_drive_the_terminal(typed: Typed) -> None:
    """Control characters in a name that an error repeats are shown, not sent."""
    typed("run", "quickstart", "1+1")
    done = typed("show", "\x1b]0;title\x07")
    assert done.code == 2
    assert "\x1b" not in done.err
    assert "x1b" in done.err


def test_json_errors_leave_stdout_empty(typed: Typed) -> None:
    """With `--json` too an error is talk: stdout has a result or nothing."""
    done = typed("run", "quickstrat", "x", "--json")
    assert (done.code, done.out) == (2, "")
    assert json.loads(typed("run", "quickstart", "1+1", "--json").out)["content"] == "1+1 = 2"
