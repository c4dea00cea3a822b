"""Families of the fuzzer whose input is edited recorded data: replies, streams, charts, logs and imports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from agents import make_engine, reply_with_calls
from hostile_values import build_text, build_value, edit_bytes, edit_value
from recorded_exchanges import Exchange, read_cassette, read_recorded_reply

from toolchart.app.cli.commands.reading.show import format_record
from toolchart.engine.exchange.exports import export_openai
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.exchange.sequence import draw_sequence, read_sequence
from toolchart.engine.log.family import list_children
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.record import GENESIS, seal_line
from toolchart.engine.log.replay import load_conversation, replay_conversation
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import verify_conversation
from toolchart.engine.reading.messages import collect_transcript
from toolchart.engine.reading.visited_path import draw_conversation_path
from toolchart.specs.charts import list_shipped_charts, load_chart
from toolchart.states.chart.loading import parse_chart
from toolchart.states.errors import ToolchartError
from toolchart.states.machine import get_machine

TESTS = Path(__file__).resolve().parents[1]
AT = "2026-01-01T00:00:00.000Z"


@cache
def _list_exchanges(is_streamed: bool) -> list[Exchange]:
    """The recorded exchanges of our own corpus."""
    paths = sorted((TESTS / "corpus" / "cassettes").rglob("*.y*ml"))
    exchanges = [exchange for path in paths for exchange in read_cassette(path)]
    return [exchange for exchange in exchanges if exchange.is_streamed == is_streamed]


def _read_edited(random: Random, exchange: Exchange, body: bytes) -> None:
    from msgspec.structs import replace

    read_recorded_reply(replace(exchange, response_body=body))


def fuzz_replies(random: Random) -> None:
    """A recorded answer or error of any host, with edited bytes or edited values."""
    exchange = random.choice(_list_exchanges(False))
    body = exchange.response_body
    if random.random() < 0.7:
        with contextlib.suppress(ValueError):
            body = json.dumps(edit_value(random, json.loads(body))).encode()
    else:
        body = edit_bytes(random, body)
    _read_edited(random, exchange, body)


def fuzz_streams(random: Random) -> None:
    """A recorded stream of any host, with edited bytes or edited frames."""
    exchange = random.choice(_list_exchanges(True))
    body = exchange.response_body
    if random.random() < 0.7:
        lines = body.split(b"\n")
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(lines))
            lines[place] = _edit_line(random, lines[place])
        body = b"\n".join(lines)
    else:
        body = edit_bytes(random, body)
    _read_edited(random, exchange, body)


def _edit_line(random: Random, line: bytes) -> bytes:
    prefix = b"data: " if line.startswith(b"data: ") else b""
    try:
        return prefix + json.dumps(edit_value(random, json.loads(line[len(prefix) :]))).encode()
    except ValueError:
        return line if random.random() < 0.5 else b""


@cache
def _list_chart_documents() -> list[Any]:
    return [load_chart(name).document for name in list_shipped_charts()]


def fuzz_shipped_charts(random: Random) -> None:
    """A shipped chart with edited nodes; one that loads is compiled."""
    document = edit_value(random, random.choice(_list_chart_documents()))
    text = yaml.safe_dump(document, allow_unicode=True)
    get_machine(parse_chart(text if random.random() < 0.8 else text[: random.randint(0, len(text))]))


@cache
def _list_logs() -> list[list[bytes]]:
    """The lines of recorded conversations."""
    logs = []
    calls = reply_with_calls(("calculator", {"expression": "17*27"}), ("echo", {"text": "x"}))
    for chart in ("tool_loop", "full", "approval"):
        store = MemoryStore()
        make_engine([calls, "459"], log=store, chart=chart).run("17*27?", conversation="c")
        logs.append(list(store.read_lines("c")))
    return logs


def fuzz_logs(random: Random) -> None:
    """A log with edited records whose hashes are made valid again, under every reader."""
    lines = list(random.choice(_list_logs()))
    place = random.randrange(len(lines))
    if random.random() < 0.2:
        lines[place] = edit_bytes(random, lines[place])
    else:
        lines = _seal_again(lines, place, edit_value(random, json.loads(lines[place])))
    store = MemoryStore()
    store.append("c", 0, lines)
    reader = random.choice(READERS)
    reader(store)


def _seal_again(lines: list[bytes], place: int, data: Any) -> list[bytes]:
    """The lines with one replaced, and with hashes that make the chain valid."""
    prev, sealed_lines = GENESIS, []
    for seq, line in enumerate(lines):
        record = data if seq == place else json.loads(line)
        if not isinstance(record, dict):
            return [*lines[:place], json.dumps(record).encode(), *lines[place + 1 :]]
        record.pop("hash", None)
        if "prev" in record:
            record["prev"] = prev
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        line, prev = seal_line(text.encode("utf-8", "surrogatepass"))
        sealed_lines.append(line)
    return sealed_lines


def _draw_sequence(store: MemoryStore, form: str) -> object:
    return draw_sequence(read_sequence("c", read_conversation(store, "c")), form)


READERS: tuple[Callable[[MemoryStore], Any], ...] = (
    lambda store: verify_conversation(store.read_lines("c"), "c"),
    lambda store: collect_transcript(read_conversation(store, "c")),
    lambda store: export_openai(store, "c"),
    lambda store: _draw_sequence(store, "svg"),
    lambda store: _draw_sequence(store, "mermaid"),
    lambda store: [format_record(record) for record in read_conversation(store, "c")],
    lambda store: list_children(store, "c"),
    lambda store: draw_conversation_path(store, "c"),
    lambda store: list(replay_conversation(store, "c")),
    lambda store: load_conversation(store, "c"),
)
"""What reads a conversation."""

MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "17*27?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "calculator", "arguments": '{"expression": "17*27"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "calculator", "content": "459"},
    {"role": "assistant", "content": "459", "refusal": None},
]


def fuzz_imports(random: Random) -> None:
    """An edited message list; one that is imported is verified, exported and imported again."""
    value = edit_value(random, MESSAGES) if random.random() < 0.9 else build_value(random)
    lines = import_messages(value, "c", AT, build_text(random, 2))
    store = MemoryStore()
    store.append("c", 0, lines)
    verify_conversation(store.read_lines("c"), "c")
    try:
        exported = export_openai(store, "c")
    except ToolchartError as error:
        raise AssertionError(f"imported, but not exported: {error}") from error
    import_messages(exported, "c", AT)
