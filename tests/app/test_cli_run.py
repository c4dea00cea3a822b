"""`toolchart run`: messages, variables, results, exit codes and how to continue."""

from __future__ import annotations

import http.server
import json
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run_on_terminal
from hypothesis import given
from hypothesis import strategies as st
from web import WebAnswer, serve_web

from toolchart.app.cli.parameters.options import parse_variables

RunCli = Callable[..., Any]

SPEC = """\
llms:
  a: {provider: scripted, model: m, replies: %s}
tools: {registry: [{name: echo}]}
responses:
  - {llm: a, prompt: "{{who.name}}", tools: {enabled: true}}
"""

AGAIN = "{content: wait, tool_calls: [{name: echo, arguments: {text: x%d}}]}"


def read_records(run_cli: RunCli, conversation: str) -> list[dict[str, Any]]:
    """Return the records of a conversation."""
    return [json.loads(line) for line in run_cli("show", conversation, "--json").out.splitlines()]


def test_only_the_answer_is_printed(run_cli: RunCli) -> None:
    """In a pipe, stdout has only the answer and stderr is empty."""
    result = run_cli("run", "quickstart", "2+3")
    assert (result.code, result.out, result.err) == (0, "2+3 = 5\n", "")


def test_the_result_object(run_cli: RunCli) -> None:
    """S1.4, S1.13: `--json` prints the result object with the calls in order."""
    result = json.loads(run_cli("run", "quickstart", "2+3", "--json").out)
    assert {key: result[key] for key in ("content", "service", "model", "state")} == {
        "content": "2+3 = 5",
        "service": "rehearsal",
        "model": "rehearsal",
        "state": "finished",
    }
    assert result["iterations"] == 1
    assert result["finish_reason"] == "stop"
    assert "error" not in result
    (call,) = result["tool_calls"]
    assert call["tool"] == "calculator"
    assert call["result"]["result"] == 5
    assert call["execution_time_ms"] >= 0
    assert read_records(run_cli, result["conversation"])


@pytest.mark.parametrize("words", [["-"], []])
def test_messages_from_standard_input(run_cli: RunCli, words: list[str]) -> None:
    """The message may come from a pipe, with or without `-`, with or without a byte order mark."""
    assert run_cli("run", "quickstart", *words, stdin=b"3+4\n").out == "3+4 = 7\n"
    assert run_cli("run", "quickstart", *words, stdin=b"\xef\xbb\xbf3+4").out == "3+4 = 7\n"


@pytest.mark.parametrize(
    ("stdin", "message"),
    [(b"", "Standard input is empty"), (b" \n", "is empty"), (b"\xff", "not UTF-8 text")],
)
def test_unusable_standard_input(run_cli: RunCli, stdin: bytes, message: str) -> None:
    """An empty or undecodable message is wrong usage, not a turn."""
    result = run_cli("run", "quickstart", stdin=stdin)
    assert result.code == 2
    assert message in result.err
    assert run_cli("runs").code == 2, "there is no log"


