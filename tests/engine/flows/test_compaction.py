"""Compaction: requests of a long conversation show less of it, and stay valid; the log keeps everything."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from canonical_requests import canonicalize_messages, read_request
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from web import WebAnswer, serve_web
from wire_requests import make_builders, make_config

from toolchart.engine import Engine
from toolchart.engine.log import record as records
from toolchart.engine.log.replay import load_conversation, replay, replay_conversation
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.runtime.wire_replay import WireComparison
from toolchart.providers.hosts import find_host
from toolchart.providers.registry import create_provider
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.specs.loader import load_spec
from toolchart.specs.models import LLMConfig
from toolchart.specs.sections.context_limits import find_context_limit, list_context_limits
from toolchart.specs.unread_limits import load_agent_chart
from toolchart.states.errors import ProviderError, SpecError
from toolchart.states.events import Settings
from toolchart.states.flows.compaction import build_compaction, build_counted_request, count_context_tokens
from toolchart.states.flows.parameters import CompactParameters
from toolchart.states.message_list import MessageList, OfferedTools, RequestMessages, estimate_message
from toolchart.states.messages import Message, Reply, Request, ToolCall, ToolDefinition, Usage
from toolchart.states.ports import BodyBuilder
from toolchart.states.snapshot import SnapshotBuilder
from toolchart.tools.definition import Tool

SETTINGS = Settings(service="s", provider="scripted", model="m", context_limit=400)


def make_builder(messages: list[Message], **fields: Any) -> SnapshotBuilder:
    """The working copy of a conversation with these messages."""
    return SnapshotBuilder(messages=MessageList(messages), settings=SETTINGS, **fields)


def compact(builder: SnapshotBuilder, **parameters: Any) -> list[Message]:
    """Compact the conversation; what requests show then."""
    build_compaction(CompactParameters(**parameters), builder, "compact", 1, "s")
    return list(builder.request_messages)


def make_exchange(number: int, calls: int, *, with_question: bool) -> list[Message]:
    """A reply with calls and their results, after a question or not."""
    ids = [f"c{number}_{index}" for index in range(calls)]
    made_calls = tuple(ToolCall(id=id_, name="look", arguments={"n": number}) for id_ in ids)
    question = [Message(role="user", content=f"question {number}")] if with_question else []
    reply = Message(role="assistant", content=f"reply {number}", tool_calls=made_calls)
    results = [Message(role="tool", tool_call_id=id_, name="look", content=f"found {id_}") for id_ in ids]
    return [*question, reply, *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A conversation of questions, replies and results that begins with the user."""
    shape = draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8))
    messages = [Message(role="user", content="the task")]
    for number, (calls, with_question) in enumerate(shape):
        messages += make_exchange(number, calls, with_question=with_question)
    return messages


PARAMETERS = st.builds(
    dict,
    keep=st.none() | st.integers(1, 6),
    keep_tokens=st.none() | st.integers(1, 120),
    keep_first=st.booleans(),
    clear_results=st.just(False),
    summary=st.sampled_from(["", "a summary"]),
) | st.builds(dict, keep=st.integers(1, 4), clear_results=st.just(True))


def assert_calls_are_paired(messages: list[Message]) -> None:
    """Each call is followed at once by its result, and no result stands alone."""
    open_ids: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in open_ids
            open_ids.remove(str(message.tool_call_id))
        else:
            assert not open_ids
            open_ids = [call.id for call in message.tool_calls]
    assert not open_ids


@given(conversations(), st.lists(PARAMETERS, min_size=1, max_size=3))
def test_no_call_is_split_from_its_result(messages: list[Message], rounds: list[dict[str, Any]]) -> None:
    """However a conversation is compacted, what is shown begins with the user, ends with the newest exchange
    and pairs each call with its result; the conversation itself is whole."""
    builder = make_builder(messages)
    for parameters in rounds:
        before = count_context_tokens(builder)
        shown = compact(builder, **parameters)
        assert_calls_are_paired(shown)
        assert shown[0].role == "user"
        assert shown[-1].role == messages[-1].role
        assert count_context_tokens(builder) <= before + estimate_message(
            Message(role="user", content="a" * 9)
        )
        assert list(builder.messages) == messages
        for message in make_exchange(99, 1, with_question=True):
            builder.append_message(message)
            messages = [*messages, message]
        assert list(builder.request_messages) == [*shown, *messages[-3:]]


