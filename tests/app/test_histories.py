"""Earlier messages from outside: each odd list comes in, or is refused, in the same way at every door."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents import make_engine
from command_runs import RunCli
from hypothesis import given, settings
from hypothesis import strategies as st
from served import make_site, open_client

from toolchart import Engine, Message, SpecError, ToolCall
from toolchart.engine.durable.turn_options import decode_turn_options, encode_turn_options
from toolchart.engine.exchange.messages import import_messages
from toolchart.engine.log.read_records import read_records
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.stores.sqlite import SqliteStore
from toolchart.engine.reading.messages import collect_transcript
from toolchart.specs.chat_messages import History, read_history
from toolchart.specs.message_pairs import NO_RESULT
from toolchart.states.ports import Store
from toolchart.testing.emulators import emulate_host

Entry = dict[str, Any]
AT = "2026-01-01T00:00:00.000Z"


def user(text: Any) -> Entry:
    """A message of the user."""
    return {"role": "user", "content": text}


def answer(text: Any) -> Entry:
    """An answer of the assistant."""
    return {"role": "assistant", "content": text}


def ask(*ids: str | None, arguments: Any = '{"city":"Brno"}', name: Any = "weather") -> Entry:
    """A message with calls."""
    function = {"name": name, "arguments": arguments}
    calls = [{**({"id": id_} if id_ else {}), "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str | None, content: Any = "sunny", **more: Any) -> Entry:
    """A result."""
    return {"role": "tool", **({"tool_call_id": call_id} if call_id else {}), "content": content, **more}


C1 = "calls c1"
GONE = "result {}: " + NO_RESULT
ACCEPTED: dict[str, tuple[list[Entry], list[str], str]] = {
    "whole": (
        [user("a"), ask("c1"), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "",
    ),
    "a call without its result at the end": (
        [user("a"), ask("c1")],
        ["user: a", C1, GONE.format("c1")],
        "no result is known of these calls",
    ),
    "a call without its result before a message": (
        [user("a"), ask("c1"), user("b"), answer("c")],
        ["user: a", C1, GONE.format("c1"), "user: b", "assistant: c"],
        "[1] (call 'c1' of 'weather')",
    ),
    "one of two results": (
        [user("a"), ask("c1", "c2"), result("c2"), answer("b")],
        ["user: a", "calls c1 c2", GONE.format("c1"), "result c2: sunny", "assistant: b"],
        "no result is known of these calls",
    ),
    "the same result twice": (
        [user("a"), ask("c1"), result("c1"), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "there twice",
    ),
    "the same result again later": (
        [user("a"), ask("c1"), result("c1"), answer("b"), result("c1")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "there twice",
    ),
    "a message between call and result": (
        [user("a"), ask("c1"), user("wait"), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "user: wait", "assistant: b"],
        "moved behind their calls",
    ),
    "an answer between call and result": (
        [user("a"), ask("c1"), answer("soon"), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: soon", "assistant: b"],
        "moved behind their calls",
    ),
    "results in another order": (
        [user("a"), ask("c1", "c2"), result("c2", "2"), result("c1", "1"), answer("b")],
        ["user: a", "calls c1 c2", "result c1: 1", "result c2: 2", "assistant: b"],
        "in the order of the calls",
    ),
    "a result before its call": (
        [user("a"), result("c1"), ask("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "moved behind their calls",
    ),
    "two messages with calls in a row": (
        [user("a"), ask("c1"), {**ask("c2"), "content": "and"}, result("c1"), result("c2"), answer("b")],
        ["user: a", C1, "result c1: sunny", "calls c2: and", "result c2: sunny", "assistant: b"],
        "moved behind their calls",
    ),
    "an id used by two turns": (
        [user("a"), ask("c1"), result("c1", "1"), user("b"), ask("c1"), result("c1", "2"), answer("c")],
        ["user: a", C1, "result c1: 1", "user: b", "calls c1+2", "result c1+2: 2", "assistant: c"],
        "got one of their own",
    ),
    "an id used again after a turn that was cut off": (
        [user("a"), ask("c1"), user("b"), ask("c1"), result("c1", "2"), answer("c")],
        ["user: a", C1, GONE.format("c1"), "user: b", "calls c1+2", "result c1+2: 2", "assistant: c"],
        "no result is known of these calls",
    ),
    "an id used twice in one message": (
        [user("a"), ask("c1", "c1"), result("c1", "1"), result("c1", "2"), answer("b")],
        ["user: a", "calls c1 c1+2", "result c1: 1", "result c1+2: 2", "assistant: b"],
        "got one of their own",
    ),
    "ids that differ in case alone": (
        [user("a"), ask("c1", "C1"), result("c1", "1"), result("C1", "2"), answer("b")],
        ["user: a", "calls c1 C1", "result c1: 1", "result C1: 2", "assistant: b"],
        "",
    ),
    "a result with another name": (
        [user("a"), ask("c1"), result("c1", name="clock"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "name another tool",
    ),
    "no ids": (
        [user("a"), ask(None), result(None), answer("b")],
        ["user: a", "calls call_0_0", "result call_0_0: sunny", "assistant: b"],
        "name no call",
    ),
    "broken arguments": (
        [user("a"), ask("c1", arguments='{"city": "Br'), result("c1", "error"), answer("b")],
        ["user: a", 'calls c1!{"city": "Br', "result c1: error", "assistant: b"],
        "no JSON object",
    ),
    "arguments that are a list": (
        [user("a"), ask("c1", arguments="[1]"), result("c1", "error"), answer("b")],
        ["user: a", "calls c1![1]", "result c1: error", "assistant: b"],
        "no JSON object",
    ),
    "a number out of range": (
        [user("a"), ask("c1", arguments='{"a": 1e999}'), result("c1", "error"), answer("b")],
        ["user: a", 'calls c1!{"a": 1e999}', "result c1: error", "assistant: b"],
        "no JSON object",
    ),
    "a key of the arguments twice": (
        [user("a"), ask("c1", arguments='{"a": 1, "a": 2}'), result("c1", "error"), answer("b")],
        ["user: a", 'calls c1!{"a": 1, "a": 2}', "result c1: error", "assistant: b"],
        "no JSON object",
    ),
    "arguments that are the text of a text": (
        [user("a"), ask("c1", arguments='"{\\"city\\": \\"Brno\\"}"'), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "",
    ),
    "a name that is none": (
        [user("a"), ask("c1", name="get the weather!"), result("c1"), answer("b")],
        ["user: a", C1, "result c1: sunny", "assistant: b"],
        "",
    ),
    "a message that says nothing": (
        [user("a"), answer(""), user(""), answer(None), answer("b")],
        ["user: a", "assistant: b"],
        "say nothing",
    ),
    "the assistant first": (
        [answer("hello"), user("a"), user("b"), answer("c"), answer("d")],
        ["assistant: hello", "user: a", "user: b", "assistant: c", "assistant: d"],
        "",
    ),
    "no arguments": (
        [user("a"), ask("c1", arguments="null"), result("c1"), ask("c2", arguments=""), result("c2")],
        ["user: a", C1, "result c1: sunny", "calls c2", "result c2: sunny"],
        "",
    ),
    "an empty result": (
        [user("a"), ask("c1"), result("c1", ""), ask("c2"), result("c2", None), answer("b")],
        ["user: a", C1, "result c1: ", "calls c2", "result c2: ", "assistant: b"],
        "",
    ),
    "two questions": ([user("a"), user("b")], ["user: a", "user: b"], ""),
    "a refusal": (
        [user("a"), {**answer(None), "refusal": "no"}, answer([{"type": "refusal", "refusal": "never"}])],
        ["user: a", "assistant: no", "assistant: never"],
        "",
    ),
    "a name and thoughts": (
        [{**user("a"), "name": "bob"}, {**answer("b"), "reasoning_content": "hm"}],
        ["user: a", "assistant: b"],
        "beside text, calls and results",
    ),
    "results only": (
        [ask("c1"), result("c1"), ask("c2"), result("c2")],
        [C1, "result c1: sunny", "calls c2", "result c2: sunny"],
        "",
    ),
    "a system message at the beginning": (
        [{"role": "system", "content": "s"}, user("a"), answer("b")],
        ["user: a", "assistant: b"],
        "a system message is not sent",
    ),
    "a result of a function, as it was once": (
        [
            user("a"),
            {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": "{}"}},
            {"role": "function", "name": "weather", "content": "sunny"},
            answer("b"),
        ],
        ["user: a", "calls call_0_0", "result call_0_0: sunny", "assistant: b"],
        "got one of their own",
    ),
    "a result that is data": (
        [user("a"), ask("c1"), result("c1", {"sky": "blue"}), answer("b")],
        ["user: a", C1, 'result c1: {"sky": "blue"}', "assistant: b"],
        "sent as JSON",
    ),
}
"""By name: the list, what the model reads of it, and words of the warning."""

SILENT = "a message that says nothing"
KEPT_IN_IMPORTS = {SILENT: ["user: a", "assistant: ", "user: ", "assistant: ", "user: ", "assistant: b"]}
"""What an import has where other doors leave something out: a recording keeps each message."""

REFUSED: dict[str, tuple[list[Entry], int, str]] = {
    "a result without its call": (
        [result("c9"), user("b"), answer("c")],
        0,
        "the call 'c9', which does not exist",
    ),
    "a result of a call with another case": ([user("a"), ask("c1"), result("C1")], 2, "there is a call 'c1'"),
    "a second result with other words": (
        [user("a"), ask("c1"), result("c1"), result("c1", "rain"), answer("b")],
        3,
        "a second result",
    ),
    "a result of one of two calls": (
        [user("a"), ask("c1"), ask("c1"), result("c1"), answer("b")],
        3,
        "several calls 'c1'",
    ),
    "a system message in the middle": (
        [user("a"), {"role": "system", "content": "s"}, answer("b")],
        1,
        "only at the beginning",
    ),
    "calls of the user": ([{**ask("c1"), "role": "user"}, result("c1")], 0, "only the assistant calls tools"),
    "a block of another API": (
        [user("a"), user([{"type": "tool_result", "tool_use_id": "c1", "content": "b"}])],
        1,
        "a part",
    ),
    "an unknown role": ([user("a"), {"role": "narrator", "content": "b"}], 1, "unknown role 'narrator'"),
    "content that is a number": ([user("a"), answer(7)], 1, "content is text or a list of parts"),
    "content that is an object": (
        [user({"text": "a"}), answer("b")],
        0,
        "content is text or a list of parts",
    ),
    "a call without a name": ([user("a"), ask("c1", name=""), result("c1")], 1, "a call without"),
    "a name that is no text": ([user("a"), ask("c1", name=7), result("c1")], 1, "a call without"),
}
"""By name: the list, the entry that is at fault, and words of the error."""


class Outcome(msgspec.Struct):
    """What a door made of a list."""

    messages: list[str] | None
    """What stands before the newest message; None where the list was refused."""
    words: str
    """Its warnings, or the error."""


def describe(messages: Iterable[Message]) -> list[str]:
    """The messages as lines."""
    return list(map(describe_message, messages))


def describe_message(message: Message) -> str:
    """One message as a line."""
    if message.role == "tool":
        assert message.name
        return f"result {message.tool_call_id}: {message.content or ''}"
    if not message.tool_calls:
        return f"{message.role}: {message.content or ''}"
    calls = " ".join(f"{call.id}!{call.raw}" if call.problem else call.id for call in message.tool_calls)
    return f"calls {calls}" + (f": {message.content}" if message.content else "")


def read_newest_history(store: Store) -> list[str]:
    """The history of the only turn of a log."""
    (conversation,) = store.list_conversations()
    for line in store.read_lines(conversation):
        event = json.loads(line)["event"]
        if event["type"] == "turn_started":
            return describe(msgspec.convert(event.get("history", []), list[Message]))
    raise AssertionError("no turn has begun")


# -- doors -----------------------------------------------------------------------------------------

Door = Callable[[list[Entry], Any], Outcome]
"""Takes the list, and the fixtures of the test."""


def run_python(history: Sequence[Any], **options: Any) -> Outcome:
    """`Engine.run(history=)`."""
    with make_engine(["done"]) as engine:
        try:
            turn = engine.run("next", history=history, **options)
        except SpecError as error:
            assert not list(engine.store.list_conversations()), "nothing was written"
            return Outcome(None, str(error))
        assert turn.ok
        return Outcome(read_newest_history(engine.store), "\n".join(turn.warnings))


READ_FROM_TEXT = ('"{\\"city\\": \\"Brno\\"}"', '{"a": 1, "a": 2}')
"""Arguments that a program hands on as they came."""


def run_values(entries: list[Entry], _: Any) -> Outcome:
    """`history` as values."""
    return run_python(list(map(make_value, entries)))


def make_value(entry: Entry) -> Any:
    """The message of an entry, as a program builds it: types are not checked there."""
    calls = []
    for call in entry.get("tool_calls") or ():
        raw, function = call["function"]["arguments"], call["function"]
        arguments, problem = None, None if raw in READ_FROM_TEXT else "broken"
        with contextlib.suppress(ValueError):
            value = json.loads(raw or "null")
            problem = problem if value is not None else None
            if isinstance(value, dict) and "1e999" not in raw and raw not in READ_FROM_TEXT:
                arguments, problem, raw = value, None, None
        own: dict[str, Any] = {"arguments": arguments, "raw": raw, "problem": problem}
        calls.append(ToolCall(id=call.get("id", ""), name=function["name"], **own))
    content = entry.get("content")
    text = json.dumps(content) if entry["role"] == "tool" and isinstance(content, dict) else content
    return Message(
        role=entry["role"],
        content=text,
        tool_calls=tuple(calls),
        tool_call_id=entry.get("tool_call_id"),
        name=entry.get("name"),
    )


def run_stream(entries: list[Entry], _: Any) -> Outcome:
    """`Engine.stream(history=)`."""

    async def run() -> Any:
        return [piece async for piece in engine.stream("next", history=entries)][-1]

    with make_engine(["done"]) as engine:
        try:
            turn = asyncio.run(run())
        except SpecError as error:
            return Outcome(None, str(error))
        return Outcome(read_newest_history(engine.store), "\n".join(turn.warnings))


def run_durable(entries: list[Entry], _: Any) -> Outcome:
    """The options of a turn, on their way to a worker."""
    try:
        data = asyncio.run(encode_turn_options({"history": entries}))
    except SpecError as error:
        return Outcome(None, str(error))
    return run_python(decode_turn_options(json.loads(json.dumps(data)))["history"])


def run_command(entries: list[Entry], fixtures: Any) -> Outcome:
    """`toolchart run --history`."""
    run_cli, folder = fixtures
    (folder / "h.json").write_text(json.dumps(entries))
    done = run_cli("run", "quickstart", "1+1", "--history", "h.json", "--log", "log.db")
    if done.code:
        assert (done.code, "Traceback" in done.err) == (2, False)
        return Outcome(None, done.err)
    store = SqliteStore(str(folder / "log.db"))
    try:
        return Outcome(read_newest_history(store), done.err)
    finally:
        store.close()


def run_import(entries: list[Entry], _: Any) -> Outcome:
    """`toolchart import`."""
    warnings: list[str] = []
    try:
        lines = import_messages(entries, "c", AT, "file.json", warnings.append)
    except SpecError as error:
        return Outcome(None, str(error))
    messages = collect_transcript(read_records(lines, "c")).messages
    added = [m for m in messages if m.role != "user" or m.content or user("") in entries]
    assert warnings == [w for line in lines for w in json.loads(line)["event"].get("warnings", ())]
    return Outcome(describe(added), "\n".join(warnings))


def serve_door(path: str, build_body: Callable[[list[Entry]], Entry]) -> Door:
    """A door of a server: its path, and the body with the list."""

    def run(entries: list[Entry], _: Any) -> Outcome:
        async def post() -> Outcome:
            engine = make_engine(["done"], name="agent")
            async with open_client(make_site(engine)) as client:
                got = await client.post(path, json=build_body(entries))
                if got.status_code == 400:
                    assert not list(engine.store.list_conversations()), "nothing was written"
                    return Outcome(None, json.dumps(got.json(), ensure_ascii=False))
                assert got.status_code == 200, got.text
                return Outcome(read_newest_history(engine.store), find_warnings(got.text))

        return asyncio.run(post())

    return run


def find_warnings(text: str) -> str:
    """The warnings in an answer of any protocol."""
    bodies = [line[6:] for line in text.splitlines() if line.startswith("data: {")] or [text]
    return "\n".join(word for body in bodies for word in iterate_warnings(json.loads(body)))


def iterate_warnings(data: Any) -> Iterator[str]:
    """The warnings anywhere in JSON data."""
    if isinstance(data, Mapping):
        yield from data.get("warnings") or ()
        for value in data.values():
            yield from iterate_warnings(value)


def build_items(entries: list[Entry]) -> list[Entry]:
    """The items of the Responses API."""
    items: list[Entry] = []
    for entry in entries:
        if entry["role"] == "tool":
            item = {"type": "function_call_output", "call_id": entry.get("tool_call_id")}
            items.append({**item, "output": entry["content"]})
            continue
        if entry["content"] is not None or not entry.get("tool_calls"):
            items.append({"role": entry["role"], "content": entry["content"]})
        for call in entry.get("tool_calls") or ():
            items.append({"type": "function_call", "call_id": call.get("id"), **call["function"]})
    return items


def build_run(entries: list[Entry]) -> Entry:
    """The body of a run of AG-UI."""
    names = {"tool_calls": "toolCalls", "tool_call_id": "toolCallId"}
    messages = [
        {"id": str(index), **{names.get(key, key): value for key, value in entry.items()}}
        for index, entry in enumerate([*entries, user("next")])
    ]
    return {"threadId": "t", "runId": "r", "messages": messages}


DOORS: dict[str, Door] = {
    "run": lambda entries, _: run_python(entries),
    "values": run_values,
    "stream": run_stream,
    "workers": run_durable,
    "--history": run_command,
    "import": run_import,
    "own API": serve_door("/api/conversations", lambda e: {"message": "next", "history": e}),
    "chat completions": serve_door(
        "/v1/chat/completions", lambda e: {"model": "agent", "messages": [*e, user("next")]}
    ),
    "responses": serve_door(
        "/v1/responses", lambda e: {"model": "agent", "input": [*build_items(e), user("next")]}
    ),
    "AG-UI": serve_door("/ag-ui", build_run),
}

_PROTOCOLS = ("chat completions", "responses", "AG-UI")
_KEY_CASES = ("a refusal", "a name and thoughts")
_SYSTEM_CASES = ("a system message at the beginning", "a system message in the middle")
_SYSTEM = "the protocol has its own rule for system messages"
NOT_SAID = {
    **{(door, name): "no such keys" for door in ("values", *_PROTOCOLS[1:]) for name in _KEY_CASES},
    ("import", "a name and thoughts"): "a recording keeps all keys",
    **{("import", name): "a recording has its own prompt" for name in _SYSTEM_CASES},
    **{
        (door, name): _SYSTEM for door in ("chat completions", "responses", "AG-UI") for name in _SYSTEM_CASES
    },
    **{
        (door, "a result of a function, as it was once"): "too old"
        for door in ("values", "responses", "AG-UI")
    },
    ("values", "a block of another API"): "content of a value is text",
    **{(door, "a block of another API"): "files may have its form" for door in ("--history", "import")},
    ("responses", "calls of the user"): "its calls are items of their own",
    ("responses", "a result with another name"): "its outputs have no name",
    ("AG-UI", "a result with another name"): "its tool messages have no name",
    ("responses", "two messages with calls in a row"): "its calls in a row belong to one message",
    ("responses", "a result of one of two calls"): "its calls in a row belong to one message",
    ("values", "a result that is data"): "a value is text",
}
"""What a form cannot say."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ACCEPTED)
def test_an_odd_history_comes_in_alike_at_every_door(
    name: str, door: str, run_cli: RunCli, tmp_path: Path
) -> None:
    """What can be put right without loss is put right, the same at each door, and a warning says what."""
    entries, expected, words = ACCEPTED[name]
    if (door, name) in NOT_SAID:
        return
    outcome = DOORS[door](entries, (run_cli, tmp_path))
    if door == "import":
        expected = KEPT_IN_IMPORTS.get(name, expected)
        words = "" if name in KEPT_IN_IMPORTS else words
    assert outcome.messages == expected, outcome.words
    assert words in outcome.words


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_lost_is_refused_at_every_door(
    name: str, door: str, run_cli: RunCli, tmp_path: Path
) -> None:
    """A list that nobody can read without losing or inventing something is refused: place, reason, next step;
    nothing is written, and nothing was sent."""
    entries, index, words = REFUSED[name]
    if (door, name) in NOT_SAID:
        return
    outcome = DOORS[door](entries, (run_cli, tmp_path))
    assert outcome.messages is None
    assert door == "responses" or f"[{index}]" in outcome.words
    assert words.replace("'", "") in outcome.words.replace("'", "") or door == "values"


