"""Chat completions and models over loopback, driven by the official `openai` SDK."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from agents import make_engine, reply_with_calls
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from served import bearer, make_site, make_value, serve

from toolchart import Engine, load_spec

QUESTION = "What is 17 * (23 + 4)?"
USER: Any = {"role": "user", "content": QUESTION}

ASK_BROWSER: Any = {
    "type": "function",
    "function": {
        "name": "ask_browser",
        "description": "Ask the page.",
        "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
    },
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


def test_models_are_the_agent_and_its_handlers(quickstart: str) -> None:
    """`GET /v1/models` lists the agent and each handler; one of them can be read; another is a 404."""
    client = connect(quickstart)
    assert [model.id for model in client.models.list()] == ["quickstart", "rehearsal"]
    assert client.models.retrieve("rehearsal").owned_by == "toolchart"
    with pytest.raises(openai.NotFoundError, match="this server has: quickstart, rehearsal"):
        client.models.retrieve("gpt-9")


def test_whole_answer_is_that_of_run(quickstart: str, expected: str) -> None:
    """A completion holds the content that `toolchart run` gives, its usage, and where the log has it."""
    completion = connect(quickstart).chat.completions.create(model="quickstart", messages=[USER])
    choice = completion.choices[0]
    assert (choice.message.content, choice.finish_reason) == (expected, "stop")
    assert completion.usage is not None
    assert completion.model_extra is not None
    assert completion.model_extra["toolchart"]["state"] == "finished"


@pytest.mark.parametrize("includes_usage", [True, False])
def test_chunks_add_up_to_the_answer(quickstart: str, expected: str, includes_usage: bool) -> None:
    """The deltas of a stream are the answer; its last chunk holds the usage where the client asks for it."""
    stream = connect(quickstart).chat.completions.create(
        model="rehearsal", messages=[USER], stream=True, stream_options={"include_usage": includes_usage}
    )
    chunks = list(stream)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert "".join(texts) == expected
    assert [reason for reason in reasons if reason] == ["stop"]
    assert bool(chunks[-1].usage) is includes_usage


async def test_async_client_whole_and_streamed(quickstart: str, expected: str) -> None:
    """The asynchronous client gets the same, whole and in chunks."""
    async with AsyncOpenAI(
        base_url=f"{quickstart}/v1", api_key=make_value("talker"), max_retries=0, timeout=120
    ) as client:
        completion = await client.chat.completions.create(model="quickstart", messages=[USER])
        assert completion.choices[0].message.content == expected
        async with client.chat.completions.stream(model="quickstart", messages=[USER]) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == expected


def test_earlier_messages_are_the_history() -> None:
    """The model sees the earlier messages of a request; a system message fills `{{instructions}}`."""
    engine = make_engine(["Yes."], responses=[{"llm": "model", "name": "h", "prompt": "Be {{instructions}}"}])
    messages = [
        {"role": "system", "content": "kind"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]
    with serve(make_site(engine)) as address:
        connect(address).chat.completions.create(model="h", messages=messages)
    (request,) = engine.hosts.providers["model"].requests
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be kind"),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]


# -- what comes back to the client -----------------------------------------------------------------


def test_tool_of_the_client_runs_at_the_client() -> None:
    """A call of a tool that the client declares comes back to it; its output continues the same turn, next to
    the tools that run inside."""
    calls = [("ask_browser", {"question": "where?"}), ("echo", {"text": "hello"})]
    engine = make_engine([reply_with_calls(*calls), "You are in Brno."])
    with serve(make_site(engine)) as address:
        client = connect(address, "talker")
        messages: list[Any] = [{"role": "user", "content": "Where am I?"}]
        first = client.chat.completions.create(model="agent", messages=messages, tools=[ASK_BROWSER])
        (call,) = first.choices[0].message.tool_calls or ()
        assert first.choices[0].finish_reason == "tool_calls"
        assert (call.function.name, json.loads(call.function.arguments)) == calls[0]
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Brno"}]
        second = client.chat.completions.create(model="agent", messages=messages, tools=[ASK_BROWSER])
        assert second.choices[0].message.content == "You are in Brno."
        again = client.chat.completions.with_raw_response
        with pytest.raises(openai.ConflictError, match="waits"):
            again.create(model="agent", messages=messages, tools=[ASK_BROWSER])


def test_streamed_call_of_a_client_tool(quickstart: str) -> None:
    """In a stream the call comes in one chunk, and the SDK puts it together."""
    engine = make_engine([reply_with_calls(("ask_browser", {"question": "where?"}))])
    with (
        serve(make_site(engine)) as address,
        connect(address).chat.completions.stream(
            model="agent", messages=[USER], tools=[ASK_BROWSER]
        ) as stream,
    ):
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls or ()
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "ask_browser",
        {"question": "where?"},
    )


def test_turn_with_a_client_tool_can_be_decided_elsewhere() -> None:
    """A decision that comes by another API goes on with the same turn. The tool of the client still is one:
    its call waits for the client, and is no unknown tool."""
    tools: Any = {"registry": [{"name": "echo", "requires_approval": True}]}
    calls = [("ask_browser", {"question": "where?"}), ("echo", {"text": "hello"})]
    engine = make_engine([reply_with_calls(*calls)], chart="approval", tools=tools)
    with serve(make_site(engine)) as address:
        first = connect(address).chat.completions.create(model="agent", messages=[USER], tools=[ASK_BROWSER])
        (call,) = first.choices[0].message.tool_calls or ()
        assert call.function.name == "ask_approval"
        assert first.model_extra is not None
        name = first.model_extra["toolchart"]["conversation"]
        (waiting,) = engine.conversation(name).read_turn().pending_approvals
        decision = {"call_id": waiting.id, "approved": True}
        answer = httpx.post(
            f"{address}/api/conversations/{name}/decisions", json=decision, headers=bearer(), timeout=120
        )
        assert answer.status_code == 200, answer.text
        assert [waiting.tool for waiting in engine.conversation(name).read_turn().waiting_calls] == [
            "ask_browser"
        ]


def test_a_message_while_a_call_waits_is_kept_for_the_open_turn() -> None:
    """S5.5: a request that says something in place of the decision goes to the turn that waits, and is asked
    for the same decision; after it the model reads the message."""
    tools: Any = {"registry": [{"name": "echo", "requires_approval": True}]}
    replies = [reply_with_calls(("echo", {"text": "a"})), "both"]
    engine = make_engine(replies, chart="approval", tools=tools)
    with serve(make_site(engine)) as address:
        client = connect(address)
        messages: list[Any] = [USER]
        first = client.chat.completions.create(model="agent", messages=messages)
        messages += [first.choices[0].message, {"role": "user", "content": "and hurry"}]
        second = client.chat.completions.create(model="agent", messages=messages)
        (call,) = second.choices[0].message.tool_calls or ()
        assert call == (first.choices[0].message.tool_calls or ())[0]
        output = json.dumps({"approved": True})
        messages += [second.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": output}]
        third = client.chat.completions.create(model="agent", messages=messages)
        assert third.choices[0].message.content == "both"
        model: Any = engine.hosts.providers["model"]
        assert model.requests[-1].messages[-1].content == "and hurry"
        assert len(list(engine.store.list_conversations())) == 1


@pytest.mark.parametrize(("approved", "streams"), [(True, True), (True, False), (False, False)])
def test_approval_is_a_call_to_the_client(approved: bool, streams: bool) -> None:
    """A turn that waits for an approval calls `ask_approval`; the output decides, and the turn ends as in
    `toolchart run`."""
    with serve_agent("careful") as address:
        client = connect(address, "owner")
        messages: list[Any] = [{"role": "user", "content": "delete report.txt"}]
        first = client.chat.completions.create(model="careful", messages=messages)
        (call,) = first.choices[0].message.tool_calls or ()
        assert call.function.name == "ask_approval"
        runs = "fixed answer: deleted (only rehearsed)"
        wanted = {"tool": "delete_file", "arguments": {"path": "report.txt"}, "runs": runs}
        assert json.loads(call.function.arguments) == wanted
        output = json.dumps({"approved": approved, "reason": "not today"})
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": output}]
        with pytest.raises(openai.PermissionDeniedError, match="lacks the role 'approve'"):
            connect(address, "talker").chat.completions.create(model="careful", messages=messages)
        if streams:
            with client.chat.completions.stream(model="careful", messages=messages) as stream:
                content = stream.get_final_completion().choices[0].message.content
        else:
            content = (
                client.chat.completions.create(model="careful", messages=messages).choices[0].message.content
            )
    assert content == (
        "Done: deleted (only rehearsed)" if approved else "I did not do it: not executed: not today"
    )


def test_client_tools_cannot_take_the_place_of_own_ones(quickstart: str) -> None:
    """A client's tool with the name of a tool inside, or without a usable name, is refused."""
    for name in ("calculator", "no name", "x" * 65):
        tool = {**ASK_BROWSER, "function": {"name": name}}
        with pytest.raises(openai.BadRequestError):
            connect(quickstart).chat.completions.create(model="quickstart", messages=[USER], tools=[tool])


