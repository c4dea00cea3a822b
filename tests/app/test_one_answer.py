"""One answer per turn at every door: streamed, returned, read later and recorded, over four protocols."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from ag_ui.core import RunAgentInput
from agents import make_engine, make_spec, reply_with_calls
from hypothesis import example, given
from hypothesis import strategies as st
from openai import OpenAI
from pydantic import BaseModel
from served import bearer, make_site, make_value, serve

from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.app.server.openai_api.response_items import ResponseBuilder
from toolchart.app.server.openai_api.response_routes import read_stored_response
from toolchart.app.server.protocols.turns import AnswerText
from toolchart.engine import Engine
from toolchart.engine.log.replay import load_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Request, TextDelta, TextWithdrawn
from toolchart.states.snapshot import Snapshot

SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}
GOOD, BAD = '{"score": 9}', "Sorry, I will not."
QUICK = {"base_wait_s": 0.001, "max_wait_s": 0.01}
HELLO = "Hello world, it is a fine day."
CALL = ("echo", {"text": "a"})


def call_with(text: str, *calls: tuple[str, Any]) -> dict[str, Any]:
    """A reply that says something and asks for tools."""
    return {**reply_with_calls(*(calls or (CALL,))), "content": text}


def cut(text: str) -> dict[str, Any]:
    """A reply whose connection ends after these words."""
    return {"content": text, "cut": True}


MALFORMED: dict[str, Any] = {"content": "Let me see", "finish_reason": "malformed_call"}

PLAIN: Any = [{"llm": "model", "prompt": "Be brief."}]
FORMED: Any = [{"llm": "model", "prompt": "Be brief.", "response_format": FORM}]
FORMED_TOOLS: Any = [{**FORMED[0], "tools": {"enabled": True}}]

JUDGED: Any = {
    "name": "judged",
    "states": {
        "writing": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "judging", "cond": "finish_reason == 'stop'"},
                {"event": "replied", "target": "error"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "judging": {
            "enter": "judge",
            "transitions": [
                {"event": "replied", "target": "finished", "cond": "verdict.score >= 8"},
                {"event": "replied", "target": "writing", "cond": "verdict.count < 3"},
                {"event": "replied", "target": "finished"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {
        "judge": {
            "call_model": {
                "llm": "model",
                "prompt": "Judge.",
                "as": "verdict",
                "schema": {
                    "type": "object",
                    "required": ["score"],
                    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
                },
            }
        }
    },
}

TEMPLATED: Any = {
    "name": "templated",
    "states": {
        "writing": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "finished", "cond": "finish_reason == 'stop'"},
                {"event": "replied", "target": "error"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "publish"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {"publish": {"answer": "Published."}},
}

HANDED: Any = {
    "name": "handed",
    "states": {
        "writing": {
            "initial": True,
            "enter": "call_model",
            "transitions": [
                {"event": "replied", "target": "handing", "cond": "finish_reason == 'stop'"},
                {"event": "replied", "target": "error"},
                {"event": "failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "handing": {
            "enter": "hand_over",
            "transitions": [
                {"event": "agent_finished", "target": "finished"},
                {"event": "agent_failed", "target": "error"},
                {"event": "cancelled", "target": "error"},
            ],
        },
        "finished": {"final": True, "enter": "answer"},
        "error": {"final": True, "enter": "answer_with_error"},
    },
    "effects": {"hand_over": {"run_agent": {"handler": "helper", "message": "{{user_message}}"}}},
}
HANDLERS: Any = [
    {"name": "main", "llm": "model", "prompt": "Be brief."},
    {"name": "helper", "llm": "model", "prompt": "Help.", "chart": "full", "tools": {"enabled": True}},
]

CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "plain": ([HELLO], {"responses": PLAIN}),
    "tools": ([reply_with_calls(CALL), HELLO], {}),
    "text before calls": ([call_with("Let me look. "), call_with("Once more."), HELLO], {}),
    "text before calls is the answer's": ([call_with("Hello wor"), HELLO], {}),
    "repaired": ([BAD, GOOD], {"responses": FORMED}),
    "repaired twice": ([BAD, '{"score": "high"}', GOOD], {"responses": FORMED}),
    "repaired after a call": ([call_with("Well. "), BAD, GOOD], {"responses": FORMED_TOOLS}),
    "never repaired": ([BAD] * 9, {"responses": FORMED}),
    "no retries": ([BAD], {"responses": FORMED, "chart": "tool_loop"}),
    "cut, and the same": ([cut("Hello wor"), HELLO], {"responses": PLAIN}),
    "cut, and another": ([cut("Hello wor"), "Hi there."], {"responses": PLAIN}),
    "cut, and shorter": ([cut("Hello world"), "Hello"], {"responses": PLAIN}),
    "cut twice": ([cut("Hello wor"), cut("Hell"), HELLO], {"responses": PLAIN}),
    "cut twice, and another": ([cut("Hello wor"), cut("Help"), HELLO], {"responses": PLAIN}),
    "cut with tools": ([call_with("Wait. "), cut("Hello wor"), HELLO], {}),
    "cut before calls": ([cut("Hello wor"), call_with("Hello "), HELLO], {}),
    "cut for good": ([cut("Hello wor")] * 9, {"responses": PLAIN}),
    "cut with a form": ([cut('{"sco'), BAD, GOOD], {"responses": FORMED}),
    "failed before a word": (
        [{"fail": {"kind": "server_error", "retryable": True}}, HELLO],
        {"responses": PLAIN},
    ),
    "a call that nobody can read": ([MALFORMED, HELLO], {"responses": PLAIN}),
    "a call that nobody can read, and the same": ([MALFORMED, "Let me see, it is fine."], {}),
    "calls that nobody can read": ([MALFORMED] * 9, {}),
    "empty": ([" ", HELLO], {"responses": PLAIN}),
    "empty after a call": ([call_with("Let me look. "), " ", HELLO], {}),
    "empty twice": ([" ", " "], {"responses": PLAIN}),
    "filtered": ([{"content": "Half", "finish_reason": "content_filter"}], {"responses": PLAIN}),
    "limit": ([call_with("Let me look. ")] * 20, {"chart": "tool_loop"}),
    "refused by the chart": (
        ["A draft.", '{"score": 2}', HELLO, '{"score": 9}'],
        {"responses": PLAIN, "chart": JUDGED},
    ),
    "answered by the chart": ([HELLO], {"responses": PLAIN, "chart": TEMPLATED}),
    "handed over": (
        ["I ask for you. ", call_with("Hm."), cut("Hello wor"), HELLO],
        {"responses": HANDLERS, "chart": HANDED},
    ),
    "approval": (
        [call_with("May I? "), call_with("Again? ", ("echo", {"text": "b"})), HELLO],
        {"chart": "full", "approval": {"default": "ask"}},
    ),
}
"""By what happens: the replies of the model, and what the spec has."""

FAILING = (
    *("never repaired", "no retries", "cut for good", "filtered"),
    *("calls that nobody can read", "empty twice"),
)


class Door:
    """One protocol over which a turn is run: what its client reads."""

    def __init__(self, address: str, engine: Engine) -> None:
        self.address = address
        self.engine = engine
        self.client = OpenAI(
            base_url=f"{address}/v1", api_key=make_value("owner"), max_retries=0, timeout=120
        )

    def record(self) -> Any:
        """The newest turn of the log's first conversation, from its records alone."""
        names = [name for name in self.engine.store.list_conversations() if "." not in name]
        assert len(names) == 1
        loaded = load_conversation(self.engine.store, names[0])
        assert loaded is not None
        return loaded.snapshot


