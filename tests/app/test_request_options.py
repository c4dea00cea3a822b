"""What a request of OpenAI's protocols asks for beyond its message: applied, refused or named as ignored."""

from __future__ import annotations

import base64
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from served import make_site, open_client

PROMPTED: Any = [{"llm": "model", "prompt": "Be brief. {{instructions}}", "tools": {"enabled": True}}]
LIMITED: Any = [
    {"llm": "model", "prompt": "Be brief.", "temperature": 0.5, "max_tokens": 100, "reasoning_effort": "low"}
]
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
LOCAL = {"type": "function", "name": "local", "description": "d", "parameters": SCHEMA}

DOORS = ("chat completions", "responses")

REFUSED: list[tuple[str, Any]] = [
    ("stop", ["END"]),
    ("stop", "END"),
    ("logprobs", True),
    ("top_logprobs", 3),
    ("logit_bias", {"50256": -100}),
    ("modalities", ["text", "audio"]),
    ("web_search_options", {}),
    ("max_tool_calls", 1),
    ("parallel_tool_calls", False),
    ("prompt", {"id": "p"}),
    ("conversation", "c"),
]
IGNORED: list[tuple[str, Any]] = [
    ("temperature", 0),
    ("top_p", 0.1),
    ("max_tokens", 5),
    ("max_completion_tokens", 5),
    ("max_output_tokens", 5),
    ("seed", 1),
    ("presence_penalty", 1),
    ("reasoning_effort", "high"),
    ("reasoning", {"effort": "high"}),
    ("metadata", {"a": "b"}),
    ("store", False),
    ("truncation", "auto"),
    ("service_tier", "flex"),
    ("user", "anna"),
    ("include", ["reasoning.encrypted_content"]),
    ("something_new", 1),
]
SILENT: list[tuple[str, Any]] = [
    ("temperature", None),
    ("stop", []),
    ("logprobs", False),
    ("top_logprobs", 0),
    ("modalities", ["text"]),
    ("parallel_tool_calls", True),
    ("store", True),
    ("truncation", "disabled"),
    ("service_tier", "auto"),
    ("metadata", {}),
]


def make_body(door: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """Path and body of a request."""
    if door == "responses":
        return "/v1/responses", {"model": "agent", "input": "hi", **options}
    messages = [{"role": "user", "content": "hi"}]
    return "/v1/chat/completions", {"model": "agent", "messages": messages, **options}


@pytest.mark.parametrize("door", DOORS)
async def test_an_option_is_refused_or_named(door: str) -> None:
    """An option on which a client relies is refused by its name, before anything runs. Any other that is
    given and has no effect is named in the answer. One that asks for what is done anyway is neither."""
    engine = make_engine(["hello"] * (len(IGNORED) + len(SILENT) + 1))
    async with open_client(make_site(engine)) as client:
        for name, value in REFUSED:
            path, body = make_body(door, **{name: value})
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["message"].split(":")[0]) == (400, name)
        assert list(engine.store.list_conversations()) == []
        for name, value in IGNORED:
            path, body = make_body(door, **{name: value})
            assert (await client.post(path, json=body)).json()["toolchart"]["ignored"] == [name]
        if door == "responses":
            path, body = make_body(door, text={"verbosity": "low"})
            assert (await client.post(path, json=body)).json()["toolchart"]["ignored"] == ["text.verbosity"]
        for name, value in SILENT:
            path, body = make_body(door, **{name: value})
            answer = await client.post(path, json=body)
            assert (answer.status_code, "ignored" in answer.json()["toolchart"]) == (200, False), name


