"""The invariants of the core, over random replies, failures and tools."""

from __future__ import annotations

import json
from typing import Any

from agents import make_engine, make_function_tool
from effort import choose_count
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolchart.engine.log.replay import replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.charts import list_shipped_charts
from toolchart.states.events import FAILURE_KINDS
from toolchart.states.messages import FINISH_REASONS

NOTHING = {"type": "object", "properties": {}}

arguments = st.one_of(
    st.just({"expression": "1+1"}),
    st.just({"text": "x"}),
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.none(), max_size=3),
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


class CountingStore(MemoryStore):
    """A store that counts the durable records."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = 0

    def append_many(self, batches: Any, *, wait: bool = True) -> Any:
        """Append and count."""
        faults = super().append_many(batches, wait=wait)
        self.durable += sum(len(batch.lines) for batch in batches)
        return faults


class InstantClock:
    """A clock that never waits."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self) -> str:
        """One second more at each call."""
        self.seconds += 1
        minutes, seconds = divmod(self.seconds, 60)
        return f"2026-01-01T{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}.000Z"

    async def sleep(self, seconds: float) -> None:
        """Return at once."""

    def jitter(self) -> float:
        """Always 0.5."""
        return 0.5


@settings(
    max_examples=choose_count(short=62, long=250), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    script=st.lists(replies, min_size=1, max_size=6),
    chart=st.sampled_from(list_shipped_charts()),
    turns=st.integers(1, 2),
)
def test_invariants(script: list[dict[str, Any]], chart: str, turns: int) -> None:
    """Invariants 1-4: every call has a result, records precede effects, replay is exact, no record is lost.

    The model gives random replies with calls, bad JSON, unknown tools, every finish reason and failures,
    on every shipped chart.
    """
    store = CountingStore()
    problems: list[str] = []

    def raise_error(arguments: Any) -> Any:
        records = [json.loads(line) for line in store.read_lines("c")]
        asked = [n for n, r in enumerate(records) if "run_tools" in [a["effect"] for a in r.get("asks", ())]]
        if not any(record["event"]["type"] == "calls_started" for record in records[asked[-1] :]):
            problems.append("a tool ran before its start mark was durable")
        raise RuntimeError("bad")

    provider = ScriptedProvider([*script, *["the end"] * 40])
    run = make_engine(
        [],
        log=store,
        chart=chart,
        llms={"model": {"provider": "scripted", "model": "m", "context_limit": 300}},
        functions=[make_function_tool("bad", NOTHING, raise_error)],
        clock=InstantClock(),
    )
    run.hosts.providers["model"] = provider

    complete_request = provider.complete

    async def check_request(request: Any) -> Any:
        newest = json.loads(list(store.read_lines("c"))[-1])
        if not any(ask["effect"].startswith("call_model") for ask in newest.get("asks", ())):
            problems.append("the model was called before the record was durable")
        problems.extend(find_dangling_calls(request.messages))
        return await complete_request(request)

    provider.complete = check_request  # type: ignore[method-assign]
    results: list[Any] = []
    for _ in range(turns):
        result = run.run("go", conversation="c")
        assert result.is_over
        assert result.content is not None
        results.append(result)
    assert problems == []
    lines = list(store.read_lines("c"))
    assert len(lines) == store.durable
    assert sum(1 for _ in replay(lines, "c")) == len(lines)
    check_outcomes([json.loads(line) for line in lines])


def find_dangling_calls(messages: Any) -> list[str]:
    """Problems of calls that do not have exactly one result right after them."""
    problems, open_ids = [], []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                problems.append(f"an answer to {message.tool_call_id!r}, which is not open")
            else:
                open_ids.remove(message.tool_call_id)
        elif open_ids:
            problems.append(f"{message.role} while {open_ids} are open")
        open_ids += [call.id for call in message.tool_calls]
    return problems + [f"{call_id} is open at the end" for call_id in open_ids]


def check_outcomes(records: list[dict[str, Any]]) -> None:
    """Check that no call has two outcomes."""
    finished_ids = [r["event"]["call_id"] for r in records if r["event"]["type"] == "tool_finished"]
    assert len(finished_ids) == len(set(finished_ids))