def ask(**keys: Any) -> dict[str, Any]:
    """A request of chat completions with a question."""
    return {"model": "agent", "messages": [{"role": "user", "content": "Hi"}], **keys}


def approve(messages: list[Any], message: Any) -> None:
    """Answer the calls of a message with approvals."""
    messages.append({"role": "assistant", "tool_calls": [call.model_dump() for call in message.tool_calls]})
    for call in message.tool_calls:
        output = json.dumps({"approved": True})
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


def complete_whole(door: Door) -> str:
    """Chat completions, whole."""
    body = ask()
    while True:
        message = door.client.chat.completions.create(**body).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        assert not message.content
        approve(body["messages"], message)


def complete_streamed(door: Door) -> str:
    """Chat completions, streamed: every delta that a client reads, and what the SDK makes of them."""
    body = ask()
    while True:
        deltas: list[str] = []
        try:
            with door.client.chat.completions.stream(**body) as stream:
                deltas += [event.delta for event in stream if event.type == "content.delta"]
                message = stream.get_final_completion().choices[0].message
        except openai.LengthFinishReasonError as end:  # what the SDK makes of a limit
            message = end.completion.choices[0].message
        assert "".join(deltas) == (message.content or "")
        if not message.tool_calls:
            return message.content or ""
        assert not message.content
        approve(body["messages"], message)


