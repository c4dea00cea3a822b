"""What Hypothesis draws in a random turn: replies, failures, verdicts, outcomes and limits."""

from __future__ import annotations

from hypothesis import strategies as st

from toolchart.states.effects import CallModel, Effect, ReviewCalls, RunTools, Wait
from toolchart.states.events import (
    FAILURE_KINDS,
    Failed,
    Limits,
    MachineEvent,
    Replied,
    Reviewed,
    ToolFinished,
    Verdict,
    Waited,
)
from toolchart.states.messages import FINISH_REASONS, Reply, ToolCall, Usage
from toolchart.states.snapshot import Snapshot
from toolchart.testing.manual_turn import TOOLS
from toolchart.testing.possible_answers import finished, outcomes_of


def limits() -> st.SearchStrategy[Limits]:
    """Limits that a short turn can reach."""
    small = st.integers(1, 3)
    return st.builds(
        Limits,
        max_iterations=small,
        max_tool_only_streak=small,
        max_repeats=small,
        max_attempts=small,
        max_tokens=st.none() | st.integers(1, 60),
        max_tool_calls=st.none() | st.integers(1, 4),
    )


def answer_to(effect: Effect, snapshot: Snapshot) -> st.SearchStrategy[MachineEvent]:
    """What may come back from an effect."""
    match effect:
        case CallModel():
            return st.builds(Replied, reply=_replies()) | _failures()
        case ReviewCalls():
            return _reviews(snapshot)
        case RunTools():
            return _outcomes(snapshot)
        case Wait():
            return st.builds(Waited, seconds=st.just(effect.seconds))
        case _:
            raise AssertionError(f"{effect.name!r} waits for nothing")


def _replies() -> st.SearchStrategy[Reply]:
    return st.builds(
        Reply,
        content=st.sampled_from((None, "", "Let me look.", "It is so.")),
        tool_calls=st.lists(_calls(), max_size=3).map(tuple),
        finish_reason=st.sampled_from(FINISH_REASONS),
        usage=st.none() | st.builds(Usage, total=st.integers(0, 30)),
    )


def _calls() -> st.SearchStrategy[ToolCall]:
    """Calls as providers make them: without an id, with a used one, unreadable, of no such tool."""
    names = st.sampled_from((*(tool.name for tool in TOOLS), "no_such_tool"))
    ids = st.sampled_from(("", "a", "b", "call_1_0_0"))
    good = st.builds(
        ToolCall, id=ids, name=names, arguments=st.sampled_from(({}, {"place": 1}, {"place": 2}))
    )
    bad = st.builds(
        ToolCall, id=ids, name=names, raw=st.just('{"place": '), problem=st.just("it ends early")
    )
    return good | bad


def _failures() -> st.SearchStrategy[Failed]:
    return st.builds(
        Failed,
        kind=st.sampled_from([kind for kind in FAILURE_KINDS if kind != "cancelled"]),
        message=st.just("scripted"),
        retryable=st.booleans(),
        retry_after_s=st.none() | st.just(2.0),
        jitter=st.sampled_from((0.0, 0.5)),
    )


def _reviews(snapshot: Snapshot) -> st.SearchStrategy[Reviewed]:
    rulings = st.sampled_from(("run", "run", "needs_approval", "denied", "invalid"))
    verdicts = [
        st.builds(Verdict, call_id=st.just(opened.call.id), ruling=rulings)
        for opened in snapshot.calls
    ]
    return st.builds(Reviewed, verdicts=st.tuples(*verdicts))


@st.composite
def _outcomes(draw: st.DrawFn, snapshot: Snapshot) -> ToolFinished:
    """Any open call may end next."""
    opened = draw(st.sampled_from([one for one in snapshot.calls if one.outcome is None]))
    others = ("timed_out", "cancelled", "interrupted") if opened.ruling == "run" else ()
    return finished(opened, draw(st.sampled_from((*outcomes_of(opened), *others))))
