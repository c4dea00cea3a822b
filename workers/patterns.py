"""Regular expressions of authors, foreign schemas and models: matched in linear time, or within a time limit.

RE2 matches in a time that grows with the text alone, whatever the pattern is. It has no look-around and no
back references; a pattern with these runs on Python's engine, in a bounded worker. As in JSON Schema and in
RE2, `\\d`, `\\w` and `\\s` mean ASCII, and `$` only the end of the text.

Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from typing import Any

MAX_PATTERN_CHARACTERS = 5_000
PROCESSOR_S = 0.5
"""Seconds of processor time for one text on Python's engine."""

_SECRET = "secret"
"""Name of the group whose span counts instead of that of the whole match."""

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


class PatternTimeout(Exception):
    """A pattern that needs Python's engine did not finish on a text."""


class Pattern:
    """One pattern, ready to match.

    Args:
        flags: letters of `i` (ignore case), `m` (`^` and `$` at each line), `s` (dot matches line ends) and
            `x` (verbose).

    Raises:
        ValueError: it is no regular expression.
    """

    def __init__(self, text: str, flags: str = "") -> None:
        self.text = text
        if len(text) > MAX_PATTERN_CHARACTERS:
            raise ValueError(f"longer than {MAX_PATTERN_CHARACTERS} characters")
        self._flags = flags
        self._linear = _compile_linear(text, flags)
        if self._linear is None:
            _compile_python(text, flags)

    @property
    def is_linear(self) -> bool:
        """Whether it is matched in this process."""
        return self._linear is not None

    def occurs_in(self, text: str) -> bool:
        """Whether some part of the text matches.

        Raises:
            PatternTimeout: it takes too long.
        """
        if self._linear is not None:
            return self._linear.search(_drop_surrogates(text)) is not None
        return bool(self._run("search", text))

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Raises:
            PatternTimeout: it takes too long.
        """
        if self._linear is not None:
            return self._linear.fullmatch(_drop_surrogates(text)) is not None
        return bool(self._run("fullmatch", text))

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Begin and end of each part that matches; of its group `secret`, if it has one.

        Raises:
            PatternTimeout: it takes too long.
        """
        if self._linear is None:
            return [(start, end) for start, end in self._run("finditer", text)]
        return _find_linear_spans(self._linear, _drop_surrogates(text))

    def _run(self, method: str, text: str) -> Any:
        from toolchart.workers.pool import STARVED_S, BoundExceeded, Work, run_bounded

        arguments = {"pattern": self.text, "flags": self._flags, "text": text, "method": method}
        work = Work(
            module=__name__,
            function="match_with_python",
            arguments=arguments,
            preload=(__name__,),
            processor_s=PROCESSOR_S,
        )
        try:
            return run_bounded(work, timeout_s=STARVED_S)
        except BoundExceeded:
            raise PatternTimeout(f"the pattern {self.text!r} takes too long on this text") from None


@lru_cache(maxsize=1024)
def get_pattern(text: str, flags: str = "") -> Pattern:
    """The pattern of a text; made once.

    Raises:
        ValueError: it is no regular expression.
    """
    return Pattern(text, flags)


def match_with_python(pattern: str, flags: str, text: str, method: str) -> Any:
    """Match with Python's engine: the spans of all matches, or whether there is one. Runs in a worker."""
    if method != "finditer":
        return getattr(_compile_python(pattern, flags), method)(text) is not None
    compiled = _compile_python(pattern, flags)
    group = _SECRET if _SECRET in compiled.groupindex else 0
    return [_choose_span(match, group) for match in compiled.finditer(text)]


def _compile_python(text: str, flags: str) -> re.Pattern[str]:
    try:
        return re.compile(text, sum(_FLAGS[letter] for letter in set(flags)))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _compile_linear(text: str, flags: str) -> Any:
    """The compiled pattern of RE2; None where RE2 has no such syntax."""
    import re2

    # RE2 has no verbose mode.
    if "x" in flags:
        return None
    options = re2.Options()
    options.log_errors = False
    prefix = f"(?{''.join(sorted(set(flags)))})" if flags else ""
    try:
        return re2.compile(prefix + _drop_surrogates(text), options)
    except re2.error:
        return None


def _find_linear_spans(linear: Any, text: str) -> list[tuple[int, int]]:
    """The spans of all matches. One search is linear, but each match needs one, so that their time is
    limited."""
    group = _SECRET if _SECRET in linear.groupindex else 0
    end, spans = time.thread_time() + PROCESSOR_S, []
    for match in linear.finditer(text):
        spans.append(_choose_span(match, group))
        if time.thread_time() > end:
            raise PatternTimeout("there are too many matches")
    return spans


def _choose_span(match: Any, group: str | int) -> tuple[int, int]:
    """The span of the named group, of the whole match where the group took no part."""
    span: tuple[int, int] = match.span(match.re.groupindex[group] if group else 0)
    return span if span != (-1, -1) else match.span()


def _drop_surrogates(text: str) -> str:
    """The text with lone surrogates replaced, which RE2 does not know; positions stay."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)