# -- structured output -----------------------------------------------------------------------------


class Verdict(BaseModel):
    """What a judge says."""

    score: int
    comments: str


def test_form_of_the_answer() -> None:
    """With `response_format` the host is asked for the schema; an answer that breaks it is an error in the
    API's own shape, which the SDK does not repeat."""
    engine = make_engine(['{"score": 9, "comments": "good"}', '{"score": "high"}'])
    with serve(make_site(engine)) as address:
        client = connect(address)
        completion = client.chat.completions.parse(model="agent", messages=[USER], response_format=Verdict)
        assert completion.choices[0].message.parsed == Verdict(score=9, comments="good")
        retrying = client.with_options(max_retries=2)
        with pytest.raises(openai.APIStatusError, match="bad_output") as caught:
            retrying.chat.completions.parse(model="agent", messages=[USER], response_format=Verdict)
        assert caught.value.status_code == 502
    provider = engine.hosts.providers["model"]
    assert len(provider.requests) == 2
    assert provider.requests[0].options["response_format"]["type"] == "json_schema"


def test_form_holds_after_the_tool_of_a_client_has_run() -> None:
    """The form of the answer holds for the whole turn: also where it goes on with the output of a call."""
    call = reply_with_calls(("ask_browser", {"question": "where?"}))
    engine = make_engine([call, '{"score": 9, "comments": "good"}', call, "no JSON"])
    with serve(make_site(engine)) as address:
        client = connect(address)
        for is_good in (True, False):
            messages: list[Any] = [USER]
            function = {**ASK_BROWSER["function"], "strict": True}  # the SDK wants it beside a form
            tools = [{**ASK_BROWSER, "function": function}]
            options: Any = {"model": "agent", "tools": tools, "response_format": Verdict}
            first = client.chat.completions.parse(messages=messages, **options)
            (asked,) = first.choices[0].message.tool_calls or ()
            messages += [
                {"role": "assistant", "tool_calls": [asked.model_dump(include={"id", "type", "function"})]},
                {"role": "tool", "tool_call_id": asked.id, "content": "Brno"},
            ]
            if is_good:
                second = client.chat.completions.parse(messages=messages, **options)
                assert second.choices[0].message.parsed == Verdict(score=9, comments="good")
            else:
                with pytest.raises(openai.InternalServerError, match="bad_output"):
                    client.chat.completions.parse(messages=messages, **options)


