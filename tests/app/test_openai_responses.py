"""Responses over loopback, driven by the official `openai` SDK."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import openai
import pytest
from agents import make_engine, reply_with_calls
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from served import make_site, make_value, open_client, serve

from toolchart import Engine, load_spec
from toolchart.specs.message_pairs import NO_RESULT
from toolchart.testing.clock import TurnableClock

QUESTION = "What is 17 * (23 + 4)?"

ASK_BROWSER: Any = {
    "type": "function",
    "name": "ask_browser",
    "description": "Ask the page.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
    "strict": False,
}


def connect(address: str, name: str = "owner") -> OpenAI:
    """A client of the SDK with somebody's token."""
    return OpenAI(base_url=f"{address}/v1", api_key=make_value(name), max_retries=0, timeout=120)


def serve_agent(spec: str) -> Any:
    """A served agent that ships."""
    return serve(make_site(Engine(load_spec(spec), log="memory")))


@pytest.fixture(scope="module")
def quickstart() -> Iterator[str]:
    """The address of a server of `quickstart`."""
    with serve_agent("quickstart") as address:
        yield address


@pytest.fixture(scope="module")
def expected() -> str:
    """What `toolchart run quickstart` answers to the question."""
    with Engine(load_spec("quickstart"), log="memory") as engine:
        return engine.run(QUESTION).content


def test_whole_response_and_its_stored_form(quickstart: str, expected: str) -> None:
    """A response holds the tool call that ran inside and the content of `toolchart run`; read again from the
    log it is the same."""
    client = connect(quickstart)
    response = client.responses.create(model="rehearsal", input=QUESTION)
    assert (response.status, response.output_text) == ("completed", expected)
    call, message = response.output
    assert (call.type, call.name, call.output, message.type) == ("mcp_call", "calculator", "459", "message")
    assert json.loads(call.arguments) == {"expression": "17 * (23 + 4)"}
    stored = client.responses.retrieve(response.id)
    own = {"instructions", "previous_response_id"}
    assert stored.model_dump(exclude=own) == response.model_dump(exclude=own)


def test_stream_builds_the_response(quickstart: str, expected: str) -> None:
    """The SDK builds the same response from the events, which are numbered from 0 without gaps."""
    client = connect(quickstart)
    with client.responses.stream(model="rehearsal", input=QUESTION) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == expected
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == expected
    stored = client.responses.retrieve(final.id)
    assert [item.model_dump() for item in stored.output] == [
        item.model_dump(exclude={"content": {"__all__": {"parsed"}}}) for item in final.output
    ]


async def test_async_client(quickstart: str, expected: str) -> None:
    """The asynchronous client gets the same, whole and streamed."""
    async with AsyncOpenAI(
        base_url=f"{quickstart}/v1", api_key=make_value("talker"), max_retries=0, timeout=120
    ) as client:
        response = await client.responses.create(model="quickstart", input=QUESTION)
        assert response.output_text == expected
        stream = await client.responses.create(model="quickstart", input=QUESTION, stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"


def test_previous_response_continues_the_conversation() -> None:
    """`previous_response_id` goes on with the stored conversation: the model sees it, and the client sends
    only the new message. Only the newest response can be continued."""
    engine = make_engine(["one", "two"])
    with serve(make_site(engine)) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="first")
        second = client.responses.create(
            model="agent",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "second"}]}],
            previous_response_id=first.id,
        )
        assert (second.output_text, second.previous_response_id) == ("two", first.id)
        with pytest.raises(openai.ConflictError, match="newest"):
            client.responses.create(model="agent", input="third", previous_response_id=first.id)
        assert [client.responses.retrieve(response.id).output_text for response in (first, second)] == [
            "one",
            "two",
        ]
    request: Any = engine.hosts.providers["model"].requests[1]  # type: ignore[attr-defined]
    assert [message.content for message in request.messages] == ["Be brief.", "first", "one", "second"]


