"""The API of conversations: turns, decisions, forms, streams, lists, forks and reruns over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from effort import choose_count

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from served import SiteMaker, bearer, make_site, open_client, serve

from toolchart.app.server.site import Limits
from toolchart.app.studio.pages.run import read_steps
from toolchart.engine import Engine
from toolchart.engine.log.read_records import read_conversation
from toolchart.engine.log.stores import open_store
from toolchart.engine.log.verify import VerifiedConversation, verify_store
from toolchart.states.messages import Delta, Reply, Request, TextDelta, TextWithdrawn, ToolCall

TURNS = choose_count(short=30, long=100)
BURST = choose_count(short=60, long=500)

APPROVAL: dict[str, Any] = {"chart": "approval", "approval": {"default": "ask"}}


def ask_for(*texts: str) -> dict[str, Any]:
    """A reply that asks for an echo of each text."""
    return reply_with_calls(*(("echo", {"text": text}) for text in texts))


async def post(client: httpx.AsyncClient, path: str, status: int = 200, /, **body: Any) -> dict[str, Any]:
    """Post a body and return the answer, which must have this status."""
    answer = await client.post(f"/api/conversations{path}", json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


@pytest.fixture(params=["alone", "with a worker"])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SiteMaker]:
    """Sites that run turns themselves, and sites that hand them to a worker: both answer alike."""
    maker = SiteMaker(tmp_path if request.param == "with a worker" else None)
    yield maker
    maker.close()


# -- owners ------------------------------------------------------------------------------------------


async def test_python_the_server_and_the_command_line_read_the_same(
    sites: SiteMaker, tmp_path: Path, run_cli: Any
) -> None:
    """Rows of a list and the overview of a conversation are the same in Python, over HTTP and on the command
    line; owner and tags begin a conversation over HTTP, with a worker too."""
    path = tmp_path / "copy"
    site = sites.make([ask_for("a"), "second"], **APPROVAL)
    async with open_client(site) as client:
        await post(client, "", 200, conversation="a", message="pay", owner="anna", tags={"ticket": "4711"})
        await post(client, "", 200, conversation="b", message="hi", owner="ben")
        query = "owner=anna&tag=ticket%3D4711"
        listed = (await client.get(f"/api/conversations?{query}")).json()
        overview = (await client.get("/api/conversations/a")).json()
        refused = await client.get("/api/conversations?tag=ticket")
        assert copy_records(site.engine.store, path) == ["a", "b"]
    assert refused.status_code == 400
    async with make_engine([], log=path) as reader:
        page = reader.conversations(owner="anna", tags={"ticket": "4711"})
        view = json.loads(json.dumps(reader.conversation("a").read().to_dict()))
    assert listed == page.to_dict()
    assert {key: overview[key] for key in view} == view
    assert [call["conversation"] for call in view["waiting"]["approvals"]] == ["a"]
    runs = run_cli("runs", "--owner", "anna", "--tag", "ticket=4711", "--json", "--log", str(path))
    (row,) = listed["conversations"]
    printed = json.loads(runs.out)
    assert {key: printed[key] for key in row} == row
    shown = run_cli("show", "a", "--overview", "--log", str(path))
    assert json.loads(shown.out) == view


def copy_records(source: Any, path: Path) -> list[str]:
    """Copy all records to a log of its own; the names of its conversations."""
    target = open_store(str(path))
    names = list(source.list_conversations())
    for name in names:
        target.append(name, 0, list(source.read_lines(name)))
    target.close()
    return names


# -- turns -------------------------------------------------------------------------------------------


async def test_a_conversation_is_begun_continued_and_read(sites: SiteMaker) -> None:
    """A turn gives what `Engine.run` gives; the conversation goes on with its history, and can be read."""
    async with open_client(sites.make([ask_for("a"), "first", "second"])) as client:
        first = await post(client, "", message="hi", conversation="c1")
        second = await post(client, "/c1/messages", message="and?")
        overview = (await client.get("/api/conversations/c1")).json()
        messages = (await client.get("/api/conversations/c1/messages")).json()["messages"]
        records = (await client.get("/api/conversations/c1/records?start=1&limit=3")).json()
    assert (first["content"], first["ok"], first["conversation"]) == ("first", True, "c1")
    assert [call["tool"] for call in first["tool_calls"]] == ["echo"]
    assert second["content"] == "second"
    assert (overview["turns"], overview["tool_calls"], overview["is_running"]) == (2, 1, False)
    assert overview["result"]["content"] == "second"
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [record["seq"] for record in records["records"]] == [1, 2, 3]
    assert records["next"] == 4


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("", {"message": "hi", "conversation": "a.b"}, 400, "letters"),
        ("", {"message": "hi", "conversation": "../x"}, 400, "letters"),
        ("", {"message": "hi", "llm": "elsewhere"}, 400, "elsewhere"),
        ("", {"message": "hi", "handler": "nobody"}, 400, "nobody"),
        ("", {"text": "hi"}, 400, "message"),
        ("", {"message": "hi", "attachments": [{"data": "?", "media_type": "image/png"}]}, 400, "base64"),
        ("", {"message": "hi", "attachments": ["/etc/passwd"]}, 400, "attachments"),
        ("/none/messages", {"message": "hi"}, 404, "no conversation"),
        ("/none/decisions", {"call_id": "c", "approved": True}, 404, "no conversation"),
        ("/none/cancel", {}, 404, "no conversation"),
    ],
)
async def test_a_wrong_request_is_refused(
    sites: SiteMaker, path: str, body: dict[str, Any], status: int, text: str
) -> None:
    """A request that cannot be carried out says what is wrong, and nothing is written."""
    site = sites.make()
    async with open_client(site) as client:
        answer = await post(client, path, status, **body)
        assert text in answer["error"]
        assert list(site.engine.store.list_conversations()) == []


async def test_a_conversation_is_begun_once(sites: SiteMaker) -> None:
    """A second beginning under the same id is refused."""
    async with open_client(sites.make(["a", "b"])) as client:
        await post(client, "", message="hi", conversation="c1")
        assert "already" in (await post(client, "", 409, message="hi", conversation="c1"))["error"]


async def test_a_message_while_a_call_waits_is_accepted_and_delivered(sites: SiteMaker) -> None:
    """S5.5: a message to a turn that waits for a decision is accepted (202), and the answer says what it
    waits for. After the decision the model reads it; the same by a worker."""
    site = sites.make([ask_for("a"), "both"], **APPROVAL)
    async with open_client(site) as client:
        begun = await post(client, "", message="go", conversation="c1")
        kept = await post(client, "/c1/messages", 202, message="and hurry")
        overview = (await client.get("/api/conversations/c1")).json()
        (pending,) = begun["pending_approvals"]
        result = await post(client, "/c1/decisions", call_id=pending["id"], approved=True)
        messages = (await client.get("/api/conversations/c1/messages")).json()["messages"]
    assert (kept["as"], kept["is_over"], kept["waiting_messages"]) == ("user_said", False, ["and hurry"])
    assert "the message waits for the decision on 'echo'" in kept["warnings"][-1]
    assert overview["result"]["waiting_messages"] == ["and hurry"]
    assert result["content"] == "both"
    assert [message["content"] for message in messages if message["role"] == "user"] == ["go", "and hurry"]


# -- decisions ---------------------------------------------------------------------------------------


async def test_of_three_calls_one_is_approved_one_edited_and_one_rejected(sites: SiteMaker) -> None:
    """Decisions may come in any order; each counts once, and the log says whose it is."""
    site = sites.make([ask_for("a", "b", "c"), "done"], **APPROVAL)
    async with open_client(site, "owner") as client:
        begun = await post(client, "", message="go", conversation="c1")
        ids = [pending["id"] for pending in begun["pending_approvals"]]
        client.headers.update(bearer("decider"))
        await post(client, "/c1/decisions", call_id=ids[2], approved=False, reason="not today")
        late = await post(client, "/c1/decisions", 409, call_id=ids[2], approved=True)
        await post(client, "/c1/decisions", call_id=ids[1], approved=True, arguments={"text": "B"})
        result = await post(client, "/c1/decisions", call_id=ids[0], approved=True)
        records = (await client.get("/api/conversations/c1/records")).json()["records"]
    assert "decided" in late["error"]
    assert [call["outcome"] for call in result["tool_calls"]] == ["succeeded", "succeeded", "denied"]
    assert [call["params"] for call in result["tool_calls"]] == [{"text": "a"}, {"text": "B"}, {"text": "c"}]
    deciders = [record["event"]["by"] for record in records if record["event"]["type"] == "decided"]
    assert deciders == ["decider"] * 3


async def test_a_token_without_the_role_decides_nothing(sites: SiteMaker) -> None:
    """Whoever may chat alone cannot approve the calls of a chat."""
    async with open_client(sites.make([ask_for("a"), "done"], **APPROVAL), "talker") as client:
        begun = await post(client, "", message="go", conversation="c1")
        (pending,) = begun["pending_approvals"]
        await post(client, "/c1/decisions", 403, call_id=pending["id"], approved=True)
        assert (await client.get("/api/conversations/c1")).json()["result"]["pending_approvals"] == [pending]


class Payer:
    """A model that asks for two payments in one reply, and then answers."""

    name = "payer"

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return {"stream": stream}

    async def complete(self, request: Request) -> Reply:
        last = request.messages[-1]
        if last.role == "tool":
            return Reply(content="paid", finish_reason="stop")
        calls = tuple(ToolCall(id="", name="echo", arguments={"text": text}) for text in "ab")
        return Reply(tool_calls=calls, finish_reason="tool_calls")

    async def aclose(self) -> None:
        """Nothing to close."""


async def pay_with_trouble(client: httpx.AsyncClient, name: str) -> Counter[int]:
    """Begin a turn with two calls; decide about them out of order, twice at once, and about a third."""
    begun = await post(client, "", message="pay", conversation=name)
    first, second = [pending["id"] for pending in begun["pending_approvals"]]

    async def decide(call_id: str) -> int:
        body = {"call_id": call_id, "approved": True}
        return (await client.post(f"/api/conversations/{name}/decisions", json=body)).status_code

    statuses = list(await asyncio.gather(decide(second), decide(second), decide("call_9_9_9")))
    statuses += await asyncio.gather(decide(first), decide(first))
    return Counter([*statuses, await decide(first)])


async def test_many_turns_are_decided_at_once_and_each_call_once() -> None:
    """Turns with approvals out of order, doubled and unknown ones: each call runs once, the log is whole."""
    engine = Engine(make_spec(**APPROVAL), log="memory", providers={"model": Payer()})
    site = make_site(engine, limits=Limits(turns=1000, requests_per_s=1e6, burst=10_000))
    async with open_client(site, timeout=120) as client:
        counts = await asyncio.gather(*(pay_with_trouble(client, f"c{number}") for number in range(TURNS)))
        outcomes = [
            (await client.get(f"/api/conversations/c{number}")).json()["result"] for number in range(TURNS)
        ]
        checked = list(verify_store(engine.store))
    # 202: the decision reached a turn that was going on. Of each call one decision counts, whichever it is.
    assert all((count[200] + count[202], count[409]) == (2, 4) for count in counts), counts
    assert all(len(outcome["tool_calls"]) == 2 and outcome["ok"] for outcome in outcomes)
    assert all(isinstance(item, VerifiedConversation) for item in checked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arguments": {"txet": "b"}}, ("this would fit", '{"text":"b"}')),
        ({"arguments": {"text": ["b"]}}, ("Invalid arguments for 'echo'", "'text'")),
        ({"arguments": {}}, ("Invalid arguments for 'echo'", "'text'")),
        ({"approved": False, "arguments": {"text": "b"}}, ("a denial has no arguments",)),
        ({"argumens": {"text": "b"}}, ("unknown key 'argumens'", "arguments")),
    ],
)
async def test_a_decision_with_arguments_that_do_not_fit_is_refused(
    sites: SiteMaker, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    """The answer says what is wrong, nothing is decided, and the right decision counts afterwards."""
    site = sites.make([ask_for("a"), "done"], **APPROVAL)
    async with open_client(site) as client:
        begun = await post(client, "", message="pay", conversation="c1")
        decision = {"call_id": begun["pending_approvals"][0]["id"], "approved": True}
        refused = await post(client, "/c1/decisions", 400, **decision | changes)
        assert all(part in refused["error"] for part in words), refused
        waiting = (await client.get("/api/conversations/c1")).json()["waiting"]["approvals"]
        assert [call["id"] for call in waiting] == [decision["call_id"]]
        turn = await post(client, "/c1/decisions", **decision, arguments={"text": "b"})
    assert [call["params"] for call in turn["tool_calls"]] == [{"text": "b"}]


async def test_a_misspelt_key_of_a_decision_is_named(sites: SiteMaker) -> None:
    """The unknown key is named with the nearest one, and not the missing one alone."""
    async with open_client(sites.make([ask_for("a"), "done"], **APPROVAL)) as client:
        begun = await post(client, "", message="pay", conversation="c1")
        body = {"call_id": begun["pending_approvals"][0]["id"], "aproved": True}
        refused = await post(client, "/c1/decisions", 400, **body)
    assert "unknown key 'aproved'" in refused["error"]
    assert "'approved'" in refused["error"]


# -- forms and messages during a turn ----------------------------------------------------------------

INTERVIEW: dict[str, Any] = {
    "chart": {
        "name": "form",
        "states": {
            "asking": {
                "initial": True,
                "enter": "ask_name",
                "transitions": [
                    {"event": "answered", "target": "finished"},
                    {"event": "failed", "target": "error"},
                    {"event": "cancelled", "target": "error"},
                ],
            },
            "finished": {"final": True, "enter": "greet"},
            "error": {"final": True, "enter": "answer_with_error"},
        },
    },
    "effects": {
        "ask_name": {
            "ask_person": {
                "question": "Who are you?",
                "as": "person",
                "form": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
            }
        },
        "greet": {"answer": "Hello {{person.name}}"},
    },
}


async def test_a_form_is_answered_once_and_by_name(sites: SiteMaker) -> None:
    """The answer to a question of the chart is checked, recorded with its author, and counts once."""
    async with open_client(sites.make([], **INTERVIEW)) as client:
        begun = await post(client, "", message="hi", conversation="c1")
        (question,) = begun["questions"]
        assert question["form"]["required"] == ["name"]
        assert "name" in (await post(client, "/c1/answers", 400, content={"nome": "Ada"}))["error"]
        client.headers.update(bearer("decider"))
        result = await post(client, "/c1/answers", content={"name": "Ada"})
        await post(client, "/c1/answers", 400, content={"name": "Bob"})
        records = (await client.get("/api/conversations/c1/records")).json()["records"]
    assert result["content"] == "Hello Ada"
    (answer,) = [record["event"] for record in records if record["event"]["type"] == "answered"]
    assert answer["by"] == "decider"


class Speaker:
    """A model that streams a text, and waits for a sign before it ends."""

    name = "speaker"

    def __init__(self) -> None:
        self.was_asked = threading.Event()
        self.may_end = threading.Event()

    def build_body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        return {"stream": stream}

    async def complete(self, request: Request) -> Reply:
        self.was_asked.set()
        while not self.may_end.is_set():  # noqa: ASYNC110  a test in another thread says so
            await asyncio.sleep(0.005)
        return Reply(content="one two", finish_reason="stop")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        yield TextDelta(text="one ")
        yield TextDelta(text="two")
        yield await self.complete(request)

    async def aclose(self) -> None:
        """Nothing to close."""


def make_speaking_engine(speaker: Any) -> Engine:
    """An engine whose model is the speaker."""
    return Engine(make_spec(), log="memory", providers={"model": speaker})


async def test_a_message_during_a_turn_is_user_said_and_a_cancellation_stops_it(sites: SiteMaker) -> None:
    """A message to a running turn goes into it; a second turn is not begun; cancelling ends the turn."""
    speaker = Speaker()
    site = sites.make(provider=speaker)
    async with open_client(site) as client:
        answer = await client.post(
            "/api/conversations?wait=false", json={"message": "hi", "conversation": "c1"}
        )
        assert (answer.status_code, answer.json()) == (202, {"conversation": "c1"})
        said = await post(client, "/c1/messages", 202, message="and this")
        assert said["as"] == "user_said"
        assert await wait_for_record(client, "user_said") < await wait_for_cancellation(client)
        speaker.may_end.set()


async def wait_for_cancellation(client: httpx.AsyncClient) -> int:
    """Cancel the turn of `c1`; the number of the record that says so."""
    await post(client, "/c1/cancel", 202, reason="enough")
    return await wait_for_record(client, "cancelled")


async def wait_for_record(client: httpx.AsyncClient, kind: str) -> int:
    """The number of the first record of `c1` with an event of a type, once the log has it."""
    async with asyncio.timeout(120):
        while True:
            records = (await client.get("/api/conversations/c1/records")).json()["records"]
            found = [record["seq"] for record in records if record["event"]["type"] == kind]
            if found:
                return int(found[0])
            await asyncio.sleep(0.01)


async def test_a_turn_survives_the_client_that_began_it(sites: SiteMaker) -> None:
    """A client that goes away in the middle stops nothing; the answer is there for whoever comes back."""
    speaker = Speaker()
    site = sites.make(provider=speaker)
    with serve(site) as address:
        async with httpx.AsyncClient(
            base_url=address, headers=bearer(), timeout=120, trust_env=False
        ) as client:
            body = {"message": "hi", "conversation": "c1"}
            asking = asyncio.ensure_future(client.post("/api/conversations", json=body))
            assert await asyncio.to_thread(speaker.was_asked.wait, 120)
            asking.cancel()  # closes the connection
            with pytest.raises(asyncio.CancelledError):
                await asking
            begun = (await client.get("/api/conversations/c1")).json()
            speaker.may_end.set()
            async with client.stream("GET", "/api/conversations/c1/events") as response:
                events = await read_events(response, "finished")
    assert begun["is_running"]
    assert events[-1]["target"] == "finished"


# -- streams -----------------------------------------------------------------------------------------


async def read_events(response: httpx.Response, until: str, kinds: Counter[str] | None = None) -> list[Any]:
    """The records of a stream until one has this target; counts the kinds of all events."""
    records, kind = [], ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            kind = line[7:]
        if line.startswith("data: "):
            if kinds is not None:
                kinds[kind] += 1
            if kind == "record":
                records.append(json.loads(line[6:]))
                if records[-1]["target"] == until:
                    return records
    raise AssertionError("the stream ended early")


async def test_a_reader_that_comes_back_misses_nothing(sites: SiteMaker) -> None:
    """Readers who connect at any time get every record once and in order; `Last-Event-ID` skips the known."""
    speaker = Speaker()
    site = sites.make(provider=speaker)
    kinds: Counter[str] = Counter()
    with serve(site) as address:
        async with httpx.AsyncClient(
            base_url=address, headers=bearer(), timeout=120, trust_env=False
        ) as client:
            await client.post("/api/conversations?wait=false", json={"message": "hi", "conversation": "c1"})
            url = "/api/conversations/c1/events"
            async with (
                client.stream("GET", url) as first,
                client.stream("GET", url, headers={"Last-Event-ID": "1"}) as second,
            ):
                speaker.may_end.set()
                whole = await read_events(first, "finished", kinds)
                rest = await read_events(second, "finished")
    assert [record["seq"] for record in whole] == list(range(len(whole)))
    assert rest == whole[2:]


async def test_a_slow_reader_is_let_go_and_loses_nothing() -> None:
    """A reader whose queue is full is closed; from its last record on it gets the rest."""
    engine = make_engine([ask_for("a"), ask_for("b"), "done"])
    site = make_site(engine, limits=Limits(reader_queue=2))
    async with open_client(site) as client:
        await post(client, "", message="hi", conversation="c1")
        events = site.feeds.follow("c1", 0)
        first = await anext(events)
        await post(client, "/c1/messages", message="more")
        seen = [first, *[event async for event in events]]
        numbers = [int(event.id) for event in seen if event.id]
        again = site.feeds.follow("c1", numbers[-1] + 1)
        total = engine.store.read_last_line("c1")[0] + 1  # type: ignore[index]
        numbers += [int((await anext(again)).id) for _ in range(total - len(numbers))]
        await again.aclose()
    assert numbers == list(range(total))


async def test_readers_of_any_speed_have_the_same_text() -> None:
    """A reader that comes in the middle of a reply, or is too slow for its deltas, gets the whole text so
    far, and then what follows; what was withdrawn is in none."""
    site = make_site(make_engine(["unused"]), limits=Limits(reader_queue=3))
    async with open_client(site) as client:
        await post(client, "", message="hi", conversation="c1")
        feeds, start = site.feeds, 99
        feeds.begin_text("c1")
        early = feeds.follow("c1", start)
        assert (await anext(early)).data == {"text": ""}
        pieces = [TextDelta(text="void"), TextWithdrawn(reason="failure")]
        pieces += [TextDelta(text=f"{number} ") for number in range(8)]
        for piece in pieces:
            feeds.publish_delta("c1", piece)
        late = feeds.follow("c1", start)
        assert (await anext(late)).data == {"text": "0 1 2 3 4 5 6 7 "}
        taken = [await anext(early) for _ in range(3)]
        feeds.publish_delta("c1", TextDelta(text="8"))
        taken.append(await anext(early))
        assert (await anext(late)).data["text"] == "8"
        await early.aclose()
        await late.aclose()
    assert [event.event for event in taken] == ["delta"] * 3 + ["text"]
    assert taken[-1].data == {"text": "0 1 2 3 4 5 6 7 8"}


async def test_many_readers_get_the_same_by_and_by() -> None:
    """Of more readers than get an event at once each gets every record once and in order, and the result."""
    engine = make_engine([ask_for("a"), "done", "again"])
    site = make_site(engine)
    async with open_client(site) as client:
        await post(client, "", message="hi", conversation="c1")

        async def read_whole(readers: list[AsyncGenerator[Any, None]]) -> list[list[str]]:
            seen: list[list[str]] = [[] for _ in readers]
            for events, names in zip(readers, seen, strict=True):
                async for event in events:
                    names += [event.id or event.event] if event.event != "delta" else []
                    if event.event == "result":
                        assert event.data["is_over"] is True
                        break
            return seen

        readers = [site.feeds.follow("c1", 0) for _ in range(40)]
        firsts = [(await anext(events)).id for events in readers]
        await post(client, "/c1/messages", message="more")
        rest = await read_whole(readers)
        count = engine.store.read_last_line("c1")[0] + 1  # type: ignore[index]
    assert firsts == ["0"] * 40
    assert rest == [[*map(str, range(1, count)), "result"]] * 40


async def test_many_turns_at_once_are_limited_and_not_lost() -> None:
    """Beyond the limit a turn is refused with a time to wait, and nothing of it is written; tried again, each
    is run once."""
    speaker = Speaker()
    engine = make_speaking_engine(speaker)
    site = make_site(engine, limits=Limits(turns=8, requests_per_s=1e6, burst=100_000))
    refusals, ended = 0, asyncio.Semaphore(0)

    async def insist(client: httpx.AsyncClient, name: str) -> None:
        nonlocal refusals
        while True:
            body = {"message": "hi", "conversation": name}
            answer = await client.post("/api/conversations", json=body)
            if answer.status_code == 200:
                assert answer.json()["content"] == "one two"
                ended.release()
                return
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            refusals += 1
            speaker.may_end.set()  # no turn has ended until somebody was refused
            await ended.acquire()

    async with open_client(site, timeout=120) as client:
        await asyncio.gather(*(insist(client, f"c{number}") for number in range(BURST)))
        names = set(engine.store.list_conversations())
        counts = {engine.store.read_last_line(name)[0] for name in names}  # type: ignore[index]
    assert refusals
    assert names == {f"c{number}" for number in range(BURST)}
    assert len(counts) == 1
    assert site.turns.free == 8


# -- lists, forks, reruns ----------------------------------------------------------------------------


async def test_lists_have_filters_and_pages() -> None:
    """Pages follow each other without gaps or doubles; filters hold; figures add up."""
    engine = make_engine([ask_for("a"), "x", "y", "z", "u", "v"])
    async with open_client(make_site(engine)) as client:
        for number in range(5):
            await post(client, "", message=f"message {number}", conversation=f"c{number}")
        names, before = [], ""
        while True:
            query = {"limit": "2", **({"before": before} if before else {})}
            page = (await client.get("/api/conversations", params=query)).json()
            names += [row["conversation"] for row in page["conversations"]]
            before = page["next"]
            if not before:
                break
        with_echo = (await client.get("/api/conversations?tool=echo&figures=true")).json()["conversations"]
        text = (await client.get("/api/conversations?text=MESSAGE 3")).json()["conversations"]
        wrong = await client.get("/api/conversations?limit=many")
    assert names == ["c4", "c3", "c2", "c1", "c0"]
    assert [(row["conversation"], row["tools"]) for row in with_echo] == [("c0", ["echo"])]
    assert [row["conversation"] for row in text] == ["c3"]
    assert (wrong.status_code, "not a number" in wrong.text) == (400, True)


async def test_a_search_says_where_its_words_stand(tmp_path: Path, run_cli: Any) -> None:
    """`search`, `status` and `order` combine with filters and pages; a row has its hit, and a page what one
    can choose from; wrong values are refused with those that are allowed, and a state that no conversation is
    in is explained. The command line finds the same."""
    path = tmp_path / "log.db"
    engine = make_engine([ask_for("a"), "The refund is paid.", "No refund."], log=str(path), **APPROVAL)
    async with open_client(make_site(engine)) as client:
        for name, owner in (("c1", "anna"), ("c2", "ben")):
            await post(client, "", 200, message="My refund order-7731?", conversation=name, owner=owner)

        async def read(query: str) -> Any:
            return (await client.get(f"/api/conversations?{query}")).json()

        both = await read("search=order-77&order=attention")
        paid = await read("search=refund paid&figures=true")
        owned = await read("search=refund&owner=anna&limit=1")
        waiting = await read("status=waiting&choices=true")
        empty = await read("state=awaiting")
        refused = [
            await client.get(f"/api/conversations?{query}")
            for query in ("status=awaiting", "order=oldest", "search=-")
        ]
    assert [(row["conversation"], row["status"]) for row in both["conversations"]] == [
        ("c1", "approval"),
        ("c2", "finished"),
    ]
    hit = both["conversations"][0]["hit"]
    assert (hit["seq"], [hit["text"][a:b] for a, b in hit["marks"]]) == (1, ["order-7731"])
    assert [row["conversation"] for row in paid["conversations"]] == ["c2"]
    assert [row["conversation"] for row in owned["conversations"]] == ["c1"]
    assert [row["conversation"] for row in waiting["conversations"]] == ["c1"]
    assert waiting["choices"] == {
        "statuses": ["approval", "finished"],
        "states": ["awaiting_approval", "finished"],
        "owners": ["anna", "ben"],
        "agents": [],
        "models": ["m"],
        "tags": {},
        "redacted": False,
    }
    assert [answer.status_code for answer in refused] == [400] * 3
    assert "waiting" in refused[0].text
    assert empty["conversations"] == []
    assert empty["notice"].endswith("'awaiting'; there are: awaiting_approval, finished")
    runs = run_cli("runs", "--search", "refund paid", "--json", "--log", str(path))
    assert json.loads(runs.out)["hit"] == paid["conversations"][0]["hit"]
    shown = run_cli("runs", "--search", "paid", "--log", str(path))
    assert "record 2: " in shown.out
    assert "refund is paid." in shown.out
    assert run_cli("runs", "--status", "waiting", "--log", str(path)).out.count("c1") == 1
    ordered = run_cli("runs", "--attention", "--json", "--log", str(path))
    assert [json.loads(line)["conversation"] for line in ordered.out.splitlines()] == ["c2", "c1"]
    nothing = run_cli("runs", "--state", "awaiting", "--log", str(path))
    assert "there are: awaiting_approval, finished" in nothing.err
    wrong = run_cli("runs", "--status", "awaiting", "--log", str(path))
    assert (wrong.code, "waiting" in wrong.err) == (2, True)


async def test_a_fork_and_a_rerun_of_a_conversation() -> None:
    """A fork runs under changes in a conversation of its own; a rerun compares and writes nothing."""
    engine = make_engine([ask_for("a"), "first", "forked"])
    async with open_client(make_site(engine)) as client:
        await post(client, "", message="hi", conversation="c1")
        same = await post(client, "/c1/rerun")
        (call,) = [
            record["calls"][0]
            for record in (await client.get("/api/conversations/c1/records")).json()["records"]
            if record.get("calls")
        ]
        forked = await post(client, "/c1/fork", conversation="c2", results={call: "changed"})
        names = list(engine.store.list_conversations())
    assert same["status"] == "same"
    result = forked["result"]
    assert (forked["parent"], result["content"], result["is_over"]) == ("c1", "forked", True)
    assert names == ["c1", "c2"]


async def test_a_fork_with_other_arguments() -> None:
    """A fork over HTTP hears the reply again with new arguments of its call. Arguments that do not fit and an
    unknown call are refused (400), and it needs the role `debug`, as other results do."""
    engine = make_engine([ask_for("a"), "first", "forked"])
    async with open_client(make_site(engine)) as client:
        await post(client, "", message="hi", conversation="c1")
        records = (await client.get("/api/conversations/c1/records")).json()["records"]
        (call,) = [record["calls"][0] for record in records if record.get("calls")]
        path = "/api/conversations/c1/fork"
        unknown = await client.post(path, json={"arguments": {"call_9": {"text": "b"}}})
        no_object = await client.post(path, json={"arguments": {call: "b"}})
        body = {"arguments": {call: {"text": "b"}}, "conversation": "c2"}
        forked = (await client.post(path, json=body)).json()
        diff = (await client.get("/api/conversations/c1/diff?with=c2")).json()
        body = {"arguments": {call: {"text": "b"}}}
        refused = await client.post(path, json=body, headers=bearer("talker"))
    assert (forked["parent"], forked["at"], forked["stopped"]) == ("c1", 1, None)
    assert (unknown.status_code, no_object.status_code) == (400, 400)
    assert "itself has no call 'call_9'" in unknown.text
    assert diff["first"]["pointer"] == "/event/reply/tool_calls/0/arguments/text"
    assert (diff["first"]["left"], diff["first"]["right"]) == ("a", "b")
    assert refused.status_code == 403
    assert refused.json()["field"] == "arguments"


async def test_the_openapi_document_names_every_endpoint_and_form() -> None:
    """The document lists the paths with their roles; every reference in it leads somewhere."""
    async with open_client(make_site(), "viewer") as client:
        document = (await client.get("/openapi.json")).json()
    decide = document["paths"]["/api/conversations/{conversation}/decisions"]["post"]
    assert "`approve`" in decide["description"]
    operations = [
        operation["operationId"] for path in document["paths"].values() for operation in path.values()
    ]
    assert len(set(operations)) == len(operations)
    text = json.dumps(document)
    names = [part.split('"')[0] for part in text.split("#/components/schemas/")[1:]]
    assert set(names) <= set(document["components"]["schemas"])


def test_steps_are_those_of_all_records() -> None:
    """Each record is a step, and a row that fired names its state, also where the record leaves it out."""
    engine = make_engine(["hello"])
    engine.run("hi", conversation="c1")
    steps = read_steps(engine.store, "c1", 0)
    records = list(read_conversation(engine.store, "c1"))
    assert steps["seq"] == [record.seq for record in records]
    assert steps["event"][-1] == "replied"
    assert steps["fired"] == [[[row.source, row.row] for row in record.fired] for record in records]
    assert steps["fired"][-1][0][0] == "prompting"
    engine.close()
