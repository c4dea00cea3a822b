"""What a record says about an effect that was asked for, and what its digest covers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from toolchart.engine.log import record
from toolchart.engine.log.continuation.checkpoint import restore_effect, store_effect
from toolchart.engine.log.record import describe_ask
from toolchart.engine.log.record_schema import _read_field_docs
from toolchart.engine.log.replay import read_chain, replay
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.runtime.performers import EffectPerformer
from toolchart.states import effects
from toolchart.states.core.encoding import decode_event, encode_event_json
from toolchart.states.effects import (
    CallModel,
    Effect,
    RefusedCall,
    Submission,
    compute_arguments_digest,
    compute_effect_digest,
    compute_shown_digest,
)
from toolchart.states.errors import ReplayMismatch
from toolchart.states.events import Decided, Event
from toolchart.states.message_list import ContextView, MessageList, OfferedTools, RequestMessages
from toolchart.states.messages import Message, Request, ToolCall, ToolDefinition
from toolchart.states.ports import Store
from toolchart.states.snapshot import OpenCall, Snapshot
from toolchart.states.vocabulary import get_events
from toolchart.tools.execution.executor import ToolExecutor

GOLDEN = Path(__file__).parents[1] / "golden/logs"

IDENTITY = ("id", "name", "state", "result")
"""Fields that an ask shows as they are."""


class Weigh(Effect, frozen=True, kw_only=True, tag="test_weigh"):
    """An effect as another package might add it."""

    grams: float = 0.0
    labels: tuple[str, ...] = ()


OWN_CLASSES = [
    value for value in vars(effects).values() if isinstance(value, type) and issubclass(value, Effect)
]

TOOL = ToolDefinition(name="add", description="Add.")

MESSAGES = MessageList([Message(role="user", content="go")])

REQUEST = Request(
    model="m",
    messages=RequestMessages("Be brief.", MESSAGES),
    tools=OfferedTools([TOOL]),
    turn=1,
    iteration=2,
)

SAMPLES: dict[Any, list[Any]] = {
    "str": ["a", "b"],
    "int": [1, 2],
    "float": [1.0, 2.5],
    "bool": [False, True],
    "dict[str, Any]": [{}, {"a": 1}, {"a": 2}, {"a": [1, {"b": None}]}],
    "dict[str, Any] | None": [None, {}, {"type": "object"}],
    "tuple[str, ...]": [(), ("a",), ("a", "b"), ("b", "a")],
    "tuple[int, ...]": [(), (1,), (1, 2)],
    "tuple[Message, ...]": [(), tuple(MESSAGES)],
    "tuple[ToolCall, ...]": [
        (),
        (ToolCall(id="1", name="add", arguments={"a": 1}),),
        (ToolCall(id="2", name="add", arguments={"a": 1}),),
        (ToolCall(id="1", name="pay", arguments={"a": 1}),),
        (ToolCall(id="1", name="add", arguments={"a": 2}),),
        (ToolCall(id="1", name="add", arguments={"a": 10**30}),),
        (ToolCall(id="1", name="add", arguments={"a": "\ud800"}),),
        (ToolCall(id="1", name="add", raw="{", problem="cut off"),),
    ],
    "tuple[RefusedCall, ...]": [
        (),
        (RefusedCall(call=ToolCall(id="1", name="add"), outcome="denied", reason="no"),),
        (RefusedCall(call=ToolCall(id="1", name="add"), outcome="skipped", reason="no"),),
        (RefusedCall(call=ToolCall(id="1", name="add"), outcome="denied", reason="never"),),
    ],
    "Submission | UnsetType": [
        UNSET,
        Submission(key="k"),
        Submission(key="k", job="j"),
        Submission(key="k", job="j", calls=2),
        Submission(key="k", job="j", calls=2, at="2026-03-01T12:00:00.000Z"),
        Submission(key="k", job="j", calls=2, jobs=1),
    ],
    "ContextView": [ContextView(), ContextView(start=2), ContextView(summary="short")],
    "Request": [
        REQUEST,
        replace(REQUEST, model="n"),
        replace(REQUEST, messages=RequestMessages("Be long.", MESSAGES)),
        replace(
            REQUEST, messages=RequestMessages("Be brief.", MessageList([Message(role="user", content="no")]))
        ),
        replace(REQUEST, tools=OfferedTools([replace(TOOL, description="Subtract.")])),
        replace(REQUEST, tools=()),
        replace(REQUEST, options={"temperature": 1.0}),
        replace(REQUEST, writes_tools_as_text=True),
    ],
}
"""Different values for fields, by their types. A field of another type needs a row here."""


def list_effects(kind: type[Effect]) -> Iterator[Effect]:
    """One effect for each value of each field, the others as in the first one."""
    fields = [field for field in kind.__struct_fields__ if field not in IDENTITY]
    types = {name: annotation for base in reversed(kind.__mro__) for name, annotation in _read_types(base)}
    first: dict[str, Any] = {"id": 7, "name": "ask", "state": "asking", "result": "x"}
    first |= {name: SAMPLES[types[name]][0] for name in fields}
    yield kind(**first)
    for name in fields:
        for value in SAMPLES[types[name]][1:]:
            yield kind(**{**first, name: value})


def _read_types(kind: type) -> Iterator[tuple[str, str]]:
    for name, annotation in vars(kind).get("__annotations__", {}).items():
        yield name, str(annotation)


@pytest.mark.parametrize("kind", [*OWN_CLASSES, Weigh], ids=lambda kind: str(kind.__name__))
def test_the_digest_covers_every_field(kind: type[Effect], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two effects that differ in any field but those that an ask shows have different digests."""
    monkeypatch.setitem(record._ASK_DETAILS, Weigh, None)  # a class has its row, or nothing is recorded of it
    made = list(list_effects(kind))
    digests = [compute_effect_digest(effect) for effect in made]
    assert len(set(digests)) == len(made)
    for effect, digest in zip(made, digests, strict=True):
        same = replace(effect, id=9, name="other", state="elsewhere", result="y")
        assert compute_effect_digest(same) == digest
        ask = describe_ask(effect, Snapshot())
        assert (ask.id, ask.effect, ask.state, ask.result, ask.digest) == (7, "ask", "asking", "x", digest)