@pytest.mark.parametrize("streams", [False, True])
async def test_of_two_clients_that_continue_a_response_one_does(streams: bool) -> None:
    """The other one is told, as one that comes later: its message is not put into the turn of the first."""
    engine = make_engine(["one", "two", "three"])
    async with open_client(make_site(engine), "talker") as client:
        first = (await client.post("/v1/responses", json={"model": "agent", "input": "first"})).json()
        bodies = [
            {"model": "agent", "input": word, "previous_response_id": first["id"], "stream": streams}
            for word in ("red", "blue", "green")
        ]
        answers = await asyncio.gather(*(client.post("/v1/responses", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    won = bodies[[answer.status_code for answer in answers].index(200)]["input"]
    requests: Any = engine.hosts.providers["model"].requests  # type: ignore[attr-defined]
    assert [message.content for message in requests[-1].messages][1:] == ["first", "one", won]
    assert len(requests) == 2


@pytest.mark.parametrize("choice", ["none", "required", {"type": "function", "name": "calculator"}])
def test_a_client_does_not_choose_the_tools_of_the_agent(quickstart: str, choice: Any) -> None:
    """A request that forbids or demands a tool is refused: it would be ignored. `auto` is what happens."""
    client = connect(quickstart)
    with pytest.raises(openai.BadRequestError, match="tool_choice: the agent decides which tools run"):
        client.responses.create(model="quickstart", input=QUESTION, tool_choice=choice)
    assert client.responses.create(model="quickstart", input=QUESTION, tool_choice="auto").output_text


def test_a_whole_list_of_items_is_the_history() -> None:
    """A client that keeps its conversations itself sends all items again, those of the answers too: what ran
    inside comes back as a call with its result, a picture as a picture; nothing but reasoning is left out."""
    echoes: list[Any] = [
        {"role": "user", "content": "first"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "mcp_approval_request", "id": "a", "server_label": "s", "name": "echo", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
        {"type": "mcp_call", "id": "m1", "name": "echo", "arguments": '{"text":"x"}', "output": "x"},
        {"type": "mcp_call", "id": "m2", "name": "echo", "arguments": "{}", "error": "no text"},
        {"type": "mcp_call", "id": "m3", "name": "echo", "arguments": "{}"},
        {"type": "image_generation_call", "id": "i", "result": "iVBORw0KGgo=", "output_format": "png"},
        {"role": "user", "content": "second"},
    ]
    engine = make_engine(["two"])
    with serve(make_site(engine)) as address:
        response = connect(address).responses.create(model="agent", input=echoes)
    request: Any = engine.hosts.providers["model"].requests[0]  # type: ignore[attr-defined]
    seen = [(message.role, message.content or len(message.parts)) for message in request.messages[1:]]
    assert [text for role, text in seen if role == "tool"] == ["x", "no text", NO_RESULT]
    assert [role for role, _ in seen if role != "tool"] == ["user", *["assistant"] * 4, "user"]
    assert [type(part).__name__ for message in request.messages for part in message.parts] == ["ImagePart"]
    assert "no result is known" in response.model_dump_json()


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
        [{"type": "function_call_output", "call_id": "c", "output": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": "b"}, {"type": "function_call_output", "call_id": "c", "output": "a"}],
    ],
)
def test_a_continued_conversation_takes_one_new_message(items: list[Any]) -> None:
    """With `previous_response_id` no item of an input is dropped in silence: a second message, or outputs
    beside one, are refused with the place and the way out; nothing is written."""
    engine = make_engine(["one", "two"])
    with serve(make_site(engine)) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="first")
        with pytest.raises(openai.BadRequestError, match=r"input\[\d\]: with `previous_response_id`"):
            client.responses.create(model="agent", input=items, previous_response_id=first.id)
        reference: Any = {"type": "item_reference", "id": "msg_1"}
        input_: Any = [reference, {"role": "user", "content": "second"}]
        second = client.responses.create(model="agent", input=input_, previous_response_id=first.id)
    assert second.output_text == "two"


def test_chart_that_waits_for_its_user() -> None:
    """A chart that spans turns goes on with `previous_response_id`, as in a chat."""
    with Engine(load_spec("interview"), log="memory") as engine:
        wanted = engine.run("hello", conversation="c").content
        wanted_next = engine.run("Anna", conversation="c").content
    with serve_agent("interview") as address:
        client = connect(address)
        first = client.responses.create(model="interview", input="hello")
        second = client.responses.create(model="interview", input="Anna", previous_response_id=first.id)
        assert (first.output_text, second.output_text) == (wanted, wanted_next)


@pytest.mark.parametrize("streams", [False, True])
def test_tool_of_the_client_runs_at_the_client(streams: bool) -> None:
    """A call of a client's tool comes back as an item; its output continues the same turn. The stored forms
    of both responses are those that the client got."""
    calls = [("ask_browser", {"question": "where?"}), ("echo", {"text": "hello"})]
    replies: list[Any] = [{**reply_with_calls(*calls), "content": "Let me look."}, "You are in Brno."]
    with serve(make_site(make_engine(replies))) as address:
        client = connect(address, "talker")

        def respond(**options: Any) -> Any:
            if not streams:
                return client.responses.create(model="agent", tools=[ASK_BROWSER], **options)
            with client.responses.stream(model="agent", tools=[ASK_BROWSER], **options) as stream:
                return stream.get_final_response()

        first = respond(input="Where am I?")
        assert [item.type for item in first.output] == ["message", "mcp_call", "function_call"]
        call = first.output[-1]
        assert (call.name, json.loads(call.arguments)) == calls[0]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "Brno"}
        second = respond(input=[output], previous_response_id=first.id)
        assert second.output_text == "You are in Brno."
        for response in (first, second):
            stored = client.responses.retrieve(response.id)
            assert [item.type for item in stored.output] == [item.type for item in response.output]
            assert stored.output_text == response.output_text


def test_approval_by_the_items_of_the_api() -> None:
    """A call that waits for approval is an `mcp_approval_request`; the response to it continues the turn, for
    a token with the role only."""
    with serve_agent("careful") as address:
        client = connect(address)
        first = client.responses.create(model="careful", input="delete report.txt")
        (request,) = first.output
        assert (request.type, request.name) == ("mcp_approval_request", "delete_file")
        decision: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        with pytest.raises(openai.PermissionDeniedError, match="'approve'"):
            connect(address, "talker").responses.create(
                model="careful", input=[decision], previous_response_id=first.id
            )
        second = client.responses.create(model="careful", input=[decision], previous_response_id=first.id)
        assert second.output_text == "Done: deleted (only rehearsed)"
        with pytest.raises(openai.ConflictError, match="waits"):
            client.responses.create(model="careful", input=[decision])


# -- what a response was made of ----------------------------------------------------------------------------


def read_words(items: Any) -> list[tuple[str, str]]:
    """Items as their types, each with its text, call or decision."""
    words = []
    for item in items:
        value = item.model_dump()
        content = value.get("content")
        text = content[0]["text"] if content else value.get("output") or value.get("name")
        words.append((value["type"], str(value["approve"]) if text is None else text))
    return words


def test_input_items_are_all_that_a_response_was_made_of(quickstart: str, expected: str) -> None:
    """The input items of a response are the conversation before it, a call that ran inside with its output,
    and its own message: the newest first unless `order` says otherwise, each with an id of its own."""
    client = connect(quickstart)
    first = client.responses.create(model="rehearsal", input=QUESTION)
    second = client.responses.create(model="rehearsal", input="Thanks.", previous_response_id=first.id)
    assert read_words(client.responses.input_items.list(first.id)) == [("message", QUESTION)]
    wanted = [("message", QUESTION), ("mcp_call", "459"), ("message", expected), ("message", "Thanks.")]
    assert read_words(client.responses.input_items.list(second.id, order="asc")) == wanted
    newest_first = list(client.responses.input_items.list(second.id))
    assert read_words(newest_first) == wanted[::-1]
    assert len({item.id for item in newest_first}) == len(wanted)


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_input_items_have_each_item_once(limit: int, order: Any) -> None:
    """The SDK pages through all items, whatever the size of a page; one page is no larger than its limit, and
    says whether more follow."""
    items = [{"role": role, "content": f"{role} {number}"} for number in range(3) for role in ROLES]
    with serve(make_site(make_engine(["done"]))) as address:
        client = connect(address)
        response = client.responses.create(model="agent", input=[*items, {"role": "user", "content": "go"}])
        pages = client.responses.input_items.list(response.id, limit=limit, order=order)
        assert (len(pages.data), pages.has_more) == (min(limit, 7), limit < 7)
        texts = [item.content[0].text for item in pages]  # type: ignore[union-attr]
    wanted = [item["content"] for item in items] + ["go"]
    assert texts == (wanted if order == "asc" else wanted[::-1])


ROLES = ("user", "assistant")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        *(
            ({"limit": value}, "limit: a whole number from 1 to 100")
            for value in ("0", "101", "-1", "x", "1.5")
        ),
        ({"order": "up"}, "order: 'asc'"),
        ({"after": "msg_x"}, "after: this response has no input item 'msg_x'"),
    ],
)
def test_a_page_that_no_list_has_is_refused(quickstart: str, query: dict[str, str], words: str) -> None:
    """A limit out of range, an unknown order and an unknown item are refused, and nothing is put in their
    place."""
    client = connect(quickstart)
    response = client.responses.create(model="rehearsal", input=QUESTION)
    with pytest.raises(openai.BadRequestError, match=words):
        client.responses.input_items.list(response.id, extra_query=query)


