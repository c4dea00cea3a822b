"""Responses in the background: begun once, polled to their end, cancelled, and true after a kill.

The official SDK is the judge of the forms.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_spec, reply_with_calls
from killed_process import die, run_forked
from served import bearer, make_site, make_value, open_client, serve

from toolchart.app.server.site import Site
from toolchart.engine import Engine
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.messages import Request

BODY = {"model": "agent", "input": "hi", "background": True}


class HeldModel(ScriptedProvider):
    """A script that answers when it is let."""

    def __init__(self, replies: Any) -> None:
        super().__init__(replies)
        self.may_answer = asyncio.Event()

    async def _wait_for_answer(self, request: Request) -> Any:
        await self.may_answer.wait()
        return await super()._wait_for_answer(request)


def make_held_site(replies: Any, *, log: Any = "memory", **changes: Any) -> tuple[Site, HeldModel]:
    """A site, and its model, which answers nothing yet."""
    model = HeldModel(replies)
    return make_site(Engine(make_spec(**changes), log=log, providers={"model": model})), model


@asynccontextmanager
async def open_held(replies: Any, **options: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Site, HeldModel]]:
    """Anna's client of such a site."""
    site, model = make_held_site(replies, **options)
    async with open_client(site, "anna") as client:
        try:
            yield client, site, model
        finally:
            model.may_answer.set()


async def poll(client: httpx.AsyncClient, id_: str) -> dict[str, Any]:
    """The response once it is at its end."""

    async def look() -> dict[str, Any]:
        while True:
            answer = (await client.get(f"/v1/responses/{id_}")).json()
            if answer["status"] not in ("queued", "in_progress"):
                return answer  # type: ignore[no-any-return]
            await asyncio.sleep(0.02)

    return await asyncio.wait_for(look(), 60)


