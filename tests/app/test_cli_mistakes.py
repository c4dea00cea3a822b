"""Mistakes of the user: each ends in one readable message and its exit code, never in a traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolchart.app.cli.exit_codes import describe_damage, exit_code, run_to_exit_code
from toolchart.states import errors
from toolchart.states.errors import ToolchartError

RunCli = Callable[..., Any]

SPEC = """\
llms:
  a: {provider: scripted, model: m, replies: [x]}
tools: {registry: [{name: echo}]}
responses:
  - {llm: a, prompt: "{{who.name}}", tools: {enabled: true}}
"""

OPENAI = SPEC.replace("scripted", "openai").replace(", replies: [x]", "")


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_an_unusable_spec(run_cli: RunCli, work_dir: Path, text: str | None, message: str) -> None:
    """Issue 2: a typo, an unknown name, an unset variable, a tab, a missing file: exit 2 with one message."""
    if text is not None:
        (work_dir / "agent.yaml").write_text(text)
    result = run_cli("run", "agent.yaml", "hi")
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err
    assert result.err.count("toolchart: ") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rnu", "Did you mean 'run'"),
        ("frobnicate", "Commands: run, chat, batch, fork, "),
        ("run", "'SPEC'"),
        ("run quickstart x --var novalue", "not of the form name=value"),
        ("run quickstart x --var =v", "not of the form name=value"),
        ("run quickstart x --var a..b=v", "not of the form name=value"),
        ("run quickstart x --var a=1 --var a.b=2", "'a' already has a value"),
        ("run quickstart x --var a.b=2 --var a=1", "'a' is already a group of variables"),
        ("run quickstart x --var a=@nowhere", "the file 'nowhere' cannot be read"),
        ("run quickstart x --var a=@.", "the file '.' cannot be read"),
        ("run quickstrat x", "did you mean 'quickstart'"),
        ("run quickstrat x --json", "did you mean 'quickstart'"),
        ("run . x", "this is a folder"),
        ("run quickstart x --handler rehersal", "did you mean 'rehearsal'"),
        ("run quickstart x --llm nobody", "there is no llm 'nobody'"),
        ("run quickstart x --history none.json", "none.json: cannot be read"),
        ("run quickstart x --modle m", "--model"),
        ("run quickstart what is it", "Put the message in quotes"),
        ("run quickstart -5+3", "Put -- before a message that begins with -"),
        ("run quickstart x --log /dev/null/log.db", "cannot be used"),
        ("runs --log no/such/log.db", "there is no log at no/such/log.db"),
        ("tools list quickstart --provider opnai", "did you mean 'openai'"),
        ("tools lst quickstart", "list"),
        ("tools list nothing", "neither a file nor a shipped agent"),
        ("schema recrod", "record"),
    ],
)
def test_wrong_usage(run_cli: RunCli, words: str, message: str) -> None:
    """Wrong usage exits with 2 and names the allowed or the nearest value."""
    result = run_cli(*words.split())
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "quickstart", ""], "the message is empty"),
        (["run", "quickstart", " \n"], "the message is empty"),
        (["run", "quickstart", "x", "--conversation", ""], "cannot be the id"),
        (["run", "quickstart", "x", "--conversation", "a\nb"], "cannot be the id"),
        (["run", "quickstart", "x", "--conversation", "a\x1b[2J"], "cannot be the id"),
        (["run", "quickstart", "\udcff"], "is not UTF-8 text"),
    ],
)
def test_unusable_arguments(run_cli: RunCli, work_dir: Path, words: list[str], message: str) -> None:
    """Words that could not be typed again or logged are refused before anything is written."""
    result = run_cli(*words)
    assert result.code == 2
    assert message in result.err
    assert not (work_dir / ".toolchart").exists()


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ("run quickstart hi --durability ful", "full"),
        ("draw tool_loop --format mermiad", "mermaid"),
        ("draw tool_lop", "tool_loop"),
        ("check tool_lop", "tool_loop"),
        ("check quikstart", "quickstart"),
        ("migrate c --chart tool_lop", "tool_loop"),
        ("stats --by modle", "model"),
        ("schema spce", "spec"),
        ("export c --format opena", "openai"),
        ("rerun --offline --format tabel", "table"),
        ("rerun --offline --set modle=x", "model"),
        ("rerun --offline --where stat=x", "state"),
        ("rerun --offline --judge stat", "state"),
        ("tools test quickstart calculatr", "calculator"),
        ("run quickstart hi --modle x", "--model"),
        ("init x.yaml --from quikstart", "quickstart"),
    ],
)
def test_a_misspelt_word_is_refused_with_the_nearest(run_cli: RunCli, words: str, nearest: str) -> None:
    """Issue 26: options, choices, settings and names of commands, charts, agents and tools: none passes, and
    each message names the nearest word."""
    assert run_cli("run", "quickstart", "--conversation", "c", "1+1").code == 0
    done = run_cli(*words.split())
    assert done.code == 2
    assert re.search(rf"[Dd]id you mean.*{nearest}", done.err), done.err


def test_a_condition_that_selects_nothing_is_no_success(run_cli: RunCli) -> None:
    """A rerun over a misspelt state compares nothing, and does not pass."""
    assert run_cli("run", "quickstart", "--conversation", "c", "1+1").code == 0
    done = run_cli("rerun", "--offline", "--where", "state=finishd")
    assert done.code == 2
    assert "no conversation meets --where state=finishd" in done.err
    assert run_cli("rerun", "--offline", "--where", "state=finished").code == 0


def test_a_message_that_begins_with_a_dash(run_cli: RunCli) -> None:
    """After `--` a message may begin with a dash."""
    assert run_cli("run", "quickstart", "--", "-5 + 3").out == "-5 + 3 = -2\n"


def test_arguments_are_decoded_as_utf8(run_cli: RunCli) -> None:
    """Arguments that the locale cannot decode are decoded as UTF-8."""
    word = "echo: čau".encode().decode("ascii", "surrogateescape")
    assert run_cli("run", "quickstart", word).out == "čau\n"


def test_a_conversation_in_the_middle_of_a_turn(run_cli: RunCli) -> None:
    """S5.5: a new message for an open turn is kept once, and a notice names what the turn waits for."""
    run_cli("run", "careful", "delete a.txt", "--conversation", "c")
    result = run_cli("run", "careful", "again", "--conversation", "c")
    assert result.code == 1
    assert result.err.count("the message waits for the decision on 'delete_file'") == 1
    assert "toolchart approve c call_1_0_0" in result.err


# -- errors and codes --------------------------------------------------------------------------------


def list_subclasses(kind: type) -> set[type]:
    """Return all subclasses of a class, recursively."""
    return {subclass for below in kind.__subclasses__() for subclass in (below, *list_subclasses(below))}


EXAMPLES: list[tuple[ToolchartError, int]] = [
    (errors.SpecError("no"), 2),
    (errors.NotFound("c"), 2),
    (errors.PluginUnusable("no"), 2),
    (errors.PluginFailure("no"), 70),
    (errors.TurnChanged("the key 'k' was used", "another message", "give it another key"), 2),
    (errors.SettingsWidened("no"), 2),
    (errors.EffectRefused("act", "call_function os:system", "does not name it", "c"), 2),
    (errors.IllegalEvent("replied", "finished"), 2),
    (errors.AlreadyDecided("c1", "finished", approved=True, by="anna", at="2026-01-01T00:00:00Z"), 2),
    (errors.LogUnavailable("no"), 2),
    (errors.DurableHostUnavailable("no"), 2),
    (errors.ForeignLog("no"), 2),
    (errors.NewerLog("no"), 2),
    (errors.LogBusy("no"), 2),
    (errors.StorageFailure("no"), 70),
    (errors.ProviderError(kind="server", message="no"), 1),
    (errors.ReplayMismatch(seq=1, pointer="/", expected=1, actual=2, blame="chart"), 1),
    (errors.UnknownSemantics(seq=1, recorded=2, known=1, release="9.0"), 1),
    (errors.LogConflict("no"), 1),
    (errors.LeaseHeld("c", "a worker", 0.0, 30.0), 1),
    (errors.LeaseLost("no"), 1),
    (errors.NoRecordedAnswer("no"), 1),
    (errors.TurnCancelled("SIGTERM"), 3),
    (errors.LogDamaged("no"), 5),
    (ToolchartError("no"), 2),
]


@pytest.mark.parametrize(("error", "code"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_every_error_has_its_code(
    error: ToolchartError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """DESIGN 10: each error class has its exit code and prints one message."""

    def fails() -> None:
        raise error

    assert exit_code(error) == code
    assert run_to_exit_code(fails) == code
    text = describe_damage(error) if isinstance(error, errors.LogDamaged) else str(error)
    assert capsys.readouterr().err == f"toolchart: {text}\n"


def test_no_error_is_forgotten() -> None:
    """Every error class is in the table above, so a new one gets its exit code on purpose."""
    # By name: a dataclass with slots is made from another class, which lives until it is collected.
    ours = {
        subclass.__name__
        for subclass in list_subclasses(ToolchartError)
        if subclass.__module__ == errors.__name__
    }
    assert ours <= {type(error).__name__ for error, _ in EXAMPLES}


def test_an_unexpected_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An internal error prints one message with the way to its traceback, and exits with 70."""
    assert run_to_exit_code(lambda: {}["gone"]) == 70  # type: ignore[index]
    output = capsys.readouterr().err
    assert (
        output
        == "toolchart: internal error: KeyError: 'gone'\n  set TOOLCHART_DEBUG=1 to see the traceback\n"
    )
    monkeypatch.setenv("TOOLCHART_DEBUG", "1")
    with pytest.raises(KeyError):
        run_to_exit_code(lambda: {}["gone"])  # type: ignore[index]


def test_an_error_cannot_drive_the_terminal(run_cli: RunCli) -> None:
    """Control characters in a name that an error repeats are escaped."""
    run_cli("run", "quickstart", "1+1")
    result = run_cli("show", "\x1b]0;title\x07")
    assert result.code == 2
    assert "\x1b" not in result.err
    assert "x1b" in result.err