def respond(door: Door, *, streams: bool) -> str:
    """Responses: what was sent, and what is read again."""
    request: dict[str, Any] = {"model": "agent", "input": "Hi"}
    while True:
        if streams:
            with door.client.responses.stream(**request) as stream:
                check_items(events := list(stream))
                response: Any = events[-1].response
        else:
            response = door.client.responses.create(**request)
        stored = httpx.get(f"{door.address}/v1/responses/{response.id}", headers=bearer()).json()
        sent = json.loads(response.model_dump_json())
        assert drop_nulls(stored["output"]) == drop_nulls(sent["output"])
        if response.status == "failed":
            raise openai.APIError(response.error.message, httpx.Request("POST", door.address), body=None)
        asked = [item for item in response.output if item.type == "mcp_approval_request"]
        if not asked:
            return response.output_text
        assert response.output_text == ""
        answers = [
            {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True}
            for item in asked
        ]
        request = {"model": "agent", "input": answers, "previous_response_id": response.id}


def drop_nulls(item: Any) -> Any:
    """An item without what the SDK adds to it."""
    if isinstance(item, list):
        return [drop_nulls(each) for each in item]
    if not isinstance(item, dict):
        return item
    return {
        key: drop_nulls(value)
        for key, value in item.items()
        if value is not None and key not in ("parsed", "parsed_arguments")
    }


def check_items(events: list[Any]) -> None:
    """The deltas of each item are its text; an item without text closes as `incomplete`."""
    texts: dict[str, str] = {}
    for event in events:
        if event.type == "response.output_text.delta":
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
        if event.type == "response.output_item.done" and event.item.type == "message":
            text = "".join(part.text for part in event.item.content)
            if event.item.status == "completed":
                assert text == texts[event.item.id]
            else:
                assert text == ""
                assert event.item.model_extra["toolchart"]["text"] == texts[event.item.id].strip()


def run_ag_ui(door: Door) -> str:
    """AG-UI: the newest message that was not withdrawn."""
    fields: dict[str, Any] = {"messages": [{"id": "u", "role": "user", "content": "Hi"}]}
    while True:
        run = RunAgentInput(thread_id="t", run_id="r", **fields)
        headers = {**bearer(), "Content-Type": "application/json"}
        body = run.model_dump_json(by_alias=True)
        answer = httpx.post(f"{door.address}/ag-ui", content=body, headers=headers, timeout=120)
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        end = events[-1]
        if end["type"] == "RUN_ERROR":
            raise openai.APIError(end["message"], httpx.Request("POST", door.address), body=None)
        texts: dict[str, str] = {}
        for event in events:
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
            if event["type"] == "CUSTOM" and event["name"] == "withdrawn":
                del texts[event["value"]["messageId"]]
        if end["outcome"]["type"] == "success":
            (text,) = texts.values()
            assert text == end["result"]["content"]
            return text
        assert not texts
        resume = [
            {"interrupt_id": item["id"], "status": "resolved", "payload": True}
            for item in end["outcome"]["interrupts"]
        ]
        fields = {"messages": [], "resume": resume}


