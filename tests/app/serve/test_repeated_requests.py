"""Requests that come twice with one `Idempotency-Key`: carried out once, answered each time."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from killed_process import die, run_forked
from served import bearer, make_site, open_client, serve

from toolchart.app.server.application import list_endpoints
from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.app.server.repeated_requests import get_kept_answers
from toolchart.app.server.site import Limits, Site
from toolchart.engine import Engine
from toolchart.engine.turns.once import SingleRuns
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LeaseHeld
from toolchart.states.messages import Reply, Request, ToolCall


def key(text: str) -> dict[str, str]:
    """The header of a key."""
    return {"Idempotency-Key": text}


def count_calls(answers: list[httpx.Response]) -> set[str]:
    """The conversations that answers name."""
    return {answer.json()["conversation"] for answer in answers}


@pytest.mark.parametrize("query", ["", "?wait=false"])
async def test_a_request_that_is_sent_twice_begins_one_conversation(query: str) -> None:
    """Two requests with one key at the same time, and a third one later, begin one conversation and one turn,
    and get the same answer; another key, and no key, begin another one."""
    site = make_site(make_engine(["one", "two", "three"]))
    async with open_client(site) as client:

        async def post(headers: dict[str, str]) -> httpx.Response:
            return await client.post(f"/api/conversations{query}", json={"message": "hi"}, headers=headers)

        twice = await asyncio.gather(post(key("k1")), post(key("k1")))
        twice.append(await post(key("k1")))
        assert len({answer.content for answer in twice}) == 1
        assert twice[0].is_success
        others = [await post(key("k2")), await post({})]
        assert len(count_calls([twice[0], *others])) == 3
        assert len(list(site.engine.store.list_conversations())) == 3


async def test_a_message_that_is_sent_twice_is_one_turn() -> None:
    """A message of an existing conversation with one key is heard once; the same words with another key, or
    from another person, are another message."""
    site = make_site(make_engine(["one", "two", "three", "four"]))
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})

        async def say(headers: dict[str, str]) -> str:
            path, body = "/api/conversations/c1/messages", {"message": "again"}
            answer = await client.post(path, json=body, headers=headers)
            return str(answer.json()["content"])

        assert await asyncio.gather(say(key("k1")), say(key("k1"))) == ["two", "two"]
        assert await say(key("k2")) == "three"
        assert await say({**key("k1"), **bearer("talker")}) == "four"


async def test_a_key_belongs_to_one_request() -> None:
    """Another body with the same key is refused (422), a key beyond 255 characters too (400)."""
    site = make_site(make_engine(["one"]))
    async with open_client(site) as client:
        await client.post("/api/conversations", json={"message": "hi"}, headers=key("k1"))
        for headers, status in ((key("k1"), 422), (key("x" * 256), 400)):
            answer = await client.post("/api/conversations", json={"message": "ho"}, headers=headers)
            assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (status, True)
        assert len(list(site.engine.store.list_conversations())) == 1


async def test_what_was_refused_is_carried_out_when_it_comes_again() -> None:
    """A refusal is not kept: the same request with the same key succeeds once it may."""
    site = make_site(make_engine(["one"]))
    async with open_client(site) as client:

        async def post() -> httpx.Response:
            return await client.post("/api/conversations", json={"message": "hi"}, headers=key("k1"))

        free, site.turns.free = site.turns.free, 0
        assert (await post()).status_code == 429
        site.turns.free = free
        assert (await post()).json()["content"] == "one"


async def test_a_key_holds_over_a_restart(tmp_path: Any) -> None:
    """A request that comes again to a new process on the same log finds the conversation that it began, also
    where the agent has another prompt now. Another body with its key is refused there too (422)."""
    body = {"message": "hi", "variables": {"city": "Rome"}}
    history = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    others = [
        {**body, "message": "ho"},
        {**body, "variables": {"city": "Oslo"}},
        {**body, "model": "other"},
        {**body, "history": history},
        {**body, "attachments": [{"data": "eA==", "media_type": "image/png", "name": "x"}]},
    ]

    async def post(body: dict[str, Any], reply: str, prompt: str) -> httpx.Response:
        spec = make_spec(responses=[{"llm": "model", "prompt": prompt}])
        engine = Engine(spec, log=tmp_path / "log.db", providers={"model": ScriptedProvider([reply])})
        async with open_client(make_site(engine)) as client:
            return await client.post("/api/conversations", json=body, headers=key("k1"))

    first = await post(body, "one", "In {{city}}.")
    assert first.json()["content"] == "one"
    for prompt in ("In {{city}}.", "Near {{city}}."):
        assert (await post(body, "two", prompt)).json() == first.json()
    for other in others:
        answer = await post(other, "two", "In {{city}}.")
        assert (answer.status_code, "another request" in answer.json()["error"]) == (422, True), other


# -- over all endpoints and protocols ------------------------------------------------------------------------

CHANGING = [endpoint for endpoint in list_endpoints() if endpoint.method not in ("GET", "HEAD", "OPTIONS")]


def test_every_endpoint_that_changes_something_takes_a_key() -> None:
    """The key of a request has an effect at each endpoint that changes something; only MCP, which refuses
    one, and signing in, which needs no token, have no use for it."""
    others = {endpoint.path for endpoint in CHANGING if not endpoint.answers_once}
    assert others == {"/mcp", "/sign-in"}


async def test_a_protocol_without_a_place_for_keys_refuses_them() -> None:
    """A key that would have no effect is not ignored: MCP answers 400."""
    async with open_client(make_site()) as client:
        answer = await client.post("/mcp", json={}, headers=key("k1"))
        assert (answer.status_code, "Idempotency-Key" in answer.json()["error"]) == (400, True)


MESSAGES = [{"role": "user", "content": "hi", "id": "1"}]
DOORS: dict[str, dict[str, Any]] = {
    "/api/conversations": {"message": "hi"},
    "/v1/chat/completions": {"model": "agent", "messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"model": "agent", "input": "hi"},
    "/ag-ui": {"threadId": "thread", "runId": "r", "messages": MESSAGES},
    "/chat/api": {"prompt": "hi"},
}
"""Bodies that begin a conversation, by path."""

STREAMED = [
    *((path, body) for path, body in DOORS.items()),
    *((path, {**DOORS[path], "stream": True}) for path in ("/v1/chat/completions", "/v1/responses")),
]


def make_named_site(log: Any = "memory", replies: list[Any] | None = None) -> Site:
    """A site of an agent that protocols call `agent`."""
    provider = ScriptedProvider(replies or [f"reply {number}" for number in range(9)])
    return make_site(Engine(make_spec(name="agent"), log=log, providers={"model": provider}))


def count_turns(site: Site) -> int:
    """Turns that were begun in the whole log."""
    store = site.engine.store
    lines = [line for name in store.list_conversations() for line in store.read_lines(name)]
    return sum(b'"type":"turn_started"' in line for line in lines)


@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_ten_requests_with_one_key_are_one_turn(path: str, body: dict[str, Any]) -> None:
    """Ten requests at the same time and one later, by each protocol and as streams, begin one turn, and each
    gets the whole answer. Another body under the key is refused (422)."""
    site = make_named_site()
    async with open_client(site) as client:

        async def post(body: dict[str, Any]) -> httpx.Response:
            return await client.post(path, json=body, headers=key("k1"))

        answers = [*await asyncio.gather(*(post(body) for _ in range(10))), await post(body)]
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        assert len({answer.content for answer in answers}) == 1
        assert "reply 0" in answers[0].text
        assert count_turns(site) == 1
        assert (await post({**body, "user": "x"})).status_code == 422


@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_what_a_key_has_begun_is_found_after_a_restart(
    path: str, body: dict[str, Any], tmp_path: Any
) -> None:
    """By each protocol, also as a stream, a request that comes again to a new process on the same log gets
    the answer that the first one got; another body is refused (422)."""
    bodies = {path: body}
    for number, status in ((0, 200), (1, 200), (2, 422)):
        site = make_named_site(tmp_path / "log.db", ["begun", "two"] if number == 0 else ["two"])
        changed = {
            "prompt": "ho",
            "message": "ho",
            "input": "ho",
            "messages": [{**MESSAGES[0], "content": "ho"}],
        }
        if number == 2:
            bodies = {path: {name: changed.get(name, value) for name, value in body.items()}}
        async with open_client(site) as client:
            answer = await client.post(path, json=bodies[path], headers=key("k1"))
            assert (answer.status_code, "begun" in answer.text) == (status, status == 200), answer.text
            assert count_turns(site) == 1


class ActingModel:
    """A model whose replies are made by functions, one after the other; the last one makes the others too."""

    name = "acting"

    def __init__(self, *actions: Callable[[], Awaitable[Reply]]) -> None:
        self._actions = list(actions)
        self.requests = 0

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        self.requests += 1
        return await self._actions[min(self.requests, len(self._actions)) - 1]()

    async def aclose(self) -> None:
        """Nothing to close."""


async def die_in_reply() -> Reply:
    """Kill this process while the model is asked."""
    die()
    raise AssertionError("the process is gone")


async def fail() -> Reply:
    """A failure that may pass."""
    raise RuntimeError("boom")


async def answer_whole() -> Reply:
    """The answer."""
    return Reply(content="whole", finish_reason="stop")


def make_acting_site(log: Any, model: ActingModel) -> Site:
    """A site of an agent that protocols call `agent`, with this model."""
    return make_site(Engine(make_spec(name="agent"), log=log, providers={"model": model}))


@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_a_killed_turn_is_the_turn_of_its_key(path: str, body: dict[str, Any], tmp_path: Any) -> None:
    """A server is killed while the model is asked. The one that starts then goes on with the turn by itself;
    the request that comes again meanwhile, and another one with it, wait for that turn and get its answer.
    The model is asked once more, and no second turn begins."""
    log, asked, may_answer = tmp_path / "log.db", asyncio.Event(), asyncio.Event()

    async def post_and_die() -> None:
        async with open_client(make_acting_site(log, ActingModel(die_in_reply))) as client:
            await client.post(path, json=body, headers=key("k1"))

    def run() -> None:
        thread = threading.Thread(target=asyncio.run, args=(post_and_die(),))
        thread.start()
        thread.join()

    async def answer_late() -> Reply:
        asked.set()
        await may_answer.wait()
        return await answer_whole()

    assert run_forked(run)
    model = ActingModel(answer_late)
    site = make_acting_site(log, model)
    async with open_client(site) as client:
        await asked.wait()  # the server has taken the turn up
        posts = [asyncio.create_task(client.post(path, json=body, headers=key("k1"))) for _ in range(2)]
        done, _ = await asyncio.wait(posts, timeout=0.3)
        assert not done, "nobody is refused"
        may_answer.set()
        answers = await asyncio.gather(*posts)
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        assert all("whole" in answer.text for answer in answers)
        assert (model.requests, count_turns(site)) == (1, 1)


@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_two_servers_on_one_log_run_one_turn(path: str, body: dict[str, Any], tmp_path: Any) -> None:
    """A request that comes to two servers on one log at the same time begins one turn; both answer with
    it."""
    model = ActingModel(answer_whole)
    sites = [make_acting_site(tmp_path / "log.db", model) for _ in range(2)]
    async with open_client(sites[0]) as first, open_client(sites[1]) as second:
        posts = [client.post(path, json=body, headers=key("k1")) for client in (first, second)]
        answers = await asyncio.gather(*posts)
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        assert all("whole" in answer.text for answer in answers)
        assert (model.requests, count_turns(sites[0])) == (1, 1)


async def test_a_turn_that_another_server_writes_just_now_is_waited_for(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two servers on one log, one finds the conversation held and its message nowhere. Right after that
    the other writes the turn of the same request: it is read, and nobody is refused."""
    body, model = DOORS["/ag-ui"], ActingModel(answer_whole)
    first, second = (make_acting_site(tmp_path / "log.db", model) for _ in range(2))

    async with open_client(first) as client:
        answers = [await client.post("/ag-ui", json=body, headers=key("k1"))]
    # What the second server looked at before the first had written; each look happens once.
    looks = ["find_said", "arun", "find_message"]
    arun, find_said, find_message = Engine.arun, SingleRuns.find_said, SingleRuns.find_message

    async def find_nothing_said(*args: Any) -> Any:
        return await find_said(*args) if "find_said" not in looks else looks.remove("find_said")

    async def find_held(engine: Engine, message: str, **options: Any) -> Any:
        if "arun" not in looks:
            return await arun(engine, message, **options)
        looks.remove("arun")
        raise LeaseHeld("thread", "another server", 0.0, 1.0)

    def find_no_message(*args: Any) -> Any:
        return find_message(*args) if "find_message" not in looks else looks.remove("find_message")

    monkeypatch.setattr(Engine, "arun", find_held)
    monkeypatch.setattr(SingleRuns, "find_said", find_nothing_said)
    monkeypatch.setattr(SingleRuns, "find_message", find_no_message)
    async with open_client(second) as client:
        answers.append(await client.post("/ag-ui", json=body, headers=key("k1")))
        assert (model.requests, count_turns(second)) == (1, 1)
    assert [(answer.status_code, "whole" in answer.text) for answer in answers] == [(200, True)] * 2
    assert looks == []


