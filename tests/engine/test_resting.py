"""Conversations at rest: what is kept of them in memory changes nothing that is recorded or sent."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agents import make_engine, reply_with_calls
from effort import choose_count
from hypothesis import given, settings
from hypothesis import strategies as st

from toolchart.engine.log import record as records
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime import conversations as resting
from toolchart.engine.runtime.clock import SystemClock
from toolchart.states.messages import Message

REPLIES = (
    "a text",
    reply_with_calls(("unknown", {})),
    reply_with_calls(("unknown", {}), ("other", {"text": "x"})),
    {"content": "cut", "finish_reason": "length"},
    {"fail": {"kind": "bad_request"}},
)
CHARTS = ("tool_loop", "full", "resilient")


class StandingClock(SystemClock):
    """A clock at which no time passes."""

    def now(self) -> str:
        """Always the same time."""
        return "2026-01-01T00:00:00.000Z"

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always a half."""
        return 0.5


def run_turns(chart: str, script: list[Any], turns: int, whole: int) -> tuple[list[bytes], list[Any]]:
    """The log of a few turns of two conversations by turns, and all requests.

    Args:
        whole: how many conversations at rest are kept whole.
    """
    store = MemoryStore()
    engine = make_engine([*script, *["the end"] * 40], log=store, chart=chart, clock=StandingClock())
    salts = (f"salt {number}" for number in itertools.count())
    with (
        patch.object(resting, "MAX_WHOLE", whole),
        patch.object(records, "generate_salt", lambda: next(salts)),  # the same bytes each time
    ):
        for number in range(turns * 2):
            engine.run(f"message {number}", conversation="ab"[number % 2])
    provider: Any = engine.hosts.providers["model"]
    requests = [[request.model, *request.messages] for request in provider.requests]
    return [line for name in "ab" for line in store.read_lines(name)], requests


@settings(max_examples=choose_count(short=15, long=300), deadline=None)
@given(
    script=st.lists(st.sampled_from(REPLIES), max_size=6),
    chart=st.sampled_from(CHARTS),
    turns=st.integers(2, 3),
)
def test_what_is_kept_changes_nothing(script: list[Any], chart: str, turns: int) -> None:
    """Conversations of which only the next turn's needs are kept write the same bytes, and ask the model the
    same, as those that are kept whole."""
    assert run_turns(chart, script, turns, whole=0) == run_turns(chart, script, turns, whole=16)


FIRST_WORDS = "words that no other test of this process says"


def test_small_conversations_hold_no_messages(tmp_path: Path) -> None:
    """Of a conversation that was not used lately no message and no call stays in memory; the next turn and
    a reader get them from the log."""
    engine = make_engine(["one", "two"], log=open_store(tmp_path / "log.db"))
    with patch.object(resting, "MAX_WHOLE", 0):
        engine.run(FIRST_WORDS, conversation="c")
    words = {message.content for message in gc.get_objects() if type(message) is Message}
    assert FIRST_WORDS not in words
    assert [message.content for message in engine._conversations.read_messages("c")] == [FIRST_WORDS, "one"]
    assert engine.run("second", conversation="c").content == "two"
    assert len(engine._conversations.read_messages("c")) == 4


def test_small_conversations_share_what_is_equal(tmp_path: Path) -> None:
    """The tools, texts and settings of conversations at rest are in memory once, and not once for each."""
    engine = make_engine(["the end"] * 3, log=tmp_path / "log.db")
    with patch.object(resting, "MAX_WHOLE", 0):
        for name in "abc":
            engine.run("go", conversation=name)
    kept = [small.snapshot for small in engine._conversations._resting._kept.values()]
    assert len({id(snapshot.tools) for snapshot in kept}) == 1
    assert len({id(snapshot.settings) for snapshot in kept}) == 1
    engine.close()
