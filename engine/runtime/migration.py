"""Moving an open conversation to a changed chart: proved first, then recorded."""

from __future__ import annotations

from collections.abc import Mapping

from toolchart.engine.log.replay import ReplayedConversation, load_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.agent_costs import build_cost_finder
from toolchart.states.chart.document import Chart
from toolchart.states.errors import NotFound
from toolchart.states.ports import Store
from toolchart.states.proofs.migration import MigrationReport, check_migration
from toolchart.tools.data_flow import may_ask

__all__ = ["Engine", "decide_migration", "migrate_conversation"]


async def migrate_conversation(
    engine: Engine, conversation: str, *, is_recorded: bool = False, renamed: Mapping[str, str] | None = None
) -> MigrationReport | None:
    """Prove that an open conversation may go on with the chart of an engine; record it where that is asked.

    Args:
        is_recorded: whether an approved migration is recorded as the event `migrated`.
        renamed: by name of a state of the old chart: its name in the new one.

    Returns:
        The report; None where there is nothing to decide, because the next turn takes the new chart anyway or
        the chart is the same.

    Raises:
        NotFound: there is no such conversation.
        SpecError: a turn of it runs in this engine.
    """
    loaded_conversation = _load_conversation(engine.store, conversation)
    if not _needs_migration(loaded_conversation, engine.chart):
        return None
    report = check_migration(
        engine.chart,
        loaded_conversation.snapshot,
        old=loaded_conversation.machine.chart,
        renamed=renamed,
        unbounded=engine.spec.limits.unbounded,
        risky=may_ask(engine.spec, engine.chart, engine.tools.functions),
        find_agent_cost=build_cost_finder(engine.spec),
    )
    if report.is_approved and is_recorded:
        await engine._conversations.record_migration(conversation, loaded_conversation, report)
    return report


def decide_migration(
    store: Store, conversation: str, chart: Chart, renamed: Mapping[str, str] | None = None
) -> MigrationReport | None:
    """Prove that an open conversation may go on with a chart; nothing is written, and no agent is built.

    What only the agent says is taken on the safe side: its tools may need approval, each turn needs a bound,
    and what the agents cost that the chart runs does not count.

    Args:
        renamed: by name of a state of the old chart: its name in the new one.

    Returns:
        As `migrate_conversation`.

    Raises:
        NotFound: there is no such conversation.
    """
    loaded_conversation = _load_conversation(store, conversation)
    if not _needs_migration(loaded_conversation, chart):
        return None
    return check_migration(
        chart,
        loaded_conversation.snapshot,
        old=loaded_conversation.machine.chart,
        renamed=renamed,
        risky=bool(loaded_conversation.configured.tools),
    )


def _load_conversation(store: Store, conversation: str) -> ReplayedConversation:
    loaded_conversation = load_conversation(store, conversation)
    if loaded_conversation is None:
        raise NotFound(conversation)
    return loaded_conversation


def _needs_migration(loaded_conversation: ReplayedConversation, chart: Chart) -> bool:
    """Whether a run of another chart is open."""
    snapshot, old = loaded_conversation.snapshot, loaded_conversation.configured
    has_same_chart = (old.chart, dict(old.effects)) == (chart.to_yaml(), dict(chart.effects))
    return snapshot.configuration is not None and not snapshot.has_ended and not has_same_chart
