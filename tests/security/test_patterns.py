"""Fault 9: no pattern of an author hangs on a user's text, and every pattern finds what it found before."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from agents import make_spec
from resource_limits import ends_in_time

from toolchart.engine.log.redaction import PATTERNS, Redactor
from toolchart.specs.loader import load_spec
from toolchart.specs.turn_plan import select_handler
from toolchart.states.errors import SpecError
from toolchart.workers import patterns
from toolchart.workers.patterns import Pattern, PatternTimeout

SLOW = ["(a+)+$", "(a|aa)+$", "(.*a){12}$", "^(([a-z])+.)+[A-Z]([a-z])+$", "a*a*a*a*a*b"]


@pytest.mark.parametrize("pattern", SLOW)
def test_slow_patterns_are_linear(pattern: str) -> None:
    """Patterns that take exponential time on Python's engine match at once."""
    assert Pattern(pattern).is_linear
    with ends_in_time():
        Pattern(pattern).occurs_in("a" * 50_000 + "!")


def test_other_patterns_have_a_time_limit() -> None:
    """What RE2 cannot express runs in a worker, with the same answers, and is ended there."""
    with pytest.raises(PatternTimeout):
        Pattern(r"(?=(a+)+$)a*b").occurs_in("a" * 60 + "!")
    assert Pattern(r"(\w)\1").occurs_in("hello")
    assert not Pattern(r"^(?!b).*$").matches("b")
    assert Pattern(r"(?<=\$)\d+").find_spans("a $12 $3") == [(3, 5), (7, 8)]


@pytest.mark.parametrize(("clock", "is_refused"), [("thread_time", True), ("monotonic", False)])
def test_many_matches_are_limited_by_their_own_time(
    clock: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the time of the thread: a machine that is busy elsewhere refuses no text."""
    still: dict[str, Any] = {"thread_time": lambda: 0.0, "monotonic": lambda: 0.0}
    monkeypatch.setattr(patterns, "time", SimpleNamespace(**{**still, clock: count().__next__}))
    if is_refused:
        with pytest.raises(PatternTimeout, match="too many matches"):
            Pattern("a").find_spans("aaa")
    else:
        assert Pattern("a").find_spans("aaa") == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("pattern", [*SLOW, r"(?=(a+)+$)a*b"])
def test_a_match_of_a_handler_does_not_hang(pattern: str) -> None:
    """A condition of a handler answers in time, or says that its pattern takes too long."""
    responses = [{"llm": "model", "match": {"user_message_regexp": pattern}}, {"llm": "model"}]
    spec = load_spec(make_spec(responses=responses))
    if Pattern(pattern).is_linear:
        assert select_handler(spec, {"user_message": "a" * 60 + "!"})
    else:
        with pytest.raises(SpecError, match="takes too long"):
            select_handler(spec, {"user_message": "a" * 60 + "!"})


@pytest.mark.parametrize("name", PATTERNS)
def test_own_patterns_are_linear(name: str) -> None:
    """The named patterns of `redact` are linear on texts without an end."""
    redactor = Redactor(patterns=[name])
    with ends_in_time():
        for text in ("a" * 200_000, "1" * 100_000, "+1 " * 50_000, "a." * 50_000):
            redactor.redact_event({"type": "user_said", "message": text})


@pytest.mark.parametrize(
    ("name", "text", "rest"),
    [
        ("phone", "call +420 777 123 456, x+420777123456", "call M, x+420777123456"),
        ("card", "4111 1111 1111 1111 5500-0000-0000-0004", "M M"),
        ("card", "x41111111111111111y", "xMy"),
        ("token", "Authorization: Bearer abcdefgh1234", "Authorization: Bearer M"),
        ("email", "to a.b@example.com.", "to M."),
    ],
)
def test_own_patterns_find_the_same(name: str, text: str, rest: str) -> None:
    """What surrounds a secret stays."""
    data: Any = Redactor(patterns=[name]).redact_event({"type": "user_said", "message": text})
    import re

    assert re.sub(r"\[redacted:\w{8}\]", "M", data["message"]) == rest


def test_a_pattern_that_takes_too_long_hides_the_whole_text() -> None:
    """Redaction fails closed."""
    redactor = Redactor(patterns=[r"/(?=(a+)+$)a+b/"])
    data = redactor.redact_event({"type": "user_said", "message": "a" * 60 + "! secret"})
    assert data["message"].startswith("[redacted:")
    assert "secret" not in data["message"]
