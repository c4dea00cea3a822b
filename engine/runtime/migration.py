"""Moving an open conversation to a changed chart: proved first, then recorded."""

from __future__ import annotations

from toolchart.engine.log.replay import load_conversation
from toolchart.engine.runtime.engine import Engine
from toolchart.specs.agent_costs import build_cost_finder
from toolchart.states.errors import SpecError
from toolchart.states.proofs.migration import MigrationReport, check_migration

__all__ = ["Engine", "migrate_conversation"]


async def migrate_conversation(
    engine: Engine, conversation: str, *, is_recorded: bool = False
) -> MigrationReport | None:
    """Prove that an open conversation may go on with the chart of an engine; record it where that is asked.

    Args:
        is_recorded: whether an approved migration is recorded as the event `migrated`.

    Returns:
        The report; None where there is nothing to decide, because the next turn takes the new chart anyway or
        the chart is the same.

    Raises:
        SpecError: there is no such conversation, or a turn of it runs in this engine.
    """
    loaded_conversation = load_conversation(engine.store, conversation)
    if loaded_conversation is None:
        raise SpecError(f"there is no conversation {conversation!r} in this log")
    snapshot, recorded = loaded_conversation.snapshot, loaded_conversation.configured
    current = engine.conversations.build_configured_event(conversation)
    has_same_chart = (recorded.chart, recorded.effects) == (current.chart, current.effects)
    if snapshot.configuration is None or snapshot.has_ended or has_same_chart:
        return None
    registry = engine.tools.registry
    report = check_migration(
        engine.chart,
        snapshot,
        unbounded=engine.spec.limits.unbounded,
        risky=any(tool.requires_approval or tool.risk == "high" for tool in registry),
        find_agent_cost=build_cost_finder(engine.spec),
    )
    if report.is_approved and is_recorded:
        await engine.conversations.record_migration(conversation, loaded_conversation)
    return report
