"""`toolchart serve --durable`: turns that workers run, over the protocols. `test_conversations_api.py` has
the API of conversations with a worker."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_spec, reply_with_calls
from endpoint_requests import BODIES
from paying_agent import wait_until
from served import SiteMaker, make_site, open_client

from toolchart import Engine
from toolchart.app.cli.commands.turns.serve import open_engine
from toolchart.engine.durable.fleet.fleet_engine import FleetEngine
from toolchart.engine.durable.stretches import Rest, Stretch
from toolchart.engine.log.replay import replay_conversation
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import DurableHostUnavailable, ToolchartError
from toolchart.states.messages import Reply, Request

CLIENT_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "ask_browser", "parameters": {}}}


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[SiteMaker]:
    """Sites that hand their turns to a worker."""
    maker = SiteMaker(tmp_path)
    yield maker
    maker.close()


async def complete(client: httpx.AsyncClient, status: int = 200, **body: Any) -> dict[str, Any]:
    """Ask for a chat completion, whose answer must have this status."""
    message = {"role": "user", "content": "go"}
    answer = await client.post("/v1/chat/completions", json={"model": "agent", "messages": [message], **body})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


async def test_a_streamed_completion_has_the_whole_text_of_each_reply(sites: SiteMaker) -> None:
    """The text of the answer comes in one piece, when its record is in the log; what the model says before it
    calls a tool is no part of it."""
    first = {**reply_with_calls(("echo", {"text": "a"})), "content": "I look."}
    async with open_client(sites.make([first, "It is blue."])) as client:
        body = {"model": "agent", "messages": [{"role": "user", "content": "go"}], "stream": True}
        answer = await client.post("/v1/chat/completions", json=body)
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") for line in lines]
    assert [delta for delta in deltas if delta] == ["It is blue."]


async def test_the_form_of_an_answer_reaches_the_worker(sites: SiteMaker) -> None:
    """A host is asked for the schema, and an answer that breaks it is refused by the worker."""
    schema = {"type": "object", "required": ["score"], "properties": {"score": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
    async with open_client(sites.make(['{"score": 9}', '{"score": "high"}'])) as client:
        good = await complete(client, response_format=form)
        bad = await complete(client, 502, response_format=form)
    assert good["choices"][0]["message"]["content"] == '{"score": 9}'
    assert "bad_output" in json.dumps(bad)


async def test_the_form_of_a_handler_holds_without_being_asked_for(sites: SiteMaker) -> None:
    """Row 63: a server whose handler has a `response_format` gives no answer that breaks it, whether it runs
    the turn itself or hands it to a worker."""
    schema = {"type": "object", "required": ["score"], "properties": {"score": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
    handlers = [{"llm": "model", "prompt": "p", "response_format": form}]
    async with open_client(sites.make(['{"score": 9}', '{"score": "high"}'], responses=handlers)) as client:
        good = await complete(client)
        bad = await complete(client, 502)
    assert good["choices"][0]["message"]["content"] == '{"score": 9}'
    assert "bad_output" in json.dumps(bad)


async def test_history_variables_and_attachments_reach_the_worker(sites: SiteMaker) -> None:
    """The model of the worker sees what the request had."""
    model = ScriptedProvider(["seen"])
    responses = [{"llm": "model", "prompt": "Be {{mood}}."}]
    async with open_client(sites.make(provider=model, responses=responses)) as client:
        body = {
            "message": "and this?",
            "variables": {"mood": "kind"},
            "history": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
            "attachments": [{"data": base64.b64encode(b"words").decode(), "media_type": "text/plain"}],
        }
        answer = await client.post("/api/conversations", json=body)
    assert answer.json()["content"] == "seen"
    (request,) = model.requests
    assert [message.content for message in request.messages[:3]] == ["Be kind.", "one", "two"]
    text, file = request.messages[3].list_parts()
    assert (text.text, file.read_bytes()) == ("and this?", b"words")  # type: ignore[union-attr]


async def test_tools_of_a_client_are_refused(sites: SiteMaker) -> None:
    """Workers do not have them, so the answer says what to do, and nothing is written."""
    site = sites.make()
    async with open_client(site) as client:
        refusal = await complete(client, 400, tools=[CLIENT_TOOL])
        assert "declare them in the spec" in json.dumps(refusal)
        assert list(site.engine.store.list_conversations()) == []


class AwayHost:
    """A host that says of each stretch what a test has it say."""

    def __init__(self, *answers: Rest | Exception | None) -> None:
        self.answers = list(answers)
        self.started: list[Stretch] = []

    async def start(self, stretch: Stretch) -> None:
        """Keep the stretch."""
        self.started.append(stretch)

    async def find_rest(self, stretch: Stretch) -> Rest | None:
        """The next answer; None when there is no other."""
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_turn_that_its_worker_cannot_begin_is_an_error(tmp_path: Path) -> None:
    """Meanwhile the queue may be away, and the stretch may be tried by another worker."""
    host = AwayHost(
        DurableHostUnavailable("gone"), Rest(outcome="held"), Rest(outcome="failed", error="no key for it")
    )
    engine = FleetEngine(make_spec(), host, log=str(tmp_path / "log.db"))
    async with open_client(make_site(engine)) as client:
        answer = await client.post("/api/conversations", json={"message": "hi"})
    assert (answer.status_code, answer.json()["error"]) == (400, "no key for it")
    assert host.answers == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/api/conversations", "/v1/chat/completions", "/v1/responses", "/ag-ui"])
async def test_what_the_queue_says_of_itself_reaches_no_client(
    path: str, stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client reads that the queue cannot be used; its user and host stand in the log of the process."""

    class LostHost(AwayHost):
        async def start(self, stretch: Stretch) -> None:
            raise DurableHostUnavailable('the queue cannot be used: connection to "planted-host" failed')

    engine = FleetEngine(make_spec(), LostHost(), log=str(tmp_path / "log.db"))
    body = {**BODIES[path], **({"stream": stream} if path.startswith("/v1/") else {})}
    body.pop("previous_response_id", None)
    async with open_client(make_site(engine)) as client:
        answer = await client.post(path, json=body)
    assert "the queue cannot be used" in answer.text
    assert "planted-host" not in answer.text
    assert "planted-host" in caplog.text