def test_a_conversation_with_messages_takes_no_history(run_cli: RunCli, tmp_path: Path) -> None:
    """Earlier messages are for a new conversation: one that has messages refuses them before anything is
    written, also while its turn is open, and goes on without them."""
    history = [user("a"), answer("b")]
    with make_engine(["one", "two", "three"]) as engine:
        engine.run("1", conversation="c", history=history)
        count = len(list(engine.store.read_lines("c")))
        for call in (engine.run, lambda *words, **more: list(engine.stream_blocking(*words, **more))):
            with pytest.raises(SpecError, match=r"'c' has messages already.*\n.*name a new conversation"):
                call("2", conversation="c", history=history)
        assert len(list(engine.store.read_lines("c"))) == count
        assert engine.run("2", conversation="c", history=[]).content == "two"
        assert engine.run("3", conversation="c").content == "three"
        texts = [message.content for message in engine.conversation("c").messages]
        assert texts == ["a", "b", "1", "one", "2", "two", "3", "three"]


@pytest.mark.parametrize("history", ["hello", {"role": "user", "content": "a"}, 7])
def test_what_is_no_list_is_refused(history: Any) -> None:
    """A single message or a text in place of the list is an error that says what is read."""
    outcome = run_python(history)
    assert outcome.messages is None
    assert "a history is a list of messages" in outcome.words


