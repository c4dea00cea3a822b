"""Deleting over HTTP: a whole conversation with all that exists for it alone, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import child_agents
import httpx
import openai
import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, reply_with_calls
from served import bearer, make_site, make_value, open_client, serve

from toolchart.app.server.site import Site
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.engine.log.verify import VerifiedConversation, verify_store


def connect(address: str, name: str = "anna") -> openai.OpenAI:
    """A client of the SDK with somebody's token."""
    return openai.OpenAI(base_url=f"{address}/v1", api_key=make_value(name), max_retries=0, timeout=60)


@pytest.fixture
def site() -> Site:
    """A site whose model asks for an approval of its first call, and answers all else."""
    replies: list[Any] = ["one", "two", reply_with_calls(("echo", {"text": "a"})), "three", "four"]
    tools = {"registry": [{"name": "echo", "requires_approval": True}]}
    return make_site(make_engine(replies, log=MemoryStore(), chart="approval", tools=tools))


@pytest.fixture
def address(site: Site) -> Iterator[str]:
    """Where the site is served."""
    with serve(site) as served:
        yield served


def list_names(site: Site) -> list[str]:
    """The conversations of the log."""
    return list(site.engine.store.list_conversations())


def test_a_response_that_is_alone_goes_with_its_conversation(site: Site, address: str) -> None:
    """The SDK deletes a response; then nothing of it can be read or continued, others stay, and the log
    verifies. Deleted twice, it is not there."""
    client = connect(address)
    first, other = (client.responses.create(model="agent", input=word) for word in ("red", "blue"))
    client.responses.delete(first.id)
    for ask in (
        lambda: client.responses.retrieve(first.id),
        lambda: client.responses.input_items.list(first.id),
        lambda: client.responses.delete(first.id),
        lambda: client.responses.create(model="agent", input="go on", previous_response_id=first.id),
    ):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            ask()
    assert client.responses.retrieve(other.id).output_text == "two"
    assert len(list_names(site)) == 1
    assert {type(outcome) for outcome in verify_store(site.engine.store)} == {VerifiedConversation}


def test_one_of_several_responses_is_not_deleted_alone(site: Site, address: str) -> None:
    """A part of a conversation cannot be deleted: each of its responses is refused with the way to delete all
    of them, which deletes all."""
    client = connect(address)
    first = client.responses.create(model="agent", input="red")
    second = client.responses.create(model="agent", input="blue", previous_response_id=first.id)
    (conversation,) = list_names(site)
    for response in (first, second):
        with pytest.raises(openai.ConflictError, match=f"DELETE /api/conversations/{conversation}; nothing"):
            client.responses.delete(response.id)
    assert client.responses.retrieve(second.id).output_text == "two"
    path = f"{address}/api/conversations/{conversation}"
    answer = httpx.delete(path, headers=bearer("anna"))
    assert answer.json() == {"conversation": conversation, "deleted": [conversation]}
    assert list_names(site) == []
    assert httpx.delete(path, headers=bearer("anna")).status_code == 404


def test_an_open_turn_is_not_deleted(site: Site, address: str) -> None:
    """A response whose turn waits is refused with the way to end it; after that it goes."""
    client = connect(address)
    for word in ("red", "blue"):
        client.responses.create(model="agent", input=word)
    before = set(list_names(site))
    waiting = client.responses.create(model="agent", input="go")
    (conversation,) = set(list_names(site)) - before
    cancel = f"/api/conversations/{conversation}/cancel"
    with pytest.raises(openai.ConflictError, match=f"end it with POST {cancel}; nothing was deleted"):
        client.responses.delete(waiting.id)
    assert conversation in list_names(site)
    assert httpx.post(address + cancel, json={}, headers=bearer("anna")).status_code == 200
    client.responses.delete(waiting.id)
    assert set(list_names(site)) == before


def test_deleting_needs_a_role_of_its_own(site: Site, address: str) -> None:
    """A token that may chat, also with everybody's conversations, deletes nothing: the log is the operator's
    evidence."""
    client = connect(address, "talker")
    response = client.responses.create(model="agent", input="red")
    with pytest.raises(openai.PermissionDeniedError, match="'delete'"):
        client.responses.delete(response.id)
    path = f"{address}/api/conversations/{list_names(site)[0]}"
    assert httpx.delete(path, headers=bearer("talker")).status_code == 403
    assert client.responses.retrieve(response.id).output_text == "one"


async def test_what_a_fork_shares_stays() -> None:
    """A conversation whose records a fork shares is refused, without the name of the fork; once the fork is
    deleted it goes."""
    async with open_client(make_site(make_engine(["one", "two"])), "anna") as client:
        begun = await client.post("/api/conversations", json={"message": "hi", "conversation": "c"})
        assert begun.status_code == 200
        forked = await client.post("/api/conversations/c/fork", json={"conversation": "branch"})
        assert forked.status_code == 200
        refused = await client.delete("/api/conversations/c")
        assert (refused.status_code, "branch" in refused.text) == (409, False)
        for name in ("branch", "c"):
            assert (await client.delete(f"/api/conversations/{name}")).status_code == 200
        assert (await client.get("/api/conversations")).json()["conversations"] == []


async def test_agents_go_with_their_conversation_and_not_without() -> None:
    """The agents that a conversation runs go with it; one of them alone is refused."""
    work = {"run_agent": {"chart": child_agents.ONE_CALL, "as": "outcome"}}
    effects = {"work": work, "publish": {"answer": "{{outcome}}"}}
    spec = child_agents.make_spec(child_agents.make_parent_chart(), effects)
    model = child_agents.FunctionModel(child_agents.repeat_words)
    site = make_site(child_agents.make_engine(spec, model, log=MemoryStore()))
    async with open_client(site, "anna") as client:
        await client.post("/api/conversations", json={"message": "hi", "conversation": "c"})
        family = list_names(site)
        (child,) = [name for name in family if name != "c"]
        assert (await client.delete(f"/api/conversations/{child}")).status_code == 409
        assert list_names(site) == family
        answer = await client.delete("/api/conversations/c")
        assert sorted(answer.json()["deleted"]) == sorted(family)
        assert list_names(site) == []


async def test_an_id_that_was_deleted_begins_anew() -> None:
    """Under the id of a deleted conversation another one begins, and knows nothing of the first."""
    engine = make_engine(["one", "two"])
    async with open_client(make_site(engine), "anna") as client:
        for word in ("red", "blue"):
            body = {"message": word, "conversation": "c"}
            assert (await client.post("/api/conversations", json=body)).status_code == 200
            messages = (await client.get("/api/conversations/c/messages")).json()["messages"]
            assert [message["content"] for message in messages][0::2] == [word]
            await client.delete("/api/conversations/c")