def follow_own_api(door: Door) -> str:
    """The own API: a turn that is followed by its events, and read afterwards."""
    texts: list[str] = []
    has_ended, is_open = threading.Event(), threading.Event()

    def read() -> None:
        address = f"{door.address}/api/conversations/c/events"
        with httpx.stream("GET", address, headers=bearer(), timeout=120) as events:
            kind = ""
            for line in events.iter_lines():
                is_open.set()
                if line.startswith("event: "):
                    kind = line[7:]
                if not line.startswith("data: "):
                    continue
                data = json.loads(line[6:])
                if kind == "delta" and data["type"] == "text_withdrawn":
                    texts.clear()
                if kind == "delta" and data["type"] == "text_delta":
                    texts.append(data["text"])
                if kind == "result" and data.get("pending_approvals"):
                    assert not texts
                elif kind == "result":
                    has_ended.set()
                    return

    def post(path: str, body: dict[str, Any]) -> Any:
        answer = httpx.post(
            f"{door.address}/api/conversations{path}", json=body, headers=bearer(), timeout=120
        )
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    first = {"conversation": "c", "message": "Hi"}
    gate = door.engine.hosts.providers["model"]
    gate.is_open.clear()  # type: ignore[attr-defined]  # no reply before somebody follows
    begun = post("?wait=false", first)
    assert begun == {"conversation": "c"}
    reader = threading.Thread(target=read)
    reader.start()
    is_open.wait(60)
    gate.is_open.set()  # type: ignore[attr-defined]
    while not has_ended.wait(0.05):
        overview = httpx.get(f"{door.address}/api/conversations/c", headers=bearer()).json()
        for call in (overview["result"] or {}).get("pending_approvals", ()):
            if not overview["is_running"]:
                post("/c/decisions", {"call_id": call["id"], "approved": True})
    reader.join(60)
    result = httpx.get(f"{door.address}/api/conversations/c", headers=bearer()).json()["result"]
    if result.get("error"):
        assert "".join(texts) in ("", result["content"])
        raise openai.APIError(result["error"]["message"], httpx.Request("GET", door.address), body=None)
    assert "".join(texts) == result["content"]
    return "".join(texts)


DOORS: dict[str, Callable[[Door], str]] = {
    "chat whole": complete_whole,
    "chat streamed": complete_streamed,
    "responses whole": lambda door: respond(door, streams=False),
    "responses streamed": lambda door: respond(door, streams=True),
    "ag-ui": run_ag_ui,
    "own api": follow_own_api,
}