def test_a_message_object_of_a_library_is_refused_with_the_way_out() -> None:
    """An object of an SDK is no message; the error says how to make it data."""

    class Completion:
        def model_dump(self) -> Entry:
            return answer("b")

    outcome = run_python([user("a"), Completion()])
    assert outcome.messages is None
    assert "history[1]: a message is an object" in outcome.words
    assert "model_dump()" in outcome.words


HOSTS = ("openai", "vllm", "mistral", "groq", "deepseek", "anthropic", "gemini", "ollama")


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_take_every_history_that_came_in(host: str) -> None:
    """A history that a door takes is taken by the host too, with this turn and the next two; so is a
    recording that an import took, when somebody goes on with it."""
    refused = []
    for name, (entries, _, _) in ACCEPTED.items():
        with emulate_host(host) as emulator:
            spec = {
                "chart": "tool_loop",
                "llms": {"main": emulator.entry},
                "responses": [{"llm": "main", "prompt": "p"}],
            }
            store = MemoryStore()
            store.append("imported", 0, import_messages(entries, "imported", AT))
            with Engine(spec, log=store) as engine:
                turns = [engine.run("next", conversation="c", history=entries)]
                turns += [engine.run("next", conversation=id_) for id_ in ("c", "c", "imported", "imported")]
        if emulator.refusals or not all(turn.ok for turn in turns):
            refused.append((name, [r.message for r in emulator.refusals] or turns[0].error))
    assert not refused