def test_what_is_kept() -> None:
    """The newest exchanges stay; with `keep_first` the first question; before a reply its own question."""
    messages = [message for n in range(4) for message in make_exchange(n, 1, with_question=n in (0, 2))]
    texts = [message.content for message in compact(make_builder(messages), keep=1)]
    assert texts == ["question 2", "reply 3", "found c3_0"]
    texts = [message.content for message in compact(make_builder(messages), keep=1, keep_first=True)]
    assert texts == ["question 0", "question 2", "reply 3", "found c3_0"]
    texts = [message.content for message in compact(make_builder(messages), keep=2, summary="In short.")]
    assert texts == ["question 2", "In short.", "reply 2", "found c2_0", "reply 3", "found c3_0"]


def test_old_results_are_cleared() -> None:
    """`clear_results` keeps every message and every call, and shows a text for older results."""
    messages = [message for n in range(3) for message in make_exchange(n, 1, with_question=True)]
    messages[2] = replace(messages[2], content="found a lot " * 20)
    builder = make_builder(messages)
    shown = compact(builder, keep=1, clear_results=True)
    assert [message.role for message in shown] == [message.role for message in messages]
    cleared = [message.content == builder.texts.cleared for message in shown if message.role == "tool"]
    assert cleared == [True, False, False]  # the second one is shorter than the text


def test_a_count_corrects_the_estimate() -> None:
    """After a reply with usage the size is what the host counted and an estimate of what came later."""
    builder = make_builder([Message(role="user", content="a" * 400)])
    assert count_context_tokens(builder) == 104
    builder.measured_tokens, builder.measured_messages = 50, 1
    builder.append_message(Message(role="user", content="b" * 40))
    assert count_context_tokens(builder) == 50 + 14
    assert build_counted_request(builder)[1] == 2


@cache
def find_builders() -> dict[str, BodyBuilder]:
    """A builder of bodies for each wire, made once."""
    return make_builders()


def join_user_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with those of the user that follow each other as one, as Anthropic has them."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = {"role": "user", "content": joined[-1]["content"] + message["content"]}
        else:
            joined.append(message)
    return joined


@settings(max_examples=30)
@given(conversations(), st.booleans())
def test_a_compacted_request_is_valid_on_every_wire(messages: list[Message], keeps_first: bool) -> None:
    """Issue 15, build 8: each host gets exactly the shown messages, its calls and results in pairs."""
    builder = make_builder([*messages, Message(role="user", content="and now?")])
    compact(builder, keep=3, keep_first=keeps_first, summary="In short.")
    tools = OfferedTools([ToolDefinition(name="look", description="Look.")])
    request = Request(model="m", messages=RequestMessages("Be brief.", builder.request_messages), tools=tools)
    expected = join_user_messages(canonicalize_messages(request.messages))
    for name, body_builder in find_builders().items():
        if name in ("scripted", "ollama hermes", "ollama bracket"):
            continue
        row = find_host(make_config(name).provider)
        wire = "responses" if "responses" in name else row.formats[0].name
        body = json.loads(json.dumps(body_builder.build_body(request, stream=False)))
        assert join_user_messages(read_request(wire, body)["messages"]) == expected, name


# -- in the engine -------------------------------------------------------------------------------

ROUNDS = 6


def make_engine(log: Any, die_at: int | None = None) -> Engine:
    """An agent whose one turn is compacted several times by a small limit; it may kill its process."""

    def answer(request: Request) -> Reply:
        if request.iteration == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if request.iteration >= ROUNDS:
            return Reply(content="all done", finish_reason="stop")
        call = ToolCall(id=f"c{request.iteration}", name="look", arguments={})
        tokens = sum(map(estimate_message, request.messages)) * 2
        return Reply(tool_calls=(call,), finish_reason="tool_calls", usage=Usage(input=tokens, output=5))

    look = Tool(
        definition=ToolDefinition(name="look", description="Look."),
        run=lambda _: "found " * 20,
        idempotent=True,
        execution_mode="inline",
    )
    spec = {
        "chart": "compacting",
        "llms": {"model": {"provider": "scripted", "model": "m", "context_limit": 300}},
        "limits": {"max_tool_only_streak": 20, "max_repeats": 20, "max_iterations": 20},
        "tools": {},
        "responses": [{"llm": "model", "tools": {"enabled": True}}],
    }
    provider = ScriptedProvider([answer] * (ROUNDS * 3))
    return Engine(spec, log=log, functions=[look], providers={"model": provider})


