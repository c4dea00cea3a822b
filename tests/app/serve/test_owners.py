"""Whose conversation it is: nobody sees or moves what is not theirs, and each act of a person has its author.

Anna and Ben have tokens that see their own conversations. What Anna has begun, by whatever door, does not
exist for Ben: not by its id, not in a list, not in a feed. The tables go over all endpoints that the
application has, so a new one is among them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_spec
from served import PEOPLE, bearer, make_site, open_client

from toolchart.app.server.application import list_endpoints
from toolchart.app.server.openai_api.response_ids import ResponseName
from toolchart.app.server.protocols.waiting import APPROVAL, make_wire_id
from toolchart.app.server.site import Site
from toolchart.engine import Engine
from toolchart.engine.log.family import read_heading
from toolchart.engine.log.owned import KnownOwners, OwnedLog
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.errors import LogDamaged
from toolchart.states.messages import Reply, Request, ToolCall
from toolchart.states.ports import Store
from toolchart.states.vocabulary import get_events

SPEC: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}, "name": "desk"}

PATHS = sorted({(endpoint.method, endpoint.path) for endpoint in list_endpoints()})
OF_ONE = [(method, path) for method, path in PATHS if "{conversation}" in path or "{response}" in path]
"""All that is asked of one conversation, by its id or by that of one of its responses."""

ACTS = {
    name
    for name, descriptor in get_events().items()
    if {"author", "by"} & set(descriptor.type.__struct_fields__)
}
"""The events that record what a person did: each has a place for who it was."""

BODIES: dict[str, Any] = {
    "messages": {"message": "and me?"},
    "decisions": {"call_id": "c", "approved": True},
    "answers": {"content": {"a": "b"}},
    "fork": {"at": 1},
}
"""Bodies that an endpoint of a conversation takes, by the last part of its path; `{}` for any other."""


def answer_request(request: Request) -> Reply:
    """Ask for an echo where the user says `ask`, and repeat any other message."""
    last = request.messages[-1]
    if last.role == "user" and "ask" in (last.content or ""):
        call = ToolCall(id="c", name="echo", arguments={"text": last.content})
        return Reply(tool_calls=(call,), finish_reason="tool_calls")
    return Reply(content=f"heard: {last.content}", finish_reason="stop")


def make_desk(store: Store | None = None) -> Site:
    """A site whose model asks for an approval where its user wants that."""
    provider = ScriptedProvider([answer_request] * 500)
    return make_site(Engine(make_spec(**SPEC), log=store or MemoryStore(), providers={"model": provider}))


class People:
    """The clients of one site, by name."""

    def __init__(self, client: httpx.AsyncClient, site: Site) -> None:
        self._client = client
        self.site = site

    async def send(self, name: str, method: str, path: str, body: Any = None) -> httpx.Response:
        """A request with the token of somebody."""
        return await self._client.request(method, path, json=body, headers=bearer(name))

    async def begin(self, name: str, conversation: str, message: str, **more: Any) -> httpx.Response:
        """Begin a conversation by the API."""
        body = {"message": message, "conversation": conversation, **more}
        return await self.send(name, "POST", "/api/conversations", body)

    def read_all(self) -> list[tuple[str, list[bytes]]]:
        """Every record of the log, by conversation."""
        store = self.site.engine.store
        return [(name, list(store.read_lines(name))) for name in store.list_conversations()]

    def find_owner(self, conversation: str) -> str:
        """Whose a conversation is."""
        heading = read_heading(self.site.engine.store, conversation)
        return heading.owner if heading is not None else ""


@asynccontextmanager
async def open_desk() -> AsyncIterator[People]:
    """People at a site: Anna has a conversation at rest, one that waits for an approval, and no other."""
    site = make_desk()
    async with open_client(site) as client:
        people = People(client, site)
        assert (await people.begin("anna", "annas-first", "lighthouse")).status_code == 200
        assert (await people.begin("anna", "annas-open", "ask lighthouse")).json()["is_over"] is False
        yield people


def fill_path(path: str, conversation: str) -> str:
    """A path of an endpoint for a conversation, or its first response; its other parameters have usual
    values."""
    response = ResponseName(conversation=conversation, turn=1, seq=0).id
    filled = path.replace("{conversation}", conversation).replace("{response}", response)
    filled = filled.replace("{format}", "messages")
    return re.sub(r"\{[^}]*\}", "x", filled)


def find_body(path: str) -> Any:
    """The body for an endpoint of a conversation."""
    return BODIES.get(path.rpartition("/")[2], {})


# -- by id -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), OF_ONE)
async def test_the_conversations_of_others_answer_404(method: str, path: str) -> None:
    """At each endpoint and page of a conversation somebody else hears what an id hears that nobody has, and
    nothing is written; its owner and an operator get past that."""
    async with open_desk() as people:
        before = people.read_all()
        for conversation in ("annas-first", "annas-open"):
            answer = await people.send("ben", method, fill_path(path, conversation), find_body(path))
            unknown = await people.send("ben", method, fill_path(path, "nobodys"), find_body(path))
            assert answer.status_code == unknown.status_code == 404
            assert make_same(answer.text, conversation) == make_same(unknown.text, "nobodys")
            assert "lighthouse" not in answer.text
        assert people.read_all() == before
        if "events" not in path:  # a feed goes on
            for name in ("anna",) if method == "DELETE" else ("anna", "owner"):
                own = await people.send(name, method, fill_path(path, "annas-first"), find_body(path))
                assert own.status_code != 404 or not re.search(
                    "there is no (conversation|response)", own.text
                )


def make_same(text: str, conversation: str) -> str:
    """An answer without the id that it is about, and without that of its request."""
    response = ResponseName(conversation=conversation, turn=1, seq=0).id
    return re.sub(r"[0-9a-f]{16}", "", text.replace(conversation, "ID").replace(response, "ID"))


async def test_a_comparison_needs_both() -> None:
    """The other side of a comparison, on the page too, is as unknown as the first."""
    async with open_desk() as people:
        await people.begin("ben", "bens", "harbour")
        for path in (
            "/api/conversations/bens/diff?with=annas-first",
            "/conversations/bens/diff?with=annas-first",
        ):
            answer = await people.send("ben", "GET", path)
            assert (answer.status_code, "lighthouse" in answer.text) == (404, False)


async def test_an_id_of_somebody_else_is_not_begun_again() -> None:
    """A conversation, a fork or a thread cannot begin under an id of others: 404, and nothing is written."""
    async with open_desk() as people:
        await people.begin("ben", "bens", "harbour")
        before = people.read_all()
        run = {
            "threadId": "annas-first",
            "runId": "r",
            "messages": [{"role": "user", "content": "hi", "id": "1"}],
        }
        for path, body in (
            ("/api/conversations", {"message": "hi", "conversation": "annas-first"}),
            ("/api/conversations/bens/fork", {"conversation": "annas-first"}),
            ("/ag-ui", run),
        ):
            answer = await people.send("ben", "POST", path, body)
            assert (answer.status_code, "lighthouse" in answer.text) == (404, False), path
        assert people.read_all() == before


# -- by protocol -------------------------------------------------------------------------------------------


async def test_responses_of_others_are_not_there() -> None:
    """A response is shown to its owner, and goes on for its owner alone."""
    async with open_desk() as people:
        name = ResponseName(conversation="annas-first", turn=1, seq=0)
        before = people.read_all()
        body = {"model": "desk", "input": "go on", "previous_response_id": name.id}
        refused = [
            await people.send("ben", "GET", f"/v1/responses/{name.id}"),
            await people.send("ben", "POST", "/v1/responses", body),
        ]
        assert [answer.status_code for answer in refused] == [404, 404]
        assert not any("lighthouse" in answer.text for answer in refused)
        assert people.read_all() == before
        assert (await people.send("anna", "GET", f"/v1/responses/{name.id}")).status_code == 200
        gone_on = await people.send("anna", "POST", "/v1/responses", body)
        assert (gone_on.status_code, people.find_owner("annas-first")) == (200, "anna")


def make_answers(wire_id: str) -> Iterator[tuple[str, Any]]:
    """Paths and bodies of the protocols by which an approval is given."""
    call = {"id": wire_id, "type": "function", "function": {"name": "ask_approval", "arguments": "{}"}}
    yield (
        "/v1/chat/completions",
        {
            "model": "desk",
            "messages": [
                {"role": "user", "content": "ask"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": wire_id, "content": '{"approved": true}'},
            ],
        },
    )
    yield (
        "/v1/chat/completions",
        {
            "model": "desk",
            "messages": [
                {"role": "user", "content": "ask"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "user", "content": "and what did you say before?"},
            ],
        },
    )
    output = {"type": "function_call_output", "call_id": wire_id, "output": '{"approved": true}'}
    yield "/v1/responses", {"model": "desk", "input": [output]}
    for thread in ("annas-open", "bens"):
        resume = [{"interruptId": wire_id, "status": "resolved", "payload": True}]
        yield "/ag-ui", {"threadId": thread, "runId": "r", "messages": [], "resume": resume}


async def test_nobody_else_answers_what_waits() -> None:
    """The name of a waiting call, which a request may hold, opens nothing for somebody else, by any protocol;
    its owner goes on with it."""
    wire_id = make_wire_id(APPROVAL, "annas-open", "annas-open", "c")
    async with open_desk() as people:
        before = people.read_all()
        for path, body in make_answers(wire_id):
            answer = await people.send("ben", "POST", path, body)
            assert (answer.status_code, "lighthouse" in answer.text) == (404, False), (path, answer.text)
        assert people.read_all() == before
        path, body = next(make_answers(wire_id))
        assert "heard" in (await people.send("anna", "POST", path, body)).text


async def test_each_protocol_begins_conversations_of_its_token() -> None:
    """Whatever door a turn comes through, the token is the owner of its conversation and the author of its
    message."""
    messages = [{"role": "user", "content": "harbour", "id": "1"}]
    bodies = {
        "/api/conversations": {"message": "harbour"},
        "/v1/chat/completions": {"model": "desk", "messages": [{"role": "user", "content": "harbour"}]},
        "/v1/responses": {"model": "desk", "input": "harbour"},
        "/ag-ui": {"threadId": "thread", "runId": "r", "messages": messages},
        "/ag-ui/desk": {"threadId": "thread-2", "runId": "r", "messages": messages},
        "/chat/api": {"prompt": "harbour"},
    }
    async with open_desk() as people:
        known = {name for name, _ in people.read_all()}
        for path, body in bodies.items():
            assert (await people.send("ben", "POST", path, body)).status_code == 200, path
            (begun,) = {name for name, _ in people.read_all()} - known
            known.add(begun)
            assert (path, people.find_owner(begun), read_authors(people, begun)) == (path, "ben", ["ben"])


def read_authors(people: People, conversation: str) -> list[str]:
    """Who did what people do, in the order of the records; nobody is an empty text."""
    lines = people.site.engine.store.read_lines(conversation)
    events = [json.loads(line)["event"] for line in lines]
    return [event.get("author") or event.get("by") or "" for event in events if event["type"] in ACTS]


async def test_every_act_says_whose_it_is_wherever_people_look() -> None:
    """A fork and a decision of an operator are the operator's: in the log, in lists, on the page of the run
    and of what waits. Whose the conversation is stays as it was."""
    async with open_desk() as people:
        path = "/api/conversations/annas-open"
        forked = (await people.send("owner", "POST", f"{path}/fork", {"conversation": "fork"})).json()
        assert forked["conversation"] == "fork"
        assert (people.find_owner("fork"), read_authors(people, "fork")) == ("anna", ["owner"])
        tree = (await people.send("anna", "GET", "/api/conversations/fork/forks")).json()
        rows = [(row["conversation"], row["parent"], row["author"]) for row in tree["forks"]]
        assert rows == [("fork", tree["root"], "owner")]
        assert (await people.send("ben", "GET", "/api/conversations/fork/forks")).status_code == 404
        await people.send("owner", "POST", f"{path}/decisions", {"call_id": "c", "approved": False})
        assert read_authors(people, "annas-open") == ["anna", "owner"]
        rows = (await people.send("anna", "GET", "/api/conversations")).json()["conversations"]
        assert {row["conversation"]: (row["owner"], row["author"]) for row in rows} == {
            "annas-first": ("anna", "anna"),
            "annas-open": ("anna", "anna"),
            "fork": ("anna", "owner"),
        }
        steps = (await people.send("anna", "GET", f"{path}/steps")).json()
        events = [steps["events"][place] for place in steps["event"]]
        said = [(events[place], by, is_signed) for place, by, is_signed in steps["people"]]
        assert said == [("turn_started", "anna", None), ("decided", "owner", False)]
        (waiting,) = (await people.send("anna", "GET", "/api/approvals")).json()["waiting"]
        assert (waiting["conversation"], waiting["author"]) == ("fork", "owner")
        listed = (await people.send("anna", "GET", "/conversations")).text
        assert "begun by owner" in listed
        shown = (await people.send("anna", "GET", "/conversations/fork")).text
        assert "of anna, begun by owner" in shown


def test_events_of_people_are_known() -> None:
    """What only people do has a place for who it was."""
    known = {"turn_started", "user_said", "cancelled", "decided", "answered", "forked"}
    assert known == ACTS


# -- lists -------------------------------------------------------------------------------------------------


LISTS = [path for method, path in PATHS if method == "GET" and "{" not in path and path != "/mcp"]
"""All that is read without an id; a stream of MCP goes on until somebody ends it."""


@pytest.mark.parametrize(
    "path", [*LISTS, "/api/conversations?text=lighthouse", "/api/conversations?owner=anna"]
)
async def test_no_list_has_what_is_not_theirs(path: str) -> None:
    """No list, page, search or filter that takes no id shows ids or words of others."""
    async with open_desk() as people:
        answer = await people.send("ben", "GET", path)
        assert "annas-" not in answer.text
        assert "lighthouse" not in answer.text.replace("text=lighthouse", "").replace(
            'value="lighthouse"', ""
        )


async def test_lists_have_what_is_theirs() -> None:
    """Owners and operators find conversations, what waits and what was decided."""
    async with open_desk() as people:
        await people.begin("ben", "bens", "ask harbour")
        for name, ids in (("anna", {"annas-first", "annas-open"}), ("ben", {"bens"}), ("owner", None)):
            rows = (await people.send(name, "GET", "/api/conversations")).json()["conversations"]
            waiting = (await people.send(name, "GET", "/api/approvals")).json()["waiting"]
            wanted = ids or {"annas-first", "annas-open", "bens"}
            assert {row["conversation"] for row in rows} == wanted
            assert {row["conversation"] for row in waiting} == wanted - {"annas-first"}


async def test_what_waits_of_one_is_not_what_waits_of_another() -> None:
    """What the server has read for the list of one token is not the list of the next, in any order."""
    async with open_desk() as people:
        for name, count in (("owner", 1), ("ben", 0), ("anna", 1), ("ben", 0), ("owner", 1)):
            assert len((await people.send(name, "GET", "/api/approvals")).json()["waiting"]) == count
        body = {"call_id": "c", "approved": True}
        await people.send("anna", "POST", "/api/conversations/annas-open/decisions", body)
        for name, count in (("anna", 1), ("ben", 0), ("owner", 1)):
            path = "/api/approvals/decisions"
            assert len((await people.send(name, "GET", path)).json()["decisions"]) == count


# -- owners that are named ---------------------------------------------------------------------------------


async def test_a_token_begins_nothing_for_somebody_else() -> None:
    """`owner` may be the token itself; somebody else's name needs the role `all`."""
    async with open_desk() as people:
        refused = await people.begin("ben", "x", "hi", owner="anna")
        assert (refused.status_code, refused.json()["field"]) == (403, "owner")
        assert (await people.begin("ben", "y", "hi", owner="ben")).status_code == 200
        assert (await people.begin("owner", "z", "hi", owner="anna")).status_code == 200
        assert [people.find_owner(name) for name in ("x", "y", "z")] == ["", "ben", "anna"]
        assert (await people.send("anna", "GET", "/api/conversations/z")).status_code == 200