def test_outputs_and_decisions_are_input_items() -> None:
    """What a client answers is part of the input of the response that goes on: the output of its call under
    the call's id, and a decision under the id of its request."""
    replies: list[Any] = [reply_with_calls(("ask_browser", {"question": "where?"})), "You are in Brno."]
    with serve(make_site(make_engine(replies))) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="Where am I?", tools=[ASK_BROWSER])
        call: Any = first.output[0]
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Brno"}
        second = client.responses.create(model="agent", input=[output], tools=[ASK_BROWSER])
        items: Any = list(client.responses.input_items.list(second.id, order="asc"))
        assert read_words(items) == [
            ("message", "Where am I?"),
            ("function_call", "ask_browser"),
            ("function_call_output", "Brno"),
        ]
        assert items[1].call_id == items[2].call_id == call.call_id
    with serve(make_site(make_asking_engine())) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="go")
        second = client.responses.create(model="agent", input="and hurry", previous_response_id=first.id)
        request: Any = second.output[0]
        decision: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        third = client.responses.create(model="agent", input=[decision], previous_response_id=second.id)
        before = [("message", "go"), ("mcp_approval_request", "echo"), ("message", "and hurry")]
        assert read_words(client.responses.input_items.list(second.id, order="asc")) == before
        items = list(client.responses.input_items.list(third.id, order="asc"))
        assert read_words(items) == [*before, ("mcp_approval_response", "True")]
        assert items[1].id == items[3].approval_request_id == request.id


