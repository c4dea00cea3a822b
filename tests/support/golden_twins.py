"""Twins of golden logs: one value differs, and hashes are computed again, so that only derivation can notice.

A twin is named by the path of the value that differs: `asks/*/digest` is a field of any ask of a record,
`event/replied/reply/content` one of an event. What people and models write (arguments, results, forms) is one
value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from golden_feeds import replace_everywhere
from golden_logs import (
    encode_world,
    list_golden_logs,
    load_golden_store,
    read_golden_log,
    split_conversations,
)
from golden_scenarios import run_scenario
from msgspec.structs import replace

from toolchart.engine.log.replay import replay_conversation
from toolchart.states.core.step import Step, step
from toolchart.states.effects import Effect
from toolchart.states.errors import ToolchartError
from toolchart.states.events import Event
from toolchart.states.machine import Machine
from toolchart.states.snapshot import Snapshot

Conversations = Mapping[str, Sequence[bytes]]

CHAIN = ("seq", "at", "salt", "prev", "hash", "checkpoint", "digest")
"""Keys of a record that the chain, or nothing at all, is built of."""

FREE = (
    "arguments",
    "result",
    "content",
    "value",
    "variables",
    "spec",
    "output",
    "own",
    "definition",
    "options",
)
"""Keys whose content people, models and tools choose: one value, whatever is in it."""


class Place(msgspec.Struct, frozen=True):
    """Where a value stands."""

    log: str
    conversation: str
    seq: int
    keys: tuple[str | int, ...]


def iterate_places() -> Iterator[tuple[str, Place]]:
    """Every value of every golden log that can be read, each with its path."""
    for log in list_golden_logs():
        conversations = split_conversations(read_golden_log(log))
        for name, lines in conversations.items():
            for seq, line in enumerate(lines):
                record = json.loads(line)
                for keys in _iterate_leaves({key: record[key] for key in record if key not in CHAIN}):
                    yield _describe_path(keys, record["event"]["type"]), Place(log, name, seq, keys)


def _iterate_leaves(value: Any, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The keys of each value that holds no other one; of free content, of the first."""
    if isinstance(value, dict | list) and value:
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            leaves = _iterate_leaves(item, (*keys, key))
            yield from [next(leaves)] if key in FREE else leaves
        if isinstance(value, list) and len(value) > 1 and value[0] != value[1]:
            yield (*keys, "order")
    else:
        yield keys


def _describe_path(keys: Sequence[str | int], event_type: str) -> str:
    """A path without numbers, names that people chose, and what stands in free content."""
    words: list[str] = []
    for key in keys:
        words.append("*" if isinstance(key, int) else key)
        if key in FREE and len(words) > 1:
            break
        if words[0] == "guards" or words[-1] in ("effects", "tools", "texts", "sources", "limits"):
            break
    if words[0] == "event":
        words.insert(1, event_type)
    return "/".join([*words[:1], "*"] if words[0] == "guards" else words)


# -- changing a value ------------------------------------------------------------------------------


def list_other_values(value: Any) -> list[Any]:
    """Other values of the same kind: one near by, and for numbers one far away."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, value + 1_000_000, 0]
        case float():
            return [value * 2 + 0.125, 0.0]
        case str():
            last = value[-1:]
            return [value[:-1] + ("1" if last != "1" else "2") if last.isalnum() else value + "1"]
        case None:
            return ["1", 0]
        case list():
            return [["1"]]
    return [{"1": "1"}]


def make_twins(conversations: Conversations, place: Place) -> Iterator[dict[str, list[bytes]]]:
    """The conversations of a golden log with other values at a place, chained again."""
    record = json.loads(conversations[place.conversation][place.seq])
    holder, last = record, place.keys[-1]
    for key in place.keys[:-1]:
        holder = holder[key]
    if last == "order":
        holder[0], holder[1] = holder[1], holder[0]
        yield _replace_record(conversations, place, record)
        return
    original = holder[last]
    for value in list_other_values(original):
        if value != original or type(value) is not type(original):
            holder[last] = value
            yield _replace_record(conversations, place, record)


def _replace_record(conversations: Conversations, place: Place, record: Any) -> dict[str, list[bytes]]:
    changed = {name: list(lines) for name, lines in conversations.items()}
    changed[place.conversation][place.seq] = json.dumps(record, separators=(",", ":")).encode()
    return rechain(changed)


def rechain(conversations: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """The same records with hashes that fit, in links, in forks and in what children answered."""
    while True:
        renamed: dict[bytes, bytes] = {}
        for lines in conversations.values():
            for seq, line in enumerate(lines):
                for before, now in renamed.items():
                    line = line.replace(before, now)
                body, old = line[: -len(_TAIL) - 66] + b"}", line[-66:-2]
                new = hashlib.sha256(body).hexdigest().encode()
                lines[seq] = body[:-1] + _TAIL + new + b'"}'
                if new != old:
                    renamed[old] = new
        if not renamed:
            return conversations


_TAIL = b',"hash":"'


# -- programs that do something else ---------------------------------------------------------------


def make_program(edit: Callable[[Effect], Effect | None]) -> Callable[..., Step]:
    """A core that asks for edited effects; `edit` gives None where an effect stays as it is."""

    def step_otherwise(machine: Machine, snapshot: Snapshot, event: Event) -> Step:
        new_step = step(machine, snapshot, event)
        effects = {effect.id: edit(effect) or effect for effect in new_step.effects}
        open_effects = tuple(effects.get(effect.id, effect) for effect in new_step.snapshot.open_effects)
        return replace(
            new_step,
            effects=tuple(effects.values()),
            snapshot=replace(new_step.snapshot, open_effects=open_effects),
        )

    return step_otherwise


def write_log_of(program: Callable[..., Step], scenario: str) -> dict[str, list[bytes]]:
    """The conversations that a program with another core writes in a scenario."""
    with replace_everywhere(step, program):
        return split_conversations(encode_world(run_scenario(scenario)))


# -- asking replay -----------------------------------------------------------------------------------


def find_refusal(
    conversations: Conversations, conversation: str, program: Callable[..., Step] = step
) -> str | None:
    """Why a conversation is not derived; None where it is.

    Args:
        program: the core that derives it.
    """
    store = load_golden_store({name: list(lines) for name, lines in conversations.items()})
    try:
        with replace_everywhere(step, program):
            for _ in replay_conversation(store, conversation):
                pass
    except ToolchartError as error:
        return f"{type(error).__name__}: {error}"
    return None
