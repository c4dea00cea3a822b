"""`toolchart migrate`: a conversation moves to a changed chart, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

RunCli = Callable[..., Any]

AGENT = """
chart:
  name: editor
  states:
    asking:
      initial: true
      enter: ask_editor
      transitions:
        - {event: answered, target: published}
    published: {final: true, enter: say_published}
effects:
  ask_editor: {ask_person: {question: "Publish {{user_message}}?", as: verdict, form: FORM}}
  say_published: {answer: published}
llms: {model: {provider: scripted, model: m, replies: [unused]}}
responses: [{llm: model}]
""".replace("FORM", "{type: object, required: [publish], properties: {publish: {type: boolean}}}")

BETTER = AGENT.replace(
    "- {event: answered, target: published}",
    "- {event: answered, target: published, cond: verdict.publish}\n"
    "        - {event: answered, target: dropped}\n"
    "        - {event: cancelled, target: dropped}",
).replace(
    "effects:",
    "    dropped: {final: true, enter: say_dropped}\neffects:\n  say_dropped: {answer: dropped}",
    1,
)


@pytest.fixture
def conversation(run_cli: RunCli, work_dir: Path) -> str:
    """A conversation whose question is open."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "better.yaml").write_text(BETTER, "utf-8")
    run_cli("run", "agent.yaml", "the draft", "--conversation", "c")
    return "c"


def test_an_open_conversation_goes_on_with_another_chart(run_cli: RunCli, conversation: str) -> None:
    """Approved without `--apply`, nothing is written; with it the event is recorded, replays, and the answer
    follows the new chart."""
    before = run_cli("show", conversation, "--json").out
    result = run_cli("migrate", conversation, "--spec", "better.yaml")
    assert (result.code, result.err) == (0, "")
    assert "approved: c may go on in 'asking' of editor" in result.out
    assert run_cli("show", conversation, "--json").out == before
    result = run_cli("migrate", conversation, "--spec", "better.yaml", "--apply")
    assert (result.code, result.out) == (0, "migrated: c goes on in 'asking' of editor\n")
    assert "goes on with chart editor" in run_cli("show", conversation).out
    answer = run_cli("resume", conversation, "--spec", "better.yaml", "--answer", '{"publish": false}')
    assert (answer.code, answer.out) == (0, "dropped\n")
    assert run_cli("replay", conversation).code == 0
    assert run_cli("verify").code == 0
    again = run_cli("migrate", conversation, "--spec", "agent.yaml", "--json")
    assert (again.code, orjson.loads(again.out)) == (0, {"needed": False})


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("asking:", "waiting:", "no such state"),
        ("enter: ask_editor", "enter: ask_again", "no such effect"),
        ("as: verdict", "as: reply", "no such effect"),
        ("target: published}", 'target: published, cond: "verdict.publish"}', "gap"),
        ("enter: say_published", "", "no answer"),
    ],
)
def test_a_migration_that_cannot_work_is_refused(
    run_cli: RunCli, conversation: str, work_dir: Path, old: str, new: str, kind: str
) -> None:
    """A missing state, effect or result, an answer without a row, an end without an answer: exit 1, and
    nothing is written."""
    effect = '  ask_again: {ask_person: {question: "Again?"}}\n'
    text = AGENT.replace(old, new, 1).replace(
        "  say_published: {answer", f"{effect}  say_published: {{answer"
    )
    (work_dir / "changed.yaml").write_text(text, "utf-8")
    before = run_cli("show", conversation, "--json").out
    result = run_cli("migrate", conversation, "--spec", "changed.yaml", "--apply")
    assert result.code == 1, result.err
    assert f"{kind}: " in result.out
    assert "refused: c keeps its chart" in result.out
    assert run_cli("show", conversation, "--json").out == before


def test_a_chart_alone_decides_and_records_nothing(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """`--chart` takes a file with a chart, a shipped chart or an agent, and says what `--spec` would say."""
    text = BETTER[BETTER.index("  name:") : BETTER.index("llms:")]
    states, effects = text.split("effects:\n")
    chart = "\n".join(line.removeprefix("  ") for line in states.splitlines()) + f"\neffects:\n{effects}"
    (work_dir / "chart.yaml").write_text(chart, "utf-8")
    before = run_cli("show", conversation, "--json").out
    for name in ("chart.yaml", "better.yaml"):
        result = run_cli("migrate", conversation, "--chart", name)
        assert (result.code, result.err) == (0, "")
        assert "approved: c may go on in 'asking' of editor" in result.out
    refused = run_cli("migrate", conversation, "--chart", "tool_loop", "--json")
    assert refused.code == 1
    assert [finding["kind"] for finding in orjson.loads(refused.out)["findings"]] == ["no such state"]
    assert run_cli("show", conversation, "--json").out == before


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "Name the new chart"),
        (("--spec", "better.yaml", "--chart", "better.yaml"), "Name the new chart"),
        (("--chart", "better.yaml", "--apply"), "--apply records the agent too"),
        (("--chart", "nowhere.yaml"), "there is no chart 'nowhere.yaml'"),
    ],
)
def test_the_new_chart_is_named_once(
    run_cli: RunCli, conversation: str, options: tuple[str, ...], problem: str
) -> None:
    """Neither or both options, a chart alone with `--apply`, and a name of nothing are usage errors."""
    result = run_cli("migrate", conversation, *options)
    assert result.code == 2
    assert problem in result.err


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ("{type: object, required: [go], properties: {go: {type: boolean}}}", "/properties/publish was"),
        ("{type: object, required: [publish], properties: {publish: {enum: [1, 2]}}}", "/properties/publish"),
        ("{type: object, properties: {publish: {type: boolean}}}", "/required was"),
    ],
)
def test_an_answer_in_the_old_form_is_no_answer_to_the_new_one(
    run_cli: RunCli, conversation: str, work_dir: Path, form: str, problem: str
) -> None:
    """A question that is open keeps its form. Where the new chart expects another one, the conversation
    stays: its guards would read fields that the answer does not have, and take another branch."""
    changed = BETTER.replace(
        "{type: object, required: [publish], properties: {publish: {type: boolean}}}", form
    )
    changed = changed.replace("verdict.publish", "verdict.count == 1")
    (work_dir / "changed.yaml").write_text(changed, "utf-8")
    result = run_cli("migrate", conversation, "--spec", "changed.yaml", "--apply")
    assert result.code == 1
    assert (
        "other form: the effect 'ask_editor' is open, and its answer has another form there: " in result.out
    )
    assert problem in result.out
    assert "change: let it be answered first" in result.out
    assert "refused: c keeps its chart" in result.out


