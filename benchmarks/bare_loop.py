"""A lower bound for the loop: the log of the engine, by a loop that knows chart, model and tool by heart.

    python benchmarks/bare_loop.py [--rounds 15] [--iterations 1000]

Of the engine it uses values, salts and the store. There is no chart, no snapshot, no effect, no registry, no
schema, no policy, no lease, no limit, nobody who listens, and nothing that could be cancelled: what follows
stands in the code. What is left is what a record promises: an event that equals its own JSON, the digests of
messages, request and body, the hash chain, a salt, and a commit before each model call and each tool run.

First it shows that its records are those of the engine: `replay` derives each of them again. Then it prints
the least processor time of the rounds, beside the plain loop and the engine. `instructions.py` counts it as
`bare`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextvars
import gc
import hashlib
import tempfile
import time
from base64 import urlsafe_b64encode
from pathlib import Path

import loop
import msgspec
import orjson
from msgspec.structs import replace

from toolchart.engine.log.record import generate_salt, seal_line
from toolchart.engine.log.replay import load_conversation, replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.clock import SystemClock
from toolchart.states.events import Replied, ToolFinished
from toolchart.states.messages import Message, Request, ToolCall

_NOBODY = b'"id":0,"name":"","state":"","kind":"","result":""'
_REVIEW = b'{"type":"review_calls",' + _NOBODY + b',"calls":[%b],"allowed":["add"]}'
_RUN = b'{"type":"run_tools",' + _NOBODY + b',"calls":[%b],"refused":[],"allowed":["add"]}'
_CALL = (
    b'{"type":"call_model",'
    + _NOBODY
    + b',"request":{"model":"m","messages":"%b","tools":"%b","options":{},"writes_tools_as_text":false,'
    b'"turn":0,"iteration":0},"host":"","schema":null,"own_messages":0,"summarises":""}'
)

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode_reply = msgspec.json.Decoder(Replied).decode
_decode_outcome = msgspec.json.Decoder(ToolFinished).decode

_REPLIED = (
    b'{"seq":%d,"at":"%b","turn":1,"iteration":%d,"event":%b,"source":"prompting","target":"awaiting_tools",'
    b'"fired":[{"row":0}],'
    b'"guards":{"finish_reason == \'tool_calls\'":true},'
    b'"asks":[{"id":%d,"effect":"review_calls","digest":"%b"}],"messages":["reply"],'
    b'"salt":"%b","prev":"%b"}'
)
_REVIEWED = (
    b'{"seq":%d,"at":"%b","turn":1,"iteration":%d,'
    b'"event":{"type":"reviewed","effect":%d,"verdicts":[{"call_id":%b,"ruling":"run"}]},'
    b'"source":"awaiting_tools","target":"executing",'
    b'"fired":[{"row":0}],'
    b'"guards":{"undecided_calls == 0":true},'
    b'"asks":[{"id":%d,"effect":"run_tools","digest":"%b","calls":[%b]}],"salt":"%b","prev":"%b"}'
)
_FINISHED = (
    b'{"seq":%d,"at":"%b","turn":1,"iteration":%d,"event":%b,"source":"executing","target":"prompting",'
    b'"fired":[{"row":2}],'
    b'"guards":{"pending_calls > 0":false,"iteration >= max_iterations":false},'
    b'"asks":[{"id":%d,"effect":"call_model","digest":"%b","messages":%d}],'
    b'"messages":[{"result":%b}],"salt":"%b","prev":"%b"}'
)


async def begin_log(iterations: int) -> MemoryStore:
    """A log that the engine has begun: its first two records, after which the model is to be asked."""
    engine = loop.make_engine(iterations, "memory", calls=0)
    await loop.run_turn(engine, 0)
    store = MemoryStore()
    store.append("c", 0, list(engine.store.read_lines("c"))[:2])
    return store


class BareLoop:
    """Goes on with a log that `begin_log` has made."""

    def __init__(self, iterations: int, store: MemoryStore) -> None:
        conversation = load_conversation(store, "c")
        assert conversation is not None
        snapshot = conversation.snapshot
        self._store = store
        self._model = loop.make_scripted_model(iterations)
        self._tools = {"add": loop.add_sync}
        self._clock = SystemClock()
        self._messages: list[Message] = list(snapshot.messages)
        self._message_digest = snapshot.messages.digest
        self._offered_tools = snapshot.offered_tools
        self._head = conversation.head.encode()
        self._seq, self._effect, self._iteration = 2, 1, 0

    async def run(self, iterations: int) -> None:
        """Run so many iterations; the turn stays open behind them."""
        for _ in range(iterations):
            call, lines = await self._ask_model()
            self._store.append("c", self._seq, lines)
            line = self._run_tool(call)
            self._store.append("c", self._seq + 2, [line])
            self._seq += 3
            self._effect += 3

    async def _ask_model(self) -> tuple[ToolCall, list[bytes]]:
        """The next call, and the records of the reply and of its review."""
        digest = hashlib.sha256(b'{"digest":"%b"}' % self._compute_request_digest()).hexdigest()[:32]
        request = Request(model="m", messages=self._messages, tools=self._offered_tools, turn=1)
        reply = replace(self._model(replace(request, iteration=self._iteration)), wire_digest=digest)
        event = Replied(effect=self._effect, reply=reply)
        data = _encode(event)
        plain = _decode_reply(data)
        assert plain == event
        (call,) = plain.reply.tool_calls
        self._append_message(Message(role="assistant", content=reply.content, tool_calls=(call,)))
        at, seq, effect, id_ = self._clock.now().encode(), self._seq, self._effect, _encode(call.id)
        call_data = _encode_sorted(call)
        replied = _REPLIED % (
            *(seq, at, self._iteration, data, effect + 1, _digest(_REVIEW % call_data)),
            *(generate_salt().encode(), self._head),
        )
        line, head = seal_line(replied)
        reviewed = _REVIEWED % (
            *(seq + 1, at, self._iteration, effect + 1, id_, effect + 2),
            *(_digest(_RUN % call_data), id_),
            *(generate_salt().encode(), head.encode()),
        )
        next_line, head = seal_line(reviewed)
        self._head = head.encode()
        return call, [line, next_line]

    def _run_tool(self, call: ToolCall) -> bytes:
        """Run a call; the record of its outcome."""
        arguments, start_s = call.arguments or {}, time.perf_counter()
        assert type(arguments["a"]) is int
        assert type(arguments["b"]) is int
        value = contextvars.copy_context().run(self._tools[call.name], **arguments)
        ms = round((time.perf_counter() - start_s) * 1000, 3)
        result = {"success": True, "result": value, "tool_name": call.name, "execution_time_ms": ms}
        event = ToolFinished(
            effect=self._effect + 2,
            call_id=call.id,
            outcome="succeeded",
            result=result,
            arguments_digest=_digest(_encode_sorted(arguments)).decode(),
        )
        data = _encode(event)
        plain = _decode_outcome(data)
        assert plain == event
        text = orjson.dumps(plain.result, option=orjson.OPT_SORT_KEYS).decode()
        self._append_message(Message(role="tool", content=text, tool_call_id=call.id, name=call.name))
        self._iteration += 1
        finished = _FINISHED % (
            *(self._seq + 2, self._clock.now().encode(), self._iteration, data, self._effect + 3),
            *(self._compute_effect_digest(), len(self._messages), _encode(call.id)),
            *(generate_salt().encode(), self._head),
        )
        line, head = seal_line(finished)
        self._head = head.encode()
        return line

    def _append_message(self, message: Message) -> None:
        self._messages.append(message)
        data = self._message_digest.encode() + _encode_sorted(message)
        self._message_digest = hashlib.sha256(data).hexdigest()

    def _compute_request_digest(self) -> bytes:
        parts: tuple[object, ...] = ("m", {}, False, self._offered_tools.digest, self._message_digest)
        return hashlib.sha256(_encode_sorted(parts)).hexdigest()[:32].encode()

    def _compute_effect_digest(self) -> bytes:
        tools = self._offered_tools.digest.encode()
        return _digest(_CALL % (self._message_digest.encode(), tools))


def _digest(data: bytes) -> bytes:
    return urlsafe_b64encode(hashlib.sha256(data).digest()[:24])


async def begin_loop(iterations: int) -> BareLoop:
    """A bare loop on a log that the engine has begun."""
    return BareLoop(iterations, await begin_log(iterations))


async def check_records(iterations: int = 20) -> int:
    """Write a log and derive it again; how many records are equal.

    Raises:
        ReplayMismatch: a record is not the one of the engine.
    """
    store = await begin_log(iterations)
    await BareLoop(iterations, store).run(iterations)
    return sum(1 for _ in replay(store.read_lines("c"), "c"))


async def measure_us(kind: str, iterations: int, path: Path) -> float:
    """Measure microseconds of processor time per iteration; the beginning is not measured."""
    if kind == "floor":
        work = loop.run_plain_loop(iterations, loop.open_flushed_log(path))
    elif kind == "bare":
        work = (await begin_loop(iterations)).run(iterations)
    else:
        work = loop.run_turn(loop.make_engine(iterations, "memory", loop.TOOLS[kind]), iterations)
    gc.collect()
    start_s = time.process_time()
    await work
    return (time.process_time() - start_s) / iterations * 1e6


def main() -> None:
    """Parse the options, check, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=1000)
    options = parser.parse_args()
    print(f"{asyncio.run(check_records())} records, all as the engine derives them")
    costs: dict[str, list[float]] = {"floor": [], "bare": [], "inline": []}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(options.rounds):
            for kind, rows in costs.items():
                rows.append(asyncio.run(measure_us(kind, options.iterations, Path(name) / "log")))
    for kind, rows in costs.items():
        ratio = min(rows) / min(costs["floor"])
        print(f"{kind:8} {min(rows):8.1f} us an iteration, {ratio:.2f} times the floor")


if __name__ == "__main__":
    main()