@pytest.mark.parametrize("door", DOORS)
async def test_a_stream_names_what_is_ignored(door: str) -> None:
    """The last event of a stream says it too."""
    async with open_client(make_site(make_engine(["hello"]))) as client:
        path, body = make_body(door, temperature=0, stream=True)
        assert '"ignored":["temperature"]' in (await client.post(path, json=body)).text


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("is_named", [True, False])
async def test_instructions_without_a_place_are_named(door: str, is_named: bool) -> None:
    """Instructions and system messages fill `{{instructions}}`. Where no prompt has it, the answer says so,
    and a response does not claim them."""
    engine = make_engine(["hello"], **({"responses": PROMPTED} if is_named else {}))
    async with open_client(make_site(engine)) as client:
        path, body = make_body(door)
        if door == "responses":
            body["instructions"] = "Rhyme."
        else:
            body["messages"].insert(0, {"role": "system", "content": "Rhyme."})
        answer = (await client.post(path, json=body)).json()
    assert answer["toolchart"].get("ignored") == (None if is_named else ["instructions"])
    if door == "responses":
        assert answer["instructions"] == ("Rhyme." if is_named else None)
    request: Any = engine.hosts.providers["model"].requests[0]  # type: ignore[attr-defined]
    assert ("Rhyme." in request.messages[0].content) is is_named


async def test_a_response_says_what_was_used() -> None:
    """Not what the request asked for: the values are those of the handler."""
    engine = make_engine(["hello"], responses=LIMITED)
    async with open_client(make_site(engine)) as client:
        path, body = make_body("responses", temperature=2, max_output_tokens=7, reasoning={"effort": "high"})
        answer = (await client.post(path, json=body)).json()
    assert (answer["temperature"], answer["max_output_tokens"]) == (0.5, 100)
    assert answer["reasoning"] == {"effort": "low", "summary": None}


# -- responses read again ----------------------------------------------------------------------------


async def test_a_response_read_again_is_the_one_that_was_sent() -> None:
    """Whole, with what the turn was begun with: in a chain, with instructions, a form and tools of the
    client, and where the turn goes on with a result."""
    calls = reply_with_calls(("local", {"score": 1}))
    engine = make_engine(["one", '{"score": 2}', calls, "three", "four"], responses=PROMPTED)
    format_ = {"type": "json_schema", "name": "verdict", "schema": SCHEMA}
    async with open_client(make_site(engine)) as client:

        async def send(**body: Any) -> dict[str, Any]:
            answer = await client.post("/v1/responses", json={"model": "agent", **body})
            assert answer.status_code == 200, answer.text
            sent = dict(answer.json())
            read = (await client.get(f"/v1/responses/{sent['id']}")).json()
            assert read == {**sent, "model": read["model"]}
            return sent

        first = await send(input="a", instructions="Rhyme.")
        second = await send(input="b", previous_response_id=first["id"], text={"format": format_})
        third = await send(input="c", previous_response_id=second["id"], tools=[LOCAL])
        output = {"type": "function_call_output", "call_id": third["output"][-1]["call_id"], "output": "x"}
        fourth = await send(input=[output])
        fifth = await send(input="e", previous_response_id=fourth["id"])
    assert [entry["previous_response_id"] for entry in (first, second, third, fourth, fifth)] == [
        None,
        *(entry["id"] for entry in (first, second, third, fourth)),
    ]
    assert (first["instructions"], second["instructions"]) == ("Rhyme.", None)
    assert second["text"]["format"]["schema"]["required"] == ["score"]
    assert [[tool["name"] for tool in entry["tools"]] for entry in (second, third, fourth, fifth)] == [
        [],
        ["local"],
        ["local"],
        [],
    ]


@pytest.mark.parametrize(
    "text", ["c\n0\n0", "c\n0\n1", "c\n-1\n0", "c\n1\n-1", "c\n2\n0", "c\n1\n99", "x\n1\n0"]
)
async def test_an_id_of_no_response_is_not_found(text: str) -> None:
    """404 in the form of the protocol, for reading and for going on."""
    engine = make_engine(["one", "two"])
    name = "resp_" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    async with open_client(make_site(engine)) as client:
        await engine.arun("hi", conversation="c")
        read = await client.get(f"/v1/responses/{name}")
        assert (read.status_code, read.json()["error"]["code"]) == (404, "not_found")
        if text != "c\n1\n99":  # going on asks for the turn alone
            body = {"model": "agent", "input": "and?", "previous_response_id": name}
            assert (await client.post("/v1/responses", json=body)).status_code == 404
