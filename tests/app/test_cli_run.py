"""`toolchart run`: messages, variables, results, exit codes, and how to go on."""

from __future__ import annotations

import http.server
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import on_terminal
from hypothesis import given
from hypothesis import strategies as st

from toolchart.app.cli.parameters.variables import parse_variables

Typed = Callable[..., Any]

SPEC = """\
llms:
  a: {provider: scripted, model: m, replies: %s}
tools: {registry: [{name: echo}]}
responses:
  - {llm: a, prompt: "{{who.name}}", tools: {enabled: true}}
"""

AGAIN = "{tool_calls: [{name: echo, arguments: {text: x}}]}"


def records(typed: Typed, conversation: str) -> list[dict[str, Any]]:
    """The records of a conversation."""
    return [json.loads(line) for line in typed("show", conversation, "--json").out.splitlines()]


def test_the_answer_alone_is_printed(typed: Typed) -> None:
    """Piped, stdout has the answer and stderr nothing."""
    done = typed("run", "quickstart", "2+3")
    assert (done.code, done.out, done.err) == (0, "2+3 = 5\n", "")


def test_the_result_object(typed: Typed) -> None:
    """S1.4, S1.13: `--json` prints the result of DESIGN section 9, the calls in order."""
    result = json.loads(typed("run", "quickstart", "2+3", "--json").out)
    assert {key: result[key] for key in ("content", "service", "model", "state")} == {
        "content": "2+3 = 5",
        "service": "rehearsal",
        "model": "rehearsal",
        "state": "finished",
    }
    assert result["iterations"] == 1
    assert result["finish_reason"] == "stop"
    (call,) = result["tool_calls"]
    assert call["tool"] == "calculator"
    assert call["result"]["result"] == 5
    assert call["execution_time_ms"] >= 0
    assert records(typed, result["conversation_id"])


def test_conversations_go_on(typed: Typed) -> None:
    """`--conversation` goes on with the history of the log; a new name begins a conversation."""
    typed("run", "quickstart", "1+1", "--conversation", "c")
    typed("run", "quickstart", "2+2", "--conversation", "c")
    (row,) = typed("runs", "--json").out.splitlines()
    assert json.loads(row)["turns"] == 2
    assert typed("replay", "c").code == 0


@pytest.mark.parametrize("words", [["-"], []])
def test_messages_from_standard_input(typed: Typed, words: list[str]) -> None:
    """The message may come by a pipe, with `-` or without, with a byte order mark or without."""
    assert typed("run", "quickstart", *words, stdin=b"3+4\n").out == "3+4 = 7\n"
    assert typed("run", "quickstart", *words, stdin=b"\xef\xbb\xbf3+4").out == "3+4 = 7\n"


@pytest.mark.parametrize(
    ("stdin", "told"),
    [(b"", "Standard input is empty"), (b" \n", "is empty"), (b"\xff", "not UTF-8 text")],
)
def test_unusable_standard_input(typed: Typed, stdin: bytes, told: str) -> None:
    """An empty or undecodable message is wrong usage, not a turn."""
    done = typed("run", "quickstart", stdin=stdin)
    assert done.code == 2
    assert told in done.err
    assert typed("runs").code == 2, "there is no log"


def test_variables_reach_the_prompt(typed: Typed, here: Path) -> None:
    """S1.1: `--var` fills the prompt, nested names and files too."""
    (here / "agent.yaml").write_text(
        "llms: {a: {provider: scripted, model: m, replies: [fine]}}\n"
        "responses: [{llm: a, prompt: '{{who.name}} {{notes}} {{handle}}'}]\n"
    )
    (here / "notes.txt").write_text("from a file")
    typed(
        "run",
        "agent.yaml",
        "hi",
        "--conversation",
        "c",
        "--var",
        "who.name=Ada",
        "--var",
        "notes=@notes.txt",
        "--var",
        "handle=@@ada",
    )
    assert records(typed, "c")[1]["event"]["system"] == "Ada from a file @ada"


