"""What is made of recorded conversations: comparisons, exports, and whether seals and hashes hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server needs the extra `serve`")

from agents import make_engine, make_spec, reply_with_calls
from child_agents import make_parent_chart
from seal_files import append_seal
from served import make_site, open_client

from toolchart.app.cli.commands.turns.serve import open_seals
from toolchart.app.server.site import SiteSettings
from toolchart.engine import Engine
from toolchart.engine.log.fork import ForkChanges
from toolchart.engine.log.sealing.journal import Journal, load_journal
from toolchart.engine.log.sealing.keys import SealSigner, SealVerifier, make_hmac_signer
from toolchart.engine.log.sealing.log_seals import seal_log
from toolchart.engine.log.stores.memory import MemoryStore
from toolchart.providers.scripted.provider import ScriptedProvider
from toolchart.states.core.encoding import encode
from toolchart.states.errors import SpecError

ONE = "/api/conversations/c1"


async def make_two() -> Engine:
    """Two conversations: the second one calls another tool in its second reply and then goes on alike."""
    echo = reply_with_calls(("echo", {"text": "a"}))
    detour = reply_with_calls(("calculator", {"expression": "1+1"}))
    last = reply_with_calls(("echo", {"text": "z"}))
    engine = make_engine([echo, last, "done", echo, detour, last, "done"])
    await engine.arun("hi", conversation="c1")
    await engine.arun("hi", conversation="c2")
    return engine


# -- comparing -----------------------------------------------------------------------------------


async def test_two_runs_are_compared_side_by_side() -> None:
    """The steps in common are counted, the first difference is named, and the rest is aligned: after a
    detour equal steps stand beside each other again, the detour beside nothing."""
    async with open_client(make_site(await make_two()), "viewer") as client:
        answer = (await client.get(f"{ONE}/diff?with=c2")).json()
    assert (answer["is_equal"], answer["first"]["left_seq"], answer["first"]["right_seq"]) == (False, 5, 5)
    rows = answer["rows"]
    assert answer["common"] == 5
    assert [row["right"]["seq"] for row in rows if row["left"] is None] != []
    assert not [row for row in rows if row["right"] is None]
    tail = [(row["left"]["event"]["type"], row["is_equal"]) for row in rows if row["left"]][-2:]
    assert tail[-1] == ("replied", True)


async def test_equal_runs_have_no_difference() -> None:
    """A conversation equals itself, and a page says so."""
    async with open_client(make_site(await make_two())) as client:
        answer = (await client.get(f"{ONE}/diff?with=c1")).json()
        page = await client.get("/conversations/c1/diff?with=c1")
    assert (answer["is_equal"], answer["first"], answer["rows"]) == (True, None, [])
    assert "equal" in page.text


async def test_the_page_of_a_comparison_shows_both() -> None:
    """Both sides are shown with events, states and details, and the first difference with its place."""
    async with open_client(make_site(await make_two())) as client:
        page = await client.get("/conversations/c1/diff?with=c2")
    for part in (
        "The first difference",
        "5 steps in common",
        "only right",
        "calculator",
        "/conversations/c2",
    ):
        assert part in page.text


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?with=nope", 404)])
async def test_a_comparison_names_another_conversation(query: str, status: int) -> None:
    """Without one, or with one that does not exist, the request is refused."""
    async with open_client(make_site(await make_two())) as client:
        assert (await client.get(f"{ONE}/diff{query}")).status_code == status
        assert (await client.get(f"/conversations/c1/diff{query}")).status_code == status


# -- exports -------------------------------------------------------------------------------------


async def test_each_format_is_a_file() -> None:
    """Every format comes as an attachment with a plain name; an unknown one is refused with the list."""
    async with open_client(make_site(await make_two()), "viewer") as client:
        page = await client.get("/conversations/c1")
        for form in ("openai", "calls", "jsonl"):
            answer = await client.get(f"{ONE}/export/{form}")
            assert answer.status_code == 200, form
            assert answer.headers["content-disposition"].startswith(f'attachment; filename="c1-{form}.')
            assert f"/export/{form}" in page.text
        messages = (await client.get(f"{ONE}/export/openai")).json()
        wrong = await client.get(f"{ONE}/export/pdf")
    assert [message["role"] for message in messages][:2] == ["system", "user"]
    assert (wrong.status_code, "openai" in wrong.json()["error"]) == (404, True)


# -- seals ---------------------------------------------------------------------------------------


def seal_everything(engine: Engine, folder: Path, signer: SealSigner | None = None) -> Path:
    """A journal with one seal over the whole log of an engine."""
    path = folder / "seals.jsonl"
    line = seal_log(engine.store, Journal(), "2026-01-01T00:00:00Z", signer or SealSigner())
    append_seal(path, line)
    return path


async def read_seal(engine: Engine, path: str, verifier: SealVerifier | None = None) -> dict[str, Any]:
    """What the server says about the seal of `c1`."""
    settings = SiteSettings(seals=path, seal_verifier=verifier)
    async with open_client(make_site(engine, settings=settings), "viewer") as client:
        answer = (await client.get(f"{ONE}/verify")).json()
    seal: dict[str, Any] = answer["seal"]
    return seal


async def test_the_state_of_a_seal_is_told(tmp_path: Path) -> None:
    """Without a journal there is none; a conversation after the seal is unsealed; a sealed one has the time
    and the number of records that the seal covers; signed seals need their key."""
    engine = make_engine(["one", "two"])
    await engine.arun("hi", conversation="c0")
    path = str(seal_everything(engine, tmp_path))
    await engine.arun("hi", conversation="c1")
    assert (await read_seal(engine, ""))["state"] == "none"
    assert (await read_seal(engine, path))["state"] == "unsealed"
    journal = load_journal(path, SealVerifier())
    key = b"a key of these tests that is long enough"
    append_seal(Path(path), seal_log(engine.store, journal, "2026-01-02T00:00:00Z", make_hmac_signer(key)))
    assert (await read_seal(engine, path))["state"] == "unchecked"
    only_key = tmp_path / "signed.jsonl"
    append_seal(only_key, seal_log(engine.store, Journal(), "2026-01-02T00:00:00Z", make_hmac_signer(key)))
    sealed = await read_seal(engine, str(only_key), SealVerifier(key))
    assert (sealed["state"], sealed["records"], sealed["at"]) == ("sealed", 3, "2026-01-02T00:00:00Z")
    missing = await read_seal(engine, str(tmp_path / "nowhere"))
    assert (missing["state"], "cannot be read" in missing["problem"]) == ("unchecked", True)


async def test_a_log_that_lost_its_end_breaks_the_seal(tmp_path: Path) -> None:
    """A seal that covers more records than the log has says that the end was cut off."""
    engine = make_engine(["one"])
    await engine.arun("hi", conversation="c1")
    path = str(seal_everything(engine, tmp_path))
    del engine.store._lines["c1"][2:]  # type: ignore[attr-defined]
    seal = await read_seal(engine, path)
    assert (seal["state"], "its end was cut off" in seal["problem"]) == ("broken", True)


def test_a_seal_journal_that_cannot_be_read_refuses_the_start(tmp_path: Path) -> None:
    """A wrong path is found when the server is started, and not when somebody looks."""
    with pytest.raises(SpecError, match="cannot be read"):
        open_seals(str(tmp_path / "nowhere.jsonl"), "quickstart")
    engine = make_engine(["one"])
    engine.run("hi", conversation="c1")
    settings = SiteSettings(**open_seals(str(seal_everything(engine, tmp_path)), "quickstart"))
    assert settings.seals.endswith("seals.jsonl")
    assert open_seals(None, "quickstart") == {}


# -- what the page of a run asks for -------------------------------------------------------------


async def test_steps_say_which_effects_they_ask_for_and_answer() -> None:
    """Each step has the ids of the effects that it asks for, answers and cancels; the newest step of a turn
    that waits leaves its question open."""
    calls = reply_with_calls(("echo", {"text": "a"}))
    engine = make_engine([calls], chart="approval", approval={"default": "ask"})
    await engine.arun("hi", conversation="c1")
    async with open_client(make_site(engine), "viewer") as client:
        steps = (await client.get(f"{ONE}/steps")).json()
        left = (await client.get(f"{ONE}/open")).json()
    asked = [name for asks in steps["asks"] for _, name in asks]
    assert asked == ["call_model", "review_calls", "ask_approval"]
    assert steps["answers"] == [0, 0, 1, 2]
    assert [row["effect"] for row in left["open"]] == ["ask_approval"]
    assert left["next"] == len(steps["seq"])


async def test_whole_requests_are_derived() -> None:
    """Each record that asks a model gives the request that the provider got, with the recorded digest; other
    records give none. The records of a fork do so too."""
    provider = ScriptedProvider([reply_with_calls(("echo", {"text": "a"})), "done", "forked"])
    engine = Engine(make_spec(), log="memory", providers={"model": provider})
    await engine.arun("hi", conversation="c1")
    await engine.afork("c1", 3, ForkChanges(settings={"model": "other"}), name="c2")
    shown, recorded = [], []
    async with open_client(make_site(engine), "viewer") as client:
        for name in ("c1", "c2"):
            for record in (await client.get(f"/api/conversations/{name}/records")).json()["records"]:
                path = f"/api/conversations/{name}/requests?seq={record['seq']}"
                rows = (await client.get(path)).json()["requests"]
                asks = [ask for ask in record.get("asks", []) if "messages" in ask]
                recorded += [(ask["id"], ask["digest"]) for ask in asks]
                assert len(rows) == len(asks)
                shown += rows
        beyond = (await client.get("/api/conversations/c2/requests?seq=99")).json()
    for row, request in zip(shown, provider.requests, strict=True):
        assert row["request"]["messages"] == [encode(message) for message in request.messages]
        assert row["request"]["tools"] == [encode(tool) for tool in request.tools]
        assert row["request"].get("options", {}) == request.options
    assert [row["request"]["model"] for row in shown] == ["m", "m", "other"]
    assert {row["host"] for row in shown} == {"model"}
    assert [(row["effect"], row["digest"]) for row in shown] == recorded
    assert beyond == {"requests": []}


async def test_a_request_of_a_changed_record_is_refused() -> None:
    """A request is never derived from a record that was changed; the answer names the record."""
    engine, store = await make_two(), MemoryStore()
    lines = [line.replace(b'"hi"', b'"ho"') for line in engine.store.read_lines("c1")]
    store.append("c1", 0, lines)
    async with open_client(make_site(make_engine([], log=store)), "viewer") as client:
        answer = await client.get(f"{ONE}/requests?seq=1")
    assert answer.status_code >= 400
    assert "record 1" in answer.text


async def test_sub_agents_and_visits_are_listed() -> None:
    """Each child names the effect that asked for it, its state and its records; visits count how often a
    state was entered, and rows how often they were taken."""
    child = {"chart": "tool_loop", "message": "do it", "as": "outcome"}
    effects = {"work": {"run_agent": child}, "publish": {"answer": "{{outcome}}"}}
    engine = make_engine(["the child is done"], chart=make_parent_chart(), effects=effects)
    await engine.arun("hi", conversation="c1")
    async with open_client(make_site(engine), "viewer") as client:
        steps = (await client.get(f"{ONE}/steps")).json()
        (row,) = (await client.get(f"{ONE}/children")).json()["children"]
        visits = (await client.get(f"{ONE}/visits")).json()
    assert [row["effect"], "work"] in steps["asks"][1]
    assert (row["conversation"], row["state"], row["records"]) == ("c1.1", "finished", 3)
    assert visits["visits"] == {"working": 1, "finished": 1}
    assert visits["edges"] == [["working", 0, 1]]
    assert set(visits["seconds"]) >= {"working"}


async def test_every_endpoint_of_copies_is_in_the_document() -> None:
    """The OpenAPI document describes forks and reruns with their bodies, and the comparison."""
    async with open_client(make_site()) as client:
        document = (await client.get("/openapi.json")).json()
    one = "/api/conversations/{conversation}"
    for path, method in (("fork", "post"), ("rerun", "post"), ("diff", "get"), ("export/{format}", "get")):
        assert method in document["paths"][f"{one}/{path}"]
    assert "ForkForm" in json.dumps(document["paths"][f"{one}/fork"])