class GatedProvider(ScriptedProvider):
    """A script that waits until somebody opens it."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.is_open = threading.Event()
        self.is_open.set()

    async def stream(self, request: Request) -> Any:
        """As the script, when it is open."""
        await asyncio.to_thread(self.is_open.wait)
        async for piece in super().stream(request):
            yield piece


def open_engine(name: str, **options: Any) -> Engine:
    """An engine in which a case happens."""
    replies, changes = CASES[name]
    retry = {} if changes.get("chart", "full") != "full" else {"retry": QUICK}
    spec = make_spec(**{"chart": "full", **retry, **changes})
    return Engine(spec, log="memory", providers={"model": GatedProvider(replies)}, **options)


def run_case(name: str) -> Any:
    """The result of a case in Python, streamed, with approvals; its deltas are its content."""
    with open_engine(name) as engine:
        handle = engine.conversation("c")
        result: Any = read_pieces(handle.stream("Hi"))
        while result.pending_approvals:
            result = read_pieces(handle.stream_approval(result.pending_approvals[0].id))
        return result


def read_pieces(stream: Any) -> Any:
    """The result of a stream. The texts since the newest withdrawal are its content; a failed turn may have
    none, and a turn that waits has none yet."""

    async def collect() -> list[Any]:
        return [piece async for piece in stream]

    texts: list[str] = []
    for piece in (pieces := asyncio.run(collect())):
        if isinstance(piece, TextWithdrawn):
            assert texts, "there was nothing to withdraw"
            texts.clear()
        if isinstance(piece, TextDelta):
            texts.append(piece.text)
    result = pieces[-1]
    assert "".join(texts) in ([result.content] if result.error is None else ["", result.content])
    return result


@pytest.mark.parametrize("way", DOORS)
@pytest.mark.parametrize("name", CASES)
def test_a_client_reads_the_answer_of_the_record(name: str, way: str) -> None:
    """What a client reads while it streams, what POST gives, what GET gives later and what the record holds
    are the same text; a turn that failed is an error at every door, and never a refused text."""
    wanted = run_case(name)
    assert (wanted.error is not None) is (name in FAILING), wanted.error
    engine = open_engine(name)
    with serve(make_site(engine)) as address:
        door = Door(address, engine)
        if name in FAILING or (name, way) in CONTRADICTED:
            with pytest.raises(openai.APIError):
                DOORS[way](door)
        else:
            assert DOORS[way](door) == wanted.content
        snapshot = door.record()
        assert (snapshot.answer, snapshot.error) == (wanted.content, wanted.error)


CONTRADICTED = {
    (name, "chat streamed")
    for name in ("cut, and another", "cut, and shorter", "a call that nobody can read")
}
"""Chat completions cannot take back what was sent: the stream ends with an error that says so."""


# -- the helpers of the SDK for answers with a form --------------------------------------------------


class Verdict(BaseModel):
    """The form of an answer."""

    score: int


def parse_chat(client: OpenAI) -> Any:
    """`chat.completions.parse`."""
    completion = client.chat.completions.parse(**ask(), response_format=Verdict)
    return completion.choices[0].message.parsed


def stream_chat(client: OpenAI) -> Any:
    """`chat.completions.stream` with a form."""
    with client.chat.completions.stream(**ask(), response_format=Verdict) as stream:
        return stream.get_final_completion().choices[0].message.parsed


def parse_response(client: OpenAI) -> Any:
    """`responses.parse`."""
    return client.responses.parse(model="agent", input="Hi", text_format=Verdict).output_parsed


def stream_response(client: OpenAI) -> Any:
    """`responses.stream` with a form."""
    with client.responses.stream(model="agent", input="Hi", text_format=Verdict) as stream:
        return stream.get_final_response().output_parsed


@pytest.mark.parametrize("has_tools", [False, True])
@pytest.mark.parametrize("helper", [parse_chat, stream_chat, parse_response, stream_response])
def test_helpers_of_the_sdk_read_a_repaired_answer(helper: Any, has_tools: bool) -> None:
    """An answer that was repaired is the parsed one, whole and streamed; one that never gets its form is an
    error that says so."""
    before = [call_with("Let me look.")] if has_tools else []
    replies = [*before, cut('{"score'), BAD, GOOD, *before, BAD, BAD, BAD]
    handlers = [{**PLAIN[0], "tools": {"enabled": has_tools}}]
    engine = make_engine(replies, chart="full", responses=handlers, retry=QUICK)
    with serve(make_site(engine)) as address:
        client = Door(address, engine).client
        assert helper(client) == Verdict(score=9)
        if helper is parse_response:  # of a response that failed nothing is parsed
            assert helper(client) is None
        else:
            with pytest.raises((openai.APIError, RuntimeError), match=r"not JSON|response\.completed"):
                helper(client)


def test_ordinary_text_streams_at_once() -> None:
    """S3.4: chat completions send words that only a failure could take back as they come; where tools may be
    called instead, they wait until the reply is whole."""
    for tools, wanted in ((False, 5), (True, 1)):
        handlers = [{**PLAIN[0], "tools": {"enabled": tools}}]
        engine = make_engine(["One two three four five"], chart="full", responses=handlers)
        with serve(make_site(engine)) as address:
            client = Door(address, engine).client
            chunks = list(client.chat.completions.create(**ask(), stream=True))
        texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
        assert "".join(texts) == "One two three four five"
        assert len(texts) == wanted


# -- any turn ----------------------------------------------------------------------------------------

TEXTS = st.text("ab ", max_size=6)


@st.composite
def replies_in_pieces(draw: st.DrawFn) -> dict[str, Any]:
    """A reply of few words, which often begin alike, in any pieces; it may be cut off, or ask for tools."""
    text = draw(TEXTS)
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    pieces = [text[i:j] for i, j in pairwise([0, *ends, len(text)])]
    reply: dict[str, Any] = {"stream": {"pieces": pieces}} if text else {"content": text}
    kind = draw(
        st.sampled_from(["stop", "stop", "cut", "cut", "calls", "paused", "malformed_call", "failed"])
    )
    if kind == "failed":
        return {"fail": {"kind": "server_error", "retryable": True}}
    if kind == "cut":
        return {**reply, "cut": True}
    if kind in ("paused", "malformed_call"):
        return {**reply, "finish_reason": kind}
    return {**reply, **reply_with_calls(CALL)} if kind == "calls" else reply


class WholeProvider:
    """A script whose host cannot stream."""

    name = "scripted"

    def __init__(self, replies: Any) -> None:
        self._inner = ScriptedProvider(replies)
        self.build_body, self.complete = self._inner.build_body, self._inner.complete


@pytest.mark.parametrize("make_provider", [ScriptedProvider, WholeProvider])
@given(replies=st.lists(replies_in_pieces(), min_size=1, max_size=6), has_tools=st.booleans())
@example(replies=[{"stream": {"pieces": [" "]}, "cut": True}], has_tools=False)
def test_any_turn_has_one_answer(make_provider: Any, replies: list[Any], has_tools: bool) -> None:
    """However replies come, break off and begin anew: the deltas since the newest withdrawal are the content;
    what chat completions send is the content, or contradicts it and is told so; and a response has the items
    that it has when it is read from the log."""
    handlers = [{**PLAIN[0], "tools": {"enabled": has_tools}}]
    spec = make_spec(chart="full", responses=handlers, retry={**QUICK, "max_attempts": 4})
    with Engine(spec, log="memory", providers={"model": make_provider(replies)}) as engine:
        site = make_site(engine)
        name = ResponseName(conversation="c", turn=1, seq=0)
        head = {"id": name.id, "model": "agent"}
        builder = ResponseBuilder(head, lambda _: False, lambda: ("", ""), Snapshot)
        chat = AnswerText(("form", "calls", "chart", "agent"), can_withdraw=False)
        sent: list[str] = []

        async def watch() -> Any:
            async for piece in engine.stream("Hi", conversation="c"):
                list(builder.take(piece))
                sent.append(chat.take(piece).text)
                yield piece

        result = read_pieces(watch())
        if result.error is None:
            assert chat.is_contradicted or "".join(sent) == result.content
            assert not (chat.is_contradicted and result.content.startswith("".join(sent)))
        assert read_stored_response(site, name)["output"] == builder.response["output"]


def test_turns_read_after_a_restart_are_those_that_were_sent(tmp_path: Path) -> None:
    """Several turns of one conversation, two handlers in a row: after a restart of the server each response
    has the items that its client got, whole and streamed, and its answer is the record's."""
    log = str(tmp_path / "log.db")
    handlers = [{**FORMED[0], "name": "formed"}, {**PLAIN[0], "name": "free", "tools": {"enabled": True}}]
    spec = make_spec(chart="full", responses=handlers, retry=QUICK)
    replies = [BAD, GOOD, call_with("I look. "), cut("Hello wor"), "Hi there.", cut("Hel"), HELLO]
    sent: list[Any] = []
    with serve(make_site(Engine(spec, log=log, providers={"model": ScriptedProvider(replies)}))) as address:
        client = OpenAI(base_url=f"{address}/v1", api_key=make_value("owner"), max_retries=0, timeout=120)
        for model in ("formed", "free", "free"):
            previous = {"previous_response_id": sent[-1].id} if sent else {}
            with client.responses.stream(model=model, input="Hi", **previous) as stream:
                sent.append(stream.get_final_response())
    assert [response.output_text for response in sent] == [GOOD, "Hi there.", HELLO]
    with serve(make_site(Engine(spec, log=log, providers={"model": ScriptedProvider([])}))) as address:
        for response in sent:
            stored = httpx.get(f"{address}/v1/responses/{response.id}", headers=bearer()).json()
            output = json.loads(response.model_dump_json())["output"]
            assert drop_nulls(stored["output"]) == drop_nulls(output)
