"""`toolchart batch`: inputs, keys, resuming after a kill, reports and exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import killed_economy
import pytest
from killed_batch import AGENT, kill_and_finish

RunCli = Callable[..., Any]


def read_results(folder: Path, name: str = "r.jsonl") -> list[dict[str, Any]]:
    """The lines of a results file."""
    return [json.loads(line) for line in (folder / name).read_text("utf-8").split("\n")[:-1]]


@pytest.mark.slow
def test_a_killed_batch_answers_each_input_once(tmp_path: Path) -> None:
    """Issue 16: a batch that is killed three times ends with each input answered once, in one turn each;
    `tests/soak/kills.py batch` does it seed by seed."""
    report = kill_and_finish(tmp_path, count=60, kills=3)
    assert (report["answered"], report["failed"], report["left"]) == (60, 0, 0)
    assert report["earlier"] > 0


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_killed_economic_batch_answers_and_pays_each_input_once(provider: str, tmp_path: Path) -> None:
    """20 inputs in batch jobs, of which some expire or are missing in the results, and two kills: each has
    one answer at half the price, is charged once, and replays equal; `tests/soak/kills.py economy` does it
    seed by seed."""
    report = killed_economy.kill_and_finish(tmp_path, provider, count=20, kills=2)
    assert (report["answered"], report["failed"], report["left"]) == (20, 0, 0)
    assert report["kills"] == 2


def test_inputs_are_json_lines_csv_or_texts(run_cli: RunCli, work_dir: Path) -> None:
    """Issue 16: objects with keys and variables, CSV columns as variables, and plain lines on stdin."""
    agent = AGENT.replace("prompt: p", "prompt: 'City: {{city}}'")
    (work_dir / "agent.yaml").write_text(agent, "utf-8")
    (work_dir / "a.jsonl").write_text(
        '{"id": 7, "prompt": "x", "variables": {"city": "Rome"}}\n"y"\n', "utf-8"
    )
    assert run_cli("batch", "agent.yaml", "a.jsonl", "-o", "r.jsonl").code == 0
    results = {result["key"]: result for result in read_results(work_dir)}
    assert results["7"]["content"] == "answer to x"
    assert "City: Rome" in run_cli("export", "a:7").out
    (work_dir / "b.csv").write_text('key,message,city\nk1,"one, two",Oslo\n', "utf-8")
    assert run_cli("batch", "agent.yaml", "b.csv").code == 0
    assert read_results(work_dir, "b.results.jsonl")[0]["content"] == "answer to one, two"
    assert "City: Oslo" in run_cli("export", "b:k1").out
    done = run_cli("batch", "agent.yaml", "-", "-o", "s.jsonl", stdin=b"hello\nhello\n\nbye\n")
    assert done.code == 0
    assert "3 of 3 answered" in done.err
    assert len({result["key"] for result in read_results(work_dir, "s.jsonl")}) == 3


def test_failures_are_counted_and_kept(run_cli: RunCli, work_dir: Path) -> None:
    """Issue 16: an input that fails does not stop the others: exit 1. A second run that fails in the same way
    changes no line."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    rows = b'{"message": "good"}\n{"message": "bad", "handler": "none"}\n'
    words = ("batch", "agent.yaml", "-", "-o", "r.jsonl", "--json")
    done = run_cli(*words, stdin=rows)
    assert done.code == 1
    report = json.loads(done.out)
    assert (report["answered"], report["failed"], report["left"]) == (1, 1, 0)
    before = (work_dir / "r.jsonl").read_bytes()
    again = run_cli(*words, stdin=rows)
    assert again.code == 1
    assert json.loads(again.out)["earlier"] == 2
    assert (work_dir / "r.jsonl").read_bytes() == before


def test_a_cut_line_is_written_again(run_cli: RunCli, work_dir: Path) -> None:
    """A line that a kill cut off is removed, and its result is read from the log without a further turn."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    words = ("batch", "agent.yaml", "-", "-o", "r.jsonl")
    assert run_cli(*words, stdin=b"one\n").code == 0
    whole = (work_dir / "r.jsonl").read_bytes()
    (work_dir / "r.jsonl").write_bytes(whole[:20])
    assert run_cli(*words, stdin=b"one\n").code == 0
    assert (work_dir / "r.jsonl").read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no input"),
        (b'{"message": ""}', ":1: the message is empty"),
        (b'{"key": "a", "message": "x"}\n{"key": "a", "message": "y"}', "stands in line 1 too"),
        (b'{"message": ', "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"PK\x03\x04\x00", "no text"),
        (b'[{"message": "x"}]', "JSON array"),
        (b'{"Message": "x"}', "no message: it has 'Message'"),
        (b'{"message": "x", "key": "a~2"}', "cannot be a key"),
        (b'"a"\n{"message": "a", "message": "b"}', ":2: not JSON: the name 'message' stands twice"),
        (b'{"message": "a", "variables": {"c": 1, "c": 2}}', "the name 'c' stands twice"),
        (
            b'{"message": "a", "city": 1, "variables": {"city": 2}}',
            "'city' stands in `variables` and beside it",
        ),
        (b'"a"\n{"message": "a", "handlr": "short"}', ":2: unknown field 'handlr'"),
        (b'{"message": "a", "varaibles": {}}', "did you mean 'variables'?"),
    ],
)
def test_mistakes_in_inputs_are_wrong_usage(run_cli: RunCli, work_dir: Path, text: bytes, words: str) -> None:
    """Inputs that cannot be used are one message with the line, exit 2, and nothing runs."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    done = run_cli("batch", "agent.yaml", "-", "-o", "r.jsonl", stdin=text)
    assert done.code == 2
    assert words in done.err
    assert not (work_dir / "r.jsonl").exists()