def list_compactions(store: Any, conversation: str = "c") -> list[dict[str, Any]]:
    """The compactions in the records of a conversation."""
    records = [json.loads(line) for line in store.read_lines(conversation)]
    asks = [ask for record in records for ask in record.get("asks", ())]
    return [ask["arguments"] for ask in asks if ask["effect"] == "compact"]


def assert_whole_log(engine: Engine) -> None:
    """The log verifies, and replays with every request and every body."""
    assert all(isinstance(verdict, VerifiedConversation) for verdict in verify_store(engine.store))
    comparison = WireComparison()
    *_, last = comparison.compare_steps(replay(engine.store.read_lines("c"), "c"))
    assert comparison.bodies == ROUNDS + 1
    messages = last.step.snapshot.messages
    assert [message.role for message in messages].count("tool") == ROUNDS
    assert "".join(str(message.content) for message in messages).count("found") == ROUNDS * 20


def test_a_turn_is_compacted_and_replays() -> None:
    """The shipped chart keeps requests below the limit, says so in the record, and keeps all messages."""
    with make_engine("memory") as engine:
        result = engine.run("the task", conversation="c")
        assert (result.content, result.error) == ("all done", None)
        compactions = list_compactions(engine.store)
        assert len(compactions) >= 2
        assert all(each["tokens_after"] < each["tokens_before"] for each in compactions)
        assert_whole_log(engine)
        for seq in range(3, 20):
            loaded = load_conversation(engine.store, "c", seq)
            assert loaded is not None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("die_at", [3, ROUNDS])
