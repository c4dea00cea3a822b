"""Batches answer each input once, and never with the answer to another input or of another agent.

A table of situations, for each way in which inputs come and for `run_once` in Python. The model host is a
server on loopback that counts what it is asked.
"""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_host import BatchHost, answer_text
from killed_batch import start_batch
from ticket_desk import Desk, open_desk

from toolchart import Engine, ToolchartError

RunCli = Callable[..., Any]

Rows = dict[str, str]
"""Messages by key."""

Answers = dict[str, str]
"""By key: the answer, or the first line of the error."""

Answer = Callable[..., tuple[Answers, bool]]
"""Has rows answered (`again` as a flag): the answers, and whether all is well."""


@pytest.fixture
def desk(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """The folder of an agent, and its model host."""
    monkeypatch.syspath_prepend(str(work_dir))
    sys.modules.pop("ticket_tools", None)
    with open_desk(work_dir) as opened:
        yield opened
    sys.modules.pop("ticket_tools", None)


def write_jsonl(rows: Rows) -> str:
    """JSON Lines, with the byte order mark and the line ends of Windows."""
    return "\ufeff" + "".join(
        json.dumps({"key": key, "message": text}) + "\r\n" for key, text in rows.items()
    )


def write_csv(rows: Rows) -> str:
    """A CSV file."""
    file = io.StringIO()
    csv.writer(file).writerows([("id", "question"), *rows.items()])
    return file.getvalue()


def read_lines(path: Path) -> dict[str, dict[str, Any]]:
    """The lines of a results file by key; it has one for each."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    results = {line["key"]: line for line in lines}
    assert len(results) == len(lines)
    return results


def open_command(run_cli: RunCli, desk: Desk, kind: str) -> Answer:
    """Answers by `toolchart batch` over `tonight.jsonl`, `tonight.csv`, or standard input."""

    def answer(rows: Rows, *, again: bool = False) -> tuple[Answers, bool]:
        text, name = (write_csv if kind == "csv" else write_jsonl)(rows), "-"
        if kind != "stdin":
            name = f"tonight.{kind}"
            (desk.folder / name).write_bytes(text.encode())
        words = ["batch", "agent.yaml", name, "--name", "tonight", "-o", "results.jsonl", "--log", "log.db"]
        words += ["--json", *(["--again"] if again else [])]
        done = run_cli(*words, stdin=text.encode())
        report, lines = json.loads(done.out), read_lines(desk.folder / "results.jsonl")
        answers = {key: _read_answer(lines[key]) for key in rows}
        is_well = all(lines[key]["ok"] for key in rows)
        failed = list_failed(lines, rows)
        assert (done.code, report["failed"], report["left"]) == (0 if is_well else 1, len(failed), 0)
        assert report["changed"] == sum("another" in text for text in answers.values())
        assert all(f'"{key}": ' in done.out for key in failed)
        return answers, is_well

    return answer


def list_failed(lines: dict[str, dict[str, Any]], rows: Rows) -> list[str]:
    """The keys of the inputs that failed."""
    return [key for key in rows if not lines[key]["ok"] and not lines[key].get("is_waiting")]


def _read_answer(line: dict[str, Any]) -> str:
    text = line["content"] if line["ok"] or line.get("is_waiting") else line["error"]["message"]
    return str(text).partition("\n")[0]


def open_program(run_cli: RunCli, desk: Desk, kind: str) -> Answer:
    """Answers by `Engine.run_once`."""

    def answer(rows: Rows, *, again: bool = False) -> tuple[Answers, bool]:
        answers = {}
        is_well = True
        with Engine("agent.yaml", log="log.db") as engine:
            for key, message in rows.items():
                try:
                    result = engine.run_once(message, conversation=f"tonight:{key}", again=again)
                    answers[key] = result.content if result.ok else str(result.failure)
                    is_well &= result.ok
                except ToolchartError as error:
                    answers[key], is_well = str(error).partition("\n")[0], False
        return answers, is_well

    return answer


DOORS = {"jsonl": open_command, "csv": open_command, "stdin": open_command, "run_once": open_program}


@pytest.fixture(params=DOORS)
def answer(request: pytest.FixtureRequest, run_cli: RunCli, desk: Desk) -> Answer:
    """Has rows answered, through each door."""
    return DOORS[request.param](run_cli, desk, request.param)


def edit_agent(desk: Desk, before: str, now: str) -> None:
    """Change the agent."""
    text = desk.agent.read_text("utf-8")
    assert before in text
    desk.agent.write_text(text.replace(before, now), "utf-8")


def remove_results(desk: Desk) -> None:
    """Delete the file of results."""
    (desk.folder / "results.jsonl").unlink(missing_ok=True)


ROWS = {"a": "Monday", "b": "same"}
DONE = {"a": "done: Monday", "b": "done: same"}


@pytest.mark.parametrize(
    "change",
    [
        lambda desk: None,
        remove_results,
        lambda desk: edit_agent(desk, "desk", "host"),
        lambda desk: edit_agent(desk, "/v1", "/v1/"),
        lambda desk: edit_agent(desk, "model: m,", "model: m, retries: 1, timeout_s: 9,"),
    ],
    ids=["nothing", "results deleted", "name of the host", "address", "limits"],
)
def test_the_same_is_read(desk: Desk, answer: Answer, change: Callable[[Desk], None]) -> None:
    """The same inputs of the same agent are read again, also where the results were deleted or the host is
    reached in another way: nothing is asked."""
    assert answer(ROWS) == (DONE, True)
    change(desk)
    for again in (False, True):
        assert answer({"b": ROWS["b"], "a": ROWS["a"]}, again=again) == (DONE, True)
    assert desk.requests == {"Monday": 1, "same": 1}


@pytest.mark.parametrize("change", [lambda desk: None, remove_results], ids=["results kept", "deleted"])
def test_another_message_under_a_key_is_an_error(
    desk: Desk, answer: Answer, change: Callable[[Desk], None]
) -> None:
    """The nightly file of the same name with another message under a known key: the error names the key and
    both messages, and nothing is asked for it. `again` answers it, once."""
    assert answer(ROWS) == (DONE, True)
    change(desk)
    rows = {"a": "Tuesday", "b": "same", "c": "new"}
    answers, is_well = answer(rows)
    assert (answers["b"], answers["c"], is_well) == ("done: same", "done: new", False)
    assert "a'" in answers["a"]
    assert "another message: 'Monday' then, 'Tuesday' now" in answers["a"]
    assert desk.requests == {"Monday": 1, "same": 1, "new": 1}
    for again in (True, True, False):
        assert answer(rows, again=again)[0]["a"] == "done: Tuesday"
    assert desk.requests == {"Monday": 1, "same": 1, "new": 1, "Tuesday": 1}
    assert "another message" in answer({"a": "Monday"})[0]["a"]


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        ("Pay tickets.", "Pay nothing.", "another prompt: 'Pay tickets.' then, 'Pay nothing.' now"),
        ("model: m", "model: m2", "another model: 'm' then, 'm2' now"),
        ("Refund a", "Give back a", "another tools.refund.description: 'Refund a ticket.' then"),
        ("required: [ticket]", "required: []", "another tools.pay.parameters.required"),
        (
            "{llm: desk,",
            "{llm: desk, temperature: 0.5,",
            "another options.temperature: nothing then, 0.5 now",
        ),
        ("chart: tool_loop", "chart: full", "another chart"),
    ],
    ids=["prompt", "model", "description", "parameters", "option", "chart"],
)
def test_a_changed_agent_is_named(desk: Desk, answer: Answer, before: str, now: str, difference: str) -> None:
    """An agent that has changed is named with what changed; nothing is asked, and the old answer is not
    given. The agent as it was reads its answers, and `again` has all answered anew, once."""
    answer(ROWS)
    edit_agent(desk, before, now)
    answers, is_well = answer(ROWS)
    assert not is_well
    assert all(difference in text for text in answers.values()), answers
    edit_agent(desk, now, before)
    assert answer(ROWS) == (DONE, True)
    assert desk.requests == {"Monday": 1, "same": 1}
    edit_agent(desk, before, now)
    for again in (True, True, False):
        assert answer(ROWS, again=again) == (DONE, True)
    assert desk.requests == {"Monday": 2, "same": 2}


def test_failures_are_tried_again(desk: Desk, answer: Answer) -> None:
    """What failed in the first run is tried again by the same command, from the step that failed; what was
    answered is read."""
    rows = {"a": "Monday", "b": "stumble", "c": "pay stumble T1"}
    answers, is_well = answer(rows)
    assert (answers["a"], is_well) == ("done: Monday", False)
    assert "overloaded" in answers["b"]
    assert "overloaded" in answers["c"]
    for _ in range(2):
        assert answer(rows) == ({key: f"done: {text}" for key, text in rows.items()}, True)
    assert desk.requests == {"Monday": 1, "stumble": 2, "pay stumble T1": 3}
    assert desk.payments == ["T1"]


def test_a_failure_of_a_changed_agent(desk: Desk, answer: Answer) -> None:
    """Where nothing was done before a failure, the agent as it is now begins anew. Where a tool ran, that is
    for a person to say."""
    rows = {"b": "stumble", "c": "pay stumble T1"}
    answer(rows)
    edit_agent(desk, "model: m", "model: m2")
    answers, _ = answer(rows)
    assert answers["b"] == "done: stumble"
    assert "another model" in answers["c"]
    assert desk.payments == ["T1"]
    assert answer(rows, again=True)[0]["c"] == "done: pay stumble T1"
    assert desk.payments == ["T1", "T1"]
    assert desk.requests == {"stumble": 2, "pay stumble T1": 4}


def test_another_message_after_a_failure_is_an_error(desk: Desk, answer: Answer) -> None:
    """A key that failed has its message still."""
    answer({"a": "refuse"})
    assert "another message" in answer({"a": "Monday"})[0]["a"]
    assert answer({"a": "Monday"}, again=True) == ({"a": "done: Monday"}, True)


def test_a_turn_that_waits_is_cancelled_by_another_one(desk: Desk, answer: Answer) -> None:
    """A turn that waits for a person is read as it waits. Where its message is another one now, `again`
    cancels it, and nobody can decide it any more."""
    with Engine("agent.yaml", log="log.db") as engine:
        assert not engine.run_once("refund T1", conversation="tonight:a").is_over
        assert answer({"a": "refund T1"}, again=True)[1] is False
        assert "another message" in answer({"a": "Monday"})[0]["a"]
        assert answer({"a": "Monday"}, again=True) == ({"a": "done: Monday"}, True)
        error = engine.conversation("tonight:a").read_turn().error
        assert error is not None
        assert error.kind == "cancelled"
    assert desk.payments == []


def test_lines_move(desk: Desk, run_cli: RunCli) -> None:
    """Inputs without keys are known by their content: inserting and reordering lines asks only what is new.
    Two lines with the same content are two inputs."""
    for text, report in (("x\nx\ny\n", (3, 0)), ("y\nnew\nx\nx\n", (4, 3)), ("x\n", (1, 1))):
        (desk.folder / "q.txt").write_text(text, "utf-8")
        done = json.loads(run_cli("batch", "agent.yaml", "q.txt", "--json").out)
        assert (done["answered"], done["earlier"]) == report
    assert desk.requests == {"x": 2, "y": 1, "new": 1}


def test_a_log_that_was_pruned(desk: Desk, run_cli: RunCli) -> None:
    """Where the log has a conversation no more, the results file still has the answer to this very input;
    one to another input is an error. Without both the input is asked."""
    words = ("batch", "agent.yaml", "tonight.jsonl", "--json", "--log", "log.db")
    file, results = desk.folder / "tonight.jsonl", desk.folder / "tonight.results.jsonl"

    def run(text: str, *options: str) -> tuple[int, dict[str, Any]]:
        file.write_text(json.dumps({"key": "a", "message": text}), "utf-8")
        return run_cli(*words, *options).code, read_lines(results)["a"]

    _, line = run("Monday")
    assert run_cli("prune", "--keep", "0", "--log", "log.db").code == 0
    assert run("Monday") == (0, line)
    code, changed = run("Tuesday")
    assert (code, changed["error"]["kind"]) == (1, "TurnChanged")
    assert "key 'a'" in changed["error"]["message"]
    assert desk.requests == {"Monday": 1}
    assert run("Tuesday", "--again")[1]["content"] == "done: Tuesday"
    assert run_cli("prune", "--keep", "0", "--log", "log.db").code == 0
    results.unlink()
    assert run("Monday")[1]["content"] == "done: Monday"
    assert desk.requests == {"Monday": 2, "Tuesday": 1}


def wait_for_request(desk: Desk, process: subprocess.Popen[bytes]) -> None:
    """Wait until the host has a request that stays."""
    while not desk.stays.wait(0.05):
        assert process.poll() is None, process.communicate()


def test_a_kill_in_the_middle(desk: Desk) -> None:
    """A process that is killed while its model answers: the same command asks that once more, and reads what
    was answered. With another message under that key it is an error, also for the turn that is open."""
    rows = {"a": "Monday", "b": "stay"}
    (desk.folder / "inputs.jsonl").write_text(write_jsonl(rows), "utf-8")
    process = start_batch(desk.folder, "-j", "1")
    wait_for_request(desk, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    desk.let_go.set()
    (desk.folder / "inputs.jsonl").write_text(write_jsonl({**rows, "b": "go"}), "utf-8")
    report = json.loads(start_batch(desk.folder).communicate()[0])
    assert (report["answered"], report["changed"], report["left"]) == (1, 1, 0)
    (desk.folder / "inputs.jsonl").write_text(write_jsonl(rows), "utf-8")
    report = json.loads(start_batch(desk.folder).communicate()[0])
    assert (report["answered"], report["earlier"]) == (2, 1)
    assert desk.requests == {"Monday": 1, "stay": 2}
    assert read_lines(desk.folder / "results.jsonl")["b"]["content"] == "done: stay"


def test_two_processes_at_once(desk: Desk) -> None:
    """Two batches over the same inputs ask each once: the second one waits for what the first one runs."""
    (desk.folder / "inputs.jsonl").write_text(write_jsonl({"a": "Monday", "b": "stay"}), "utf-8")
    first = start_batch(desk.folder)
    wait_for_request(desk, first)
    second = start_batch(desk.folder, "--output", "second.jsonl")
    assert second.stderr is not None
    assert b"waited for" in second.stderr.readline()
    desk.let_go.set()
    reports = [json.loads(process.communicate()[0]) for process in (first, second)]
    assert [(report["answered"], report["failed"]) for report in reports] == [(2, 0)] * 2
    assert desk.requests == {"Monday": 1, "stay": 1}
    lines = [read_lines(desk.folder / name)["b"]["content"] for name in ("results.jsonl", "second.jsonl")]
    assert lines == ["done: stay"] * 2


def test_batch_jobs_are_no_other_agent(run_cli: RunCli, work_dir: Path) -> None:
    """What `--economy` has answered is read without it; another message is an error with it too."""
    with BatchHost(answer_text("4")) as host:
        agent = (
            f"llms: {{m: {{provider: openai, model: m, base_url: '{host.url}/v1', api_key: k, batches: true, "
            "batch_gather_s: 0.01, batch_poll_s: 0.01}}\nresponses: [{llm: m, prompt: p}]\n"
        )
        (work_dir / "agent.yaml").write_text(agent, "utf-8")
        for text, options, code in (("2+2", ["--economy"], 0), ("2+2", [], 0), ("2+3", ["--economy"], 1)):
            (work_dir / "q.jsonl").write_text(json.dumps({"key": "a", "message": text}), "utf-8")
            assert run_cli("batch", "agent.yaml", "q.jsonl", "-q", *options).code == code
        assert host.answered == 1