NAMED = "prompt: 'a={{prompt}} b={{question}} c={{city}} d={{town}} e={{keys}}'"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"key": "k", "message": "m", "prompt": "P", "question": "Q"}', "a=P b=Q"),
        ("a.jsonl", '{"key": "k", "message": "m", "city": "X", "variables": {"town": "Y"}}', "c=X d=Y"),
        ("a.jsonl", '{"key": "k", "message": "m", "keys": "K"}', "e=K"),
        ("a.csv", "key,message,prompt,city,,\nk,m,P,X,,\n", "a=P b= c=X"),
        ("a.tsv", "key\tmessage\tcity\nk\tm, n\tX\n", "c=X"),
    ],
)
def test_every_field_of_an_input_arrives(
    run_cli: RunCli, work_dir: Path, name: str, text: str, words: str
) -> None:
    """Fields beside `message` are variables: of objects and tables, beside `variables`, and where they could
    hold the message but another one does."""
    (work_dir / "agent.yaml").write_text(AGENT.replace("prompt: p", NAMED), "utf-8")
    (work_dir / name).write_text(text, "utf-8")
    assert run_cli("batch", "agent.yaml", name).code == 0
    assert words in run_cli("export", "a:k").out


def test_a_column_that_stands_twice_is_named(run_cli: RunCli, work_dir: Path) -> None:
    """The second column would replace the first: exit 2, and nothing runs."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "a.csv").write_text("message,city,city\na,X,Y\n", "utf-8")
    done = run_cli("batch", "agent.yaml", "a.csv")
    assert (done.code, "a.csv:1: the name 'city' stands twice" in done.err) == (2, True)


def test_warnings_of_turns_are_told_and_counted(run_cli: RunCli, work_dir: Path) -> None:
    """A warning that `run` prints is a line of the report, with the number of results that have it."""
    (work_dir / "agent.yaml").write_text(AGENT.replace("prompt: p", "prompt: 'City {{city}}'"), "utf-8")
    rows = b'{"message": "a"}\n{"message": "b"}\n{"message": "c", "city": "X"}\n'
    done = run_cli("batch", "agent.yaml", "-", "-o", "r.jsonl", stdin=rows)
    assert (done.code, "warning of 2 of them: " in done.err, "city" in done.err) == (0, True, True)
    report = json.loads(run_cli("batch", "agent.yaml", "-", "-o", "r.jsonl", "--json", stdin=rows).out)
    assert list(report["warnings"].values()) == [2]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", ["./same.db", "folder/../same.db", "link.db", "hard.db"])
def test_results_never_stand_in_the_log(run_cli: RunCli, work_dir: Path, name: str, exists: bool) -> None:
    """A results file that is the log is refused, whatever its name and path, and no model is asked."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "folder").mkdir()
    (work_dir / "link.db").symlink_to("same.db")
    if exists:
        assert run_cli("run", "agent.yaml", "x", "--log", "same.db").code == 0
        (work_dir / "hard.db").hardlink_to(work_dir / "same.db")
    elif name == "hard.db":
        return
    before = (work_dir / "same.db").read_bytes() if exists else b""
    done = run_cli("batch", "agent.yaml", "-", "-o", name, "--log", "same.db", stdin=b"x\n")
    assert (done.code, "cannot stand in the log" in done.err) == (2, True)
    assert (work_dir / "same.db").exists() is exists
    assert not exists or (work_dir / "same.db").read_bytes() == before


@pytest.mark.parametrize("text", ["city,key\nRome,1\n", "message;key\na;1\n"])
def test_columns_without_a_message_are_named(run_cli: RunCli, work_dir: Path, text: str) -> None:
    """A CSV file without a column of messages is one message that names its columns, exit 2."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "a.csv").write_text(text, "utf-8")
    done = run_cli("batch", "agent.yaml", "a.csv")
    assert done.code == 2
    assert "a.csv:1: no column has the message" in done.err
    assert text.partition("\n")[0].split(",")[0] in done.err


def test_results_never_stand_in_the_inputs(run_cli: RunCli, work_dir: Path) -> None:
    """The file of the inputs, or another file of JSON Lines with keys, is no results file and stays as it is;
    a host that the agent does not have writes nothing into the results."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    for name in ("a.jsonl", "b.jsonl"):
        (work_dir / name).write_text('{"key": "a", "message": "x"}\n', "utf-8")
    for output in ("a.jsonl", "b.jsonl"):
        done = run_cli("batch", "agent.yaml", "a.jsonl", "-o", output)
        assert (done.code, "--output FILE" in done.err) == (2, True)
        assert (work_dir / output).read_text("utf-8") == '{"key": "a", "message": "x"}\n'
    assert run_cli("batch", "agent.yaml", "a.jsonl", "-o", "r.jsonl").code == 0
    before = (work_dir / "r.jsonl").read_bytes()
    done = run_cli("batch", "agent.yaml", "a.jsonl", "-o", "r.jsonl", "--llm", "n")
    assert (done.code, "there is no llm 'n'" in done.err) == (2, True)
    assert (work_dir / "r.jsonl").read_bytes() == before


