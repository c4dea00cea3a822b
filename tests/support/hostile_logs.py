"""Logs that a clever person wrote: correct hashes, and anything at all in the records.

Each seed takes some real conversations, changes a few values of their JSON at random places, and computes
the hash chain and the links between conversations again. So nothing but the reader stands between the content
and a traceback.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import agents
import child_agents

from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.states.ports import Store

Conversations = dict[str, list[dict[str, Any]]]
"""The records of some conversations by id, as JSON data."""

_NASTY_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**70), 10**40, 1.5, -0.0, 1e16, 1e308),
    *("", "a", "0", "\0", "\ud800", "\u2028", "c", "f", "c.1", "../x", "a" * 300, "[", "{{a}}", "1e999"),
    *(
        [],
        {},
        [[]],
        [None],
        [{}],
        {"": 0},
        {"type": "replied"},
        {"type": 1},
        {"result": "x"},
        {"role": "user"},
    ),
    *("configured", "forked", "continued", "tool_finished", "reply", "message", "history", "inbox", "agent"),
]


@cache
def write_base_logs() -> dict[str, tuple[bytes, ...]]:
    """Real conversations: tool calls, a fork, and a parent with its children."""
    store = MemoryStore()
    calls = agents.reply_with_calls(("echo", {"text": "x"}), ("calculator", {"expression": "1+1"}))
    engine = agents.make_engine([calls, "done", calls, "more", "again"], log=store)
    engine.run("go", conversation="g")
    engine.run("go on", conversation="g")
    engine.close()
    with agents.make_engine(["other"], log=store) as forker:
        forker.conversation("g").fork(3, name="h", run_tools=True)
    _write_family(store)
    return {name: tuple(store.read_lines(name)) for name in store.list_conversations()}


def _write_family(store: MemoryStore) -> None:
    """A conversation `p` that runs an agent, in the conversation `p.1`."""
    effects = {
        "work": {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}},
        "publish": {"answer": "{{outcome}}"},
    }
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    model = child_agents.FunctionModel(child_agents.repeat_words)
    with child_agents.make_engine(spec, model, log=store) as engine:
        engine.run("hello", conversation="p")


def write_hostile_log(seed: int) -> Store:
    """A store with conversations whose content was changed and whose hashes are right."""
    dice = random.Random(seed)
    conversations: Conversations = {
        name: [json.loads(line) for line in lines] for name, lines in write_base_logs().items()
    }
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        records = conversations[dice.choice(sorted(conversations))]
        _change_somewhere(dice, dice.choice(records))
    if not dice.randrange(8):
        records = conversations[dice.choice(sorted(conversations))]
        records.insert(dice.randrange(len(records) + 1), json.loads(json.dumps(dice.choice(records))))
    store = MemoryStore()
    for name, lines in chain_conversations(conversations, is_strict=bool(dice.randrange(5))).items():
        store.append(name, 0, lines)
    return store


def chain_conversations(conversations: Mapping[str, Any], *, is_strict: bool) -> dict[str, list[bytes]]:
    """The lines of these records with right hashes; if `is_strict`, with right numbers and links too."""
    return _Chaining(conversations, is_strict).build_lines()


class _Chaining:
    """Computes hashes on demand, because conversations name hashes of each other."""

    def __init__(self, conversations: Mapping[str, Any], is_strict: bool) -> None:
        self._conversations = conversations
        self._is_strict = is_strict
        self._places = {
            record["hash"]: (name, seq)
            for name, records in conversations.items()
            for seq, record in enumerate(records)
            if isinstance(record.get("hash"), str)
        }
        self._lines: dict[tuple[str, int], tuple[bytes, str]] = {}
        self._begun: set[tuple[str, int]] = set()

    def build_lines(self) -> dict[str, list[bytes]]:
        return {
            name: [self._build_line(name, seq)[0] for seq in range(len(records))]
            for name, records in self._conversations.items()
        }

    def _build_line(self, name: str, seq: int) -> tuple[bytes, str]:
        place = (name, seq)
        if place in self._lines:
            return self._lines[place]
        if place in self._begun:
            return b"", "0" * 64
        self._begun.add(place)
        record = {**self._conversations[name][seq]}
        record.pop("hash", None)
        if self._is_strict:
            record["seq"] = seq
            record["event"] = self._renew_heads(record.get("event"))
        if self._is_strict or "prev" in record:
            record.pop("prev", None)
            record["prev"] = self._build_line(name, seq - 1)[1] if seq else "0" * 64
        body = json.dumps(record, separators=(",", ":")).encode()
        digest = hashlib.sha256(body).hexdigest()
        self._lines[place] = (body[:-1] + b',"hash":"' + digest.encode() + b'"}', digest)
        return self._lines[place]

    def _renew_heads(self, event: Any) -> Any:
        if not isinstance(event, dict):
            return event
        renewed = {**event}
        if isinstance(event.get("parent"), dict):
            renewed["parent"] = self._renew_heads(event["parent"])
        place = self._places.get(event["head"]) if isinstance(event.get("head"), str) else None
        if place is not None:
            renewed["head"] = self._build_line(*place)[1]
        return renewed


def _change_somewhere(dice: random.Random, value: Any) -> None:
    """Change one value at a random place of a JSON object, in place."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = dice.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and dice.randrange(4):
            value = value[key]
            continue
        match dice.randrange(6):
            case 0:
                del value[key]
            case 1 if isinstance(value, dict):
                value[dice.choice(("type", "effect", "extra", "seq", "head", ""))] = _choose_value(dice)
            case 2 if isinstance(value[key], str):
                value[key] = _change_text(dice, value[key])
            case 3 if isinstance(value[key], list):
                value[key] = value[key] * 2
            case _:
                value[key] = _choose_value(dice)
        return


def _choose_value(dice: random.Random) -> Any:
    value = dice.choice(_NASTY_VALUES)
    if not dice.randrange(20):
        for _ in range(dice.choice((10, 150, 300))):
            value = [value] if dice.randrange(2) else {"a": value}
    return json.loads(json.dumps(value))


def _change_text(dice: random.Random, text: str) -> str:
    position = dice.randrange(len(text) + 1)
    return text[:position] + dice.choice(("", "\0", "\ud800", "]", "9", "T", ".1")) + text[position + 1 :]
