"""The section `debug`: four switches, by spec and environment, and what each writes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from web import serve_web
from wire_answers import ScriptedHost

from toolchart import Engine, SpecError
from toolchart.providers.transport.raw_answers import read_raw_answer
from toolchart.states.messages import RawAnswer

SUM, RESULT = "17*27000000000000", "459000000000000"  # no digest has them by chance

SPEC: dict[str, Any] = {
    "llms": {
        "m": {
            "provider": "scripted",
            "model": "tiny",
            "rules": [{"match": "sum", "call": {"name": "calculator", "arguments": {"expression": SUM}}}],
        }
    },
    "tools": {"registry": [{"name": "calculator"}]},
    "responses": [{"llm": "m", "prompt": "You count.", "tools": {"enabled": True}}],
}
SPEC["llms"]["m"]["rules"][0]["reply"] = "{result}"


def run_turn(tmp_path: Path, **debug: Any) -> dict[str, list[dict[str, Any]]]:
    """The lines of each debug file after one turn, by the file's name."""
    section = {"debug": {"folder": str(tmp_path / "debug"), **debug}}
    with Engine({**SPEC, **section}, log="memory") as engine:
        assert engine.run("the sum", conversation="c").content == RESULT
    files = sorted((tmp_path / "debug").glob("*/*"))
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
    assert len({path.parent.name for path in files}) <= 1
    return {path.name: [json.loads(line) for line in path.read_text("utf-8").splitlines()] for path in files}


def test_nothing_is_written_without_a_switch(tmp_path: Path) -> None:
    """No switch, no folder."""
    assert run_turn(tmp_path) == {}
    assert not (tmp_path / "debug").exists()


def test_traces_hold_every_step_and_no_words(tmp_path: Path) -> None:
    """`traces` has one line a step with event, states and effects; what was said is in none of them."""
    (lines,) = run_turn(tmp_path, traces=True).values()
    assert [line["event"]["type"] for line in lines][-3:] == ["reviewed", "tool_finished", "replied"]
    assert {line["conversation"] for line in lines} == {"c"}
    text = json.dumps(lines)
    assert "calculator" in text
    assert not any(word in text for word in ("the sum", "You count", SUM, RESULT))


@pytest.mark.parametrize(
    ("tools", "words", "others"), [("quiet", (), ("calculator",)), ("verbose", (SUM, RESULT), ())]
)
def test_tools_are_quiet_or_verbose(
    tmp_path: Path, tools: str, words: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """`tools: quiet` leaves them out of the traces, `verbose` adds arguments and results."""
    text = json.dumps(run_turn(tmp_path, traces=True, tools=tools))
    assert all(word in text for word in words)
    assert not any(word in text for word in others)


def test_message_parts_hold_each_request(tmp_path: Path) -> None:
    """`message_parts` has one line a request: role, kind, size and text of every part, and the calls."""
    files = run_turn(tmp_path, message_parts=True)
    first, second = files["messages.jsonl"]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert first["messages"][1]["parts"] == [{"type": "text", "size": 7, "text": "the sum"}]
    assert second["messages"][2]["parts"] == [
        {"type": "tool_call", "name": "calculator", "arguments": {"expression": SUM}}
    ]


def test_the_environment_goes_before_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TOOLCHART_DEBUG_TRACES=0` silences the spec; another word than 0 or 1 is an error that names it."""
    monkeypatch.setenv("TOOLCHART_DEBUG_TRACES", "0")
    monkeypatch.setenv("TOOLCHART_DEBUG_MESSAGE_PARTS", "1")
    assert list(run_turn(tmp_path, traces=True)) == ["messages.jsonl"]
    monkeypatch.setenv("TOOLCHART_DEBUG_STRICT", "yes")
    with pytest.raises(SpecError, match="TOOLCHART_DEBUG_STRICT"):
        run_turn(tmp_path)


def test_strict_makes_warnings_end_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """`strict` is `policy: strict`: an empty variable of a prompt ends the turn in place of a warning."""
    spec = {**SPEC, "responses": [{**SPEC["responses"][0], "prompt": "You count {{things}}."}]}
    with Engine(spec, log="memory") as engine:
        assert engine.run("the sum").ok
    monkeypatch.setenv("TOOLCHART_DEBUG_STRICT", "1")
    with Engine(spec, log="memory") as engine:
        assert not engine.run("the sum").ok


@pytest.mark.parametrize(
    "switch", [{"message_parts": True}, {"raw_responses": True}, {"traces": True, "tools": "verbose"}]
)
def test_what_the_log_must_not_hold_is_not_written_beside_it(tmp_path: Path, switch: dict[str, Any]) -> None:
    """With `redact`, a switch that writes words in plain is refused; traces without words are not."""
    redact = {"redact": {"patterns": ["email"]}}
    with pytest.raises(SpecError, match="in plain"):
        Engine({**SPEC, **redact, "debug": switch}, log="memory")
    folder = str(tmp_path / "debug")
    Engine({**SPEC, **redact, "debug": {"traces": True, "folder": folder}}, log="memory").close()


def test_raw_responses_are_kept_in_the_log() -> None:
    """S3.11: `raw_responses` keeps each answer of a host in the log, as `log_answers` does."""
    host = ScriptedHost()
    host.answers.append({"text": "It is 42."})
    with serve_web(host.make_answer) as server:
        entry = {"provider": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": "k"}
        spec = {
            "llms": {"m": entry},
            "responses": [{"llm": "m", "prompt": "p"}],
            "debug": {"raw_responses": True},
        }
        with Engine(spec, log="memory") as engine:
            assert engine.run("How much?", conversation="c").content == "It is 42."
            events = [json.loads(line)["event"] for line in engine.store.read_lines("c")]
    (raw,) = [event["raw_answer"] for event in events if event["type"] == "replied"]
    assert b"It is 42." in read_raw_answer(convert(raw, RawAnswer))
