"""What hosts send that programs may read otherwise than we do does not get a call through."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import START
from enforced_programs import PATHS, SCHEMA, describe_tool, enforce, make_client, make_spec, name_host
from proxied_hosts import WAIT_S, Call, serve_host

from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.engine.reading.waiting import PendingApproval, read_waiting
from toolchart.states.errors import LogUnavailable
from toolchart.states.ports import Store

SPEC = make_spec(describe_tool("look_up"), describe_tool("book"))
FREE = make_spec(
    {**describe_tool("free"), "parameters": {"type": "object", "properties": {"place": {}}}},
    describe_tool("book"),
)
"""An agent with a tool that takes anything."""
EVENTS = "text/event-stream"
ARGUMENTS = {"text": "a"}
NAMES = ("look_up", "zap")
"""What programs offer here; `zap` is a tool that the agent does not have."""


def make_body(wire: str, **more: Any) -> dict[str, Any]:
    """The body of a request."""
    functions = [{"name": name, "parameters": SCHEMA} for name in NAMES]
    messages = [{"role": "user", "content": "hi"}]
    match wire:
        case "gemini":
            contents = [{"role": "user", "parts": [{"text": "hi"}]}]
            body = {"contents": contents, "tools": [{"functionDeclarations": functions}]}
        case "responses":
            tools = [{"type": "function", **each} for each in functions]
            body = {"model": "m", "input": "hi", "tools": tools}
        case "messages":
            tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
            body = {"model": "m", "max_tokens": 9, "messages": messages, "tools": tools}
        case _:
            tools = [{"type": "function", "function": each} for each in functions]
            body = {"model": "m", "messages": messages, "tools": tools}
    return {**body, **more}


async def ask(
    wire: str,
    data: bytes,
    content_type: str = EVENTS,
    status: str = "200 OK",
    *headers: str,
    spec: dict[str, Any] = SPEC,
) -> tuple[int, str]:
    """Status and text of what a program gets, whose host answers with some bytes; 0 for an answer that is
    broken off. The log verifies."""
    is_streamed = "json" not in content_type or "x-nd" in content_type

    async def answer(call: Call) -> None:
        await call.send_whole(status, data, f"Content-Type: {content_type}", *headers)

    method = "streamGenerateContent?alt=sse" if is_streamed else "generateContent"
    path = PATHS[wire].format(model="m", method=method)
    body = make_body(wire, **({} if wire == "gemini" else {"stream": is_streamed}))
    store = open_store("memory")
    async with (
        serve_host(answer) as host,
        enforce(store, spec, {name_host(wire): host.url}) as watch,
        make_client() as client,
    ):
        try:
            got = await client.post(watch.url + path, json=body)
            result = got.status_code, got.text
        except httpx2.RemoteProtocolError:
            result = 0, ""
    for verified in verify_store(store):
        assert isinstance(verified, VerifiedConversation), verified
    return result


def write_events(events: Iterable[Any], *, is_named: bool = False) -> bytes:
    """Server-sent events."""
    return b"".join(
        (f"event: {event['type']}\n".encode() if is_named else b"")
        + (b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n")
        for event in events
    )


# -- chat completions -------------------------------------------------------------------------------


def call_tool(name: str, **more: Any) -> dict[str, Any]:
    """A call of chat completions."""
    function = {"name": name, "arguments": json.dumps(ARGUMENTS), **more}
    return {"id": f"call_{name}", "type": "function", "function": function}


def choose(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    """A choice of a whole answer."""
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}


def complete(*choices: dict[str, Any]) -> bytes:
    """A whole answer."""
    head = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": list(choices)}).encode()


def chunk(delta: dict[str, Any], word: str | None = None) -> dict[str, Any]:
    """A piece of a streamed answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": word}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("status", ["201 Created", "203 Other", "206 Partial Content"])
async def test_only_the_status_200_brings_an_answer(status: str) -> None:
    """Clients take each status of success for an answer, and nobody has judged it."""
    data = complete(choose(call_tool("zap")))
    assert await ask("chat", data, "application/json", status) == (
        403,
        '{"error": {"message": "toolchart watch: the host answers with the status '
        f'{status[:3]}, and 200 alone can be judged", "type": "toolchart_watch"}}}}',
    )