@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_a_failed_turn_is_tried_again_under_its_key(path: str, body: dict[str, Any]) -> None:
    """A turn that ended in a failure is no answer to keep, also where the failure is the end of a stream or
    stands in an answer with status 200: the request that comes again is carried out, and its success is
    kept."""
    model = ActingModel(fail, answer_whole)
    async with open_client(make_acting_site("memory", model)) as client:

        async def post() -> httpx.Response:
            return await client.post(path, json=body, headers=key("k1"))

        failed = await post()
        assert ("boom" in failed.text or '"failed"' in failed.text, "whole" in failed.text) == (True, False)
        answers = [await post(), await post()]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert "whole" in answers[0].text
        assert answers[0].content == answers[1].content
        assert model.requests == 2


# -- messages that go on with a conversation -----------------------------------------------------------------

CONTINUED = [
    ("/api/conversations/thread/messages", {"message": "go on"}),
    ("/v1/responses", {"model": "agent", "input": "go on"}),
    ("/v1/responses", {"model": "agent", "input": "go on", "stream": True}),
    ("/ag-ui", {**DOORS["/ag-ui"], "messages": [{**MESSAGES[0], "content": "go on"}]}),
]
"""Doors that go on with the conversation `thread`: path and body."""


async def begin_thread(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Begin the conversation `thread`; the body that goes on with it."""
    beginning = {"message": "begin", "conversation": "thread"}
    assert (await client.post("/api/conversations", json=beginning)).is_success
    first = ResponseName(conversation="thread", turn=1, seq=0)
    return {**body, "previous_response_id": first.id} if path == "/v1/responses" else body


@pytest.mark.parametrize(("path", "body"), CONTINUED)
async def test_a_message_that_goes_on_is_found_after_a_restart(
    path: str, body: dict[str, Any], tmp_path: Any
) -> None:
    """A message with a key to a conversation that exists is said once: sent again to the same server, whose
    kept answers are gone, and to a new one on the log, also after another message, it gets the answer that it
    got first. Another body with the key is refused (422), and begins nothing."""
    texts: list[str] = []
    for number in range(2):
        site = make_named_site(tmp_path / "log.db", [f"reply {4 * number + each}" for each in range(4)])
        async with open_client(site) as client:
            if number == 0:
                body = await begin_thread(client, path, body)
            for _ in range(2):
                answer = await client.post(path, json=body, headers=key("k1"))
                assert answer.status_code == 200, answer.text
                texts.append(answer.text)
                get_kept_answers(site).forget(["thread"])
            await client.post("/api/conversations/thread/messages", json={"message": f"other {number}"})
            other = {
                name: "ho" if value == "go on" else [{**MESSAGES[0], "content": "ho"}]
                for name, value in body.items()
                if name in ("message", "input", "messages")
            }
            refused = await client.post(path, json={**body, **other}, headers=key("k1"))
            assert (refused.status_code, "another request" in refused.text) == (422, True), refused.text
            turns = count_turns(site)
    assert all("reply 1" in text for text in texts), texts
    assert turns == 4
    if path != "/ag-ui":
        assert find_id(texts[0]) is not None
        assert {find_id(text) for text in texts} == {find_id(texts[0])}


def find_id(text: str) -> str | None:
    """The id of the conversation, or of the first response, that an answer names."""
    found = re.search(r'"(?:conversation|id)":"((?:resp_|thread)[^"]*)"', text)
    return found.group(1) if found is not None else None


@pytest.mark.parametrize(("path", "body"), CONTINUED)
async def test_a_killed_turn_that_went_on_is_the_turn_of_its_key(
    path: str, body: dict[str, Any], tmp_path: Any
) -> None:
    """A server is killed while the model is asked for a message that goes on with a conversation. The one
    that starts then goes on with the turn by itself; requests that come again meanwhile wait for that turn
    and get its answer. The model is asked once more, and nothing is said twice."""
    log, asked, may_answer = tmp_path / "log.db", asyncio.Event(), asyncio.Event()
    async with open_client(make_acting_site(log, ActingModel(answer_whole))) as client:
        body = await begin_thread(client, path, body)

    async def post_and_die() -> None:
        async with open_client(make_acting_site(log, ActingModel(die_in_reply))) as client:
            await client.post(path, json=body, headers=key("k1"))

    def run() -> None:
        thread = threading.Thread(target=asyncio.run, args=(post_and_die(),))
        thread.start()
        thread.join()

    async def answer_late() -> Reply:
        asked.set()
        await may_answer.wait()
        return Reply(content="second", finish_reason="stop")

    assert run_forked(run)
    model = ActingModel(answer_late)
    site = make_acting_site(log, model)
    async with open_client(site) as client:
        await asked.wait()  # the server has taken the turn up
        posts = [asyncio.create_task(client.post(path, json=body, headers=key("k1"))) for _ in range(2)]
        done, _ = await asyncio.wait(posts, timeout=0.3)
        assert not done, "nobody is refused"
        may_answer.set()
        answers = await asyncio.gather(*posts)
        assert {answer.status_code for answer in answers} == {200}, answers[0].text
        assert all("second" in answer.text for answer in answers)
        assert (model.requests, count_turns(site)) == (1, 2)
        assert b'"type":"user_said"' not in b"".join(site.engine.store.read_lines("thread"))


@pytest.mark.parametrize(("path", "body"), CONTINUED)
async def test_two_servers_go_on_once(path: str, body: dict[str, Any], tmp_path: Any) -> None:
    """A message with a key that goes on with a conversation, sent to two servers on one log at the same time,
    is one turn; both answer with it."""
    model = ActingModel(answer_whole)
    sites = [make_acting_site(tmp_path / "log.db", model) for _ in range(2)]
    async with open_client(sites[0]) as first, open_client(sites[1]) as second:
        body = await begin_thread(first, path, body)
        posts = [client.post(path, json=body, headers=key("k1")) for client in (first, second)]
        answers = await asyncio.gather(*posts)
        assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
        assert all("whole" in answer.text for answer in answers), [answer.text for answer in answers]
        assert (model.requests, count_turns(sites[0])) == (2, 2)
        assert b'"type":"user_said"' not in b"".join(sites[0].engine.store.read_lines("thread"))


async def test_a_background_response_that_goes_on_is_found_after_a_restart(tmp_path: Any) -> None:
    """A request with a key for a response in the background that goes on after another one gets the same
    response from a new server: as it stands while its turn runs, and whole afterwards."""
    log, may_answer = tmp_path / "log.db", asyncio.Event()

    async def answer_late() -> Reply:
        await may_answer.wait()
        return await answer_whole()

    body = {"model": "agent", "input": "go on", "background": True}
    first = make_acting_site(log, ActingModel(answer_whole, answer_late))
    async with open_client(first) as client, open_client(make_acting_site(log, ActingModel(fail))) as other:
        body = await begin_thread(client, "/v1/responses", body)
        begun = (await client.post("/v1/responses", json=body, headers=key("k1"))).json()
        again = (await other.post("/v1/responses", json=body, headers=key("k1"))).json()
        assert (begun["status"], again["status"]) == ("in_progress", "in_progress")
        may_answer.set()
        done = begun
        for _ in range(1000):
            done = (await client.get(f"/v1/responses/{begun['id']}")).json()
            if done["status"] != "in_progress":
                break
            await asyncio.sleep(0.01)
        get_kept_answers(first).forget(["thread"])
        last = (await client.post("/v1/responses", json=body, headers=key("k1"))).json()
        assert {row["id"] for row in (begun, again, done, last)} == {begun["id"]}
        assert (done["status"], last["status"]) == ("completed", "completed")
        assert count_turns(first) == 2


async def test_what_was_decided_is_kept_also_where_its_turn_fails() -> None:
    """A decision is taken once, whatever becomes of its turn: the request that comes again gets the same
    answer, and not that nothing waits for it."""

    async def call_tool() -> Reply:
        call = ToolCall(name="echo", arguments={"text": "x"})
        return Reply(finish_reason="tool_calls", tool_calls=(call,))

    spec = make_spec(chart="approval", approval={"default": "ask"}, name="agent")
    model = ActingModel(call_tool, fail)
    async with open_client(make_site(Engine(spec, log="memory", providers={"model": model}))) as client:
        begun = await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})
        body = {"call_id": begun.json()["pending_approvals"][0]["id"], "approved": True}
        path = "/api/conversations/c1/decisions"
        answers = [await client.post(path, json=body, headers=key("k1")) for _ in range(2)]
        assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(200, "error")] * 2


async def test_a_reader_that_goes_away_stops_nothing() -> None:
    """Where a request has a key, its turn goes on without its reader, and whoever sends it again reads the
    stream from its beginning."""
    site = make_named_site()
    body = DOORS["/ag-ui"]
    with serve(site) as address:
        async with httpx.AsyncClient(base_url=address, headers={**bearer(), **key("k1")}) as client:
            async with client.stream("POST", "/ag-ui", json=body) as answer:
                assert answer.status_code == 200
            again = await client.post("/ag-ui", json=body)
    assert again.text.index("RUN_STARTED") < again.text.index("RUN_FINISHED")
    assert count_turns(site) == 1


async def test_a_decision_that_is_sent_twice_is_one() -> None:
    """A decision with one key that comes twice is taken once, and answered with the same result."""
    call = reply_with_calls(("echo", {"text": "x"}))
    spec = make_spec(chart="approval", approval={"default": "ask"}, name="agent")
    site = make_site(Engine(spec, log="memory", providers={"model": ScriptedProvider([call, "done"])}))
    async with open_client(site) as client:
        begun = await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})
        body = {"call_id": begun.json()["pending_approvals"][0]["id"], "approved": True}
        path = "/api/conversations/c1/decisions"
        answers = await asyncio.gather(*(client.post(path, json=body, headers=key("k1")) for _ in range(3)))
        assert {answer.json()["content"] for answer in answers} == {"done"}


async def test_a_fork_that_is_sent_twice_is_one(tmp_path: Any) -> None:
    """A fork with one key is one conversation, after a restart too."""
    names = set()
    for number in range(2):
        site = make_named_site(tmp_path / "log.db")
        async with open_client(site) as client:
            if number == 0:
                await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})
            path = "/api/conversations/c1/fork"
            twice = [await client.post(path, json={"at": 1}, headers=key("k1")) for _ in range(2)]
            assert {answer.status_code for answer in twice} == {200}, twice[0].text
            names |= {(answer.json()["conversation"], answer.json()["at"]) for answer in twice}
            assert len(list(site.engine.store.list_conversations())) == 2
    assert len(names) == 1


@pytest.mark.parametrize("by", ["the server", "another process"])
@pytest.mark.parametrize(("path", "body"), STREAMED)
async def test_a_kept_answer_goes_with_its_conversation(path: str, body: dict[str, Any], by: str) -> None:
    """Once a conversation is deleted, by this server or by another process on its log, the server answers
    with none of its text any more: the request that comes again is carried out as another one."""
    site = make_named_site()
    async with open_client(site) as client:

        async def post() -> str:
            return (await client.post(path, json=body, headers=key("k1"))).text

        assert ("reply 0" in await post(), "reply 0" in await post()) == (True, True)
        (name,) = site.engine.store.list_conversations()
        if by == "the server":
            for _ in range(2):  # the answer to the deletion itself is kept
                deletion = await client.delete(f"/api/conversations/{name}", headers=key("k2"))
                assert deletion.json()["deleted"] == [name]
            assert name not in get_kept_answers(site).list_conversations()
        else:
            site.engine.store.delete(name)
        again = await post()
        assert ("reply 0" in again, "reply 1" in again) == (False, True)
        assert await post() == again


async def test_what_is_kept_of_others_stays() -> None:
    """Deleting one conversation drops no answer that tells of another one, and its bytes do not count any
    more: what is kept then stays below the limit."""
    site = make_site(make_engine([f"{number}".rjust(400, "x") for number in range(9)]))
    async with open_client(site) as client:

        async def post(name: str) -> str:
            body = {"message": "hi", "conversation": name}
            return (await client.post("/api/conversations", json=body, headers=key(name))).text

        first = await post("a")
        size = get_kept_answers(site).size
        second = await post("b")
        await client.delete("/api/conversations/a")
        assert (get_kept_answers(site).size, len(first.encode())) == (len(second.encode()), size)
        assert await post("b") == second
        assert await post("a") != first


async def test_the_oldest_answers_go_first() -> None:
    """Not more answers are kept than the limits say, in number and in bytes. A request that comes after its
    answer was dropped is answered from the log: it is not said again."""
    for limits in (Limits(kept_answers=2), Limits(kept_answer_bytes=2000)):
        site = make_site(make_engine([f"{number}".rjust(400, "x") for number in range(9)]), limits=limits)
        async with open_client(site) as client:
            await client.post("/api/conversations", json={"message": "hi", "conversation": "c1"})

            async def say(name: str) -> str:
                path, body = "/api/conversations/c1/messages", {"message": "again"}
                return str((await client.post(path, json=body, headers=key(name))).json()["content"])

            first = [await say(name) for name in ("a", "b", "c", "d")]
            assert await say("d") == first[3]
            assert len(get_kept_answers(site).list_conversations()) == 1
            assert await say("a") == first[0]