async def begin(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    """A response that has begun in the background."""
    answer = await client.post("/v1/responses", json={**BODY, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_the_sdk_begins_polls_and_continues_a_response() -> None:
    """The SDK gets the response before its turn has ended, polls it to its end, and goes on with it."""
    spec = make_spec()
    engine = Engine(spec, log="memory", providers={"model": ScriptedProvider(["one", "two"], latency_s=0.3)})
    with serve(make_site(engine)) as address:
        client = openai.OpenAI(
            base_url=f"{address}/v1", api_key=make_value("anna"), max_retries=0, timeout=60
        )
        previous = None
        for text in ("one", "two"):
            response = client.responses.create(
                model="agent", input="hi", background=True, previous_response_id=previous
            )
            assert (response.status, response.background) == ("in_progress", True)
            while response.status in ("queued", "in_progress"):
                time.sleep(0.02)
                response = client.responses.retrieve(response.id)
            assert (response.status, response.output_text) == ("completed", text)
            assert response.previous_response_id == previous
            previous = response.id


async def test_a_response_is_in_progress_until_it_has_ended() -> None:
    """While its turn runs a response is in progress, without an output; then it is the same as one that was
    waited for."""
    async with open_held(["done", "done"]) as (client, _, model):
        begun = await begin(client, temperature=0.5)
        read = (await client.get(f"/v1/responses/{begun['id']}")).json()
        assert begun["toolchart"].pop("ignored") == ["temperature"]
        assert begun.pop("background") is True
        assert {**read, "background": True} == {**begun, "background": True}
        assert (read["status"], read["output"], read["completed_at"]) == ("in_progress", [], None)
        model.may_answer.set()
        ended = await poll(client, begun["id"])
        waited = (await client.post("/v1/responses", json={**BODY, "background": False})).json()
        own = {"id", "created_at", "completed_at", "toolchart", "output"}
        assert {**ended, **dict.fromkeys(own)} == {**waited, **dict.fromkeys(own)}
        assert [item["content"] for item in ended["output"]] == [item["content"] for item in waited["output"]]


@pytest.mark.parametrize(
    ("replies", "changes", "status"),
    [
        (["done"], {}, "completed"),
        ([{"fail": {"kind": "auth", "message": "no"}}], {}, "failed"),
        ([reply_with_calls(("echo", {"text": "a"}))] * 3, {"limits": {"max_iterations": 1}}, "incomplete"),
        ([reply_with_calls(("echo", {"text": "a"}))], {"approval": {"default": "ask"}}, "completed"),
    ],
)
async def test_a_response_ends_as_its_turn_does(replies: Any, changes: Any, status: str) -> None:
    """The end that GET tells is that of the turn, as for a response that somebody waits for."""
    async with open_held(replies, **changes) as (client, _, model):
        begun = await begin(client)
        model.may_answer.set()
        assert (await poll(client, begun["id"]))["status"] == status


async def test_a_response_is_cancelled() -> None:
    """Cancelling ends the turn, whose log names who did it; cancelled again it is the same; one that has
    ended is refused with how it ended."""
    async with open_held(["done", "done"]) as (client, site, model):
        begun = await begin(client)
        path = f"/v1/responses/{begun['id']}/cancel"
        first = (await client.post(path)).json()
        assert (first["status"], first["error"]) == ("cancelled", None)
        assert (await client.post(path)).json() == first
        assert (await client.get(f"/v1/responses/{begun['id']}")).json() == first
        (conversation,) = site.engine.store.list_conversations()
        events = [step.event for step in site.engine.conversation(conversation).steps]
        assert [event["author"] for event in events if event["type"] == "cancelled"] == ["anna"]
        model.may_answer.set()
        other = await begin(client)
        await poll(client, other["id"])
        refused = await client.post(f"/v1/responses/{other['id']}/cancel")
        assert (refused.status_code, "completed" in refused.json()["error"]["message"]) == (409, True)


async def test_a_response_that_waits_is_cancelled() -> None:
    """A turn that waits for an approval can be cancelled by its response, also one that was not in the
    background."""
    replies = [reply_with_calls(("echo", {"text": "a"}))]
    async with open_held(replies, chart="approval", approval={"default": "ask"}) as (client, _, model):
        model.may_answer.set()
        waiting = (await client.post("/v1/responses", json={**BODY, "background": False})).json()
        assert [item["type"] for item in waiting["output"]] == ["mcp_approval_request"]
        cancelled = (await client.post(f"/v1/responses/{waiting['id']}/cancel")).json()
        assert cancelled["status"] == "cancelled"


async def test_a_key_begins_one_response() -> None:
    """Ten requests with one key at once begin one turn and get one answer; another key begins another one."""
    async with open_held(["one", "two"]) as (client, site, model):

        async def post(key: str) -> httpx.Response:
            return await client.post("/v1/responses", json=BODY, headers={"Idempotency-Key": key})

        answers = await asyncio.gather(*(post("k1") for _ in range(10)))
        assert len({answer.content for answer in answers}) == 1
        assert answers[0].json()["status"] == "in_progress"
        other = await post("k2")
        assert other.json()["id"] != answers[0].json()["id"]
        assert len(list(site.engine.store.list_conversations())) == 2
        model.may_answer.set()
        await poll(client, answers[0].json()["id"])
        await poll(client, other.json()["id"])
        assert len(model.requests) == 2


async def test_others_neither_poll_nor_cancel_it() -> None:
    """For somebody else the response is not there, while it runs and afterwards."""
    async with open_held(["one"]) as (client, _, model):
        begun = await begin(client)
        path = f"/v1/responses/{begun['id']}"

        async def ask_all() -> list[int]:
            asked = [
                await client.get(path, headers=bearer("ben")),
                await client.post(f"{path}/cancel", headers=bearer("ben")),
                await client.get(f"{path}/input_items", headers=bearer("ben")),
                await client.delete(path, headers=bearer("ben")),
            ]
            return [answer.status_code for answer in asked]

        assert await ask_all() == [404] * 4
        model.may_answer.set()
        assert (await poll(client, begun["id"]))["status"] == "completed"
        assert await ask_all() == [404] * 4


async def test_a_running_response_is_not_deleted() -> None:
    """A response that runs is refused with the way to end it; once it is cancelled it goes."""
    async with open_held(["one"]) as (client, _, _model):
        path = f"/v1/responses/{(await begin(client))['id']}"
        refused = await client.delete(path)
        assert (refused.status_code, "/cancel" in refused.json()["error"]["message"]) == (409, True)
        await client.post(f"{path}/cancel")
        assert (await client.delete(path)).json()["deleted"] is True


async def test_it_is_not_streamed() -> None:
    """`stream` together with `background` is refused, names both ways out, and begins nothing."""
    async with open_held(["one"]) as (client, site, _):
        refused = await client.post("/v1/responses", json={**BODY, "stream": True})
        assert (refused.status_code, "poll it" in refused.json()["error"]["message"]) == (400, True)
        assert list(site.engine.store.list_conversations()) == []


async def test_a_record_that_comes_while_it_is_read_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn goes on between two looks into the log, of which one answer is made. What came meanwhile is no
    later response: it is still in progress."""
    async with open_held(["done"]) as (client, site, _):
        begun = await begin(client)
        store: Any = site.engine.store
        read_last_line = store.read_last_line

        def read_later_line(conversation: str) -> Any:
            newest = read_last_line(conversation)
            return newest and (newest[0] + 1, newest[1])

        with monkeypatch.context() as changes:
            changes.setattr(store, "read_last_line", read_later_line)
            read = (await client.get(f"/v1/responses/{begun['id']}")).json()
        assert (read["status"], read["completed_at"]) == ("in_progress", None)


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("is_in_tool", [False, True])
async def test_the_next_server_goes_on_with_it(tmp_path: Path, is_in_tool: bool, end: str) -> None:
    """A server is stopped, or its process killed, in the middle of a response, before its first reply or
    after one. The next one on the same log shows it in progress until it has gone on with the turn, and then
    its end; the same key finds it and begins nothing. It stays one response: the next one names it as the
    previous one."""
    call = [reply_with_calls(("echo", {"text": "a"}))] if is_in_tool else []
    headers = {"Idempotency-Key": "k"}

    class Half(HeldModel):
        async def _wait_for_answer(self, request: Request) -> Any:
            if not self.requests and is_in_tool:
                return await ScriptedProvider._wait_for_answer(self, request)
            return await super()._wait_for_answer(request)

    log, note = str(tmp_path / "log.db"), tmp_path / "id"

    async def begin_and_end() -> None:
        site = make_site(Engine(make_spec(), log=log, providers={"model": Half([*call, "never"])}))
        async with open_client(site, "anna") as client:
            answer = await client.post("/v1/responses", json=BODY, headers=headers)
            note.write_text(answer.json()["id"])
            if is_in_tool:
                await wait_until(lambda: has_output(client, note.read_text()))
            if end == "killed":
                die()
            await site.stop(0.0)

    def run() -> None:
        thread = threading.Thread(target=asyncio.run, args=(begin_and_end(),))
        thread.start()
        thread.join()

    if end == "killed":
        assert await asyncio.to_thread(run_forked, run)
    else:
        await begin_and_end()
    id_ = note.read_text()
    async with open_held(["done", "done"], log=log) as (client, site, model):
        stored = (await client.get(f"/v1/responses/{id_}")).json()
        assert (stored["status"], stored["completed_at"]) == ("in_progress", None)
        same = await asyncio.wait_for(client.post("/v1/responses", json=BODY, headers=headers), 60)
        assert (same.json()["id"], same.json()["status"]) == (id_, "in_progress")
        other = await client.post("/v1/responses", json={**BODY, "input": "ho"}, headers=headers)
        assert other.status_code == 422
        model.may_answer.set()
        ended = await poll(client, id_)
        assert (ended["status"], ended["output"][-1]["content"][0]["text"]) == ("completed", "done")
        again = await client.post("/v1/responses", json=BODY, headers=headers)
        assert again.json()["id"] == id_
        assert len(list(site.engine.store.list_conversations())) == 1
        following = await begin(client, previous_response_id=id_)
        assert (await poll(client, following["id"]))["previous_response_id"] == id_
        refused = await client.delete(f"/v1/responses/{id_}")
        assert (refused.status_code, "one of 2" in refused.json()["error"]["message"]) == (409, True)


async def has_output(client: httpx.AsyncClient, id_: str) -> bool:
    """Whether a response has an output."""
    return bool((await client.get(f"/v1/responses/{id_}")).json()["output"])


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""

    async def look() -> None:
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 60)