async def test_an_operator_goes_on_with_anybodys() -> None:
    """With `all` a token reads, continues and cancels; owner stays who it was, and the author is said."""
    async with open_desk() as people:
        body = {"message": "operator here"}
        path = "/api/conversations/annas-first/messages"
        assert (await people.send("owner", "POST", path, body)).status_code == 200
        await people.send("talker", "POST", "/api/conversations/annas-open/cancel", {})
        assert (people.find_owner("annas-first"), people.find_owner("annas-open")) == ("anna", "anna")
        assert read_authors(people, "annas-first") == ["anna", "owner"]
        assert read_authors(people, "annas-open") == ["anna", "talker"]


async def test_what_was_begun_without_an_owner_is_for_operators() -> None:
    """A conversation of nobody, of a batch for instance, exists for tokens with `all` alone."""
    async with open_desk() as people:
        await people.site.engine.arun("lighthouse", conversation="batch")
        assert (await people.send("anna", "GET", "/api/conversations/batch")).status_code == 404
        assert (await people.send("viewer", "GET", "/api/conversations/batch")).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/conversations", {"message": "hi", "ownr": "ben"}, "did you mean 'owner'?"),
        ("/api/conversations/annas-first/messages", {"message": "hi", "owner": "ben"}, "'owner'"),
        ("/api/conversations/annas-first/cancel", {"reson": "x"}, "did you mean 'reason'?"),
        ("/api/conversations", {"message": "hi", "attachments": [{"data": "", "media": "a/b"}]}, "media"),
        ("/ag-ui", {"threadId": "t", "runId": "r", "messges": []}, "did you mean 'messages'?"),
    ],
)
async def test_a_body_with_an_unknown_key_is_refused(path: str, body: Any, words: str) -> None:
    """A key that a body cannot have is refused with the nearest name, and nothing is written."""
    async with open_desk() as people:
        before = people.read_all()
        answer = await people.send("anna", "POST", path, body)
        assert (answer.status_code, words in answer.json()["error"]) == (400, True), answer.text
        assert people.read_all() == before