def test_another_wording_of_a_form_is_the_same_form(
    run_cli: RunCli, conversation: str, work_dir: Path
) -> None:
    """Titles and descriptions change nothing of what fits; a field may be called `title`."""
    worded = BETTER.replace(
        "{publish: {type: boolean}}", "{publish: {type: boolean, title: Go, description: d}}"
    )
    (work_dir / "changed.yaml").write_text(worded, "utf-8")
    assert run_cli("migrate", conversation, "--spec", "changed.yaml").code == 0
    titled = BETTER.replace("{publish: {type: boolean}}", "{publish: {type: boolean}, title: {type: string}}")
    (work_dir / "changed.yaml").write_text(titled, "utf-8")
    assert run_cli("migrate", conversation, "--spec", "changed.yaml").code == 1


TIMED = BETTER.replace("      enter: ask_editor\n", "      enter: ask_editor\n      after: {1h: dropped}\n")
RENAMED = TIMED.replace("asking:", "waiting:")


@pytest.fixture
def timed(run_cli: RunCli, work_dir: Path) -> str:
    """A conversation whose question is open, beside a timer."""
    (work_dir / "timed.yaml").write_text(TIMED, "utf-8")
    (work_dir / "renamed.yaml").write_text(RENAMED, "utf-8")
    run_cli("run", "timed.yaml", "the draft", "--conversation", "t")
    return "t"


def test_a_state_by_another_name(run_cli: RunCli, timed: str) -> None:
    """With `--rename` a conversation goes on in a state that is called otherwise, with its question and its
    timer; the log replays, can be drawn, and resumes in another process."""
    plain = run_cli("migrate", timed, "--spec", "renamed.yaml")
    assert plain.code == 1
    assert "change: if it was renamed: --rename asking=waiting" in plain.out
    words = ("migrate", timed, "--spec", "renamed.yaml", "--rename", "asking=waiting")
    asked = run_cli(*words)
    assert asked.code == 0, asked.out
    assert "toolchart migrate t --spec renamed.yaml --rename asking=waiting --apply" in asked.out
    done = run_cli(*words, "--apply")
    assert (done.code, done.out) == (0, "migrated: t goes on in 'waiting' of editor\n")
    record = [orjson.loads(line) for line in run_cli("export", timed, "--format", "jsonl").out.splitlines()][
        -1
    ]
    assert record["event"]["renamed_states"] == {"asking": "waiting"}
    assert record["event"]["renamed_effects"] == {"timer_asking": "timer_waiting"}
    answer = run_cli("resume", timed, "--spec", "renamed.yaml", "--answer", '{"publish": true}')
    assert (answer.code, answer.out) == (0, "published\n")
    for command in (("replay", timed), ("verify",), ("show", timed), ("draw", timed, "--format", "text")):
        assert run_cli(*command).code == 0


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (("--rename", "asking"), 2, "'asking' is not of the form OLD=NEW, such as executing=working"),
        (
            ("--rename", "asking=a", "--rename", "asking=b"),
            2,
            "the state 'asking' gets two names: 'a' and 'b'",
        ),
        (("--rename", "askin=waiting"), 1, "the chart that the conversation runs has no state 'askin'"),
        (("--rename", "asking=waitin"), 1, "the chart that the conversation would run has no state 'waitin'"),
        (
            ("--rename", "asking=waiting", "--rename", "published=waiting"),
            1,
            "2 states are to be called 'waiting'",
        ),
    ],
)
def test_names_that_do_not_fit(
    run_cli: RunCli, timed: str, options: tuple[str, ...], code: int, problem: str
) -> None:
    """A renaming that names no state, or one twice, is refused, and nothing is written."""
    before = run_cli("show", timed, "--json").out
    result = run_cli("migrate", timed, "--spec", "renamed.yaml", "--apply", *options)
    assert result.code == code
    assert problem in result.out + result.err
    assert run_cli("show", timed, "--json").out == before
