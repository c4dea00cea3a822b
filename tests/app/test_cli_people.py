"""Questions to people on the command line: forms at the terminal, `resume --answer`, deadlines, the chat."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from chat_terminal import ChatTerminal
from command_line import CTRL_C, CTRL_D, run_and_type

from toolchart.app.cli.terminal.forms import FormPrompt, parse_field
from toolchart.states.effects import AskPerson

RunCli = Callable[..., Any]

AGENT = """
chart:
  name: editor
  states:
    asking:
      initial: true
      enter: ask_editor
      after: {AFTER: expired}
      transitions:
        - {event: answered, target: published, cond: verdict.publish}
        - {event: answered, target: dropped}
        - {event: cancelled, target: stopped}
    published: {final: true, enter: say_published}
    dropped: {final: true, enter: say_dropped}
    expired: {final: true, enter: say_expired}
    stopped: {final: true, enter: answer_with_error}
effects:
  ask_editor:
    ask_person:
      question: "Publish {{user_message}}?"
      as: verdict
      form:
        type: object
        required: [publish]
        additionalProperties: false
        properties:
          publish: {type: boolean, description: "Shall it go out?"}
          channel: {enum: [blog, mail], default: blog}
          copies: {type: integer, minimum: 1}
          note: {type: string, title: Note for the author}
  say_published: {answer: "published in {{verdict.channel}}, {{verdict.copies}} copies: {{verdict.note}}"}
  say_dropped: {answer: dropped}
  say_expired: {answer: nobody answered}
