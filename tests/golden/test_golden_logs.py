"""Golden logs: with the recorded times, ids, salts, nonces and keys the engine writes the same bytes.

Whoever changes the way of a turn through the code changes no golden log. Whoever changes what a log looks
like, or what a step does, writes them anew with `python tests/golden/write.py` and explains the difference.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from golden_logs import (
    describe_first_difference,
    list_golden_logs,
    load_golden_store,
    read_golden_log,
    split_conversations,
    write_scenario,
)
from golden_scenarios import SCENARIOS

from toolchart.engine.log.record import RecordedAsk, RecordLine
from toolchart.engine.log.replay import replay_conversation
from toolchart.engine.log.verify import verify_store
from toolchart.specs.charts import list_shipped_charts
from toolchart.specs.flows import list_shipped_flows
from toolchart.states import machine
from toolchart.states.errors import LogDamaged
from toolchart.states.events import Outcome
from toolchart.states.vocabulary import get_effects, get_events


def test_every_scenario_has_its_golden_log() -> None:
    """No scenario is without a golden log, and none is left over."""
    assert list_golden_logs() == sorted(SCENARIOS), "python tests/golden/write.py"


def test_every_shipped_chart_and_flow_has_a_golden_log() -> None:
    """Whatever ships is guarded."""
    names = [name.removeprefix("flow-") for name in SCENARIOS]
    for shipped in (*list_shipped_charts(), *list_shipped_flows()):
        assert any(name == shipped or name.startswith(f"{shipped}-") for name in names), shipped


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engine_writes_the_golden_log(name: str) -> None:
    """Driven live with the same inputs, the engine writes the same bytes: records and checkpoints."""
    golden, now = read_golden_log(name), write_scenario(name)
    assert now == golden, (
        f"{name}, {describe_first_difference(golden, now)}\n\n"
        "If this change of the log is meant: python tests/golden/write.py"
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_was_read_before_changes_no_byte(name: str) -> None:
    """A process that has replayed a log writes what another one writes: equal charts share a machine, and one
    that comes from a log may have its effects in another order."""
    conversations = split_conversations(read_golden_log(name))
    store: Any = load_golden_store(conversations)
    forget_machines()
    kept = [replayed.step for each in conversations for replayed in replay_conversation(store, each)]
    assert write_scenario(name) == read_golden_log(name), "the log depends on what was read before"
    assert kept


@pytest.mark.parametrize("name", list_golden_logs())
def test_the_golden_log_is_derived(name: str) -> None:
    """The chain holds, and `replay` derives every record of every conversation.

    What has ended has nothing open, so the next turn has nothing to cancel.
    """
    conversations = split_conversations(read_golden_log(name))
    store: Any = load_golden_store(conversations)
    assert [outcome for outcome in verify_store(store) if isinstance(outcome, LogDamaged)] == []
    for conversation, lines in conversations.items():
        steps = list(replay_conversation(store, conversation))
        assert len(steps) == len(lines)
        snapshots = [replayed.step.snapshot for replayed in steps]
        assert not any(snapshot.open_effects for snapshot in snapshots if snapshot.has_ended)


def forget_machines() -> None:
    """Let no machine be kept of what this process did before."""
    machine._kept_machines.clear()
    gc.collect()


def iterate_records() -> Iterator[dict[str, Any]]:
    """The records of all golden logs."""
    for name in list_golden_logs():
        for lines in split_conversations(read_golden_log(name)).values():
            yield from map(json.loads, lines)


def test_every_event_effect_outcome_and_mark_stands_in_a_golden_log() -> None:
    """Each type of event, each kind of effect, each outcome of a call, each key of a record."""
    events, effects, outcomes, keys = set(), set(), set(), set()
    kinds_by_name: dict[str, str] = {}
    for record in iterate_records():
        event = record.get("event", {})
        kinds_by_name |= {name: next(iter(row)) for name, row in event.get("effects", {}).items()}
        events.add(event.get("type"))
        outcomes.add(event.get("outcome"))
        effects |= {kinds_by_name.get(ask["effect"], ask["effect"]) for ask in record.get("asks", ())}
        keys |= {*record, *(f"asks/{key}" for ask in record.get("asks", ()) for key in ask)}
    assert sorted({row.name for row in get_events().values()} - events) == []
    assert sorted({row.name for row in get_effects().values()} - effects) == []
    nowhere_given = {"cancelled"}
    assert sorted(set(get_args(Outcome)) - outcomes - nowhere_given) == []
    assert sorted(set(RecordLine.__struct_fields__) - keys) == []
    assert sorted({f"asks/{key}" for key in RecordedAsk.__struct_fields__} - keys) == []


def test_the_golden_logs_stay_small() -> None:
    """They can be read in a difference."""
    assert sum(len(read_golden_log(name)) for name in list_golden_logs()) < 1_750_000
