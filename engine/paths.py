"""The path that conversations took through a chart, for diagrams and coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from toolchart.engine.replay import Replayed
from toolchart.states.diagram.model import Overlay


def overlay_of(steps: Iterable[Replayed]) -> Overlay:
    """Visits, transitions taken and time per state of replayed steps, of one conversation or many."""
    states: Counter[str] = Counter()
    edges: Counter[tuple[str, int]] = Counter()
    seconds: Counter[str] = Counter()
    current: tuple[str, ...] = ()
    since: datetime | None = None
    for one in steps:
        now = datetime.fromisoformat(one.record.at)
        if one.record.seq and since is not None:
            for name in current:
                seconds[name] += (now - since).total_seconds()  # type: ignore[assignment]
        since = now
        configuration = one.step.snapshot.configuration
        active = configuration.states if configuration else ()
        for taken in one.step.taken:
            edges[(taken.source, taken.row)] += 1
        fresh = not one.step.taken or any(taken.targets for taken in one.step.taken)
        entered = active if fresh and active != current else ()
        states.update(name for name in entered if name not in current or len(active) == 1)
        current = active
    return Overlay(states=states, edges=edges, seconds=seconds, current=current)
