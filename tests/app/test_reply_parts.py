"""What a reply has beside text, over each protocol, on the command line, and in exports."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents import make_engine

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from ag_ui.core import RunAgentInput, UserMessage
from ag_ui.core.events import Event
from mcp import Client
from openai import OpenAI
from pydantic import TypeAdapter
from served import bearer, make_site, make_value, serve

from toolchart.app.cli.commands.reading.show import format_record
from toolchart.app.server.access.tokens import ROLES, Access
from toolchart.app.server.mcp_server.server import build_mcp_server
from toolchart.app.server.site import Limits
from toolchart.engine.exchange.messages import export_messages
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.replay import replay_conversation
from toolchart.states.content import CitationPart, HostCallPart

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 16).decode()
SOUND = base64.b64encode(b"RIFF\0\0\0\0WAVE" + b"\0" * 16).decode()
PARTS: list[dict[str, Any]] = [
    {"type": "host_call", "tool": "web_search", "id": "ws1", "input": {"query": "boats"}, "units": 1},
    {"type": "image", "data": PIXEL, "media_type": "image/png"},
    {"type": "audio", "data": SOUND, "media_type": "audio/wav"},
    {"type": "file", "file_id": "file_1", "name": "plan.csv"},
    {"type": "citation", "url": "https://a.test", "title": "A", "start": 0, "end": 5},
]
AT = "2026-11-23T12:00:00+00:00"
REPLY = {"content": "Three boats.", "parts": PARTS}


def serve_reply() -> Any:
    """A served agent that answers with every kind of part."""
    return serve(make_site(make_engine([REPLY] * 4)))


def test_a_result_has_the_parts_of_its_answer() -> None:
    """The parts stand in the result and its JSON, in order; sources and calls of the host also apart. The
    log that replays has them, and so has its export."""
    with make_engine([REPLY]) as engine:
        result = engine.run("How many boats?", conversation="c")
        assert [part["type"] for part in result.to_dict()["parts"]] == [
            "text",
            *(part["type"] for part in PARTS),
        ]
        assert result.citations == [CitationPart(url="https://a.test", title="A", start=0, end=5)]
        (call,) = result.host_calls
        assert isinstance(call, HostCallPart)
        assert (call.tool, call.input) == ("web_search", {"query": "boats"})
        assert list(replay_conversation(engine.store, "c"))
        records = list(read_conversation(engine.store, "c"))
        shown = "\n".join(map(format_record, records))
        assert "[source: A]" in shown
        assert "[image/png, 24 bytes]" in shown
        assert "web_search boats" in shown
        exported = export_messages(engine.store.read_lines("c"), "c")
        assert exported[-1]["annotations"][0]["url_citation"]["url"] == "https://a.test"
        assert PIXEL in str(exported[-1]["content"])


def test_an_answer_over_several_replies_joins_their_parts() -> None:
    """Where a paused reply goes on, places of sources count from the beginning of the whole answer, and the
    outcome of a call that came later stands with the call."""
    call = {"type": "host_call", "tool": "web_search", "id": "ws1", "input": {"query": "boats"}}
    outcome = {"type": "host_call", "tool": "web_search", "id": "ws1", "output": "three", "units": 1}
    source = {"type": "citation", "url": "https://a.test", "start": 0, "end": 5}
    replies = [
        {"content": "Let me look. ", "parts": [call], "finish_reason": "paused"},
        {"content": "Three boats.", "parts": [outcome, source]},
    ]
    with make_engine(replies) as engine:
        result = engine.run("How many boats?")
    assert result.content == "Let me look. Three boats."
    (cited,) = result.citations
    assert result.content[cited.start : cited.end] == "Three"
    (joined,) = result.host_calls
    assert (joined.input, joined.output, joined.units) == ({"query": "boats"}, "three", 1)


def test_a_text_of_the_chart_has_no_parts() -> None:
    """Where the chart answers in its own words, the parts of a reply before it are not those of the answer;
    calls of the host stay in the result."""
    call = {"type": "host_call", "tool": "web_search", "id": "ws1", "units": 1}
    image = {"type": "image", "data": PIXEL, "media_type": "image/png"}
    calls = [{"name": "calculator", "arguments": {"expression": "1"}}]
    with make_engine([{"content": "See:", "parts": [call, image], "tool_calls": calls}, "One."]) as engine:
        result = engine.run("How many?")
    assert (result.content, result.parts) == ("One.", ())
    assert [entry.id for entry in result.host_calls] == ["ws1"]


@pytest.mark.parametrize("stream", [False, True])
def test_chat_completions_have_parts(stream: bool) -> None:
    """Sources are annotations, pictures `images`, a sound `audio`; the rest stands under `toolchart`."""
    with serve_reply() as url:
        client = OpenAI(base_url=f"{url}/v1", api_key=make_value("owner"), max_retries=0)
        options: Any = {"model": "agent", "messages": [{"role": "user", "content": "How many?"}]}
        options["model"] = client.models.list().data[0].id
        if stream:
            pieces = client.chat.completions.create(stream=True, **options)
            chunks = [piece.model_dump(mode="json") for piece in pieces]
            message = {k: v for c in chunks for k, v in c["choices"][0]["delta"].items() if v is not None}
            extra = chunks[-1]["toolchart"]
        else:
            data = client.chat.completions.create(**options).model_dump()
            message, extra = data["choices"][0]["message"], data["toolchart"]
    assert message["annotations"][0]["url_citation"]["title"] == "A"
    assert message["images"][0]["image_url"]["url"].endswith(PIXEL)
    assert message["audio"]["data"] == SOUND
    assert [part["type"] for part in extra["parts"]] == ["file"]
    assert extra["host_calls"][0]["tool"] == "web_search"


@pytest.mark.parametrize("stream", [False, True])
def test_responses_have_parts(stream: bool) -> None:
    """Sources are annotations of the text, a picture is an item with its result; the rest is apart."""
    with serve_reply() as url:
        client = OpenAI(base_url=f"{url}/v1", api_key=make_value("owner"), max_retries=0)
        options: Any = {"model": client.models.list().data[0].id, "input": "How many?"}
        if stream:
            events = list(client.responses.create(stream=True, **options))
            added = [e for e in events if e.type == "response.output_text.annotation.added"]
            assert len(added) == 1
            response = events[-1].response
        else:
            response = client.responses.create(**options)
    text, picture = response.output
    assert text.content[0].annotations[0].url == "https://a.test"
    assert (picture.type, picture.result) == ("image_generation_call", PIXEL)
    assert response.model_extra is not None
    assert [part["type"] for part in response.model_extra["toolchart"]["parts"]] == ["audio", "file"]


def test_ag_ui_has_parts() -> None:
    """Each part is an event of its own as it comes, and the end of the run has all of them."""
    run = RunAgentInput(
        thread_id="t",
        run_id="r",
        state=None,
        messages=[UserMessage(id="u1", content="How many?")],
        tools=[],
        context=[],
        forwarded_props=None,
    )
    with serve_reply() as url:
        headers = {**bearer("owner"), "Content-Type": "application/json"}
        answer = httpx.post(f"{url}/ag-ui", content=run.model_dump_json(by_alias=True), headers=headers)
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    events = [TypeAdapter(Event).validate_json(line) for line in lines]
    values = [event.value["part"] for event in events if event.type.value == "CUSTOM"]
    assert values == PARTS
    assert events[-1].type.value == "RUN_FINISHED"
    assert events[-1].result["parts"][1:] == PARTS


def test_the_native_protocol_has_parts() -> None:
    """The result of a conversation and its messages have the parts as the log writes them."""
    with serve_reply() as url, httpx.Client(base_url=url, headers=bearer("owner")) as client:
        begun = client.post("/api/conversations", json={"message": "How many?"}).json()
        messages = client.get(f"/api/conversations/{begun['conversation']}/messages").json()["messages"]
    assert begun["parts"][1:] == PARTS
    assert messages[-1]["parts"][1:] == PARTS


async def test_mcp_has_parts() -> None:
    """Pictures and sounds are contents of the result; sources and files stand in its data."""
    engine = make_engine([REPLY])
    access = Access(name="anna", roles=frozenset(ROLES))
    site = make_site(engine, limits=Limits(task_after_s=60))
    server, turns = build_mcp_server(site, lambda _: access)
    async with Client(server) as client:
        tool = (await client.list_tools()).tools[0].name
        result = await client.call_tool(tool, {"message": "How many?"})
    await turns.stop()
    await engine.aclose()
    text, picture, sound = result.content
    assert (picture.data, sound.data) == (PIXEL, SOUND)
    assert (picture.mime_type, sound.mime_type) == ("image/png", "audio/wav")
    assert [part["type"] for part in result.structured_content["parts"]] == ["file", "citation"]
    assert text.text == "Three boats."


def test_redacted_parts_are_gone(tmp_path: Path) -> None:
    """A secret in what the host was asked is struck out of the parts."""
    secret = {**REPLY, "parts": [{**PARTS[0], "input": {"query": "card 4111111111111111"}}, *PARTS[1:]]}
    with make_engine([secret], log=tmp_path / "a.db", redact={"patterns": ["card"]}) as engine:
        engine.run("How many?", conversation="c")
        text = b"".join(engine.store.read_lines("c"))
        assert b"4111111111111111" not in text
        assert PIXEL.encode() in text