def test_items_of_a_history_and_of_media_come_back(quickstart: str) -> None:
    """A list of items that a client sends whole, with a call and a picture in it, is read as it was sent."""
    picture = "data:image/png;base64,iVBORw0KGgo="
    sent: Any = [
        {"role": "user", "content": "Where?"},
        {"type": "function_call", "call_id": "c1", "name": "elsewhere", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "there"},
        {"role": "assistant", "content": "There."},
        {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]},
    ]
    sent[0]["content"] = [
        {"type": "input_text", "text": "Where?"},
        {"type": "input_image", "detail": "auto", "image_url": picture},
    ]
    client = connect(quickstart)
    response = client.responses.create(model="rehearsal", input=sent)
    items: Any = list(client.responses.input_items.list(response.id, order="asc"))
    assert [item.type for item in items] == [entry.get("type", "message") for entry in sent]
    assert [part.model_dump(exclude_unset=True) for part in items[0].content] == sent[0]["content"]
    assert (items[1].call_id, items[2].call_id, items[2].output) == ("c1", "c1", "there")


def make_asking_engine() -> Engine:
    """An engine whose model calls `echo`, which needs approval, and answers `both`."""
    tools = {"registry": [{"name": "echo", "requires_approval": True}]}
    return make_engine([reply_with_calls(("echo", {"text": "a"})), "both"], chart="approval", tools=tools)


def test_a_message_while_a_call_waits_is_kept_for_the_open_turn() -> None:
    """S5.5: a message after a response that waits for approval is kept. Its response asks for the same
    approval, can be read again, and the decision ends the turn with the message answered."""
    engine = make_asking_engine()
    with serve(make_site(engine)) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="go")
        second = client.responses.create(model="agent", input="and hurry", previous_response_id=first.id)
        (request,) = second.output
        assert request == first.output[0]
        decision: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
        third = client.responses.create(model="agent", input=[decision], previous_response_id=second.id)
        assert third.output_text == "both"
        for response in (first, second, third):
            stored = client.responses.retrieve(response.id)
            assert [item.type for item in stored.output] == [item.type for item in response.output]
        model: Any = engine.hosts.providers["model"]
        assert model.requests[-1].messages[-1].content == "and hurry"
        assert len(list(engine.store.list_conversations())) == 1


