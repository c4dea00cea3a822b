"""The invariants of the core, over random replies, failures and tools."""

from __future__ import annotations

import json
from typing import Any

from agents import engine, fixed_tool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolchart.engine.log.replay import replay
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import shipped
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.messages import FINISH_REASONS

NOTHING = {"type": "object", "properties": {}}

arguments = st.one_of(
    st.just({"expression": "1+1"}),
    st.just({"text": "x"}),
    st.dictionaries(
        st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3
    ),
    st.text(max_size=20),
    st.sampled_from(['{"text": "cut', "[1]", '{"a":1,"a":2}', '"{}"', "NaN", "null", "{}", ""]),
)
scripted_calls = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["calculator", "echo", "weather", "bad", "unknown", ""]),
            "arguments": arguments,
            "id": st.sampled_from(["", "a", "b", "call_1_0_0"]),
        }
    ),
    max_size=3,
)
replies = st.one_of(
    st.fixed_dictionaries(
        {"content": st.none() | st.text(max_size=10), "tool_calls": scripted_calls},
        optional={"finish_reason": st.sampled_from(FINISH_REASONS)},
    ),
    st.fixed_dictionaries(
        {
            "fail": st.fixed_dictionaries(
                {"kind": st.sampled_from(FAILURE_KINDS), "retryable": st.booleans()},
                optional={"retry_after_s": st.floats(0, 5)},
            )
        }
    ),
)


class WatchingStore:
    """A store that notes how many records were durable at each moment."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.durable = 0

    def append(self, conversation: str, first_seq: int, lines: Any) -> None:
        """Append and count."""
        self._inner.append(conversation, first_seq, lines)
        self.durable += len(lines)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class QuickClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> str:
        """A moment later each time."""
        self.seconds += 1
        minutes, seconds = divmod(self.seconds, 60)
        return f"2026-01-01T{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}.000Z"

    async def sleep(self, seconds: float) -> None:
        """No time is lost."""

    def jitter(self) -> float:
        """The same chance always."""
        return 0.5


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=st.lists(replies, min_size=1, max_size=6),
    chart=st.sampled_from(shipped()),
    turns=st.integers(1, 2),
)
def test_invariants(script: list[dict[str, Any]], chart: str, turns: int) -> None:
    """Invariants 1-4: no dangling call, records before effects, exact replay, nothing lost.

    Random replies with calls, bad JSON, unknown tools, every finish reason and failures, on every
    shipped chart.
    """
    from toolchart.engine.log.stores.memory import MemoryStore

    store = WatchingStore(MemoryStore())
    problems: list[str] = []

    def bad(given: Any) -> Any:
        newest = json.loads(list(store.read("c"))[-1])
        if not any(effect["type"] == "run_tools" for effect in newest["effects"]):
            problems.append("a tool ran before its record was durable")
        raise RuntimeError("bad")

    provider = ScriptedProvider([*script, *["the end"] * 40])
    run = engine(
        [], log=store, chart=chart, functions=[fixed_tool("bad", NOTHING, bad)], clock=QuickClock()
    )
    run.hosts.made["model"] = provider

    answered = provider.complete

    async def watched(request: Any) -> Any:
        newest = json.loads(list(store.read("c"))[-1])
        if not any(effect["type"].startswith("call_model") for effect in newest["effects"]):
            problems.append("the model was asked before the record was durable")
        problems.extend(dangling(request.messages))
        return await answered(request)

    provider.complete = watched  # type: ignore[method-assign]
    found: list[Any] = []
    for _ in range(turns):
        result = run.run("go", conversation="c")
        assert result.over
        assert result.content is not None
        found.append(result)
    assert problems == []
    lines = list(store.read("c"))
    assert len(lines) == store.durable
    assert sum(1 for _ in replay(lines, "c")) == len(lines)
    check_outcomes([json.loads(line) for line in lines])


def dangling(messages: Any) -> list[str]:
    """Calls without exactly one answer right after them."""
    problems, waiting = [], []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                problems.append(f"an answer to {message.tool_call_id!r}, which is not open")
            else:
                waiting.remove(message.tool_call_id)
        elif waiting:
            problems.append(f"{message.role} while {waiting} are open")
        waiting += [call.id for call in message.tool_calls]
    return problems + [f"{one} is open at the end" for one in waiting]


def check_outcomes(records: list[dict[str, Any]]) -> None:
    """No call has two outcomes."""
    ended = [r["event"]["call_id"] for r in records if r["event"]["type"] == "tool_finished"]
    assert len(ended) == len(set(ended))