def test_flow_with_structured_results() -> None:
    """A flow whose models answer by schemas gives the content of `toolchart run`, whole and streamed; its
    drafts are no part of the stream."""
    spec = "reflection"
    with Engine(load_spec(spec), log="memory") as engine:
        wanted = engine.run("Write about rain.").content
    with serve_agent(spec) as address:
        client = connect(address)
        message: Any = {"role": "user", "content": "Write about rain."}
        whole = client.chat.completions.create(model=client.models.list().data[0].id, messages=[message])
        with client.chat.completions.stream(
            model=client.models.list().data[0].id, messages=[message]
        ) as stream:
            streamed = stream.get_final_completion()
    assert whole.choices[0].message.content == streamed.choices[0].message.content == wanted


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema"}}},
    ],
)
def test_schemas_that_could_cost_too_much_are_refused(quickstart: str, schema: dict[str, Any]) -> None:
    """The schema of an answer is that of an object, refers to nothing outside, and never to itself."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="schema"):
        connect(quickstart).chat.completions.create(model="quickstart", messages=[USER], response_format=form)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"messages": []}, "messages: there is none"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last one must be"),
        ({"messages": [{"role": "user", "content": 7}]}, "text or a list of parts"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "nothing waits"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}],
                    }
                ]
            },
            "data: URL",
        ),
        ({"n": 2}, "one answer"),
        ({"tools": [{"type": "web_search"}]}, "only functions"),
        ({"tool_choice": "none"}, "the agent decides which tools run"),
        ({"tool_choice": {"type": "function", "function": {"name": "calculator"}}}, "the agent decides"),
        ({"functions": [{"name": "echo", "parameters": {}}]}, "write tools"),
        ({"function_call": {"name": "echo"}}, "write tools"),
    ],
)
def test_bad_requests_say_what_is_wrong(quickstart: str, changes: dict[str, Any], text: str) -> None:
    """A bad request is a 400 in the API's own shape, and says what is wrong."""
    with pytest.raises(openai.BadRequestError, match=text) as caught:
        connect(quickstart).post(
            "/chat/completions", cast_to=object, body={"model": "quickstart", "messages": [USER], **changes}
        )
    assert caught.value.body["type"] == "invalid_request_error"


def test_tokens_are_checked(quickstart: str) -> None:
    """An unknown token is a 401, one that may only read is a 403, both in the API's own shape."""
    stranger = OpenAI(base_url=f"{quickstart}/v1", api_key="nobody", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as caught:
        stranger.models.list()
    assert caught.value.code == "invalid_api_key"
    assert "unknown token: `toolchart serve` prints its tokens when it starts" in str(caught.value)
    with pytest.raises(openai.PermissionDeniedError, match="lacks the role 'chat'"):
        connect(quickstart, "viewer").chat.completions.create(model="quickstart", messages=[USER])


def test_failing_host_is_an_error_and_no_answer() -> None:
    """A turn that ends in error is no answer: an error whole, and an error in a stream."""
    failure = {"fail": {"kind": "auth", "message": "the key is wrong"}}
    engine = make_engine([failure, failure])
    with serve(make_site(engine)) as address:
        client = connect(address)
        with pytest.raises(openai.InternalServerError, match="the key is wrong"):
            client.chat.completions.create(model="agent", messages=[USER])
        with pytest.raises(openai.APIError, match="the key is wrong"):
            list(client.chat.completions.create(model="agent", messages=[USER], stream=True))