# -- any list ----------------------------------------------------------------------------------------

IDS = st.sampled_from(["c1", "c2", "C1", None])
ENTRIES = st.one_of(
    st.builds(user, st.sampled_from(["a", "b", ""])),
    st.builds(answer, st.sampled_from(["x", "", None])),
    st.builds(lambda ids: ask(*ids), st.lists(IDS, min_size=1, max_size=3)),
    st.builds(result, IDS, st.sampled_from(["1", "2"])),
)


@settings(max_examples=400)
@given(st.lists(ENTRIES, min_size=1, max_size=10))
def test_a_history_that_is_read_is_valid_and_whole(entries: list[Entry]) -> None:
    """Any list is refused with a place, or gives messages in which each call has one result right behind it
    and an id of its own; nothing that was said is missing, and read again they are the same, without a word.
    """
    history = read_or_refuse(entries)
    if history is None:
        return
    waiting: list[str] = []
    seen: set[str] = set()
    for message in history:
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call.id for call in message.tool_calls]
        assert not seen.intersection(waiting)
        seen.update(waiting)
    assert not waiting
    texts = {"user": "ab", "assistant": "x"}
    for role, letters in texts.items():
        said = [e["content"] for e in entries if e["role"] == role and e["content"] in list(letters)]
        assert [m.content for m in history if m.role == role and m.content] == said
    results = [m.content for m in history if m.role == "tool" and m.content != NO_RESULT]
    came = [e["content"] for e in entries if e["role"] == "tool"]
    is_doubled = any("there twice" in warning for warning in history.warnings)
    assert set(results) == set(came) if is_doubled else sorted(results) == sorted(came)
    again = read_history(list(history))
    assert list(again) == list(history)
    assert not again.warnings


def read_or_refuse(entries: list[Entry]) -> History | None:
    """The history; None where it is refused, with a place."""
    try:
        return read_history(entries)
    except SpecError as error:
        assert (error.path or "").startswith("history["), "a refusal names its place"  # noqa: PT017
        return None


KEYS = (
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "id",
    "type",
    "function",
    "name",
    "arguments",
    "text",
)
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from(["", "a", "tool", "user", "assistant", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
ODD_ENTRIES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"]) | JUNK},
    optional={"content": st.just("a") | JUNK, "tool_calls": JUNK, "tool_call_id": JUNK, "name": JUNK},
)


@settings(max_examples=300)
@given(st.lists(ODD_ENTRIES | JUNK | ENTRIES, max_size=5))
def test_junk_in_a_history_is_refused_or_read(entries: list[Any]) -> None:
    """Whatever JSON stands in a list: history and import refuse it with an error of ours, or the history that
    they read stays as it is when it is read again."""
    with contextlib.suppress(SpecError):
        history = read_history(entries)
        assert list(read_history(list(history))) == list(history)
    with contextlib.suppress(SpecError):
        assert import_messages(entries, "c", AT)
