"""Judges: how a mutant is told from the program.

Each judge runs in a process of its own, into which the mutant was put. Logs come first, because they are
what a user has: the mutant replays what the program wrote, and the program replays what the mutant writes.
What no log tells, the tests of the module tell.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / folder) for folder in ("support", "engine", "golden")]

import adopt_checkout  # noqa: E402, F401
import test_answer_mutations  # noqa: E402
from golden_logs import (  # noqa: E402
    list_golden_logs,
    load_golden_store,
    read_golden_log,
    split_conversations,
    write_scenario,
)
from golden_scenarios import SCENARIOS  # noqa: E402
from mutants import NothingToChange  # noqa: E402
from proved_conversations import record_conversations  # noqa: E402
from test_answer_mutations import NAMES as ANSWERED  # noqa: E402

from toolchart.engine.log.replay import replay_conversation  # noqa: E402
from toolchart.engine.log.verify import verify_store  # noqa: E402
from toolchart.engine.runtime.wire_replay import WireComparison  # noqa: E402
from toolchart.states.errors import LogDamaged  # noqa: E402

Logs = dict[str, dict[str, list[bytes]]]
"""Conversations by the name of what wrote them."""

SLOWEST_S = 60
"""Seconds after which a mutant that has not ended counts as one that never ends."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant."""

    mutant: str
    place: str = ""
    """File and line; empty where the mutant has a name."""
    told_by: str = ""
    """What told it: the kind of judge, a colon and what it said; empty for a survivor."""


# -- what is said of logs ----------------------------------------------------------------------------


def read_golden_logs() -> Logs:
    """The committed golden logs."""
    return {name: split_conversations(read_golden_log(name)) for name in list_golden_logs()}


def write_golden_logs() -> Logs:
    """The same logs as this process writes them."""
    return {name: split_conversations(write_scenario(name)) for name in SCENARIOS}


def find_other_log() -> str:
    """The first golden log that this process writes otherwise; empty where it writes all the same."""
    return next((name for name in SCENARIOS if write_scenario(name) != read_golden_log(name)), "")


def find_refused_log(logs: Logs) -> str:
    """What `replay` and `verify` say of the first log that they refuse; empty where they accept all."""
    for name, conversations in logs.items():
        store: Any = load_golden_store({key: list(lines) for key, lines in conversations.items()})
        for outcome in verify_store(store):
            if isinstance(outcome, LogDamaged):
                return f"{name}: {_cut(outcome)}"
        try:
            for conversation in conversations:
                for _ in replay_conversation(store, conversation):
                    pass
        except Exception as error:  # a mutant may fail in any way, and then it is told
            return f"{name}: {_cut(error)}"
    return ""


def write_proved_conversations() -> Logs:
    """Conversations with all wire forms over loopback, whole and streamed, as this process writes them."""
    return {
        name: {name: list(store.read_lines(name))}
        for store in (record_conversations(), test_answer_mutations.record_conversations(ANSWERED))
        for name in store.list_conversations()
    }


def find_refused_bodies(logs: Logs) -> str:
    """What replay says where it builds the bodies of requests again, and decodes the answers."""
    store = load_golden_store({key: list(lines) for log in logs.values() for key, lines in log.items()})
    for name in logs:
        try:
            for _ in WireComparison().compare_steps(replay_conversation(store, name)):
                pass
        except Exception as error:
            return f"{name}: {_cut(error)}"
    return ""


def _cut(error: Any) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160]


# -- what is said by tests ---------------------------------------------------------------------------


class _FirstFailure:
    """Remembers the first test that fails."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.removeprefix("tests/")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.name:
            self.name = report.nodeid.removeprefix("tests/")


def find_failing_test(files: tuple[str, ...]) -> str:
    """The first test of these files that fails; empty where none does."""
    import pytest

    failure = _FirstFailure()
    os.chdir(TESTS.parent)
    options = [
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-k",
        "not postgres",
    ]  # a server starts slowly
    code = pytest.main([*options, *(f"tests/{file}" for file in files)], plugins=[failure])
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED), code
    return failure.name


# -- processes ---------------------------------------------------------------------------------------


def call_in_child(work: Callable[[], Any], timeout_s: float) -> Any:
    """What `work` returns in a forked process; None where the process ended otherwise or took too long.

    Raises:
        NothingToChange: `work` raised it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        with contextlib.suppress(BaseException):
            os.close(reading)
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            try:
                answer = {"is": work()}
            except NothingToChange as error:
                answer = {"nothing": str(error)}
            _write_all(writing, msgspec.msgpack.encode(answer))
        os._exit(0)
    os.close(writing)
    try:
        data = _read_all(reading, timeout_s)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, 9)
        os.waitpid(child, 0)
    answer = msgspec.msgpack.decode(data) if data else {"is": None}
    if "nothing" in answer:
        raise NothingToChange(answer["nothing"])
    return answer["is"]


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _read_all(file: int, timeout_s: float) -> bytes:
    import select
    import time

    end, pieces = time.monotonic() + timeout_s, []
    while True:
        ready, _, _ = select.select([file], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return b""
        piece = os.read(file, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def iterate_modules(*patterns: str) -> Iterator[str]:
    """The modules of the package that fit the patterns, from its root."""
    for pattern in patterns:
        for path in sorted(TESTS.parent.glob(pattern)):
            if path.name != "__init__.py":
                yield path.relative_to(TESTS.parent).as_posix()