def test_question_of_a_chart_is_answered_by_its_form() -> None:
    """A question to a person is a call of `ask_person` with its form; an answer that does not fit is refused
    and the question stays open."""
    spec: Any = {
        "chart": {
            "states": {
                "asking": {
                    "initial": True,
                    "enter": "ask_size",
                    "transitions": [
                        {"event": "answered", "target": "done"},
                        {"event": "cancelled", "target": "done"},
                    ],
                },
                "done": {"final": True, "enter": "tell"},
            }
        },
        "effects": {
            "ask_size": {
                "ask_person": {
                    "question": "Which size?",
                    "as": "size",
                    "form": {
                        "type": "object",
                        "properties": {"cm": {"type": "integer", "minimum": 0, "maximum": 300}},
                        "required": ["cm"],
                    },
                }
            },
            "tell": {"answer": "{{size.cm}} cm"},
        },
    }
    clock = TurnableClock()
    with serve(make_site(make_engine([], clock=clock, **spec))) as address:
        client = connect(address)
        first = client.responses.create(model="agent", input="go")
        (call,) = first.output
        assert call.type == "function_call"
        assert (call.name, json.loads(call.arguments)["question"]) == ("ask_person", "Which size?")
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": '{"cm": "big"}'}
        with pytest.raises(openai.BadRequestError, match="cm"):
            client.responses.create(model="agent", input=[output])
        right: Any = {**output, "output": '{"cm": 42}'}
        last = client.responses.create(model="agent", input=[right])
    assert last.output_text == "42 cm"
    second = datetime.fromisoformat(clock.now()).timestamp()
    assert (first.created_at, last.created_at, last.completed_at) == (second,) * 3, "no step is streamed"


class Verdict(BaseModel):
    """What a judge says."""

    score: int


def test_form_of_the_answer() -> None:
    """With `text.format` the SDK parses the answer; one that breaks the schema fails the response."""
    engine = make_engine(['{"score": 9}', "no JSON"])
    with serve(make_site(engine)) as address:
        client = connect(address)
        parsed = client.responses.parse(model="agent", input="judge", text_format=Verdict)
        assert parsed.output_parsed == Verdict(score=9)
        failed = client.responses.create(
            model="agent",
            input="judge",
            text={
                "format": {"type": "json_schema", "name": "verdict", "schema": Verdict.model_json_schema()}
            },
        )
    assert failed.status == "failed"
    assert failed.error is not None
    assert "JSON" in failed.error.message


def test_flow_with_structured_results() -> None:
    """A flow whose models answer by schemas gives the content of `toolchart run`, whole and streamed."""
    with Engine(load_spec("reflection"), log="memory") as engine:
        wanted = engine.run("Write about rain.").content
    with serve_agent("reflection") as address:
        client = connect(address)
        whole = client.responses.create(model="reflection", input="Write about rain.")
        with client.responses.stream(model="reflection", input="Write about rain.") as stream:
            streamed = stream.get_final_response()
    assert whole.output_text == streamed.output_text == wanted


def test_limits_and_errors_of_requests(quickstart: str) -> None:
    """A turn that ends at a limit is incomplete; what is not known or not supported is refused."""
    calls = [reply_with_calls(("echo", {"text": str(number)})) for number in range(9)]
    with serve(make_site(make_engine(calls))) as address:
        assert connect(address).responses.create(model="agent", input="go").status == "incomplete"
    client = connect(quickstart)
    bad: list[dict[str, Any]] = [
        {"input": []},
        {"input": [{"type": "computer_call"}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "hello"}]},
        {"input": "hello", "background": True, "stream": True},
        {"input": "hello", "tools": [{"type": "web_search"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.test/a"}]}]},
    ]
    for body in bad:
        with pytest.raises(openai.BadRequestError):
            client.post("/responses", cast_to=object, body={"model": "quickstart", **body})
    for name in ("resp_x", "resp_YQ", "nothing"):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(name)
