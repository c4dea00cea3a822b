"""Replies, streams, logs and imports of any form end in an error of ours; a sample of the fuzzer passes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.read_records import parse_line
from toolchart.engine.log.record import GENESIS, seal_line
from toolchart.providers.gemini.stream import GeminiAccumulator
from toolchart.providers.gemini.wire import decode_reply
from toolchart.specs.chat_messages import read_history
from toolchart.states.errors import LogDamaged, SpecError

SOAK = Path(__file__).resolve().parents[1] / "soak"


@pytest.mark.parametrize(
    "message",
    [
        {"role": ["user"], "content": "x"},
        {"role": {"a": 1}},
        {"role": "assistant", "content": "x", "tool_calls": True},
        {"role": "assistant", "tool_calls": 7},
        {"role": "tool", "tool_call_id": ["c"], "content": "x"},
        {"role": "tool", "tool_call_id": "c", "name": {}, "content": "x"},
        {"role": "system", "content": {"text": "x"}},
        None,
    ],
    ids=repr,
)
def test_a_malformed_message_is_refused(message: Any) -> None:
    """A message of another form is an error that names it, in an import and in a history."""
    with pytest.raises(SpecError, match=r"\[0\]|message"):
        import_messages([message], "c", "2026-01-01T00:00:00.000Z")
    with pytest.raises(SpecError):
        read_history([message])


def test_a_system_message_of_parts_is_joined() -> None:
    """An imported system prompt is text, also where it came in parts."""
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    lines = import_messages(
        [{"role": "system", "content": parts}, {"role": "user", "content": "x"}], "c", "2026-01-01T00:00:00Z"
    )
    assert json.loads(lines[1])["event"]["system"] == "Be brief."


def test_a_stream_with_an_odd_index_is_read() -> None:
    """A candidate whose index is no number counts as the first."""
    accumulator = GeminiAccumulator()
    part = {"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": [1]}
    assert accumulator.add_frame({"candidates": [part]})
    assert decode_reply(accumulator.build_body()).content == "hi"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool_finished", "call_id": "c", "outcome": "succeeded", "result": "x"},
        {"type": "tool_finished"},
        {"type": "replied", "reply": {"tool_calls": 7}},
        {"type": "user_said"},
        {"type": ["replied"]},
        {"type": "reviewed", "verdicts": ["run"]},
        {},
    ],
    ids=repr,
)
def test_a_record_of_another_form_is_damage(event: dict[str, Any]) -> None:
    """Valid hashes do not help: whoever shows, exports or draws it gets an error that names the record."""
    line, _ = seal_line(json.dumps(_make_record(event), separators=(",", ":")).encode())
    with pytest.raises(LogDamaged, match="record 0"):
        parse_line(line, 0, "c")


def test_a_record_of_a_newer_release_is_read() -> None:
    """Unknown events and further keys of known ones are left alone."""
    for event in ({"type": "invented", "x": 1}, {"type": "user_said", "message": "x", "newer": [1]}):
        line, _ = seal_line(json.dumps(_make_record(event), separators=(",", ":")).encode())
        assert parse_line(line, 0, "c").event == event


def _make_record(event: dict[str, Any]) -> dict[str, Any]:
    places = {"seq": 0, "at": "2026-01-01T00:00:00Z", "turn": 1, "iteration": 0}
    return {**places, "event": event, "source": "", "target": "a", "prev": GENESIS}


def test_a_sample_of_the_fuzzer_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few cases of each family end as they must; `tests/soak/fuzz.py` runs 100,000."""
    monkeypatch.syspath_prepend(str(SOAK))
    fuzz = importlib.import_module("fuzz")
    for number in range(8 * len(fuzz.CASES)):
        _, problem = fuzz.run_case(fuzz.CASES[number % len(fuzz.CASES)], number)
        assert problem is None, problem