def test_variables_reach_the_prompt(run_cli: RunCli, work_dir: Path) -> None:
    """S1.1: `--var` fills the prompt, nested names and files too."""
    (work_dir / "agent.yaml").write_text(
        "llms: {a: {provider: scripted, model: m, replies: [fine]}}\n"
        "responses: [{llm: a, prompt: '{{who.name}} {{notes}} {{handle}}'}]\n"
    )
    (work_dir / "notes.txt").write_text("from a file")
    run_cli(
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
    assert read_records(run_cli, "c")[1]["event"]["system"] == "Ada from a file @ada"


def test_variables_choose_the_handler(run_cli: RunCli, work_dir: Path) -> None:
    """`--var` decides which handler matches; `--handler`, `--llm` and `--model` override it."""
    (work_dir / "agent.yaml").write_text(
        "llms:\n"
        "  a: {provider: scripted, model: one, replies: [from a]}\n"
        "  b: {provider: scripted, model: two, replies: [from b]}\n"
        "responses:\n"
        "  - {name: weather, match: {intent: weather}, llm: a}\n"
        "  - {name: rest, llm: b}\n"
    )
    run = ("run", "agent.yaml", "hi")
    assert run_cli(*run, "--var", "intent=weather").out == "from a\n"
    assert run_cli(*run, "--var", "intent=other").out == "from b\n"
    assert run_cli(*run, "--handler", "weather").out == "from a\n"
    assert run_cli(*run, "--llm", "a").out == "from a\n"
    assert json.loads(run_cli(*run, "--model", "three", "--json").out)["model"] == "three"


names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
groups = st.recursive(
    st.dictionaries(names, values, min_size=1, max_size=3),
    lambda inner: st.dictionaries(names, values | inner, min_size=1, max_size=3),
    max_leaves=8,
)


def format_pairs(group: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the `name=value` pairs of nested variables."""
    for name, value in group.items():
        if isinstance(value, dict):
            yield from format_pairs(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={'@' if value.startswith('@') else ''}{value}"


@given(groups)
def test_any_variables_can_be_given(group: dict[str, Any]) -> None:
    """Any nested variables survive formatting as pairs and parsing."""
    assert parse_variables(tuple(format_pairs(group))) == group


def test_history_starts_a_conversation(run_cli: RunCli, work_dir: Path) -> None:
    """S1.2: `--history` starts a conversation with earlier messages; one that exists refuses it."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (work_dir / "h.json").write_text(json.dumps(messages))
    result = run_cli("run", "quickstart", "1+1", "--history", "h.json", "--conversation", "c")
    assert result.code == 0
    history = read_records(run_cli, "c")[1]["event"]["history"]
    assert [message["content"] for message in history] == ["a", "b"]
    again = run_cli("run", "quickstart", "1+1", "--history", "h.json", "--conversation", "c")
    assert again.code == 2
    assert "has messages already, and takes no history" in again.err
    assert len(read_records(run_cli, "c")) == 6


@pytest.mark.parametrize(
    ("replies", "code", "state"),
    [
        ("[fine]", 0, "finished"),
        ("[{finish_reason: content_filter}]", 1, "error"),
        (f"[{', '.join(AGAIN % n for n in range(6))}]", 4, "max_iterations"),
    ],
)
def test_exit_codes_of_a_turn(run_cli: RunCli, work_dir: Path, replies: str, code: int, state: str) -> None:
    """S1.8, S1.14, S1.15: exit 0 for an answer, 1 for a turn that ended in error, 4 for a limit."""
    (work_dir / "agent.yaml").write_text(SPEC % replies)
    result = run_cli("run", "agent.yaml", "hi", "--var", "who.name=Ada", "--json")
    assert (result.code, json.loads(result.out)["state"]) == (code, state)


def test_warnings_go_to_stderr(run_cli: RunCli, work_dir: Path) -> None:
    """A missing variable is a warning on stderr; with `--quiet` it is only in the log."""
    (work_dir / "agent.yaml").write_text(SPEC % "[fine]")
    result = run_cli("run", "agent.yaml", "hi", "--conversation", "c")
    assert result.out == "fine\n"
    assert result.err.startswith("warning: ")
    assert "who.name" in result.err
    quiet = run_cli("run", "agent.yaml", "hi", "--quiet")
    assert (quiet.out, quiet.err) == ("fine\n", "")
    assert "warning: " in run_cli("show", "c").out


def test_a_failed_turn_prints_its_cause(run_cli: RunCli, work_dir: Path) -> None:
    """A turn that ends in error prints the failure and the command that shows every step."""
    (work_dir / "agent.yaml").write_text(
        "llms: {a: {provider: ollama, model: m, base_url: 'http://127.0.0.1:1'}}\nresponses: [{llm: a}]\n"
    )
    result = run_cli("--log", "my log.db", "run", "agent.yaml", "hi", "--conversation", "c")
    assert result.code == 1
    assert "state 'error'; connection: " in result.err
    assert "Traceback" not in result.err
    command = result.err.rpartition("every step: ")[2].strip()
    assert command == "toolchart show c --log 'my log.db'"
    assert run_cli(*shlex.split(command)[1:]).code == 0


def test_a_failed_turn_has_an_error_object(run_cli: RunCli, work_dir: Path) -> None:
    """The result's `error` names kind, message, HTTP status and `llms` entry; stderr shows them."""

    def refuse(request: dict[str, Any]) -> WebAnswer:
        """Answer as a host that does not know the key."""
        return 401, {"content-type": "application/json"}, b'{"error": {"message": "who are you?"}}'

    with serve_web(refuse) as server:
        (work_dir / "agent.yaml").write_text(
            f"llms: {{front: {{provider: ollama, model: m, base_url: '{server.url}'}}}}\n"
            "responses: [{llm: front}]\n"
        )
        result = run_cli("run", "agent.yaml", "hi", "--json")
    error = json.loads(result.out)["error"]
    assert result.code == 1
    assert (error["kind"], error["status"], error["host"]) == ("auth", 401, "front")
    assert f"auth: {error['message']} (HTTP 401, llms.front)" in result.err


def test_an_exception_of_an_adapter_is_one_line(
    run_cli: RunCli, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in an adapter ends the turn with its class and message, without a traceback."""
    from toolchart.providers.scripted.provider import ScriptedProvider

    async def fail(self: Any, request: Any) -> Any:
        raise KeyError("gone")

    monkeypatch.setattr(ScriptedProvider, "complete", fail)
    (work_dir / "agent.yaml").write_text(SPEC % "[fine]")
    result = run_cli("run", "agent.yaml", "hi")
    assert result.code == 1
    assert "KeyError: 'gone'" in result.err
    assert "Traceback" not in result.err


def test_verbose_prints_every_step(run_cli: RunCli) -> None:
    """S1.7, S1.9: `--verbose` prints states, iterations, offered tools, calls and results on stderr."""
    long = " + ".join("1234567" for _ in range(40))
    result = run_cli("run", "quickstart", long, "--verbose")
    for text in ("iteration 0", "iteration 1", "tools: calculator", "executing", "finished"):
        assert text in result.err
    assert long in result.err, "nothing is cut"
    assert result.out.strip().endswith(f"= {1234567 * 40}")


def test_quiet_and_verbose_exclude_each_other(run_cli: RunCli) -> None:
    """`--quiet` and `--verbose` together are wrong usage."""
    result = run_cli("run", "quickstart", "x", "-q", "-v")
    assert (result.code, "cannot be used together" in result.err) == (2, True)


# -- decisions ---------------------------------------------------------------------------------------


def test_a_waiting_call_names_the_command_that_decides(run_cli: RunCli) -> None:
    """S5.3: a turn that waits for approval exits with 1 and prints the `approve` command, which works."""
    words = ("run", "careful", "delete a.txt", "--conversation", "my talk", "--log", "x.db")
    result = run_cli(*words)
    assert (result.code, result.out) == (1, "")
    assert "waiting for approval: delete_file" in result.err
    assert "[y]es" not in result.err, "S5.4: without a terminal nothing is asked"
    command = shlex.split(result.err.splitlines()[1].partition("(")[0])
    decision = run_cli(*command[1:], "--deny", "--reason", "not on a Friday")
    assert decision.code == 0
    assert "not on a Friday" in decision.out


def test_only_a_waiting_call_can_be_decided(run_cli: RunCli) -> None:
    """A decision for a call that does not wait is refused, and nothing is written."""
    run_cli("run", "careful", "delete a.txt", "--conversation", "c")
    before = run_cli("show", "c", "--json").out
    near = run_cli("approve", "c", "call_1_0_1")
    assert near.code == 2
    assert "did you mean 'call_1_0_0'" in near.err
    assert run_cli("show", "c", "--json").out == before
    run_cli("approve", "c", "call_1_0_0", "--deny")
    late = run_cli("approve", "c", "call_1_0_0")
    assert late.code == 2
    assert "call 'call_1_0_0' is decided already: rejected" in late.err
    assert "no call waits in this conversation; what its turn" in run_cli("approve", "c", "call_1_0_9").err


# -- Ctrl-C ------------------------------------------------------------------------------------------


@pytest.fixture
def silent_host() -> Iterator[str]:
    """The address of a model host that never answers."""
    stop = threading.Event()

    class Silent(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stop.wait(600)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    stop.set()
    server.shutdown()
    server.server_close()


def cancel_run(work_dir: Path, agent: str) -> tuple[int, str, str]:
    """Press Ctrl-C during a model call; return exit code, screen and the printed command to continue."""
    (work_dir / "agent.yaml").write_text(agent)
    words = ["run", "agent.yaml", "hi", "--conversation", "c"]
    code, screen = run_on_terminal(words, work_dir, interrupt_on=b"prompting")
    command = screen.rpartition("continue:")[2].split("\r\n")[0].strip()
    return code, screen, command


def test_ctrl_c_cancels_the_turn(run_cli: RunCli, work_dir: Path, silent_host: str) -> None:
    """Ctrl-C exits with 3 and prints how to show and continue the turn; the log verifies and replays."""
    code, screen, command = cancel_run(
        work_dir,
        f"llms: {{a: {{provider: ollama, model: m, base_url: '{silent_host}'}}}}\nresponses: [{{llm: a}}]\n",
    )
    assert code == 3
    assert "cancelled; the log of conversation c" in screen
    assert "Traceback" not in screen
    (row,) = run_cli("runs", "--json").out.splitlines()
    assert json.loads(row)["state"] == "error"
    assert (run_cli("verify").code, run_cli("replay", "c").code) == (0, 0)
    assert command == "toolchart run agent.yaml --conversation c"
    again = run_cli("run", "quickstart", *shlex.split(command)[3:], "1+1")
    assert again.out == "1+1 = 2\n"


def test_ctrl_c_if_the_chart_does_not_handle_it(run_cli: RunCli, work_dir: Path, silent_host: str) -> None:
    """If the chart does not handle `cancelled`, the turn stays open and the hint is `resume`."""
    code, _, command = cancel_run(
        work_dir,
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
    assert (code, command) == (3, "toolchart resume c --spec agent.yaml")
    assert run_cli("verify").code == 0