async def test_a_server_that_stops_leaves_turns_to_their_workers(tmp_path: Path) -> None:
    """Whoever waits for a turn that has not begun hears that it is in the queue."""
    host = AwayHost()
    engine = FleetEngine(make_spec(), host, log=str(tmp_path / "log.db"))
    async with open_client(make_site(engine)) as client:
        asking = asyncio.create_task(client.post("/api/conversations", json={"message": "hi"}))
        await wait_until(lambda: bool(host.started))
        await engine.astop(1)
        answer = await asking
    assert (answer.status_code, "in the queue" in answer.json()["error"]) == (503, True)


async def test_what_is_said_to_a_child_goes_to_the_workers(tmp_path: Path) -> None:
    """A handle of a child, found at its parent, hands over as the parent's does."""
    log, host = str(tmp_path / "log.db"), AwayHost()
    async with Engine("plan_and_review", log=log) as engine:
        await engine.arun("6 * 7", conversation="c")
    async with FleetEngine("plan_and_review", host, log=log) as fleet:
        child, *_ = fleet.conversation("c").children
        resuming = asyncio.create_task(child.aresume())
        await wait_until(lambda: bool(host.started))
        await fleet.astop(1)
        assert (await resuming).content == "6 * 7 = 42, checked."
    assert [stretch.conversation for stretch in host.started] == ["c"]