llms: {model: {provider: scripted, model: m, replies: [unused]}}
responses: [{llm: model}]
"""

RUN = ["run", "agent.yaml", "the draft", "--conversation", "c"]


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[str], None]:
    """Write the agent with a deadline into the folder of the test."""

    def write(after: str = "24h") -> None:
        (tmp_path / "agent.yaml").write_text(AGENT.replace("AFTER", after), "utf-8")

    return write


# -- without a terminal ------------------------------------------------------------------------------


def test_a_question_names_the_command_that_answers(run_cli: RunCli, agent: Callable[..., None]) -> None:
    """A turn that waits for an answer exits with 1 and prints until when, and a command that works."""
    agent()
    result = run_cli(*RUN)
    assert (result.code, result.out) == (1, "")
    assert "waiting for an answer: Publish the draft?" in result.err
    assert "waiting until 20" in result.err
    command = shlex.split(result.err.splitlines()[1])
    assert command[:4] == ["toolchart", "resume", "c", "--answer"]
    assert orjson.loads(command[4]) == {"publish": True, "channel": "blog", "copies": 0, "note": "..."}
    answer = run_cli("resume", "c", "--spec", "agent.yaml", "--answer", '{"publish": false}')
    assert (answer.code, answer.out) == (0, "dropped\n")


def test_an_answer_that_does_not_fit_changes_nothing(run_cli: RunCli, agent: Callable[..., None]) -> None:
    """A wrong answer exits with 2, names the field, and the question still waits."""
    agent()
    run_cli(*RUN)
    before = run_cli("show", "c", "--json").out
    for content, words in (
        ('{"publish": "yes"}', "publish: the answer to 'ask_editor' does not fit its form: 'yes'"),
        ('{"copies": 1}', "does not fit its form: 'publish'"),
        ("[1]", "--answer"),
        ("{", "--answer"),
    ):
        result = run_cli("resume", "c", "--spec", "agent.yaml", "--answer", content)
        assert result.code == 2
        assert words in result.err
    assert run_cli("resume", "c", "--question", "ask_editor").code == 2
    wrong = run_cli("resume", "c", "--spec", "agent.yaml", "--answer", "{}", "--question", "ask_editr")
    assert "did you mean 'ask_editor'?" in wrong.err
    assert run_cli("show", "c", "--json").out == before


def test_resuming_a_turn_that_waits_for_a_person_only_says_so(
    run_cli: RunCli, agent: Callable[..., None]
) -> None:
    """Without an answer `resume` writes nothing and exits with 1. S5.5: a new message is kept, and `run` says
    what it waits for and which command answers."""
    agent()
    run_cli(*RUN)
    before = run_cli("show", "c", "--json").out
    result = run_cli("resume", "c", "--spec", "agent.yaml")
    assert result.code == 1
    assert "waiting for an answer" in result.err
    assert run_cli("show", "c", "--json").out == before
    message = run_cli("run", "agent.yaml", "hello?", "--conversation", "c")
    assert message.code == 1
    assert "the message waits for the answer to 'ask_editor'" in message.err
    assert "toolchart resume c --answer" in message.err
    assert "hello?" in run_cli("show", "c").out
    again = run_cli("run", "agent.yaml", "hurry", "--conversation", "c", "--json")
    assert orjson.loads(again.out)["waiting_messages"] == ["hello?", "hurry"]


# -- at a terminal -----------------------------------------------------------------------------------

PUBLISH, CHANNEL, COPIES, NOTE = (
    b"publish (y or n): ",
    b"channel (blog, mail) [blog]: ",
    b"copies (integer, optional): ",
    b"Note for the author (optional): ",
)


def test_each_field_of_a_form_is_asked_in_turn(tmp_path: Path, agent: Callable[..., None]) -> None:
    """The terminal shows question, description, choices and default; what does not fit is asked again."""
    agent()
    code, screen = run_and_type(
        RUN,
        tmp_path,
        [
            (PUBLISH, b"perhaps\n"),
            (PUBLISH, b"\n"),
            (PUBLISH, b"y\n"),
            (CHANNEL, b"fax\n"),
            (CHANNEL, b"mail\n"),
            (COPIES, b"0\n"),
            (COPIES, b"3\n"),
            (NOTE, b"well done\n"),
        ],
    )
    assert code == 0
    assert "Publish the draft?" in screen
    assert "Shall it go out?" in screen
    for words in ("'perhaps' is not", "a value is needed", "'fax' is not", "0 is"):
        assert words in screen
    assert "published in mail, 3 copies: well done" in screen


def test_ctrl_c_at_a_form_cancels_the_turn(tmp_path: Path, agent: Callable[..., None]) -> None:
    """Ctrl-C at a question does what it does at the approval prompt: the chart gets `cancelled`."""
    agent()
    code, screen = run_and_type(RUN, tmp_path, [(PUBLISH, CTRL_C)])
    assert code == 3
    assert "cancelled" in screen
    assert "Traceback" not in screen


def test_the_end_of_the_input_leaves_the_question_open(tmp_path: Path, agent: Callable[..., None]) -> None:
    """Ctrl-D answers later: the turn waits, and the command that answers is shown."""
    agent()
    code, screen = run_and_type(RUN, tmp_path, [(PUBLISH, CTRL_D)])
    assert code == 1
    assert "toolchart resume c --answer" in screen


def test_a_deadline_ends_the_prompt(tmp_path: Path, agent: Callable[..., None]) -> None:
    """The timer runs beside the prompt: after it the prompt is gone, and the turn goes on."""
    agent("1s")
    code, screen = run_and_type(RUN, tmp_path, [(PUBLISH, b"y")])
    assert code == 0
    assert "nobody answered" in screen


CHAT_AGENT = (
    AGENT.replace("AFTER", "24h")
    .replace(
        "    asking:\n      initial: true\n",
        """    writing:
      initial: true
      enter: write
      transitions:
        - {event: replied, target: asking}
        - {event: user_said, target: rewriting}
        - {event: failed, target: stopped}
        - {event: cancelled, target: stopped}
    rewriting:
      enter: rewrite
      transitions:
        - {event: replied, target: asking}
        - {event: failed, target: stopped}
        - {event: cancelled, target: stopped}
    asking:
""",
    )
    .replace(
        "effects:\n",
        """effects:
  write: {call_model: {llm: slow, prompt: "{{user_message}}", as: draft}}
  rewrite: {call_model: {llm: model, prompt: "{{user_message}}", as: draft}}
""",
    )
    .replace("Publish {{user_message}}?", "Publish the {{draft}} of {{user_message}}?")
    .replace("replies: [unused]", "replies: [draft, draft]")
    .replace(
        "llms: {",
        "llms: {slow: {provider: scripted, model: s, replies: "
        "[&slow {content: early words, stream: {pause_s: 600}}, *slow]}, ",
    )
)
"""Writes until somebody interrupts it, and then at once."""


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[ChatTerminal]:
    """A chat with an agent that writes, and then asks an editor."""
    terminal = ChatTerminal(tmp_path, CHAT_AGENT)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_a_chat_asks_and_can_be_interrupted(chat: ChatTerminal) -> None:
    """A line typed during a turn interrupts it where the chart says so, and lines after a question answer."""
    chat.wait_for("/help lists the commands")
    chat.type("cats\r")
    chat.wait_for("writing")
    chat.type("no, dogs\r")
    chat.wait_for("Publish the draft of no, dogs?")
    chat.wait_for("publish (y or n)")
    chat.type("y\r")
    chat.wait_for("channel (blog, mail)")
    chat.type("mail\r")
    chat.wait_for("copies")
    chat.type("2\r")
    chat.wait_for("Note for the author")
    chat.type("fine\r")
    chat.wait_for("published in mail, 2 copies: fine")
    chat.type("birds\r")
    chat.wait_for("writing")
    chat.type("owls\r")
    chat.wait_for("publish (y or n)")
    chat.type("/later\r")
    chat.wait_for("waiting for an answer until 20")
    chat.leave()


# -- forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", "seven"),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "No", False),
        ({"type": ["boolean", "null"]}, "null", None),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["Red", "Blue"]}, "red", "Red"),
        ({"type": "array"}, "[1]", [1]),
        ({"type": "array"}, "1, 2", "1, 2"),
        ({}, "7", "7"),
        ({}, '{"a": 1}', {"a": 1}),
    ],
)
def test_a_line_becomes_a_value_of_the_fields_type(schema: dict[str, Any], line: str, value: Any) -> None:
    """Texts stay texts, numbers and JSON are read where the schema wants them, choices in any case."""
    assert parse_field(schema, line) == value
    assert type(parse_field(schema, line)) is type(value)


def fill_form(form: dict[str, Any], lines: list[str | None]) -> Any:
    """Ask for a form with these lines; the answer's content, or None."""
    remaining = list(lines)

    async def read_line(prompt: str) -> str | None:
        return remaining.pop(0)

    question = AskPerson(id=1, name="ask", state="s", question="Well?", form=form)
    answer = asyncio.run(FormPrompt(read_line)(question))
    assert remaining == []
    return answer.content if answer is not None else None


def test_rules_over_the_whole_form_ask_again_with_the_answers_as_defaults() -> None:
    """A rule that joins fields is checked at the end; then every field is asked again, and keeps its answer
    where the line is empty."""
    form = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/word"}, "b": {"type": "string"}},
        "$defs": {"word": {"type": "string", "maxLength": 3}},
        "minProperties": 1,
    }
    assert fill_form(form, ["", "", "toolong", "abc", ""]) == {"a": "abc"}
    assert fill_form({**form, "minProperties": 2}, ["abc", "", "", "x"]) == {"a": "abc", "b": "x"}
    assert fill_form(form, ["abc", None]) is None


def test_a_form_without_fields_is_answered_as_json() -> None:
    """A free form takes a JSON object."""
    assert fill_form({"type": "object", "minProperties": 1}, ["", "x", '{"a": 1}']) == {"a": 1}