def test_a_field_that_cannot_be_covered_is_refused() -> None:
    """An effect that holds an object gets no digest, so that no record asks for it."""
    with pytest.raises(TypeError):
        compute_effect_digest(effects.CallFunction(id=1, name="x", state="s", arguments={"a": object()}))


@pytest.mark.parametrize("kind", OWN_CLASSES, ids=lambda kind: str(kind.__name__))
def test_an_effect_of_a_checkpoint_is_what_was_asked_for(kind: type[Effect]) -> None:
    """What a worker performs that goes on from a checkpoint has identity and digest of what was asked for."""
    for effect in list_effects(kind):
        if isinstance(effect, CallModel) and effect.request.messages != REQUEST.messages:
            continue  # its messages are not those of the conversation
        if isinstance(effect, CallModel) and effect.own_messages > 1:
            continue  # there is one
        offered = effect.request.tools if isinstance(effect, CallModel) else ()
        data = json.loads(json.dumps(store_effect(effect)))
        restored = restore_effect(data, MESSAGES, tuple(offered))
        assert compute_effect_digest(restored) == compute_effect_digest(effect)
        assert type(restored) is type(effect)
        assert [getattr(restored, name) for name in IDENTITY] == [getattr(effect, name) for name in IDENTITY]


# -- what performers got ---------------------------------------------------------------------------

ADD = agents.make_function_tool(
    "add",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "password": {}}},
    lambda arguments: arguments["a"] + arguments.get("b", 0),
)


def run_payment(arguments: Any, **more: Any) -> Store:
    """A turn with one call of `add`."""
    store = MemoryStore()
    script = [agents.reply_with_calls(("add", arguments)), "done"]
    with agents.make_engine(script, log=store, functions=[ADD], **more) as engine:
        engine.run("go", conversation="c")
    return store


def read_events(store: Store, kind: str) -> list[Any]:
    records = [record.decode_event() for record in read_chain(store.read_lines("c"), "c")]
    return [event for event in records if kind == event.TYPE]


def find_mismatch(store: Store) -> str:
    """Where `replay` finds the first difference; empty for none."""
    try:
        list(replay(store.read_lines("c"), "c"))
    except ReplayMismatch as mismatch:
        return mismatch.pointer
    return ""


def test_an_outcome_has_the_digest_of_what_the_tool_got() -> None:
    """It is that of the asked arguments; after a repair it is another one, and a note says why."""
    store = run_payment({"a": 1, "b": 2})
    (event,) = read_events(store, "tool_finished")
    assert event.arguments_digest == compute_arguments_digest({"b": 2, "a": 1})
    assert find_mismatch(store) == ""
    assert find_mismatch(run_payment({"a": "1", "b": 2})) == ""