async def test_no_host_leads_a_program_past_the_watch() -> None:
    """Clients follow to another address by themselves, and would ask there what nobody judges."""
    place = "Location: http://127.0.0.1:1/v1/chat/completions"
    status, _ = await ask("chat", b"", "application/json", "307 Temporary Redirect", place)
    assert status == 403


@pytest.mark.parametrize(
    "choices",
    [
        [choose(content="a"), choose(call_tool("zap"))],
        [choose(call_tool("look_up")), choose(call_tool("zap"))],
        [choose(content="a"), choose(call_tool("zap"), content="b")],
    ],
    ids=["text beside it", "two callers", "two answers"],
)
async def test_a_call_in_one_of_several_choices_is_refused(choices: list[dict[str, Any]]) -> None:
    """Choices that do not say their place, or all the same one."""
    status, text = await ask("chat", complete(*choices), "application/json")
    assert (status, "a call in one of several choices" in text) == (403, True), text


@pytest.mark.parametrize("is_inner", [True, False])
async def test_keys_of_a_call_in_two_spellings_are_refused(is_inner: bool) -> None:
    """Clients in Go take the names of keys in any case."""
    call = call_tool("look_up", **({"Name": "zap"} if is_inner else {}))
    call |= {} if is_inner else {"Function": {"name": "zap"}}
    status, text = await ask("chat", complete(choose(call)), "application/json")
    assert (status, "a call with a second" in text) == (403, True), text


@pytest.mark.parametrize("place", [{"to": 1, "TO": 2}, [{"deep": {"to": 1, "To": 2}}]])
async def test_arguments_with_two_spellings_of_a_key_are_refused(place: Any) -> None:
    """A model that is talked into it would get a value past the schema that a program in Go reads."""
    call = call_tool("free", arguments=json.dumps({"place": place}))
    data = complete(choose(call, call_tool("book")))
    status, text = await ask("chat", data, "application/json", spec=FREE)
    (passed,) = json.loads(text)["choices"][0]["message"]["tool_calls"]
    assert (status, passed["function"]["name"]) == (200, "book")


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
async def test_nothing_passes_behind_the_mark_of_the_end(end: bytes) -> None:
    """Clients that read on would find a call that was never judged."""
    said = [chunk({"role": "assistant", "content": "hi"}), chunk({}, "stop"), b"[DONE]"]
    late = write_events([chunk({"tool_calls": [{"index": 0, **call_tool("zap")}]})]).rstrip(b"\n")
    status, text = await ask("chat", write_events(said) + late + end)
    assert (status, text) == (200, write_events(said).decode())


# -- the other wires ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [{"text": "a"}, {"functionCall": {"name": "look_up", "args": ARGUMENTS}}])
async def test_a_call_in_one_of_several_candidates_is_refused(first: dict[str, Any]) -> None:
    """Gemini leaves out the index of a candidate."""
    zap = {"functionCall": {"name": "zap", "args": ARGUMENTS}}
    candidates = [{"content": {"parts": parts}} for parts in ([first], [{"text": "b"}, zap])]
    body = {"candidates": [{**each, "finishReason": "STOP"} for each in candidates]}
    status, text = await ask("gemini", json.dumps(body).encode(), "application/json")
    assert (status, "a call in one of several candidates" in text) == (403, True), text


async def test_a_rest_that_is_no_json_to_us_does_not_pass() -> None:
    """google-genai ends lines at U+2028, and would find a call."""
    said = {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}
    zap = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "zap", "args": {}}}]}}]}
    data = write_events([said])
    late = write_events([zap]).rstrip(b"\n") + "\u2028".encode()
    assert await ask("gemini", data + late) == (200, data.decode())


async def test_a_rest_with_another_end_of_line_does_not_pass() -> None:
    """Ollama's client ends lines at a lone carriage return too."""
    message = {"role": "assistant", "content": "a"}
    head = {"model": "m", "done": True, "done_reason": "stop"}
    zap = {**message, "tool_calls": [{"function": {"name": "zap", "arguments": ARGUMENTS}}]}
    lines = [json.dumps({**head, "message": each}).encode() for each in (message, zap)]
    status, text = await ask("ollama", lines[0] + b"\r" + lines[1], "application/x-ndjson")
    assert (status, "zap" in text) == (200, False), text