async def test_observers_see_the_steps_of_the_log(sites: SiteMaker) -> None:
    """Each step of a turn is observed once and in order, in the first turn and in later ones."""
    site = sites.make([reply_with_calls(("echo", {"text": "a"})), "one", "two"])
    seen: list[str] = []
    async with site.engine as engine:
        for message in ("hi", "and?"):
            await engine.arun(message, conversation="c", observer=lambda event, step: seen.append(event.TYPE))
        steps = replay_conversation(engine.store, "c")
        assert seen == [step.record.event["type"] for step in steps]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("sqlite:///log.db", "a durable host needs a PostgreSQL database"),
        ("postgresql://nobody@127.0.0.1:1/none", "the queue cannot be used"),
    ],
)
def test_the_command_needs_a_queue(address: str, text: str) -> None:
    """Another database, and one that cannot be reached, are errors that say so."""
    pytest.importorskip("dbos", reason="needs the extra `durable`")
    with pytest.raises(ToolchartError, match=text), open_engine("quickstart", None, None, address):
        raise AssertionError("nothing is served")


async def test_a_turn_that_a_worker_runs_outlives_its_server(sites: SiteMaker) -> None:
    """When the server stops, whoever waits reads so with 503, and the worker brings the turn to its end; one
    that ends within the grace is answered as always."""
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    class Model(ScriptedProvider):
        async def complete(self, request: Any) -> Any:
            has_begun.set()
            await may_end.wait()
            return await super().complete(request)

    for grace_s, status in ((600.0, 200), (0.0, 503)):
        has_begun.clear()
        may_end.clear()
        site = sites.make(provider=Model(["done"]))
        async with open_client(site) as client:
            asked = asyncio.ensure_future(complete(client, status))
            await has_begun.wait()
            stopping = asyncio.ensure_future(site.stop(grace_s))
            if status == 503:
                await stopping
                assert "stopped before the answer was whole" in (await asked)["error"]["message"]
            may_end.set()
            await stopping
            answer = await asked
            assert status == 503 or answer["choices"][0]["message"]["content"] == "done"
            await wait_until(partial(are_all_finished, site.engine.store))


def are_all_finished(store: Any) -> bool:
    """Whether each conversation of a log has its answer."""
    newest = [store.read_last_line(name) for name in store.list_conversations()]
    return all(json.loads(line)["target"] == "finished" for _, line in newest)


# -- keys ---------------------------------------------------------------------------------------

KEYED: dict[str, dict[str, Any]] = {
    "/api/conversations": {"message": "hi"},
    "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "agent", "input": "hi"},
    "/chat/api": {"prompt": "hi"},
}
"""Bodies that begin a conversation whose id is made of the key, by path."""


class FailingModel(ScriptedProvider):
    """A model whose first request fails, and whose second one waits until it may answer."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("boom")
        await self.may_answer.wait()
        return Reply(content="whole", finish_reason="stop")


@pytest.mark.parametrize(("path", "body"), KEYED.items())
async def test_a_key_finds_the_turn_of_a_worker(path: str, body: dict[str, Any], sites: SiteMaker) -> None:
    """Under one key, a turn of a worker that failed is tried again by a worker, one that runs is waited for
    by every server on the log, and one that has its answer is read. No server asks a model."""
    model = FailingModel()

    async def post(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(path, json=body, headers={"Idempotency-Key": "k"})

    async with open_client(sites.make(provider=model, name="agent")) as client:
        assert "whole" not in (await post(client)).text
        running = asyncio.create_task(post(client))
        await wait_until(lambda: model.asked == 2)
        other_host = sites.make(provider=model, name="agent")
        async with open_client(other_host) as other:
            waiting = asyncio.create_task(post(other))
            done, _ = await asyncio.wait([running, waiting], timeout=0.3)
            assert not done
            model.may_answer.set()
            answers = [await running, await waiting, await post(other)]
    async with open_client(sites.make(provider=model, name="agent")) as client:
        answers.append(await post(client))
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    assert all("whole" in answer.text for answer in answers)
    assert model.asked == 2