def test_an_executor_that_hands_over_other_arguments_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that ran with arguments that nobody asked for is found in the log of the run."""
    judge = ToolExecutor._judge

    def judge_otherwise(executor: ToolExecutor, call: ToolCall, allowed: Any, may_wait: bool) -> Any:
        judgement = judge(executor, call, allowed, may_wait)
        return judgement and replace(judgement, arguments={**judgement.arguments, "b": 99})

    monkeypatch.setattr(ToolExecutor, "_judge", judge_otherwise)
    store = run_payment({"a": 1, "b": 2})
    assert find_mismatch(store) == "/event/arguments_digest"


def test_a_person_who_was_shown_something_else_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An approval has the digest of what was shown; one of other arguments than the call has is found."""

    async def approve(call: ToolCall) -> Decided:
        return Decided(call_id=call.id, approved=True, by="anna")

    rules: dict[str, Any] = {"approver": approve, "approval": [{"tools": "add", "decision": "ask"}]}
    store = run_payment({"a": 1, "b": 2}, **rules)
    (event,) = read_events(store, "decided")
    assert len(event.shown_digest) == 32
    assert find_mismatch(store) == ""
    ask = EffectPerformer._ask_approver

    async def ask_otherwise(performer: Any, approver: Any, open_call: OpenCall) -> Any:
        call = replace(open_call.call, arguments={"a": 1, "b": 1})
        return await ask(performer, approver, replace(open_call, call=call))

    monkeypatch.setattr(EffectPerformer, "_ask_approver", ask_otherwise)
    assert find_mismatch(run_payment({"a": 1, "b": 2}, **rules)) == "/event/shown_digest"


@pytest.mark.parametrize("arguments", [{"a": 1, "password": "hunter2"}, {"a": "1", "password": "hunter2"}])
def test_a_redacted_log_has_no_digest_of_secrets(arguments: dict[str, Any]) -> None:
    """The digests in a redacted log are those of the redacted values, or keyed: nobody can check a guess."""
    redact = {"keys": ["password"], "patterns": []}
    store = run_payment(arguments, redact=redact)
    (event,) = read_events(store, "tool_finished")
    assert event.arguments_digest
    guesses = [arguments, {**arguments, "a": 1}]
    assert event.arguments_digest not in [compute_arguments_digest(guess) for guess in guesses]
    assert find_mismatch(store) == ""


# -- reserved fields -------------------------------------------------------------------------------


def list_reserved_examples() -> list[tuple[str, str]]:
    """Type of an event and the example of a reserved field, from the table of `docs/log-format.md`."""
    page = (Path(__file__).parents[2] / "docs/log-format.md").read_text()
    table = page[page.index("### Reserved fields") : page.index("What a reply has beside text")]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [(kind, row[3].strip("` |")) for row in rows for kind in re.findall(r"`(\w+)`", row[1])]


@pytest.mark.parametrize(("kind", "example"), list_reserved_examples())
def test_reserved_fields_are_read_and_written_as_the_page_says(kind: str, example: str) -> None:
    """Each field is read from its example, is written as it was read, and is left out while it is empty."""
    golden = (json.loads(line) for path in GOLDEN.glob("*.jsonl") for line in path.read_bytes().splitlines())
    event = next(row["event"] for row in golden if row.get("event", {}).get("type") == kind)
    field = json.loads("{" + example + "}")
    assert not field.keys() & event.keys()
    written = json.loads(encode_event_json(decode_event({**event, **field}, "2026-01-01T00:00:00.000Z")))
    assert written == {**event, **field}


def test_every_reserved_field_stands_on_the_page() -> None:
    """The table of `docs/log-format.md` has all of them."""
    named = {(kind, example.split('"')[1]) for kind, example in list_reserved_examples()}
    docs = {(row.name, name) for row in get_events().values() for name in find_reserved_fields(row.type)}
    assert named == docs


def find_reserved_fields(kind: type) -> list[str]:
    """The fields of an event whose docstrings begin with "Reserved"."""
    bases = kind.__mro__[: kind.__mro__.index(Event) + 1]
    texts = {name: text for base in bases for name, text in _read_field_docs(base).items()}
    return [name for name, text in texts.items() if text.startswith("Reserved")]


def test_the_page_says_how_to_compute_a_digest() -> None:
    """The example of `docs/log-format.md` has the digest that stands beside it."""
    page = (Path(__file__).parents[2] / "docs/log-format.md").read_text()
    text = re.search(r'^\{"type":"run_tools".*\}$', page, re.MULTILINE)
    ask = re.search(r'`(\{"id":3,"effect":"run_tools".*?\})`', page)
    assert text is not None
    assert ask is not None
    digest = base64.urlsafe_b64encode(hashlib.sha256(text[0].encode()).digest()[:24]).decode()
    assert json.loads(ask[1])["digest"] == digest
    effect = msgspec.convert(json.loads(text[0]), effects.RunTools)
    assert compute_effect_digest(effect) == digest
    assert compute_arguments_digest({"b": 2, "a": 1}) in page
    call = ToolCall(name="add", arguments={"a": 1, "b": 2})
    assert compute_shown_digest(call, "it is large", {"description": "Add two numbers."}) in page