def begin_message(*content: dict[str, Any]) -> dict[str, Any]:
    """The first event of a message."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    return {"type": "message_start", "message": {**head, "content": list(content), "usage": usage}}


END_OF_MESSAGE = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("block", [{"type": "text", "text": "a"}, {"type": "tool_use", "name": "look_up"}])
async def test_a_call_in_the_beginning_of_a_message_is_refused(block: dict[str, Any]) -> None:
    """The SDK keeps what a message begins with beside its blocks."""
    zap = {"type": "tool_use", "id": "z", "name": "zap", "input": ARGUMENTS}
    start = {"type": "content_block_start", "index": 0, "content_block": {"id": "b", "input": {}, **block}}
    data = write_events([begin_message(zap), start, *END_OF_MESSAGE], is_named=True)
    status, text = await ask("messages", data)
    assert "zap" not in text, (status, text)


def list_item_events(item: dict[str, Any], first_name: str = "") -> list[dict[str, Any]]:
    """The events of a call of Responses."""
    where = {"output_index": 0}
    first = {**item, "arguments": "", "name": first_name or item["name"]}
    return [
        {"type": "response.output_item.added", **where, "item": first},
        {"type": "response.output_item.done", **where, "item": item},
    ]


def make_item(name: str) -> dict[str, Any]:
    """A call of Responses."""
    item = {"type": "function_call", "id": f"fc_{name}", "call_id": f"call_{name}", "name": name}
    return {**item, "arguments": json.dumps(ARGUMENTS), "status": "completed"}


def tell_response(kind: str, *output: dict[str, Any]) -> dict[str, Any]:
    """An event with a whole response."""
    head = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {"type": f"response.{kind}", "response": {**head, "output": list(output)}}


LOOK_UP, ZAP = make_item("look_up"), make_item("zap")
BEGUN, ENDED = tell_response("created"), tell_response("completed", LOOK_UP)


@pytest.mark.parametrize(
    "events",
    [
        [BEGUN, *list_item_events(LOOK_UP, "zap"), ENDED],
        [BEGUN, *list_item_events(LOOK_UP), ENDED, *list_item_events(ZAP)],
        [BEGUN, tell_response("completed"), *list_item_events(ZAP)],
        [tell_response("created", ZAP), *list_item_events(LOOK_UP), ENDED],
        [tell_response("in_progress", ZAP), *list_item_events(LOOK_UP), ENDED],
    ],
    ids=["another name", "behind the end", "behind an empty end", "beginning", "progress"],
)
async def test_a_response_that_tells_two_stories_is_refused(events: list[dict[str, Any]]) -> None:
    """Programs listen to any of its events."""
    status, text = await ask("responses", write_events(events, is_named=True))
    assert "zap" not in text, (status, text)


# -- programs that do no harm -------------------------------------------------------------------------


async def test_a_stream_that_stays_open_behind_its_mark_ends_for_the_program() -> None:
    """Clients stop at the mark; they do not wait for a host that closes late or never."""
    data = write_events([chunk({"content": "hi"}), chunk({}, "stop"), b"[DONE]"])

    async def answer(call: Call) -> None:
        await call.begin_stream()
        await call.send_chunk(data)
        await call.wait_closed()

    store = open_store("memory")
    async with (
        serve_host(answer) as host,
        enforce(store, SPEC, {"openai": host.url}) as watch,
        make_client() as client,
        asyncio.timeout(WAIT_S),
    ):
        got = await client.post(watch.url + PATHS["chat"], json=make_body("chat", stream=True))
    assert (got.status_code, got.content) == (200, data)


async def test_another_prompt_within_a_turn_is_no_message_to_the_host() -> None:
    """The log begins a turn there, without words; a host would refuse a message without words."""
    bodies: list[Any] = []
    replies = [choose(call_tool("look_up")), choose(call_tool("look_up"), call_tool("zap")), choose()]

    async def answer(call: Call) -> None:
        bodies.append(json.loads(call.body))
        data = complete(replies[len(bodies) - 1])
        await call.send_whole("200 OK", data, "Content-Type: application/json")

    store = open_store("memory")
    async with (
        serve_host(answer) as host,
        enforce(store, SPEC, {"openai": host.url}) as watch,
        make_client() as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        for prompt in ("one", "two", "two"):
            body = make_body("chat", messages=[{"role": "system", "content": prompt}, *messages])
            got = (await client.post(watch.url + PATHS["chat"], json=body)).json()
            message = got["choices"][0]["message"]
            calls = message.get("tool_calls") or []
            results = [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in calls]
            messages += [message, *results]
    roles = [each["role"] for each in bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "tool"], bodies[-1]


# -- people who decide -------------------------------------------------------------------------------------

PAYING = {
    **make_spec(describe_tool("look_up"), describe_tool("pay", requires_approval=True)),
    "llms": {"model": {"provider": "scripted", "model": "m"}},
    "responses": [{"llm": "model"}],
}
"""An agent whose model has the name that watched conversations have for theirs."""


async def run_command(folder: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of a command about the log of a folder."""
    (folder / "agent.yaml").write_text(json.dumps(PAYING), "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", START, *words, "--spec", "agent.yaml", "--log", "seen.db"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode()


async def wait_for_questions(store: Store, count: int) -> list[PendingApproval]:
    """What people are asked, once there is enough of it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            calls = [
                call for name in store.list_conversations() for call in read_waiting(store, name).approvals
            ]
            waiting = {(call.conversation, call.id): call for call in calls}  # a parent has its children's
            if len(waiting) == count:
                return list(waiting.values())
            await asyncio.sleep(0.05)


async def test_nobody_goes_on_with_a_turn_whose_watch_was_killed(tmp_path: Path) -> None:
    """The program is gone: neither its tools nor its model may be called in its place, whatever the agent of
    whoever decides has. The turn can be cancelled."""

    async def answer(call: Call) -> None:
        await call.send_whole("200 OK", complete(choose(call_tool("pay"))), "Content-Type: application/json")

    store = open_store(str(tmp_path / "live.db"))
    async with (
        serve_host(answer) as host,
        enforce(store, PAYING, {"openai": host.url}) as watch,
        make_client() as client,
    ):
        asking = asyncio.create_task(client.post(watch.url + PATHS["chat"], json=make_body("chat")))
        (call,) = await wait_for_questions(store, 1)
        with (
            closing(sqlite3.connect(tmp_path / "live.db")) as live,
            closing(sqlite3.connect(tmp_path / "seen.db")) as copy,
        ):
            live.backup(copy)
        asking.cancel()
    left = open_store(str(tmp_path / "seen.db"))
    for lease in left.list_leases():
        left.release_lease(lease, is_open=True)
    code, output = await run_command(tmp_path, "approve", call.conversation, call.id)
    assert (code, "runs in another program" in output) == (2, True), output
    code, output = await run_command(tmp_path, "resume", call.conversation)
    assert (code, "waiting for approval" in output) == (1, True), output
    types = [json.loads(line)["event"]["type"] for line in left.read_lines(call.conversation)]
    assert types[-1] == "reviewed"


async def test_calls_of_two_children_are_decided(tmp_path: Path) -> None:
    """Two children of one call ask people at once: each decision is about its own."""
    topics = [f"find out all about the {number} topic" for number in ("first", "second")]

    async def answer(call: Call) -> None:
        said = json.loads(call.body)["messages"][0]["content"]
        calls = [call_tool("pay")]
        if said == "hi":
            texts = [json.dumps({"text": topic}) for topic in topics]
            calls = [{**call_tool("look_up", arguments=text), "id": text} for text in texts]
        await call.send_whole("200 OK", complete(choose(*calls)), "Content-Type: application/json")

    store = open_store(str(tmp_path / "seen.db"))
    async with (
        serve_host(answer) as host,
        enforce(store, PAYING, {"openai": host.url}) as watch,
        make_client() as client,
        asyncio.TaskGroup() as group,
    ):
        bodies = [make_body("chat", messages=[{"role": "user", "content": said}]) for said in ("hi", *topics)]
        await client.post(watch.url + PATHS["chat"], json=bodies[0])
        asking = [
            group.create_task(client.post(watch.url + PATHS["chat"], json=body, timeout=WAIT_S))
            for body in bodies[1:]
        ]
        waiting = await wait_for_questions(store, 2)
        assert all("." in call.conversation for call in waiting)
        for call, deny in zip(waiting, ([], ["--deny"]), strict=True):
            code, output = await run_command(tmp_path, "approve", call.conversation, call.id, *deny)
            assert code == 0 or "another worker" in output, output
        done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        (first,) = done
        assert first.result().json()["choices"][0]["finish_reason"] == "tool_calls"
        # The model of the other one insists, and is asked about anew.
        (again,) = await wait_for_questions(store, 1)
        code, output = await run_command(tmp_path, "cancel", again.conversation)
    assert code == 0, output


# -- the log -----------------------------------------------------------------------------------------------


async def test_a_log_that_fails_once_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written reaches no program, and is written as soon as the log can be."""
    store, failing = open_store("memory"), [False, True, False]
    append = store.append_many

    def append_or_fail(batches: Any) -> Any:
        if failing and failing.pop(0):
            raise LogUnavailable("the disk is away")
        return append(batches)

    monkeypatch.setattr(store, "append_many", append_or_fail)

    async def answer(call: Call) -> None:
        await call.send_whole(
            "200 OK", complete(choose(call_tool("look_up"))), "Content-Type: application/json"
        )

    async with (
        serve_host(answer) as host,
        enforce(store, SPEC, {"openai": host.url}) as watch,
        make_client() as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        got = await client.post(watch.url + PATHS["chat"], json=make_body("chat", messages=messages))
        messages.append(got.json()["choices"][0]["message"])
        messages.append({"role": "tool", "tool_call_id": "call_look_up", "content": "found"})
        got = await client.post(watch.url + PATHS["chat"], json=make_body("chat", messages=messages))
    assert (got.status_code, "the disk is away" in got.text) == (403, True)
    (name,) = store.list_conversations()
    types = [json.loads(line)["event"]["type"] for line in store.read_lines(name)]
    assert types == [
        *("configured", "turn_started", "replied", "reviewed"),
        *("tool_finished", "replied", "reviewed", "tool_finished", "cancelled"),
    ]


# -- programs that name responses ----------------------------------------------------------------------------


def write_response(number: int, text: str, *names: str) -> bytes:
    """A whole stream of Responses, with all events that OpenAI sends."""
    response = {"id": f"r{number}", "object": "response", "created_at": 1, "model": "m", "tools": []}
    response |= {"tool_choice": "auto", "parallel_tool_calls": True}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    ]
    output: list[dict[str, Any]] = []
    if text:
        head = {"type": "message", "id": f"msg{number}", "role": "assistant"}
        place = {"item_id": head["id"], "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        message = {**head, "status": "completed", "content": [{**part, "text": text}]}
        added = {"type": "response.output_item.added", "output_index": 0}
        events += [
            {**added, "item": {**head, "status": "in_progress", "content": []}},
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
            {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": {**part, "text": text}},
            {"type": "response.output_item.done", "output_index": 0, "item": message},
        ]
        output.append(message)
    for name in names:
        item = {**make_item(name), "id": f"fc{number}_{name}", "call_id": f"call{number}_{name}"}
        events += [{**event, "output_index": len(output)} for event in list_item_events(item)]
        output.append(item)
    usage = {"input_tokens": 5, "output_tokens": 6, "total_tokens": 11}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**response, "status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": ended})
    return write_events([{**each, "sequence_number": at} for at, each in enumerate(events)], is_named=True)


async def test_the_sdk_reads_a_response_for_which_the_host_was_asked_twice() -> None:
    """It raises where the id at the end is not the one at the beginning. With it, the program goes on."""
    openai = pytest.importorskip("openai")
    bodies: list[Any] = []
    answers = [
        write_response(1, "One moment. ", "zap"),
        write_response(2, "So be it.", "look_up"),
        write_response(3, "Done."),
    ]

    async def answer(call: Call) -> None:
        bodies.append(json.loads(call.body))
        await call.send_whole("200 OK", answers[len(bodies) - 1], f"Content-Type: {EVENTS}")

    async with (
        serve_host(answer) as host,
        enforce(open_store("memory"), SPEC, {"openai": host.url}) as watch,
        openai.AsyncOpenAI(base_url=f"{watch.url}/openai/v1", api_key="none", max_retries=0) as sdk,
    ):
        async with sdk.responses.stream(model="m", input="hi") as stream:
            first = await stream.get_final_response()
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "ok"}
            for item in first.output
            if item.type == "function_call"
        ]
        async with sdk.responses.stream(model="m", input=results, previous_response_id=first.id) as stream:
            second = await stream.get_final_response()
    assert (first.output_text, len(results), first.usage.total_tokens) == ("One moment. So be it.", 1, 11)
    assert second.output_text == "Done."
    assert "previous_response_id" not in bodies[-1]
    called = [item["call_id"] for item in bodies[-1]["input"] if item.get("type") == "function_call_output"]
    assert called == ["call1_zap", "call2_look_up"]