def test_variables_choose_the_handler(typed: Typed, here: Path) -> None:
    """`--var` decides which handler matches; `--handler`, `--llm` and `--model` go before it."""
    (here / "agent.yaml").write_text(
        "llms:\n"
        "  a: {provider: scripted, model: one, replies: [from a]}\n"
        "  b: {provider: scripted, model: two, replies: [from b]}\n"
        "responses:\n"
        "  - {name: weather, match: {intent: weather}, llm: a}\n"
        "  - {name: rest, llm: b}\n"
    )
    run = ("run", "agent.yaml", "hi")
    assert typed(*run, "--var", "intent=weather").out == "from a\n"
    assert typed(*run, "--var", "intent=other").out == "from b\n"
    assert typed(*run, "--handler", "weather").out == "from a\n"
    assert typed(*run, "--llm", "a").out == "from a\n"
    assert json.loads(typed(*run, "--model", "three", "--json").out)["model"] == "three"


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
groups = st.recursive(
    st.dictionaries(names, values, min_size=1, max_size=3),
    lambda inner: st.dictionaries(names, values | inner, min_size=1, max_size=3),
    max_leaves=8,
)


def pairs(group: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The `name=value` pairs of nested variables."""
    for name, value in group.items():
        if isinstance(value, dict):
            yield from pairs(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={'@' if value.startswith('@') else ''}{value}"


@given(groups)
def test_any_variables_can_be_given(group: dict[str, Any]) -> None:
    """Whatever the names and values, the pairs come back as the nested variables."""
    assert parse_variables(tuple(pairs(group))) == group


def test_history_begins_a_conversation(typed: Typed, here: Path) -> None:
    """S1.2: `--history` brings earlier messages; a conversation that has its own refuses more."""
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (here / "h.json").write_text(json.dumps(earlier))
    done = typed("run", "quickstart", "1+1", "--history", "h.json", "--conversation", "c")
    assert done.code == 0
    said = records(typed, "c")[1]["event"]["history"]
    assert [message["content"] for message in said] == ["a", "b"]
    again = typed("run", "quickstart", "1+1", "--history", "h.json", "--conversation", "c")
    assert again.code == 2
    assert "has a history of its own" in again.err
    assert len(records(typed, "c")) == 6


@pytest.mark.parametrize(
    ("replies", "code", "state"),
    [
        ("[fine]", 0, "finished"),
        ("[{finish_reason: content_filter}]", 1, "error"),
        (f"[{', '.join([AGAIN] * 6)}]", 4, "max_iterations"),
    ],
)
def test_exit_codes_of_a_turn(
    typed: Typed, here: Path, replies: str, code: int, state: str
) -> None:
    """S1.8, S1.14, S1.15: 0 for an answer, 1 for a turn that ended in error, 4 for a limit."""
    (here / "agent.yaml").write_text(SPEC % replies)
    done = typed("run", "agent.yaml", "hi", "--var", "who.name=Ada", "--json")
    assert (done.code, json.loads(done.out)["state"]) == (code, state)


def test_warnings_go_to_stderr(typed: Typed, here: Path) -> None:
    """A variable that is missing is a warning on stderr; `--quiet` keeps it to the log."""
    (here / "agent.yaml").write_text(SPEC % "[fine]")
    done = typed("run", "agent.yaml", "hi", "--conversation", "c")
    assert done.out == "fine\n"
    assert done.err.startswith("warning: ")
    assert "who.name" in done.err
    quiet = typed("run", "agent.yaml", "hi", "--quiet")
    assert (quiet.out, quiet.err) == ("fine\n", "")
    assert "warning: " in typed("show", "c").out


def test_a_failed_turn_says_why_and_where(typed: Typed, here: Path) -> None:
    """A turn that ends in error names the failure on stderr and the command that shows every step."""
    (here / "agent.yaml").write_text(
        "llms: {a: {provider: ollama, model: m, base_url: 'http://127.0.0.1:1'}}\n"
        "responses: [{llm: a}]\n"
    )
    done = typed("--log", "my log.db", "run", "agent.yaml", "hi", "--conversation", "c")
    assert done.code == 1
    assert "state 'error'; connection: " in done.err
    assert "Traceback" not in done.err
    command = done.err.rpartition("every step: ")[2].strip()
    assert command == "toolchart show c --log 'my log.db'"
    assert typed(*shlex.split(command)[1:]).code == 0


def test_a_fault_of_a_provider_is_one_line(
    typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in an adapter ends the turn with its name and words, and no traceback."""
    from toolchart.providers.scripted.provider import ScriptedProvider

    async def broken(self: Any, request: Any) -> Any:
        raise KeyError("gone")

    monkeypatch.setattr(ScriptedProvider, "complete", broken)
    (here / "agent.yaml").write_text(SPEC % "[fine]")
    done = typed("run", "agent.yaml", "hi")
    assert done.code == 1
    assert "KeyError: 'gone'" in done.err
    assert "Traceback" not in done.err


def test_verbose_tells_every_step(typed: Typed) -> None:
    """S1.7, S1.9: `--verbose` shows states, iterations, offered tools, calls and results on stderr."""
    long = " + ".join("1234567" for _ in range(40))
    done = typed("run", "quickstart", long, "--verbose")
    for text in ("iteration 0", "iteration 1", "tools: calculator", "executing", "finished"):
        assert text in done.err
    assert long in done.err, "nothing is cut"
    assert done.out.strip().endswith(f"= {1234567 * 40}")


def test_quiet_and_verbose_exclude_each_other(typed: Typed) -> None:
    """One cannot have both."""
    done = typed("run", "quickstart", "x", "-q", "-v")
    assert (done.code, "exclude each other" in done.err) == (2, True)


# -- decisions ---------------------------------------------------------------------------------------


def test_a_waiting_call_names_the_command_that_decides(typed: Typed) -> None:
    """S5.3: a turn that waits for a person exits with 1 and prints the command, which works."""
    words = ("run", "careful", "delete a.txt", "--conversation", "my talk", "--log", "x.db")
    done = typed(*words)
    assert (done.code, done.out) == (1, "")
    assert "waiting for a decision: delete_file" in done.err
    command = shlex.split(done.err.splitlines()[1].partition("(")[0])
    decided = typed(*command[1:], "--deny", "--reason", "not on a Friday")
    assert decided.code == 0
    assert "not on a Friday" in decided.out


def test_only_a_waiting_call_can_be_decided(typed: Typed) -> None:
    """A decision for another call is refused by name, and nothing is written."""
    typed("run", "careful", "delete a.txt", "--conversation", "c")
    before = typed("show", "c", "--json").out
    near = typed("approve", "c", "call_1_0_1")
    assert near.code == 2
    assert "did you mean 'call_1_0_0'" in near.err
    assert typed("show", "c", "--json").out == before
    typed("approve", "c", "call_1_0_0", "--deny")
    late = typed("approve", "c", "call_1_0_0")
    assert late.code == 2
    assert "no call waits" in late.err


# -- Ctrl-C ------------------------------------------------------------------------------------------


@pytest.fixture
def silent_host() -> Iterator[str]:
    """The address of a model host that never answers."""
    done = threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            done.wait(30)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    done.set()
    server.shutdown()
    server.server_close()


def cancelled_run(here: Path, agent: str) -> tuple[int, str, str]:
    """Ctrl-C in the middle of a model call: exit code, screen, the command to go on with."""
    (here / "agent.yaml").write_text(agent)
    words = ["run", "agent.yaml", "hi", "--conversation", "c"]
    code, screen = on_terminal(words, here, interrupt_on=b"prompting")
    command = screen.rpartition("go on:")[2].split("\r\n")[0].strip()
    return code, screen, command


def test_ctrl_c_cancels_the_turn(typed: Typed, here: Path, silent_host: str) -> None:
    """Ctrl-C exits with 3 and says where to look and how to go on; the log verifies and replays."""
    code, screen, command = cancelled_run(
        here,
        f"llms: {{a: {{provider: ollama, model: m, base_url: '{silent_host}'}}}}\n"
        "responses: [{llm: a}]\n",
    )
    assert code == 3
    assert "cancelled; conversation c" in screen
    assert "Traceback" not in screen
    (row,) = typed("runs", "--json").out.splitlines()
    assert json.loads(row)["state"] == "error"
    assert (typed("verify").code, typed("replay", "c").code) == (0, 0)
    assert command == "toolchart run agent.yaml --conversation c"
    again = typed("run", "quickstart", *shlex.split(command)[3:], "1+1")
    assert again.out == "1+1 = 2\n"


def test_ctrl_c_where_the_chart_has_no_row_for_it(
    typed: Typed, here: Path, silent_host: str
) -> None:
    """A chart that takes no `cancelled` leaves the turn open, and the way on is `resume`."""
    code, _, command = cancelled_run(
        here,
        f"llms: {{a: {{provider: ollama, model: m, base_url: '{silent_host}'}}}}\n"
        "responses: [{llm: a}]\n"
        "chart:\n"
        "  name: bare\n"
        "  states:\n"
        "    prompting:\n"
        "      initial: true\n"
        "      enter: call_model\n"
        "      transitions: [{event: replied, target: done}, {event: failed, target: done}]\n"
        "    done: {final: true, enter: answer}\n",
    )
    assert (code, command) == (3, "toolchart resume c")
    assert typed("verify").code == 0
