"""What a server counts while it runs: requests, turns with their tokens and cost, and how late its loop is.

Two places count: the guard sees every request, and `Engine.watch_turns` every turn, whichever door it came
through. Counters begin at 0 with the process, as Prometheus expects. What is a state, and no event, is not
counted here: `metrics.py` reads it when somebody asks.

Nothing that names a person, a conversation or a text is kept. Values that a client chooses are bounded: a
method or a model that is one too many counts as `other`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolchart.states.core.step import Step
from toolchart.states.events import Event, Failed, Replied
from toolchart.states.messages import Usage
from toolchart.states.snapshot import Snapshot

LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_EVERY_S = 0.25
"""Seconds between two looks at how late the event loop is."""

OTHER = "other"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ServerFigures:
    """The counters of one server; they only grow. Written in its event loop, read in any thread.

    Args:
        most_models: models with figures of their own: clients name models, so there could be any number.
    """

    def __init__(self, most_models: int) -> None:
        self._most_models = most_models
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By method, route (`/api/conversations/{conversation}`, or `other`) and class of the status."""
        self.turns: Counter[str] = Counter()
        """By how they came to an end or to rest, see `name_end`; and `waiting`, `stopped`."""
        self.input_tokens: Counter[str] = Counter()
        """By requested model, those that a cache had included; like the three below."""
        self.cached_tokens: Counter[str] = Counter()
        self.output_tokens: Counter[str] = Counter()
        self.cost: dict[str, float] = {}
        """Where hosts report it or a price table has it, in the currency of the table."""
        self.lags: Counter[int] = Counter()
        """Looks at the event loop, by the index of the bucket that holds how late it was."""
        self.lag_s = 0.0
        """The sum of all lags."""
        self._models: set[str] = set()

    # -- requests --------------------------------------------------------------------------------

    def note_request(self, method: str, route: str | None, status: int | None) -> None:
        """Count a request that is answered, or was given up.

        Args:
            route: the path of its endpoint, with names in place of values; None where there is none.
            status: None where its client went before an answer began.
        """
        class_ = f"{status // 100}xx" if status is not None else "none"
        self.requests[method if method in _METHODS else OTHER, route or OTHER, class_] += 1

    # -- turns, as `TurnWatcher` -----------------------------------------------------------------

    def record_step(self, conversation: str, event: Event, step: Step) -> None:
        """Count what a model call has used, also one that failed or came too late, and the end of a turn."""
        if isinstance(event, Replied | Failed) and event.paid_usage is not None:
            settings = step.snapshot.settings
            self._add_usage(settings.model if settings is not None else "", event.paid_usage)
        if step.ends_turn:
            self.turns[name_end(step.snapshot)] += 1

    def note_rest(self, conversation: str, *, waits: bool) -> None:
        """Count a turn that stays open: it waits for somebody, or was stopped or broken off."""
        self.turns["waiting" if waits else "stopped"] += 1

    def _add_usage(self, model: str, usage: Usage) -> None:
        if model not in self._models:
            if len(self._models) >= self._most_models:
                model = OTHER
            self._models.add(model)
        self.input_tokens[model] += usage.input or 0
        self.cached_tokens[model] += usage.cached or 0
        self.output_tokens[model] += usage.output or 0
        if usage.cost is not None:
            self.cost[model] = self.cost.get(model, 0.0) + usage.cost

    # -- the event loop --------------------------------------------------------------------------

    @asynccontextmanager
    async def watch_loop(self) -> AsyncIterator[None]:
        """Within the block, measure again and again how late the event loop is."""
        task = asyncio.create_task(self._measure_for_ever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _measure_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.note_lag(max(0.0, loop.time() - due))

    def note_lag(self, seconds: float) -> None:
        """Count one look at the event loop, which came so late."""
        self.lags[bisect_left(LAG_BUCKETS_S, seconds)] += 1
        self.lag_s += seconds


def name_end(snapshot: Snapshot) -> str:
    """How a turn has ended: `cancelled`, `limit`, `failed` or `finished`; the exit codes tell the same."""
    if snapshot.error is not None and snapshot.error.kind == "cancelled":
        return "cancelled"
    if snapshot.limit_reached is not None and snapshot.ended_by != "answer":
        return "limit"
    return "failed" if snapshot.error is not None else "finished"