async def test_a_second_request_after_one_response_asks_the_host_with_all_messages() -> None:
    """The host has another response under that id: it would miss the result of the call that was refused."""
    bodies: list[Any] = []

    async def answer(call: Call) -> None:
        bodies.append(json.loads(call.body))
        data = write_response(1, "", "look_up", "zap") if len(bodies) == 1 else write_response(2, "Done.")
        await call.send_whole("200 OK", data, f"Content-Type: {EVENTS}")

    async with (
        serve_host(answer) as host,
        enforce(open_store("memory"), SPEC, {"openai": host.url}) as watch,
        make_client() as client,
    ):
        url = watch.url + PATHS["responses"]
        await client.post(url, json=make_body("responses", stream=True))
        result = [{"type": "function_call_output", "call_id": "call1_look_up", "output": "ok"}]
        more = {"stream": True, "input": result, "previous_response_id": "r1"}
        for _ in range(2):
            got = await client.post(url, json=make_body("responses", **more))
            assert (got.status_code, "Done." in got.text) == (200, True)
    for body in bodies[1:]:
        assert "previous_response_id" not in body
        calls = {item["call_id"] for item in body["input"] if item.get("type") == "function_call"}
        results = {item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"}
        assert calls == results


# -- secrets ----------------------------------------------------------------------------------------

KEY = "sk-nobody-knows-this-1234567890"


async def ask_with_key() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a program gets and what its host, which are told a key of the program, and refuse one of two
    calls."""
    bodies: list[Any] = []
    texts = json.dumps({"text": f"with {KEY}"})

    async def answer(call: Call) -> None:
        bodies.append(json.loads(call.body))
        calls = [call_tool("look_up", arguments=texts), call_tool("zap")] if len(bodies) == 1 else []
        await call.send_whole("200 OK", complete(choose(*calls)), "Content-Type: application/json")

    async with (
        serve_host(answer) as host,
        enforce(open_store("memory"), SPEC, {"openai": host.url}) as watch,
        make_client() as client,
    ):
        headers = {"authorization": f"Bearer {KEY}"}
        messages: list[Any] = [{"role": "user", "content": f"use {KEY}"}]
        body = make_body("chat", messages=messages)
        got = (await client.post(watch.url + PATHS["chat"], json=body, headers=headers)).json()
        message = got["choices"][0]["message"]
        messages += [message, {"role": "tool", "tool_call_id": "call_look_up", "content": "x"}]
        body = make_body("chat", messages=messages)
        await client.post(watch.url + PATHS["chat"], json=body, headers=headers)
    return message, bodies


async def test_a_call_beside_a_refused_one_keeps_a_secret_among_its_arguments() -> None:
    """The log has none; but the program gets the arguments that the model has made, or none."""
    message, _ = await ask_with_key()
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"text": f"with {KEY}"}


@pytest.mark.xfail(strict=True, reason="the host is asked with the messages of the log, which has no secrets")
async def test_a_host_gets_what_the_program_says_behind_a_refusal_too() -> None:
    """A program that tells its model a key tells it that in each request."""
    _, bodies = await ask_with_key()
    assert [each["messages"][0]["content"] for each in bodies] == [f"use {KEY}"] * 2