# -- the log of one owner ----------------------------------------------------------------------------------


class TestOwnedLog:
    """`OwnedLog`: a store in which the conversations of others do not exist."""

    async def test_it_has_the_agents_and_forks_of_an_owner(self) -> None:
        """Forks and contexts have the owner of what they come from; nobody else finds them."""
        site = make_desk()
        async with site.engine as engine:
            await engine.arun("hi", conversation="mine", owner="anna")
            await engine.conversation("mine").afork(1, name="fork")
            await engine.arun("hi", conversation="other", owner="ben")
            log = OwnedLog(engine.store, "anna", KnownOwners(engine.store))
            assert list(log.list_conversations()) == ["mine", "fork"]
            assert list(log.iterate_newest_first()) == ["fork", "mine"]
            assert list(log.iterate_newest_first("other")) == []
            assert list(log.iterate_newest_first("fork")) == ["mine"]
            assert (log.find_names("o"), log.find_names("f")) == ([], ["fork"])
            assert [row[0] for row in log.read_ends()] == ["mine", "fork"]
            for read in (log.read_lines, log.read_checkpoints, log.read_totals):
                assert (list(read("other")), bool(list(read("mine")))) == ([], True)
            assert (log.read_last_line("other"), log.read_last_line("mine") is None) == (None, False)

    async def test_leases_of_others_are_not_seen(self) -> None:
        """Who works on the conversation of somebody else is not said."""
        store = MemoryStore()
        async with make_desk(store).engine as engine:
            for owner in ("anna", "ben"):
                await engine.arun("hi", conversation=f"of-{owner}", owner=owner)
                store.acquire_lease(f"of-{owner}", "elsewhere:1", 9.0)
            log = OwnedLog(store, "anna", KnownOwners(store))
            assert [lease.conversation for lease in log.list_leases()] == ["of-anna"]
            assert (log.find_lease("of-ben"), log.find_lease("of-anna") is None) == (None, False)

    async def test_an_id_that_somebody_else_begins_again_is_theirs(self) -> None:
        """What is remembered of a deleted conversation shows nobody the next one under its id."""
        site = make_desk()
        async with site.engine as engine:
            known = KnownOwners(engine.store)
            annas, bens = OwnedLog(engine.store, "anna", known), OwnedLog(engine.store, "ben", known)
            await engine.arun("hi", conversation="one", owner="anna")
            assert list(annas.list_conversations()) == ["one"]
            engine.store.delete("one")
            await engine.arun("hi", conversation="one", owner="ben")
            assert (list(annas.list_conversations()), annas.read_last_line("one")) == ([], None)
            assert bens.read_last_line("one") is not None
            known.forget("one")
            assert list(bens.list_conversations()) == ["one"]

    def test_a_damaged_beginning_is_nobodys(self) -> None:
        """Where the first record cannot be read, whose it is cannot either: operators alone see it."""
        store = MemoryStore()
        store.append("torn", 0, [b'{"event": "anna'])
        with pytest.raises(LogDamaged):
            read_heading(store, "torn")
        assert list(OwnedLog(store, "anna", KnownOwners(store)).list_conversations()) == []

    def test_it_cannot_write(self) -> None:
        """It has no method that changes anything: an endpoint that tried would fail, and not write."""
        log = OwnedLog(MemoryStore(), "anna", KnownOwners(MemoryStore()))
        writing = ("append", "append_many", "delete", "post", "acquire_lease", "write_checkpoint")
        assert not [name for name in writing if hasattr(log, name)]