def test_a_killed_turn_goes_on_compacted(
    die_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies in the request after a compaction is resumed with the same request: from a
    checkpoint in the middle of the turn, and from the records."""
    for every in (3, 1000):
        monkeypatch.setattr(records, "CHECKPOINT_EVERY", every)
        log = str(tmp_path / f"{every}.db")
        child = multiprocessing.get_context("fork").Process(
            target=lambda log=log: make_engine(log, die_at).run("the task", conversation="c")
        )
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        with make_engine(log) as engine:
            assert list_compactions(engine.store)
            assert engine.conversation("c").resume().content == "all done"
            assert_whole_log(engine)
            checkpoints = list(engine.store.read_checkpoints("c"))
            assert any(b'"shown":{"view"' in data for _, data in checkpoints)


def test_a_fork_of_a_compacted_turn_shows_what_its_parent_showed() -> None:
    """A fork after a compaction sends the request that its parent sent, and goes on compacting."""
    with make_engine("memory") as engine:
        engine.run("the task", conversation="c")
        seq, record = next(
            (seq, record)
            for seq, record in enumerate(map(json.loads, engine.store.read_lines("c")))
            if any(ask["effect"] == "compact" for ask in record.get("asks", ()))
        )
        digest = next(ask["digest"] for ask in record["asks"] if ask["effect"] == "call_model")
        engine.conversation("c").fork(seq, name="f", from_log=True)
        lines = list(map(json.loads, engine.store.read_lines("f")))
        assert lines[0]["asks"][0]["digest"] == digest
        assert list(replay_conversation(engine.store, "f"))


def test_a_summary_stands_for_what_it_sums_up() -> None:
    """The shipped flow asks a second model for a summary; a failure of it leaves messages out without one."""
    spec = load_spec("long_conversation")
    long = "I have a great many things to tell you about the garden, the house and the two of us. "
    with Engine(spec, log="memory") as engine:
        engine.run(f"My number is 17. {long}", conversation="c")
        engine.run(long, conversation="c")
        snapshot = load_conversation(engine.store, "c").snapshot  # type: ignore[union-attr]
        assert snapshot.shown is not None
        shown = [message.content for message in snapshot.shown]
        assert shown[0] == "The conversation so far, in short: The user's number is 17."
        assert len(snapshot.messages) == 4

    def refuse(_: Request) -> Reply:
        raise ProviderError(kind="server", message="down")

    providers = {"summariser": ScriptedProvider([refuse] * 3)}
    with Engine(spec, log="memory", providers=providers) as engine:
        engine.run(f"My number is 17. {long}", conversation="c")
        assert engine.run(long, conversation="c").error is None
        snapshot = load_conversation(engine.store, "c").snapshot  # type: ignore[union-attr]
        assert snapshot.shown is not None
        assert not snapshot.shown.view.summary


def test_a_request_that_is_too_long_is_sent_again_shorter() -> None:
    """A host that refuses a request for its length gets the newer half, though the estimate is far below."""
    seen: list[int] = []

    def answer(request: Request) -> Reply:
        seen.append(len(request.messages))
        if len(request.messages) > 3:
            raise ProviderError(kind="context_length", message="too long")
        return Reply(content="well", finish_reason="stop")

    spec = {
        "chart": "compacting",
        "llms": {"m": {"provider": "scripted", "model": "m", "context_limit": 100_000}},
        "responses": [{"llm": "m"}],
    }
    with Engine(spec, log="memory", providers={"m": ScriptedProvider([answer] * 9)}) as engine:
        for turn in range(3):
            assert engine.run(f"message {turn}", conversation="c").content == "well"
    assert seen == [1, 3, 5, 3]


# -- limits and counters -------------------------------------------------------------------------


def test_an_unknown_limit_is_an_error_at_load() -> None:
    """A chart that reads `context_limit` is refused for a model whose limit nobody knows."""
    spec = {"chart": "compacting", "responses": [{"llm": "m"}]}
    unknown = {**spec, "llms": {"m": {"provider": "openai", "model": "my-own", "base_url": "http://h/v1"}}}
    with pytest.raises(SpecError, match="context_limit") as raised:
        load_agent_chart(load_spec(unknown))
    assert raised.value.path == "llms.m"
    load_agent_chart(load_spec({**spec, "llms": {"m": {"provider": "openai", "model": "gpt-4o-mini"}}}))


def test_every_known_limit_has_a_source() -> None:
    """Each row of the table names a provider that exists, tokens and where they are known from."""
    for row in list_context_limits():
        assert find_host(row.provider)
        assert row.tokens > 1000
        assert row.source
    entry = make_config("ollama")
    assert find_context_limit(entry, "llama") == 512
    assert find_context_limit(entry.model_copy(update={"context_limit": 9}), "llama") == 9


@pytest.mark.parametrize(
    ("provider", "model", "tokens"),
    [
        ("openai", "gpt-5", 272000),
        ("openai", "gpt-5-2025-08-07", 272000),
        ("openai", "gpt-5-chat-latest", 0),
        ("openai", "gpt-5.4", 922000),
        ("anthropic", "claude-sonnet-4-5-20250929", 200000),
        ("anthropic", "claude-opus-4-6", 1000000),
        ("anthropic", "claude-3-haiku-20240307", 0),
        ("gemini", "gemini-2.5-flash", 1048576),
        ("gemini", "gemini-2.5-flash-image", 0),
        ("gemini", "gemini-2.5-pro-001", 1048576),
    ],
)
def test_a_limit_holds_for_the_named_model_only(provider: str, model: str, tokens: int) -> None:
    """A row holds for a model and its dated versions; another whose name begins so has its own limit."""
    entry = LLMConfig.model_validate({"provider": provider, "model": model})
    assert find_context_limit(entry, model) == tokens
    own = entry.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
    assert find_context_limit(own, model) == 0


COUNTERS = {
    "anthropic": ("/v1/messages/count_tokens", {"input_tokens": 77}),
    "openai responses": (
        "/v1/responses/input_tokens",
        {"object": "response.input_tokens", "input_tokens": 77},
    ),
    "gemini": ("/v1beta/models/m:countTokens", {"totalTokens": 77}),
}


@pytest.mark.parametrize("name", COUNTERS)
async def test_a_host_counts_by_its_own_endpoint(name: str) -> None:
    """`count_tokens: host` asks the host's counter with the request's messages; else nobody is asked."""
    path, data = COUNTERS[name]

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/json"}, json.dumps(data).encode()

    request = Request(model="m", messages=[Message(role="user", content="How long am I?")])
    with serve_web(answer) as server:
        address = f"http://127.0.0.1:{server.port}"
        for count_tokens, expected in (("host", 77), ("estimate", None)):
            config = make_config(name, address, api_key="k", count_tokens=count_tokens)
            provider = create_provider(config, resolve=str)
            assert await provider.count_tokens(request) == expected  # type: ignore[attr-defined]
            await provider.aclose()
        assert [sent["path"] for sent in server.requests] == [path]
        body = server.requests[0]["body"]
        assert b"How long am I?" in body
        assert b"max_tokens" not in body


COUNTED: dict[str, set[str]] = {
    "anthropic": {"model", "messages", "system", "thinking", "output_config"},
    "openai responses": {"model", "input", "instructions", "text"},
    "gemini": {"generateContentRequest"},
}
"""The keys of the counters' bodies for a request with instructions and a schema.

Sources: anthropic 2.12.0, `message_count_tokens_params.py`; openai 3.54.0, `input_token_count_params.py`;
v1beta, `CountTokensRequest`."""


@pytest.mark.parametrize("name", COUNTERS)
async def test_a_counter_gets_what_counts_and_nothing_else(name: str) -> None:
    """Instructions and the schema of the answer are counted; what only the call takes is left out."""
    path, data = COUNTERS[name]

    def answer(_: dict[str, Any]) -> WebAnswer:
        return 200, {"content-type": "application/json"}, json.dumps(data).encode()

    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    request = Request(
        model="m",
        messages=[
            Message(role="system", content="Be brief."),
            Message(role="user", content="How long am I?"),
        ],
        options={
            "temperature": 0.5,
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        },
    )
    with serve_web(answer) as server:
        address = f"http://127.0.0.1:{server.port}"
        provider = create_provider(make_config(name, address, api_key="k", count_tokens="host"), resolve=str)
        assert await provider.count_tokens(request) == 77  # type: ignore[attr-defined]
        await provider.aclose()
    body = json.loads(server.requests[0]["body"])
    assert body.keys() - {"reasoning"} == COUNTED[name]
    assert (server.requests[0]["path"], b"Be brief." in server.requests[0]["body"]) == (path, True)
    if name == "gemini":
        assert body["generateContentRequest"]["model"] == "models/m"


def test_a_host_without_a_counter_is_refused_at_load() -> None:
    """`count_tokens: host` for chat completions or Ollama is an error that says what to write."""
    for name in ("openai", "ollama", "scripted"):
        with pytest.raises(SpecError, match="no counter"):
            create_provider(make_config(name, api_key="k", count_tokens="host"), resolve=str)


class CountingProvider(ScriptedProvider):
    """A provider whose host counts 90 tokens, or refuses to."""

    def __init__(self, tokens: int | None) -> None:
        super().__init__([Reply(content="well", finish_reason="stop")] * 3)
        self.tokens = tokens

    async def count_tokens(self, request: Request) -> int | None:
        """The tokens that the test chose."""
        if self.tokens is None:
            raise ProviderError(kind="server", message="no counter today")
        return self.tokens


@pytest.mark.parametrize(
    ("tokens", "compacted", "source"), [(90, 1, "host"), (10, 0, "host"), (None, 0, "estimate")]
)
def test_a_chart_asks_for_a_count(tokens: int | None, compacted: int, source: str) -> None:
    """`count_tokens` brings `counted`, and the guard after it decides by the host's number; a host that fails
    to count is replaced by the estimate, and the record says why."""
    chart = {
        "name": "counting",
        "extends": "tool_loop",
        "states": {
            "counting": {
                "initial": True,
                "enter": "count_tokens",
                "transitions": [
                    {
                        "event": "counted",
                        "target": "prompting",
                        "cond": "context_tokens > 80",
                        "on": "compact",
                    },
                    {"event": "counted", "target": "prompting"},
                    {"event": "cancelled", "target": "error"},
                    {"event": "user_said"},
                ],
            },
            "prompting": {"initial": None},
        },
    }
    spec = {
        "chart": chart,
        "llms": {"m": {"provider": "scripted", "model": "m"}},
        "responses": [{"llm": "m"}],
    }
    with Engine(spec, log="memory", providers={"m": CountingProvider(tokens)}) as engine:
        engine.run("hello", conversation="c")
        records = list(map(json.loads, engine.store.read_lines("c")))
        event = next(record["event"] for record in records if record["event"]["type"] == "counted")
        assert (event["source"], "no counter today" in event.get("problem", "")) == (source, tokens is None)
        asked = [ask["effect"] for record in records for ask in record.get("asks", ())]
        assert asked.count("compact") == compacted
        assert list(replay_conversation(engine.store, "c"))