def test_another_file_is_not_overwritten(run_cli: RunCli, work_dir: Path) -> None:
    """A file that is no results file is left alone, with the option that names another one."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    (work_dir / "notes.txt").write_text("my notes\n", "utf-8")
    done = run_cli("batch", "agent.yaml", "-", "-o", "notes.txt", stdin=b"x\n")
    assert done.code == 2
    assert "--output" in done.err
    assert (work_dir / "notes.txt").read_text("utf-8") == "my notes\n"


HALF = {"message": "a\ud800b", "key": "half"}


def test_a_lone_surrogate_ends_no_batch(run_cli: RunCli, work_dir: Path) -> None:
    """Issue 25: a message, a variable or a handler with half of a surrogate pair is an input like any other,
    and so is its answer; a key with one is the failure of its own row. The others are answered, a second run
    reads the results again, and every command that prints JSON shows the conversation."""
    (work_dir / "agent.yaml").write_text(AGENT, "utf-8")
    rows = [
        HALF,
        {"message": "b", "city": "\udfff", "key": "variable"},
        {"message": "c", "handler": "\ud800", "key": "handler"},
        {"message": "d", "key": "k\ud800"},
        {"message": "line\u2028end", "key": "whole"},
    ]
    lines = [json.dumps(row) for row in rows[:-1]] + [json.dumps(rows[-1], ensure_ascii=False)]
    words = ("batch", "agent.yaml", "-", "-o", "r.jsonl", "--json")
    done = run_cli(*words, stdin="\n".join(lines).encode())
    report = json.loads(done.out)
    assert (done.code, report["answered"], report["failed"], report["left"]) == (1, 3, 2, 0)
    results = {result["key"]: result for result in read_results(work_dir)}
    assert results["half"]["content"] == "answer to a\ud800b"
    assert results["whole"]["content"] == "answer to line\u2028end"
    problems = [result["error"]["message"] for result in results.values() if not result["ok"]]
    assert sum("half of a surrogate pair" in problem for problem in problems) == 1
    assert json.loads(run_cli(*words, stdin="\n".join(lines).encode()).out)["earlier"] == 5
    shown = [
        run_cli("runs", "--json"),
        run_cli("export", "batch:half"),
        run_cli("export", "batch:half", "--format", "calls"),
        run_cli("fork", "batch:half", "--offline", "--at", "1", "--json"),
    ]
    assert [(result.code, result.err) for result in shown] == [(0, "")] * 4
    assert "a\\ud800b" in shown[0].out
    assert "a\\ud800b" in shown[1].out


COUNTING = """chart: tool_loop
llms: {model: {provider: scripted, model: m, replies: [%s]}}
responses:
  - llm: model
    prompt: p
    response_format:
      type: json_schema
      json_schema: {name: x, schema: {type: object, properties: {a: {type: integer}}, required: [a]}}
"""
"""An agent whose handler demands a form, and what its model says."""


def test_answers_that_break_their_form_are_not_answered(run_cli: RunCli, work_dir: Path) -> None:
    """Row 63: a batch counts them as failed, names the error in their lines, and ends with exit 1."""
    (work_dir / "agent.yaml").write_text(COUNTING % """'{"a": "x"}', no JSON""", "utf-8")
    done = run_cli("batch", "agent.yaml", "-", "-o", "r.jsonl", "--json", stdin=b"one\ntwo\n")
    assert done.code == 1
    report = json.loads(done.out)
    assert (report["answered"], report["failed"]) == (0, 2)
    assert {result["error"]["kind"] for result in read_results(work_dir)} == {"bad_output"}


def test_run_ends_with_exit_1_where_the_answer_breaks_its_form(run_cli: RunCli, work_dir: Path) -> None:
    """Row 63: `run` names `bad_output` and what is wrong, with the exit code of a failed model call; an
    answer that fits is data."""
    (work_dir / "agent.yaml").write_text(COUNTING % "no json here", "utf-8")
    done = run_cli("run", "agent.yaml", "go", "--json")
    result = json.loads(done.out)
    assert (done.code, result["ok"], result["error"]["kind"]) == (1, False, "bad_output")
    (work_dir / "agent.yaml").write_text(COUNTING % """'{"a": 1}'""", "utf-8")
    done = run_cli("run", "agent.yaml", "go", "--json")
    assert (done.code, json.loads(done.out)["data"]) == (0, {"a": 1})