# -- the property ------------------------------------------------------------------------------------------

_NAMES = ("anna", "ben", "talker")
_IDS = tuple(f"conversation-{number}" for number in range(4))
_ACTS = st.lists(
    st.tuples(
        st.sampled_from(_NAMES),
        st.sampled_from(
            [*OF_ONE, ("POST", "/api/conversations"), ("POST", "/ag-ui"), ("GET", "/api/approvals")]
        ),
        st.sampled_from(_IDS),
        st.booleans(),
    ),
    min_size=4,
    max_size=16,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(acts=_ACTS)
def test_whatever_people_do_they_stay_apart(acts: list[Any]) -> None:
    """Over random acts of two owners and an operator at all endpoints: no answer has the words of another
    owner, no act adds to what is not theirs, owners never change, and each act of a person has its author."""
    asyncio.run(_act_and_check(acts))


async def _act_and_check(acts: list[Any]) -> None:
    site = make_desk()
    async with open_client(site) as client:
        people, owners = People(client, site), dict[str, str]()
        for name, (method, path), conversation, asks in acts:
            if "events" in path:
                continue
            words = f"{'ask ' if asks else ''}words-of-{name}"
            body = {
                "/api/conversations": {"message": words, "conversation": conversation},
                "/ag-ui": {
                    "threadId": conversation,
                    "runId": "r",
                    "messages": [{"role": "user", "content": words, "id": "1"}],
                },
            }.get(path, {**find_body(path)} if method == "POST" else None)
            if path.endswith("/messages") and method == "POST":
                body = {"message": words}
            before = dict(people.read_all())
            answer = await people.send(name, method, fill_path(path, conversation), body)
            after = dict(people.read_all())
            sees_all = "all" in PEOPLE[name]
            if not sees_all:
                others = [other for other in _NAMES if other not in (name, "talker")]
                assert not [other for other in others if f"words-of-{other}" in answer.text]
            for gone in before.keys() - after.keys():
                assert owners.pop(gone) == name, "who may delete all has no role for it here"
            for changed in [each for each in after if before.get(each) != after[each]]:
                owner = people.find_owner(changed)
                assert sees_all or owner == name
                assert owners.setdefault(changed, owner) == owner != ""
                assert "" not in read_authors(people, changed)
